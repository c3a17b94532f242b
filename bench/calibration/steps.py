"""Step logs of our vLLM scheduler class (docs/vllm.md): reading them, and a linear step model from them.

What a step costs is decided by two rules, made before any log was looked at:

* While the engine has work, a step lasts from the end of the one before to its own end: the engine's loop
  between two steps (results out, new calls in) is part of what each token costs. A step whose calls are
  all new to the log follows an idle engine and lasts from its own start.
* The fit minimises relative errors, by non-negative least squares; a step that took more than ``OUTLIER``
  times what the fit says was interrupted by something else, and does not count. How many these are and
  what share of the time they hold is in the calibration's ``source``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from systems.latency.calibration import BAND, TERMS, Calibration, HeldOut
from vocabulary import BLOCK

Array = NDArray[np.float64]

OUTLIER = 3.0
PASSES = 6
"""Of reweighting; the coefficients no longer move after three or four."""
FEWEST = 50
"""Fewer steps are no basis for five coefficients."""
HEAD = ("kv_blocks", "block_size", "max_model_len")
"""What the first line of a log must say."""


class StepRow(NamedTuple):
    """One step. ``seconds``: what it is charged; ``units``: how much of each of ``TERMS`` was in it."""

    start: float
    end: float
    seconds: float
    units: tuple[int, int, int, int, int]
    calls: tuple[str, ...]


@dataclass(frozen=True)
class StepLog:
    """A log: what its first line says, and its steps in order."""

    head: Mapping[str, Any]
    rows: Sequence[StepRow]

    def only(self, keep: Callable[[str], bool]) -> StepLog:
        """The steps of which every call's request id is wanted."""
        return StepLog(self.head, [row for row in self.rows if all(map(keep, row.calls))])

    def as_json(self) -> dict[str, Any]:
        """Plain data; ``parse`` reads it."""
        return {"head": dict(self.head), "rows": [list(row) for row in self.rows]}

    @classmethod
    def parse(cls, data: Mapping[str, Any]) -> StepLog:
        """From ``as_json``'s data."""
        rows = [StepRow(at, end, s, tuple(units), tuple(calls)) for at, end, s, units, calls in data["rows"]]
        return cls(data["head"], rows)


def read_steps(path: Path) -> StepLog:
    """Read a log. Raises OSError, or ValueError naming file and line."""
    head: dict[str, Any] = {}
    rows: list[StepRow] = []
    walk = _Walk()
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            data = json.loads(line)
            if "calls" in data:
                rows.append(walk.step(data))
            else:  # a scheduler starts: nothing goes on
                head, walk = _agreed(head, data), _Walk()
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ValueError(f"{path}:{number}: no line of a step log ({error})") from None
    if not head:
        raise ValueError(f"{path}:1: no first line with {', '.join(HEAD)}: this is no step log")
    return StepLog(head, rows)


def steps_of(head: Mapping[str, Any], lines: Iterable[Mapping[str, Any]]) -> StepLog:
    """Lines of a log that is read already, of an engine that was idle before them. Raises ValueError."""
    walk = _Walk()
    return StepLog(_agreed({}, head), [walk.step(line) for line in lines])


def _agreed(head: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    lacks = [name for name in HEAD if not isinstance(data.get(name), int)]
    if lacks:
        raise ValueError(f"the first line of a log says {', '.join(HEAD)}; {lacks[0]} is missing")
    if head and any(head[name] != data[name] for name in HEAD):
        raise ValueError(f"another engine's steps follow ({', '.join(HEAD)} differ)")
    return dict(data)


class _Walk:
    """Goes through a log: who is in the middle of a prefill, and when the engine was busy."""

    def __init__(self) -> None:
        self._decoding: dict[str, bool] = {}  # every call met so far; whether its next token is a decode
        self._end = 0.0

    def step(self, data: Mapping[str, Any]) -> StepRow:
        start, end = float(data["start"]), float(data["end"])
        for name in data["preempted"]:
            self._decoding[name] = False
        calls = data["calls"]
        busy = any(name in self._decoding for name, *_ in calls)
        since = max(self._end, 0.0) if busy else max(start, self._end)
        row = StepRow(start, end, end - since, self._units(calls), tuple(name for name, *_ in calls))
        if row.seconds <= 0.0:
            raise ValueError(f"a step of {row.seconds} s")
        self._end = end
        return row

    def _units(self, calls: Sequence[tuple[str, int, int, int]]) -> tuple[int, int, int, int, int]:
        tokens = context = pairs = 0
        for name, computed, new, emits in calls:
            tokens += new
            if self._decoding.get(name, False):
                context += computed + new
            else:
                pairs += new * computed + new * (new + 1) // 2
                self._decoding[name] = bool(emits)
        return 1, tokens, len(calls), context, pairs


class StepFit(NamedTuple):
    """``coefficients``: seconds per unit of ``TERMS``; ``kept``: which steps count (boolean)."""

    coefficients: Array
    kept: NDArray[np.bool_]

    def seconds(self, units: Array) -> Array:
        """What steps cost by the fit; ``units``: (steps, terms)."""
        predicted: Array = units @ self.coefficients
        return predicted


def fit_rows(rows: Iterable[StepRow]) -> StepFit:
    """The linear step model of some steps. Raises ValueError if there are too few."""
    units, seconds = _arrays(rows)
    if len(seconds) < FEWEST:
        raise ValueError(f"{len(seconds)} steps are too few to fit {len(TERMS)} terms: at least {FEWEST}")
    kept = np.ones(len(seconds), dtype=np.bool_)
    weights = np.full(len(seconds), 1.0 / float(np.median(seconds)))
    coefficients = np.zeros(len(TERMS))
    for _ in range(PASSES):
        coefficients = _least_squares(units[kept] * weights[kept, None], seconds[kept] * weights[kept])
        predicted = np.maximum(units @ coefficients, 1e-9)
        kept = seconds <= OUTLIER * predicted
        weights = 1.0 / predicted
    return StepFit(coefficients, kept)


def _least_squares(units: Array, seconds: Array) -> Array:
    """Non-negative; columns are scaled first, since they differ by five orders of magnitude."""
    from scipy.optimize import nnls

    scale = np.maximum(units.max(axis=0), 1e-300)
    found, _ = nnls(units / scale, seconds)
    coefficients: Array = found / scale
    return coefficients


def _arrays(rows: Iterable[StepRow]) -> tuple[Array, Array]:
    listed = list(rows)
    units = np.array([row.units for row in listed], dtype=np.float64).reshape(len(listed), len(TERMS))
    return units, np.array([row.seconds for row in listed], dtype=np.float64)


def step_errors(fit: StepFit, rows: Iterable[StepRow], where: str) -> tuple[HeldOut, ...]:
    """Errors on steps, interrupted ones included: median and p90 of sizes, and the mean's (of all time)."""
    units, seconds = _arrays(rows)
    predicted = fit.seconds(units)
    off = np.abs(predicted / seconds - 1.0)
    means = abs(float(predicted.sum() / seconds.sum()) - 1.0)
    n = len(seconds)
    return (
        HeldOut("step", "median", float(np.median(off)), n, where),
        HeldOut("step", BAND, float(np.quantile(off, 0.9)), n, where),
        HeldOut("step", "error of means", means, n, where),
    )


def fit_log(log: StepLog, *, name: str, model: str, gpu: str, source: Mapping[str, Any]) -> Calibration:
    """A linear calibration from all steps of a log; its held-out errors are those that a fit of the first
    half makes on the second. Raises ValueError if there are too few."""
    half = len(log.rows) // 2
    apart = step_errors(fit_rows(log.rows[:half]), log.rows[half:], "second half, fitted on the first")
    return _calibration(log.head, fit_rows(log.rows), apart, (name, model, gpu), source)


def fit_steps(path: Path, *, name: str, model: str, gpu: str, part: slice | None = None) -> Calibration:
    """A linear calibration from a step log's file.

    ``part``: the steps to fit on, the others give the held-out errors; None: all, with errors as in
    ``fit_log``. Raises OSError, or ValueError if that is no log or has too few steps.
    """
    log = read_steps(path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    source = {"file": path.name, "sha256": digest, "steps": len(log.rows)}
    if part is None:
        return fit_log(log, name=name, model=model, gpu=gpu, source=source)
    chosen = set(range(len(log.rows))[part])
    fitted = fit_rows(row for i, row in enumerate(log.rows) if i in chosen)
    rest = [row for i, row in enumerate(log.rows) if i not in chosen]
    if not rest:
        raise ValueError(
            f"{path}: the part to fit on is all of the {len(log.rows)} steps: none is left to judge by"
        )
    source["fitted_on"] = len(chosen)
    return _calibration(
        log.head, fitted, step_errors(fitted, rest, "steps not fitted on"), (name, model, gpu), source
    )


def _calibration(
    head: Mapping[str, Any], fit: StepFit, held_out: tuple[HeldOut, ...],
    names: tuple[str, str, str], source: Mapping[str, Any],
) -> Calibration:  # fmt: skip
    name, model, gpu = names
    said = {key: head[key] for key in ("vllm", "scheduler", *HEAD) if key in head}
    return Calibration(
        name, "linear", model, gpu,
        coefficients={term: float(ms) for term, ms in zip(TERMS, 1e3 * fit.coefficients, strict=True)},
        kv_blocks=int(head["kv_blocks"]) * int(head["block_size"]) // BLOCK,
        max_model_len=int(head["max_model_len"]),
        held_out=held_out,
        source={**source, **said, "interrupted_steps": int((~fit.kept).sum())},
    )  # fmt: skip


def lost_time(log: StepLog, fit: StepFit) -> float:
    """The share of the steps' time that steps which do not count hold."""
    seconds = np.array([row.seconds for row in log.rows])
    return float(seconds[~fit.kept].sum() / seconds.sum())


def request_of(run: str) -> Callable[[str], bool]:
    """Whether a request id of a log belongs to a run of the live driver."""
    return lambda name: name.startswith(f"cmpl-{run}.")
