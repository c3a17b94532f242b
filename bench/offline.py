"""What a program set is without any clock: how many calls, how long, how well a cache could do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from workloads.base import ProgramSpec
from workloads.dryrun import dry_run
from workloads.prefixes import PrefixIndex


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

    @property
    def optimum(self) -> float:
        """The best prefix hit rate: hits over prompt tokens."""
        return self.hit_tokens / self.prompt_tokens if self.prompt_tokens else math.nan


def offline(specs: Sequence[ProgramSpec]) -> Offline:
    """Dry-run the programs one by one; memory is the prefix index, not the DAGs."""
    index = PrefixIndex()
    calls = longest = program = prompt = output = hits = 0
    for spec in specs:
        dag = dry_run(spec)
        calls += len(dag.calls)
        prompt += dag.total_prompt
        output += dag.total_output
        hits += dag.optimal_hits(index)
        if dag.longest > longest:
            longest, program = dag.longest, spec.index
    return Offline(calls, longest, program, prompt, output, hits)
