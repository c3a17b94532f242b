"""What was varied, as rows and words: the sensitivity of a result, and the verdicts of a comparison."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from reports.numbers import MISSING

NOTHING = "n/a"
"""How the reason of a variation begins that changes nothing."""
SHORT = {
    "program.response.mean": "mean response",
    "program.response.p95": "p95 response",
    "program.s_per_token.mean_of_ratios": "s/token, mean of ratios",
    "program.s_per_token.ratio_of_means": "s/token, ratio of means",
}
"""Headline metrics in words."""


def spread(found: Mapping[str, Any]) -> list[str]:
    """Over all variations: how far each headline number moves, and by which part most."""
    texts = []
    for name in found["metrics"]:
        moved = [
            (row["effects"][name]["ratio"], row["part"])
            for row in found["rows"]
            if row["effects"] and row["effects"][name]["ratio"] is not None
        ]
        if moved:
            most = max(moved, key=lambda one: abs(math.log(one[0])))[1]
            texts.append(f"{SHORT.get(name, name)} x{min(moved)[0]:.3f}..x{max(moved)[0]:.3f} ({most} most)")
    return texts or ["no variation could be compared (bench card)"]


def columns(found: Mapping[str, Any]) -> list[str]:
    """Header of the sensitivity table."""
    return ["varied", *(SHORT.get(name, name) for name in found["metrics"])]


def grid(found: Mapping[str, Any]) -> list[list[str]]:
    """A row per variation: the ratio of each metric to the result as it is."""

    def cells(row: Mapping[str, Any]) -> list[str]:
        if row["why"]:
            return [absent(row["why"])] * len(found["metrics"])
        return [ratio(row["effects"][name]) for name in found["metrics"]]

    return [[row["name"], *cells(row)] for row in found["rows"]]


def absent(why: str) -> str:
    """What stands for a number that a variation does not have."""
    return NOTHING if why.startswith(NOTHING) else MISSING


def gaps(found: Mapping[str, Any]) -> list[str]:
    """Why numbers are missing, each reason once."""
    reasons: dict[str, list[str]] = {}
    for row in found["rows"]:
        if row["why"]:
            reasons.setdefault(row["why"], []).append(row["name"])
        for effect in row["effects"].values() if not row["why"] else ():
            if effect["ratio"] is None:
                reasons.setdefault(effect["why"], [])
    return [f"{', '.join(names)}: {why}" if names else why for why, names in reasons.items()]


def ratio(effect: Mapping[str, Any]) -> str:
    """A ratio over its interval; a dash where there is none."""
    if effect["ratio"] is None:
        return MISSING
    if effect["low"] is None:
        return f"{effect['ratio']:.3f}"
    return f"{effect['ratio']:.3f}\n[{effect['low']:.3f}, {effect['high']:.3f}]"


def caption(found: Mapping[str, Any]) -> str:
    """What the ratios are, and why some are missing."""
    seeds = len(found["seeds"])
    over = (
        f"95 % t intervals over {seeds} paired seeds, each on its own"
        if seeds > 1
        else "one seed, no interval"
    )
    whole = f"one part at a time, same programs: ratio to the result as it is; {over}"
    return ". ".join([whole, *gaps(found)])


def versus(found: Mapping[str, Any]) -> str:
    """Which comparison."""
    base, new = found["base"], found["new"]
    return f"{new['system']} against {base['system']} on {new['workload']}, {new['load']}"


def lasting(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The overall verdict and each gated one: whether it survives, else under what it changes."""
    pairs = [("overall", survives(found["overall"], found))]
    return pairs + [(name, survives(one, found)) for name, one in found["metrics"].items()]


def survives(one: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """``worse: survives: no: prefill x 0.85 -> ~``."""
    text = f"{one['verdict']}; survives: {one['survives']}"
    if one["survives"] == "n/a":
        text += " (no verdict to survive)" if found["tested"] else " (nothing could be varied)"
    if one["changed"]:
        text += ": " + ", ".join(f"{name} -> {word}" for name, word in one["changed"].items())
    elif one["survives"] == "yes":
        text += f" ({found['tested']} variations)"
    return text + (f"; not tested: {', '.join(found['failed'])}" if found["failed"] else "")


def under(found: Mapping[str, Any]) -> list[list[str]]:
    """A row per variation: the outcome, and per gated metric effect and verdict; a dash for none."""
    whole = []
    for row in found["rows"]:
        told = row["metrics"]
        none = absent(row["why"])
        cells = [f"{_effect(told[n])} {told[n]['verdict']}" if told else none for n in found["metrics"]]
        whole.append([row["name"], row["outcome"] or none, *cells])
    return whole


def _effect(one: Mapping[str, Any]) -> str:
    if one["effect"] is None:
        return MISSING
    show = "{:.3f}" if one["scale"] == "ratio" else "{:+.3g}"
    return show.format(one["effect"])


def tried(found: Mapping[str, Any]) -> str:
    """What the rows of ``under`` are, and why some are empty."""
    what = "one part 15 % off at a time, both sides, same seeds: effect and verdict of each gate"
    return ". ".join([what, *gaps({"rows": [{**row, "effects": {}} for row in found["rows"]]})])
