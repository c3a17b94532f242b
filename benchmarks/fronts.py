"""Third-party routers and our gateway: added latency, and what becomes of calls when an engine dies.

    python benchmarks/fronts.py [--rounds 300] [--json FILE] [SYSTEM ...]     # about 1 minute

Fake engines, which answer at once, in processes of their own; every front of the catalog (or those of the
SYSTEMs) before the same two. Latency: one call at a time, a prompt of 2 000 token ids (text where a front
takes no ids), a whole reply; directly and through each in turn, all in one run. "Added" is the median of the
differences to the direct call of the same round, with a 95 % interval (order statistics).

Death: one of two engines is killed, with nothing in flight, and 12 programs go on calling, one call every
50 ms for 4 s. A call that failed is not sent again by the client.
"""

from __future__ import annotations

import argparse
import http.client
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.calibration import ns_per_turn  # noqa: E402
from systems.catalog import build_front, load_system, system_names  # noqa: E402
from systems.engines.vllm_virtual import EngineUnavailable  # noqa: E402
from systems.fronts.protocol import Front  # noqa: E402
from systems.gateway.options import GatewayOptions, Target  # noqa: E402
from systems.gateway.process import GatewayProcess  # noqa: E402
from systems.provision.front import FrontProcess  # noqa: E402
from tests.fake_engine import FakeEngine  # noqa: E402

MODEL = "fake"
TOKENS = 2_000
PROGRAMS = 12
EVERY_S, LASTS_S = 0.05, 4.0
WARM = 20
OURS = "our gateway (session-pinned)"


class Door(NamedTuple):
    """A way to the engines. ``front``: None for a direct one and for our gateway."""

    name: str
    url: str
    front: Front | None = None


class Caller:
    """One connection to a door, kept open."""

    def __init__(self, door: Door) -> None:
        self.door = door
        self._line = http.client.HTTPConnection(urlsplit(door.url).netloc, timeout=30)

    def ask(self, program: str, prompt: Sequence[int]) -> int:
        """The status of one call; 0 if the connection broke."""
        front = self.door.front
        text = front is not None and not front.token_ids
        body = {
            "model": MODEL, "prompt": "".join(chr(65 + i % 26) for i in prompt) if text else list(prompt),
            "max_tokens": 4, "vllm_xargs": {"program_id": program, "thread_id": "0"},
        }  # fmt: skip
        headers: dict[str, str] = {"Content-Type": "application/json"}
        headers.update(front.headers(program, prompt) if front is not None else {})
        try:
            self._line.request("POST", "/v1/completions", json.dumps(body), headers)
            answer = self._line.getresponse()
            answer.read()
            return answer.status
        except (http.client.HTTPException, OSError):
            self._line.close()
            return 0


def added(samples: Sequence[float]) -> tuple[float, float, float]:
    """Median and its 95 % interval, in ms, of seconds."""
    ordered = sorted(1e3 * one for one in samples)
    n, half = len(ordered), 0.98 * math.sqrt(len(ordered))  # 1.96 standard deviations of a binomial of 1/2
    low, high = max(0, math.floor(n / 2 - half)), min(n - 1, math.ceil(n / 2 + half))
    return ordered[n // 2], ordered[low], ordered[high]


def latencies(doors: Sequence[Door], rounds: int) -> dict[str, list[float]]:
    """Seconds per call by door, one of each per round."""
    callers = [Caller(door) for door in doors]
    found: dict[str, list[float]] = {door.name: [] for door in doors}
    prompt = [i % 1000 for i in range(TOKENS)]
    for number in range(-WARM, rounds):
        for caller in callers:
            began = time.perf_counter()
            status = caller.ask("p0", prompt)
            took = time.perf_counter() - began
            if status != 200:
                raise SystemExit(f"{caller.door.name} answers {status}")
            if number >= 0:
                found[caller.door.name].append(took)
    return found


def death(door: Door, kill: Callable[[], None]) -> dict[str, Any]:
    """What the calls of ``PROGRAMS`` programs came to after ``kill``."""
    caller = Caller(door)
    for program in range(PROGRAMS):
        caller.ask(f"p{program}", [program] * 40)
    kill()
    began, statuses = time.monotonic(), []
    while (at := time.monotonic() - began) < LASTS_S:
        statuses.append((at, caller.ask(f"p{len(statuses) % PROGRAMS}", [len(statuses) % PROGRAMS] * 40)))
        time.sleep(max(0.0, began + EVERY_S * len(statuses) - time.monotonic()))
    failed = [at for at, status in statuses if status != 200]
    kinds = sorted({status for _, status in statuses if status != 200})
    return {"calls": len(statuses), "failed": len(failed), "last_failure_s": max(failed, default=None),
            "statuses": kinds}  # fmt: skip


def opened(stack: ExitStack, name: str, urls: Sequence[str], folder: Path) -> Door:
    """A front of a system, or our gateway, before the engines; it ends with ``stack``."""
    if name == OURS:
        targets = tuple(Target(url) for url in urls)
        gateway = GatewayProcess(GatewayOptions(targets, system="session-pinned"), folder / "gateway")
        stack.callback(gateway.stop)
        gateway.begin()
        gateway.ready()
        return Door(name, gateway.url)
    front = build_front(load_system(name))
    if front is None:
        raise SystemExit(f"system {name} has no third-party front")
    process = stack.enter_context(FrontProcess(front, urls, folder / name))
    return Door(name, process.url, front)


def measure(names: Sequence[str], rounds: int) -> dict[str, dict[str, Any]]:
    """Per door: latency (ms) and what a death does."""
    rows: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        urls = [stack.enter_context(FakeEngine(MODEL)).url for _ in range(2)]
        doors = [opened(stack, name, urls, Path(folder)) for name in names]
        found = latencies([Door("directly", urls[0]), *doors], rounds)
        direct = found["directly"]
        for name, times in found.items():
            p50, low, high = added([one - base for one, base in zip(times, direct, strict=True)])
            rows[name] = {"p50_ms": added(times)[0], "added_ms": p50, "low_ms": low, "high_ms": high}
    for name in names:
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            engines = [stack.enter_context(FakeEngine(MODEL)) for _ in range(2)]
            door = opened(stack, name, [engine.url for engine in engines], Path(folder))
            rows[name] |= death(door, engines[0].stop)
    return rows


def table(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Markdown."""
    lines = [
        "| | p50, ms | added p50, ms | after a death: failed calls | until, s |",
        "|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        if "calls" not in row:
            lines.append(f"| {name} | {row['p50_ms']:.2f} | | | |")
            continue
        until = "" if row["last_failure_s"] is None else f"{row['last_failure_s']:.1f}"
        kinds = f" ({', '.join(map(str, row['statuses']))})" if row["statuses"] else ""
        spread = f"{row['added_ms']:.2f} [{row['low_ms']:.2f}, {row['high_ms']:.2f}]"
        failed = f"{row['failed']} of {row['calls']}{kinds}"
        lines.append(f"| {name} | {row['p50_ms']:.2f} | {spread} | {failed} | {until} |")
    return "\n".join(lines)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("systems", nargs="*", metavar="SYSTEM")
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    names = given.systems or [n for n in system_names() if build_front(load_system(n)) is not None]
    try:
        rows = measure([OURS, *names], given.rounds)
    except EngineUnavailable as error:
        print(f"error: {error}", file=sys.stderr)
        return 6
    print(table(rows))
    print(f"\n{given.rounds} rounds, prompts of {TOKENS} tokens, {ns_per_turn():.0f} ns/turn")
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
