"""Several engines with vLLM's scheduler: what a policy cannot know there, and what that does to latencies.

A worker's process has a copy of the policy, and of the process table, which learns from the calls that come
(docs/vllm.md). Where that matters, schedules part; this finds out how far, and that nothing else parts them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from bench.fidelity.played import Played
from bench.fidelity.scenarios import CROWDED, scenario
from bench.fidelity.schedules import Maker, difference, play_policy, policy
from bench.stats import Estimate, t_interval
from systems.engines.sim import SimEngine
from vocabulary import INF

ENGINES = 2
FINITE = 1.5
"""The promptest promotion among the knobs of the suite: the most that can go apart."""
DUE = "promotions are due by the program's row, which other engines' calls change meanwhile"
PATHS = "paths through calls on another engine are not known"
ARRIVED = "a program arrives with its first call on that engine"


@dataclass(frozen=True)
class Case:
    """A scheduler on two engines; ``why`` schedules may part there, empty if they must not."""

    scheduler: str
    beta: float | None = None
    why: str = ""


CASES = (
    Case("plas", FINITE, DUE),
    Case("atlas", FINITE, DUE),
    Case("mlfq", FINITE, DUE),
    Case("atlas-dag", INF, PATHS),
    Case("atlas-cp", INF, PATHS),
    Case("job-fcfs", None, ARRIVED),
    Case("plas", INF),
    Case("atlas", INF),
    Case("mlfq", INF),
    Case("fcfs"),
)
"""What may part, then what must not."""


@dataclass(frozen=True)
class Compared:
    """``differ`` of ``seeds`` scenarios have other schedules.

    ``mean``: relative difference of a scenario's mean program latency, vLLM's over ``sim``'s, over the seeds;
    ``ks``, ``p``: largest distance between the two distributions of program latencies, all seeds together,
    and how often chance alone makes one as large.
    """

    case: Case
    seeds: int
    steps: int
    promoted: int
    differ: int
    mean: Estimate
    ks: float
    p: float


def compare(case: Case, seeds: Sequence[int], vllm: Maker) -> Compared:
    """Play the crowded family on two engines of both kinds."""
    pairs = [_both(case, seed, vllm) for seed in seeds]
    theirs, ours = ([_latencies(played) for played in side] for side in zip(*pairs, strict=True))
    ratios = [_mean(a) / _mean(b) - 1.0 for a, b in zip(theirs, ours, strict=True)]
    ks, p = _distance([*chain(*theirs)], [*chain(*ours)])
    return Compared(
        case,
        len(pairs),
        sum(len(steps) for played, _ in pairs for steps in played.steps),
        sum(decision.rule == "promote" for played, _ in pairs for decision in played.decisions),
        sum(bool(difference(a, b)) for a, b in pairs),
        t_interval(ratios),
        ks,
        p,
    )


def _both(case: Case, seed: int, vllm: Maker) -> tuple[Played, Played]:
    chosen = policy(case.scheduler, seed, case.beta)
    crowd = scenario(CROWDED, seed, large=False)
    return play_policy(crowd, vllm, chosen, ENGINES), play_policy(crowd, SimEngine, chosen, ENGINES)


def _latencies(played: Played) -> list[float]:
    return [row[3] - row[2] for row in played.programs]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _distance(left: Sequence[float], right: Sequence[float]) -> tuple[float, float]:
    from scipy.stats import ks_2samp  # takes a second to import

    found: Any = ks_2samp(left, right)
    return float(found.statistic), float(found.pvalue)
