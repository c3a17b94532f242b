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

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from vocabulary import Segment, on_grid
from workloads.keys import key_of, mix
from workloads.random_streams import Dist, stream
from workloads.script import leading
from workloads.session import Session, TimedOut
from workloads.tool_times import ToolTimes

HISTORIES = ("append", "rebuild")
ENDED = "program ended before the call that would exceed the context"
COMPACTED = "context compacted before the call that would exceed it"
CUT = "first call shortened to the context"
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
