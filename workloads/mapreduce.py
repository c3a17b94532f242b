"""Map-reduce: documents read concurrently, then one call that reads all answers.

Ours, not in the paper: Autellix draws such a program (Fig. 1c) but measures none. It is
here because people expect it, and for a fan-out whose calls share nothing but their end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from workloads.base import ProgramSet
from workloads.parameters import Parameters, read_presets, resolve
from workloads.random_streams import Dist, stream
from workloads.recipe import Recipe
from workloads.session import Reply, Session

_TOML = Path(__file__).with_suffix(".toml")


@dataclass(frozen=True, slots=True)
class Shape:
    """What a program is drawn from; lengths in tokens."""

    fanout: Dist
    map_prompt: Dist
    map_output: Dist
    reduce_prompt: Dist
    reduce_output: Dist

    @property
    def longest(self) -> int | None:
        """Prompt + output of the longest call there can be (tokens); None if unbounded."""
        answers = self.fanout.most_tokens * self.map_output.most_tokens
        reduce = self.reduce_prompt.most_tokens + answers + self.reduce_output.most_tokens
        total = max(self.map_prompt.most_tokens + self.map_output.most_tokens, reduce)
        return total if total < 1 << 40 else None


async def summarise(shape: Shape, s: Session) -> None:
    """One program: the answers enter the last prompt in the order of the documents."""
    width = max(1, shape.fanout.count(stream(s.key, "fanout")))
    answers = await s.join(*(_read(shape, s.fork()) for _ in range(width)))
    for answer in answers:
        s.add((answer.output_id, answer.output_tokens))
    new = shape.reduce_prompt.tokens(stream(s.key, "reduce_prompt"))
    await s.call(new, output=shape.reduce_output.tokens(stream(s.key, "reduce_output")))


async def _read(shape: Shape, fork: Session) -> Reply:
    prompt = shape.map_prompt.tokens(stream(fork.key, "map_prompt"))
    return await fork.call(prompt, output=shape.map_output.tokens(stream(fork.key, "map_output")))


class MapReduce:
    """Presets: ``summarise`` (ours, not in the paper)."""

    name = "mapreduce"
    default_preset = "summarise"

    def presets(self) -> list[str]:
        """Names of the presets."""
        return list(read_presets(_TOML))

    def build(
        self, n: int, seed: int, preset: str | None = None, parameters: Mapping[str, object] = {}
    ) -> ProgramSet:
        """``n`` programs. Raises WorkloadError for a bad preset or parameter."""
        return self.recipe(preset, parameters).programs(n, seed)

    def recipe(self, preset: str | None = None, parameters: Mapping[str, object] = {}) -> Recipe:
        """The programs of a preset. Raises WorkloadError for a bad preset or parameter."""
        p = resolve(_TOML, self.name, preset or self.default_preset, parameters)
        shape = _shape(p)
        rate = p.positive("rate")
        return Recipe(self.name, p.where, p.values, rate, partial(summarise, shape), shape.longest)


def _shape(p: Parameters) -> Shape:
    scale = p.positive("token_scale")
    return Shape(
        p.dist("fanout"),
        *(
            p.dist(name).scaled(scale)
            for name in ("map_prompt", "map_output", "reduce_prompt", "reduce_output")
        ),
    )


WORKLOAD = MapReduce()
