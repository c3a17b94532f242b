"""ReAct: a model that calls tools, one call after another (Autellix, section 5, BFCL).

A program is one thread. Its first call has the system prompt (the instructions and the
documentation of the tools) and a user's message; each later call is either a tool step, whose
new prompt is the tool's result, or starts a user's next turn. The context only grows.

System prompts are shared: programs that draw the same size have the same one, the same tokens
in every program, whatever the seed. ``shared_system = false`` gives each its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from vocabulary import Segment, on_grid
from workloads.base import ProgramSet
from workloads.keys import key_of, mix
from workloads.parameters import Parameters, read_presets, resolve
from workloads.random_streams import Dist, stream
from workloads.recipe import Recipe
from workloads.session import Session

_TOML = Path(__file__).with_suffix(".toml")


@dataclass(frozen=True, slots=True)
class Shape:
    """What a program is drawn from; lengths in tokens, ``think_s`` and ``tool_s`` in seconds.

    User turns per program are drawn from ``turns``, or each call after the first starts one
    with probability ``user_share``.
    """

    name: str
    calls: Dist
    turns: Dist | None
    user_share: float
    system: Dist
    shared_system: bool
    scale: float
    user: Dist
    tool_result: Dist
    output: Dist
    tool: str
    tool_s: Dist
    think_s: Dist

    @property
    def longest(self) -> int | None:
        """Prompt + output of the longest call there can be (tokens); None if unbounded."""
        steps = self.calls.most_tokens
        system = self.system.scaled(self.scale).most_tokens
        step = max(self.user.most_tokens, self.tool_result.most_tokens) + self.output.most_tokens
        return total if (total := system + steps * step) < 1 << 40 else None

    def system_prompt(self, key: int) -> Segment:
        """The system prompt of a session key."""
        size = self.system.count(stream(key, "system"))
        own = key_of("react", self.name, "system", size) if self.shared_system else mix(key, -1)
        return own, max(1, round(size * self.scale))

    def user_calls(self, key: int, calls: int) -> set[int]:
        """Which calls start a user's turn; 0 always does."""
        place = stream(key, "turns")
        if self.turns is None:
            return {0, *(i for i in range(1, calls) if place.bernoulli(self.user_share))}
        more = min(self.turns.count(place), calls) - 1
        return {0, *place.shuffled(range(1, calls))[: max(0, more)]}


async def act(shape: Shape, s: Session) -> None:
    """One program."""
    key = s.key
    calls = max(1, shape.calls.count(stream(key, "calls")))
    by_user = shape.user_calls(key, calls)
    users, results, outputs = stream(key, "user"), stream(key, "tool_result"), stream(key, "output")
    tools, pauses = stream(key, "tool"), stream(key, "think")
    s.add(shape.system_prompt(key))
    for i in range(calls):
        if i not in by_user:
            await s.tool(shape.tool, on_grid(max(0.0, shape.tool_s.value(tools))))
            new = max(0, shape.tool_result.count(results))
        else:
            pause = max(0.0, shape.think_s.value(pauses)) if i else 0.0
            if pause > 0.0:
                await s.think(on_grid(pause))
            new = shape.user.tokens(users)
        await s.call(new, output=shape.output.tokens(outputs))


class React:
    """Presets: ``bfcl``, ``bfcl-wide``, ``bfcl-own``, ``hotpot``, ``tau``."""

    name = "react"
    default_preset = "bfcl"

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
        return Recipe(self.name, p.where, p.values, rate, partial(act, shape), shape.longest)


def _shape(p: Parameters) -> Shape:
    scale = p.positive("token_scale")
    return Shape(
        name=p.where,
        calls=p.dist("calls"),
        turns=p.dist("turns") if "turns" in p.values else None,
        user_share=0.0 if "turns" in p.values else p.number("user_share", low=0.0, high=1.0),
        system=p.dist("system"),
        shared_system=p.flag("shared_system"),
        scale=scale,
        user=p.dist("user").scaled(scale),
        tool_result=p.dist("tool_result").scaled(scale),
        output=p.dist("output").scaled(scale),
        tool=p.word("tool"),
        tool_s=p.dist("tool_s"),
        think_s=p.dist("think_s"),
    )


WORKLOAD = React()
