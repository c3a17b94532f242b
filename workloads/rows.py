"""Traces of requests as columns: a few bytes a row, and programs made when they are asked for.

A file of two million rows has no two million objects: a ``Table`` keeps its numbers in
arrays, and a ``Programs`` is a sequence that makes a ``ProgramSpec`` for each access.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import overload

import numpy as np

from vocabulary import on_grid
from workloads.base import ProgramSpec, WorkloadError
from workloads.files import Tally
from workloads.keys import key_of
from workloads.overflow import fit
from workloads.replay import replay
from workloads.script import Script, ThinkOp, ToolOp
from workloads.session import Program, Session

MOST_TOKENS = (1 << 32) - 1
"""Of one prompt or reply of a row."""
LATEST = 1 << 20
"""No recorded arrival may be more seconds (12 days) after the first."""


class Columns:
    """Rows of one file: arrival in seconds (NaN if unknown), prompt and reply in tokens, block ids.

    ``pauses`` are the seconds before a row's call, once one is known; ``lines`` the line
    of every row after which the numbers of rows and lines differ otherwise than before.
    """

    def __init__(self) -> None:
        self.times = array("d")
        self.inputs = array("I")
        self.outputs = array("I")
        self.ids = array("I")
        self.ends = array("Q")
        self._breaks: list[tuple[int, int]] = []
        self._shift = -1

    def __len__(self) -> int:
        return len(self.inputs)

    def add(self, line: int, time: float, tokens: int, output: int, ids: list[int]) -> None:
        """A row. Raises OverflowError or TypeError, and adds nothing, for what is no number of its kind."""
        try:
            self.ids.fromlist(ids)
        except OverflowError:
            if self.ids.typecode == "Q" or min(ids) < 0:
                raise
            wide = array("Q", self.ids)
            wide.fromlist(ids)
            self.ids = wide
        row = len(self.inputs)
        if line - row != self._shift:
            self._shift = line - row
            self._breaks.append((row, self._shift))
        self.times.append(time)
        self.inputs.append(tokens)
        self.outputs.append(output)
        if self.ids:
            if len(self.ends) < row:
                self.ends = array("Q", bytes(8 * row))
            self.ends.append(len(self.ids))

    def line(self, row: int) -> int:
        """The line of the file that row ``row`` stands on."""
        place = bisect_right(self._breaks, (row, 1 << 62)) - 1
        return row + self._breaks[place][1]

    def blocks(self, row: int) -> list[int]:
        """The block ids of a row."""
        if row >= len(self.ends):
            return []
        return self.ids[self.ends[row - 1] if row else 0 : self.ends[row]].tolist()

    def refuse_partial_and_whole(self, block: int, name: str, field: str) -> None:
        """Raise WorkloadError if an id is of a whole block here and of a part of one there.

        So is an id of parts of different lengths: equal ids are equal text.
        """
        if not self.ids:
            return
        inputs, ends = np.frombuffer(self.inputs, dtype=np.uint32), np.frombuffer(self.ends, dtype=np.int64)
        ids = np.frombuffer(self.ids, dtype=f"u{self.ids.itemsize}")
        rows = _with_rest(inputs, ends, block)
        last = ends[rows] - 1
        partial = ids[last]
        order = np.argsort(partial, kind="stable").astype(np.int32)
        length = (inputs[rows] % block)[order]
        partial = partial[order]
        for at in np.flatnonzero((partial[1:] == partial[:-1]) & (length[1:] != length[:-1]))[:1]:
            self._contradict(name, field, int(rows[order[at + 1]]), int(rows[order[at]]), block)
        del length
        spot = _elsewhere(ids, partial, last)
        if spot is not None:
            row = int(np.searchsorted(ends, spot, side="right"))
            other = int(rows[order[np.searchsorted(partial, ids[spot])]])
            self._contradict(name, field, row, other, block, int(ids[spot]))

    def _contradict(self, name: str, field: str, row: int, other: int, block: int, whole: int = -1) -> None:
        ids = self.blocks(other)
        size = f"a whole block of {block}" if whole >= 0 else f"{self.inputs[row] % block} tokens"
        raise WorkloadError(
            f"{name}:{self.line(row)}.{field}: block {ids[-1]} is {size} here, but the last "
            f"{self.inputs[other] % block} tokens of the prompt in line {self.line(other)}; "
            "equal ids must be equal text"
        )


def _with_rest(inputs: np.ndarray, ends: np.ndarray, block: int) -> np.ndarray:
    """The rows whose last id is of less than a block."""
    counts = ends.astype(np.int32 if len(ends) and ends[-1] < 1 << 31 else np.int64)
    counts[1:] = np.diff(counts)
    return np.flatnonzero((inputs % block != 0) & (counts > inputs // block)).astype(np.int32)


def _elsewhere(ids: np.ndarray, wanted: np.ndarray, known: np.ndarray) -> int | None:
    """The first place outside ``known`` that holds one of ``wanted`` (sorted), in pieces."""
    if not len(wanted):
        return None
    bits = None
    if (span := int(ids.max()) + 1) <= max(1 << 20, 32 * len(ids)):
        bits = np.zeros(span // 8 + 1, dtype=np.uint8)
        np.bitwise_or.at(bits, wanted >> 3, (1 << (wanted & 7)).astype(np.uint8))
    for start in range(0, len(ids), 1 << 20):
        piece = ids[start : start + (1 << 20)]
        if bits is None:
            found = np.flatnonzero(np.isin(piece, wanted)) + start
        else:
            found = np.flatnonzero(bits[piece >> 3] >> (piece & 7).astype(np.uint8) & 1) + start
        mine = known[np.searchsorted(known, start) : np.searchsorted(known, start + len(piece))]
        if len(found) > len(mine):
            return int(np.setdiff1d(found, mine)[0])
    return None


class Table:
    """The programs of one file: ``script(i)`` builds one from the rows ``rows(i)``.

    ``groups``: the rows of each program in the order of its calls; None is one each.
    """

    def __init__(
        self, columns: Columns, build: Callable[[Sequence[int]], Script],
        groups: list[array[int]] | None = None,
    ) -> None:  # fmt: skip
        self.columns = columns
        self.build = build
        self.groups = groups
        self.fitted: dict[int, Script] = {}
        self.kept: Sequence[int] = range(len(columns) if groups is None else len(groups))

    def __len__(self) -> int:
        return len(self.kept)

    def rows(self, program: int) -> Sequence[int]:
        """The rows of the ``program``-th that is kept."""
        place = self.kept[program]
        return (place,) if self.groups is None else self.groups[place]

    def script(self, program: int) -> Script:
        """What the ``program``-th that is kept does."""
        found = self.fitted.get(self.kept[program])
        return found if found is not None else self.build(self.rows(program))

    def arrival(self, program: int) -> float:
        """Seconds, NaN if unknown."""
        return self.columns.times[self.rows(program)[0]]

    def arrivals(self) -> np.ndarray:
        """Seconds of every program, NaN if unknown."""
        times = np.frombuffer(self.columns.times) if len(self.columns) else np.empty(0)
        if self.groups is not None:
            times = times[np.fromiter((rows[0] for rows in self.groups), dtype=np.int64)]
        return times if isinstance(self.kept, range) else times[np.asarray(self.kept)]

    def fit(self, limit: int, rule: str, name: str, skipped: Tally, cuts: Tally) -> None:
        """Leave out or cut the programs whose calls do not fit ``limit`` tokens (see ``overflow``)."""
        if not len(self.columns):
            return
        inputs = np.frombuffer(self.columns.inputs, dtype=np.uint32).astype(np.int64)
        long = inputs + np.frombuffer(self.columns.outputs, dtype=np.uint32) > limit
        if self.groups is None:
            doubtful = np.flatnonzero(long).tolist()
        else:
            doubtful = [i for i, rows in enumerate(self.groups) if long[rows].any()]
        left_out = []
        for place in doubtful:
            rows = (place,) if self.groups is None else self.groups[place]
            where = f"{name}:{self.columns.line(next(row for row in rows if long[row]))}"
            script = fit(self.build(rows), limit, rule, where, skipped, cuts)
            if script is None:
                left_out.append(place)
            else:
                self.fitted[place] = script
        if left_out:
            self.kept = array("q", np.delete(np.arange(len(self.kept)), left_out).tobytes())


class Programs(Sequence[ProgramSpec]):
    """The programs of some tables, made on access.

    ``order`` are their numbers; each pass over ``order`` of ``round`` programs is a copy with
    segment ids of its own (0: no copies). Arrivals are ``(recorded - first) / scale``.
    """

    def __init__(self, kind: str, tables: Sequence[Table]) -> None:
        self.kind = kind
        self.tables = list(tables)
        self.starts = [0]
        for table in self.tables:
            self.starts.append(self.starts[-1] + len(table))
        self.order: Sequence[int] = range(self.starts[-1])
        self.round = 0
        self.timed = True
        self.first = 0.0
        self.scale = 1.0
        self.cap: float | None = None

    def __len__(self) -> int:
        return len(self.order)

    @overload
    def __getitem__(self, index: int) -> ProgramSpec: ...
    @overload
    def __getitem__(self, index: slice) -> list[ProgramSpec]: ...
    def __getitem__(self, index: int | slice) -> ProgramSpec | list[ProgramSpec]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        place = range(len(self))[index]
        number = self.order[place]
        copy = place // self.round if self.round else 0
        start = partial(replay_row, self, number, copy)
        return ProgramSpec(place, self.kind, key_of("replay", number, copy), start, self.arrival(number))

    def __iter__(self) -> Iterator[ProgramSpec]:
        return (self[i] for i in range(len(self)))

    def arrival(self, number: int) -> float | None:
        """Seconds since the first, on the grid; None where it does not count or is not known."""
        if not self.timed:
            return None
        time = (self._time(number) - self.first) / self.scale
        if time != time:
            return None
        return on_grid(time) if time <= LATEST else time

    def script(self, number: int) -> Script:
        """What program ``number`` does."""
        table, place = self._place(number)
        script = table.script(place)
        if self.cap is not None:
            cap_pauses(script, self.cap)
        return script

    def _place(self, number: int) -> tuple[Table, int]:
        at = bisect_right(self.starts, number) - 1
        return self.tables[at], number - self.starts[at]

    def drawn(self, order: Iterable[int]) -> Programs:
        """In this order, in which every program comes once before one comes again."""
        result = self._like(array("q", order))
        result.timed, result.round = False, len(self)
        return result

    def by_arrival(self) -> Programs:
        """All of them in order of arrival, the first at 0; as they are if an arrival is missing."""
        times = np.concatenate([table.arrivals() for table in self.tables] or [np.empty(0)])
        result = self._like(self.order)
        if not len(times) or np.isnan(times).any():
            result.timed = False
            return result
        result.first = float(times.min())
        if (times[1:] < times[:-1]).any():
            result.order = array("q", np.argsort(times, kind="stable").tobytes())
        return result

    def last(self) -> float | None:
        """The arrival of the last one in seconds, however late; None where there is none."""
        if not self.timed:
            return None
        return (self._time(self.order[-1]) - self.first) / self.scale

    def head(self, n: int | None) -> Programs:
        """The first ``n``."""
        return self._like(self.order[:n])

    def _time(self, number: int) -> float:
        table, place = self._place(number)
        return table.arrival(place)

    def _like(self, order: Sequence[int]) -> Programs:
        result = Programs(self.kind, self.tables)
        result.order, result.round, result.timed = order, self.round, self.timed
        result.first, result.scale, result.cap = self.first, self.scale, self.cap
        return result


def replay_row(programs: Programs, number: int, copy: int, session: Session) -> Program:
    """The coroutine of program ``number``; its script is built now."""
    return replay(programs.script(number), copy, session)


def cap_pauses(script: Script, cap: float) -> int:
    """Let no tool and no wait of the script take over ``cap`` seconds; how many did."""
    cut = 0
    for op in script.walk():
        if isinstance(op, ThinkOp) and op.seconds > cap:
            op.seconds, cut = cap, cut + 1
        elif isinstance(op, ToolOp) and op.work_s > cap:
            op.work_s, cut = cap, cut + 1
    return cut
