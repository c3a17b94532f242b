"""Which verdicts of an experiment survive another table and parts varied by 15 %, as Markdown.

python scripts/robustness.py autellix:fig12 --scale robust --out results
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from bench.curves.robustness import table, vary
from bench.curves.runner import Options, Outcome
from bench.reproduce import load
from reports.numbers import bounded


def main() -> None:
    """Print a table: what was got of each claim under each variation."""
    given = _options()
    options = Options(given.scale, given.out, workers=given.workers)
    outcomes: dict[str, Outcome] = {}
    began = time.monotonic()
    for name, outcome in vary(*load(given.experiment), options):
        outcomes[name] = outcome
        print(f"<!-- {name}: {outcome.calls:,} calls, {time.monotonic() - began:.0f} s -->", flush=True)
    names = list(outcomes)
    print("| claim | stated | verdict | survives | " + " | ".join(names) + " |")
    print("|---" * (4 + len(names)) + "|")
    for row in table(outcomes):
        values = [bounded(*map(float, row["got"][name])) for name in names]
        kept = "; ".join([row["survives"], *row["changed"]])
        print("| " + " | ".join([row["statement"], row["expected"], row["verdict"], kept, *values]) + " |")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("experiment")
    parser.add_argument("--scale", default="robust")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--out", type=Path, default=Path("results"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
