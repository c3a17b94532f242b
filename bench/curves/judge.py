"""From points to claims: each gets two verdicts, transient at H and sustained."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from bench.curves.crossing import Crossing, ratio
from bench.curves.grading import NOT_TESTABLE, better, near, of_all, verdict
from bench.curves.points import Bracket, Point, sustainable
from bench.curves.spec import Claim, Load
from bench.curves.study import Study
from bench.stats import Estimate

NOTHING = Estimate(math.nan, note="not run at this scale")
SUSTAINED = "sustained.mean_of_ratios"


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
    lasting = {w.name: _sustained(study, claim, w) for w in loads}
    others = [f"{w.label} {_text(other)}" for w, other, _ in tried if w is not load]
    at = f"at {study.deciding(load):.3g} s/token" if claim.kind == "rate" else ""
    held = f"sustained {_text(lasting[load.name][0])}" if claim.kind == "rate" else ""
    transient = [(other, count) for _, other, count in tried] if claim.everywhere else [(got, seeds)]
    sustained = list(lasting.values()) if claim.everywhere else [lasting[load.name]]
    return row | {
        "workload": load.label, "got": got.value, "low": got.low, "high": got.high, "seeds": seeds,
        "transient": NOT_TESTABLE if claim.kind == "sustains" else _words(claim, transient),
        "sustained": _words(claim, sustained), "note": _joined(claim.note, at, held, *others),
    }  # fmt: skip


def _words(claim: Claim, found: Sequence[tuple[Estimate, int]]) -> str:
    """The word of the best workload, or of all of them for a range that is claimed of all."""
    return of_all([_word(claim, estimate, seeds) for estimate, seeds in found])


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
    return (near if claim.kind == "sustains" else verdict)(found, *claim.span, seeds)


# Transient at H


def _transient(study: Study, claim: Claim, load: Load) -> tuple[Estimate, int]:
    """(value, seeds) at the scale's horizon."""
    if claim.kind == "sustains":
        return _sustained(study, claim, load)
    if claim.kind == "faster":
        return latency_ratio(study, load, claim.better, claim.base)
    return rate_ratio(study, load, claim.better, claim.base)


def rate_ratio(study: Study, load: Load, better: str, base: str) -> tuple[Estimate, int]:
    """Rates at the deciding latency, paired over seeds; a curve that never crosses it leaves a bound."""
    if not study.curve(load, better, study.curves.metric) or not study.curve(load, base, study.curves.metric):
        return NOTHING, 0
    one, other = (study.settled(load, s) for s in (better, base))
    if not (one.closed and other.closed):
        return _bound(one, other), 1
    rates = [study.rates_by_seed(load, s) for s in (better, base)]
    return ratio(rates[0], rates[1]), len(rates[0].keys() & rates[1].keys())


def _bound(one: Crossing, other: Crossing) -> Estimate:
    """What two brackets say of the ratio of rates if one of them has an open end."""
    low = one.low / other.high if other.high < math.inf else 0.0
    high = one.high / other.low if other.low > 0 else math.inf
    if low == 0.0 and high == math.inf:
        return Estimate(math.nan, note="a latency that is not crossed on either side")
    note = "a bound: one of the curves does not cross the latency at any rate that was run"
    return Estimate(low if high == math.inf else high, low, high, "brackets of rates", note)


def latency_ratio(study: Study, load: Load, better: str, base: str) -> tuple[Estimate, int]:
    """Latency of ``base`` over that of ``better`` at the subject's deciding rate, paired over seeds."""
    rate = study.deciding_rate(load)
    values = [
        {p.seed: p.value(study.curves.metric) for p in study.points
         if (p.load, p.system, p.rate) == (load.name, system, rate)}
        for system in (base, better)
    ]  # fmt: skip
    common = values[0].keys() & values[1].keys()
    return (ratio(values[0], values[1]), len(common)) if common else (NOTHING, 0)


# Sustained


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
