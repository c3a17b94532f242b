"""Chatbot: a person and a model take turns (Autellix, section 5, ShareGPT).

A conversation that would outgrow ``max_context`` ends before the turn that does
not fit, as chat front ends do; a first turn that does not fit is shortened. Both
are counted in ``ProgramSet.repaired``. Refusing instead would make a run fail on
the seeds that happen to draw such a conversation.

A ``window`` (preset ``v3_split``) is how the public file was made: conversations cut
into pieces of that many tokens. A piece of many turns therefore has short ones: lengths
that would exceed the window are shortened by a common factor, the number of turns stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from vocabulary import on_grid
from workloads.base import ProgramSet
from workloads.parameters import Parameters, read_presets, resolve
from workloads.random_streams import Dist, stream
from workloads.recipe import Recipe
from workloads.session import Session

_TOML = Path(__file__).with_suffix(".toml")
_ENDED = "conversation ended before the turn that would exceed the context"
_CUT = "first turn shortened to the context"


class Turns(NamedTuple):
    """A conversation: (new prompt, output) tokens per call, and what was repaired."""

    lengths: list[tuple[int, int]]
    repair: str = ""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a conversation is drawn from; lengths in tokens, think time in seconds."""

    calls: Dist
    new_first: Dist
    new_prompt: Dist
    output: Dist
    think_s: Dist
    max_context: int
    window: int | None = None

    def turns(self, key: int) -> Turns:
        """The conversation of a session key."""
        drawn: Iterable[tuple[int, int]] = self._drawn(key)
        if self.window is not None:
            drawn = _squeezed(list(drawn), self.window)
        lengths: list[tuple[int, int]] = []
        context, limit = 0, self.max_context
        for new, output in drawn:
            if context + new + output > limit:
                if lengths:
                    return Turns(lengths, _ENDED)
                output = min(output, limit - 1)
                return Turns([(min(new, limit - output), output)], _CUT)
            lengths.append((new, output))
            context += new + output
        return Turns(lengths)

    def repair(self, key: int) -> str:
        """What was repaired in the conversation of a session key."""
        return self.turns(key).repair

    def _drawn(self, key: int) -> Iterator[tuple[int, int]]:
        prompts, outputs = stream(key, "new_prompt"), stream(key, "output")
        new_prompt = self.new_first
        for _ in range(max(1, self.calls.count(stream(key, "calls")))):
            yield new_prompt.tokens(prompts), self.output.tokens(outputs)
            new_prompt = self.new_prompt


def _squeezed(lengths: list[tuple[int, int]], window: int) -> list[tuple[int, int]]:
    """The same number of turns, shortened by one factor where they exceed ``window`` tokens."""
    total = sum(new + output for new, output in lengths)
    if total <= window:
        return lengths
    factor = window / total
    return [(max(1, int(new * factor)), max(1, int(output * factor))) for new, output in lengths]


async def converse(shape: Shape, s: Session) -> None:
    """One conversation."""
    pauses = stream(s.key, "think")
    for i, (new, output) in enumerate(shape.turns(s.key).lengths):
        pause = max(0.0, shape.think_s.value(pauses)) if i else 0.0
        if pause > 0.0:
            await s.think(on_grid(pause))
        await s.call(new=new, output=output)


class Chatbot:
    """Presets: ``paper``, ``v3_split``, ``raw90k``."""

    name = "chatbot"
    default_preset = "paper"

    def presets(self) -> list[str]:
        """Names of the presets."""
        return list(read_presets(_TOML))

    def build(
        self, n: int, seed: int, preset: str | None = None, parameters: Mapping[str, object] = {}
    ) -> ProgramSet:
        """``n`` conversations. Raises WorkloadError for a bad preset or parameter."""
        return self.recipe(preset, parameters).programs(n, seed)

    def recipe(self, preset: str | None = None, parameters: Mapping[str, object] = {}) -> Recipe:
        """The conversations of a preset. Raises WorkloadError for a bad preset or parameter."""
        p = resolve(_TOML, self.name, preset or self.default_preset, parameters)
        shape = _shape(p)
        start = partial(converse, shape)
        rate = p.positive("rate")
        return Recipe(self.name, p.where, p.values, rate, start, shape.max_context, shape.repair)


def _shape(p: Parameters) -> Shape:
    scale = p.positive("token_scale")
    later = p.dist("new_prompt").scaled(scale)
    return Shape(
        calls=p.dist("calls"),
        new_first=p.dist("new_first").scaled(scale) if "new_first" in p.values else later,
        new_prompt=later,
        output=p.dist("output").scaled(scale),
        think_s=p.dist("think_s"),
        max_context=p.count("max_context", low=2),
        window=max(2, round(p.count("window") * scale)) if "window" in p.values else None,
    )


WORKLOAD = Chatbot()
