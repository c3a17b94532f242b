"""The process table: what every running program has received so far.

Autellix, section 4 (arXiv 2502.13965). One table per deployment, one row per
program. Service counts what the model executor did for *completed* calls, in
the scheduler's unit; tools and people never enter it. The table also lives
inside an engine that cannot see the front end's: it then learns from the
snapshot each call carries (see ``arrive``).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Literal, Protocol, get_args

from vocabulary import Snapshot, Usage

Rule = Literal["sum", "max"]
"""How a completed call enters ``service``: "sum" adds what it received (PLAS);
"max" keeps the longest path, snapshot at arrival + received (ATLAS)."""

RULES: tuple[str, ...] = get_args(Rule)
_UNKNOWN = Snapshot()
CallId = tuple[str, int]
"""Thread and index of a call in its program."""
_snapshot = partial(tuple.__new__, Snapshot)  # a third of the time of Snapshot(...): one a call


class Watcher(Protocol):
    """Whoever computes something from a row and must redo it when the row changes."""

    def row_changed(self) -> None:
        """The row is as it will stay; nothing may be charged from here."""


class Row:
    """One program. ``service`` in the scheduler's unit; ``exec_s`` and ``wait``
    are seconds of completed calls; ``active`` calls are in the system now.

    ``paths``: for schedulers that follow the program's graph, the longest path
    to the end of each completed call, in the scheduler's unit.
    """

    __slots__ = (
        "active", "ended", "exec_s", "last_arrival", "last_completion",
        "paths", "service", "started", "wait", "watchers",
    )  # fmt: skip

    def __init__(self, started: float) -> None:
        self.service = 0.0
        self.exec_s = 0.0
        self.wait = 0.0
        self.active = 0
        self.started = started
        self.last_arrival = started
        self.last_completion = started
        self.ended = False
        self.watchers: list[Watcher] = []
        self.paths: dict[CallId, float] | None = None

    def start_of(self, parents: Iterable[CallId]) -> float:
        """The longest path that ends where a call with these parents begins (Autellix, equation 2).

        A parent without a path here counts as the program's longest, ``service``.
        """
        paths = self.paths or {}
        return max((paths.get(parent, self.service) for parent in parents), default=0.0)

    def changed(self) -> None:
        """Tell the watchers, in the order in which they came."""
        for watcher in self.watchers:
            watcher.row_changed()


class ProcessTable:
    """Rows by program. ``rule`` is "sum" or "max"; ValueError for any other."""

    __slots__ = ("_max", "_rows", "rule")

    def __init__(self, rule: str = "sum") -> None:
        if rule not in RULES:
            raise ValueError(f"unknown process table rule {rule!r}; it is one of {', '.join(RULES)}")
        self.rule = rule
        self._max = rule == "max"
        self._rows: dict[int, Row] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, program: int) -> bool:
        return program in self._rows

    def row(self, program: int) -> Row | None:
        """The program's row, None if it has none (any more)."""
        return self._rows.get(program)

    def start(self, program: int, now: float) -> Row:
        """The program begins at ``now``; its row, made if it had none."""
        row = self._rows.get(program)
        if row is None:
            row = self._rows[program] = Row(now)
        return row

    def snapshot(self, program: int) -> Snapshot:
        """What a call of the program carries; zeros, and no new row, if it is unknown."""
        row = self._rows.get(program)
        if row is None:
            return _UNKNOWN
        found: Snapshot = _snapshot((row.service, row.wait, row.exec_s))
        return found

    def arrive(self, program: int, snap: Snapshot, now: float) -> Row:
        """A call arrives at ``now``; the program's row, which is at least ``snap``.

        Both sides only ever miss completed calls, so the larger number is
        the better informed one.
        """
        row = self._rows.get(program)
        if row is None:
            row = self._rows[program] = Row(now)
        row.active += 1
        if now > row.last_arrival:
            row.last_arrival = now
        if snap[0] > row.service or snap[1] > row.wait or snap[2] > row.exec_s:
            _learn(row, snap)
        return row

    def charge(self, program: int, snapshot_service: float, usage: Usage, now: float = 0.0) -> None:
        """A call left (finished or aborted) at ``now`` after receiving ``usage``.

        ``snapshot_service``: the program's service when the call arrived.
        The last call of a program that has ended takes the row with it.
        """
        row = self._rows.get(program)
        if row is None:
            row = self._rows[program] = Row(now)
        served, exec_s, wait_s = usage
        if not self._max:
            row.service += served
        elif snapshot_service + served > row.service:
            row.service = snapshot_service + served
        row.exec_s += exec_s
        row.wait += wait_s
        if now > row.last_completion:
            row.last_completion = now
        if row.active > 0:
            row.active -= 1
        if row.ended and not row.active:
            del self._rows[program]
        if row.watchers:
            row.changed()

    def extend(self, program: int, call: CallId, path: float) -> None:
        """``call`` leaves; the longest path to its end is ``path``. Before ``charge``."""
        row = self._rows.get(program)
        if row is not None:
            if row.paths is None:
                row.paths = {}
            row.paths[call] = path

    def forgive(self, program: int) -> None:
        """Forget the program's past wait and execution, not its service.

        Only the "program" variant of promotion does this.
        """
        row = self._rows.get(program)
        if row is not None:
            row.wait = row.exec_s = 0.0
            row.changed()

    def end(self, program: int) -> None:
        """The program is over. Its row goes now, or with its last active call."""
        row = self._rows.get(program)
        if row is None:
            return
        row.ended = True
        if not row.active:
            del self._rows[program]


def _learn(row: Row, snap: Snapshot) -> None:
    row.service = max(row.service, snap.service)
    row.wait = max(row.wait, snap.wait)
    row.exec_s = max(row.exec_s, snap.exec_s)
    row.changed()
