"""What the relay adds to a call: time to the first token, time to the last one, its own CPU.

    python benchmarks/relay.py [--repeat 5] [--json FILE]

A fake engine (a process of its own) streams 64 chunks, 10 ms apart, to 8 clients in a closed loop (what
`agents` runs have by default), asked directly and through the relay in two ways: with a script, which writes
every event anew, and without one. 30 kB bodies. In turn within each repeat; first and last token are compared
with the direct ones of the same repeat. All processes share one machine: quiet it first. About 45 s. The bar:
less than 1 ms to the first token at the median of the repeats; exit code 1 if it is missed or a reply was not
whole.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from bench.drivers.loop import run  # noqa: E402
from benchmarks.gateway_parts import processes  # noqa: E402
from benchmarks.gateway_parts.processes import FakeEngine  # noqa: E402
from benchmarks.gateway_parts.streams import Load, Tally  # noqa: E402
from workloads.agents.contract import Turn  # noqa: E402
from workloads.agents.relay.server import Relay  # noqa: E402

STREAMS, CHUNKS, SIZE = 8, 64, 30_000
FIRST_S, GAP_S = 0.1, 0.01
WARM_S, WINDOW_S = 0.8, 2.2
BAR_MS = 1.0
WAYS = ("direct", "with a script", "as it is")


class Door(NamedTuple):
    """Where clients go; ``pid`` 0: the engine itself."""

    port: int
    pid: int


class Tokens:
    """The script of every program: the engine's own words, so that the client's check holds."""

    def turn(self, *_: object) -> Turn:
        """A turn of CHUNKS tokens."""
        return Turn(" token" * CHUNKS, (), CHUNKS)


class Everyone(dict[int, Tokens]):
    """Any program has it."""

    def get(self, key: int, default: Any = None) -> Any:  # noqa: ARG002
        """Tokens."""
        return Tokens()


async def serve(engine: str, scripted: bool) -> None:
    """A relay until the standard input ends; says its port."""
    relay = Relay(engine, "fake", run="b", scripts=Everyone() if scripted else None, told=lambda _: None)
    async with relay:
        print(relay.port, flush=True)
        await asyncio.to_thread(sys.stdin.read)


@contextlib.contextmanager
def relay(engine: str, way: str) -> Iterator[Door]:
    """In a process of its own, which ends with this one."""
    words = [sys.executable, __file__, "--serve", engine, *(["--scripted"] if way == WAYS[1] else [])]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(words, **pipes, start_new_session=True) as process:  # its CPU is that of its group
        assert process.stdin is not None
        assert process.stdout is not None
        yield Door(int(process.stdout.readline()), process.pid)
        process.stdin.close()


async def measure(door: Door, prefix: str) -> dict[str, float]:
    """Medians of a closed loop (ms), and the relay's CPU per call (us)."""
    load = Load(door.port, STREAMS, CHUNKS, SIZE, prefix)
    await load.start(FIRST_S + GAP_S * CHUNKS)
    await asyncio.sleep(WARM_S)
    load.take()
    cpu = processes.cpu_s(door.pid) if door.pid else 0.0
    await asyncio.sleep(WINDOW_S)
    cpu = (processes.cpu_s(door.pid) if door.pid else 0.0) - cpu
    tally: Tally = load.take()
    await load.stop()
    for error in tally.errors[:3]:
        print(error, file=sys.stderr)
    return {
        "first_ms": 1e3 * statistics.median(tally.first_s), "last_ms": 1e3 * statistics.median(tally.total_s),
        "cpu_us": 1e6 * cpu / len(tally.first_s), "calls": len(tally.first_s), "errors": len(tally.errors),
    }  # fmt: skip


def added(runs: list[dict[str, dict[str, float]]], way: str, what: str) -> list[float]:
    """Over the direct one of the same repeat, in ms."""
    return [one[way][what] - one[WAYS[0]][what] for one in runs]


def spread(values: list[float]) -> str:
    """Median, least and most."""
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def main() -> int:
    """Measure and print; the exit code."""
    given = arguments()
    if given.serve:
        run(serve(given.serve, given.scripted))
        return 0
    with contextlib.ExitStack() as stack:
        engine = stack.enter_context(FakeEngine(first_s=FIRST_S, gap_s=GAP_S))
        doors = {WAYS[0]: Door(engine.port, 0)}
        doors |= {way: stack.enter_context(relay(engine.url, way)) for way in WAYS[1:]}
        runs = [
            {way: run(measure(door, f"r{number}")) for way, door in doors.items()}
            for number in range(given.repeat)
        ]
    print(f"{STREAMS} streams of {CHUNKS} chunks, {given.repeat} repeats: median (least to most)")
    for way in WAYS[1:]:
        first, last = (spread(added(runs, way, what)) for what in ("first_ms", "last_ms"))
        cpu = spread([one[way]["cpu_us"] / 1e3 for one in runs])
        print(f"  {way}: first token +{first} ms, last +{last} ms, CPU {cpu} ms a call")
    if given.json:
        given.json.write_text(json.dumps({"bar_ms": BAR_MS, "runs": runs}, indent=1) + "\n")
    late = [way for way in WAYS[1:] if not statistics.median(added(runs, way, "first_ms")) < BAR_MS]
    broken = sum(one["errors"] for turn in runs for one in turn.values())
    print(f"missed: {', '.join(late) or 'none'}; replies that were not whole: {broken:g}")
    return 1 if late or broken else 0


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--serve", default="", help=argparse.SUPPRESS)
    parser.add_argument("--scripted", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
