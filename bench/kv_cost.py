"""What the KV of each engine was used for: token-seconds, every one of them counted once.

ThunderAgent's cost model (arXiv 2602.13692, section 3): capacity x time is decode + prefill (useful) +
recompute + caching + unused (overhead). Computed from the event log; a test integrates the reference engine
step by step and compares. In token-seconds (16 tokens a block), over the busy window:

* **In use** (decode + prefill + recompute) is exact: ``kv_block_seconds`` of the totals, in which a block
  that several calls share is counted once. How it divides is by each call's own phases: what the call held
  (its context; in a prefill of k chunks what was there after each of them) times the seconds of the phase.
  These are scaled to the exact sum, so sharing takes from all phases alike; ``overlap`` is the factor.
* **Recompute**: all of re-prefill, and the share of a first prefill that computed ``lost`` tokens: whole
  blocks of what the thread's call before left (of a thread's first call, of the longest call that it
  followed), less the prefix hits. A prompt that was rewritten makes that too many: ``most_lost``, what an
  infinite cache would have found besides, caps the sum.
* **Caching**: KV of threads that are away or wait, from the end of a call to the first step of the next
  (after a program's last call, to its end), on the engine of the call before; without what the thread's
  first call found, which others had computed. What the next call found was there all the time
  (``caching_low``), and more than the whole context never was (``caching_high``, at most all free blocks with
  content, by the engine's samples): exact bounds where threads share nothing and nobody is preempted. Between
  the two an estimate: when the rest went nobody saw, so the share that is still there is estimated from all
  returns of the engine (``survival``). ``acting`` is the part of it before the next call arrives.
* **Unused** is the rest: free blocks without content, or with that of programs that are over, of branches
  that have ended, of preempted calls until they are admitted again, and in engines that a program has left.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd

from bench.metrics import busy_window
from bench.stats import Array
from vocabulary import BLOCK

PARTS = ("decode", "prefill", "recompute", "caching", "unused")
"""They sum to the capacity."""
BOUNDS = ("caching_low", "caching_high", "acting")
LOOKS = 16
"""Moments of a stay at which the estimate asks what is still there."""


class Survival(NamedTuple):
    """Share of what a call left that is still cached at some ages; straight between the points.

    An age is the number of tokens computed in the engine since then: content goes when others need its room.
    """

    ages: Array
    shares: Array

    def at(self, age: Array) -> Array:
        """The share at some ages (tokens)."""
        return np.interp(age, self.ages, self.shares)


def survival(ages: Array, shares: Array, weights: Array) -> Survival:
    """The curve closest to ``shares`` seen at ``ages`` (tokens), that never rises (isotonic regression).

    Each return is seen once, at its age: current-status data, whose maximum-likelihood curve this is.
    At age 0 everything is there. Without a return it stays there.
    """
    from scipy.optimize import isotonic_regression

    if not ages.size:
        return Survival(np.zeros(1), np.ones(1))
    at, place = np.unique(ages, return_inverse=True)
    weight = np.bincount(place, weights)
    mean = np.bincount(place, weights * shares) / weight
    fitted = isotonic_regression(mean, weights=weight, increasing=False).x
    return Survival(np.concatenate([[0.0], at]), np.concatenate([[1.0], np.clip(fitted, 0.0, 1.0)]))


class Computed(NamedTuple):
    """Tokens computed in an engine up to some times (s)."""

    times: Array
    tokens: Array

    @classmethod
    def of(cls, rows: pd.DataFrame) -> Computed:
        """By its calls: a prefill when first scheduled, a reply half at its first token, half at its end."""
        half = rows.output_tokens / 2
        first = rows.t_first_token.where(np.isfinite(rows.t_first_token), rows.t_end)
        times = np.concatenate([rows.t_first_sched, first, rows.t_end])
        tokens = np.concatenate([rows.prefill_tokens + rows.reprefill_tokens, half, half])
        order = np.argsort(times, kind="stable")
        return cls(times[order], np.concatenate([[0.0], np.cumsum(tokens[order])]))

    def before(self, time: Array) -> Array:
        """Tokens computed before some times (s)."""
        return self.tokens[np.searchsorted(self.times, time, side="left")]


def chains(calls: pd.DataFrame) -> pd.DataFrame:
    """The calls that were ever admitted, by program, thread and index, with what came before.

    ``left``: tokens of whole blocks that the call leaves in the cache. ``before_left``, ``before_end``,
    ``before_engine``: of the thread's call before (NaN for its first). ``had``: tokens of its prompt that its
    program had computed before; ``lost``: those of them that it did not find. ``foreign``: tokens that its
    program's first call found.
    """
    rows = calls[np.isfinite(calls.t_first_sched)].sort_values(
        ["program", "thread", "index"], kind="stable", ignore_index=True
    )
    rows["left"] = (rows.prompt_tokens + rows.output_tokens - 1).clip(lower=0) // BLOCK * BLOCK
    same = (rows.program == rows.program.shift()) & (
        rows.thread.astype(str) == rows.thread.astype(str).shift()
    )
    for name, of in (("left", "left"), ("end", "t_end"), ("engine", "engine")):
        rows[f"before_{name}"] = rows[of].shift().where(same)
    had = rows.before_left.fillna(_followed(rows, ~same))
    rows["had"] = np.minimum(had, (rows.prompt_tokens - 1) // BLOCK * BLOCK)
    rows["lost"] = np.minimum((rows.had - rows.cached_tokens).clip(lower=0), rows.prefill_tokens)
    rows["foreign"] = rows.groupby(["program", "thread"], observed=True).cached_tokens.transform("first")
    return rows


def _followed(rows: pd.DataFrame, first: pd.Series) -> pd.Series:
    """What the longest call left that a thread's first call followed; 0 for all others."""
    starts = rows[first & (rows.parents.astype(str) != "")]
    found = pd.Series(0.0, index=rows.index)
    if starts.empty:
        return found
    keys = zip(rows.program, rows.thread.astype(str), rows["index"], strict=True)
    left = dict(zip(keys, rows.left, strict=True))
    for at, program, parents in zip(starts.index, starts.program, starts.parents.astype(str), strict=True):
        found[at] = max(left.get((program, *_call_id(parent)), 0) for parent in parents.split(" "))
    return found


def _call_id(text: str) -> tuple[str, int]:
    thread, _, index = text.rpartition("#")
    return thread, int(index)


def held(rows: pd.DataFrame, most_lost: float = math.inf) -> pd.DataFrame:
    """Token-seconds that each call of ``chains`` held while it ran: ``decode``, ``prefill``, ``recompute``.

    ``most_lost``: tokens, the most that ``lost`` can be in all. Swapping counts as decode.
    """
    lost = rows.lost * min(1.0, most_lost / max(1.0, float(rows.lost.sum())))
    again = rows.preemptions.clip(lower=0)
    chunks = ((rows.steps - rows.output_tokens + 1 + again) / (1 + again)).clip(lower=1)
    shape = (1 - 1 / chunks) / 2  # of what a prefill computes, the mean share that is not there yet
    context = rows.prompt_tokens + rows.output_tokens / 2
    first = (rows.cached_tokens + rows.prefill_tokens * (1 - shape)) * rows.prefill_s
    share = (lost / rows.prefill_tokens.clip(lower=1)).clip(upper=1)
    each = rows.reprefill_tokens / again.clip(lower=1)
    return pd.DataFrame(
        {
            "decode": context * (rows.decode_s + rows.swap_s),
            "prefill": first * (1 - share),
            "recompute": first * share + (context - each * shape).clip(lower=0) * rows.reprefill_s,
        }
    )


def away(rows: pd.DataFrame, programs: pd.DataFrame) -> pd.DataFrame:
    """Every stay of a thread's KV between two of its calls.

    ``engine``, ``start`` (end of the call before), ``arrived`` (the next call did), ``end`` (its first step),
    ``own`` (tokens left there, less ``foreign``), ``kept`` (of these found by the next call; NaN where nobody
    looked).
    """
    back = rows[rows.before_left.notna()]
    own = (back.before_left - back.foreign).clip(lower=0)
    kept = np.minimum((back.cached_tokens - back.foreign).clip(lower=0), own)
    stays = pd.DataFrame(
        {
            "engine": back.before_engine,
            "start": back.before_end,
            "arrived": back.t_arrive,
            "end": back.t_first_sched,
            "own": own,
            "kept": kept.where(back.engine == back.before_engine),
        }
    )
    stays = pd.concat([stays, _last(rows, programs)], ignore_index=True)
    return stays[(stays.own > 0) & (stays.end > stays.start)].reset_index(drop=True)


def _last(rows: pd.DataFrame, programs: pd.DataFrame) -> pd.DataFrame:
    """What a program's last call left, until the program is over: nobody looked."""
    last = rows.loc[rows.groupby("program").t_end.idxmax()]
    ends = last.program.map(programs.set_index("program").t_end)
    own = (last.left - last.foreign).clip(lower=0)
    found = {"engine": last.engine, "start": last.t_end, "arrived": ends, "end": ends, "own": own}
    return pd.DataFrame({**found, "kept": np.nan})[np.isfinite(ends)]


def caching(stays: pd.DataFrame, computed: Computed) -> dict[str, float]:
    """Token-seconds of the stays in one engine: the estimate ``caching``, and BOUNDS."""
    start, end, own, kept = (stays[n].to_numpy(dtype=float) for n in ("start", "end", "own", "kept"))
    began = computed.before(start)
    ages, seen = computed.before(end) - began, np.isfinite(kept)
    curve = survival(ages[seen], kept[seen] / own[seen], own[seen])
    last = curve.at(ages)
    rest = np.where(seen, kept, own * last)

    def held(until: Array) -> float:
        """Token-seconds up to ``until``: what was there at the end, and what was lost while it was."""
        gone = np.maximum(1 - last, 1e-12)
        there = np.zeros_like(own)
        for moment in (np.arange(LOOKS) + 0.5) / LOOKS:
            share = curve.at(computed.before(start + moment * (until - start)) - began)
            there += np.clip(np.where(last < 1, (share - last) / gone, 0.5), 0, 1) / LOOKS
        return float(((rest + (own - rest) * there) * (until - start)).sum())

    return {
        "caching": held(end),
        "caching_low": float((np.where(seen, kept, 0.0) * (end - start)).sum()),
        "caching_high": float((own * (end - start)).sum()),
        "acting": held(np.clip(stays.arrived.to_numpy(dtype=float), start, end)),
    }


def account(
    programs: pd.DataFrame,
    rows: pd.DataFrame,
    samples: pd.DataFrame,
    totals: pd.DataFrame,
    kv_blocks: int,
    most_lost: float = math.inf,
) -> pd.DataFrame:
    """One row per engine: ``engine``, ``capacity``, PARTS, BOUNDS (token-seconds) and ``overlap``.

    ``rows``: the calls' ``chains``; ``kv_blocks``: of each engine; ``most_lost``: see ``held``.
    Empty where nothing ran. NaN but for the capacity where the engine does not say what is in use.
    """
    start, end = busy_window(programs)
    if end <= start or rows.empty:
        return pd.DataFrame(columns=["engine", "capacity", *PARTS, *BOUNDS, "overlap"])
    running, stays = held(rows, most_lost), away(rows, programs)
    capacity = float(kv_blocks * BLOCK) * (end - start)
    return pd.DataFrame(list(_engines(rows, running, stays, samples, totals, capacity)))


def _engines(
    rows: pd.DataFrame,
    running: pd.DataFrame,
    stays: pd.DataFrame,
    samples: pd.DataFrame,
    totals: pd.DataFrame,
    capacity: float,
) -> Iterator[dict[str, float]]:
    for engine, block_seconds in zip(totals.engine, totals.kv_block_seconds, strict=True):
        in_use = BLOCK * float(block_seconds) or math.nan
        phases = running[rows.engine == engine].sum()
        raw = float(phases.sum())
        made = {name: float(v) * in_use / raw if raw else 0.0 for name, v in phases.items()}
        free = min(capacity - in_use, _with_content(samples[samples.engine == engine]))
        here = rows[rows.engine == engine]
        cached = _capped(caching(stays[stays.engine == engine], Computed.of(here)), free)
        yield {
            "engine": int(engine),
            "capacity": capacity,
            **{str(name): v for name, v in made.items()},
            **cached,
            "unused": capacity - in_use - cached["caching"],
            "overlap": raw / in_use if raw else math.nan,
        }


def _with_content(samples: pd.DataFrame) -> float:
    """Token-seconds of free blocks with content, by the samples; infinite for an engine that never says."""
    if len(samples) < 2 or not samples.kv_cached.any():
        return math.inf
    return BLOCK * float(np.trapezoid(samples.kv_cached, samples.time))


def _capped(found: dict[str, float], most: float) -> dict[str, float]:
    """No more than there was room for; what is part of the whole shrinks with it."""
    if math.isnan(most):
        return dict.fromkeys(found, math.nan)
    shrink = min(1.0, most / found["caching"]) if found["caching"] else 1.0
    return {
        "caching": found["caching"] * shrink,
        "caching_low": min(found["caching_low"], most),
        "caching_high": min(found["caching_high"], most),
        "acting": found["acting"] * shrink,
    }


def numbers(found: pd.DataFrame, calls: pd.DataFrame, window_s: float) -> dict[str, float]:
    """All engines together: parts and bounds as shares of the capacity, and token-seconds per step.

    A step is a call that finished, with the tool that it asks for. ``unused_low`` and ``unused_high`` follow
    from the bounds of caching; ``acting_tokens``: KV of threads that are in a tool, on average over the
    window, all engines together; ``overlap``: see the head of this file.
    """
    sums = found[["capacity", *PARTS, *BOUNDS]].sum(skipna=False)
    capacity, steps = float(sums.capacity), int((~calls.aborted).sum())
    share = {name: _ratio(float(sums[name]), capacity) for name in (*PARTS, *BOUNDS)}
    in_use = share["decode"] + share["prefill"] + share["recompute"]
    return {
        **share,
        "unused_low": 1 - in_use - share["caching_high"],
        "unused_high": 1 - in_use - share["caching_low"],
        **{f"{name}_per_step": _ratio(float(sums[name]), steps) for name in PARTS},
        "acting_tokens": _ratio(float(sums.acting), window_s),
        "overlap": float(found.overlap.mean()),
    }


def _ratio(top: float, bottom: float) -> float:
    return top / bottom if bottom else math.nan
