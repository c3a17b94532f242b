"""Fitted: programs like those of a trace (``bench trace fit TRACE -o FILE.toml``).

``--workload fitted:FILE.toml`` runs such a file; it has one table, ``[fitted]``, with the
parameters of every preset in ``fitted.toml``. A program is a line of steps. A step is a call
or, with probability ``fork_share``, branches that run at the same time and are waited for.
A later call keeps the prompt before it, and its reply with probability ``reply_share``; with
probability ``restart_share``, and where it would outgrow ``max_context``, it keeps only what
the program shares with others. What is drawn is drawn independently.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from vocabulary import Segment, on_grid
from workloads.base import ProgramSet, WorkloadError
from workloads.keys import key_of
from workloads.parameters import Parameters, read_presets, resolve
from workloads.random_streams import Dist, Stream, stream
from workloads.recipe import Recipe
from workloads.session import Session

_TOML = Path(__file__).with_suffix(".toml")
TABLE = "fitted"
"""The one table of a fitted file."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a program is drawn from; lengths in tokens, times in seconds.

    ``first_prompt``, ``branch_prompt`` and ``new_prompt``: new tokens of a program's first call,
    of a branch's first, and of any other. The ``shared_groups`` have lengths at evenly
    spaced quantiles of ``shared_tokens``.
    """

    name: str
    steps: Dist
    fork_share: float
    fork_width: Dist
    branch_calls: Dist
    branch_inherits: float
    shared_share: float
    shared_groups: int
    shared_tokens: Dist
    first_prompt: Dist
    branch_prompt: Dist
    new_prompt: Dist
    restart_share: float
    reply_share: float
    output: Dist
    tool_share: float
    tool_s: Dist
    think_share: float
    think_s: Dist
    max_context: int

    def shared(self, key: int) -> list[Segment]:
        """What the program of ``key`` shares with others: nothing, or one segment."""
        draw = stream(key, "shared")
        if not draw.bernoulli(self.shared_share):
            return []
        number = draw.below(self.shared_groups)
        group, at = key_of("fitted", self.name, "shared", number), (number + 0.5) / self.shared_groups
        return [(group, min(self.shared_tokens.tokens(_At(at)), self.max_context - 1))]


class _At(Stream):
    """A stream that gives one quantile: groups are few, and drawn ones would miss their mean."""

    __slots__ = ("at",)

    def __init__(self, at: float) -> None:
        super().__init__(0)
        self.at = at

    def uniform(self) -> float:
        """The quantile."""
        return self.at


class _Line:
    """One line of control: a session, and a stream for each quantity."""

    def __init__(self, shape: Shape, s: Session, shared: list[Segment], *, waits: bool = False) -> None:
        self.waits = waits  # before its first call
        self.shape = shape
        self.s = s
        self.shared = shared
        self.began = False
        names = ("prompt", "output", "restart", "reply", "tool", "tool_s", "think", "think_s", "fork")
        self.draw: dict[str, Stream] = {name: stream(s.key, name) for name in names}

    async def call(self, first: Dist | None = None) -> None:
        """One call; ``first``: its new tokens if it is the first of its line."""
        shape, draw, s = self.shape, self.draw, self.s
        await self.pause()
        restarts = draw["restart"].bernoulli(shape.restart_share)
        keeps_reply = draw["reply"].bernoulli(shape.reply_share)
        new = max(0, (first or shape.new_prompt).count(draw["prompt"]))
        output = min(shape.output.tokens(draw["output"]), shape.max_context - 1)
        if self.began and restarts:
            s.edit(self.shared)
        elif self.began and not keeps_reply:
            s.edit(s.context[:-1])
        if s.tokens + new + output > shape.max_context:
            s.edit(self.shared)
            if s.tokens + output >= shape.max_context:
                s.edit([])
            new = min(new, shape.max_context - output - s.tokens)
        self.began = True
        await s.call(new if s.tokens else max(1, new), output=output)

    async def pause(self) -> None:
        """Tool and person before a call that is not the program's first."""
        shape, draw = self.shape, self.draw
        tool, think = draw["tool"].bernoulli(shape.tool_share), draw["think"].bernoulli(shape.think_share)
        tool_s, think_s = shape.tool_s.value(draw["tool_s"]), shape.think_s.value(draw["think_s"])
        if (self.began or self.waits) and tool:
            await self.s.tool("tool", on_grid(max(0.0, tool_s)))
        if (self.began or self.waits) and think:
            await self.s.think(on_grid(max(0.0, think_s)))


async def act(shape: Shape, s: Session) -> None:
    """One program."""
    shared = shape.shared(s.key)
    s.edit(shared)
    line = _Line(shape, s, shared)
    for step in range(shape.steps.tokens(stream(s.key, "steps"))):
        if not line.draw["fork"].bernoulli(shape.fork_share):
            await line.call(None if step else shape.first_prompt)
            continue
        if not step and shape.branch_inherits:  # what the branches of a search have in common
            s.add((s.new_id(), shape.first_prompt.tokens(line.draw["prompt"])))
        width = shape.fork_width.tokens(line.draw["fork"])
        await s.join(*(branch(shape, s.fork(), shared) for _ in range(width)))


async def branch(shape: Shape, s: Session, shared: list[Segment]) -> None:
    """One branch: its own line, which goes on from its parent's context or starts afresh."""
    if not stream(s.key, "inherits").bernoulli(shape.branch_inherits):
        s.edit([])
    line = _Line(shape, s, shared, waits=True)
    for i in range(shape.branch_calls.tokens(stream(s.key, "calls"))):
        await line.call(None if i else shape.branch_prompt)


class Fitted:
    """Presets of ``fitted.toml``, or the path of a file that ``bench trace fit`` wrote."""

    name = "fitted"
    default_preset = "sharegpt500"

    def presets(self) -> list[str]:
        """Names of the presets that come along."""
        return list(read_presets(_TOML))

    def build(
        self, n: int, seed: int, preset: str | None = None, parameters: Mapping[str, object] = {}
    ) -> ProgramSet:
        """``n`` programs. Raises WorkloadError for a bad preset, file or parameter."""
        return self.recipe(preset, parameters).programs(n, seed)

    def recipe(self, preset: str | None = None, parameters: Mapping[str, object] = {}) -> Recipe:
        """The programs of a preset or file. Raises WorkloadError."""
        p = self._parameters(preset or self.default_preset, parameters)
        shape = _shape(p)
        return Recipe(
            self.name, p.where, p.values, p.positive("rate"), partial(act, shape), shape.max_context
        )

    def _parameters(self, preset: str, parameters: Mapping[str, object]) -> Parameters:
        if not preset.endswith(".toml"):
            return resolve(_TOML, self.name, preset, parameters)
        path = Path(preset)
        try:
            read_presets.cache_clear()  # a file of the user may have changed
            tables = read_presets(path)
        except (OSError, UnicodeDecodeError) as error:
            raise WorkloadError(f"{path.name}: cannot be read ({error.__class__.__name__})") from error
        if TABLE not in tables:
            raise WorkloadError(f"{path.name}: no [{TABLE}] table; bench trace fit writes such files")
        found = resolve(path, self.name, TABLE, parameters)
        return Parameters(f"{self.name}:{path.stem}", found.values)


def _shape(p: Parameters) -> Shape:
    def share(name: str) -> float:
        return p.number(name, low=0.0, high=1.0)

    scale = p.positive("token_scale")
    return Shape(
        name=p.where,
        steps=p.dist("steps"),
        fork_share=share("fork_share"),
        fork_width=p.dist("fork_width"),
        branch_calls=p.dist("branch_calls"),
        branch_inherits=share("branch_inherits"),
        shared_share=share("shared_share"),
        shared_groups=p.count("shared_groups"),
        shared_tokens=p.dist("shared_tokens").scaled(scale),
        first_prompt=p.dist("first_prompt").scaled(scale),
        branch_prompt=p.dist("branch_prompt").scaled(scale),
        new_prompt=p.dist("new_prompt").scaled(scale),
        restart_share=share("restart_share"),
        reply_share=share("reply_share"),
        output=p.dist("output").scaled(scale),
        tool_share=share("tool_share"),
        tool_s=p.dist("tool_s"),
        think_share=share("think_share"),
        think_s=p.dist("think_s"),
        max_context=p.count("max_context", low=2),
    )


WORKLOAD = Fitted()
