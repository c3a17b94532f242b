"""Export a table of systems/latency/tables/ from a kernel profile of LLMServingSim.

    python scripts/export_profile_table.py ../shared/data/llmservingsim

Reads ``profile/*.csv`` (times of single layers, attention of joint batches) and ``meta.json`` (KV blocks)
of a recording, adds the layers of the whole model up, keeps a few dozen knots, and prints how far the table
is from every mixed batch that was profiled. Standard library only.
"""

from __future__ import annotations

import csv
import json
import re
import sys
from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from statistics import mean, quantiles
from typing import Any

from systems.latency import gpu_facts, model_facts, read_table, table_file

ROOT = Path(__file__).resolve().parent.parent
MODEL, GPU = "llama-3.1-8b", "rtx4090"
PER_LAYER = {
    "layernorm": 2,
    "qkv_proj": 1,
    "rotary_emb": 1,
    "o_proj": 1,
    "gate_up_proj": 1,
    "act_fn": 1,
    "down_proj": 1,
}
"""Kernels of one layer and how often each runs in it; the profile has the time of one run."""
ONCE = ("embedding", "final_layernorm")
HEAD = ("lm_head", "sampler")
SHARED_KNOTS, LOGITS_KNOTS = 44, 14
FIXED = {1, 16, 32, 64, 128, 256, 512, 1024, 2048}
BATCH = [1, 2, 4, 8, 16, 32, 64, 128, 256]
CONTEXT = [16, 128, 256, 512, 1024, 2048, 4096, 8192, 16384]
NEW = [16, 128, 256, 512, 1024, 2048]
CACHED = [0, 128, 512, 1024, 2048, 4096, 8192, 16384]
BESIDE_BATCH, BESIDE_CONTEXT = [1, 4, 8, 16, 32, 64, 128], [16, 128, 256, 512, 1024, 2048, 4096, 16384]

Batch = tuple[int, int, int, int]
"""(new tokens of a prefill, its cached tokens, decoding calls, context of each)."""


class Profile:
    """Times of the whole model in ms, from those of its kernels."""

    def __init__(self, folder: Path) -> None:
        self.layers = model_facts()[MODEL].layers
        self._dense = _columns(folder / "dense.csv", "layer", "tokens")
        self._head = _columns(folder / "per_sequence.csv", "layer", "sequences")
        self._attention = dict(_attention(folder / "attention.csv"))

    def tokens(self) -> list[int]:
        """Token counts that were profiled."""
        return sorted(self._dense["qkv_proj"])

    def rows(self) -> list[int]:
        """Row counts that were profiled."""
        return sorted(self._head["lm_head"])

    def shared(self, tokens: int) -> float:
        """All layers but attention, embedding and last norm."""
        layer = sum(times * between(self._dense[name], tokens) for name, times in PER_LAYER.items())
        return (self.layers * layer + sum(between(self._dense[name], tokens) for name in ONCE)) / 1e3

    def logits(self, rows: int) -> float:
        """LM head and sampler."""
        return sum(between(self._head[name], rows) for name in HEAD) / 1e3

    def attention(self, new: int, cached: int, n: int, context: int) -> float:
        """Attention of all layers for a joint batch (see ``Batch``)."""
        return self.layers * self._attention[new, cached, n, context] / 1e3

    def beside(self, new: int, n: int, context: int) -> float:
        """What decoding calls add to a prefill without cached tokens."""
        return max(0.0, self.attention(new, 0, n, context) - self.attention(new, 0, 0, 0))

    def mixed(self) -> Iterator[Batch]:
        """Every profiled batch of a prefill and decodes."""
        return (batch for batch in self._attention if batch[0] and batch[2])


def _columns(path: Path, name: str, axis: str) -> Mapping[str, dict[int, float]]:
    found: defaultdict[str, dict[int, float]] = defaultdict(dict)
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            found[row[name]][int(row[axis])] = float(row["time_us"])
    return found


def _attention(path: Path) -> Iterator[tuple[Batch, float]]:
    names = ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode")
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            new, cached, n, context = (int(row[name]) for name in names)
            yield (new, cached, n, context), float(row["time_us"])


def between(points: Mapping[int, float], x: int) -> float:
    """The profiled value at ``x``, or on the line between its neighbours."""
    if x in points:
        return points[x]
    low, high = max(p for p in points if p < x), min(p for p in points if p > x)
    return points[low] + (points[high] - points[low]) * (x - low) / (high - low)


def knots(cost: Callable[[int], float], xs: Sequence[int], n: int) -> tuple[list[int], list[float]]:
    """``n`` of ``xs``: the fixed ones, then each where a straight line was worst so far; and their costs."""
    known = {x: cost(x) for x in xs}
    chosen = sorted(FIXED.intersection(xs) | {xs[0], xs[-1]})

    def error(x: int) -> float:
        i = min(bisect_right(chosen, x), len(chosen) - 1)
        low, high = chosen[i - 1], chosen[i]
        line = known[low] + (known[high] - known[low]) * (x - low) / (high - low)
        return abs(line - known[x]) / known[x]

    while len(chosen) < n:
        insort(chosen, max((x for x in xs if x not in chosen), key=error))
    return chosen, [known[x] for x in chosen]


def export(profile: Profile, meta: Mapping[str, Any]) -> dict[str, Any]:
    """The table; docs/latency.md has the fields."""
    tokens, shared = knots(profile.shared, profile.tokens(), SHARED_KNOTS)
    rows, logits = knots(profile.logits, profile.rows(), LOGITS_KNOTS)
    decode = [[profile.attention(0, 0, n, c) for c in CONTEXT] for n in BATCH]
    prefill = [[profile.attention(new, old, 0, 0) for old in CACHED] for new in NEW]
    beside = [[[profile.beside(new, n, c) for c in BESIDE_CONTEXT] for n in BESIDE_BATCH] for new in NEW]
    return {
        "format": 1,
        "model": MODEL,
        "gpu": GPU,
        "tp": 1,
        "dtype": "bf16",
        "max_model_len": model_facts()[MODEL].max_model_len,
        "source": source(meta),
        "kv": kv(meta),
        "unit": "ms",
        "overhead_ms": 0.0,
        "shared": {"tokens": tokens, "ms": short(shared)},
        "logits": {"rows": rows, "ms": short(logits)},
        "decode_attention": {"batch": BATCH, "context": CONTEXT, "ms": [short(row) for row in decode]},
        "context_attention": {"new": NEW, "cached": CACHED, "ms": [short(row) for row in prefill]},
        "mixed_attention": {
            "new": NEW, "batch": BESIDE_BATCH, "context": BESIDE_CONTEXT,
            "ms": [[short(row) for row in plane] for plane in beside],
        },
    }  # fmt: skip


def source(meta: Mapping[str, Any]) -> dict[str, str]:
    """Where the numbers come from."""
    return {
        "package": "LLMServingSim",
        "version": "5daddb2",
        "licence": "MIT",
        "copyright": "2024, CASYS Lab at KAIST",
        "checkpoint": meta["model"],
        "system": meta["hardware"]["device_name"],
        "kernels": f"vLLM {meta['vllm_version']}, measured",
        "exported": date.today().isoformat(),
        "command": "python scripts/export_profile_table.py ../shared/data/llmservingsim",
    }


def kv(meta: Mapping[str, Any]) -> dict[str, Any]:
    """KV blocks as that engine counted them, less the one it keeps to itself; the rest is ``runtime``."""
    facts, cache = model_facts()[MODEL], meta["kv_cache"]
    memory, part = meta["hardware"]["device_total_memory_bytes"], cache["gpu_memory_utilization"]
    blocks = cache["num_gpu_blocks"] - 1
    left = int(memory * part) - facts.weight_bytes - blocks * facts.kv_block_bytes(1)
    return {
        "blocks": blocks,
        "measured": f"vLLM {meta['vllm_version']} found {blocks + 1} and keeps one to itself",
        "block_tokens": cache["block_size"],
        "bytes_per_token": facts.kv_token_bytes(1),
        "memory_bytes": memory,
        "memory_fraction": part,
        "weights_bytes": facts.weight_bytes,
        "activation_bytes": 0,
        "activation_tokens": meta["engine_kwargs"]["max_num_batched_tokens"],
        "runtime_bytes": left,
    }


def short(ms: Sequence[float]) -> list[float]:
    """Five significant digits."""
    return [float(f"{t:.5g}") for t in ms]


def write(path: Path, table: dict[str, Any]) -> None:
    """One field per line, one grid row per line; a table that did not change keeps its date."""
    if path.exists():
        old = json.loads(path.read_text(encoding="utf-8"))
        table["source"]["exported"], today = old["source"]["exported"], table["source"]["exported"]
        if table != old:
            table["source"]["exported"] = today
    text = json.dumps(table, indent=1)
    text = re.sub(r"\[[^][{}]*\]", lambda m: json.dumps(json.loads(m[0]), separators=(",", ":")), text)
    path.write_text(text + "\n", encoding="utf-8")


def validate(profile: Profile, path: Path, tokens: int, budget: int) -> Iterator[str]:
    """How far the table's steps are from those of the profile, for mixed batches that fit the engine."""
    table = read_table(path)
    fits = [b for b in profile.mixed() if b[0] + b[2] <= budget and b[0] + b[1] + b[2] * b[3] <= tokens]
    errors: dict[str, list[float]] = {"table": [], "parts alone, added": []}
    for new, cached, n, context in fits:
        fixed = profile.shared(new + n) + profile.logits(n + 1)
        true = fixed + profile.attention(new, cached, n, context)
        added = fixed + profile.attention(new, cached, 0, 0) + profile.attention(0, 0, n, context)
        errors["table"].append(table.step([(new, cached)], n, n * context) * 1e3 / true - 1)
        errors["parts alone, added"].append(added / true - 1)
    for name, off in errors.items():
        size = [abs(e) for e in off]
        p99 = quantiles(size, n=100)[98]
        yield (
            f"{name}: {len(off)} mixed steps, mean error {mean(off):+.2%}, mean size {mean(size):.2%}, "
            f"p99 {p99:.1%}, max {max(size):.1%}"
        )


def main(folder: Path) -> None:
    """Write the table, then say how far it is from the profile."""
    meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
    if GPU not in gpu_facts():
        raise SystemExit(f"{GPU} is not in gpus.toml")
    profile = Profile(folder / "profile")
    path = ROOT / "systems" / "latency" / "tables" / table_file(MODEL, GPU, 1)
    write(path, export(profile, meta))
    tokens = meta["kv_cache"]["num_gpu_blocks"] * meta["kv_cache"]["block_size"]
    for line in validate(profile, path, tokens, meta["engine_kwargs"]["max_num_batched_tokens"]):
        print(line)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]))
