"""Workloads of agents with tools: parameters made into a shape, and programs out of it.

A workload is an object of ``ToolLoop`` over a TOML file; ``rollout`` and ``rl`` take its plan and change it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from pathlib import Path

from workloads.base import ProgramSet, ProgramSpec, WorkloadError
from workloads.keys import key_of, mix
from workloads.parameters import Parameters, read_presets, resolve
from workloads.random_streams import Dist, stream
from workloads.tool_loop import HISTORIES, NEW, Life, Shape, act, again
from workloads.tool_times import LONGEST_S, tool_times

GOLDEN = 0.6180339887498949
"""Multiples of it, modulo 1, cover the unit interval evenly however many there are."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A workload of this shape with its parameters resolved; fields as in ``Recipe``.

    The first ``at_start`` programs start at ages of up to ``stagger`` of their lives. A program is
    ``episodes`` of them in a row.
    """

    kind: str
    where: str
    values: Mapping[str, object]
    rate: float
    shape: Shape
    stagger: float
    at_start: int
    episodes: int = 1

    @property
    def longest(self) -> int:
        """Prompt + output of the longest call there can be (tokens)."""
        return min(self.shape.max_context, self.shape.bound)

    def lives(self, seed: int) -> Iterator[Life]:
        """The ages of the programs in order, spread evenly from a place that the seed gives."""
        shift = stream(key_of(self.kind, seed, "stagger"), "age").uniform()
        for i in range(self.at_start if self.stagger else 0):
            yield Life(self.stagger * ((shift + i * GOLDEN) % 1.0))
        yield from repeat(NEW)

    def programs(self, n: int, seed: int) -> ProgramSet:
        """``n`` programs; program ``i`` depends on (kind, seed, i) only."""
        result = ProgramSet([], self.where, "", self.values, self.rate, longest=self.longest)
        for i, life in zip(range(n), self.lives(seed), strict=False):
            add(result, self, key_of(self.kind, seed, i), life)
        return result


def add(result: ProgramSet, plan: Plan, key: int, life: Life) -> ProgramSpec:
    """Append the program of ``key`` to ``result``, and count what the context does to it."""
    assert isinstance(result.programs, list), "a generator's set"
    index, shape, episodes = len(result.programs), plan.shape, plan.episodes
    start = partial(act, shape, life=life) if episodes == 1 else partial(again, shape, episodes, life=life)
    spec = ProgramSpec(index, plan.kind, key, start)
    result.programs.append(spec)
    if shape.bound > shape.max_context:
        keys = [key] if episodes == 1 else [mix(key, i) for i in range(episodes)]
        for i, own in enumerate(keys):
            if repair := shape.repair(own, life if i == 0 else NEW):
                result.repaired[repair] = result.repaired.get(repair, 0) + 1
                result.where.setdefault(repair, f"program {index}")
    return spec


class ToolLoop:
    """A workload of this shape; ``path``: the TOML file of its presets."""

    def __init__(self, name: str, default_preset: str, path: Path) -> None:
        self.name = name
        self.default_preset = default_preset
        self._path = path

    def presets(self) -> list[str]:
        """Names of the presets."""
        return list(read_presets(self._path))

    def build(
        self, n: int, seed: int, preset: str | None = None, parameters: Mapping[str, object] = {}
    ) -> ProgramSet:
        """``n`` programs. Raises WorkloadError for a bad preset or parameter."""
        return self.plan(preset, parameters).programs(n, seed)

    def plan(self, preset: str | None = None, parameters: Mapping[str, object] = {}) -> Plan:
        """What programs are drawn from. Raises WorkloadError for a bad preset or parameter."""
        p = resolve(self._path, self.name, preset or self.default_preset, parameters)
        return Plan(
            self.name, p.where, p.values, p.positive("rate"), _shape(p),
            p.number("stagger", low=0.0, high=1.0), p.count("at_start", low=0),
        )  # fmt: skip


def _shape(p: Parameters) -> Shape:
    table = p.values.get("scale")
    scale = Parameters(f"{p.where}: scale", table if isinstance(table, Mapping) else {})
    token_scale = p.positive("token_scale")

    def tokens(name: str) -> Dist:
        return p.dist(name).scaled(token_scale * (scale.positive(name) if name in scale.values else 1.0))

    return _checked(p, Shape(
        name=p.where,
        calls=p.dist("calls").scaled(scale.positive("calls")),
        system=tokens("system"),
        shared_system=p.flag("shared_system"),
        task=tokens("task"),
        obs=tokens("obs"),
        output=tokens("output"),
        history=_history(p),
        user_share=p.number("user_share", low=0.0, high=1.0),
        user=tokens("user"),
        think_s=p.dist("think_s"),
        shrink_share=p.number("shrink_share", low=0.0, high=1.0),
        summary=tokens("summary"),
        compacts=p.flag("compacts"),
        tools=tool_times(p, scale.positive("tool_s")),
        patience_s=p.number("patience_s", low=0.0, high=LONGEST_S),
        retries=p.count("retries", low=0),
        max_context=p.count("max_context", low=4),
    ))  # fmt: skip


def _history(p: Parameters) -> str:
    history = p.word("history")
    if history not in HISTORIES:
        raise WorkloadError(f"{p.where}: history must be append or rebuild, got {history!r}")
    return history


def _checked(p: Parameters, shape: Shape) -> Shape:
    if shape.system.most_tokens + 2 > shape.max_context:
        most = "no bound" if shape.system.most_tokens >= 1 << 40 else f"{shape.system.most_tokens} tokens"
        raise WorkloadError(
            f"{p.where}: a system prompt of {most} leaves no room for a call in a context of "
            f"{shape.max_context}",
            shape.max_context,
        )
    return shape
