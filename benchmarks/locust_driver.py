"""The Locust driver beside the asyncio driver: the same programs, counts and replies, and how late each is.

    python benchmarks/locust_driver.py [--json] [--only NAME]...

Both drive a golden server (first token after 50 ms, the others 10 ms apart) in an open loop: the four
workloads at a sixteenth of their tokens, then programs of one 64-token call at the rates that keep 64 and 256
streams open; by the asyncio driver, by Locust in one process, and by two Locust workers. For each: whether
programs, calls, prompts' lengths and replies are those of the asyncio driver (Locust checks the program hash
itself); lags, and what the busiest process used. TTFT bias is the client's time of the first token minus the
server's own log of it, on one clock (time.monotonic). MCTS's tools take 10 ms instead of 0.9 s. About 3
minutes; exit code 1 if anything that must be equal is not.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

TOKENS, TTFT_S, GAP_S = 64, 0.05, 0.01
CYCLE_S = TTFT_S + (TOKENS - 1) * GAP_S
ROOM = 4096
SCALED = {"token_scale": "1/16"}


class Load(NamedTuple):
    """What arrives: ``n`` programs of a workload, ``rate`` per second."""

    workload: str
    n: int
    rate: float
    parameters: Mapping[str, str] = {}


LOADS = {
    "chatbot": Load("chatbot", 24, 8.0, SCALED),
    "react": Load("react", 24, 8.0, SCALED),
    "mcts": Load("mcts", 4, 2.0, SCALED | {"tool_s": "0.01"}),
    "mapreduce": Load("mapreduce", 24, 8.0, SCALED),
    "64 streams": Load("benchmarks.locust_driver:one_call", 750, 64 / CYCLE_S),
    "256 streams": Load("benchmarks.locust_driver:one_call", 3000, 256 / CYCLE_S),
}


async def one_call(session: Any) -> None:
    """A program of one call."""
    await session.call(new=TOKENS, output=TOKENS)


def measure(names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Each load by each driver, in turn."""
    from bench.arriving import arriving, program_hash
    from bench.config import RunConfig
    from bench.drivers.locust.job import Recipe
    from tests.golden_server import GoldenServer

    with GoldenServer(TTFT_S, GAP_S) as golden:
        for name in names:
            load = LOADS[name]
            config = RunConfig(
                "autellix", load.workload, rate=load.rate, n=load.n, seed=1, parameters=load.parameters
            )
            programs, times = arriving(config, ROOM, "")
            recipe = Recipe(config, program_hash(programs, times), ROOM)
            twin = None
            for driver, workers in (("asyncio", 0), ("locust", 1), ("locust", 2)):
                golden.log()
                if workers:
                    live = by_locust(golden.url, recipe, times or (), workers)
                else:
                    live = by_asyncio(golden.url, programs.programs, times or ())
                twin = twin or live
                label = f"{driver}{f', {workers} workers' if workers > 1 else ''}"
                yield {"load": name, "driver": label, **row(live, twin, golden.log())}


def by_asyncio(url: str, specs: Sequence[Any], times: Sequence[float]) -> Any:
    """The measuring driver."""
    from bench.drivers.live import drive_live
    from bench.drivers.loop import run
    from bench.drivers.stream import Streaming
    from bench.drivers.token_ids import TokenIds

    async def go() -> Any:
        async with Streaming(url, "golden") as client:
            return await drive_live(specs, times, client, TokenIds(1000, "s"), run="r", cache_salt="c")

    return run(go())


def by_locust(url: str, recipe: Any, times: Sequence[float], workers: int) -> Any:
    """Locust, in ``workers`` processes (and a master if there are two). It checks the program hash itself."""
    from bench.drivers.locust.run import drive_locust

    return drive_locust(
        recipe, times, url, "golden", vocabulary=1000, salt="s", run="r", cache_salt="c", workers=workers
    )


def row(live: Any, twin: Any, log: Mapping[str, Any]) -> dict[str, Any]:
    """What one driver saw; ``same``: what must be equal to ``twin``'s is."""
    import numpy as np

    bias = [call.t_first + live.origin - log[call.name].chunks[0][0] for call in live.calls]
    audit = live.audit
    return {
        "programs": len(live.programs), "calls": len(live.calls),
        "tokens": sum(len(call.tokens) for call in live.calls),
        "same": _what(live) == _what(twin), "verdict": audit.verdict,
        "ttft_bias_p50_ms": float(np.percentile(bias, 50)) * 1e3,
        "ttft_bias_p99_ms": float(np.percentile(bias, 99)) * 1e3,
        "send_lag_p99_ms": audit.send_lag[1] * 1e3, "loop_lag_p99_ms": audit.loop_lag[1] * 1e3,
        "cpu": audit.cpu, "rss_mb": audit.rss_mb, "most_open": audit.most_open,
        "sent_per_s": audit.delivered.sent_per_s if audit.delivered else None, "took_s": live.took,
    }  # fmt: skip


def _what(live: Any) -> Any:
    programs = [(p.program, p.kind, p.t_sched, p.outcome, p.calls) for p in live.programs]
    return programs, sorted((c.name, c.prompt_tokens, c.parents) for c in live.calls), live.said()


def line(row: Mapping[str, Any]) -> str:
    """A row of the page."""
    same = "same" if row["same"] else "DIFFERENT"
    what = f"{row['load']:<12}{row['driver']:<20}{row['programs']:>5} programs {row['calls']:>6} calls"
    bias = f"TTFT bias p50/p99 {row['ttft_bias_p50_ms']:6.2f}/{row['ttft_bias_p99_ms']:7.2f} ms"
    cost = f"{row['cpu']:4.0%} of a core  {row['rss_mb']:4.0f} MB"
    return (
        f"{what}  {same:<10}{bias}  send lag p99 {row['send_lag_p99_ms']:6.1f} ms  {cost}  {row['verdict']}"
    )


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", action="append", choices=list(LOADS))
    given = parser.parse_args()
    rows = []
    for found in measure(given.only or list(LOADS)):
        rows.append(found)
        if not given.json:
            print(line(found), flush=True)
    if given.json:
        print(json.dumps(rows, indent=1))
    sys.exit(not all(found["same"] for found in rows))


if __name__ == "__main__":
    main()
