"""Each kind of claim against what one panel measured, paired over seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from bench.curves.crossing import ratio
from bench.loops.quantities import QUANTITIES
from bench.loops.spec import Claim, Panel, Place
from bench.loops.study import Study
from bench.loops.words import NOT_REPRODUCED, PARTLY, REPRODUCED, beyond, mean_of, of_ratio, of_sign
from bench.stats import Estimate, t_interval

PREDICTED = "predicted"
UNKNOWN = ""
"""The word of a finding without a value."""
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


def text(found: Estimate) -> str:
    """A value with its interval."""
    if math.isnan(found.value):
        return found.note or "unknown"
    return f"{found.value:.3g}" + ("" if math.isnan(found.low) else f" [{found.low:.3g}, {found.high:.3g}]")


def paired(study: Study, panel: Panel, claim: Claim, place: Place) -> Estimate:
    """``top`` over ``bottom`` at a place, paired over seeds."""
    top, bottom = (
        study.values(panel.name, system, place, claim.quantity) for system in (claim.top, claim.bottom)
    )
    return _over(top, bottom)


def _over(top: Mapping[int, float], bottom: Mapping[int, float]) -> Estimate:
    return ratio(top, bottom) if top.keys() & bottom.keys() else Estimate(math.nan, note="not run")


def _nothing(why: str, seeds: int = 0) -> Finding:
    return Finding(Estimate(math.nan, note=why), UNKNOWN, seeds)


def best(
    study: Study, panel: Panel, claim: Claim, places: Sequence[Place]
) -> tuple[Estimate, Place, list[Place]]:
    """The largest paired ratio of several places ("up to"), where, and places without a value."""
    found = [(paired(study, panel, claim, place), place) for place in places]
    known = [item for item in found if not math.isnan(item[0].value)]
    lacking = [place for one, place in found if math.isnan(one.value)]
    return *(max(known, key=lambda item: item[0].value) if known else found[0]), lacking


def _seeds(study: Study, panel: Panel) -> int:
    return len({row.seed for row in study.rows if row.panel == panel.name and not row.varied})


def _side(claim: Claim) -> int:
    return 1 if claim.direction == "up" else -1


def _ratio(study: Study, claim: Claim, panel: Panel, places: Sequence[Place]) -> Finding:
    got, place, lacking = best(study, panel, claim, places)
    seeds = _seeds(study, panel)
    notes = [f"at {place:g}"] if len(places) > 1 else []
    notes += [f"no value at {', '.join(f'{p:g}' for p in lacking)}"] if lacking and len(places) > 1 else []
    return Finding(got, of_ratio(got, *claim.span, seeds), seeds, ", ".join(notes))


def _order(study: Study, claim: Claim, panel: Panel, places: Sequence[Place]) -> Finding:
    """Each system above the next at every place; what is shown is the closest pair."""
    pairs = []
    for place in places:
        for one, other in pairwise(claim.systems):
            values = (study.values(panel.name, s, place, claim.quantity) for s in (one, other))
            pairs.append((_over(*values), f"{one} / {other} at {place:g}"))
    return _above(pairs, _seeds(study, panel))


def _above(pairs: Sequence[tuple[Estimate, str]], seeds: int) -> Finding:
    """Ratios that are all to lie above 1."""
    if unknown := [note for one, note in pairs if math.isnan(one.value)]:
        return _nothing(f"no value of {unknown[0]}")
    got, note = min(pairs, key=lambda item: item[0].value)
    return Finding(got, of_sign([one for one, _ in pairs], 1, seeds), seeds, f"closest: {note}")


def along(study: Study, panel: Panel, claim: Claim, places: Sequence[Place]) -> list[Estimate]:
    """The claim's system at each place over itself at the place before, paired over seeds."""
    curves = [study.values(panel.name, claim.top, place, claim.quantity) for place in places]
    return [_over(after, before) for before, after in pairwise(curves)]


def _monotone(study: Study, claim: Claim, panel: Panel, places: Sequence[Place]) -> Finding:
    """Rises (falls) from the first place to the last; "partly" if it does so, but not at every step."""
    if len(places) < 2:
        return _nothing("one place has no shape")
    steps = along(study, panel, claim, places)
    if any(math.isnan(s.value) for s in steps):
        return _nothing("no value at a place")
    whole = along(study, panel, claim, [places[0], places[-1]])[0]
    side = _side(claim)
    each = all(s.value > 1 - SLACK if side > 0 else s.value < 1 + SLACK for s in steps)
    ends = beyond(whole, side)
    word = REPRODUCED if ends and each else PARTLY if ends else NOT_REPRODUCED
    return Finding(whole, word, _seeds(study, panel), f"{places[-1]:g} over {places[0]:g}")


def _growth(study: Study, claim: Claim, panel: Panel, places: Sequence[Place]) -> Finding:
    """The claim's system at the last place over itself at the first, against the stated factor."""
    if len(places) < 2:
        return _nothing("one place has no growth")
    got, seeds = along(study, panel, claim, [places[0], places[-1]])[0], _seeds(study, panel)
    return Finding(got, of_ratio(got, *claim.span, seeds), seeds, f"{places[-1]:g} over {places[0]:g}")


def _effect(study: Study, claim: Claim, panel: Panel, places: Sequence[Place]) -> Finding:
    """A factor's main effect: systems that have it over those that differ in nothing else, all corners."""
    logs: dict[int, list[float]] = {}
    for on, off in corners(study, panel, claim.factor):
        for place in places:
            with_it, without = (study.values(panel.name, s, place, claim.quantity) for s in (on, off))
            for seed in sorted(with_it.keys() & without.keys()):
                if not (with_it[seed] > 0 and without[seed] > 0):
                    return _nothing(f"no value above 0 of {on} or {off} at {place:g} for seed {seed}")
                logs.setdefault(seed, []).append(math.log(with_it[seed] / without[seed]))
    if not logs:
        return _nothing(f"no pair of systems differs in {claim.factor}")
    mean = t_interval([sum(values) / len(values) for _, values in sorted(logs.items())])
    value, low, high = (math.exp(v) for v in mean[:3])
    got = Estimate(value, low, high, mean.method, mean.note)
    word = of_sign([got], _side(claim), len(logs), claim.expected)
    return Finding(got, word, len(logs))


def corners(study: Study, panel: Panel, factor: str) -> list[tuple[str, str]]:
    """Pairs of systems that differ in one factor only: (on, off)."""
    there = [study.loop.system(s) for s in panel.systems if (panel.name, s) not in study.missing]
    rest = [{k: v for k, v in s.levels.items() if k != factor} for s in there]
    on = [i for i, s in enumerate(there) if s.levels.get(factor) == "on"]
    off = [i for i, s in enumerate(there) if s.levels.get(factor) == "off"]
    return [(there[i].name, there[j].name) for i in on for j in off if rest[i] == rest[j]]


def _peak(study: Study, claim: Claim, panel: Panel, places: Sequence[Place]) -> Finding:
    """The best place in the stated span above each place outside of it; shown: where the largest mean is."""
    curves = {p: study.values(panel.name, claim.top, p, claim.quantity) for p in places}
    means = {p: mean_of(curve) for p, curve in curves.items()}
    low, high = claim.span
    meant = [p for p in places if low <= p <= high]
    if any(math.isnan(m.value) for m in means.values()) or len(places) < 3 or not meant:
        return _nothing("a peak needs three places with values, one of them in its span")
    top, here = (max(of, key=lambda p: means[p].value) for of in (places, meant))
    pairs = [(_over(curves[here], curves[p]), f"{here:g} / {p:g}") for p in places if p not in meant]
    found = _above(pairs, _seeds(study, panel))
    if found.word == UNKNOWN:
        return found
    return found._replace(got=Estimate(top), note=f"{text(means[top])} there; {found.note} {text(found.got)}")


def _within(got: Estimate, claim: Claim) -> str:
    """Whether an interval meets the stated span within the tolerance."""
    low, high = claim.span
    bottom = got.value if math.isnan(got.low) else got.low
    top = got.value if math.isnan(got.high) else got.high
    meets = bottom <= high + claim.tolerance and top >= low - claim.tolerance
    inside = low - claim.tolerance <= got.value <= high + claim.tolerance
    return REPRODUCED if inside else PARTLY if meets else NOT_REPRODUCED


def _level(study: Study, claim: Claim, panel: Panel, places: Sequence[Place]) -> Finding:
    """The mean at the place worst for the claim."""
    means = [mean_of(study.values(panel.name, claim.top, p, claim.quantity)) for p in places]
    if unknown := [m.note for m in means if math.isnan(m.value)]:
        return _nothing(unknown[0])
    middle = sum(claim.span) / 2
    got, place = max(zip(means, places, strict=True), key=lambda item: abs(item[0].value - middle))
    return Finding(got, _within(got, claim), _seeds(study, panel), f"at {place:g}")


def _same(study: Study, claim: Claim, panel: Panel, places: Sequence[Place]) -> Finding:
    """A control: the interval of the ratio inside 1 +- tolerance everywhere; "partly": only the mean is."""
    found = [(paired(study, panel, claim, place), place) for place in places]
    if any(math.isnan(one.value) for one, _ in found):
        return _nothing("no value at a place")
    got, place = max(found, key=lambda item: abs(math.log(item[0].value)))
    low, high = 1 - claim.tolerance, 1 + claim.tolerance
    sure = all(low <= o.low and o.high <= high for o, _ in found)
    word = REPRODUCED if sure else PARTLY if low <= got.value <= high else NOT_REPRODUCED
    return Finding(got, word, _seeds(study, panel), f"furthest from 1 at {place:g}")


def _curve(study: Study, claim: Claim, panel: Panel, places: Sequence[Place]) -> Finding:
    """The quantity where another one has a value, by each seed's curve, straight between places."""
    xs = [study.values(panel.name, claim.top, p, claim.x) for p in places]
    ys = [study.values(panel.name, claim.top, p, claim.quantity) for p in places]
    seeds = sorted(set.intersection(*(set(x) for x in xs))) if xs else []
    read = {s: interpolated([x[s] for x in xs], [y[s] for y in ys], claim.x_value) for s in seeds}
    if not read or any(math.isnan(v) for v in read.values()):
        return _nothing(f"{QUANTITIES[claim.x]} never is {claim.x_value:g} on some seed", len(seeds))
    got = mean_of(read)
    return Finding(got, _within(got, claim), len(seeds), "between the places run")


def interpolated(xs: Sequence[float], ys: Sequence[float], at: float) -> float:
    """y at x = ``at``, straight between the points in order of x; NaN outside them."""
    points = sorted((x, y) for x, y in zip(xs, ys, strict=True) if math.isfinite(x) and math.isfinite(y))
    if not points or not points[0][0] <= at <= points[-1][0]:
        return math.nan
    return float(np.interp(at, [x for x, _ in points], [y for _, y in points]))


def _prediction(study: Study, claim: Claim, panel: Panel, places: Sequence[Place]) -> Finding:
    """The ratio with its interval, and which assumption, changed as stated, moves it most."""
    got, place, _ = best(study, panel, claim, places)
    moved = moves(study, panel, claim, place)
    most = max(moved, key=lambda m: abs(math.log(moved[m].value)), default="")
    said = "no assumption was varied"
    if most:
        by = moved[most]
        unsure = "" if beyond(by, 1) or beyond(by, -1) else ", not told from 1"
        said = f"moved most by {most}: {got.value * by.value:.3g} (x{text(by)} on the same seeds{unsure})"
    return Finding(got, PREDICTED, _seeds(study, panel), f"at {place:g}; assumed: {panel.assumed}", said)


def moves(study: Study, panel: Panel, claim: Claim, place: Place) -> dict[str, Estimate]:
    """Assumption -> what changing it multiplies the ratio with, paired: the same seeds with and without."""
    plain = _ratios(study, panel, claim, place)
    found = {
        a.name: _over(_ratios(study, panel, claim, place, a.name), plain) for a in study.loop.assumptions
    }
    return {name: by for name, by in found.items() if not math.isnan(by.value)}


def _ratios(study: Study, panel: Panel, claim: Claim, place: Place, varied: str = "") -> dict[int, float]:
    """{seed: ``top`` over ``bottom``}."""
    top, bottom = (
        study.values(panel.name, system, place, claim.quantity, varied)
        for system in (claim.top, claim.bottom)
    )
    return {s: top[s] / bottom[s] if bottom[s] else math.nan for s in sorted(top.keys() & bottom.keys())}


KINDS: Mapping[str, Callable[[Study, Claim, Panel, Sequence[Place]], Finding]] = {
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
"""Kind -> how it is judged at some places of a panel. A finding without a value has the word UNKNOWN."""
PAIRED = frozenset({"ratio", "growth", "effect", "order", "monotone", "same"})
"""Kinds whose words need the interval of a ratio: one seed says nothing."""
