"""Every number of a result, defined once: pure functions from the event log's tables.

Frames have the columns of ``bench.tables``. Units: seconds, tokens, 16-token
blocks; shares are between 0 and 1. A program counts from its scheduled
arrival. Numbers over programs use the finished ones, in order of arrival;
numbers over calls use every call that came so far, whatever became of its program.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from bench.stats import (
    BATCHES,
    WITHIN_RUN,
    Array,
    Estimate,
    batch_mean,
    batch_quantile,
    batch_ratio,
    t_interval,
)

QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
WARM_UP = 0.2
"""Share of the arrivals' horizon before the measured window."""
MEASURED = 64
"""Fewer programs give no rates with intervals and no trend: 4 in each of 16 spans."""
COMPLETE = 0.98

Numbers = dict[str, float]
Estimates = dict[str, Estimate]


def finished(programs: pd.DataFrame) -> pd.DataFrame:
    """The finished programs in order of arrival (ties by number)."""
    done = programs[programs.outcome == "finished"]
    return done.sort_values(["t_arrive", "program"], kind="stable", ignore_index=True)


def response(done: pd.DataFrame) -> Array:
    """Program response time: end minus scheduled arrival (s)."""
    return np.asarray(done.t_end - done.t_arrive, dtype=np.float64)


def outcomes(programs: pd.DataFrame) -> dict[str, int]:
    """How many programs ended how: finished or abandoned."""
    return {str(k): int(v) for k, v in programs.outcome.value_counts().sort_index().items() if v}


def busy_window(programs: pd.DataFrame) -> tuple[float, float]:
    """First arrival and last end (s): the time in which the system had work."""
    ends = programs.t_end[np.isfinite(programs.t_end)]
    if programs.empty or ends.empty:
        return 0.0, 0.0
    return float(programs.t_arrive.min()), float(ends.max())


def throughput(programs: pd.DataFrame, calls: pd.DataFrame) -> Numbers:
    """Finished programs and calls, and output tokens, per second of the busy window: all
    that was done over all the time it took, ramp-up and drain included.

    ``arrivals_per_s``: programs per second between first and last arrival.
    """
    start, end = busy_window(programs)
    window = end - start
    if window <= 0:
        return dict.fromkeys(
            ("window_s", "programs_per_s", "calls_per_s", "output_tokens_per_s", "arrivals_per_s"), math.nan
        )
    spread = float(programs.t_arrive.max()) - start
    return {
        "window_s": window,
        "programs_per_s": float((programs.outcome == "finished").sum()) / window,
        "calls_per_s": float((~calls.aborted).sum()) / window,
        "output_tokens_per_s": float(calls.output_tokens.sum()) / window,
        "arrivals_per_s": (len(programs) - 1) / spread if spread > 0 else math.nan,
    }


def measured_window(programs: pd.DataFrame) -> tuple[float, float]:
    """[.2 H, H], H the last arrival (s): behind the ramp-up, and no drain (rules 8 and 13)."""
    if programs.empty:
        return 0.0, 0.0
    first, last = float(programs.t_arrive.min()), float(programs.t_arrive.max())
    return first + WARM_UP * (last - first), last


def measured_rates(programs: pd.DataFrame, calls: pd.DataFrame) -> Estimates:
    """What ends in the measured window, per second of it: programs, calls, and the calls' output tokens.

    Intervals: batch means over equal spans, from MEASURED programs on. The busy window of
    ``throughput`` has none: its ramp-up and drain are no samples of the same rate.
    """
    start, end = measured_window(programs)
    done, whole = programs[programs.outcome == "finished"], calls[~calls.aborted]
    events = {
        "programs_per_s": (done.t_end, None),
        "calls_per_s": (whole.t_end, None),
        "output_tokens_per_s": (calls.t_end, calls.output_tokens),
    }
    if end <= start:
        return {name: Estimate(math.nan, note="all programs arrive at once") for name in events}
    n = int(done.t_end.between(start, end).sum())
    note = f"no interval ({n} programs end in it, {MEASURED} are needed)" if n < MEASURED else ""
    return {name: _rate(times, weights, (start, end), note) for name, (times, weights) in events.items()}


def _rate(times: pd.Series, weights: pd.Series | None, window: tuple[float, float], note: str) -> Estimate:
    per_span, _ = np.histogram(times, bins=BATCHES, range=window, weights=weights)
    rates = per_span / (window[1] - window[0]) * BATCHES
    return Estimate(float(rates.mean()), note=note) if note else t_interval(rates.tolist(), WITHIN_RUN)


def program_latency(done: pd.DataFrame) -> Estimates:
    """Response time of programs: mean and percentiles (s)."""
    values = response(done)
    groups = [values[i : i + 1] for i in range(values.size)]
    return {"mean": batch_mean(values)} | {k: batch_quantile(groups, q) for k, q in QUANTILES.items()}


def seconds_per_token(done: pd.DataFrame) -> Estimates:
    """Response time over output tokens of the program (Autellix, section 6.1).

    ``mean_of_ratios`` weighs every program alike (the paper's latency; programs
    with few tokens dominate it), ``ratio_of_means`` every token alike.
    """
    some = done[done.output_tokens > 0]
    values, tokens = response(some), np.asarray(some.output_tokens, dtype=np.float64)
    ratios = values / tokens
    groups = [ratios[i : i + 1] for i in range(ratios.size)]
    return {
        "mean_of_ratios": batch_mean(ratios),
        "ratio_of_means": batch_ratio(values, tokens),
        **{k: batch_quantile(groups, q) for k, q in QUANTILES.items()},
    }


def by_program(calls: pd.DataFrame, values: pd.Series, order: Sequence[int]) -> list[Array]:
    """Values of calls as one array per program, programs in the order given."""
    programs = calls.program.to_numpy()
    index = np.argsort(programs, kind="stable")
    keys, starts = np.unique(programs[index], return_index=True)
    parts = np.split(values.to_numpy(dtype=np.float64)[index], starts[1:])
    groups = dict(zip(keys.tolist(), parts, strict=True))
    return [groups[p] for p in order if p in groups]


def call_latency(calls: pd.DataFrame, order: Sequence[int]) -> dict[str, Estimates]:
    """Per call (s): ``ttft`` submission to first token, ``tpot`` seconds per later token,
    ``response`` submission to end.

    A one-token reply has no TPOT. ``order``: program numbers in order of arrival, those that
    did not finish included: leaving out the calls of programs that gave up would hide the slowest.
    """
    first = calls[np.isfinite(calls.t_first_token)]
    longer = first[first.output_tokens > 1]
    whole = calls[~calls.aborted]
    return {
        "ttft": _over_calls(first, first.t_first_token - first.t_arrive, order),
        "tpot": _over_calls(
            longer, (longer.t_end - longer.t_first_token) / (longer.output_tokens - 1), order
        ),
        "response": _over_calls(whole, whole.t_end - whole.t_arrive, order),
    }


def _over_calls(calls: pd.DataFrame, values: pd.Series, order: Sequence[int]) -> Estimates:
    groups = by_program(calls, values, order) if len(calls) else []
    sums = np.array([g.sum() for g in groups])
    counts = np.array([float(g.size) for g in groups])
    return {"mean": batch_ratio(sums, counts)} | {k: batch_quantile(groups, q) for k, q in QUANTILES.items()}


def wait_exec(programs: pd.DataFrame) -> Numbers:
    """Waiting against execution: over all calls (the paper's objective), and on critical paths.

    ``*_share`` = wait / (wait + exec); ``*_s`` are means per finished program.
    """
    done = finished(programs)
    n = max(1, len(done))
    wait, work = float(done.wait_s.sum()), float(done.exec_s.sum())
    cp_wait = float(done.cp_wait_s.sum())
    cp_exec = float((done.cp_prefill_s + done.cp_reprefill_s + done.cp_decode_s + done.cp_swap_s).sum())
    return {
        "wait_s": wait / n,
        "exec_s": work / n,
        "wait_share": _ratio(wait, wait + work),
        "wait_per_exec": _ratio(wait, work),
        "cp_wait_s": cp_wait / n,
        "cp_exec_s": cp_exec / n,
        "cp_wait_share": _ratio(cp_wait, cp_wait + cp_exec),
        "cp_tool_s": float(done.cp_tool_s.sum()) / n,
        "cp_think_s": float(done.cp_think_s.sum()) / n,
        "cp_overhead_s": float(done.cp_overhead_s.sum()) / n,
    }


def exec_split(calls: pd.DataFrame) -> Numbers:
    """Where execution time went (shares of it): useful prefill, decode, re-prefill after a
    preemption, and KV moving to or from host memory; the last two keep recomputation and
    swapping from flattering a preemptive policy."""
    parts = {n: float(calls[f"{n}_s"].sum()) for n in ("prefill", "reprefill", "decode", "swap")}
    total = math.fsum(parts.values())
    return {n: _ratio(v, total) for n, v in parts.items()}


def kv_hits(calls: pd.DataFrame) -> Numbers:
    """Over prompt tokens of admitted calls: ``hit_rate``, the prefix-cache hits of first
    admissions, and ``computed``, prefill tokens that were computed. The two sum to more than 1
    by what preemption made the engine compute again, replies included."""
    admitted = calls[np.isfinite(calls.t_first_sched)]
    prompt = float(admitted.prompt_tokens.sum())
    computed = float(admitted.prefill_tokens.sum() + admitted.reprefill_tokens.sum())
    return {
        "hit_rate": _ratio(float(admitted.cached_tokens.sum()), prompt),
        "computed": _ratio(computed, prompt),
    }


def preemptions(calls: pd.DataFrame, totals: pd.DataFrame) -> Numbers:
    """Preemptions, split into ``displaced`` (by a better level) and ``evicted`` (no KV left),
    demotions and promotions: totals, and preemptions per call and share of calls hit."""
    n = len(calls)
    total = float(calls.preemptions.sum())
    return {
        "total": total,
        "per_call": _ratio(total, n),
        "share_of_calls": _ratio(float((calls.preemptions > 0).sum()), n),
        "displaced": float(totals.displaced.sum()),
        "evicted": float(totals.evicted.sum()),
        "demotions": float(calls.demotions.sum()),
        "promotions": float(calls.promotions.sum()),
    }


def utilisation(totals: pd.DataFrame, window: float, kv_blocks: int) -> Numbers:
    """Shares of the busy window: ``busy`` = time in steps, ``kv`` = block-seconds in use
    over block-seconds there; means over engines."""
    room = window * len(totals)
    return {
        "busy": _ratio(float(totals.busy_s.sum()), room),
        "kv": _ratio(float(totals.kv_block_seconds.sum()), room * kv_blocks),
    }


def level_occupancy(calls: pd.DataFrame) -> dict[str, float]:
    """Share of the finished calls by the level in which they finished."""
    shares = calls[~calls.aborted].level.value_counts(normalize=True).sort_index()
    return {str(level): float(share) for level, share in shares.items()}


def trend(programs: pd.DataFrame) -> dict[str, object]:
    """Is the load sustained (rules 8 and 13)? ``verdict``: growing, steady, unclear, or too short.

    ``growth_per_s``: programs that came less those that left, per second of the measured
    window; its interval is that of the means of equal spans. (Backlogs of neighbouring spans
    depend on each other: a line fitted to them calls a third of the steady runs at 95 % load
    growing. Their changes do not, or cancel, which only widens the interval.)
    Growing: the interval is above 0. Steady: it is not, and of as many programs as came
    (at least) 98 % left. Unclear: anything else.
    """
    start, end = measured_window(programs)
    if len(programs) < MEASURED or end <= start:
        return {"verdict": "too short", "growth_per_s": math.nan, "completed_share": math.nan}
    came, _ = np.histogram(programs.t_arrive, bins=BATCHES, range=(start, end))
    left, _ = np.histogram(programs.t_end, bins=BATCHES, range=(start, end))
    growth = t_interval(((came - left) / (end - start) * BATCHES).tolist(), WITHIN_RUN)
    share = float(left.sum()) / max(1, int(came.sum()))
    steady = "steady" if share >= COMPLETE else "unclear"
    return {
        "verdict": "growing" if growth.low > 0 else steady,
        "growth_per_s": growth.value,
        "growth_low": growth.low,
        "growth_high": growth.high,
        "completed_share": share,
    }


def in_system(programs: pd.DataFrame, window: tuple[float, float]) -> float:
    """Time average of programs in the system over a window (s)."""
    start, end = window
    stay = programs.t_end.clip(upper=end) - programs.t_arrive.clip(lower=start)
    return _ratio(float(stay.clip(lower=0.0).sum()), end - start)


def littles_law(programs: pd.DataFrame) -> Numbers:
    """N = X R in the measured window: programs in the system against throughput times response.

    N is a time average; X counts the programs that end in the window and R is their mean
    response, so the sides agree only as far as the window is long and the load even.
    """
    start, end = window = measured_window(programs)
    gone = programs[programs.t_end.between(start, end)]
    rate = _ratio(float(len(gone)), end - start)
    mean = float((gone.t_end - gone.t_arrive).mean()) if len(gone) else math.nan
    return {
        "programs": in_system(programs, window),
        "programs_per_s": rate,
        "response_s": mean,
        "product": rate * mean,
    }


def _ratio(top: float, bottom: float) -> float:
    return top / bottom if bottom else math.nan
