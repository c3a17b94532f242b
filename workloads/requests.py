"""Programs from rows of requests: one call each, or the calls of a session or a tree of sessions.

* A row without a session is a program of one call.
* A session is a chain of calls; in a tree, a call with several successors is followed by all
  of them at once, each after its own pause.
* Prompts share what their block ids say (``block_hashes.NamedBlocks``). Without ids, a prompt at
  least as long as the prompt and the reply before it is taken to continue them.
* A pause is what the file says. Where it only has the times of requests, it is the time since
  the request before, which holds that call's own time, too: counted in ``repaired``.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from vocabulary import Segment, on_grid
from workloads.base import NothingLeft, ProgramSet, WorkloadError
from workloads.block_hashes import NamedBlocks
from workloads.files import Fields, Tally, brief, shown
from workloads.keys import key_of, mix
from workloads.overflow import exceeded
from workloads.rows import LATEST, Columns, Programs, Table
from workloads.script import CallOp, JoinOp, Op, Script, ThinkOp, ToolOp
from workloads.session import CallId

NO_TOKENS = "reply of 0 tokens, 1 taken"
NO_PROMPT = "request without a prompt left out"
CONTINUED = "no content given: prompt taken to continue the call before"
FROM_TIMES = "pause taken from the times of two requests: it holds the time of the first one"
EARLIER = "call before the one it follows, taken to follow it at once"
OUT_OF_ORDER = "requests of a session out of time order, sorted"
_DEEPEST = 100


class Requests:
    """The rows of one file and what makes programs of them.

    ``block``: tokens of a block, 0 where rows have no block ids; ``number`` tells the files of
    a folder apart. ``parents[row]`` is the row a call follows, -1 for the first of a program.
    """

    def __init__(self, kind: str, name: str, number: int, block: int = 0) -> None:
        self.kind = kind
        self.name = name
        self.number = number
        self.block = block
        self.columns = Columns()
        self.pauses: array[float] | None = None
        self.parents: array[int] | None = None
        self.texts: dict[int, tuple[Segment, ...]] = {}
        self.replies: dict[int, int] = {}
        self.models: dict[int, str] = {}
        self.continues: set[int] = set()
        """Rows without ids of which the file says that they continue the call before."""
        self.tool = ""
        """The tool that takes the pauses; a person does where it is empty."""

    def table(self, sessions: Iterable[Sequence[int]] | None = None) -> Table:
        """The programs: ``sessions`` are the rows of each, None for one program a row."""
        if sessions is None:
            return Table(self.columns, self.script)
        return Table(self.columns, self.script, [array("q", rows) for rows in sessions])

    def chain(self, sessions: Iterable[Sequence[int]]) -> None:
        """Let the calls of each session follow one another."""
        parents = array("q", [-1]) * len(self.columns)
        for rows in sessions:
            for before, row in pairwise(rows):
                parents[row] = before
        self.parents = parents

    def pause(self, given: Mapping[int, float], took: Mapping[int, float], repaired: Tally) -> None:
        """The seconds before each call: ``given``, else from the times of it and the call before.

        ``took`` are the seconds a call itself took, where they are known.
        """
        assert self.parents is not None
        times, self.pauses = self.columns.times, array("d", [0.0]) * len(self.columns)
        for row, before in enumerate(self.parents):
            if row in given:
                self.pauses[row] = given[row]
            elif before >= 0 and times[row] == times[row] and times[before] == times[before]:
                self.pauses[row] = max(0.0, times[row] - times[before] - took.get(before, 0.0))
                if times[row] < times[before]:
                    repaired.add(EARLIER, self.place(row))
                elif before not in took:
                    repaired.add(FROM_TIMES, self.place(row))
            if self.pauses[row] > LATEST:
                raise WorkloadError(
                    f"{self.place(row)}: a pause of {self.pauses[row]:.0f} s, over {LATEST} s"
                )

    def count_continued(self, repaired: Tally) -> None:
        """Count the prompts that are only taken to continue the one before."""
        assert self.parents is not None
        inputs, outputs = self.columns.inputs, self.columns.outputs
        for row, before in enumerate(self.parents):
            if before >= 0 and not self._told(row) and inputs[row] >= inputs[before] + outputs[before]:
                repaired.add(CONTINUED, self.place(row))

    def place(self, row: int) -> str:
        """The file and line of a row."""
        return f"{self.name}:{self.columns.line(row)}"

    def _told(self, row: int) -> bool:
        return row in self.texts or row in self.continues or bool(self.columns.blocks(row))

    def script(self, rows: Sequence[int]) -> Script:
        """The calls of one program; the first row is its first call."""
        following = defaultdict[int, list[int]](list)
        if self.parents is not None:
            for row in rows[1:]:
                following[self.parents[row]].append(row)
        key = key_of("requests", self.kind, self.number, rows[0])
        names = key_of("blocks", self.kind, self.number)
        return _Builder(self, NamedBlocks(key, max(1, self.block), names), following).branch(rows[0])


class _Builder:
    """Builds the script of one program."""

    def __init__(self, rows: Requests, prompts: NamedBlocks, following: Mapping[int, list[int]]) -> None:
        self.rows = rows
        self.prompts = prompts
        self.following = following

    def branch(
        self, row: int, thread: str = "", parents: tuple[CallId, ...] = (), last: CallOp | None = None
    ) -> Script:
        """From ``row`` to the end, or to the first call that several others follow."""
        ops: list[Op] = []
        index = 0
        while True:
            ops += self.waiting(row)
            last = self.call(row, thread, index, parents, last)
            ops.append(last)
            parents, index = (last.id,), index + 1
            after = self.following.get(row, [])
            if len(after) == 1:
                row = after[0]
                continue
            if after:
                paths = [f"{thread}.{i}" if thread else str(i) for i in range(len(after))]
                ops.append(
                    JoinOp([self.branch(r, p, parents, last) for r, p in zip(after, paths, strict=True)])
                )
            return Script(ops)

    def waiting(self, row: int) -> list[Op]:
        pause = self.rows.pauses[row] if self.rows.pauses is not None else 0.0
        if not pause:
            return []
        seconds = on_grid(pause)
        return [ToolOp(self.rows.tool, seconds) if self.rows.tool else ThinkOp(seconds)]

    def call(
        self, row: int, thread: str, index: int, parents: tuple[CallId, ...], last: CallOp | None
    ) -> CallOp:
        rows = self.rows
        tokens, output = rows.columns.inputs[row], rows.columns.outputs[row]
        reply = rows.replies.get(row, mix(self.prompts.key, -1 - row))
        op = CallOp(thread, index, parents, (), reply, output, tokens, rows.models.get(row, ""))
        ids = rows.columns.blocks(row)
        if ids:
            self.prompts.place(op, ids)
        elif row in rows.texts:
            op.new = rows.texts[row]
        else:
            if last is not None and tokens >= last.total:
                op.base, op.keep = last, last.total
            if tokens > op.keep:
                op.new = ((self.prompts.new_id(), tokens - op.keep),)
        return op


def block_ids(row: Fields, right: int, why: str) -> list[int]:
    """The ``hash_ids`` of a row, of which there must be ``right``; ``why`` says so."""
    ids = row.items("hash_ids")
    if len(ids) != right:
        tokens = next((value for name, value in row.values.items() if name.startswith("input_")), "?")
        raise WorkloadError(
            f"{row.where}.hash_ids: {len(ids)} ids for a prompt of {tokens} tokens; "
            f"{why} = {right} would be right"
        )
    if not {*map(type, ids)} <= {int} or min(ids, default=0) < 0 or max(ids, default=0) >= 1 << 64:
        at, wrong = next((i, v) for i, v in enumerate(ids) if type(v) is not int or not 0 <= v < 1 << 64)
        raise WorkloadError(
            f"{row.where}.hash_ids[{at}]: expected a whole number from 0 to 2**64 - 1, got {brief(wrong)}"
        )
    return ids


def in_time_order(rows: list[int], requests: Requests, repaired: Tally) -> list[int]:
    """The rows of a session by time, if they have times; counted if that changes something."""
    times = requests.columns.times
    known = [times[row] for row in rows if times[row] == times[row]]
    if len(known) < len(rows) or known == sorted(known):
        return rows
    repaired.add(OUT_OF_ORDER, requests.place(rows[0]))
    return sorted(rows, key=lambda row: times[row])


def forks_of(roots: Sequence[int], parents: Sequence[int], name: str) -> list[list[int]]:
    """The rows of each tree, parents first. Raises WorkloadError for forks nested too deeply."""
    following = defaultdict[int, list[int]](list)
    for row, before in enumerate(parents):
        if before >= 0:
            following[before].append(row)
    trees = []
    for root in roots:
        tree, open_rows = list[int](), [(root, 0)]
        while open_rows:
            row, depth = open_rows.pop()
            tree.append(row)
            after = following.get(row, [])
            if len(after) > 1 and depth == _DEEPEST:
                raise WorkloadError(f"{name}: branches nested more than {_DEEPEST} deep")
            open_rows += [(next_row, depth + (len(after) > 1)) for next_row in reversed(after)]
        trees.append(tree)
    return trees


def program_set(
    path: Path, kind: str, tables: Sequence[Table], skipped: Tally, repaired: Tally, read: int, limit: int
) -> ProgramSet:
    """What a reader of request rows returns; the first arrival is at 0. Raises NothingLeft."""
    programs = Programs(kind, tables)
    if not programs:
        raise nothing_left(path, skipped, limit)
    firsts = [np.nanmin(t) for table in tables if len(t := table.arrivals()) and not np.isnan(t).all()]
    programs.first = float(min(firsts, default=0.0))
    return ProgramSet(
        programs, path.name, "", {}, None, skipped.counts, repaired.counts,
        {**skipped.where(), **repaired.where()}, read,
    )  # fmt: skip


def nothing_left(path: Path, skipped: Tally, limit: int) -> NothingLeft:
    """The error for a trace without a program for a context of ``limit`` tokens."""
    line = f"{shown(path.name)}: no program is left: {skipped.text() or 'there is no request'}"
    return NothingLeft(line, exceeded(skipped.counts, limit))
