"""What a program set holds, call by call: lengths, times, arrivals, and who shares a prefix with whom."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from bench.stats import Array
from vocabulary import BLOCK, Segment
from workloads.base import ProgramSet, ProgramSpec
from workloads.dag import DagCall, ProgramDag
from workloads.dryrun import dry_run
from workloads.prefixes import PrefixIndex
from workloads.script import JoinOp, SpawnOp, ThinkOp, ToolOp

CALLS = "calls per program"
THREADS = "threads per program"
PROMPT = "prompt tokens per call"
NEW = "new prompt tokens per call"
OUTPUT = "output tokens per call"
TOTAL_OUTPUT = "output tokens per program"
LONGEST = "longest context per program"
TOOL = "tool s per use"
THINK = "think s per wait"
TOOL_TOTAL = "tool s per program"
GAP = "s between arrivals"

NAMES = (CALLS, THREADS, PROMPT, NEW, OUTPUT, TOTAL_OUTPUT, LONGEST, TOOL, THINK, TOOL_TOTAL)


@dataclass(slots=True)
class Survey:
    """One entry a call, a program or a wait, in the order of the set; tokens and seconds.

    ``values`` by the names above; ``own`` and ``others``: prompt tokens of each call (whole
    16-token blocks) that an infinite prefix cache holds from the same program's earlier calls,
    and from the programs before it. ``program`` is the place of each call's program.
    ``forks``: joins of several branches, and spawns. ``signatures``: a program's lengths in
    order, hashed, to find copies.
    """

    programs: ProgramSet
    values: dict[str, Array]
    own: Array
    others: Array
    program: Array
    arrivals: Array | None
    forks: int
    signatures: list[int]

    @property
    def optimum(self) -> Array:
        """Hits of one infinite cache that serves the programs one by one, per call."""
        best: Array = np.maximum(self.own, self.others)
        return best


@dataclass(slots=True)
class _Rows:
    values: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in NAMES})
    own: list[int] = field(default_factory=list)
    program: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    signatures: list[int] = field(default_factory=list)
    forks: int = 0


def survey(programs: ProgramSet, progress: Callable[[int, int], None] | None = None) -> Survey:
    """Dry-run every program; those that may share a prefix with others twice (see ``offline.walk``).

    ``progress`` is called with the programs done and those there are.
    """
    rows, owner, shared = _Rows(), dict[int, int](), set[int]()
    for place, spec in enumerate(programs.programs):
        dag = dry_run(spec)
        _lengths(dag, rows)
        _own(dag, place, rows)
        for first in {call.prompt[0][0] for call in dag.calls}:
            if owner.setdefault(first, place) != place:
                shared |= {owner[first], place}
        if progress is not None:
            progress(place + 1, len(programs.programs))
    others = np.zeros(len(rows.own))
    _others(programs.programs, sorted(shared), rows.starts, others)
    times = [spec.arrival for spec in programs.programs]
    return Survey(
        programs=programs,
        values={name: np.asarray(v, dtype=np.float64) for name, v in rows.values.items()},
        own=np.asarray(rows.own, dtype=np.float64),
        others=others,
        program=np.asarray(rows.program, dtype=np.float64),
        arrivals=None if None in times or not times else np.sort(np.asarray(times, dtype=np.float64)),
        forks=rows.forks,
        signatures=rows.signatures,
    )


def _lengths(dag: ProgramDag, rows: _Rows) -> None:
    values = rows.values
    values[CALLS].append(len(dag.calls))
    values[THREADS].append(dag.threads)
    values[PROMPT] += [c.prompt_tokens for c in dag.calls]
    values[OUTPUT] += [c.output_tokens for c in dag.calls]
    values[TOTAL_OUTPUT].append(dag.total_output)
    values[LONGEST].append(dag.longest)
    values[TOOL_TOTAL].append(dag.tool_s)
    for op in dag.script.walk():
        if isinstance(op, ToolOp):
            values[TOOL].append(op.work_s)
        elif isinstance(op, ThinkOp):
            values[THINK].append(op.seconds)
        elif isinstance(op, SpawnOp) or (isinstance(op, JoinOp) and len(op.scripts) > 1):
            rows.forks += 1
    rows.signatures.append(hash(tuple((c.thread, c.prompt_tokens, c.output_tokens) for c in dag.calls)))


def _own(dag: ProgramDag, place: int, rows: _Rows) -> None:
    """What each prompt repeats of its own program: in whole blocks, and to the token."""
    index, replies = PrefixIndex(), set[int]()
    rows.starts.append(len(rows.own))
    for call in dag.calls:
        shared = index.longest(call.prompt)
        rows.own.append(_blocks(shared, call))
        rows.program.append(place)
        rows.values[NEW].append(call.prompt_tokens - shared - _last_token(call.prompt, shared, replies))
        index.add(_left(call))
        replies.add(call.output_id)


def _last_token(prompt: Sequence[Segment], shared: int, replies: set[int]) -> int:
    """1 if the shared part ends before the last token of an earlier reply: known text, KV or not."""
    end = 0
    for segment, length in prompt:
        end += length
        if end > shared:
            return int(end == shared + 1 and segment in replies)
    return 0


def _others(specs: Sequence[ProgramSpec], places: Sequence[int], starts: Sequence[int], found: Array) -> None:
    """Fill in what each call of ``places`` shares with the programs before its own."""
    common = PrefixIndex()
    for place in places:
        dag = dry_run(specs[place])
        for k, call in enumerate(dag.calls, starts[place]):
            found[k] = _blocks(common.longest(call.prompt), call)
        for call in dag.calls:
            common.add(_left(call))


def _left(call: DagCall) -> tuple[Segment, ...]:
    """What a call leaves in the cache: the last token's KV is never computed."""
    return (*call.prompt, (call.output_id, call.output_tokens - 1))


def _blocks(shared: int, call: DagCall) -> int:
    return min(shared // BLOCK, (call.prompt_tokens - 1) // BLOCK) * BLOCK
