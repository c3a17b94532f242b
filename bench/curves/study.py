"""The runs of a ``curves`` experiment on one model: scan, narrow, decide, vary.

Everything is a cell (a folder addressed by its content), so an interrupted
study goes on where it stopped, and phases share what they have in common.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench.config import DECISIONS, RunConfig
from bench.curves.crossing import Crossing, crossing, next_rate, rate_of_seed
from bench.curves.points import Point, RunCells, neat
from bench.curves.saturation import saturation
from bench.curves.spec import Curves, Load, Scale, Variation
from bench.plan import plan

FIRST_SEED = 1
FEWEST_PROGRAMS = 30
"""No rate is tried at which fewer are expected within the horizon."""
SATURATION_TOLERANCE = 1.06
GUESS = 0.5
"""Programs/s at which a bisection starts where no saturation is stated at all."""
Wanted = tuple[Load, str, float, int]
"""(workload, system, programs/s, seed)."""


@dataclass
class Study:
    """One experiment at one scale on one model and GPU; ``knobs`` apply to every cell."""

    curves: Curves
    scale: Scale
    model: str
    gpu: str
    out: Path
    run: RunCells
    knobs: Mapping[str, str] = field(default_factory=dict)
    points: list[Point] = field(default_factory=list)
    _deciding: dict[str, float] = field(default_factory=dict)
    _settled: dict[tuple[str, str], Crossing] = field(default_factory=dict)
    _saturation: dict[str, float] = field(default_factory=dict)

    # -- cells -----------------------------------------------------------------------

    def config(self, load: Load, system: str, rate: float, seed: int, horizon: float) -> RunConfig:
        """The cell of a point. ``system`` may be SYSTEM/SCHEDULER: its scheduler replaced."""
        name, _, scheduler = system.partition("/")
        return RunConfig(
            name, load.workload, rate, seed=seed, model=self.model, gpu=self.gpu, scheduler=scheduler or None,
            knobs={DECISIONS: "false", **self.knobs}, out=self.out, horizon=horizon,
        )  # fmt: skip

    def cells(self, wanted: Iterable[tuple[Load, str, float, int]], phase: str) -> list[Point]:
        """Run (load, system, rate, seed) at the scale's horizon unless the study has them; keep them."""
        have = {(p.load, p.system, p.rate, p.seed) for p in self.points}
        new = [w for w in dict.fromkeys(wanted_key(w) for w in wanted) if w not in have]
        loads = {w.name: w for w in self.curves.workloads}
        horizon = self.scale.horizon
        configs = [self.config(loads[n], system, rate, seed, horizon) for n, system, rate, seed in new]
        results = self.run(configs, phase) if configs else []
        made = [
            Point(n, system, rate, seed, horizon, r.summary, r.folder)
            for (n, system, rate, seed), r in zip(new, results, strict=True)
        ]
        self.points += made
        return made

    # -- rates -----------------------------------------------------------------------

    def saturation(self, load: Load) -> float:
        """The rate at which the reference system saturates (programs/s): stated, else bisected."""
        return self._stated(load) or self._saturation[load.name]

    def _stated(self, load: Load) -> float | None:
        """Under MODEL/GPU, or on the experiment's GPU under MODEL."""
        own = load.saturation.get(self.model) if self.gpu == self.curves.gpu else None
        return load.saturation.get(f"{self.model}/{self.gpu}", own)

    @staticmethod
    def _guess(load: Load) -> float:
        return next(iter(load.saturation.values()), GUESS)

    def rates(self, load: Load, system: str) -> list[float]:
        """The swept rates of a system: multiples of its saturation, and the paper's ticks."""
        own = self.saturation(load) * load.slow.get(system, 1.0)
        swept = [own * m for m in self.scale.multiples]
        if self.scale.ticks:
            swept += [t for t in load.ticks.get(self.model, ()) if t > 0]
        return sorted({neat(r) for r in swept})

    def scan(self) -> None:
        """Every system at every rate, on the scan's seeds."""
        self.cells(
            [
                (load, system, rate, seed)
                for seed in self.seeds(self.scale.scan_seeds)
                for load in self.loads()
                for system in self.curves.systems
                for rate in self.rates(load, system)
            ],
            "scan",
        )

    def check(self) -> None:
        """Raises BenchError for a GPU, model, knob or workload that does not exist, before anything runs."""
        for load in self.loads():
            for system in (*self.curves.systems, *self.curves.beside):
                plan(replace(self.config(load, system, 1.0, FIRST_SEED, 1.0), horizon=None, n=1))

    def calibrate(self) -> None:
        """Bisect the reference's saturation where the experiment states none: another model or GPU."""
        for load in self.loads():
            if self._stated(load) is None:
                config = self.config(load, self.curves.reference, GUESS, FIRST_SEED, self.scale.horizon)
                found = saturation(config, self._guess(load), [FIRST_SEED], self.run, SATURATION_TOLERANCE)
                self._saturation[load.name] = found.low

    def narrow(self) -> None:
        """Find what the scan left open, settle the deciding latency, then halve its brackets.

        Subject and reference go on beyond the swept rates, to the most a workload allows, until
        every latency is crossed: "up to" is about all of them.
        """
        pair = (self.curves.subject, self.curves.reference)
        for number in range(self.scale.rounds):
            wanted = [w for load in self.loads() for s in pair for w in self._beyond(load, s)]
            if not self.cells(wanted, f"extend {number + 1}"):
                break
        for number in range(self.scale.rounds):
            wanted = [w for load in self.loads() for s in self.curves.systems for w in self._between(load, s)]
            if not self.cells(wanted, f"narrow {number + 1}"):
                return

    def _beyond(self, load: Load, system: str) -> list[Wanted]:
        """Cells above and below the swept rates, for levels that are not crossed."""
        found = self.crossings(load, system).values()
        return self._next(load, system, [c for c in found if not c.closed])

    def _between(self, load: Load, system: str) -> list[Wanted]:
        """Cells that narrow the deciding crossing, or every one."""
        found = self.crossings(load, system)
        levels = self.levels(load) if self.scale.every_level else [self.deciding(load)]
        return self._next(load, system, [found[level] for level in levels])

    def _next(self, load: Load, system: str, found: Iterable[Crossing]) -> list[Wanted]:
        least, most = FEWEST_PROGRAMS / self.scale.horizon, self.saturation(load) * load.most
        rates = {next_rate(c, self.scale.tolerance, least, most) for c in found}
        return [(load, system, neat(rate), FIRST_SEED) for rate in sorted(r for r in rates if r is not None)]

    def _comparable(self, load: Load) -> list[float]:
        """Latencies that subject and reference both cross."""
        subject, reference = (self.crossings(load, s) for s in (self.curves.subject, self.curves.reference))
        return [x for x in self.levels(load) if subject[x].closed and reference[x].closed]

    def decide(self) -> None:
        """Every system at its own crossing of the deciding latency, on all seeds.

        Those that only run beside the subject do so at its rate, on all seeds where a claim is
        about them.
        """
        wanted: list[Wanted] = []
        for load in self.loads():
            at = self.deciding_rate(load)
            for system in self.curves.systems:
                own = neat(self.settled(load, system).rate)
                wanted += [(load, system, own, seed) for seed in self.seeds(self.scale.seeds)]
            for system in self.curves.beside:
                seeds = self.scale.seeds if self._claimed(load, system) else self.scale.scan_seeds
                wanted += [(load, system, at, seed) for seed in self.seeds(seeds)]
        self.cells(wanted, "decide")

    def _claimed(self, load: Load, system: str) -> bool:
        claims = (c for c in self.curves.claims if load.name in c.workloads)
        return any(system in (c.better, c.base) for c in claims)

    # -- readings --------------------------------------------------------------------

    def loads(self) -> list[Load]:
        """The workloads this scale runs."""
        return self.curves.loads(self.scale)

    @staticmethod
    def seeds(count: int) -> range:
        """The first ``count`` seeds: the same for every system (common random numbers)."""
        return range(FIRST_SEED, FIRST_SEED + count)

    def curve(self, load: Load, system: str, metric: str, seed: int = FIRST_SEED) -> dict[float, float]:
        """{rate: value} of one seed."""
        return {
            p.rate: p.value(metric)
            for p in self.points
            if p.load == load.name and p.system == system and p.seed == seed
        }

    def levels(self, load: Load) -> list[float]:
        """Latencies (s/token) at which rates are compared: the experiment's, and multiples of the
        reference's at its lowest swept rate, on the scan's seed."""
        curve = self.curve(load, self.curves.reference, self.curves.metric)
        idle = curve[self.rates(load, self.curves.reference)[0]]
        return sorted({*self.curves.latencies, *(neat(idle * level) for level in self.curves.levels)})

    def crossings(self, load: Load, system: str, metric: str = "") -> dict[float, Crossing]:
        """{latency: crossing} of the scan seed's curve."""
        curve = self.curve(load, system, metric or self.curves.metric)
        return {latency: crossing(curve, latency) for latency in self.levels(load)}

    def deciding(self, load: Load) -> float:
        """The latency at which the subject gains most over the reference on the scan's seed ("up to"),
        of those that both cross; settled once, when the scan is through."""
        if load.name not in self._deciding:
            subject = self.crossings(load, self.curves.subject)
            reference = self.crossings(load, self.curves.reference)
            choice = self._comparable(load) or self.levels(load)[:1]
            self._deciding[load.name] = max(choice, key=lambda x: subject[x].rate / reference[x].rate)
        return self._deciding[load.name]

    def overload(self, load: Load) -> float:
        """The swept rate a little beyond the saturation (programs/s): pictures of one load show it."""
        return neat(self.saturation(load) * self.scale.multiples[-2])

    def settled(self, load: Load, system: str) -> Crossing:
        """Where a system crosses the deciding latency, as the scan's seed said before the deciding runs.

        Settled once: the deciding points must not move the rate they were run at.
        """
        key = (load.name, system)
        if key not in self._settled:
            self._settled[key] = self.crossings(load, system)[self.deciding(load)]
        return self._settled[key]

    def deciding_rate(self, load: Load) -> float:
        """Where the subject reaches the deciding latency on the scan's seed (programs/s)."""
        return neat(self.settled(load, self.curves.subject).rate)

    def rates_by_seed(self, load: Load, system: str) -> dict[int, float]:
        """{seed: rate at which the deciding latency is reached}, from the seed's deciding point."""
        found, latency = self.settled(load, system), self.deciding(load)
        rate = neat(found.rate)
        return {
            p.seed: rate_of_seed(p.value(self.curves.metric), rate, latency, found)
            for p in self.points
            if (p.load, p.system, p.rate) == (load.name, system, rate)
        }

    # -- beside the main question ------------------------------------------------------

    def horizons(self) -> list[Point]:
        """One overloaded rate per workload with shorter and longer arrivals, scan seeds; not of the systems
        that saturate much earlier."""
        wanted: list[tuple[Load, str, float, int, float, Mapping[str, str]]] = [
            (load, system, self.overload(load), seed, horizon, {})
            for seed in self.seeds(self.scale.scan_seeds)
            for load in self.loads()
            for horizon in self.scale.horizons
            for system in self.curves.systems
            if not load.slow.get(system)
        ]
        return self._beside(wanted, "horizons")

    def sensitivity(self) -> list[tuple[Variation, Point]]:
        """Each variation at the highest swept rate, where calls wait, at the scale's sensitivity horizon."""
        if not self.scale.sensitivity_horizon:
            return []
        wanted, which = [], []
        chosen = self.scale.sensitivity_workloads
        for load in (w for w in self.loads() if not chosen or w.name in chosen):
            for variation in self.curves.sensitivity:
                for system in variation.systems:
                    rate = neat(self.saturation(load) * self.scale.multiples[-1])
                    for seed in self.seeds(self.scale.sensitivity_seeds):
                        cell = (load, system, rate, seed, self.scale.sensitivity_horizon, variation.knobs)
                        wanted.append(cell)
                        which.append(variation)
        return list(zip(which, self._beside(wanted, "sensitivity"), strict=True))

    def _beside(
        self, wanted: Sequence[tuple[Load, str, float, int, float, Mapping[str, str]]], phase: str
    ) -> list[Point]:
        configs = []
        for load, system, rate, seed, horizon, knobs in wanted:
            config = self.config(load, system, rate, seed, horizon)
            configs.append(replace(config, knobs={**config.knobs, **knobs}))
        results = self.run(configs, phase) if configs else []
        return [
            Point(load.name, system, rate, seed, horizon, r.summary, r.folder)
            for (load, system, rate, seed, horizon, _), r in zip(wanted, results, strict=True)
        ]


def wanted_key(wanted: tuple[Load, str, float, int]) -> tuple[str, str, float, int]:
    """A wanted cell by the load's name."""
    load, system, rate, seed = wanted
    return load.name, system, rate, seed
