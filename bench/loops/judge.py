"""From rows to claims: a row per claim, with the word that its panels have together.

Words are those of ``bench.loops.words``; fewer than 8 seeds stand behind "exploratory". A claim about
several panels must hold in each: its word is the weakest, and where one is missing "partly" at the most.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from bench.curves.grading import NOT_TESTABLE, graded
from bench.loops.kinds import KINDS, PAIRED, PREDICTED, Finding, text
from bench.loops.quantities import QUANTITIES
from bench.loops.spec import Claim, Panel, Place
from bench.loops.study import Study
from bench.loops.window import SHORT
from bench.loops.words import WEAKEST_FIRST, whole
from bench.stats import Estimate

WIDE = 4.0
"""An interval of a ratio that spans more than this factor meets any claim: it tests none."""


def judge(study: Study) -> list[dict[str, Any]]:
    """A row per claim: what is stated, what was got, the verdict."""
    return [_row(study, claim) for claim in study.loop.claims]


def panels_of(study: Study, claim: Claim) -> list[Panel]:
    """The panels of this scale that a claim is about."""
    return _chosen(study.panels, claim)


def _chosen(panels: Sequence[Panel], claim: Claim) -> list[Panel]:
    return [
        p for p in panels
        if (not claim.panels or p.name.partition("|")[0] in claim.panels)
        and all(p.at.get(axis) == value for axis, value in claim.where.items())
    ]  # fmt: skip


def _row(study: Study, claim: Claim) -> dict[str, Any]:
    panels, absent = panels_of(study, claim), absent_panels(study, claim)
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
    lacking = [*absent, *(p.label for p, f in found if f.word == NOT_TESTABLE)]
    seeds = min(f.seeds for _, f in tested)
    return row | ({"expected": worst.moved} if worst.moved else {}) | {
        "workload": panel.label, "model": panel.model, "got": worst.got.value, "low": worst.got.low,
        "high": worst.got.high, "seeds": seeds,
        "verdict": _whole([f.word for _, f in found], seeds, not absent),
        "note": _joined(
            claim.note, *unfit(study, [p for p, _ in tested]),
            f"not tested in {', '.join(lacking)}" if lacking else "", worst.note, *others[:8],
        ),
    }  # fmt: skip


def absent_panels(study: Study, claim: Claim) -> list[str]:
    """Labels of the panels that a claim is about and that this scale does not run."""
    all_of = replace(study.scale, panels=(), crossed=(), sides={}, only={})
    ran = {p.name for p in study.panels}
    return [p.label for p in _chosen(study.loop.chosen(all_of), claim) if p.name not in ran]


def unfit(study: Study, panels: Sequence[Panel]) -> list[str]:
    """What was fitted in vain under a verdict."""
    fits = {p.label: fit for p in panels if (fit := study.fit_of(p)) is not None}
    return [f"step times of {label} are not fitted: {fit}" for label, fit in fits.items() if not fit.reached]


def _whole(words: Sequence[str], seeds: int, complete: bool) -> str:
    tested = [word for word in words if word != NOT_TESTABLE]
    return graded(PREDICTED if set(tested) == {PREDICTED} else whole(words, complete), seeds)


def _rank(word: str) -> int:
    return (*WEAKEST_FIRST, PREDICTED).index(word)


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
    found = KINDS[claim.kind](study, claim, panel, places)
    why = _untested(claim, found)
    if math.isnan(found.got.value) and (short := _cut_short(study, panel, _named(claim))):
        why = f"{why}; window cut short: {', '.join(short[:4])}"
    return Finding(found.got, NOT_TESTABLE, found.seeds, f"{panel.label}: {why}") if why else found


def _cut_short(study: Study, panel: Panel, systems: Sequence[str]) -> list[str]:
    """Where the programs ran out before half of a window: systems and places."""
    rows = [r for r in study.rows if r.panel == panel.name and not r.varied and r.covered < SHORT]
    return sorted({f"{r.system} at {r.place:g}" for r in rows if not systems or r.system in systems})


def _untested(claim: Claim, found: Finding) -> str:
    """Why what was got tests nothing; empty if it tests."""
    got = found.got
    if math.isnan(got.value):
        return got.note or "no value"
    if claim.kind in PAIRED and found.seeds < 2:
        return f"{text(got)} on one seed: no interval"
    if claim.kind in ("ratio", "growth"):
        said = f"{text(got)} on {found.seeds} seeds"
        if got.high > WIDE * got.low:
            return f"{said}: too wide to test anything"
        if found.word == NOT_TESTABLE:
            return f"{said}: cannot tell {stated(claim)} from 1"
    return ""


def places_of(claim: Claim, panel: Panel) -> list[Place]:
    """Where on a panel a claim is about."""
    if claim.largest:
        return list(panel.places[-1:])
    return [p for p in claim.places or panel.places if p in panel.places]


def _named(claim: Claim) -> list[str]:
    return [*claim.systems, *filter(None, (claim.top, claim.bottom))]
