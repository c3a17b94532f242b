"""A finished run of ours (``results/CELL``): its calls, each taken for a request that came when it came."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from bench.calibration.recordings import Facts, Recording, Request, request
from bench.calibration.replay import SYSTEM
from bench.calibration.shared import check_shared
from bench.errors import InvalidRun, UsageError

LIMITS = ("kv_blocks", "max_num_seqs", "max_num_batched_tokens", "max_model_len")
FILES = ("manifest.json", "summary.json", "calls.parquet")
COLUMNS = (
    "t_arrive", "prompt_tokens", "output_tokens", "t_first_token", "t_end", "cached_tokens", "aborted"
)  # fmt: skip


class Cell:
    """Reads the folder of one run with one engine."""

    name = "cell"

    def sniff(self, path: Path) -> str | None:
        """Why this looks like one."""
        return "a run's folder" if path.is_dir() and all((path / name).is_file() for name in FILES) else None

    def read(self, path: Path) -> Recording:
        """Raises UsageError or InvalidRun where a replay would be another load than the run was."""
        made = json.loads((path / FILES[0]).read_text(encoding="utf-8"))
        identity = made["identity"]
        _check(path, made, identity)
        rows, cached, aborted = list[Request](), 0, 0
        for row in pq.read_table(path / FILES[2], columns=list(COLUMNS)).to_pylist():
            if row["aborted"]:
                aborted += 1
                continue
            cached += row["cached_tokens"]
            times = row["t_arrive"], row["prompt_tokens"], row["output_tokens"], row["t_first_token"]
            rows.append(request(*times, row["t_end"]))
        engine = identity["engine_config"]
        facts = Facts(
            self.name,
            path,
            made["model"],
            made["gpu"],
            {name: engine[name] for name in LIMITS},
            engine["prefix_cache"],
            {"cell": path.name, "latency": identity["latency"]},
            (*check_shared(cached, sum(r.prompt for r in rows), path), *_left_out(aborted)),
        )
        return Recording(facts, sorted(rows, key=lambda r: r.arrival or 0.0))


def _left_out(aborted: int) -> list[str]:
    return [f"{aborted} aborted calls left out"] * (aborted > 0)


def _check(path: Path, made: dict[str, Any], identity: dict[str, Any]) -> None:
    system = made.get("system", {}).get("name", "")
    if identity["replicas"] != 1:
        raise UsageError(f"{path}: {identity['replicas']} engines; a calibration is of one")
    if system != SYSTEM:
        raise InvalidRun(
            f"{path}: served by {system}; a replay serves first come, first served: "
            f"record with --system {SYSTEM}"
        )


READER = Cell()
