"""``bench reproduce`` for experiments of kind ``loop``: run, judge, draw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from bench.curves.runner import Cells, Options, Progress
from bench.files import write_atomic
from bench.loops.frames import fits, frames, lacking, table
from bench.loops.judge import panels_of, places_of
from bench.loops.kinds import moves, paired
from bench.loops.parsing import parse
from bench.loops.spec import Loop
from bench.loops.study import Study
from bench.loops.text import markdown
from bench.run import RunResult
from reports.page import Section, table_of


@dataclass
class Outcome:
    """A finished experiment: its study, frames by name, tables of its page."""

    loop: Loop
    options: Options
    study: Study
    data: dict[str, pd.DataFrame]
    results: list[RunResult]
    tables: dict[str, pd.DataFrame] = field(default_factory=dict)

    @property
    def claims(self) -> list[dict[str, Any]]:
        """A row per claim."""
        frame = self.data.get("claims")
        rows: list[dict[str, Any]] = [] if frame is None else frame.to_dict("records")
        return rows


def run(data: Mapping[str, Any], path: Path, options: Options, progress: Progress | None = None) -> Outcome:
    """Run the experiment in ``data`` (of the file ``path``). Raises BenchError."""
    loop = parse(data, path)
    cells = Cells(options.workers, progress)
    study = Study(loop, loop.scale(options.scale), options.out, cells, dict(options.knobs), options.gpu)
    study.check()
    study.fit()
    study.tune()
    study.measure()
    study.vary(predicted_systems(study))
    found = Outcome(loop, options, study, frames(study), list(cells.seen.values()))
    found.tables = {
        "Every row": table(study),
        "Fitted and tuned": fits(study),
        "What moves the predictions": predictions(study),
    }
    return found


def predicted_systems(study: Study) -> dict[str, set[str]]:
    """Panel -> systems that predictions are about: what assumptions are varied for."""
    found: dict[str, set[str]] = {}
    for claim in study.loop.claims:
        if claim.kind == "prediction":
            for panel in panels_of(study, claim):
                runs = {s for s in (claim.top, claim.bottom) if (panel.name, s) not in study.missing}
                found.setdefault(panel.name, set()).update(runs)
    return found


def predictions(study: Study) -> pd.DataFrame:
    """A row per prediction and place: the ratio, and in a column for each assumption the ratio with it
    changed (times what the change multiplies it with on the seeds that have both)."""
    rows = []
    for claim in (c for c in study.loop.claims if c.kind == "prediction"):
        for panel in panels_of(study, claim):
            for place in places_of(claim, panel):
                got = paired(study, panel, claim, place)
                line = {
                    "prediction": claim.id, "panel": panel.label, "place": place, "of": claim.quantity,
                    "ratio": f"{claim.top} / {claim.bottom}", "predicted": got.value, "low": got.low,
                    "high": got.high,
                }  # fmt: skip
                moved = moves(study, panel, claim, place)
                rows.append(line | {name: got.value * by.value for name, by in moved.items()})
    return pd.DataFrame(rows)


def write(outcome: Outcome, folder: Path, command: str) -> list[Path]:
    """The page, its figures and tables in ``folder``, the page first; its text is in ``claims.md``, too."""
    from bench.gather import find
    from bench.report import cards, provenance
    from bench.report import write as write_report

    found = find([result.folder for result in outcome.results])
    sections = [Section(t, tables=[table_of(f)]) for t, f in outcome.tables.items() if len(f)]
    if lines := lacking(outcome.study):
        sections.append(Section("Not testable here", "\n".join(f"* {line}" for line in lines)))
    if outcome.loop.findings:
        sections.append(Section("Findings", outcome.loop.findings))
    files = write_report(
        folder, f"{outcome.loop.name}: {outcome.loop.title}", outcome.data, summary=summary_text(outcome),
        sections=[*sections, cards(found)], provenance=provenance(found, command),
    )  # fmt: skip
    title = f"{outcome.loop.name}, scale {outcome.options.scale}"
    text = markdown(title, command, outcome.claims, outcome.tables)
    write_atomic(folder / "claims.md", text)
    return files


def summary_text(outcome: Outcome) -> str:
    """What was run, in a few lines."""
    loop, scale = outcome.loop, outcome.study.scale
    lines = [
        f"{loop.source}. {len(outcome.results):,} runs, {_calls(outcome.results):,} calls, scale "
        f"{outcome.options.scale}: {scale.warm_up:g} s of warm-up, then {scale.window:g} s are measured, as "
        f"long as the loop is full; {scale.seeds} seeds, the same programs for every system.",
        "A step is one call and what follows it; little: steps/s x cycle over the threads in the loop (1: "
        "the law holds); work_per_min: all programs, warm-up and drain included, over the makespan. "
        "Reproduced: the interval of a ratio meets [R/1.25, 1.25 R] and excludes 1; same sign: it does, "
        "but [R/1.25, 1.25 R] holds 1, so the size is not tested; partly: half the log ratio, and a "
        "one-sided 95 % bound excludes 1. Of several panels the weakest word; partly at the most where one "
        "is missing. A window of which less than half was full has no numbers.",
    ]
    if outcome.study.fits:
        lines.append(
            "Fitted: one factor on every step's time per panel, at its smallest load, on the reference's row "
            "and seeds that do not report. Nothing else."
        )
    if outcome.options.knobs:
        lines.append(f"Varied as a whole: {', '.join(f'{k}={v}' for k, v in outcome.options.knobs.items())}.")
    return "\n\n".join(lines)


def _calls(results: Sequence[RunResult]) -> int:
    return sum(int(r.summary["calls"]) for r in results)


def facts(outcome: Outcome, files: Sequence[Path]) -> dict[str, Any]:
    """The experiment in plain data, for the terminal and for JSON."""
    results = outcome.results
    found = {repr(card): card for r in results if (card := r.summary.get("card"))}
    return {
        "name": outcome.loop.name,
        "title": outcome.loop.title,
        "source": outcome.loop.source,
        "scale": outcome.options.scale,
        "badge": sorted({str(r.summary["badge"]) for r in results}),
        "claims": outcome.claims,
        "predictions": outcome.tables["What moves the predictions"].to_dict("records"),
        "fitted": outcome.tables["Fitted and tuned"].to_dict("records"),
        "not_testable": lacking(outcome.study),
        "cards": list(found.values()),
        "cells": len(results),
        "cells_there": sum(r.cached for r in results),
        "programs": sum(sum(r.summary["outcomes"].values()) for r in results),
        "calls": _calls(results),
        "report": files[0],
        "files": list(files[1:]),
    }
