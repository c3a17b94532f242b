"""c: published operating points of a 70B model on H100s; two numbers for all of them, errors held out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.calibration.calibrate import Fitted, by_size, calibrate
from bench.calibration.errors import Errors, errors
from bench.calibration.readers.operating_points import READER
from bench.calibration.recordings import Points
from bench.calibration.subject import Loops, saturated, spelled, subject
from bench.fidelity.part import Bar, Options, Outcome, Say
from systems.latency.validation import NOTHING, Validation
from vocabulary import BLOCK

Array = NDArray[np.float64]

MODEL, GPU = "llama-3.1-70b-fp8", "h100"
FILE = Path("silicon") / "llama-3.1-70b-fp8-vllm-h100.csv"
BARS = (("TPOT", "mean", 8.5), ("TTFT", "median", 15.0))
AGAINST = "published vLLM points of the 70B in FP8 on 2, 4 and 8 H100s (InferenceMAX, October 2025)"
FITTED = "scale and ms per step for all points, 3-fold held out"
SEEDS = (2, 3)


class Silicon:
    """One scale and one ms per step for TP 2, 4 and 8, fitted on TTFT and TPOT together."""

    name = "c-silicon"
    title = "c. Published points of a 70B model on H100s"
    cost = "a file of published points; about 3 minutes of one core"

    def missing(self, options: Options) -> str:
        """Which file it lacks."""
        return "" if (options.data / FILE).is_file() else f"no file {options.data / FILE} (give --data)"

    def run(self, options: Options, say: Say) -> Outcome:
        """Compare. Raises BenchError."""
        points = READER.read(options.data / FILE)
        loops = subject(points, MODEL, GPU, {})
        assert isinstance(loops, Loops)
        loops = replace(loops, seed=options.seed)
        say("fitting: 3 folds, then all")
        found = calibrate(loops, 0.0)
        say("other lengths, fixed lengths")
        others = {} if options.quick else _others(loops, points)
        sizes, bare = by_size(loops, found), by_size(loops, found, raw=True)
        held = {(e.metric, s): getattr(e, s) for e in found.held for s in ("mean", "median")}
        return Outcome(
            [
                Bar(f"{m}, held out, {s} size", 100 * held[m, s].value, most, interval=held[m, s].percent())
                for m, s, most in BARS
            ],
            _page(found, loops, others),
            found.as_json()
            | {"protocol": points.protocol, "rows": _rows(found, loops)}
            | {"by_size": _plain(sizes), "raw_by_size": _plain(bare), "other": _plain(others)}
            | {"with_saturated": [one.as_json() for one in _every(found, loops)]},
            {
                "points sha256": str(points.facts.source["sha256"])[:12],
                "tables": ", ".join(f"{m.name} {m.digest[:8]}" for m in loops.latencies.values()),
                "folds": "row number mod 3",
            },
            [
                _validation(spelled(loops.latencies[tp]), rows, metric, statistic, fitted)
                for tp in sizes
                for fitted, rows in ((NOTHING, bare[tp]), (FITTED, sizes[tp]))
                for metric, statistic, _ in BARS
            ],
        )


def _plain(found: Mapping[Any, Sequence[Errors]]) -> dict[str, list[dict[str, Any]]]:
    return {str(key): [one.as_json() for one in rows] for key, rows in found.items()}


def _every(found: Fitted, loops: Loops) -> list[Errors]:
    """Errors of all points: held out where they are fitted, with the final fit where they are saturated."""
    usable = np.asarray(loops.usable)
    rest = np.setdiff1d(np.arange(len(loops.measured)), usable)
    final = loops.simulate(found.final.scale, found.final.extra_ms, rest).reshape(-1, 3)
    rows = np.concatenate([usable, rest])
    return errors(np.concatenate([found.simulated, final]), loops.measured[rows], 1)


def _others(loops: Loops, points: Points) -> dict[str, list[Errors]]:
    """Raw errors (nothing fitted) where the protocol is another, or other lengths are drawn."""
    fixed = replace(points, points=[point._replace(ratio=1.0) for point in points.points])
    variants = {f"lengths of seed {seed}": replace(loops, seed=seed) for seed in SEEDS}
    variants["all prompts isl, all replies osl long"] = replace(loops, points=fixed)
    usable = np.asarray(loops.usable)
    found = {
        words: errors(one.simulate(1.0, 0.0, usable), loops.measured[usable], 1)
        for words, one in variants.items()
    }
    tight = np.array([i for i, p in enumerate(points.points) if p.tp == 2 and saturated(p, _half(loops))])
    for words, blocks in (("as it is", 2 * _half(loops)), ("half the KV blocks", _half(loops))):
        one = replace(loops, limits={"kv_blocks": blocks})
        times = one.simulate(1.0, 0.0, tight)
        found[f"{len(tight)} points that fill a 16-bit cache, {words}"] = errors(
            times, loops.measured[tight], 1
        )
    return found


def _half(loops: Loops) -> int:
    """Blocks on two GPUs if KV took twice the bytes."""
    return loops.latencies[2].kv_blocks // 2


def tokens_of(loops: Loops) -> int:
    """Tokens of KV on two GPUs."""
    return loops.latencies[2].kv_blocks * BLOCK


def in_use(points: Points) -> list[float]:
    """Mean tokens of KV in use at the points with long prompts and 32 or more requests on two GPUs.

    By Little's law: of a loop's requests the share decode / (TTFT + decode) is in the batch, each with its
    prompt and half of its reply.
    """
    found = []
    for p in sorted(points.points):
        if (p.tp, p.isl) == (2, 8192) and p.concurrency >= 32:
            prompt, reply = (length * (1 + p.ratio) / 2 for length in (p.isl, p.osl))
            decode = p.tpot * reply
            found.append(p.concurrency * decode / (p.ttft + decode) * (prompt + reply / 2))
    return found


def _rows(found: Fitted, loops: Loops) -> list[dict[str, Any]]:
    """Every point: measured, raw and held out (s); saturated ones with the final fit."""
    rest = np.setdiff1d(np.arange(len(loops.measured)), np.asarray(loops.usable))
    numbers = np.concatenate([np.asarray(loops.usable), rest])
    final = found.final
    held = np.concatenate([found.simulated, loops.simulate(final.scale, final.extra_ms, rest)])
    bare = np.concatenate([found.bare, loops.simulate(1.0, 0.0, rest)])
    return [
        {
            "row": int(row),
            **{k: getattr(loops.points.points[row], k) for k in ("isl", "osl", "concurrency", "tp")},
            "saturated": bool(row in rest),
            "measured_s": [float(x) for x in loops.measured[row, :2]],
            "raw_s": [float(x) for x in bare[i, :2]],
            "calibrated_s": [float(x) for x in held[i, :2]],
        }
        for i, row in enumerate(numbers)
    ]


def _page(found: Fitted, loops: Loops, others: dict[str, list[Errors]]) -> str:
    usable, every = len(loops.usable), len(loops.measured)
    final = found.final
    lines = [
        _SETTING.format(every=every, protocol=loops.points.protocol, apart=every - usable),
        f"**One pair for the other {usable}: scale {final.scale:.4g}, {final.extra_ms:+.3g} ms per step.**",
        _LOSS.format(fits=_fits(found)),
        "| | rows | TTFT: mean size | median | of means | TPOT: mean size | median | of means |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
        _errors_row("nothing fitted", found.raw),
        _errors_row("held out", found.held),
        *(_errors_row(f"held out, {tp} GPUs", rows) for tp, rows in by_size(loops, found).items()),
        *(
            _errors_row(f"nothing fitted, {tp} GPUs", rows)
            for tp, rows in by_size(loops, found, raw=True).items()
        ),
        _errors_row("saturated, nothing fitted", found.apart_raw),
        _errors_row("saturated, with the pair", found.apart),
        *(_errors_row(f"nothing fitted, {words}", rows) for words, rows in others.items()),
        _with_saturated(_every(found, loops), every),
        _KV.format(
            used=" and ".join(f"{tokens / 1e3:.0f}" for tokens in in_use(loops.points)),
            fp8=tokens_of(loops) / 1e3,
            half=tokens_of(loops) / 2e3,
        ),
        _LEFT,
    ]
    return "\n".join(lines)


_SETTING = """\
{every} points of Llama-3.1-70B in FP8 on 2, 4 and 8 H100s with vLLM: closed loops of 4 to 64 requests,
prompts and replies of up to 1 024 or 8 192 tokens, mean TTFT and mean TPOT. The file does not say how they
were measured; lengths, loops, precision and date are those of the public InferenceMAX benchmark, so its
recipes of that time are replayed: {protocol},
`max-num-batched-tokens` 8 192, no prefix cache. By its author's account that was settled before any error
was computed; the commits cannot show it, so errors under other choices are in the table.

A point is *saturated* where concurrency x (isl + osl) exceeds the KV cache in tokens: {apart} points, all
on two GPUs. They are listed apart, and nothing is fitted on them.
"""
_KV = """
**The KV cache of these points.** The tables' is in FP8, as the checkpoint and the later recipes have it. The
measured points with prompts of 8 192 on two GPUs contradict that. By Little's law, from their own TTFT and
TPOT, some {used} thousand tokens of KV are in use at 32 and at 64 requests; {fp8:.0f} thousand would fit
in FP8, and {half:.0f} thousand in 16 bits. With half the blocks the simulated engine saturates where the
real one did. The rule above and the fit stay with the tables' FP8; the point that is saturated in truth and
not by the rule (8 192 / 1 024 at 32 requests on two GPUs) is the largest error among the others. This was
noticed from measured and simulated times of that point, after the first fit.
"""
_LOSS = """
It minimises the soft L1 (knee 10 %) of the log errors of TTFT and TPOT together. The rows of one residue
modulo 3 are held out at a time; the three fits are {fits}.

The optimiser was replaced after the first fit (commit 1163ecf): least-squares slopes and Nelder-Mead got
stuck on the jumps of TTFT.
"""
_LEFT = """\
Mean sizes with 95 % (bootstrap over rows). What is left depends on the number of GPUs: kernel tables are
the lower, the more GPUs share a step, since launches and all-reduces take time on the host that no kernel
table has, and one pair for all sizes misses part of that. The client's own time (HTTP, tokenizing) is in
the measured TTFT and not in ours. With all prompts and replies of one length a loop stays in step and its
requests prefill together: TTFT is then more than twice what was measured, so what a client draws matters
more than the table."""


def _with_saturated(rows: Sequence[Errors], n: int) -> str:
    held = {e.metric: e for e in rows}
    return (
        f"\nWith the saturated points (with the pair, which they had no part in) the errors of all {n} are "
        f"{held['TPOT'].mean.value:.2%} of TPOT (mean) and {held['TTFT'].median.value:.2%} of TTFT (median)."
    )


def _validation(model: str, rows: Sequence[Errors], metric: str, statistic: str, fitted: str) -> Validation:
    """With nothing fitted the bias of the means is said as well: kernels alone are too fast."""
    (one,) = (e for e in rows if e.metric == metric)
    error = round(float(getattr(one, statistic).value), 5)
    what = "held out" if fitted != NOTHING else f"the mean is off by {one.of_means.value:+.1%}"
    return Validation(model, GPU, metric, f"{statistic} error, {what}", error, one.n, fitted, AGAINST)


def _fits(found: Fitted) -> str:
    return ", ".join(f"({fit.scale:.4g}, {fit.extra_ms:.2g} ms)" for fit, _ in found.parts)


def _errors_row(words: str, rows: Sequence[Errors]) -> str:
    cells = [
        cell for e in rows for cell in (f"{e.mean}", f"{e.median.value:.1%}", f"{e.of_means.value:+.1%}")
    ]
    return f"| {words} | {rows[0].n if rows else 0} | {' | '.join(cells)} |"


PART = Silicon()
