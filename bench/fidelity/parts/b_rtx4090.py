"""b: 300 requests that a real vLLM served on an RTX 4090, replayed with that card's own kernel times."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.calibration.errors import Errors, Spread, errors
from bench.calibration.readers.llmservingsim import FILES, READER
from bench.calibration.recordings import Recording
from bench.calibration.replay import Replayed, engine_for, replay
from bench.errors import RuleBroken
from bench.fidelity.part import Bar, Options, Outcome, Say
from systems.latency import ScaledLatency, latency_for, load_table
from systems.latency.beside import BesideLatency
from systems.latency.validation import Validation
from systems.protocols import LatencyModel

Array = NDArray[np.float64]

MODEL, GPU = "llama-3.1-8b", "rtx4090"
FOLDER, SERIES = "llmservingsim", "timeseries.csv"
SCALES = (0.95, 1.05)
"""Step times varied by this much: what the errors would be with a profile that is off."""
BARS = (("E2E", "mean", 1.5), ("TTFT", "of_means", 1.5), ("TPOT", "of_means", 1.5))
AGAINST = "vLLM 0.19 on an RTX 4090, 300 ShareGPT requests, KV-starved"


class Rtx4090:
    """Nothing is fitted: arrivals, lengths and limits are the recording's, step times the profile's."""

    name = "b-rtx4090"
    title = "b. A real RTX 4090, request by request"
    cost = "a folder of recordings; about 30 seconds"

    def missing(self, options: Options) -> str:
        """Which files it lacks."""
        folder = options.data / FOLDER
        lacks = [name for name in (*FILES, SERIES) if not (folder / name).is_file()]
        return f"{folder} lacks {', '.join(lacks)} (give --data)" if lacks else ""

    def run(self, options: Options, say: Say) -> Outcome:
        """Compare. Raises BenchError."""
        recording, latency = READER.read(options.data / FOLDER), latency_for(MODEL, GPU)
        say("sim")
        played = _replay(recording, latency)
        say("reference")
        _equal(played, _replay(recording, latency, host="reference"))
        measured = _measured(recording)
        found = errors(played.times(), measured, seed=options.seed)
        say("other step times")
        others = {words: _replay(recording, other) for words, other in _others(latency).items()}
        varied = {words: errors(other.times(), measured) for words, other in others.items()}
        series = _series(played, options.data / FOLDER, recording)
        counts = {words: _preemptions(other) for words, other in {"as it is": played, **others}.items()}
        return Outcome(
            [_bar(found, *bar) for bar in BARS],
            _page(found, varied, counts, series, len(recording.requests)),
            {
                "errors": [one.as_json() for one in found],
                "varied": {words: [one.as_json() for one in rows] for words, rows in varied.items()},
                "preemptions": counts,
                "series": series,
                "reference_equal": True,
            },
            {
                "table": latency.digest[:12],
                "KV blocks": latency.kv_blocks,
                "requests sha256": str(recording.facts.source["requests_sha256"])[:12],
                "time series sha256": _sha(options.data / FOLDER / SERIES)[:12],
            },
            [_validation(found, metric, statistic) for metric, statistic, _ in BARS],
        )


def _replay(recording: Recording, latency: LatencyModel, host: str = "sim") -> Replayed:
    engine = engine_for(latency_for(MODEL, GPU), recording.facts, {})
    return replay(recording.requests, engine, latency, host=host, sample_s=1.0)


def _equal(one: Replayed, other: Replayed) -> None:
    """Raises RuleBroken unless both engines gave every request the same times and preemptions."""
    rows = [
        [(c.t_first_token, c.t_end, c.preemptions, c.cached_tokens, c.reprefill_tokens) for c in played.calls]
        for played in (one, other)
    ]
    if rows[0] != rows[1]:
        raise RuleBroken("sim and reference differ on the recording")


def _others(latency: LatencyModel) -> dict[str, LatencyModel]:
    """Step times varied, and those of a table without its mixed part."""
    found: dict[str, LatencyModel] = {f"step times x {s:g}": ScaledLatency(latency, s) for s in SCALES}
    table = load_table(MODEL, GPU)
    assert isinstance(table, BesideLatency)
    return found | {"decode attention as if alone": table.parts_alone()}


def _measured(recording: Recording) -> Array:
    rows = [(r.ttft, r.tpot, r.e2e) for r in recording.requests]
    return np.array([[np.nan if value is None else value for value in row] for row in rows])


def _preemptions(played: Replayed) -> dict[str, int]:
    """Of the whole run: preemptions, and requests that had any."""
    each = [call.preemptions for call in played.calls]
    return {"preemptions": sum(each), "requests": sum(n > 0 for n in each)}


def _series(played: Replayed, folder: Path, recording: Recording) -> dict[str, Any]:
    """Running, waiting and KV use over time, ours at about every second against the recorder's ticks.

    Mean sizes of the differences; the recorder's clock starts 0.1 s before the first request.
    """
    with (folder / SERIES).open(encoding="utf-8", newline="") as file:
        ticks = {key: np.array(column) for key, column in _columns(csv.DictReader(file)).items()}
    blocks = recording.facts.limits["kv_blocks"]
    ours = np.array([(s.time, s.running, s.waiting, 100 * s.kv_used / blocks) for s in played.samples])
    inside = ours[ours[:, 0] <= ticks["t"][-1]]
    found: dict[str, Any] = {"samples": len(inside), "ticks": len(ticks["t"])}
    for column, name in enumerate(("running", "waiting", "kv_cache_pct"), 1):
        theirs = np.interp(inside[:, 0], ticks["t"], ticks[name])
        found[name] = {
            "mean_difference": float(np.abs(inside[:, column] - theirs).mean()),
            "bias": float((inside[:, column] - theirs).mean()),
            "recorded_mean": float(theirs.mean()),
            "correlation": float(np.corrcoef(inside[:, column], theirs)[0, 1]),
        }
    return found


def _columns(rows: csv.DictReader[str]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for row in rows:
        for key, value in row.items():
            found.setdefault(key, []).append(float(value))
    return found


def _sha(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _value(found: Sequence[Errors], metric: str, statistic: str) -> float:
    (one,) = (e for e in found if e.metric == metric)
    return float(getattr(one, statistic).value)


def _bar(found: Sequence[Errors], metric: str, statistic: str, most: float) -> Bar:
    (one,) = (e for e in found if e.metric == metric)
    spread: Spread = getattr(one, statistic)
    return Bar(_what(metric, statistic), abs(100 * spread.value), most, interval=spread.percent())


def _what(metric: str, statistic: str) -> str:
    words = {"mean": "error per request, mean size", "of_means": "error of the mean"}
    return f"{metric}, {words[statistic]}, nothing fitted"


def _validation(found: Sequence[Errors], metric: str, statistic: str) -> Validation:
    (one,) = (e for e in found if e.metric == metric)
    words = {"mean": "mean error per request", "of_means": "error of the mean"}[statistic]
    error = round(abs(_value(found, metric, statistic)), 5)
    return Validation(MODEL, GPU, metric, words, error, one.n, "nothing", AGAINST)


def _page(
    found: Sequence[Errors],
    varied: Mapping[str, Sequence[Errors]],
    counts: Mapping[str, Mapping[str, int]],
    series: Mapping[str, Any],
    n: int,
) -> str:
    errors_of = [
        f"| {e.metric} | {e.n} | {e.mean} | {e.median} | {e.largest:.0%} | {_signed(e)} |" for e in found
    ]
    every = {"as it is": found, **varied}
    lines = [
        _SETTING.format(n=n),
        "| | requests | error per request: mean | median | largest | error of the mean |",
        "|---|---:|---:|---:|---:|---:|",
        *errors_of,
        _ENGINES,
        "| step times | E2E mean | TTFT of the mean | TPOT of the mean | preemptions | requests preempted |",
        "|---|---:|---:|---:|---:|---:|",
        *(_varied_row(words, rows, counts[words]) for words, rows in every.items()),
        _ALONE.format(samples=series["samples"]),
        "| | recorded mean | mean size of the difference | bias | correlation |",
        "|---|---:|---:|---:|---:|",
        *(_series_row(name, series[name]) for name in ("running", "waiting", "kv_cache_pct")),
        _LIMITS,
    ]
    return "\n".join(lines)


_SETTING = """\
{n} ShareGPT requests, Llama-3.1-8B in bf16, vLLM 0.19 with 2 588 KV blocks (one of which it keeps to
itself), 256 seqs and a budget of 2 048: far too little KV, so that most of the time is spent waiting.
Recording and kernel profile are LLMServingSim's (MIT). A request arrives when the engine's scheduler
learned of it (`queued_ts`); prompts share nothing. Step times come from the profile alone, and nothing is
fitted.
"""
_ENGINES = """
In brackets: 95 %, bootstrap over runs of neighbours. `reference` gives every request the same bits as
`sim`. What the errors would be if the profile were off, or read in another way:
"""
_ALONE = """
*Decode attention as if alone* leaves out what the profile measured of decoding calls beside a prefill,
which take up to twice as long there (docs/calibrate.md): adding the parts up is not enough on this card.
That was decided from the profile's own mixed batches; both are shown. The recording does not say how many
preemptions there were. The engine over time, at {samples} moments against the recorder's ticks of a
second:
"""
_LIMITS = """
Not modelled: asynchronous scheduling, which was on (a call is admitted, and its blocks are used again, one
step later than here); CUDA graphs and compilation (the profile is of eager kernels); time on the host.
TPOT of single requests is off by more than its mean: a preempted request that comes back a little earlier
or later spends those seconds between two of its tokens."""


def _signed(e: Errors) -> str:
    one = e.of_means
    return f"{one.value:+.2%} ({one.low:+.2%} .. {one.high:+.2%})"


def _varied_row(words: str, rows: Sequence[Errors], count: Mapping[str, int]) -> str:
    e2e, ttft, tpot = (_value(rows, m, s) for m, s, _ in BARS)
    return (
        f"| {words} | {e2e:.2%} | {ttft:+.2%} | {tpot:+.2%} | {count['preemptions']} | {count['requests']} |"
    )


def _series_row(name: str, one: Mapping[str, float]) -> str:
    words = {"running": "running", "waiting": "waiting", "kv_cache_pct": "KV in use, %"}[name]
    return (
        f"| {words} | {one['recorded_mean']:.1f} | {one['mean_difference']:.2f} | {one['bias']:+.2f} "
        f"| {one['correlation']:.4f} |"
    )


PART = Rtx4090()
