"""``bench reproduce`` for experiments of kind ``curves``: run, judge, draw."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from bench.cells import Failure
from bench.config import RunConfig
from bench.curves.frames import frames, horizon_frame, means, sensitivity_frame
from bench.curves.spec import Curves, parse
from bench.curves.study import Study
from bench.errors import BenchError, Exit
from bench.run import RunResult
from bench.sweep import Standing, run_cells
from reports.page import Section, table_of

Progress = Callable[[str, Standing], None]
"""(phase, how far it is)."""


class CellFailed(BenchError):
    """A cell of an experiment could not be run."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.exit_code = Exit(failure.exit_code)


@dataclass(frozen=True)
class Options:
    """How an experiment is run. ``gpu`` and ``knobs`` vary it as a whole (robustness)."""

    scale: str
    out: Path
    gpu: str | None = None
    knobs: Mapping[str, str] = field(default_factory=dict)
    workers: int | None = None
    beside: bool = True
    """Horizons and sensitivity, too."""

    def folder(self, experiment: str) -> str:
        """Name of the folder of its report."""
        changed = [*([self.gpu] if self.gpu else []), *(f"{k}={v}" for k, v in self.knobs.items())]
        return "-".join([experiment.replace(":", "-"), self.scale, *changed])

    def words(self, experiment: str) -> list[str]:
        """The command line that repeats it."""
        words = ["bench", "reproduce", experiment, "--scale", self.scale]
        words += ["--gpu", self.gpu] if self.gpu else []
        words += [w for k, v in self.knobs.items() for w in ("--knob", f"{k}={v}")]
        words += [] if self.beside else ["--only-claims"]
        return words + (["--out", str(self.out)] if self.out != Path("results") else [])


@dataclass
class Outcome:
    """A finished experiment: data frames by name, and what it took."""

    curves: Curves
    options: Options
    data: dict[str, pd.DataFrame]
    table: pd.DataFrame
    programs: int
    calls: int
    cells: int
    cells_there: int
    folders: list[Path]
    cards: list[dict[str, Any]] = field(default_factory=list)
    """The different fidelity cards of its runs."""

    @property
    def claims(self) -> list[dict[str, Any]]:
        """A row per claim."""
        rows: list[dict[str, Any]] = self.data["claims"].to_dict("records")
        return rows


class Cells:
    """Runs cells on all cores and counts what was run."""

    def __init__(self, workers: int | None, progress: Progress | None) -> None:
        self.workers, self.progress = workers, progress
        self.seen: dict[str, RunResult] = {}

    def __call__(self, configs: Sequence[RunConfig], phase: str) -> list[RunResult]:
        """All of them, or an error for the first that failed."""
        report = self.progress
        told = None if report is None else lambda standing: report(phase, standing)
        outcomes = run_cells(configs, workers=self.workers, progress=told)
        results = []
        for outcome in outcomes:
            if isinstance(outcome, Failure):
                raise CellFailed(outcome)
            self.seen.setdefault(str(outcome.summary["cell"]), outcome)
            results.append(outcome)
        return results


def run(data: Mapping[str, Any], path: Path, options: Options, progress: Progress | None = None) -> Outcome:
    """Run the experiment in ``data`` (of the file ``path``). Raises BenchError."""
    curves = parse(data, path)
    scale = curves.scale(options.scale)
    cells = Cells(options.workers, progress)
    gpu = options.gpu or curves.gpu
    studies, horizons, variations = [], [], []
    for model in scale.models:
        study = Study(curves, scale, model, gpu, options.out, cells, dict(options.knobs))
        study.check()
        study.calibrate()
        study.scan()
        study.narrow()
        study.decide()
        studies.append(study)
        if options.beside:
            horizons.append(horizon_frame(study, study.horizons()))
            variations.append(sensitivity_frame(study, study.sensitivity()))
    found = frames(studies)
    found["horizons"] = pd.concat(horizons) if horizons else pd.DataFrame()
    found["sensitivity"] = pd.concat(variations) if variations else pd.DataFrame()
    results = list(cells.seen.values())
    return Outcome(
        curves, options, found, pd.concat([means(s) for s in studies]),
        programs=sum(sum(r.summary["outcomes"].values()) for r in results),
        calls=sum(r.summary["calls"] for r in results),
        cells=len(results), cells_there=sum(r.cached for r in results),
        folders=[r.folder for r in results], cards=_cards(results),
    )  # fmt: skip


def _cards(results: Sequence[RunResult]) -> list[dict[str, Any]]:
    found = {repr(card): card for r in results if (card := r.summary.get("card"))}
    return list(found.values())


def write(
    outcome: Outcome,
    folder: Path,
    command: str,
    survives: Sequence[str] = (),
    note: str = "",
    beside: Sequence[Section] = (),
) -> list[Path]:
    """The page, its figures and tables in ``folder``; the page first.

    ``survives``: a cell per claim, whether its verdict survives a wrong simulator; ``note``: how it is known.
    ``beside``: more sections.
    """
    from bench.gather import find
    from bench.report import cards, provenance
    from bench.report import write as write_report

    if survives:
        outcome.data["claims"] = outcome.data["claims"].assign(survives=list(survives))

    found = find(outcome.folders)
    curves = outcome.curves
    return write_report(
        folder,
        f"{curves.name}: {curves.title}",
        outcome.data,
        summary=summary_text(outcome),
        sections=[
            Section(
                "Every point", "Latencies in seconds per output token.", tables=[table_of(outcome.table)]
            ),
            *([Section("Findings", curves.findings)] if curves.findings else []),
            cards(found, note),
            *beside,
        ],
        provenance=provenance(found, command),
    )


def summary_text(outcome: Outcome) -> str:
    """What was run, in a few lines."""
    curves, scale = outcome.curves, outcome.curves.scale(outcome.options.scale)
    levels = [
        *(f"{x:g}" for x in curves.latencies),
        *(f"{x:g}x idle {curves.reference}" for x in curves.levels),
    ]
    lines = [
        f"{curves.source}. {outcome.cells:,} runs, {outcome.programs:,} programs, {outcome.calls:,} calls, "
        f"scale {outcome.options.scale}: programs arrive for {scale.horizon:g} s, then the system drains.",
        f'A claim "R times" is about the rate taken at equal latency: the best of {", ".join(levels)} '
        f"(s/token) on the scan's seed, then {scale.seeds} seeds at that rate, paired. "
        "Transient: at this horizon. Sustained: only rates whose backlog does not grow count. "
        "The seed that chose the latency is one of them, and one latency serves every pair of systems. "
        "Reproduced: the interval meets [R/1.25, 1.25 R]; partly: the same sign, half the log ratio.",
    ]
    if outcome.options.knobs:
        lines.append(f"Varied as a whole: {', '.join(f'{k}={v}' for k, v in outcome.options.knobs.items())}.")
    return "\n\n".join(lines)


def facts(outcome: Outcome, files: Sequence[Path]) -> dict[str, Any]:
    """The experiment in plain data, for the terminal and for JSON."""
    badges = {str(r) for r in outcome.data["points"].badge}
    return {
        "name": outcome.curves.name,
        "title": outcome.curves.title,
        "source": outcome.curves.source,
        "scale": outcome.options.scale,
        "badge": sorted(badges),
        "claims": outcome.claims,
        "cards": outcome.cards,
        "cells": outcome.cells,
        "cells_there": outcome.cells_there,
        "programs": outcome.programs,
        "calls": outcome.calls,
        "report": files[0],
        "files": list(files[1:]),
    }
