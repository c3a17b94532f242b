"""One replay by NVIDIA Dynamo's simulator; run by ``simulator.py`` with the Python of ``.venv-dynamo``.

    .venv-dynamo/bin/python benchmarks/replay_dynamo.py TRACE '{"engine": {...}, "detail": false}'

Prints one JSON object. ``wall_s`` is Dynamo's own figure: its replay without reading the file.
Standard library and ``dynamo`` only: nothing of ours is imported into its environment.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any


def replay(trace: str, engine: dict[str, Any], detail: bool) -> dict[str, Any]:
    """Totals of the replay; with ``detail`` also (arrival, first token, end) of every call, in ms."""
    from dynamo._core import run_mocker_trace_replay  # type: ignore[import-not-found]

    start, cpu = time.perf_counter(), time.process_time()
    result = run_mocker_trace_replay(
        [trace], {"engine": engine, "dynamo": {}}, trace_format="mooncake-delta",
        trace_block_size=512, num_workers=1, replay_mode="offline", capture_per_request=detail,
    )  # fmt: skip
    call_s, cpu_s = time.perf_counter() - start, time.process_time() - cpu
    report = result.summary
    totals = {
        "wall_s": report["wall_time_ms"] / 1e3, "call_s": call_s, "cpu_s": cpu_s,
        "calls": report["completed_requests"], "input_tokens": report["total_input_tokens"],
        "output_tokens": report["total_output_tokens"], "makespan_s": report["duration_ms"] / 1e3,
        "hit_rate": report["first_admission_prefix_cache_reused_ratio"],
        "ttft_s": report["mean_ttft_ms"] / 1e3, "e2e_s": report["mean_e2e_latency_ms"] / 1e3,
    }  # fmt: skip
    if detail:
        totals["rows"] = sorted(
            (r["arrival_time_ms"], r["first_token_ms"], r["last_token_ms"]) for r in result.per_request
        )
        totals["preemptions"] = sum(r["readmission_count"] for r in result.per_request)
    return totals


def main() -> None:
    """Arguments: the trace, and JSON with ``engine`` (Dynamo's names) and ``detail``."""
    asked = json.loads(sys.argv[2])
    print(json.dumps(replay(sys.argv[1], asked["engine"], asked["detail"])))


if __name__ == "__main__":
    main()
