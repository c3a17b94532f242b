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


def offline(specs: Sequence[ProgramSpec]) -> Offline:
    """Dry-run the programs one by one; of their DAGs nothing is kept."""
    calls = longest = program = prompt = output = 0
    fixed = True

    def count(dag: ProgramDag) -> None:
        nonlocal calls, longest, program, prompt, output, fixed
        fixed = fixed and not by_the_clock(dag.script)
        calls += len(dag.calls)
        prompt += dag.total_prompt
        output += dag.total_output
        if dag.longest > longest:
            longest, program = dag.longest, dag.index

    hits = walk(specs, count)
    return Offline(calls, longest, program, prompt, output, hits, len(specs), fixed)


def by_the_clock(script: Script) -> bool:
    """Whether the engine's times can decide which calls the program makes."""
    return any(isinstance(op, TimeoutOp | CancelOp | AbandonOp) for op in script.walk())


def walk(specs: Sequence[ProgramSpec], each: Callable[[ProgramDag], None]) -> int:
    """Dry-run every program for ``each``; returns the prefix hits (tokens) of one infinite cache.

    Programs can only share a prefix from its first segment on. Those whose first
    segments are their own have an index of their own, which goes with them; the
    others are run a second time, with a common one. So memory follows what is
    shared, not the number of programs.
    """
    alone: list[int] = []
    owner: dict[int, int] = {}
    shared: set[int] = set()
    for place, spec in enumerate(specs):
        dag = dry_run(spec)
        each(dag)
        alone.append(dag.optimal_hits())
        for first in {call.prompt[0][0] for call in dag.calls}:
            if owner.setdefault(first, place) != place:
                shared |= {owner[first], place}
    index = PrefixIndex()
    together = sum(dry_run(specs[place]).optimal_hits(index) for place in sorted(shared))
    return together + sum(hits for place, hits in enumerate(alone) if place not in shared)
