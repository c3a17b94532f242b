"""An experiment of kind ``loop`` as data: systems on panels of closed (or open) loops, and its claims.

The TOML file is the pre-registration: workloads, programs at a time, windows, seeds, claims and their
tolerances stand there before a run. ``bench/experiments/thunderagent/fig4.toml`` is one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from bench.curves.spec import build
from bench.errors import UsageError, unknown
from bench.loops.quantities import QUANTITIES

KINDS = ("ratio", "growth", "order", "monotone", "peak", "level", "same", "curve", "effect", "prediction")
Place = float
"""Programs at a time (closed loop), or programs per second (open loop)."""


@dataclass(frozen=True)
class Scale:
    """How much is run. ``warm_up`` and ``window``: virtual seconds before and in what is measured.

    ``seeds`` report; fits and tuning use seeds of their own. ``panels``: only these (none: all). ``crossed``:
    the axes that are crossed at this scale (none: those that say so). ``sides``: axis -> values at which the
    others leave their first value (none: at all); ``only``: axis -> the values it has at this scale.
    ``places``: at most so many of a panel's (its first, its last and those between, evenly; 0: all).
    """

    cost: str
    warm_up: float
    window: float
    seeds: int = 8
    fit_seeds: int = 1
    tune_seeds: int = 2
    assumption_seeds: int = 2
    panels: tuple[str, ...] = ()
    crossed: tuple[str, ...] = ()
    sides: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    only: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    places: int = 0


@dataclass(frozen=True)
class System:
    """A system under the name that the experiment gives it: a catalog row and knobs on top.

    ``tune``: knob whose best value (steps/min at a panel's largest place) is looked for among ``values``,
    or among ``shares`` of the programs at that place; else it has its default everywhere. ``levels``: factor
    -> on or off, where systems are the corners of a factorial. ``prices``: its retention weighs what
    computing KV again costs, and is told it from the panel's own step times.
    """

    name: str
    system: str
    knobs: Mapping[str, str] = field(default_factory=dict)
    tune: str = ""
    values: tuple[float, ...] = ()
    shares: tuple[float, ...] = ()
    levels: Mapping[str, str] = field(default_factory=dict)
    prices: bool = False
    note: str = ""


@dataclass(frozen=True)
class Fit:
    """The one scalar on step times: ``system`` at ``place`` is to reach ``steps_per_min``."""

    system: str
    place: Place
    steps_per_min: float


@dataclass(frozen=True)
class Panel:
    """A workload on engines at several loads: ``n`` programs at a time, or ``rates`` (programs/s).

    ``most``: steps/min that no system exceeds (of the paper's values where it gives some): how many programs
    a window needs; ``programs``: exactly so many instead (fixed work; below 0: one for each place).
    ``shared``: tokens that all its contexts begin with. ``trace``: a folder of recorded sessions, below that
    of traces, in place of ``workload``.
    ``paper``: quantity -> system -> value at each place. ``at``: where a panel made from axes lies on them.
    """

    name: str
    label: str
    workload: str = ""
    trace: str = ""
    model: str = "llama-3.1-8b"
    gpu: str = "h100"
    n: tuple[int, ...] = ()
    rates: tuple[float, ...] = ()
    replicas: int = 1
    systems: tuple[str, ...] = ()
    parameters: Mapping[str, str] = field(default_factory=dict)
    knobs: Mapping[str, str] = field(default_factory=dict)
    system_knobs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    fit: Fit | None = None
    most: float = 0.0
    programs: int = 0
    shared: int = 0
    paper: Mapping[str, Mapping[str, tuple[float, ...]]] = field(default_factory=dict)
    at: Mapping[str, str] = field(default_factory=dict)
    warm_up: float = 0.0
    window: float = 0.0
    assumed: str = ""

    @property
    def places(self) -> tuple[Place, ...]:
        """Programs at a time, or programs per second."""
        return self.rates or tuple(float(n) for n in self.n)

    @property
    def open(self) -> bool:
        """Whether programs arrive by themselves."""
        return bool(self.rates)


@dataclass(frozen=True)
class Value:
    """A value of an axis, and what it changes in a panel."""

    name: str
    n: tuple[int, ...] = ()
    rates: tuple[float, ...] = ()
    parameters: Mapping[str, str] = field(default_factory=dict)
    knobs: Mapping[str, str] = field(default_factory=dict)
    system_knobs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    warm_up: float = 0.0
    window: float = 0.0


@dataclass(frozen=True)
class Axis:
    """An axis of a map. ``crossed``: with all others; else it leaves its first value by itself. The first two
    crossed axes are x and y of the map."""

    name: str
    values: tuple[Value, ...]
    crossed: bool = False


@dataclass(frozen=True)
class Claim:
    """What is claimed (``docs/thunderagent.md`` explains the kinds). ``source``: paper, note or ours.

    ``panels`` (names) or ``where`` (axis -> value): where it is claimed; of several, in each.
    ``places``: at these (``largest``: at each panel's last); a ``ratio`` of several is "up to", the best.
    ``tolerance``: of level and curve absolute, of same relative. ``factor``: of an effect. ``x`` and
    ``x_value``: of a curve, the quantity on its axis and where.
    """

    id: str
    statement: str
    kind: str
    panels: tuple[str, ...] = ()
    where: Mapping[str, str] = field(default_factory=dict)
    source: str = "paper"
    quantity: str = "steps_per_min"
    top: str = ""
    bottom: str = ""
    factor: str = ""
    systems: tuple[str, ...] = ()
    places: tuple[float, ...] = ()
    largest: bool = False
    expected: float = 1.0
    expected_high: float = 0.0
    tolerance: float = 0.0
    direction: str = "up"
    x: str = ""
    x_value: float = 0.0
    note: str = ""

    @property
    def span(self) -> tuple[float, float]:
        """Lowest and highest value that the claim states."""
        return self.expected, max(self.expected, self.expected_high)


@dataclass(frozen=True)
class Assumption:
    """Something a prediction depends on, changed: knobs and parameters on top of a panel's."""

    name: str
    panels: tuple[str, ...] = ()
    parameters: Mapping[str, str] = field(default_factory=dict)
    knobs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Mark:
    """A point of a paper on a map of axes: where it lies, and what is known of it there."""

    label: str
    at: Mapping[str, str]
    note: str = ""


@dataclass(frozen=True)
class Loop:
    """The experiment."""

    name: str
    title: str
    source: str
    scales: Mapping[str, Scale]
    systems: tuple[System, ...]
    panels: tuple[Panel, ...]
    claims: tuple[Claim, ...] = ()
    axes: tuple[Axis, ...] = ()
    assumptions: tuple[Assumption, ...] = ()
    marks: tuple[Mark, ...] = ()
    reference: str = ""
    shown: tuple[str, ...] = ("steps_per_min", "hit")
    """Quantities whose intervals stand in the table of rows."""
    findings: str = ""
    untestable: Mapping[str, str] = field(default_factory=dict)
    """What of the figure is not run here, and why."""

    def scale(self, name: str) -> Scale:
        """A scale by name. Raises UsageError."""
        if name not in self.scales:
            raise unknown("scale", name, self.scales)
        return self.scales[name]

    def system(self, name: str) -> System:
        """A system by its name here."""
        return next(s for s in self.systems if s.name == name)

    def chosen(self, scale: Scale) -> list[Panel]:
        """The panels that a scale runs, axes laid out, each with its systems named."""
        everyone = tuple(s.name for s in self.systems)
        named = [p if p.systems else replace(p, systems=everyone) for p in self.panels]
        some = [p for p in named if not scale.panels or p.name in scale.panels]
        laid = [q for p in some for q in (_laid_out(p, self.axes, scale) if self.axes else [p])]
        return [_thinned(p, scale.places) for p in laid]


def _thinned(panel: Panel, most: int) -> Panel:
    if not most or len(panel.places) <= most:
        return panel
    step = (len(panel.places) - 1) / max(1, most - 1)
    kept = [round(i * step) for i in range(most)] if most > 1 else [len(panel.places) - 1]
    paper = {q: {s: tuple(v[i] for i in kept) for s, v in rows.items()} for q, rows in panel.paper.items()}
    if panel.open:
        return replace(panel, rates=tuple(panel.rates[i] for i in kept), paper=paper)
    return replace(panel, n=tuple(panel.n[i] for i in kept), paper=paper)


def _laid_out(panel: Panel, axes: tuple[Axis, ...], scale: Scale) -> Iterator[Panel]:
    """The panel at each crossing: all crossed axes, the others at their first value but one at a time."""
    axes = tuple(_some(axis, scale) for axis in axes)
    crossed = [a for a in axes if (a.name in scale.crossed if scale.crossed else a.crossed)]
    beside = [a for a in axes if a not in crossed]
    first = {a.name: a.values[0] for a in beside}
    for values in product(*(a.values for a in crossed)):
        at = dict(zip((a.name for a in crossed), values, strict=True))
        yield _at(panel, axes, at | first)
    for axis in beside:
        for value in axis.values[1:]:
            for values in product(*(a.values for a in crossed)):
                at = dict(zip((a.name for a in crossed), values, strict=True))
                if all(v.name in scale.sides.get(a, (v.name,)) for a, v in at.items()):
                    yield _at(panel, axes, at | first | {axis.name: value})


def _some(axis: Axis, scale: Scale) -> Axis:
    """The axis with the values that it has at a scale."""
    names = scale.only.get(axis.name)
    return axis if names is None else replace(axis, values=tuple(v for v in axis.values if v.name in names))


def _at(panel: Panel, axes: tuple[Axis, ...], at: Mapping[str, Value]) -> Panel:
    """The panel with what the values change; later axes win."""
    made = panel
    for axis in axes:
        value = at[axis.name]
        knobs = {s: {**made.system_knobs.get(s, {}), **k} for s, k in value.system_knobs.items()}
        made = replace(
            made, n=() if value.rates else value.n or made.n, rates=value.rates or made.rates,
            parameters={**made.parameters, **value.parameters}, knobs={**made.knobs, **value.knobs},
            system_knobs={**made.system_knobs, **knobs},
            warm_up=value.warm_up or made.warm_up, window=value.window or made.window,
        )  # fmt: skip
    names = {axis.name: at[axis.name].name for axis in axes}
    label = ", ".join(f"{name} {value}" for name, value in names.items())
    return replace(made, name=f"{panel.name}|{'|'.join(names.values())}", label=label, at=names)


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
    import tomllib

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
    for claim in loop.claims:
        _check_claim(claim, loop, systems, panels, path)
    for name, scale in loop.scales.items():
        for word in scale.panels:
            _known(path, f"scales.{name}", "panel", word, panels)
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
