"""Plain Python against a compiled build (``make native``) on ``speed1``: CPU time, in alternating processes.

    python benchmarks/compiled.py [--repeat N] [--scheduler NAME]... [--json]

Per scheduler the medians and the median ratio of the pairs, with its range. Exit code 6 without a build.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.native import SWITCH, is_compiled
from systems.catalog import scheduler_names

BAR = 40_000
"""Calls per second."""


def run(scheduler: str, compiled: bool) -> dict[str, Any]:
    """The row of ``speed.py`` for one run in a process of its own."""
    script = str(Path(__file__).with_name("speed.py"))
    words = [sys.executable, script, "--json", "--repeat", "1", "--scheduler", scheduler]
    environment = os.environ | ({} if compiled else {SWITCH: "0"})
    done = subprocess.run(words, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    (row,) = json.loads(done.stdout)
    found: dict[str, Any] = row
    return found


def pairs(scheduler: str, repeat: int) -> dict[str, Any]:
    """Calls per CPU second of both, pair by pair."""
    rows = [(run(scheduler, False), run(scheduler, True)) for _ in range(repeat)]
    exact = ("calls", "output_tokens", "simulated_s", "steps", "preemptions", "hit_rate")
    for plain, compiled in rows:
        if any(plain[name] != compiled[name] for name in exact):
            sys.exit(f"{scheduler}: a compiled run differs from plain Python; this build is wrong")
    rates = [(plain["calls_per_s"], compiled["calls_per_s"]) for plain, compiled in rows]
    return {
        "scheduler": scheduler, "plain": [p for p, _ in rates], "compiled": [c for _, c in rates],
        "ratio": [c / p for p, c in rates], "ns_per_turn": [r["ns_per_turn"] for pair in rows for r in pair],
    }  # fmt: skip


def show(rows: Sequence[dict[str, Any]]) -> None:
    """A table; ``ns/turn`` says how quiet the core was (``calibration``)."""
    median = statistics.median
    print("scheduler      calls/s  compiled  ratio (range)       best, of 40 000   ns/turn")
    for row in rows:
        ratio, best = row["ratio"], max(row["compiled"])
        print(
            f"{row['scheduler']:<13}{median(row['plain']):>9,.0f}{median(row['compiled']):>10,.0f}  "
            f"{median(ratio):.2f} [{min(ratio):.2f}, {max(ratio):.2f}]{best:>12,.0f} "
            f"{best / BAR:>5.0%}  {min(row['ns_per_turn']):>4.0f} to {max(row['ns_per_turn']):.0f}"
        )


def main() -> None:
    """All schedulers, or those named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--scheduler", action="append", help="a scheduler's name (default: all)")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    if not is_compiled():
        print("there is no compiled build of these sources: make native", file=sys.stderr)
        sys.exit(6)
    rows = [pairs(name, asked.repeat) for name in asked.scheduler or scheduler_names()]
    if asked.json:
        print(json.dumps(rows, indent=1))
    else:
        show(rows)


if __name__ == "__main__":
    main()
