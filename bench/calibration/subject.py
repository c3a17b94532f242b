"""What is fitted: measured times, and the simulation that should give them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bench.calibration.recordings import Facts, Point, Points, Recording
from bench.calibration.replay import engine_for, measure, replay
from bench.errors import UsageError, unknown
from systems.latency import ScaledLatency, UnknownTable, gpus, latency_for, models
from systems.latency.facts import full_name
from systems.latency.scaled import ServedModel
from vocabulary import BLOCK

Array = NDArray[np.float64]
Rows = NDArray[np.int64]


@dataclass
class Subject:
    """``measured``: (rows, 3), seconds, NaN where missing; ``usable``: rows that are fitted or held out,
    the others are listed apart; ``block``: see ``errors``; ``latencies``: step times by GPUs per engine."""

    facts: Facts
    measured: Array
    usable: Sequence[int]
    block: int
    latencies: Mapping[int, ServedModel]

    def simulate(self, scale: float, extra_ms: float, rows: Rows) -> Array:
        """Times of these rows with every step ``scale`` times as long, and ``extra_ms`` more."""
        raise NotImplementedError


@dataclass
class Requests(Subject):
    """A recording: one simulation gives the times of all its requests."""

    recording: Recording = field(kw_only=True)
    limits: Mapping[str, int] = field(kw_only=True)

    def simulate(self, scale: float, extra_ms: float, rows: Rows) -> Array:
        """See ``Subject.simulate``."""
        (latency,) = self.latencies.values()
        engine = engine_for(latency, self.facts, dict(self.limits))
        found = replay(
            self.recording.requests,
            engine,
            varied(latency, scale, extra_ms),
            concurrency=self.recording.concurrency,
        )
        times: Array = found.times()[rows]
        return times


@dataclass
class Loops(Subject):
    """Operating points: a simulation each."""

    points: Points = field(kw_only=True)
    limits: Mapping[str, int] = field(kw_only=True)
    seed: int = 1
    _known: dict[tuple[int, float, float], Array] = field(default_factory=dict, init=False, repr=False)
    _made: dict[int, tuple[float, float, ServedModel | ScaledLatency]] = field(
        default_factory=dict, init=False, repr=False
    )

    def simulate(self, scale: float, extra_ms: float, rows: Rows) -> Array:
        """See ``Subject.simulate``."""
        return np.array([self._one(int(i), scale, extra_ms) for i in rows])

    def _one(self, row: int, scale: float, extra_ms: float) -> Array:
        key = (row, scale, extra_ms)
        if key not in self._known:
            point = self.points.points[row]
            places = max(256, point.concurrency)
            engine = engine_for(self.latencies[point.tp], self.facts, dict(self.limits), max_num_seqs=places)
            self._known[key] = measure(point, engine, self._steps(point.tp, scale, extra_ms), self.seed)
        return self._known[key]

    def _steps(self, tp: int, scale: float, extra_ms: float) -> ServedModel | ScaledLatency:
        """Step times of the last numbers asked for: making them takes as long as a small loop."""
        if self._made.get(tp, (0.0, 0.0))[:2] != (scale, extra_ms):
            self._made[tp] = (scale, extra_ms, varied(self.latencies[tp], scale, extra_ms))
        return self._made[tp][2]


def varied(latency: ServedModel, scale: float, extra_ms: float) -> ServedModel | ScaledLatency:
    """The same, bit for bit, where nothing is varied."""
    return latency if (scale, extra_ms) == (1.0, 0.0) else ScaledLatency(latency, scale, extra_ms)


def saturated(point: Point, kv_blocks: int) -> bool:
    """Whether its requests cannot all hold their KV at their longest: the rule is the configuration's."""
    return point.concurrency * (point.isl + point.osl) > kv_blocks * BLOCK


def subject(
    measured: Recording | Points, model: str | None, gpu: str | None, limits: Mapping[str, int]
) -> Requests | Loops:
    """Raises UsageError where the model or GPU is unknown, or is not the recording's."""
    facts = measured.facts
    name = _agreed("model", model, facts.model, facts, models())
    board = _agreed("gpu", gpu, facts.gpu, facts, gpus())
    if isinstance(measured, Points):
        return _loops(measured, name, board, limits)
    latency = _latency(name, board)
    times = np.array([[_or_nan(r.ttft), _or_nan(r.tpot), _or_nan(r.e2e)] for r in measured.requests])
    every = range(len(measured.requests))
    return Requests(facts, times, every, 0, {latency.tp: latency}, recording=measured, limits=limits)


def _loops(measured: Points, name: str, board: str, limits: Mapping[str, int]) -> Loops:
    sizes = sorted({point.tp for point in measured.points})
    plain = name.partition(":")[0]
    latencies = {tp: _latency(f"{plain}:tp{tp}", board) for tp in sizes}
    blocks = {tp: limits.get("kv_blocks", latencies[tp].kv_blocks) for tp in sizes}
    times = np.array([[point.ttft, point.tpot, np.nan] for point in measured.points])
    usable = [i for i, point in enumerate(measured.points) if not saturated(point, blocks[point.tp])]
    return Loops(measured.facts, times, usable, 1, latencies, points=measured, limits=limits)


def _latency(model: str, gpu: str) -> ServedModel:
    try:
        return latency_for(model, gpu)
    except (UnknownTable, ValueError) as error:
        raise UsageError(str(error)) from None


def _agreed(what: str, asked: str | None, said: str, facts: Facts, known: Sequence[str]) -> str:
    """What was asked for, or what the recording says."""
    if asked is None and not said:
        raise UsageError(f"{facts.path} does not say its {what}: give --{what}")
    name = asked or said
    plain = name.partition(":")[0]
    if plain not in known:
        raise unknown(what, plain, known)
    if said and plain != said.partition(":")[0]:
        raise UsageError(f"{facts.path} was recorded with {said}, not {plain}")
    return name


def _or_nan(value: float | None) -> float:
    return np.nan if value is None else value


def spelled(latency: ServedModel) -> str:
    """The model as calibrations name it."""
    return full_name(latency.model, latency.tp)
