"""Our simulator against NVIDIA Dynamo's offline replay: the same trace, limits and step times, one core.

    bash scripts/make_dynamo.sh                       # once: .venv-dynamo, 230 MB (or: make dynamo)
    python benchmarks/simulator.py [--repeat N] [--scheduler NAME]... [--trace FILE --rows N]
                                   [--own-times] [--log] [--core N] [--json]

The load is ``speed1`` (``speed.py``), or the first rows of a Mooncake trace, written as multi-turn JSON
lines that both read (``loads.py``). Engine: 27 000 blocks of 16 tokens, 256 sequences, 2 048 tokens a
step, vLLM's rules, prefix cache on. Every step takes 62.5 ms for its prefills and 62.5 ms for its
decodes in both (about speed1's mean on an A100), so both have the same schedule to compute; that
they did is checked call by call first. ``--own-times``: each with its own step times instead, which
are not the same schedule. Then the runs alternate, each in a process of its own on one core: Dynamo,
ours in plain Python, ours compiled if ``make native`` was run. Wall time without starting, importing
and reading the trace on both sides; ours logs every decision (``--log``: to disk).

Exit codes: 4 if the two did not do the same work, 6 if Dynamo is not installed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.native import ROOT, SWITCH, is_compiled
from benchmarks.calibration import ns_per_turn
from benchmarks.loads import cut_mooncake, write_plans
from benchmarks.speed import plan
from workloads.arrivals import poisson

BAR = 5.0
"""Times as fast as Dynamo's replay."""
STEP_S = 2.0**-4
LIMITS = {"kv_blocks": 27_000, "max_num_seqs": 256, "max_num_batched_tokens": 2048, "max_model_len": 2**20}
SAME_MS = 1e-6
"""Times that differ by less are equal: Dynamo sums milliseconds as floats, we are on a grid of 0.93 ns."""

Found = dict[str, Any]


def dynamo(
    python: Path, trace: Path, own_times: bool, detail: bool = False, limits: dict[str, int] = LIMITS
) -> Found:
    """One replay by Dynamo."""
    fixed = {"type": "fixed", "prefill_ms": STEP_S * 1e3, "decode_ms": STEP_S * 1e3}
    engine = {
        "backend": "vllm", "block_size": 16, "num_gpu_blocks": limits["kv_blocks"],
        "max_num_seqs": limits["max_num_seqs"], "max_num_batched_tokens": limits["max_num_batched_tokens"],
        "timing_model": {"type": "polynomial"} if own_times else fixed,
    }  # fmt: skip
    return _child([str(python), "replay_dynamo.py", str(trace)], {"engine": engine, "detail": detail})


def ours(trace: Path, scheduler: str, own_times: bool, compiled: bool, **more: bool) -> Found:
    """One replay by us."""
    asked = {"scheduler": scheduler, "engine": LIMITS, "step_s": None if own_times else [STEP_S, STEP_S]}
    native = {} if compiled else {SWITCH: "0"}
    return _child(
        [sys.executable, "replay_ours.py", str(trace)], asked | {"log": False, "detail": False} | more, native
    )


def _child(command: Sequence[str], asked: Found, environment: dict[str, str] = {}) -> Found:
    python, script, trace = command
    done = subprocess.run(
        [python, str(Path(__file__).with_name(script)), trace, json.dumps(asked)],
        env=os.environ | environment, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    if done.returncode:
        sys.exit(f"{script} failed (exit code {done.returncode})")
    found: Found = json.loads(done.stdout)
    return found


def same_work(theirs: Found, mine: Found) -> tuple[bool, str]:
    """Whether both computed the same schedule, and what to say of it.

    Dynamo's clock starts at the first arrival.
    """
    first = mine["rows"][0][0]
    gaps = [
        max(abs(a - first - b) for a, b in zip(our, their, strict=True))
        for our, their in zip(mine["rows"], theirs["rows"], strict=False)
    ]
    same = sum(gap < SAME_MS for gap in gaps)
    counts = ("calls", "input_tokens", "output_tokens", "preemptions")
    equal = same == len(mine["rows"]) == len(theirs["rows"]) and all(mine[c] == theirs[c] for c in counts)
    equal = equal and abs(mine["hit_rate"] - theirs["hit_rate"]) < 1e-12
    return equal, (
        f"same work: {'yes' if equal else 'NO'}; arrival, first token and end agree in {same} of "
        f"{len(mine['rows'])} calls (largest gap {max(gaps, default=0.0):.1e} ms)\n"
        f"  ours    {_work(mine)}\n  Dynamo  {_work(theirs)}"
    )


def _work(found: Found) -> str:
    return (
        f"{found['calls']} calls, {found['input_tokens']} input and {found['output_tokens']} output tokens, "
        f"{found['hit_rate']:.4f} of the input cached, {found['preemptions']:.0f} preemptions, "
        f"{found['makespan_s']:.1f} s, TTFT {found['ttft_s']:.4f} s, E2E {found['e2e_s']:.4f} s"
    )


def compare(asked: argparse.Namespace, trace: Path) -> list[Found]:
    """Alternating runs; a row per simulator and scheduler with every time and its ratio to Dynamo's."""
    kinds = [(name, c) for name in asked.scheduler for c in ((False, True) if is_compiled() else (False,))]
    rows: list[Found] = [{"simulator": "Dynamo", "scheduler": "its own (fcfs)"}]
    rows += [{"simulator": f"ours, {'compiled' if c else 'Python'}", "scheduler": name} for name, c in kinds]
    for row in rows:
        row |= {"wall_s": [], "cpu_s": [], "wall_ratio": [], "cpu_ratio": []}
    for _ in range(asked.repeat):
        theirs = dynamo(asked.python, trace, asked.own_times)
        mine = [ours(trace, name, asked.own_times, c, log=asked.log) for name, c in kinds]
        for row, run in zip(rows, [theirs, *mine], strict=True):
            for clock in ("wall", "cpu"):
                row[f"{clock}_s"].append(run[f"{clock}_s"])
                row[f"{clock}_ratio"].append(theirs[f"{clock}_s"] / run[f"{clock}_s"])
            row |= {"calls": run["calls"], "makespan_s": run["makespan_s"]}
    return rows


def show(rows: Sequence[Found]) -> None:
    """A table: medians over the runs, ranges in brackets."""
    print("simulator      scheduler         wall s    CPU s  calls/s  sim s/s   times Dynamo, wall      CPU")
    for row in rows:
        wall, ratio = statistics.median(row["wall_s"]), statistics.median(row["wall_ratio"])
        bar = "" if row["simulator"] == "Dynamo" else f"  {'>=' if ratio >= BAR else '<'} {BAR:g}"
        print(
            f"{row['simulator']:<15}{row['scheduler']:<15}{wall:>9.3f}{statistics.median(row['cpu_s']):>9.3f}"
            f"{row['calls'] / wall:>9,.0f}{row['makespan_s'] / wall:>9,.0f}   "
            f"{_range(row['wall_ratio']):<21}{_range(row['cpu_ratio'])}{bar}"
        )


def _range(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} [{min(values):.2f}, {max(values):.2f}]"


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scheduler", action="append", help="ours (default: fcfs, which Dynamo's is)")
    parser.add_argument("--trace", type=Path, help="a Mooncake trace instead of speed1")
    parser.add_argument("--rows", type=int, default=2000, help="so many of its first rows (default 2000)")
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--own-times", action="store_true", help="each simulator's own step times")
    parser.add_argument("--log", action="store_true", help="ours writes its event log to disk")
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)))
    parser.add_argument(
        "--python", type=Path, default=ROOT / ".venv-dynamo/bin/python", help="of Dynamo's environment"
    )
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    asked.scheduler = asked.scheduler or ["fcfs"]
    if asked.trace and not asked.trace.is_file():
        parser.error(f"--trace {asked.trace}: no such file")
    if asked.repeat < 1 or asked.rows < 1:
        parser.error("--repeat and --rows must be at least 1")
    if asked.core not in os.sched_getaffinity(0):
        parser.error(f"--core {asked.core}: this process may use {sorted(os.sched_getaffinity(0))}")
    return asked


def main() -> None:
    """Check that both do the same work, then time them."""
    asked = arguments()
    if not asked.python.exists():
        print(f"NVIDIA Dynamo is not installed ({asked.python} is missing): make dynamo", file=sys.stderr)
        sys.exit(6)
    os.sched_setaffinity(0, {asked.core})
    before = ns_per_turn()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.jsonl"
        write_trace(asked, trace)
        equal, said = check(asked, trace)
        rows = compare(asked, trace) if equal else []
    noise = f"ns/turn before {before:.0f}, after {ns_per_turn():.0f}; load {os.getloadavg()[0]:.1f}"
    if asked.json:
        print(json.dumps({"same": equal, "about": said, "noise": noise, "rows": rows}, indent=1))
    else:
        print(said)
        show(rows)
        print(noise)
    sys.exit(0 if equal else 4)


def write_trace(asked: argparse.Namespace, trace: Path) -> None:
    """The trace both read."""
    if asked.trace:
        cut_mooncake(asked.trace, trace, asked.rows)
    else:
        write_plans(trace, [plan(i) for i in range(1000)], poisson(0.6, 1000, 1))


def check(asked: argparse.Namespace, trace: Path) -> tuple[bool, str]:
    """Whether the runs may be compared, and what to say of it."""
    if asked.own_times:
        return True, "step times are each simulator's own: not the same schedule"
    theirs = dynamo(asked.python, trace, False, detail=True)
    return same_work(theirs, ours(trace, "fcfs", False, is_compiled(), detail=True))


if __name__ == "__main__":
    main()
