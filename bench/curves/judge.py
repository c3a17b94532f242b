"""From points to claims: each gets two verdicts, transient at H and sustained."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from bench.curves.crossing import ratio
from bench.curves.spec import Claim, Load
from bench.curves.study import Point, Study
from bench.curves.verdicts import NOT_TESTABLE, better, verdict
from bench.stats import Estimate

NOTHING = Estimate(math.nan, note="not run at this scale")
SUSTAINED = "sustained.mean_of_ratios"
KEPT_UP = "sustained.kept_up"


class Bracket(NamedTuple):
    """Highest sustained rate lies in [low, high) (programs/s), found on ``seeds`` seeds."""

    low: float
    high: float
    seeds: int

    @property
    def middle(self) -> float:
        """In logarithms; an end that is open leaves the other one."""
        if self.low <= 0 or self.high == math.inf:
            return self.high if self.low <= 0 else self.low
        return math.sqrt(self.low * self.high)


def judge(study: Study) -> list[dict[str, Any]]:
    """A row per claim: what is stated, what was got here, and the verdicts."""
    return [_row(study, claim) for claim in study.curves.claims]


def _row(study: Study, claim: Claim) -> dict[str, Any]:
    loads = [w for w in study.loads() if w.name in claim.workloads]
    tried = [(load, *_transient(study, claim, load)) for load in loads]
    row: dict[str, Any] = {
        "id": claim.id, "source": claim.source, "model": study.model, "statement": claim.statement,
        "quantity": _quantity(claim), "expected": claim.stated,
    }  # fmt: skip
    found = [item for item in tried if not math.isnan(item[1].value)]
    if not found:
        labels = {w.name: w.label for w in study.curves.workloads}
        why = "; ".join(f"{w.label}: {got.note}" for w, got, _ in tried) or NOTHING.note
        return row | {
            "workload": labels[claim.workloads[0]], "got": math.nan, "low": math.nan, "high": math.nan,
            "seeds": 0, "transient": NOT_TESTABLE, "sustained": NOT_TESTABLE,
            "note": _joined(claim.note, why),
        }  # fmt: skip
    load, got, seeds = max(found, key=lambda item: item[1].value)
    lasting, lasting_seeds = _sustained(study, claim, load)
    others = [f"{w.label} {_text(other)}" for w, other, _ in tried if w is not load]
    at = f"at {study.deciding(load):.3g} s/token" if claim.kind == "rate" else ""
    held = f"sustained {_text(lasting)}" if claim.kind == "rate" else ""
    return row | {
        "workload": load.label, "got": got.value, "low": got.low, "high": got.high, "seeds": seeds,
        "transient": NOT_TESTABLE if claim.kind == "sustains" else _word(claim, got, seeds),
        "sustained": _word(claim, lasting, lasting_seeds), "note": _joined(claim.note, at, held, *others),
    }  # fmt: skip


def _joined(*notes: str) -> str:
    return "; ".join(note for note in notes if note)


def _quantity(claim: Claim) -> str:
    if claim.kind == "sustains":
        return f"{claim.better} sustains"
    if claim.kind == "faster":
        return f"latency of {claim.base} / {claim.better}"
    return f"{claim.better} / {claim.base}"


def _text(found: Estimate) -> str:
    if math.isnan(found.value):
        return f"unknown ({found.note})" if found.note else "unknown"
    if math.isnan(found.low):
        return f"{found.value:.3g}"
    return f"{found.value:.3g} [{found.low:.3g}, {found.high:.3g}]"


def _word(claim: Claim, found: Estimate, seeds: int) -> str:
    if claim.kind == "faster":
        return better(found, seeds)
    return verdict(found, *claim.span, seeds)


# Transient at H


def _transient(study: Study, claim: Claim, load: Load) -> tuple[Estimate, int]:
    """(value, seeds) at the scale's horizon."""
    if claim.kind == "sustains":
        return _sustained(study, claim, load)
    if claim.kind == "faster":
        return latency_ratio(study, load, claim.better, claim.base)
    return rate_ratio(study, load, claim.better, claim.base)


def rate_ratio(study: Study, load: Load, better: str, base: str) -> tuple[Estimate, int]:
    """Rates at the deciding latency, paired over seeds; an open bracket leaves a one-sided ratio."""
    latency = study.deciding(load)
    if not study.curve(load, better, study.curves.metric) or not study.curve(load, base, study.curves.metric):
        return NOTHING, 0
    one, other = (study.crossings(load, s)[latency] for s in (better, base))
    if not (one.closed and other.closed):
        return _open(one.rate, other.rate, one.closed, other.closed), 1
    rates = [study.rates_by_seed(load, s, latency) for s in (better, base)]
    common = sorted(rates[0].keys() & rates[1].keys())
    return ratio(rates[0], rates[1]), len(common)


def _open(one: float, other: float, one_closed: bool, other_closed: bool) -> Estimate:
    """A curve that never crosses gives a bound: ``> x`` where the better one is open above."""
    value = one / other
    if one_closed == other_closed:
        return Estimate(math.nan, note="neither curve crosses the latency")
    low, high = (value, math.inf) if not one_closed else (0.0, value)
    return Estimate(value, low, high, "one-sided: a curve does not cross the latency at any rate run")


def latency_ratio(study: Study, load: Load, better: str, base: str) -> tuple[Estimate, int]:
    """Latency of ``base`` over that of ``better`` at the subject's deciding rate, paired over seeds."""
    rate = study.deciding_rate(load)
    values = [
        {p.seed: p.value(study.curves.metric) for p in study.points
         if (p.load, p.system, p.rate) == (load.name, system, rate)}
        for system in (base, better)
    ]  # fmt: skip
    if not values[0].keys() & values[1].keys():
        return NOTHING, 0
    return ratio(values[0], values[1]), len(values[0].keys() & values[1].keys())


# Sustained


def sustainable(points: Sequence[Point]) -> bool:
    """Whether a rate is sustained: in more than half of its seeds the engines keep up
    (``sustained.kept_up``; unknown counts as no)."""
    return 2 * sum(p.value(KEPT_UP) == 1.0 for p in points) > len(points)


def bracket(study: Study, load: Load, system: str, latency: float = math.inf) -> Bracket:
    """The highest rate that is sustained with a latency (of [.2 H, H]) of at most ``latency``."""
    groups: dict[float, list[Point]] = {}
    for p in study.points:
        if p.load == load.name and p.system == system:
            groups.setdefault(p.rate, []).append(p)
    good = {
        rate: sustainable(points) and sum(p.value(SUSTAINED) for p in points) / len(points) <= latency
        for rate, points in groups.items()
    }
    high = min((r for r, ok in good.items() if not ok), default=math.inf)
    low = max((r for r, ok in good.items() if ok and r < high), default=0.0)
    ends = [len(groups[r]) for r in (low, high) if r in groups]
    return Bracket(low, high, min(ends, default=0))


def _sustained(study: Study, claim: Claim, load: Load) -> tuple[Estimate, int]:
    if claim.kind == "faster":
        return Estimate(math.nan), 0
    latency = study.deciding(load) if claim.kind == "rate" else math.inf
    one = bracket(study, load, claim.better, latency)
    if not one.seeds:
        return NOTHING, 0
    if claim.kind == "sustains":
        return Estimate(one.middle, one.low, one.high, "bracket of rates"), one.seeds
    other = bracket(study, load, claim.base, latency)
    if not other.seeds:
        return NOTHING, 0
    low = one.low / other.high
    high = one.high / other.low if other.low > 0 else math.inf
    value = one.middle / other.middle
    return Estimate(value, low, high, "ratio of brackets of rates"), min(one.seeds, other.seeds)
