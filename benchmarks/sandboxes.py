"""What tool environments cost: init, a command, teardown, disk; beside a plain subprocess of the same run.

    [bash scripts/with_dockerd.sh 240] python benchmarks/sandboxes.py [--n 40] [--kind NAME]... [--json FILE]

In each of ``n`` rounds each kind in turn (who begins changes) makes a sandbox, runs EXECS times ``true`` in
it one after the other, writes a million bytes to the workspace and as many to TMPDIR, asks for its disk, and
tears it down; the yardstick runs ``sh -c true`` by asyncio.create_subprocess_exec as often. Times are by our
clock around the call, so they hold what our code costs, too: the ledger's file, the supervisor's start, the
SDK's threads. A first round is not counted (the image is made, files are read from disk). Nothing else goes
on at the same time.

Quantiles are of all rounds; in brackets the 95 % interval of a quantile by its order statistics (binomial, no
assumption on the distribution); of few rounds it ends at the largest value, which then says little.
About 40 s with docker on a quiet machine (estimated). Exit code 1 if a kind is missing, or anything is left.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import platform
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from scipy.stats import binom

from benchmarks.calibration import ns_per_turn
from workloads.sandboxes.catalog import sandbox_kind, sandbox_kinds
from workloads.sandboxes.contract import SandboxOptions
from workloads.sandboxes.leaks import leaks

EXECS = 5
WRITES = 'head -c 1000000 /dev/zero > file && head -c 1000000 /dev/zero > "$TMPDIR/file"'
PLAIN = "subprocess"
STAGES = ("init", "exec", "teardown")


@dataclass
class Costs:
    """Of a kind, over all rounds: milliseconds by stage; bytes on disk after WRITES."""

    ms: dict[str, list[float]] = field(default_factory=lambda: {stage: [] for stage in STAGES})
    disk: list[int] = field(default_factory=list)


async def timed(costs: Costs, stage: str, work: object) -> None:
    """Note what awaiting it takes."""
    begin = time.perf_counter()
    await work  # type: ignore[misc]
    costs.ms[stage].append((time.perf_counter() - begin) * 1e3)


async def plain() -> None:
    """The yardstick: what running a command costs anyway."""
    process = await asyncio.create_subprocess_exec("sh", "-c", "true", stdout=asyncio.subprocess.PIPE)
    await process.communicate()


async def round_of(kind: str, costs: Costs, folder: Path, name: str) -> None:
    """One sandbox from its init to its teardown."""
    if kind == PLAIN:
        for _ in range(EXECS):
            await timed(costs, "exec", plain())
        return
    options = SandboxOptions(name, folder / name, owner=f"bench-{os.getpid()}")
    sandbox = sandbox_kind(kind).make(options, lambda _: None)
    try:
        await timed(costs, "init", sandbox.init())
        for _ in range(EXECS):
            await timed(costs, "exec", sandbox.exec("true"))
        done = await sandbox.exec(WRITES)
        assert done.code == 0, done
        costs.disk.append(await sandbox.disk())
        await timed(costs, "teardown", sandbox.teardown())
    finally:
        await sandbox.teardown()


async def measure(kinds: Sequence[str], n: int, folder: Path) -> dict[str, Costs]:
    """``n`` rounds of each, after one that is not counted."""
    found = {kind: Costs() for kind in kinds}
    for number in range(-1, n):
        first = number % len(kinds)
        for kind in (*kinds[first:], *kinds[:first]):
            costs = found[kind] if number >= 0 else Costs()
            await round_of(kind, costs, folder, f"bench-{os.getpid()}-{kind}-{number + 1}")
        print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return found


def quantile(values: Sequence[float], q: float) -> tuple[float, float, float]:
    """The quantile, and the 95 % interval of it between two of the values; NaN of too few."""
    ordered, n = sorted(values), len(values)
    if not n:
        return (float("nan"),) * 3
    low, high = int(binom.ppf(0.025, n, q)), int(binom.ppf(0.975, n, q))
    return ordered[max(0, math.ceil(q * n) - 1)], ordered[max(0, low - 1)], ordered[min(n - 1, high)]


def table(found: dict[str, Costs]) -> str:
    """Rows of Markdown: milliseconds, and the median of ``exec`` as a multiple of the yardstick's."""
    yardstick = quantile(found[PLAIN].ms["exec"], 0.5)[0]
    lines = ["| kind | stage | n | p50 ms | p95 ms | p50 / subprocess |", "|---|---|---|---|---|---|"]
    for kind, costs in found.items():
        for stage in STAGES:
            if values := costs.ms[stage]:
                half, most = quantile(values, 0.5), told(quantile(values, 0.95))
                ratio = half[0] / yardstick
                lines.append(f"| {kind} | {stage} | {len(values)} | {told(half)} | {most} | {ratio:.1f} |")
    disks = [f"{kind} {min(c.disk)} to {max(c.disk)}" for kind, c in found.items() if c.disk]
    return "\n".join([*lines, "", f"Bytes on disk when tools wrote 2 000 000: {', '.join(disks)}."])


def told(found: tuple[float, float, float]) -> str:
    """A quantile with its interval."""
    return f"{found[0]:.2f} [{found[1]:.2f}, {found[2]:.2f}]"


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", type=int, default=40)
    parser.add_argument("--kind", action="append", choices=sorted(sandbox_kinds()))
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    if asked.n < 1:
        parser.error(f"--n must be 1 or more, got {asked.n}")
    wanted = asked.kind or sorted(sandbox_kinds())
    missing = {kind: why for kind in wanted if (why := sandbox_kind(kind).missing())}
    kinds = [PLAIN, *(kind for kind in wanted if kind not in missing)]
    speed = ns_per_turn()
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(measure(kinds, asked.n, Path(folder)))
        left = leaks(Path(folder), f"bench-{os.getpid()}")
    versions = f"Linux {platform.release()}, Python {platform.python_version()}"
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, {versions}; measured, n={asked.n} rounds;", end=" ")
    print(f"{speed:.0f} ns/turn before, {ns_per_turn():.0f} after\n")
    print(table(found))
    said = [f"missing: {kind}: {why}" for kind, why in missing.items()] + [f"left: {one}" for one in left]
    for line in said:
        print(line, file=sys.stderr)
    if asked.json:
        asked.json.write_text(json.dumps({kind: asdict(costs) for kind, costs in found.items()}))
    sys.exit(1 if said else 0)


if __name__ == "__main__":
    main()
