"""From a recording to calibrations: fit on one part, errors on the rest, before and after."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.calibration.errors import Errors, errors, held_out
from bench.calibration.fit import FOLDS, Fit, Rows, as_dict, first_part, fit, folds
from bench.calibration.recordings import FEWEST
from bench.calibration.subject import Loops, Requests, spelled
from bench.errors import InvalidRun
from systems.latency import Calibration

Array = NDArray[np.float64]
Progress = Callable[[int, int], None] | None


@dataclass(frozen=True)
class Fitted:
    """``final``: the fit that is kept; ``parts``: those that errors are held out of, with their row
    numbers; ``raw`` and ``held``: errors on the same held-out rows without and with a fit, ``apart`` and
    ``apart_raw``: on the rows that are listed apart (saturated); ``simulated``: held-out times by row."""

    final: Fit
    parts: Sequence[tuple[Fit, Rows]]
    raw: list[Errors]
    held: list[Errors]
    where: str
    simulated: Array
    bare: Array
    apart: list[Errors] = field(default_factory=list)
    apart_raw: list[Errors] = field(default_factory=list)

    @property
    def worse(self) -> list[tuple[Errors, Errors]]:
        """(with the fit, without) of the metrics whose mean error on the held-out rows is larger with it."""
        pairs = zip(self.held, self.raw, strict=True)
        return [(held, raw) for held, raw in pairs if held.mean.value > raw.mean.value]

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "fit": as_dict(self.final),
            "fitted_parts": [as_dict(found) | {"held_out_rows": len(rows)} for found, rows in self.parts],
            "held_out": self.where,
            "raw": [one.as_json() for one in self.raw],
            "calibrated": [one.as_json() for one in self.held],
            "saturated_raw": [one.as_json() for one in self.apart_raw],
            "saturated": [one.as_json() for one in self.apart],
            "worse_than_no_fit": [held.metric for held, _ in self.worse],
        }


def calibrate(subject: Requests | Loops, part: float, progress: Progress = None) -> Fitted:
    """Requests: fit on the first ``part`` by arrival, which is kept. Points: errors from ``FOLDS`` folds
    (``fit.folds``), and what is kept is the fit on all of them. Raises InvalidRun for too few rows."""
    loops = isinstance(subject, Loops)
    splits = folds(subject.usable) if loops else [first_part(len(subject.measured), part)]
    for fitted, rest in splits:
        if min(len(fitted), len(rest)) < (FEWEST if not loops else 2):
            raise InvalidRun(
                f"{subject.facts.path}: {len(fitted)} rows to fit on and {len(rest)} held out; "
                f"at least {FEWEST if not loops else 2} of each are needed"
            )
    parts = [(fit(subject.simulate, subject.measured, fitted, progress), rest) for fitted, rest in splits]
    rows = np.concatenate([rest for _, rest in parts])
    simulated = np.concatenate([subject.simulate(f.scale, f.extra_ms, rest) for f, rest in parts])
    order = np.argsort(rows)
    rows, simulated = rows[order], simulated[order]
    bare, measured = subject.simulate(1.0, 0.0, rows), subject.measured[rows]
    usable = np.asarray(subject.usable, dtype=np.int64)
    final = fit(subject.simulate, subject.measured, usable, progress) if loops else parts[0][0]
    where = f"{FOLDS}-fold, row number mod {FOLDS}" if loops else f"after the first {part:.0%} by arrival"
    raw = errors(bare, measured, subject.block)
    held = errors(simulated, measured, subject.block)
    apart = _apart(subject, final)
    return Fitted(final, parts, raw, held, where, simulated, bare, *apart)


def _apart(subject: Requests | Loops, final: Fit) -> tuple[list[Errors], list[Errors]]:
    """Errors on the rows that nothing was fitted on, with and without the final fit."""
    rest = np.setdiff1d(np.arange(len(subject.measured)), np.asarray(subject.usable))
    if not len(rest):
        return [], []
    measured = subject.measured[rest]
    with_fit = errors(subject.simulate(final.scale, final.extra_ms, rest), measured, 1)
    return with_fit, errors(subject.simulate(1.0, 0.0, rest), measured, 1)


def by_size(subject: Loops, found: Fitted, *, raw: bool = False) -> dict[int, list[Errors]]:
    """Held-out errors of each size of the model, by GPUs per engine; ``raw``: with nothing fitted."""
    times = found.bare if raw else found.simulated
    usable = np.asarray(subject.usable)
    sizes = np.array([subject.points.points[i].tp for i in usable])
    return {
        tp: errors(times[sizes == tp], subject.measured[usable][sizes == tp], subject.block)
        for tp in sorted(subject.latencies)
        if (sizes == tp).any()
    }


def names(subject: Requests | Loops, name: str) -> dict[int, str]:
    """Names of the calibrations, by GPUs per engine: ``name`` itself where there is one size."""
    sizes = sorted(subject.latencies)
    return {tp: f"{name}-tp{tp}" if len(sizes) > 1 else name for tp in sizes}


def calibrations(subject: Requests | Loops, found: Fitted, name: str, command: str) -> list[Calibration]:
    """A calibration for each size of the model, all with the same two numbers, each with its own errors."""
    source = {
        "format": subject.facts.format,
        "recording": subject.facts.path.name,
        "rows": len(subject.measured),
        "usable_rows": len(subject.usable),
        "held_out": found.where,
        **subject.facts.source,
        "command": command,
    }
    called = names(subject, name)
    held = by_size(subject, found) if isinstance(subject, Loops) else {}
    return [
        Calibration(
            called[tp],
            "scaled",
            spelled(latency),
            latency.gpu,
            found.final.scale,
            found.final.extra_ms,
            held_out=held_out(held.get(tp, found.held), found.where),
            source=source | {"table": latency.digest},
        )
        for tp, latency in sorted(subject.latencies.items())
    ]
