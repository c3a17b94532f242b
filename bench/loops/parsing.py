"""An experiment of kind ``loop`` from its TOML file: what is wrong in it is named with file and field."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.curves.spec import build
from bench.errors import UsageError, unknown
from bench.loops.quantities import QUANTITIES
from bench.loops.spec import KINDS, Assumption, Axis, Claim, Fit, Loop, Mark, Panel, Scale, System, Value


def parse(data: Mapping[str, Any], path: Path) -> Loop:
    """The experiment in a TOML file's data. Raises UsageError naming file and field.

    ``panels_of`` = "fig4" takes systems, panels and scales of a neighbouring file where this one has none.
    """
    rest = {k: v for k, v in _with_neighbour(data, path).items() if k != "kind"}
    rest["scales"] = {k: build(Scale, v, path, f"scales.{k}") for k, v in rest.get("scales", {}).items()}
    rest["panels"] = [_panel(v, path, f"panels[{i}]") for i, v in enumerate(rest.get("panels", []))]
    rest["axes"] = [_axis(v, path, f"axes[{i}]") for i, v in enumerate(rest.get("axes", []))]
    for key, kind in (("systems", System), ("claims", Claim), ("assumptions", Assumption), ("marks", Mark)):
        rest[key] = [build(kind, v, path, f"{key}[{i}]") for i, v in enumerate(rest.get(key, []))]
    loop = build(Loop, rest, path, "")
    _check(loop, path)
    return loop


def _with_neighbour(data: Mapping[str, Any], path: Path) -> dict[str, Any]:
    found = dict(data)
    neighbour = found.pop("panels_of", None)
    if neighbour is None:
        return found
    file = path.with_name(f"{neighbour}.toml")
    if not file.is_file():
        raise UsageError(f"{path.name}: panels_of: no experiment {neighbour} beside it")
    theirs = tomllib.loads(file.read_text(encoding="utf-8"))
    taken = {k: theirs[k] for k in ("systems", "panels", "scales", "axes", "reference") if k in theirs}
    return taken | found


def _panel(data: Mapping[str, Any], path: Path, place: str) -> Panel:
    given = dict(data)
    if "fit" in given:
        given["fit"] = build(Fit, given["fit"], path, f"{place}.fit")
    given["paper"] = {q: {s: tuple(v) for s, v in rows.items()} for q, rows in given.get("paper", {}).items()}
    return build(Panel, given, path, place)


def _axis(data: Mapping[str, Any], path: Path, place: str) -> Axis:
    values = [build(Value, v, path, f"{place}.values[{i}]") for i, v in enumerate(data.get("values", []))]
    return build(Axis, {**data, "values": values}, path, place)


def _check(loop: Loop, path: Path) -> None:
    systems, panels = {s.name for s in loop.systems}, {p.name for p in loop.panels}
    for panel in loop.panels:
        _check_panel(panel, systems, path)
    _check_shares(loop, path)
    for claim in loop.claims:
        _check_claim(claim, loop, systems, panels, path)
    for name, scale in loop.scales.items():
        for word in scale.panels:
            _known(path, f"scales.{name}", "panel", word, panels)
        for word in scale.without:
            _known(path, f"scales.{name}", "system", word, systems)
    for assumption in loop.assumptions:
        for word in assumption.panels:
            _known(path, f"assumption {assumption.name}", "panel", word, panels)
    for word in loop.shown:
        _known(path, "shown", "quantity", word, QUANTITIES)
    if loop.reference:
        _known(path, "reference", "system", loop.reference, systems)


def _check_panel(panel: Panel, systems: set[str], path: Path) -> None:
    place = f"panel {panel.name}"
    if bool(panel.workload) == bool(panel.trace):
        raise UsageError(f"{path.name}: {place}: give a workload or a trace")
    if bool(panel.n) == bool(panel.rates):
        raise UsageError(f"{path.name}: {place}: give n (programs at a time) or rates")
    named = [*panel.systems, *panel.system_knobs, *([panel.fit.system] if panel.fit else [])]
    for word in [*named, *(s for rows in panel.paper.values() for s in rows)]:
        _known(path, place, "system", word, systems)
    for quantity, rows in panel.paper.items():
        _known(path, f"{place}.paper", "quantity", quantity, QUANTITIES)
        for system, values in rows.items():
            if len(values) != len(panel.places):
                raise UsageError(f"{path.name}: {place}: {system} has {len(values)} values of {quantity}")


def _check_shares(loop: Loop, path: Path) -> None:
    """Shares of a rate (programs/s) mean nothing: an open loop has to say how many programs it keeps."""
    shared = [s.name for s in loop.systems if s.shares]
    for panel in loop.panels:
        tuned = [s for s in shared if not panel.systems or s in panel.systems]
        opened = [(f"panel {panel.name}", panel.rates, panel.in_system)] + [
            (f"axis {axis.name}, value {v.name}", v.rates, v.in_system or panel.in_system)
            for axis in loop.axes for v in axis.values
        ]  # fmt: skip
        for place, rates, in_system in opened if tuned else ():
            if rates and not in_system > 0:
                raise UsageError(
                    f"{path.name}: {place}: {tuned[0]} is tuned by shares of the programs in the system, and "
                    "with rates nothing says how many there are: give in_system = NUMBER (or values)"
                )


def _check_claim(claim: Claim, loop: Loop, systems: set[str], panels: set[str], path: Path) -> None:
    place = f"claim {claim.id}"
    _known(path, place, "kind", claim.kind, KINDS)
    for word in [*claim.systems, *filter(None, (claim.top, claim.bottom))]:
        _known(path, place, "system", word, systems)
    for word in claim.panels:
        _known(path, place, "panel", word, panels)
    for axis, value in claim.where.items():
        _known(path, place, "axis", axis, [a.name for a in loop.axes])
        values = next(a.values for a in loop.axes if a.name == axis)
        _known(path, place, f"value of {axis}", value, [v.name for v in values])
    for word in filter(None, (claim.quantity, claim.x)):
        _known(path, place, "quantity", word, QUANTITIES)
    if not (claim.panels or claim.where):
        raise UsageError(f"{path.name}: {place}: give panels or where")


def _known(path: Path, place: str, what: str, word: str, known: Any) -> None:
    if word not in known:
        raise UsageError(f"{path.name}: {place}: {unknown(what, word, list(known))}")
