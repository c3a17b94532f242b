"""The shape of agents that act on a sandbox: a call, a tool, a call, until the task is done.

A program is one thread. Its first prompt is a system prompt (shared by all programs, or its own) and a
task; each later call has what the tool showed, or what a person said. Two kinds of history:
``append``, the context only grows; ``rebuild``, the agent writes what it knows into a new prompt behind
the task each time, so that only system and task are a prefix of the next prompt.

A call that would outgrow ``max_context`` ends the program, or, where the agent ``compacts``, is sent behind
a summary; both are counted in ``ProgramSet.repaired``. ``swe``, ``toolorchestra``, ``scienceagent`` and
``osworld`` are this with numbers of their own; ``rollout`` and ``rl`` run those.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import NamedTuple

from vocabulary import Segment, on_grid
from workloads.base import ProgramSet, ProgramSpec, WorkloadError
from workloads.keys import key_of, mix
from workloads.parameters import Parameters, read_presets, resolve
from workloads.random_streams import Dist, stream
from workloads.script import leading
from workloads.session import Session, TimedOut
from workloads.tool_times import LONGEST_S, ToolTimes, tool_times

HISTORIES = ("append", "rebuild")
ENDED = "program ended before the call that would exceed the context"
COMPACTED = "context compacted before the call that would exceed it"
CUT = "first call shortened to the context"
GOLDEN = 0.6180339887498949
"""Multiples of it, modulo 1, cover the unit interval evenly however many there are."""
CANDIDATES = 16
"""Lengths that a staggered program draws, to take one in proportion to it."""


class Life(NamedTuple):
    """What a program is besides its key.

    ``age``: the share of its life that lies behind it when it starts (0: none). ``version`` of the model:
    prompts of two share nothing. ``group``: the key of the task, where several programs have the same.
    """

    age: float = 0.0
    version: int = 0
    group: int | None = None


NEW = Life()


class Step(NamedTuple):
    """One call (lengths in tokens): ``new`` behind the context, or behind its first ``keep`` tokens.

    ``by_user``: a person spoke, not a tool. ``repair``: what the context's limit did to it.
    """

    new: int
    output: int
    keep: int | None = None
    by_user: bool = False
    repair: str = ""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a program is drawn from; lengths in tokens, times in seconds.

    ``patience_s``: a client gives a call up after that, and asks again at most ``retries`` times before
    it leaves; 0: it waits for ever. ``shrink_share``: the chance that the agent compacts before a call.
    """

    name: str
    calls: Dist
    system: Dist
    shared_system: bool
    task: Dist
    obs: Dist
    output: Dist
    history: str
    user_share: float
    user: Dist
    think_s: Dist
    shrink_share: float
    summary: Dist
    compacts: bool
    tools: ToolTimes
    patience_s: float
    retries: int
    max_context: int

    def length(self, key: int, life: Life = NEW) -> int:
        """Calls of a program. Who is met in the middle of a life is met in a long one more often."""
        draws = stream(key, "calls")
        first = max(1, self.calls.count(draws))
        if life.age <= 0.0:
            return first
        more = [first, *(max(1, self.calls.count(draws)) for _ in range(CANDIDATES - 1))]
        at = stream(key, "met").uniform() * sum(more)
        for calls in more:
            at -= calls
            if at < 0.0:
                return calls
        return first

    def system_prompt(self, key: int, life: Life = NEW) -> Segment:
        """The system prompt of a program: its identity and length."""
        size = self.system.tokens(stream(key, "system"))
        own = key_of("tool_loop", self.name, size) if self.shared_system else mix(key, -1)
        return (key_of(own, "version", life.version) if life.version else own), size

    def steps(self, key: int, life: Life = NEW) -> Iterator[Step]:
        """The calls of a program, as far as they fit the context."""
        draw = _Draws(self, key, life)
        system = draw.system
        first = _cut(draw.task(), draw.output(), system, self.max_context)
        yield first
        static, context = system + first.new, system + first.new + first.output
        work = 0
        for _ in range(self.length(key, life) - 1):
            by_user = draw.by_user()
            new, output, shrinks = draw.new(by_user), draw.output(), draw.shrinks()
            if self.history == "rebuild":
                work = min(work + new, self.max_context - static - output)
                if work < 1:
                    return
                yield Step(work, output, static, by_user)
                continue
            step = self._appended(draw, context, system, Step(new, output, None, by_user), shrinks)
            if step.repair == ENDED:
                return
            yield step
            context = (context if step.keep is None else step.keep) + step.new + step.output

    def _appended(self, draw: _Draws, context: int, system: int, step: Step, shrinks: bool) -> Step:
        """A step of a growing context, compacted where that is due or there is no room."""
        limit = self.max_context
        full = context + step.new + step.output > limit
        if full and not self.compacts:
            return step._replace(repair=ENDED)
        if not (shrinks or full):
            return step
        new = min(draw.summary() + step.new, limit - system - step.output)
        return step._replace(new=new, keep=system, repair=COMPACTED if full else "")

    def repair(self, key: int, life: Life = NEW) -> str:
        """What the context's limit did to a program first, "" if nothing."""
        made = 0
        for step in self.steps(key, life):
            made += 1
            if step.repair:
                return step.repair
        return ENDED if made < self.length(key, life) else ""

    @property
    def bound(self) -> int:
        """No call is longer than this by the distributions alone (tokens), 2**40 if nothing bounds it."""
        step = max(self.obs.most_tokens, self.user.most_tokens) + self.output.most_tokens
        first = self.system.most_tokens + self.task.most_tokens + self.summary.most_tokens
        return min(1 << 40, first + self.calls.most_tokens * step)


class _Draws:
    """A stream for each quantity of one program."""

    def __init__(self, shape: Shape, key: int, life: Life) -> None:
        self.shape = shape
        self.system = shape.system_prompt(key, life)[1]
        self._task = stream(key if life.group is None else life.group, "task")
        names = ("obs", "output", "users", "user", "shrink", "summary")
        self._obs, self._output, self._users, self._user, self._shrink, self._summary = (
            stream(key, name) for name in names
        )

    def task(self) -> int:
        return self.shape.task.tokens(self._task)

    def output(self) -> int:
        return min(self.shape.output.tokens(self._output), self.shape.max_context - self.system - 1)

    def by_user(self) -> bool:
        share = self.shape.user_share
        return share > 0.0 and self._users.bernoulli(share)

    def new(self, by_user: bool) -> int:
        tool = self.shape.obs.count(self._obs)
        return self.shape.user.tokens(self._user) if by_user else max(0, tool)

    def shrinks(self) -> bool:
        share = self.shape.shrink_share
        return share > 0.0 and self._shrink.bernoulli(share)

    def summary(self) -> int:
        return self.shape.summary.tokens(self._summary)


def _cut(task: int, output: int, system: int, limit: int) -> Step:
    """The first call: its task, or what fits of it."""
    new = min(task, limit - system - output)
    return Step(new, output, repair=CUT if new < task else "")


async def act(shape: Shape, s: Session, life: Life = NEW) -> None:
    """One program. What lies behind a staggered one is context that it brings along."""
    key = s.key
    tools, lengths, pauses = stream(key, "tools"), stream(key, "tool_s"), stream(key, "think_s")
    steps = list(shape.steps(key, life))
    started = int(life.age * len(steps))
    s.edit([shape.system_prompt(key, life)])
    for i, step in enumerate(steps):
        if step.by_user:
            think_s = on_grid(max(0.0, shape.think_s.value(pauses)))
            if i > started:
                await s.think(think_s)
        elif i:
            tool, tool_s = shape.tools.draw(tools, lengths)
            if i > started:
                await s.tool(tool, on_grid(tool_s))
        if step.keep is not None:
            s.edit(leading(s.context, step.keep))
        new = step.new if i or life.group is None else [(life.group, step.new)]
        if i < started:
            s.add((s.new_id(), step.new))
            s.add((s.new_id(), step.output))
        elif shape.patience_s:
            await _ask(shape, s, new, step.output)
        else:
            await s.call(new, output=step.output)


async def again(shape: Shape, episodes: int, s: Session, life: Life = NEW) -> None:
    """A program of several episodes in a row, each a thread with an empty context."""
    for i in range(episodes):
        thread = s.fork(detached=True)
        thread.parents = s.parents
        await act(shape, thread, life if i == 0 else NEW)
        s.parents = thread.parents


async def _ask(shape: Shape, s: Session, new: int | list[Segment], output: int) -> None:
    """One call of a client that does not wait for ever; asked again it has the same prompt."""
    for _ in range(shape.retries + 1):
        try:
            await s.timeout(shape.patience_s, _call(s, new, output))
            return
        except TimedOut:
            new = 0
    await s.abandon()


async def _call(s: Session, new: int | list[Segment], output: int) -> None:
    await s.call(new, output=output)


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
