"""An experiment of kind ``curves`` as data: workloads x systems over arrival rates, and its claims.

The TOML file is the pre-registration: rates, seeds, latencies, claims and their
tolerance stand there before a run. ``bench/experiments/autellix/fig12.toml`` is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from bench.errors import UsageError, unknown

T = TypeVar("T")


@dataclass(frozen=True)
class Scale:
    """How much is run. ``horizon`` and ``horizons``: seconds of arrivals; then everything drains.

    ``scan_seeds`` seeds at every rate, ``seeds`` at the deciding points (from the same first
    seed on). ``tolerance``: the bracket of the deciding crossing (``every_level``: of every one) is
    narrowed to this ratio of rates, in at most ``rounds`` rounds. ``ticks``: the paper's axis
    ticks are swept, too.
    """

    cost: str
    horizon: float
    models: tuple[str, ...]
    multiples: tuple[float, ...]
    scan_seeds: int = 1
    seeds: int = 8
    ticks: bool = False
    tolerance: float = 1.1
    every_level: bool = False
    rounds: int = 4
    horizons: tuple[float, ...] = ()
    sensitivity_horizon: float = 0.0
    sensitivity_seeds: int = 1
    sensitivity_workloads: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()


@dataclass(frozen=True)
class Load:
    """A workload of the experiment.

    ``saturation``: model -> programs/s at which the reference system saturates on the experiment's
    GPU, MODEL/GPU -> on another; ``slow``: system -> its own, as a share of that; ``most``: no rate
    above this multiple of the saturation is tried; ``ticks``: model -> the paper's axis.
    """

    name: str
    workload: str
    label: str
    saturation: Mapping[str, float]
    slow: Mapping[str, float] = field(default_factory=dict)
    most: float = 2.0
    ticks: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    note: str = ""


KINDS = ("rate", "faster", "sustains")


@dataclass(frozen=True)
class Claim:
    """What is claimed, at most over ``workloads`` (names). ``source``: paper or note.

    ``kind`` rate: ``better`` takes ``expected`` (to ``expected_high``) times the rate of ``base``
    at equal latency. faster: at the subject's deciding rate ``better`` has a lower latency than
    ``base``, by any factor. sustains: ``better`` sustains ``expected`` programs/s.
    """

    id: str
    source: str
    statement: str
    workloads: tuple[str, ...]
    better: str
    base: str = ""
    kind: str = "rate"
    expected: float = 1.0
    expected_high: float = 0.0
    note: str = ""

    @property
    def span(self) -> tuple[float, float]:
        """Lowest and highest value that the claim states."""
        return self.expected, max(self.expected, self.expected_high)

    @property
    def everywhere(self) -> bool:
        """A range claimed of several workloads must hold in each; "up to" R in the best one."""
        return self.expected_high > self.expected and len(self.workloads) > 1

    @property
    def stated(self) -> str:
        """The stated value in words."""
        low, high = self.span
        if self.kind == "faster":
            return "> 1x"
        return f"{low:g}" + (f"-{high:g}" if high > low else "") + ("/s" if self.kind == "sustains" else "x")


@dataclass(frozen=True)
class Variation:
    """One constant changed: knobs on top of a system's own, for ``systems`` (names)."""

    name: str
    value: str
    systems: tuple[str, ...]
    knobs: Mapping[str, str]
    default: bool = False


@dataclass(frozen=True)
class Curves:
    """The experiment. ``systems``: catalog names; ``reference`` is the one whose saturation sets the
    rates, ``subject`` the one under test; ``beside`` run at the subject's deciding rate only.
    ``latencies``: s/token at which rates are compared, and ``levels``: multiples of the reference's latency
    at its lowest rate; ``metric``: flat name of that latency."""

    name: str
    title: str
    source: str
    gpu: str
    metric: str
    reference: str
    subject: str
    systems: tuple[str, ...]
    beside: tuple[str, ...]
    latencies: tuple[float, ...]
    levels: tuple[float, ...]
    scales: Mapping[str, Scale]
    workloads: tuple[Load, ...]
    claims: tuple[Claim, ...]
    sensitivity: tuple[Variation, ...] = ()
    findings: str = ""
    robustness: str = ""
    """Where verdicts were last varied, and what of them."""

    def scale(self, name: str) -> Scale:
        """A scale by name. Raises UsageError."""
        if name not in self.scales:
            raise unknown("scale", name, self.scales)
        return self.scales[name]

    def loads(self, scale: Scale) -> list[Load]:
        """The workloads a scale runs."""
        return [w for w in self.workloads if not scale.workloads or w.name in scale.workloads]


def parse(data: Mapping[str, Any], path: Path) -> Curves:
    """The experiment in a TOML file's data. Raises UsageError naming file and field."""
    rest = {k: v for k, v in data.items() if k != "kind"}
    rest["scales"] = {k: build(Scale, v, path, f"scales.{k}") for k, v in data.get("scales", {}).items()}
    for key, kind in (("workloads", Load), ("claims", Claim), ("sensitivity", Variation)):
        rest[key] = [build(kind, v, path, f"{key}[{i}]") for i, v in enumerate(data.get(key, []))]
    curves = build(Curves, rest, path, "")
    _check(curves, path)
    return curves


def build(kind: type[T], data: Mapping[str, Any], path: Path, place: str) -> T:
    """A dataclass from a table of a TOML file, lists as tuples. Raises UsageError naming file and field."""
    known = {f.name: f for f in fields(kind)}  # type: ignore[arg-type]
    where = f"{path.name}: {place + ': ' if place else ''}"
    for name in data:
        if name not in known:
            raise UsageError(f"{where}{unknown('field', name, known)}")
    for name, one in known.items():
        required = one.default is MISSING and one.default_factory is MISSING
        if required and name not in data:
            raise UsageError(f"{where}{name} is missing")
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in data.items()})


def _check(curves: Curves, path: Path) -> None:
    names = {w.name for w in curves.workloads}
    systems = {*curves.systems, *curves.beside}
    lists = (curves.latencies, curves.levels, curves.systems, curves.beside)
    if not all(isinstance(value, tuple) for value in lists) or not curves.latencies:
        raise UsageError(f"{path.name}: latencies, levels, systems and beside must be lists")
    used = [(f"claim {c.id}", s) for c in curves.claims for s in (c.better, c.base) if s]
    used += [(f"sensitivity {v.name} {v.value}", s) for v in curves.sensitivity for s in v.systems]
    used += [(f"workload {w.name}: slow", s) for w in curves.workloads for s in w.slow]
    for place, system in used:
        if system not in systems:
            raise UsageError(f"{path.name}: {place}: {unknown('system', system, systems)}")
    for scale, one in curves.scales.items():
        for word in (*one.workloads, *one.sensitivity_workloads):
            if word not in names:
                raise UsageError(f"{path.name}: scales.{scale}: {unknown('workload', word, names)}")
    for claim in curves.claims:
        for word in claim.workloads:
            if word not in names:
                raise UsageError(f"{path.name}: claim {claim.id}: {unknown('workload', word, names)}")
        if claim.kind not in KINDS:
            raise UsageError(f"{path.name}: claim {claim.id}: {unknown('kind', claim.kind, KINDS)}")
    for role in (curves.reference, curves.subject):
        if role not in curves.systems:
            raise UsageError(f"{path.name}: {role} is not among the systems {', '.join(curves.systems)}")
