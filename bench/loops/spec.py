"""An experiment of kind ``loop`` as data: systems on panels of closed (or open) loops, and its claims.

The TOML file is the pre-registration: workloads, programs at a time, windows, seeds, claims and their
tolerances stand there before a run. ``bench/experiments/thunderagent/fig4.toml`` is one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product

from bench.errors import unknown

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
    ``without``: systems that do not run at this scale.
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
    without: tuple[str, ...] = ()


@dataclass(frozen=True)
class System:
    """A system under the name that the experiment gives it: a catalog row and knobs on top.

    ``tune``: knob whose best value (steps/min at a panel's largest place) is looked for among ``values``,
    or among ``shares`` of the programs there (open loop: ``in_system``); else its default. ``levels``: factor
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
    ``in_system``: how many programs an open loop keeps in the system, where tuned knobs are shares of them.
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
    in_system: float = 0.0
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
    in_system: float = 0.0
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
        named = [
            replace(p, systems=tuple(s for s in p.systems or everyone if s not in scale.without))
            for p in self.panels
        ]
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
            in_system=value.in_system or made.in_system,
            parameters={**made.parameters, **value.parameters}, knobs={**made.knobs, **value.knobs},
            system_knobs={**made.system_knobs, **knobs},
            warm_up=value.warm_up or made.warm_up, window=value.window or made.window,
        )  # fmt: skip
    names = {axis.name: at[axis.name].name for axis in axes}
    label = ", ".join(f"{name} {value}" for name, value in names.items())
    return replace(made, name=f"{panel.name}|{'|'.join(names.values())}", label=label, at=names)
