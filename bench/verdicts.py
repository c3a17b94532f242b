"""A verdict per metric: effects over seeds, and what may be said of them.

A verdict needs both: an interval that excludes "no effect" (corrected by Holm over the gated
metrics), and an effect above the threshold. Pure functions over summaries' entries.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.comparing import spans
from bench.errors import Exit, UsageError
from bench.paired import ALPHA, Contrast, holm, paired, sign_test, welch
from bench.stats import OVER_SEEDS, VERDICT_SEEDS, Estimate, t_interval

GATES = (
    "program.s_per_token.mean_of_ratios",
    "program.s_per_token.ratio_of_means",
    "throughput.output_tokens_per_s",
)
"""Gated unless told: every program alike, every token alike, and the work done."""
SHOWN = (
    *GATES, "throughput.programs_per_s", "program.s_per_token.p95", "program.response.mean",
    "program.response.p50", "program.response.p95", "program.response.p99", "call.ttft.mean", "call.ttft.p95",
    "call.tpot.mean", "wait.wait_share", "kv.hit_rate", "preemptions.per_call", "exec.reprefill",
    "exec.swap", "utilisation.busy", "utilisation.kv", "system.finished_share",
)  # fmt: skip
"""What the pages show; JSON has every metric."""
_LOWER = (
    "program.", "call.", "wait.wait", "wait.cp_wait", "wait.cp_overhead_s", "throughput.window_s",
    "exec.reprefill", "exec.swap", "kv.computed", "preemptions.evicted",
)  # fmt: skip
_HIGHER = (
    "throughput.programs_per_s", "throughput.calls_per_s", "throughput.output_tokens_per_s", "measured.",
    "kv.hit_rate", "system.finished_share", "transient.finished_share",
)  # fmt: skip
_WINDOW = re.compile(r"(.+\.)?(transient|sustained)\.(mean_of_ratios|ratio_of_means|p\d+)")
"""Latencies of a window; those over the programs that finished in it flatter and cannot be gated."""
_MAY_BE_ZERO = ("wait.", "exec.", "kv.", "preemptions.", "utilisation.", "system.", "littles_law.")
_SHARES = ("exec.", "utilisation.", "kv.")
MANY_GATES, MANY_SEEDS = 4, 10
THRESHOLD = 0.05

RATIO, DIFFERENCE = "ratio", "difference"
BETTER, WORSE, SAME = "better", "worse", "~"
HIGHER, LOWER = "higher", "lower"
ONE_SEED = "one seed, no interval"
INCONCLUSIVE, EXPLORATORY = "inconclusive", "exploratory"


@dataclass(frozen=True)
class Question:
    """What is asked: which metrics decide, from which effect on, paired by seed or not, despite what."""

    gates: Sequence[str] = GATES
    threshold: float = THRESHOLD
    paired: bool = True
    allow: frozenset[str] = frozenset()

    @property
    def seeds(self) -> int:
        """Fewest seeds (on each side) for a verdict."""
        return MANY_SEEDS if len(self.gates) >= MANY_GATES else VERDICT_SEEDS

    def check(self) -> None:
        """Raises UsageError."""
        if not (math.isfinite(self.threshold) and 0 <= self.threshold < 1):
            raise UsageError(f"--threshold is a share from 0 to 1 (0.05 is 5 %), got {self.threshold:g}")
        for name in self.gates:
            if better(name) == 0:
                raise UsageError(
                    f"--gate {name}: no metric of docs/metrics.md, or one of which neither more nor less is "
                    "better, so it cannot decide"
                )


@dataclass(frozen=True)
class Effect:
    """What NEW did to one metric. ``contrast`` is in logarithms for ratios; None where ``why`` says why.

    The threshold of a difference is a share of BASE's mean; of a difference of shares, that many points.
    """

    name: str
    base: Estimate
    new: Estimate
    scale: str = RATIO
    contrast: Contrast | None = None
    signs: float | None = None
    why: str = ""

    def p(self) -> float:
        """Of "no effect"; 1 where nothing is known."""
        return 1.0 if self.contrast is None else self.contrast.p()

    def bar(self, threshold: float) -> float:
        """The threshold on the scale of ``contrast``."""
        if self.scale == RATIO:
            return math.log1p(threshold)
        is_share = self.name.startswith(_SHARES) or self.name.endswith("_share")
        return threshold if is_share else threshold * abs(self.base.value)

    def shown(self, value: float) -> float:
        """A point on the scale of ``contrast`` as people read it."""
        return math.exp(min(value, 700.0)) if self.scale == RATIO else value


def better(name: str) -> int:
    """1: more of it is better, -1: less is, 0: neither."""
    if name.startswith(_HIGHER):
        return 1
    return -1 if name.startswith(_LOWER) or _WINDOW.fullmatch(name) else 0


def effect_of(name: str, base: Mapping[int, Any], new: Mapping[int, Any], in_pairs: bool) -> Effect:
    """The effect on one metric; ``base`` and ``new``: seed -> its entry in a summary (None: not there)."""
    a, b = ([value_of(e) for e in side.values()] for side in (base, new))
    if why := "; ".join(w for s, e in (("BASE", base), ("NEW", new)) if (w := _missing(s, e))):
        return Effect(name, _whole(a), _whole(b), why=f"{name} is not there in {why}")
    scale = RATIO if min(a + b) > 0 and not name.startswith(_MAY_BE_ZERO) else DIFFERENCE
    sides = t_interval(a, OVER_SEEDS), t_interval(b, OVER_SEEDS)
    if min(len(a), len(b)) < 2:
        return Effect(name, *sides, scale=scale, why=ONE_SEED)
    x, y = ([math.log(v) for v in side] if scale == RATIO else side for side in (a, b))
    if not in_pairs:
        return Effect(name, *sides, scale, welch(x, y))
    steps = [q - p for p, q in zip(x, y, strict=True)]
    return Effect(name, *sides, scale, paired(steps), sign_test(steps))


def _missing(side: str, entries: Mapping[int, Any]) -> str:
    """Which seeds lack the number, and why the first does; empty if none."""
    seeds = [seed for seed, entry in entries.items() if math.isnan(value_of(entry))]
    if not seeds:
        return ""
    note = (entries[seeds[0]] or {}).get("note") or "no such number"
    return f"{side}, seed {spans(seeds)}: {note}"


def _whole(values: Sequence[float]) -> Estimate:
    """A side's mean; none where a seed has no number."""
    return Estimate(math.nan) if any(map(math.isnan, values)) else t_interval(values, OVER_SEEDS)


def value_of(entry: Mapping[str, Any] | None) -> float:
    """The number of a summary's entry; NaN where there is none."""
    return math.nan if entry is None or entry["value"] is None else float(entry["value"])


def verdict(effect: Effect, rejected: bool, alpha: float, question: Question) -> str:
    """What can be said of one metric. ``rejected``, ``alpha``: of its (Holm-corrected) test.

    At threshold 0 the test alone decides, and ``~`` only says that it found nothing.
    """
    contrast = effect.contrast
    if contrast is None:
        return EXPLORATORY if effect.why == ONE_SEED else INCONCLUSIVE
    if min(contrast.sizes) < question.seeds:
        return EXPLORATORY
    bar, mean = effect.bar(question.threshold), contrast.mean
    low, high = contrast.interval(alpha)
    if rejected and not low <= 0 <= high and abs(mean) > bar:
        return _word(better(effect.name), mean)
    equal = max(-low, high) <= bar
    return SAME if question.threshold == 0 or equal or contrast.detectable(alpha) <= bar else INCONCLUSIVE


def _word(direction: int, mean: float) -> str:
    if direction == 0:
        return HIGHER if mean > 0 else LOWER
    return BETTER if mean * direction > 0 else WORSE


def row(effect: Effect, rejected: bool, alpha: float, question: Question) -> dict[str, Any]:
    """One metric as plain data: both sides, the effect with its interval, verdict and seeds needed."""
    found: dict[str, Any] = {
        "name": effect.name,
        "gated": effect.name in question.gates,
        "better": {1: HIGHER, -1: LOWER, 0: None}[better(effect.name)],
        "base": effect.base._asdict(),
        "new": effect.new._asdict(),
        "scale": effect.scale,
        "verdict": verdict(effect, rejected, alpha, question),
        "why": effect.why,
    }
    contrast = effect.contrast
    if contrast is None:
        return found | {"effect": None, "low": None, "high": None, "seeds_needed": None}
    low, high = contrast.interval(alpha)
    bar = effect.bar(question.threshold)
    return found | {
        "bar": effect.shown(bar),
        "effect": effect.shown(contrast.mean),
        "low": effect.shown(low),
        "high": effect.shown(high),
        "level": 1 - alpha,
        "p": contrast.p(),
        "sign_p": effect.signs,
        "detectable": effect.shown(contrast.detectable(alpha)),
        "seeds_needed": contrast.seeds_for(bar, alpha, question.seeds),
    }


def judge(effects: Sequence[Effect], question: Question) -> list[dict[str, Any]]:
    """A row per effect; Holm over the gated ones, the others each at 95 % (not corrected: no gates)."""
    gated = [e for e in effects if e.name in question.gates]
    tests = dict(zip((e.name for e in gated), holm([e.p() for e in gated]), strict=True))
    return [row(e, *tests.get(e.name, (e.p() < ALPHA, ALPHA)), question) for e in effects]


EXITS = {
    "no worse": Exit.OK,
    WORSE: Exit.REGRESSION,
    INCONCLUSIVE: Exit.INCONCLUSIVE,
    EXPLORATORY: Exit.INCONCLUSIVE,
}


def overall(rows: Sequence[Mapping[str, Any]]) -> str:
    """The gate: the worst of the gated verdicts, as a key of ``EXITS``."""
    verdicts = {r["verdict"] for r in rows if r["gated"]}
    return next((v for v in (WORSE, EXPLORATORY, INCONCLUSIVE) if v in verdicts), "no worse")
