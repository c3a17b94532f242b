"""What a played scenario made the engine do: "identical" says no more than was tried."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

from bench.fidelity.played import Played
from vocabulary import Step

NEEDS: Mapping[str, Mapping[str, int]] = {
    "plain": {"batch": 3, "roomy": 1},
    "reuse": {"hit_percent": 20, "batch": 2},
    "forks": {"forks": 6, "hit_percent": 20, "batch": 2},
    "starved": {"evicted": 1, "evicted_blocks": 10, "batch": 2},
    "chunked": {"chunked": 3, "mixed": 5},
    "aborts": {"aborted": 2, "aborted_running": 1},
}
"""What a scenario must have of what its family names, at least.

One eviction is enough: where many calls are displaced few are left to evict. It was two until
``--quick --seed 2`` showed a scenario with one. Of 2 400 small and 612 large ones (seeds 1 to 200 and 1 to
51, 12 schedulers, played on ``sim``) 8 had one, none had fewer, and all had 10 evicted blocks.
"""


def exercise(theirs: Played) -> dict[str, int]:
    """Counts of one scenario on one engine.

    ``batch``: calls in the largest step; ``chunked``: calls with a prefill in several steps; ``mixed``: steps
    with prefills and decodes; ``forks``: threads beside programs' first; ``evicted``, ``displaced``: calls
    preempted for want of blocks, by a better one; ``aborted_running``: aborted calls that had got tokens;
    ``roomy``: 1 if nothing was evicted; ``hit_percent``: of prompt tokens, found in the cache.
    """
    totals, steps = theirs.totals[0], theirs.steps[0]
    rules = Counter(decision.rule for decision in theirs.decisions)
    whole = ("query_tokens", "hit_tokens", "computed_prefill_tokens", "decode_tokens", "evicted_blocks")
    found = {name: int(totals[name]) for name in whole}
    evicted = int(totals.get("evicted", totals["preemptions"]))  # vLLM alone displaces nobody
    aborted = [row for row in theirs.calls if row.aborted]
    found |= {
        "steps": len(steps),
        "calls": len(theirs.calls),
        "batch": max(len(step.batch) for step in steps),
        "chunked": _chunked(steps),
        "mixed": sum(len({n > 1 for _, n in step.batch}) == 2 for step in steps),
        "forks": sum(row[6] - 1 for row in theirs.programs),
        "evicted": evicted,
        "displaced": int(totals["preemptions"]) - evicted,
        "expired": rules["expire"],
        "promoted": rules["promote"],
        "aborted": len(aborted),
        "aborted_running": sum(row.steps > 0 for row in aborted),
        "roomy": int(not evicted),
        "hit_percent": round(100 * totals["hit_tokens"] / max(1, totals["query_tokens"])),
    }
    return found


def _chunked(steps: Sequence[Step]) -> int:
    """Calls that got more than one token in two steps running: one was no whole prefill."""
    several = [{seq for seq, n in step.batch if n > 1} for step in steps]
    return len({seq for before, after in pairwise(several) for seq in before & after})


def lacks(family: str, counts: Mapping[str, int]) -> str:
    """What a scenario lacks of what its family names, in words; empty if nothing."""
    short = [
        f"{name} {counts[name]} < {least}" for name, least in NEEDS[family].items() if counts[name] < least
    ]
    return ", ".join(short)
