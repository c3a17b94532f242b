"""What the measuring client sees and costs, against a golden server that logs when it sent each chunk.

    python benchmarks/client.py [--quick] [--json]

Streams of 64 tokens, the first after 50 ms, the others 10 ms apart; 1, 64 and 256 of them in a closed
loop that starts evenly over the time of one call; for the streaming client (bench/drivers/stream.py on
uvloop), for the same reading behind aiohttp, and for the client of the Locust driver. Then the whole
driver in an open loop (Poisson, one call a program), at the rates that keep 64 and 256 streams open, and
far above what it can do.

Server and client are a process each, on a core each where there are two; both read one clock
(time.monotonic), so biases are exact. TTFT bias: the client's TTFT minus the time from the whole request
to the first chunk handed to the kernel, by the server's log; gap bias: the same, without its sign, for
the time between two chunks; late: from when a chunk was handed to the kernel until the client had it. The
first second is warm-up. The rate is streams / mean time from one call to the next, ideal is streams / (50
ms + 63 * 10 ms). CPU is all that the client's process used while it drove, per streamed token; MB its
largest resident size. A run in which the server was busy for over 90 % of its core says nothing about the
client, and is marked. About 110 s; --quick a third of the load.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

from benchmarks.calibration import ns_per_turn  # noqa: E402
from tests.golden_server import GoldenServer, Sent  # noqa: E402

TOKENS, TTFT_S, GAP_S = 64, 0.05, 0.01
CYCLE_S = TTFT_S + (TOKENS - 1) * GAP_S
WARM_S = 1.0
CLIENTS = {"ours": "stream.py, uvloop", "aiohttp": "aiohttp, uvloop", "locust": "Locust's (geventhttpclient)"}
SECONDS = {1: 6.0, 64: 8.0, 256: 6.0}
SERVER_BUSY = 0.9
OVERLOAD_PER_S = 3000.0
BARS = {"ttft_p50_ms": {64: 0.5, 256: 5.0}, "cpu_us": {64: 20.0, 256: 20.0}, "rss_mb": 100.0, "rate": 0.98}
CHILD = Path(__file__).with_name("client_child.py")


def child(kind: str, golden: GoldenServer, core: set[int], *options: str) -> tuple[dict[str, Any], list[Any]]:
    """Run a client; what it says and its rows."""
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.json"
        command = [sys.executable, str(CHILD), kind, golden.url, str(rows), *options]
        pin = (lambda: os.sched_setaffinity(0, core)) if core else None
        done = subprocess.run(command, capture_output=True, text=True, preexec_fn=pin, timeout=300)
        if done.returncode:
            raise SystemExit(f"the client {kind} failed:\n{done.stderr[-2000:]}")
        return json.loads(done.stdout), json.loads(rows.read_text()) if rows.exists() else []


def closed(
    kind: str, streams: int, seconds: float, golden: GoldenServer, core: set[int], *more: str
) -> dict[str, Any]:
    """One row of the table."""
    golden.log()
    cpu = golden.cpu_s()
    said, rows = child(
        kind, golden, core, "--streams", str(streams), "--tokens", str(TOKENS), "--seconds", str(seconds),
        "--cycle", str(CYCLE_S), *more,
    )  # fmt: skip
    busy = (golden.cpu_s() - cpu) / said["took_s"]
    log = golden.log()
    return {
        "client": kind + (", all at once" if more else ""), "streams": streams, **compared(rows, log),
        **rate(rows, streams), "cpu_us": said["cpu_s"] / said["chunks"] * 1e6, "rss_mb": said["rss_mb"],
        "loop_lag_p99_ms": said.get("loop_lag_p99_ms"), "server_busy": busy,
    }  # fmt: skip


def compared(rows: Sequence[Any], log: Mapping[str, Sent]) -> dict[str, Any]:
    """Biases in ms against the server's log, of calls sent after the warm-up."""
    began = min(sent for _, sent, _ in rows) + WARM_S
    first, gaps, late, served = [], [], [], []
    for name, sent, received in rows:
        if sent < began:
            continue
        truth = log[name]
        out = np.array([at for at, _ in truth.chunks])
        got = np.array(received)
        if len(out) != len(got) or len(got) != TOKENS:
            raise SystemExit(f"call {name}: {len(got)} chunks received, {len(out)} sent")
        first.append((got[0] - sent) - (out[0] - truth.received))
        gaps.append(np.abs(np.diff(got) - np.diff(out)))
        late.append(got - out)
        served.append(out[0] - truth.received - TTFT_S)
    return {
        "calls": len(first), "ttft_p50_ms": _ms(first, 50), "ttft_p99_ms": _ms(first, 99),
        "gap_p50_ms": _ms(gaps, 50), "gap_p99_ms": _ms(gaps, 99), "late_p50_ms": _ms(late, 50),
        "late_p99_ms": _ms(late, 99), "server_late_p99_ms": _ms(served, 99),
    }  # fmt: skip


def _ms(values: Sequence[Any], q: float) -> float:
    return float(np.percentile(np.concatenate([np.atleast_1d(one) for one in values]), q)) * 1e3


def rate(rows: Sequence[Any], streams: int) -> dict[str, float]:
    """Calls per second by the mean time from one call of a stream to its next, after the warm-up; 0 if no
    stream came to a second one."""
    began = min(sent for _, sent, _ in rows) + WARM_S
    of: dict[str, list[float]] = {}
    for name, sent, _ in rows:
        if sent >= began:
            of.setdefault(name.partition(".")[0], []).append(sent)
    cycles = [wait for times in of.values() for wait in np.diff(sorted(times))]
    return {"per_s": float(streams / np.mean(cycles)) if cycles else 0.0, "ideal_per_s": streams / CYCLE_S}


def opened(golden: GoldenServer, core: set[int], rate_per_s: float, seconds: float) -> dict[str, Any]:
    """The driver in an open loop: what its audit says."""
    said, _ = child("open", golden, core, "--rate", str(rate_per_s), "--seconds", str(seconds))
    golden.log()
    return {"asked_per_s": rate_per_s, **said}


def missed(row: Mapping[str, Any]) -> list[str]:
    """The bars that a closed-loop row of our client is under or above."""
    streams, found = row["streams"], []
    for name in ("ttft_p50_ms", "cpu_us"):
        bar = BARS[name].get(streams)  # type: ignore[attr-defined]
        if bar is not None and row[name] > bar:
            found.append(f"{name} {row[name]:.2f} > {bar:g}")
    if row["rss_mb"] > BARS["rss_mb"]:
        found.append(f"{row['rss_mb']:.0f} MB > {BARS['rss_mb']:.0f}")
    if row["per_s"] < BARS["rate"] * row["ideal_per_s"]:
        found.append(f"rate {row['per_s'] / row['ideal_per_s']:.3f} < {BARS['rate']}")
    return found


def measure(part: float) -> Iterator[dict[str, Any]]:
    """All runs, in turn; ``part`` of the full lengths."""
    cores = sorted(os.sched_getaffinity(0))
    server, client = ({cores[0]}, {cores[1]}) if len(cores) > 1 else (set(), set())
    with GoldenServer(TTFT_S, GAP_S, cores=server) as golden:
        for streams, seconds in SECONDS.items():
            length = WARM_S + 2 * CYCLE_S + (seconds - WARM_S - 2 * CYCLE_S) * part
            for kind in CLIENTS:
                yield closed(kind, streams, length, golden, client)
        for streams, seconds in list(SECONDS.items())[1:]:
            yield closed("ours", streams, seconds * part + WARM_S, golden, client, "--together")
        for streams in (64, 256):
            yield opened(golden, client, streams / CYCLE_S, 8.0 * part)
        yield {**opened(golden, client, OVERLOAD_PER_S, 1.0), "overload": True}


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """As Markdown."""
    lines = [
        "| client | streams | calls "
        "| TTFT bias p50 / p99 (ms) | gap bias p50 / p99 (ms) | late p50 / p99 (ms) "
        "| calls/s of ideal | CPU us/token | MB | server busy | bars |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        verdict = "; ".join(missed(row)) or "met"
        busy = f"{row['server_busy']:.0%}{' (!)' if row['server_busy'] > SERVER_BUSY else ''}"
        pairs = [f"{row[f'{k}_p50_ms']:.2f} / {row[f'{k}_p99_ms']:.2f}" for k in ("ttft", "gap", "late")]
        lines.append(
            f"| {row['client']} | {row['streams']} | {row['calls']} | {' | '.join(pairs)} "
            f"| {row['per_s']:.1f} of {row['ideal_per_s']:.1f} | {row['cpu_us']:.1f} | {row['rss_mb']:.0f} "
            f"| {busy} | {verdict} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a third of the time")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    speed = ns_per_turn()
    rows = list(measure(1 / 3 if given.quick else 1.0))
    speeds = [speed, ns_per_turn()]
    if given.json:
        print(json.dumps({"ns_per_turn": speeds, "bars": BARS, "rows": rows}))
        return
    closed_rows = [row for row in rows if "client" in row]
    print(f"{speeds[0]:.0f} and {speeds[1]:.0f} ns/turn\n\n{table(closed_rows)}\n")
    print("Open loop, the driver's own audit:\n")
    for row in rows:
        if "client" not in row:
            wanted = "invalid" if row.get("overload") else "ok"
            print(f"* {row['asked_per_s']:.0f} programs/s: {row['text']}; wanted: {wanted}")


if __name__ == "__main__":
    main()
