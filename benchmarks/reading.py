"""How fast a Mooncake-like trace is read, and in how much memory.

    python benchmarks/reading.py [--mb 60] [--keep FILE]

Writes a file of that size (rows of 24 block ids on average, three of five ids new, as in the
public conversation trace) and reads it, each time in a process of its own: a loop of
``json.loads`` over the lines, the reader, and ``load`` with its hash of the content. CPU time of
one core, peak RSS of the process with everything imported.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

SEED = 1
BLOCK = 512


def write(path: Path, size: int) -> None:
    """A trace of ``size`` bytes: conversations that come back with a longer prompt, or do not."""
    draw, fresh, written, row = random.Random(SEED), 0, 0, 0
    open_prompts: list[list[int]] = []
    with path.open("w") as file:
        while written < size:
            again = bool(open_prompts) and draw.random() < 0.45
            front = open_prompts.pop(draw.randrange(len(open_prompts))) if again else [0]
            more = 1 + int(draw.expovariate(1 / 13.4))
            ids = [*front, *range(fresh + 1, fresh + 1 + more)]
            fresh += more
            tokens = len(ids) * BLOCK - draw.randrange(BLOCK - 1)
            open_prompts = [*open_prompts[-200:], ids[:-1] or [0]] if len(ids) < 200 else open_prompts
            line = json.dumps(
                {
                    "timestamp": row // 10 * 3000,
                    "input_length": tokens,
                    "output_length": 1 + int(draw.expovariate(1 / 340)),
                    "hash_ids": ids,
                }
            )
            written += file.write(line + "\n")
            row += 1


def plain(path: Path) -> None:
    """The yardstick: decode every line and forget it."""
    with path.open("rb") as file:
        for line in file:
            json.loads(line)


def reader(path: Path) -> None:
    """The reader by itself."""
    from workloads.readers.mooncake import READER

    READER.read(path, max_model_len=1 << 30, on_overflow="refuse")


def whole(path: Path) -> None:
    """What ``bench run`` does before it runs."""
    from workloads.load import load

    load(str(path), max_model_len=1 << 30)


WAYS: dict[str, Callable[[Path], None]] = {"json.loads": plain, "reader": reader, "load": whole}


def measure(way: str, path: Path) -> dict[str, float]:
    """CPU seconds and peak RSS (MB) of one way, in this process."""
    import workloads.load  # noqa: F401  imports count as memory, not as time

    start = time.process_time()
    WAYS[way](path)
    seconds = time.process_time() - start
    return {"seconds": seconds, "rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mb", type=int, default=60)
    parser.add_argument("--keep", type=Path, help="read this file, or write it if it is not there")
    parser.add_argument("--one", choices=WAYS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(given.one, given.keep)))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = given.keep or Path(folder) / "trace.jsonl"
        if not path.exists():
            write(path, given.mb * 1_000_000)
        size, base = path.stat().st_size / 1e6, 0.0
        print(f"{size:.0f} MB\n\n| | MB/s | of json.loads | peak RSS (MB) |\n|---|---|---|---|")
        for way in WAYS:
            command = [sys.executable, __file__, "--one", way, "--keep", str(path)]
            done = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            rate = size / done["seconds"]
            base = base or rate
            print(f"| {way} | {rate:.0f} | {rate / base:.2f} | {done['rss']:.0f} |")


if __name__ == "__main__":
    main()
