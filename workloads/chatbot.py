"""Chatbot: a person and a model take turns (Autellix, section 5, ShareGPT).

A conversation that would outgrow ``max_context`` ends before the turn that does
not fit, as chat front ends do; a first turn that does not fit is shortened. Both
are counted in ``ProgramSet.repaired``. Refusing instead would make a run fail on
the seeds that happen to draw such a conversation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from vocabulary import on_grid
from workloads.base import ProgramSet, ProgramSpec
from workloads.keys import key_of
from workloads.parameters import read_presets, resolve
from workloads.random_streams import Dist, stream
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
    new_prompt: Dist
    output: Dist
    think_s: Dist
    max_context: int

    def turns(self, key: int) -> Turns:
        """The conversation of a session key."""
        prompts, outputs = stream(key, "new_prompt"), stream(key, "output")
        lengths: list[tuple[int, int]] = []
        context, limit = 0, self.max_context
        for _ in range(max(1, self.calls.count(stream(key, "calls")))):
            new, output = self.new_prompt.tokens(prompts), self.output.tokens(outputs)
            if context + new + output > limit:
                if lengths:
                    return Turns(lengths, _ENDED)
                output = min(output, limit - 1)
                return Turns([(min(new, limit - output), output)], _CUT)
            lengths.append((new, output))
            context += new + output
        return Turns(lengths)


async def converse(shape: Shape, s: Session) -> None:
    """One conversation."""
    pauses = stream(s.key, "think")
    for i, (new, output) in enumerate(shape.turns(s.key).lengths):
        pause = max(0.0, shape.think_s.value(pauses)) if i else 0.0
        if pause > 0.0:
            await s.think(on_grid(pause))
        await s.call(new=new, output=output)


class Chatbot:
    """Presets: ``paper``."""

    name = "chatbot"
    default_preset = "paper"

    def presets(self) -> list[str]:
        """Names of the presets."""
        return list(read_presets(_TOML))

    def build(
        self, n: int, seed: int, preset: str | None = None, parameters: Mapping[str, object] = {}
    ) -> ProgramSet:
        """``n`` conversations. Raises WorkloadError for a bad preset or parameter."""
        p = resolve(_TOML, self.name, preset or self.default_preset, parameters)
        scale = p.positive("token_scale")
        shape = Shape(
            p.dist("calls"),
            p.dist("new_prompt").scaled(scale),
            p.dist("output").scaled(scale),
            p.dist("think_s"),
            p.count("max_context", low=2),
        )
        result = ProgramSet([], p.where, "", p.values, p.positive("rate"), longest=shape.max_context)
        start = partial(converse, shape)
        for i in range(n):
            key = key_of(self.name, seed, i)
            result.programs.append(ProgramSpec(i, self.name, key, start))
            repair = shape.turns(key).repair
            if repair:
                result.repaired[repair] = result.repaired.get(repair, 0) + 1
                result.where.setdefault(repair, f"program {i}")
        return result


WORKLOAD = Chatbot()
