"""Running programs: the tree of a program's coroutines and its books."""

from __future__ import annotations

from typing import Any

from bench.records import ProgramRow
from vocabulary import Call, Finished, Snapshot
from workloads.base import ProgramSpec
from workloads.session import Cancelled, Program
from workloads.session import Task as Handle

PathTimes = tuple[float, float, float, float, float, float, float]
"""Seconds along one path: wait, prefill, re-prefill, decode, swap, tool, think."""

NO_SNAPSHOT = Snapshot()
NO_TIME: PathTimes = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


class Run:
    """One program while it runs. ``left``: output tokens still to come (SRPT's oracle)."""

    __slots__ = ("left", "open", "path", "row", "spec", "tasks", "tops")

    def __init__(self, spec: ProgramSpec, now: float, left: float | None) -> None:
        self.spec = spec
        self.row = ProgramRow(spec.index, spec.kind, now)
        self.left = left
        self.tasks = 0
        self.open: dict[int, Task] = {}
        self.tops: list[Task] = []
        self.path = NO_TIME

    def over(self, now: float, outcome: str, path: PathTimes) -> None:
        """No task is left; ``path`` belongs to the one that ended last."""
        self.row.t_end, self.row.outcome = now, outcome
        self.path = path

    def close(self) -> ProgramRow:
        """The finished row, once no call is in an engine any more."""
        row, path = self.row, self.path
        (row.cp_wait_s, row.cp_prefill_s, row.cp_reprefill_s,
         row.cp_decode_s, row.cp_swap_s, row.cp_tool_s, row.cp_think_s) = path  # fmt: skip
        row.cp_overhead_s = row.t_end - row.t_arrive - sum(path)
        return row


class Task:
    """One coroutine of a program.

    ``parent`` waits for it (a join or a timeout) or is None (root, spawned).
    ``ticket`` counts its effects, so that a late wake-up is recognised.
    ``call``: its open call, at ``engine``, carrying ``snap``.
    ``thread``: of its last call. ``single``: it waits for one child's result (a timeout), not for a list.
    """

    __slots__ = ("call", "children", "coroutine", "engine", "handle", "parent", "path", "pending", "place",
                 "results", "run", "single", "snap", "thread", "ticket", "tool")  # fmt: skip

    def __init__(self, run: Run, coroutine: Program, parent: Task | None = None, place: int = 0) -> None:
        self.run = run
        self.coroutine: Program | None = coroutine
        self.parent = parent
        self.place = place
        self.path: PathTimes = parent.path if parent is not None else NO_TIME
        self.children: list[Task] = []
        self.pending = 0
        self.results: list[Any] = []
        self.ticket = 0
        self.tool: int | None = None
        self.call: Call | None = None
        self.engine = 0
        self.snap = NO_SNAPSHOT
        self.thread = ""
        self.handle: Handle | None = None
        self.single = False
        run.tasks += 1
        if parent is None:
            run.tops.append(self)

    def end(self) -> None:
        """The coroutine returned, or raised."""
        self.coroutine = None
        self.run.tasks -= 1
        if self.handle is not None:
            self.handle.done = True

    def cancel(self) -> None:
        """Raise Cancelled in the coroutine. RuntimeError if it awaits anything more."""
        coroutine = self.coroutine
        assert coroutine is not None
        self.end()
        try:
            coroutine.throw(Cancelled())
        except (Cancelled, StopIteration):
            return
        coroutine.close()
        raise RuntimeError("a cancelled task must end, and awaited something more")

    def spent(self, done: Finished) -> None:
        """A call of this task ended: its time lies on this path, unless the task is over."""
        run = self.run
        row = run.row
        wait_s, prefill_s, again_s = done.wait_s, done.prefill_s, done.reprefill_s
        decode_s, swap_s = done.decode_s, done.swap_s
        output = done.output_tokens
        row.calls += 1
        row.prompt_tokens += done.call.prompt_tokens
        row.output_tokens += output
        row.cached_tokens += done.cached_tokens
        row.wait_s += wait_s
        row.hold_s += done.hold_s
        row.exec_s += prefill_s + again_s + decode_s + swap_s
        row.swap_s += swap_s
        row.preemptions += done.preemptions
        if run.left is not None:
            run.left -= output
        if self.coroutine is not None:
            wait, prefill, again, decode, swap, tool, think = self.path
            self.path = (wait + wait_s, prefill + prefill_s, again + again_s, decode + decode_s,
                         swap + swap_s, tool, think)  # fmt: skip

    def waited(self, seconds: float, tool: bool) -> None:
        """A tool or a person ended: its time lies on this path."""
        wait, prefill, again, decode, swap, tool_s, think_s = self.path
        if tool:
            self.path = (wait, prefill, again, decode, swap, tool_s + seconds, think_s)
            self.run.row.tool_s += seconds
        else:
            self.path = (wait, prefill, again, decode, swap, tool_s, think_s + seconds)
            self.run.row.think_s += seconds
