"""The numbers of one run in one window, from its event log.

The window is [warm-up, warm-up + length], cut where the backlog is empty: from then on fewer programs
run than the loop has places. A step is one call and what follows it until the thread calls again; it counts
where its call ends. Times in seconds, contexts in tokens. A window that lost more than half of its length
measures something else than it was to: it has no numbers (``enough``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from bench.balance import imbalance
from bench.errors import MissingError
from bench.metrics import in_system
from bench.stats import too_small
from bench.steps import per_minute, steps, under_way
from vocabulary import BLOCK

CALLS = ["program", "thread", "index", "prompt_tokens", "output_tokens", "cached_tokens", "prefill_tokens",
         "reprefill_tokens", "t_arrive", "t_first_sched", "t_end", "wait_s", "hold_s", "aborted"]  # fmt: skip
PROGRAMS = ["program", "t_arrive", "t_end", "outcome", "calls"]
ENGINE = ["time", "engine", "kv_used"]
LONG_HOLD = 600.0
SHORT = 0.5
"""A window that covers less than this share of the length asked for is no window."""

Numbers = dict[str, float]


class Log(NamedTuple):
    """The columns of a run's event log that windows need."""

    programs: pd.DataFrame
    calls: pd.DataFrame
    engine: pd.DataFrame


class Window(NamedTuple):
    """From ``start`` to ``end`` (s); ``asked``: how long it was to be."""

    start: float
    end: float
    asked: float

    @property
    def seconds(self) -> float:
        """Its length; 0 where the backlog was empty before it began."""
        return max(0.0, self.end - self.start)

    @property
    def covered(self) -> float:
        """Share of the length asked for."""
        return self.seconds / self.asked

    @property
    def enough(self) -> bool:
        """Whether its numbers count. If not, the programs ran out: steps were faster than was expected."""
        return self.covered >= SHORT


def read(folder: Path) -> Log:
    """The log in a run's folder. Raises MissingError."""
    return Log(
        *(_frame(folder, n, c) for n, c in (("programs", PROGRAMS), ("calls", CALLS), ("engine", ENGINE)))
    )


def _frame(folder: Path, name: str, columns: list[str]) -> pd.DataFrame:
    path = folder / f"{name}.parquet"
    try:
        frame: pd.DataFrame = pq.ParquetFile(path).read(columns=columns).to_pandas()
    except (OSError, pa.ArrowException) as error:
        raise MissingError(f"cannot read {path}: {error}; run it again with --force") from None
    return frame


def window_of(programs: pd.DataFrame, warm_up: float, length: float) -> Window:
    """The window of a run: it ends with the last arrival at the latest."""
    last = float(programs.t_arrive.max()) if len(programs) else 0.0
    return Window(warm_up, min(warm_up + length, last), length)


def numbers(
    log: Log, window: Window, capacity: float, replicas: int = 1, shared: int = 0, place: float | None = None
) -> Numbers:
    """Every quantity of ``QUANTITIES`` that a log gives; ``capacity``: KV tokens of all engines together,
    ``shared``: tokens that every context begins with and a cache holds once on each engine, ``place``:
    programs at a time of a closed loop. A window that is too short gives those of the whole run only."""
    every = steps(log.programs, log.calls)
    calls = log.calls.assign(until=every.end)
    here = calls[~calls.aborted & calls.t_end.between(window.start, window.end)]
    found = _whole(log)
    if not window.enough or here.empty:
        return found
    return (
        found
        | _balance(log.engine, window, round(capacity / replicas / BLOCK))
        | _steps(here, window)
        | _loop(calls, here, window, capacity, shared, replicas)
        | {"little": _little(log, every, window, place)}
        | _waits(calls, window)
    )


def _steps(here: pd.DataFrame, window: Window) -> Numbers:
    latency = (here.t_end - here.t_arrive).to_numpy()
    prompt, output = float(here.prompt_tokens.sum()), float(here.output_tokens.sum())
    computed = float(here.prefill_tokens.sum() + here.reprefill_tokens.sum())
    return {
        "steps_per_min": per_minute(here, (window.start, window.end)).value,
        "calls_per_s": len(here) / window.seconds,
        "hit": float(here.cached_tokens.sum()) / prompt,
        "latency": float(latency.mean()),
        "latency_p99": quantile(latency, 0.99),
        "recompute": computed / len(here),
        "tokens_per_s": (prompt + output) / window.seconds,
        "output_per_s": output / window.seconds,
    }


def _loop(
    calls: pd.DataFrame, here: pd.DataFrame, window: Window, capacity: float, shared: int, replicas: int
) -> Numbers:
    """The mean cycle, the threads that are in one, and what their contexts are of KV."""
    cycle = float((here.until - here.t_arrive).mean())
    stay = (calls.until.clip(upper=window.end) - calls.t_arrive.clip(lower=window.start)).clip(lower=0.0)
    threads = float(stay.sum()) / window.seconds
    own = float((stay * (calls.prompt_tokens + calls.output_tokens - shared)).sum()) / window.seconds
    return {
        "cycle": cycle,
        "in_loop": threads,
        "pressure": (own + shared * replicas) / capacity,
    }


def _little(log: Log, every: pd.DataFrame, window: Window, place: float | None) -> float:
    """Steps/s x cycle over the programs that the loop was asked to hold (``place``; open loop: that are in
    the system): nothing of the right side is from the calls. NaN where programs have several threads: each
    is in a step then."""
    if (log.calls.thread.astype(str) != "").any():
        return math.nan
    span = (window.start, window.end)
    there = in_system(log.programs, span) if place is None else place
    return under_way(every, span) / there if there else math.nan


def _waits(calls: pd.DataFrame, window: Window) -> Numbers:
    """Of calls that came in the window and have left, given up ones included: they waited, too."""
    came = calls[calls.t_arrive.between(window.start, window.end)]
    if came.empty:
        return {}
    longest = came.groupby("program").hold_s.max()
    return {
        "wait_p99": quantile(came.wait_s.to_numpy(), 0.99),
        "hold_p99": quantile(came.hold_s.to_numpy(), 0.99),
        "hold_max": float(came.hold_s.max()),
        "held_over_600": float((longest > LONG_HOLD).mean()),
    }


def _whole(log: Log) -> Numbers:
    """The whole run: fixed work, programs, first responses by size of their first prompt."""
    done = log.programs[log.programs.outcome == "finished"]
    if done.empty:
        return {}
    makespan = float(log.programs.t_end.max() - log.programs.t_arrive.min())
    times = (done.t_end - done.t_arrive).to_numpy()
    first = log.calls[(log.calls["index"] == 0) & (log.calls.thread == "") & ~log.calls.aborted]
    small = first.prompt_tokens <= first.prompt_tokens.median()
    reply = first.t_end - first.t_arrive
    return {
        "makespan": makespan,
        "work_per_min": 60 * float((~log.calls.aborted).sum()) / makespan,
        "program_s": float(times.mean()),
        "program_p99": quantile(times, 0.99),
        "first_small": float(reply[small].mean()),
        "first_large": float(reply[~small].mean()),
    }


def _balance(engine: pd.DataFrame, window: Window, blocks: int) -> Numbers:
    """How far apart the engines' KV in use is, by their samples in the window."""
    inside = engine[engine.time.between(window.start, window.end)]
    if inside.engine.nunique() < 2:
        return {}
    found = imbalance(inside, blocks)
    return {"imbalance": found["max"], "imbalance_minutes": found["share_over_20"]}


def quantile(values: Any, q: float) -> float:
    """A percentile over steps, NaN where there are too few for one."""
    return math.nan if too_small(len(values), q) else float(np.quantile(values, q))


def beside(summary: Mapping[str, Any]) -> Numbers:
    """What sandboxes cost and what retention regrets, where the run had them: of its summary.

    Regret needs the decisions in the log (``engine.record_decisions``).
    """
    found: Numbers = {}
    if sandboxes := summary.get("environment"):
        programs = sum(summary["outcomes"].values())
        found["env_wait"] = float(sandboxes["init_wait_s"]) / max(1, programs)
        found["env_prepare"] = float(sandboxes["prepare_s"]) / max(1.0, float(sandboxes["prepared"]))
        found["peak_disk_gb"] = float(sandboxes["peak_disk_gb"])
    regret = summary["metrics"].get("keep.regret", {}).get("value")
    return found | ({} if regret is None else {"regret": float(regret)})
