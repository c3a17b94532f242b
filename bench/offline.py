"""What a program set is without any clock: how many calls, how long, how well a cache could do."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from workloads.base import ProgramSpec
from workloads.dag import ProgramDag
from workloads.dryrun import dry_run
from workloads.prefixes import PrefixIndex
from workloads.script import AbandonOp, CancelOp, Script, TimeoutOp


class Offline(NamedTuple):
    """Totals over all programs, in calls and tokens.

    ``longest``: prompt + output of the longest call, made by program
    ``longest_program``. ``hit_tokens``: prompt tokens an infinite prefix
    cache would serve, programs one by one.
    """

    calls: int
    longest: int
    longest_program: int
    prompt_tokens: int
    output_tokens: int
    hit_tokens: int
    programs: int
    fixed: bool
    """No program times out, cancels or abandons: every run makes exactly these calls."""

    @property
    def optimum(self) -> float:
        """The best prefix hit rate: hits over prompt tokens."""
        return self.hit_tokens / self.prompt_tokens if self.prompt_tokens else math.nan


class Entry(NamedTuple):
    """What one program adds to the totals."""

    calls: int
    longest: int
    prompt_tokens: int
    output_tokens: int
    fixed: bool


class Ledger:
    """``Offline`` of the first n programs for every n: sets that differ in length only share the work.

    A program's hits depend on those before it alone, so the totals of a prefix are sums of a prefix.
    """

    def __init__(self, specs: Sequence[ProgramSpec]) -> None:
        self.keys = [spec.key for spec in specs]
        self._indexes = [spec.index for spec in specs]
        self._entries: list[Entry] = []
        self._hits = walk_each(specs, self._count)

    def _count(self, dag: ProgramDag) -> None:
        totals = (len(dag.calls), dag.longest, dag.total_prompt, dag.total_output)
        self._entries.append(Entry(*totals, fixed=not by_the_clock(dag.script)))

    def upto(self, n: int) -> Offline:
        """Totals of the first ``n`` programs."""
        part = self._entries[:n]
        at = max(range(n), key=lambda i: part[i].longest, default=0)
        return Offline(
            sum(e.calls for e in part),
            part[at].longest if part else 0,
            self._indexes[at] if part else 0,
            sum(e.prompt_tokens for e in part),
            sum(e.output_tokens for e in part),
            sum(self._hits[:n]),
            n,
            all(e.fixed for e in part),
        )


def offline(specs: Sequence[ProgramSpec]) -> Offline:
    """Dry-run the programs one by one; of their DAGs nothing is kept."""
    return Ledger(specs).upto(len(specs))


def by_the_clock(script: Script) -> bool:
    """Whether the engine's times can decide which calls the program makes."""
    return any(isinstance(op, TimeoutOp | CancelOp | AbandonOp) for op in script.walk())


def walk(specs: Sequence[ProgramSpec], each: Callable[[ProgramDag], None]) -> int:
    """Dry-run every program for ``each``; returns the prefix hits (tokens) of one infinite cache."""
    return sum(walk_each(specs, each))


def walk_each(specs: Sequence[ProgramSpec], each: Callable[[ProgramDag], None]) -> list[int]:
    """Dry-run every program for ``each``; each program's prefix hits (tokens) in one infinite cache.

    Programs can only share a prefix from its first segment on. Those whose first
    segments are their own have an index of their own, which goes with them; the
    others are run a second time, with a common one. So memory follows what is
    shared, not the number of programs.
    """
    hits: list[int] = []
    owner: dict[int, int] = {}
    shared: set[int] = set()
    for place, spec in enumerate(specs):
        dag = dry_run(spec)
        each(dag)
        hits.append(dag.optimal_hits())
        for first in {call.prompt[0][0] for call in dag.calls}:
            if owner.setdefault(first, place) != place:
                shared |= {owner[first], place}
    index = PrefixIndex()
    for place in sorted(shared):
        hits[place] = dry_run(specs[place]).optimal_hits(index)
    return hits
