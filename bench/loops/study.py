"""The runs of a ``loop`` experiment: what cannot run, the fit, the tuning, then every row.

Everything is a cell (a folder addressed by its content), so an interrupted study goes on where it stopped.
Fit and tuning have seeds of their own: none that reports was seen by either.
"""

from __future__ import annotations

import math
import os
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from bench.arriving import load_programs
from bench.config import DECISIONS, RunConfig
from bench.curves.points import RunCells
from bench.errors import MissingError
from bench.loops import fitting, setup
from bench.loops.spec import Assumption, Loop, Panel, Place, Scale, System
from bench.loops.window import SHORT, Numbers, beside, numbers, read, window_of
from bench.plan import plan
from bench.run import RunResult
from vocabulary import BLOCK
from workloads.dryrun import dry_run

TRACES = "BENCH_TRACES"
"""Environment variable: the folder that recorded sessions are below."""
FIRST_SEED, FIT_SEED, TUNE_SEED = 1, 101, 201
LOOKED_AT = 32
"""Programs that say how many calls one makes."""
MARGIN = 1.2
"""More programs than the highest steps/min expected would take."""


@dataclass(frozen=True)
class Row:
    """One finished cell of the experiment. ``varied``: the assumption changed in it, if any.

    ``covered``: share of its window in which the loop was full; below .5 ``numbers`` has those of the whole
    run only."""

    panel: str
    system: str
    place: Place
    seed: int
    numbers: Numbers
    result: RunResult
    varied: str = ""
    window_s: float = math.nan
    covered: float = math.nan


class Wanted(NamedTuple):
    """A cell to run: where, who, and what is changed on top."""

    panel: Panel
    system: str
    place: Place
    seed: int
    knobs: tuple[tuple[str, str], ...] = ()
    parameters: tuple[tuple[str, str], ...] = ()
    varied: str = ""


@dataclass
class Study:
    """An experiment at one scale. ``knobs`` and ``gpu`` vary it as a whole."""

    loop: Loop
    scale: Scale
    out: Path
    run: RunCells
    knobs: Mapping[str, str] = field(default_factory=dict)
    gpu: str | None = None
    rows: list[Row] = field(default_factory=list)
    missing: dict[tuple[str, str], str] = field(default_factory=dict)
    """(panel, system) -> why it is not testable here."""
    fits: dict[str, fitting.Fitted] = field(default_factory=dict)
    tuned: dict[tuple[str, str], dict[Place, str]] = field(default_factory=dict)
    """(panel, system) -> the tuned knob at each place."""
    untuned: set[tuple[str, str]] = field(default_factory=set)
    """Those of ``tuned`` of which no value had a full window: the value is none's choice."""
    _steps: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.panels = self.loop.chosen(self.scale)

    # -- cells -----------------------------------------------------------------------

    def config(self, wanted: Wanted, fitted: bool = True) -> RunConfig:
        """The configuration of a cell; ``fitted``: with the panel's scale on step times."""
        panel, system = wanted.panel, self.loop.system(wanted.system)
        scale = fitting.knobs(self.fits[_group(panel)].scale) if fitted and _group(panel) in self.fits else {}
        tuned = self.tuned.get((panel.name, system.name), {})
        best = {system.tune: tuned[wanted.place]} if wanted.place in tuned else {}
        own = {**system.knobs, **panel.system_knobs.get(system.name, {}), **best}
        knobs = {DECISIONS: "false", **scale, **panel.knobs, **own, **self.knobs, **dict(wanted.knobs)}
        if system.prices:
            knobs = {**setup.prices(panel.model, self.gpu or panel.gpu, knobs), **knobs}
        parameters = {**panel.parameters, **dict(wanted.parameters)}
        if "stagger" in parameters and not panel.open:
            parameters["at_start"] = str(setup.at_start(wanted.place, knobs))
        shared: dict[str, Any] = {
            "seed": wanted.seed, "model": panel.model, "gpu": self.gpu or panel.gpu, "out": self.out,
            "replicas": panel.replicas, "knobs": knobs, "parameters": parameters,
        }  # fmt: skip
        if panel.open:
            shared |= {"rate": wanted.place, "horizon": self.seconds(panel)}
        else:
            shared |= {"concurrency": int(wanted.place), "n": self.programs(panel, wanted.place)}
        return RunConfig(system.system, source(panel), **shared)

    def seconds(self, panel: Panel) -> float:
        """Warm-up and window (virtual s)."""
        return (panel.warm_up or self.scale.warm_up) + (panel.window or self.scale.window)

    def programs(self, panel: Panel, place: Place) -> int:
        """Programs that keep a loop of ``place`` full through the window, at the most steps/min expected."""
        if panel.programs:
            return panel.programs if panel.programs > 0 else int(place)
        given = panel.paper.get("steps_per_min", {})
        most = panel.most or max(x for rows in given.values() for x in rows)
        if panel.fit and given:  # steps/min cannot grow faster than the loop
            most = min(most, max(rows[0] for rows in given.values()) / panel.places[0] * place)
        steps = MARGIN * most * self.seconds(panel) / 60
        return int(place) + math.ceil(steps / self._steps[_group(panel)])

    def cells(self, wanted: Iterable[Wanted], phase: str, fitted: bool = True) -> list[Row]:
        """Run them; rows in their order."""
        asked = list(wanted)
        results = self.run([self.config(w, fitted) for w in asked], phase) if asked else []
        return [self._row(w, result) for w, result in zip(asked, results, strict=True)]

    def _row(self, wanted: Wanted, result: RunResult) -> Row:
        panel, log = wanted.panel, read(result.folder)
        warm_up = panel.warm_up or self.scale.warm_up
        window = window_of(log.programs, warm_up, panel.window or self.scale.window)
        capacity = float(result.summary["card"]["engine"]["kv_blocks"]) * BLOCK * panel.replicas
        place = None if panel.open else wanted.place
        found = numbers(log, window, capacity, panel.replicas, panel.shared, place) | beside(result.summary)
        return Row(
            panel.name, wanted.system, wanted.place, wanted.seed, found, result, wanted.varied,
            window.seconds, window.covered,
        )  # fmt: skip

    # -- phases ----------------------------------------------------------------------

    def check(self) -> None:
        """Which systems cannot run where, before anything runs. Raises BenchError for what is wrong."""
        for panel in self.panels:
            if panel.trace and not Path(source(panel)).is_dir():
                why = f"no folder {panel.trace} of recorded sessions below {TRACES}"
                self.missing |= {(panel.name, system): why for system in panel.systems}
                continue
            self._look(panel)
            for system in panel.systems:
                try:
                    plan(self._smallest(panel, system))
                except MissingError as error:
                    self.missing[panel.name, system] = str(error)

    def _smallest(self, panel: Panel, system: str) -> RunConfig:
        """One program: enough to see whether a panel can run."""
        config = self.config(Wanted(panel, system, panel.places[-1], FIRST_SEED), fitted=False)
        changed: dict[str, Any] = {"horizon": None, "n": 1, "concurrency": None if panel.open else 1}
        return replace(config, **changed)

    def _look(self, panel: Panel) -> None:
        """How many calls a program makes, from a run without a clock."""
        if _group(panel) not in self._steps:
            config = RunConfig("vllm-opt", source(panel), concurrency=1, n=None if panel.trace else LOOKED_AT,
                               seed=FIT_SEED, parameters=panel.parameters)  # fmt: skip
            specs = load_programs(config, room=1 << 30).programs
            self._steps[_group(panel)] = sum(len(dry_run(s).calls) for s in specs) / len(specs)

    def fit(self) -> None:
        """The scale on step times of each panel that states one, all panels side by side."""
        searches: dict[str, Generator[float, float, fitting.Fitted]] = {}
        asked: dict[str, float] = {}
        panels: dict[str, Panel] = {}
        for panel in self.panels:
            group = _group(panel)
            if panel.fit and group not in panels and (panel.name, panel.fit.system) not in self.missing:
                panels[group] = panel
                searches[group] = fitting.search(panel.fit.steps_per_min)
                asked[group] = next(searches[group])
        number = 0
        while asked:
            number += 1
            rates = self._rates([(panels[g], scale) for g, scale in asked.items()], f"fit {number}")
            asked = self._told(searches, dict(zip(asked, rates, strict=True)))

    def _rates(self, tries: Sequence[tuple[Panel, float]], phase: str) -> list[float]:
        """Steps/min at each (panel, scale), over the fit's seeds; infinite where the programs ran out."""
        seeds = range(FIT_SEED, FIT_SEED + self.scale.fit_seeds)
        wanted = [
            Wanted(panel, panel.fit.system, panel.fit.place, seed, tuple(fitting.knobs(scale).items()))
            for panel, scale in tries if panel.fit for seed in seeds
        ]  # fmt: skip
        rows = self.cells(wanted, phase, fitted=False)
        found = [math.inf if row.covered < SHORT else row.numbers.get("steps_per_min", 0.0) for row in rows]
        return [sum(found[i : i + len(seeds)]) / len(seeds) for i in range(0, len(found), len(seeds))]

    def fit_of(self, panel: Panel) -> fitting.Fitted | None:
        """The fit of a panel's step times, if it has one."""
        return self.fits.get(_group(panel))

    def _told(
        self, searches: Mapping[str, Generator[float, float, fitting.Fitted]], rates: Mapping[str, float]
    ) -> dict[str, float]:
        """What the searches ask next, given what they asked."""
        asked = {}
        for group, rate in rates.items():
            try:
                asked[group] = searches[group].send(rate)
            except StopIteration as stop:
                self.fits[group] = stop.value
        return asked

    def tune(self) -> None:
        """The best knob of each system that is tuned, at each place, on seeds of its own."""
        searches = {
            (panel.name, system.name): setup.Search(system, choices(system, panel))
            for panel in self.panels for system in self._systems(panel) if system.tune
        }  # fmt: skip
        panels = {panel.name: panel for panel in self.panels}
        number = 0
        while any(search.asked for search in searches.values()):
            number += 1
            self._try(searches, panels, f"tune {number}")
        self.tuned = {where: search.best(panels[where[0]]) for where, search in searches.items()}
        self.untuned = {where for where, s in searches.items() if max(s.scores.values()) == -math.inf}

    def _try(
        self, searches: Mapping[tuple[str, str], setup.Search], panels: Mapping[str, Panel], phase: str
    ) -> None:
        """Run what searches ask for, at their panels' largest places, and tell them."""
        seeds = range(TUNE_SEED, TUNE_SEED + self.scale.tune_seeds)
        tries = [(where, search, value) for where, search in searches.items() for value in search.asked]
        wanted = [
            Wanted(panels[panel], system, panels[panel].places[-1], seed, ((search.system.tune, value),))
            for (panel, system), search, value in tries for seed in seeds
        ]  # fmt: skip
        rows = self.cells(wanted, phase)
        scores: dict[tuple[str, str], dict[str, float]] = {}
        for i, (where, _, value) in enumerate(tries):
            mine = rows[i * len(seeds) : (i + 1) * len(seeds)]
            scores.setdefault(where, {})[value] = sum(score(row, panels[where[0]]) for row in mine)
        for where, found in scores.items():
            searches[where].told(found)

    def measure(self) -> None:
        """Every system at every place of every panel, on all seeds."""
        seeds = range(FIRST_SEED, FIRST_SEED + self.scale.seeds)
        self.rows += self.cells(
            [
                Wanted(panel, system.name, place, seed)
                for seed in seeds for panel in self.panels for place in panel.places
                for system in self._systems(panel)
            ],
            "measure",
        )  # fmt: skip

    def vary(self, systems: Mapping[str, set[str]]) -> None:
        """What predictions assume, changed one at a time: ``systems`` of each panel, on the first seeds."""
        seeds = range(FIRST_SEED, FIRST_SEED + self.scale.assumption_seeds)
        self.rows += self.cells(
            [
                Wanted(panel, system, place, seed, _items(a.knobs), _items(a.parameters), a.name)
                for seed in seeds for a in self.loop.assumptions for panel in self._touched(a)
                for place in panel.places for system in sorted(systems.get(panel.name, ()))
            ],
            "vary",
        )  # fmt: skip

    def _touched(self, assumption: Assumption) -> list[Panel]:
        return [p for p in self.panels if not assumption.panels or p.name in assumption.panels]

    def _systems(self, panel: Panel) -> list[System]:
        """The panel's systems that can run there."""
        names = [s for s in panel.systems if (panel.name, s) not in self.missing]
        return [self.loop.system(name) for name in names]

    # -- readings --------------------------------------------------------------------

    def values(
        self, panel: str, system: str, place: Place, quantity: str, varied: str = ""
    ) -> dict[int, float]:
        """{seed: value}; seeds that do not have it, as their window was cut short, are NaN."""
        return {
            row.seed: row.numbers.get(quantity, math.nan)
            for row in self.rows
            if (row.panel, row.system, row.place, row.varied) == (panel, system, place, varied)
        }


def _group(panel: Panel) -> str:
    """Panels made from one by axes share its fit and its look, where they have the same programs."""
    return f"{panel.name.partition('|')[0]} {sorted(panel.parameters.items())}"


def _items(changed: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(changed.items())


def source(panel: Panel) -> str:
    """The workload's name, or the folder of a panel's recorded sessions."""
    if not panel.trace:
        return panel.workload
    beside = Path(__file__).parents[2].parent / "shared" / "data"
    return str(Path(os.environ.get(TRACES) or os.path.relpath(beside)) / panel.trace)


def choices(system: System, panel: Panel) -> list[str]:
    """The values that are tried of a tuned knob first; of a limit a panel's smaller places, too. Shares are
    of the programs in the system."""
    programs = panel.in_system if panel.open else panel.places[-1]
    shares = [max(1, round(share * programs)) for share in system.shares]
    smaller = panel.places[:-1] if shares and not panel.open else ()
    return [f"{v:g}" for v in dict.fromkeys([*system.values, *shares, *smaller])]


def score(row: Row, panel: Panel) -> float:
    """What tuning maximises: steps/min; in an open loop (all do the same work) the speed of programs.

    A window that was cut short scores -inf."""
    if panel.open:
        return -row.numbers.get("program_s", math.inf)
    return row.numbers.get("steps_per_min", -math.inf)
