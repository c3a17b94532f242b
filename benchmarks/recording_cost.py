"""What recording costs the gateway: CPU per call with --record and without, and bytes per call.

    python benchmarks/recording_cost.py [--repeat 5] [--json FILE]

Calls of 30 kB go to a fake engine (gateway_parts/fake_engine.py) through two gateways of ours, one that
records and one that does not, in turn. Three kinds: *agents* (conversations that grow to 30 kB, 1.5 kB new a
call), *new* (30 kB that nobody has sent before: the most there is to hash), and *stream* (as agents, replies
of 64 chunks). CPU is of its process, from /proc. About 1 minute. Exit code 1 if a reply was not whole.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import orjson  # noqa: E402

from benchmarks.calibration import ns_per_turn  # noqa: E402
from benchmarks.gateway import run, spread  # noqa: E402
from benchmarks.gateway_parts import processes  # noqa: E402
from benchmarks.gateway_parts.processes import FakeEngine  # noqa: E402
from benchmarks.gateway_parts.streams import once, text_of  # noqa: E402
from systems.gateway.options import GatewayOptions, Target  # noqa: E402
from systems.gateway.process import GatewayProcess  # noqa: E402

SIZE, PART = 30_000, 1_500
CALLS = 1_500
STREAMS = 32
TEXT = text_of(4 * SIZE, 1)
KINDS = {"agents": 1, "new": 1, "stream": 64}
"""Chunks of a reply, by kind."""


def some_text(size: int, number: int) -> str:
    """A stretch of TEXT."""
    at = number * 977 % (len(TEXT) - size)
    return TEXT[at : at + size]


def body(kind: str, number: int) -> bytes:
    """The request ``number`` of a kind: agents have ten turns each, the last of SIZE bytes."""
    agent, turn = divmod(number, 10)
    parts = [some_text(SIZE - 10 * PART, agent), *(some_text(PART, agent + 7 * k) for k in range(turn + 1))]
    if kind == "new":
        parts = [some_text(SIZE, number)]
    messages = [{"role": "user" if k % 2 else "system", "content": part} for k, part in enumerate(parts)]
    return orjson.dumps({
        "model": "fake", "messages": messages, "max_tokens": KINDS[kind], "stream": True,
        "stream_options": {"include_usage": True},
    })  # fmt: skip


def request(kind: str, number: int, run_name: str) -> bytes:
    """As a client sends it; ``run_name`` makes its programs new."""
    data = body(kind, number).replace(b'"content":"', b'"content":"%b ' % run_name.encode())
    program = f"{run_name}-{number // 10}"
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\nContent-Type: application/json\r\n"
        f"X-Session-ID: {program}\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


@contextlib.contextmanager
def gateway(engine: FakeEngine, folder: Path, record: Path | None) -> Iterator[GatewayProcess]:
    """One of the two."""
    to = None if record is None else str(record)
    options = GatewayOptions((Target(engine.url),), system="session-pinned", observe=True, record=to)
    with GatewayProcess(options, folder) as process:
        yield process


def cost(process: GatewayProcess, kind: str, name: str) -> tuple[float, int]:
    """(CPU seconds per call, replies that were not whole)."""
    requests = [request(kind, number, name) for number in range(CALLS)]
    before = processes.cpu_s(process.pid)
    tally = run(once(urlsplit(process.url).port or 0, requests, STREAMS, KINDS[kind]))
    return (processes.cpu_s(process.pid) - before) / CALLS, len(tally.errors) + CALLS - len(tally.first_s)


def measure(repeat: int) -> dict[str, Any]:
    """us per call of both, in turn within each repeat."""
    found: dict[str, Any] = {kind: {"plain": [], "record": [], "bytes": []} for kind in KINDS}
    errors, speeds = 0, []
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        engine = stack.enter_context(FakeEngine(first_s=0.0, gap_s=0.0))
        recording = folder / "recording"
        doors = {
            "plain": stack.enter_context(gateway(engine, folder / "plain", None)),
            "record": stack.enter_context(gateway(engine, folder / "record", recording)),
        }
        for number in range(repeat):
            speeds.append(ns_per_turn())
            for kind in KINDS:
                size = written(recording)
                for door in sorted(doors, reverse=bool(number % 2)):
                    seconds, wrong = cost(doors[door], kind, f"{kind}{number}{door}")
                    found[kind][door].append(seconds * 1e6)
                    errors += wrong
                found[kind]["bytes"].append((written(recording) - size) / CALLS)
    return {"kinds": found, "errors": errors, "ns_per_turn": speeds}


def written(folder: Path) -> int:
    """Bytes of the recording, when what is held back for a second is written."""
    time.sleep(1.5)
    return sum(path.stat().st_size for path in folder.iterdir())


def main() -> int:
    """Measure and print; the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write all figures there")
    given = parser.parse_args()
    found = measure(given.repeat)
    low, high = min(found["ns_per_turn"]), max(found["ns_per_turn"])
    print(f"{CALLS} calls a run, {given.repeat} runs of each, {low:.0f}-{high:.0f} ns/turn\n")
    print("| 30 kB calls | us per call | recording | ratio | bytes per call |\n|---|---|---|---|---|")
    for kind, one in found["kinds"].items():
        ratios = [b / a for a, b in zip(one["plain"], one["record"], strict=True)]
        one["ratio"] = statistics.median(ratios)
        cells = [spread(one["plain"], ".0f"), spread(one["record"], ".0f"), spread(ratios, ".2f")]
        print(f"| {kind} | {' | '.join(cells)} | {statistics.median(one['bytes']):.0f} |")
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n")
    if found["errors"]:
        print(f"{found['errors']} replies were not whole")
    return 1 if found["errors"] else 0


if __name__ == "__main__":
    sys.exit(main())
