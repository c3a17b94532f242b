"""From rows to claims: each kind of claim against what was measured, paired over seeds.

Words are those of ``bench.curves.grading``: reproduced, partly, not reproduced, not testable here; fewer
than 8 seeds stand behind "exploratory". A claim about several panels must hold in each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from bench.curves.crossing import ratio
from bench.curves.grading import NOT_TESTABLE, graded, of_all, verdict
from bench.loops.quantities import QUANTITIES
from bench.loops.spec import Claim, Panel, Place
from bench.loops.study import Study
from bench.stats import Estimate, t_interval

PREDICTED = "predicted"
WIDE = 4.0
"""An interval of a ratio that spans more than this factor meets any claim: it tests none."""
SLACK = 0.02
"""A curve that falls by less than this between two places still counts as rising."""


class Finding(NamedTuple):
    """What one panel says of a claim. ``word`` without the mark of few seeds; ``moved``: of a prediction, the
    assumption that moves it most, and whereto."""

    got: Estimate
    word: str
    seeds: int
    note: str = ""
    moved: str = ""


def judge(study: Study) -> list[dict[str, Any]]:
    """A row per claim: what is stated, what was got, the verdict."""
    return [_row(study, claim) for claim in study.loop.claims]


def panels_of(study: Study, claim: Claim) -> list[Panel]:
    """The panels of this scale that a claim is about."""
    return [
        p for p in study.panels
        if (not claim.panels or p.name.partition("|")[0] in claim.panels)
        and all(p.at.get(axis) == value for axis, value in claim.where.items())
    ]  # fmt: skip


def _row(study: Study, claim: Claim) -> dict[str, Any]:
    panels = panels_of(study, claim)
    found = [(panel, _finding(study, claim, panel)) for panel in panels]
    tested = [(panel, f) for panel, f in found if f.word != NOT_TESTABLE]
    row: dict[str, Any] = {
        "id": claim.id, "source": claim.source, "statement": claim.statement,
        "quantity": quantity_of(claim), "expected": stated(claim),
    }  # fmt: skip
    if not tested:
        why = "; ".join(dict.fromkeys(f.note for _, f in found)) or "not run at this scale"
        return row | {
            "workload": panels[0].label if panels else "-", "model": panels[0].model if panels else "-",
            "got": math.nan, "low": math.nan, "high": math.nan, "seeds": 0, "verdict": NOT_TESTABLE,
            "note": _joined(claim.note, why),
        }  # fmt: skip
    panel, worst = min(tested, key=lambda item: _rank(item[1].word))
    others = [f"{p.label}: {text(f.got)}, {f.word}" for p, f in found if p is not panel]
    seeds = min(f.seeds for _, f in tested)
    return row | ({"expected": worst.moved} if worst.moved else {}) | {
        "workload": panel.label, "model": panel.model, "got": worst.got.value, "low": worst.got.low,
        "high": worst.got.high, "seeds": seeds, "verdict": _whole([f.word for _, f in tested], seeds),
        "note": _joined(claim.note, worst.note, *others[:8]),
    }  # fmt: skip


def _whole(words: Sequence[str], seeds: int) -> str:
    word = PREDICTED if set(words) == {PREDICTED} else of_all(words)
    return graded(word, seeds)


def _rank(word: str) -> int:
    order = ("not reproduced", "partly", "reproduced", PREDICTED)
    return order.index(word)


def stated(claim: Claim) -> str:
    """The stated value in words."""
    low, high = claim.span
    if claim.kind == "order":
        return " > ".join(claim.systems)
    if claim.kind == "monotone":
        return "rises" if claim.direction == "up" else "falls"
    if claim.kind == "peak":
        return f"peak at {low:g}" + (f"-{high:g}" if high > low else "")
    if claim.kind == "effect":
        return "above 1" if claim.direction == "up" else "below 1"
    if claim.kind == "same":
        return f"1 within {claim.tolerance:.0%}"
    if claim.kind == "prediction":
        return "-"
    number = f"{low:g}" + (f"-{high:g}" if high > low else "")
    return f"{number} +- {claim.tolerance:g}" if claim.kind in ("level", "curve") else f"{number}x"


def quantity_of(claim: Claim) -> str:
    """What is compared, in words."""
    name = QUANTITIES[claim.quantity]
    if claim.kind in ("ratio", "same", "prediction"):
        return f"{name}: {claim.top} / {claim.bottom}"
    if claim.kind == "curve":
        return f"{name} at {claim.x_value:g} {QUANTITIES[claim.x]}: {claim.top}"
    if claim.kind == "effect":
        return f"{name}: {claim.factor} on / off"
    return f"{name}: {claim.top}" if claim.top else name


def text(found: Estimate) -> str:
    """A value with its interval."""
    if math.isnan(found.value):
        return found.note or "unknown"
    return f"{found.value:.3g}" + ("" if math.isnan(found.low) else f" [{found.low:.3g}, {found.high:.3g}]")


def _joined(*notes: str) -> str:
    return "; ".join(note for note in notes if note)


def _finding(study: Study, claim: Claim, panel: Panel) -> Finding:
    lacking = [study.missing[panel.name, s] for s in _named(claim) if (panel.name, s) in study.missing]
    absent = [s for s in _named(claim) if s not in panel.systems]
    if lacking or absent:
        why = lacking[0] if lacking else f"{absent[0]} is not on panel {panel.label}"
        return Finding(Estimate(math.nan, note=why), NOT_TESTABLE, 0, why)
    places = places_of(claim, panel)
    if not places:
        why = f"{panel.label}: not run at this scale"
        return Finding(Estimate(math.nan, note=why), NOT_TESTABLE, 0, why)
    found = _KINDS[claim.kind](study, claim, panel, places)
    if claim.kind in ("ratio", "growth") and found.got.high > WIDE * found.got.low:
        why = f"{panel.label}: {text(found.got)} on {found.seeds} seeds: too wide to test anything"
        return Finding(found.got, NOT_TESTABLE, found.seeds, why)
    if math.isnan(found.got.value):
        why = f"{panel.label}: {found.got.note or 'no value'}"
        return Finding(found.got, NOT_TESTABLE, found.seeds, why)
    return found


def places_of(claim: Claim, panel: Panel) -> list[Place]:
    """Where on a panel a claim is about."""
    if claim.largest:
        return list(panel.places[-1:])
    return [p for p in claim.places or panel.places if p in panel.places]


def _named(claim: Claim) -> list[str]:
    return [*claim.systems, *filter(None, (claim.top, claim.bottom))]


# Kinds


def paired(study: Study, panel: Panel, claim: Claim, place: Place, varied: str = "") -> Estimate:
    """``top`` over ``bottom`` at a place, paired over seeds."""
    top, bottom = (
        study.values(panel.name, system, place, claim.quantity, varied)
        for system in (claim.top, claim.bottom)
    )
    return ratio(top, bottom) if top and bottom else Estimate(math.nan, note="not run")


def best(study: Study, panel: Panel, claim: Claim, places: Sequence[Place]) -> tuple[Estimate, Place]:
    """The largest paired ratio of several places: "up to"."""
    found = [(paired(study, panel, claim, place), place) for place in places]
    known = [item for item in found if not math.isnan(item[0].value)]
    return max(known, key=lambda item: item[0].value) if known else found[0]


def _seeds(study: Study, panel: Panel) -> int:
    return len({row.seed for row in study.rows if row.panel == panel.name and not row.varied})


def _bare(word: str) -> str:
    return word.removeprefix("exploratory: ")


def _ratio(study: Study, claim: Claim, panel: Panel, places: Sequence[Place]) -> Finding:
    got, place = best(study, panel, claim, places)
    seeds = _seeds(study, panel)
    word = _bare(verdict(got, *claim.span, seeds))
    return Finding(got, word, seeds, f"at {place:g}" if len(places) > 1 else "")


def _order(study: Study, claim: Claim, panel: Panel, places: Sequence[Place]) -> Finding:
    """Each system above the next at every place; what is shown is the closest pair."""
    pairs = []
    for place in places:
        for one, other in pairwise(claim.systems):
            values = (study.values(panel.name, s, place, claim.quantity) for s in (one, other))
            pairs.append((ratio(*values), f"{one} / {other} at {place:g}"))
    got, note = min(pairs, key=lambda item: item[0].value)
    if any(math.isnan(one.value) for one, _ in pairs):
        got = Estimate(math.nan, note="no value of one of the systems")
    clear = all(_above(one, 1.0) for one, _ in pairs)
    word = "reproduced" if clear else "partly" if got.value > 1 else "not reproduced"
    return Finding(got, word, _seeds(study, panel), f"closest: {note}")


def _above(found: Estimate, bound: float) -> bool:
    return (found.value if math.isnan(found.low) else found.low) > bound


def along(study: Study, panel: Panel, claim: Claim, places: Sequence[Place]) -> list[Estimate]:
    """The claim's system at each place over itself at the place before, paired over seeds."""
    curves = [study.values(panel.name, claim.top, place, claim.quantity) for place in places]
    return [ratio(after, before) for before, after in pairwise(curves)]


def _monotone(study: Study, claim: Claim, panel: Panel, places: Sequence[Place]) -> Finding:
    """Rises (falls) from the first place to the last; "partly" if it does so, but not at every step."""
    if len(places) < 2:
        return Finding(Estimate(math.nan, note="one place has no shape"), NOT_TESTABLE, 0)
    steps = along(study, panel, claim, places)
    whole = along(study, panel, claim, [places[0], places[-1]])[0]
    up = claim.direction == "up"
    ends = _above(whole, 1.0) if up else _below(whole, 1.0)
    each = all(s.value > 1 - SLACK if up else s.value < 1 + SLACK for s in steps)
    word = "reproduced" if ends and each else "partly" if ends else "not reproduced"
    return Finding(whole, word, _seeds(study, panel), f"{places[-1]:g} over {places[0]:g}")


def _growth(study: Study, claim: Claim, panel: Panel, places: Sequence[Place]) -> Finding:
    """The claim's system at the last place over itself at the first, against the stated factor."""
    if len(places) < 2:
        return Finding(Estimate(math.nan, note="one place has no growth"), NOT_TESTABLE, 0)
    got, seeds = along(study, panel, claim, [places[0], places[-1]])[0], _seeds(study, panel)
    return Finding(got, _bare(verdict(got, *claim.span, seeds)), seeds, f"{places[-1]:g} over {places[0]:g}")


def _effect(study: Study, claim: Claim, panel: Panel, places: Sequence[Place]) -> Finding:
    """A factor's main effect: systems that have it over those that differ in nothing else, all corners."""
    logs: dict[int, list[float]] = {}
    for on, off in corners(study, panel, claim.factor):
        for place in places:
            pair = [study.values(panel.name, s, place, claim.quantity) for s in (on, off)]
            for seed in pair[0].keys() & pair[1].keys():
                logs.setdefault(seed, []).append(math.log(pair[0][seed] / pair[1][seed]))
    if not logs:
        return Finding(
            Estimate(math.nan, note=f"no pair of systems differs in {claim.factor}"), NOT_TESTABLE, 0
        )
    mean = t_interval([sum(values) / len(values) for _, values in sorted(logs.items())])
    value, low, high = (math.exp(v) for v in mean[:3])
    got = Estimate(value, low, high, mean.method, mean.note)
    holds = _above(got, 1.0) if claim.direction == "up" else _below(got, 1.0)
    sign = got.value > 1 if claim.direction == "up" else got.value < 1
    return Finding(got, "reproduced" if holds else "partly" if sign else "not reproduced", len(logs))


def corners(study: Study, panel: Panel, factor: str) -> list[tuple[str, str]]:
    """Pairs of systems that differ in one factor only: (on, off)."""
    there = [study.loop.system(s) for s in panel.systems if (panel.name, s) not in study.missing]
    rest = [{k: v for k, v in s.levels.items() if k != factor} for s in there]
    on = [i for i, s in enumerate(there) if s.levels.get(factor) == "on"]
    off = [i for i, s in enumerate(there) if s.levels.get(factor) == "off"]
    return [(there[i].name, there[j].name) for i in on for j in off if rest[i] == rest[j]]


def _below(found: Estimate, bound: float) -> bool:
    return (found.value if math.isnan(found.high) else found.high) < bound


def _peak(study: Study, claim: Claim, panel: Panel, places: Sequence[Place]) -> Finding:
    """The largest mean is at a place in the stated span; "partly" if its interval meets another place's."""
    means = [
        t_interval(list(study.values(panel.name, claim.top, p, claim.quantity).values())) for p in places
    ]
    if any(math.isnan(m.value) for m in means) or len(places) < 3:
        return Finding(Estimate(math.nan, note="a peak needs three places with values"), NOT_TESTABLE, 0)
    k = int(np.argmax([m.value for m in means]))
    low, high = claim.span
    meant = [p for p in places if low <= p <= high]
    reach = any(means[k].low <= means[places.index(p)].high for p in meant)
    inside = low <= places[k] <= high
    word = "reproduced" if inside else "partly" if reach else "not reproduced"
    return Finding(Estimate(places[k]), word, _seeds(study, panel), f"{text(means[k])} there")


def _within(got: Estimate, claim: Claim) -> str:
    """Whether an interval meets the stated span within the tolerance."""
    low, high = claim.span
    bottom = got.value if math.isnan(got.low) else got.low
    top = got.value if math.isnan(got.high) else got.high
    meets = bottom <= high + claim.tolerance and top >= low - claim.tolerance
    inside = low - claim.tolerance <= got.value <= high + claim.tolerance
    return "reproduced" if inside else "partly" if meets else "not reproduced"


def _level(study: Study, claim: Claim, panel: Panel, places: Sequence[Place]) -> Finding:
    """The mean at the place worst for the claim."""
    means = [
        t_interval(list(study.values(panel.name, claim.top, p, claim.quantity).values())) for p in places
    ]
    middle = sum(claim.span) / 2
    got, place = max(zip(means, places, strict=True), key=lambda item: abs(item[0].value - middle))
    if any(math.isnan(m.value) for m in means):
        got = next(m for m in means if math.isnan(m.value))
    return Finding(got, _within(got, claim), _seeds(study, panel), f"at {place:g}")


def _same(study: Study, claim: Claim, panel: Panel, places: Sequence[Place]) -> Finding:
    """A control: the interval of the ratio inside 1 +- tolerance everywhere; "partly": only the mean is."""
    found = [(paired(study, panel, claim, place), place) for place in places]
    if any(math.isnan(one.value) for one, _ in found):
        return Finding(Estimate(math.nan, note="no value at a place"), NOT_TESTABLE, 0)
    got, place = max(found, key=lambda item: abs(math.log(item[0].value)))
    low, high = 1 - claim.tolerance, 1 + claim.tolerance
    sure = all(low <= _end(o.low, o) and _end(o.high, o) <= high for o, _ in found)
    word = "reproduced" if sure else "partly" if low <= got.value <= high else "not reproduced"
    return Finding(got, word, _seeds(study, panel), f"furthest from 1 at {place:g}")


def _end(end: float, found: Estimate) -> float:
    return found.value if math.isnan(end) else end


def _curve(study: Study, claim: Claim, panel: Panel, places: Sequence[Place]) -> Finding:
    """The quantity where another one has a value, by each seed's curve, straight between places."""
    xs = [study.values(panel.name, claim.top, p, claim.x) for p in places]
    ys = [study.values(panel.name, claim.top, p, claim.quantity) for p in places]
    seeds = sorted(set.intersection(*(set(x) for x in xs))) if xs else []
    read = [interpolated([x[s] for x in xs], [y[s] for y in ys], claim.x_value) for s in seeds]
    if not read or any(math.isnan(v) for v in read):
        note = f"{QUANTITIES[claim.x]} never is {claim.x_value:g} on some seed"
        return Finding(Estimate(math.nan, note=note), NOT_TESTABLE, len(seeds))
    got = t_interval(read)
    return Finding(got, _within(got, claim), len(seeds), "between the places run")


def interpolated(xs: Sequence[float], ys: Sequence[float], at: float) -> float:
    """y at x = ``at``, straight between the points in order of x; NaN outside them."""
    points = sorted((x, y) for x, y in zip(xs, ys, strict=True) if math.isfinite(x) and math.isfinite(y))
    if not points or not points[0][0] <= at <= points[-1][0]:
        return math.nan
    return float(np.interp(at, [x for x, _ in points], [y for _, y in points]))


def _prediction(study: Study, claim: Claim, panel: Panel, places: Sequence[Place]) -> Finding:
    """The ratio with its interval, and which assumption, changed as stated, moves it most."""
    got, place = best(study, panel, claim, places)
    moved = moves(study, panel, claim, place)
    most = max(moved, key=lambda m: abs(math.log(moved[m] / got.value)), default="")
    said = f"moved most by {most}: {moved[most]:.3g}" if most else "no assumption was varied"
    return Finding(got, PREDICTED, _seeds(study, panel), f"at {place:g}; assumed: {panel.assumed}", said)


def moves(study: Study, panel: Panel, claim: Claim, place: Place) -> dict[str, float]:
    """Assumption -> the ratio where it is changed (on fewer seeds)."""
    found = {a.name: paired(study, panel, claim, place, a.name).value for a in study.loop.assumptions}
    return {name: value for name, value in found.items() if not math.isnan(value)}


_KINDS: Mapping[str, Callable[[Study, Claim, Panel, Sequence[Place]], Finding]] = {
    "ratio": _ratio,
    "growth": _growth,
    "effect": _effect,
    "order": _order,
    "monotone": _monotone,
    "peak": _peak,
    "level": _level,
    "same": _same,
    "curve": _curve,
    "prediction": _prediction,
}
