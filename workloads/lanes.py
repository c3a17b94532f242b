"""The structure of a recorded program: which of its calls waited for which.

Calls of a thread that do not overlap follow one another. Where calls of one thread overlap they are lanes: a
call goes on in the lane whose last call's reply its prompt quotes, else in the first lane that is free. The
first thread, and its first lane, are the program's line; every other thread, and every stretch of another
lane between two calls of its thread's line, is a branch: it begins when the last call of the line before it
had ended, and the line waits for it before its first call that came after the branch's end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from vocabulary import Segment, on_grid
from workloads.base import WorkloadError
from workloads.recorded import Seen
from workloads.script import CallOp, JoinOp, Op, Script, ThinkOp, ToolOp
from workloads.session import CallId

TOOL = "tool"
"""What takes the time between two calls where nobody said its name."""
DEEPEST = 100
"""Branches of a program that may begin one inside the other."""
Content = Callable[[Seen], tuple[list[Segment], int]]
"""(segments of a call's prompt, segment of its reply)."""


@dataclass(slots=True, eq=False)
class Branch:
    """Calls one after the other, with branches of their own; ``over``: when all have ended (s). ``begin``:
    calls of the line that had ended before it; ``end``: calls of the line that came before it was over."""

    calls: list[Seen]
    inner: list[Branch]
    over: float
    begin: int
    end: int


@dataclass(slots=True, eq=False)
class _Line:
    """A branch with branches of its own."""

    calls: list[Seen]
    branches: list[Branch] = field(default_factory=list)


class _Done(NamedTuple):
    """A call that was built; ``context``: its prompt and its reply."""

    call: Seen
    op: CallOp
    context: list[Segment]


def script_of(calls: Sequence[Seen], content: Content) -> Script:
    """The script of one program; ``calls`` by their arrival."""
    threads: dict[int, list[Seen]] = {}
    for call in calls:
        threads.setdefault(call.thread, []).append(call)
    lines = [_line(thread) for thread in threads.values()]
    return _Builder(content).program(lines)


def _line(calls: Sequence[Seen]) -> _Line:
    """One thread: its line, and the stretches of its other lanes."""
    lanes: list[list[Seen]] = []
    for call in calls:
        free = [lane for lane in lanes if lane[-1].end <= call.start]
        mine = next((lane for lane in free if lane[-1] is call.follows), free[0] if free else None)
        if mine is None:
            lanes.append([call])
        else:
            mine.append(call)
    first, *others = lanes
    stretches = [stretch for lane in others for stretch in _stretches(lane, first)]
    return _Line(first, [_branch(_Line(stretch), first) for stretch in stretches])


def _stretches(lane: Sequence[Seen], line: Sequence[Seen]) -> list[list[Seen]]:
    """A lane, parted where a whole call of the line lies between two of its calls."""
    found = [[lane[0]]]
    for before, call in pairwise(lane):
        if any(before.end <= one.start and one.end <= call.start for one in line):
            found.append([call])
        else:
            found[-1].append(call)
    return found


def _branch(branch: _Line, line: Sequence[Seen]) -> Branch:
    over = max(branch.calls[-1].end, *(one.over for one in branch.branches), 0.0)
    begin = sum(one.end <= branch.calls[0].start for one in line)
    end = max(begin, sum(one.start < over for one in line))
    return Branch(branch.calls, branch.branches, over, begin, end)


class _Builder:
    def __init__(self, content: Content) -> None:
        self._content = content
        self._threads = 0

    def program(self, lines: Sequence[_Line]) -> Script:
        """The first thread, with all others as branches of it."""
        main = lines[0]
        branches = [*main.branches, *(_branch(line, main.calls) for line in lines[1:])]
        return self._script(_Line(main.calls, branches), "", (), main.calls[0].start)[0]

    def branch(
        self, branch: Branch, parents: tuple[CallId, ...], since: float
    ) -> tuple[Script, tuple[CallId, ...], float]:
        """(script, last calls, their end) of a branch that begins when ``parents`` ended, at ``since``; under
        a thread of its own."""
        self._threads += 1
        return self._script(_Line(branch.calls, branch.inner), str(self._threads), parents, since)

    def _script(
        self, line: _Line, thread: str, parents: tuple[CallId, ...], since: float
    ) -> tuple[Script, tuple[CallId, ...], float]:
        walk = _Walk(self, line, thread, parents, since)
        return Script(walk.span(0, len(line.calls), line.branches)), walk.last, walk.since

    def call(
        self, call: Seen, thread: str, index: int, parents: tuple[CallId, ...], before: _Done | None
    ) -> _Done:
        """The call; a prompt that goes on from ``before`` keeps what they share."""
        segments, output_id = self._content(call)
        op = CallOp(
            thread, index, parents, tuple(segments), output_id, call.output_tokens, call.prompt_tokens,
            call.model,
        )  # fmt: skip
        if before is not None:
            shared, tokens = _shared(segments, before.context)
            if tokens:
                op.base, op.keep, op.new = before.op, tokens, tuple(segments[shared:])
        return _Done(call, op, [*segments, (output_id, call.output_tokens)])


class _Walk:
    """Along one line; ``last``: the calls that ended last, ``since`` their end."""

    def __init__(
        self, builder: _Builder, line: _Line, thread: str, parents: tuple[CallId, ...], since: float
    ) -> None:
        self.last = parents
        self.since = since
        self._builder = builder
        self._calls = line.calls
        self._thread = thread
        self._before: _Done | None = None
        self._depth = 0

    def span(self, at: int, to: int, branches: list[Branch]) -> list[Op]:
        """Calls ``at`` to ``to`` of the line, with the branches that begin among them."""
        ops: list[Op] = []
        while at < to or any(branch.begin == at for branch in branches):
            long = [one for one in branches if one.begin == at < one.end]
            if long:
                end, group = _together(at, branches)
                rest = [one for one in group if one not in long]
                branches = [one for one in branches if one not in long and one not in rest]
                ops.append(self._beside(at, end, long, rest))
                at = end
                continue
            short = [one for one in branches if one.begin == at]
            if short:
                ops.append(self._beside(at, at, short, []))
                branches = [one for one in branches if one not in short]
            if at < to:
                ops += self._one(at)
                at += 1
        return ops

    def _beside(self, at: int, end: int, beside: list[Branch], rest: list[Branch]) -> Op:
        """Branches run ``beside`` calls ``at`` to ``end`` of the line, which then waits for them."""
        self._depth += 1
        if self._depth > DEEPEST:
            where = self._calls[0].where
            raise WorkloadError(f"{where}: over {DEEPEST} branches that begin one inside the other")
        parents, since = self.last, self.since
        scripts = [Script(self.span(at, end, rest))] if end > at else []
        last, latest = list(self.last) if scripts else [], self.since
        for branch in beside:
            script, calls, over = self._builder.branch(branch, parents, since)
            scripts.append(script)
            last += calls
            latest = max(latest, over)
        self._depth -= 1
        self.last, self.since = tuple(dict.fromkeys(last)), latest
        return JoinOp(scripts)

    def _one(self, at: int) -> list[Op]:
        """The pause before a call of the line, and the call."""
        call = self._calls[at]
        pause = on_grid(max(0.0, call.start - self.since) + call.overhead)
        tool = call.by_tool or (self._before is not None and self._before.call.tools > 0)
        ops: list[Op] = [ToolOp(TOOL, pause) if tool else ThinkOp(pause)] if pause else []
        done = self._before = self._builder.call(call, self._thread, at, self.last, self._before)
        self.last, self.since = (done.op.id,), call.end
        return [*ops, done.op]


def _together(at: int, branches: Sequence[Branch]) -> tuple[int, list[Branch]]:
    """Branches that begin at ``at`` or later and before the others are over: (the call of the line before
    which all of them are waited for, they)."""
    group = [one for one in branches if one.begin == at]
    while True:
        end, over = max(one.end for one in group), max(one.over for one in group)
        more = [
            one
            for one in branches
            if at <= one.begin < end or (one.begin == end and one.calls[0].start < over)
        ]
        if len(more) == len(group):
            return end, group
        group = more


def _shared(segments: Sequence[Segment], context: Sequence[Segment]) -> tuple[int, int]:
    """(segments, tokens) of a prompt that are in front of a context, too."""
    count = tokens = 0
    for mine, theirs in zip(segments, context, strict=False):
        if mine[0] != theirs[0] or mine[1] > theirs[1]:
            break
        count, tokens = count + 1, tokens + mine[1]
        if mine[1] < theirs[1]:
            break
    return count, tokens
