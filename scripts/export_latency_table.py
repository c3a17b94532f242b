"""Export systems/latency/tables/*.json from aiconfigurator-core, and write docs/latency-tables.md.

    pip install -e '.[tables]'       # 616 MB, x86-64 only, never needed at run time
    python scripts/export_latency_table.py

Queries the measured kernel times of one model on one GPU for the vLLM
backend, keeps them at a few dozen knots, and compares the table with the
library between the knots (latency_report.py beside this file).
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right, insort
from collections.abc import Callable, Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import latency_report
from aiconfigurator_core.sdk import EngineHandle, estimate_kv_cache

from systems.latency import model_facts, table_file

ROOT = Path(__file__).resolve().parent.parent

PACKAGE = "aiconfigurator-core"
COMMAND = "python scripts/export_latency_table.py"
MEMORY_FRACTION = 0.9
PROFILED_TOKENS = 8192
"""vLLM sizes its activations by its default token budget of a server on these GPUs."""

KERNELS = {"a100": "0.14.0", "h100": "0.24.0", "h200": "0.24.0"}
"""The vLLM whose kernels the library has of each GPU."""

SHARED_KNOTS = {"bf16": 44}
MANY_KNOTS = 72
"""FP8 GEMMs and experts step up where a batch outgrows a tile: more knots than the smooth ones need."""
SHARED_TOKENS = [*range(1, 2049), *range(2112, 32769, 64)]
LOGITS_KNOTS, LOGITS_ROWS = 14, range(1, 1025)
FIXED_KNOTS = {1, 32, 128, 256, 512, 2048, 8192}
"""The common batches and token budgets are met exactly."""
DECODE_BATCH = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
DECODE_CONTEXT = [16, 128, 256, 512, 1024, 1536, 2048, 3072, 4096, 8192, 16384, 32768, 131072]
SPIKE = 1.5
"""So far above both its neighbours a measured point is a mistake."""
PREFILL_NEW = [1, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768]
PREFILL_CACHED = [0, 128, 512, 1024, 2048, 4096, 8192, 16384, 32768, 131072]


MEASURED_TAGS = {"silicon", "estimated", "mixed"}
"""The library's words for a measured time, one made of measured parts, a sum with an estimate in it."""
ESTIMATED = re.compile(r"(context|generation)_(embedding(_ar)?|add_norm_[12]|act_gate)")
"""What it never measures ("empirical": bytes over bandwidth). Any other estimate ends the export."""


class Target(NamedTuple):
    """A table to export: our names, the library's checkpoint, GPUs per engine, and how experts are spread.

    ``kv``: the library's name for the type of the KV cache vLLM takes unless told otherwise: the
    checkpoint's if it names one, else bf16, where the library would take FP8.
    ``moe``: "ep" gives every GPU whole experts, "tp" a slice of each. ``note`` goes into the table's source.
    """

    model: str
    gpu: str
    checkpoint: str
    tp: int = 1
    kv: str | None = None
    moe: str = ""
    note: str = ""

    @property
    def system(self) -> str:
        """The library's name of the GPU."""
        return f"{self.gpu}_sxm"

    @property
    def backend_version(self) -> str:
        """The vLLM version whose kernels were measured on it."""
        return KERNELS[self.gpu]

    @property
    def max_model_len(self) -> int:
        """The model's context in tokens."""
        return model_facts()[self.model].max_model_len

    @property
    def kind(self) -> str:
        """The model's kind, as rooflines tell them apart."""
        return model_facts()[self.model].kind

    @property
    def spelled(self) -> str:
        """The model as ``--model`` takes it, size included."""
        return f"{self.model}:tp{self.tp}"

    @property
    def split(self) -> dict[str, Any]:
        """The library's arguments for size and types."""
        given: dict[str, Any] = {"tp_size": self.tp, "kvcache_quant_mode": self.kv}
        if self.moe:
            given |= {f"moe_{way}_size": self.tp if way == self.moe else 1 for way in ("tp", "ep")}
        return given


STATIC = "FP8 with static scales: GEMMs measured with dynamic ones, less the measured kernels that find them"
ROUTED = "experts measured under power-law routing (exponent 1.2)"
CODER = f"measured in the shapes of Qwen3-30B-A3B, which has the same matrices; {ROUTED}"
FLOOR = f"{ROUTED}; no block-scaled GEMM measured below 55 us, presumably its launch"
LLAMA = "meta-llama/Meta-Llama-3.1-"
LLAMA_FP8, QWEN, QWEN_FP8 = (
    "nvidia/Llama-3.1-70B-Instruct-FP8", "Qwen/Qwen3-235B-A22B", "Qwen/Qwen3-235B-A22B-FP8"
)  # fmt: skip
TARGETS = [
    *(Target("llama-3.1-8b", gpu, f"{LLAMA}8B") for gpu in KERNELS),
    *(Target("llama-3.1-70b", gpu, f"{LLAMA}70B", tp) for gpu in KERNELS for tp in (4, 8)),
    *(Target("llama-3.1-70b-fp8", "h100", LLAMA_FP8, tp, "fp8", note=STATIC) for tp in (2, 4, 8)),
    *(Target("llama-3.1-70b-fp8", "h200", LLAMA_FP8, tp, "fp8", note=STATIC) for tp in (1, 2, 4, 8)),
    *(Target("qwen3-8b", gpu, "Qwen/Qwen3-8B") for gpu in KERNELS),
    *(
        Target("qwen3-coder-30b", gpu, "Qwen/Qwen3-30B-A3B", tp, moe="tp", note=CODER)
        for gpu in KERNELS
        for tp in (1, 2)
    ),
    *(Target("qwen3-235b", gpu, QWEN, 8, moe="ep", note=ROUTED) for gpu in KERNELS),
    *(Target("qwen3-235b-fp8", gpu, QWEN_FP8, 8, "bfloat16", "ep", FLOOR) for gpu in ("h100", "h200")),
]


class Kernels:
    """The library's times of one target, in ms, by the parts a step is made of."""

    def __init__(self, target: Target) -> None:
        self._engine = EngineHandle.compile(
            target.checkpoint, target.system, "vllm", backend_version=target.backend_version, **target.split
        )
        count = len(self._engine.decode_step_per_op(gen_tokens=1, isl=16, osl=2))
        decode = [self._name(self._engine.evaluate_generation_ops, i) for i in range(count)]
        self.whole_prefill = decode == (context := self._context_names(decode))
        """Whether the library's prefill has an LM head: not with experts."""
        self._attention = decode.index("attention")
        self._logits = decode.index("logits_gemm")
        self._shared = [i for i, name in enumerate(context) if name not in ("attention", "logits_gemm")]

    def _name(self, evaluate: Callable[..., list[Any]], i: int) -> str:
        return str(evaluate([i], batch_size=1, s=16)[0][0]).partition("_")[2]

    def _context_names(self, decode: list[str]) -> list[str]:
        """Names of a prefill's operations: those of a decode step in their order, the LM head perhaps not."""
        for expected in (decode, [name for name in decode if name != "logits_gemm"]):
            try:
                found = [self._name(self._engine.evaluate_context_ops, i) for i in range(len(expected))]
            except ValueError:  # fewer operations
                continue
            if found == expected:
                return found
        raise SystemExit("context and generation layers differ: this model needs an exporter of its own")

    def _checked(self, ops: Sequence[tuple[Any, ...]]) -> Sequence[tuple[Any, ...]]:
        """``ops``, or the end of the export if one is an estimate that should be a measurement."""
        for name, ms, _, tag in ops:
            if ms and tag not in MEASURED_TAGS and not (tag == "empirical" and ESTIMATED.fullmatch(name)):
                raise SystemExit(f"{name} is not measured: the library's source is {tag!r}")
        if (fallback := self._engine.last_provenance()) is not None:
            raise SystemExit(f"the library fell back to {fallback!r}")
        return ops

    def _sum(self, ops: Sequence[tuple[Any, ...]]) -> float:
        return float(sum(op[1] for op in self._checked(ops)))

    def shares(self, tokens: int, context: int) -> dict[str, float]:
        """Share of a decode step's time by the library's word for where it comes from."""
        ops = self._engine.decode_step_per_op(gen_tokens=tokens, isl=context, osl=2)
        tags = {tag: sum(op[1] for op in ops if op[3] == tag) for tag in sorted({op[3] for op in ops})}
        return {tag: ms / sum(tags.values()) for tag, ms in tags.items()}

    def shared(self, tokens: int) -> float:
        """Embedding, norms and GEMMs of one step with ``tokens`` tokens."""
        return self._sum(self._engine.evaluate_context_ops(self._shared, batch_size=1, s=tokens))

    def logits(self, rows: int) -> float:
        """LM head over ``rows`` calls."""
        return self._sum(self._engine.evaluate_generation_ops([self._logits], batch_size=rows, s=1))

    def decode_attention(self, batch: int, context: int) -> float:
        """One new token in each of ``batch`` calls of ``context`` tokens."""
        return self._sum(self._engine.evaluate_generation_ops([self._attention], batch_size=batch, s=context))

    def context_attention(self, new: int, cached: int) -> float:
        """``new`` tokens of one call behind ``cached`` ones."""
        return self._sum(
            self._engine.evaluate_context_ops([self._attention], batch_size=1, s=new, prefix=cached)
        )

    def step(self, prefills: Sequence[tuple[int, int]], batch: int, context: int) -> float:
        """A whole step composed by the library: its own sum for pure steps."""
        if not prefills:
            return float(self._engine.predict_decode_latency(batch, context))
        ((new, cached),) = prefills
        if not batch:
            whole = float(self._engine.predict_prefill_latency(1, new + cached, cached))
            return whole if self.whole_prefill else whole + self.logits(1)
        attention = self.decode_attention(batch, context) + self.context_attention(new, cached)
        return self.shared(new + batch) + self.logits(batch + 1) + attention


def choose_knots(cost: Callable[[int], float], xs: Sequence[int], n: int) -> tuple[list[int], list[float]]:
    """``n`` knots of ``xs``: the fixed ones, then each where linear interpolation was worst so far."""
    known = {x: cost(x) for x in xs}
    knots = sorted(FIXED_KNOTS.intersection(xs) | {xs[-1]})

    def error(x: int) -> float:
        i = min(bisect_right(knots, x), len(knots) - 1)
        low, high = knots[i - 1], knots[i]
        line = known[low] + (known[high] - known[low]) * (x - low) / (high - low)
        return abs(line - known[x]) / known[x]

    while len(knots) < n:
        insort(knots, max(xs, key=error))
    return knots, [known[x] for x in knots]


def export(target: Target, kernels: Kernels) -> dict[str, Any]:
    """The table of ``target``; see docs/latency.md for the fields."""
    knots = SHARED_KNOTS.get(target.kind, MANY_KNOTS)
    tokens, shared = choose_knots(kernels.shared, SHARED_TOKENS, knots)
    rows, logits = choose_knots(kernels.logits, LOGITS_ROWS, LOGITS_KNOTS)
    decode, repaired = without_spikes(
        [[kernels.decode_attention(n, c) for c in DECODE_CONTEXT] for n in DECODE_BATCH]
    )
    prefill = [[kernels.context_attention(new, old) for old in PREFILL_CACHED] for new in PREFILL_NEW]
    return {
        "format": 1,
        "model": target.model,
        "gpu": target.gpu,
        "tp": target.tp,
        "dtype": "fp8" if model_facts()[target.model].matrix_bytes == 1 else "bf16",
        "max_model_len": target.max_model_len,
        "source": source(target) | ({"repaired": repaired} if repaired else {}),
        **({"uncertainty": model_facts()[target.model].engine_band} if target.moe else {}),
        "kv": kv_memory(target),
        "unit": "ms",
        "overhead_ms": 0.0,
        "shared": {"tokens": tokens, "ms": short(shared)},
        "logits": {"rows": rows, "ms": short(logits)},
        "decode_attention": {
            "batch": DECODE_BATCH, "context": DECODE_CONTEXT, "ms": [short(row) for row in decode],
        },
        "context_attention": {
            "new": PREFILL_NEW, "cached": PREFILL_CACHED, "ms": [short(row) for row in prefill],
        },
    }  # fmt: skip


def without_spikes(grid: list[list[float]]) -> tuple[list[list[float]], list[str]]:
    """Decode attention without single points far above both neighbours in context, and which were replaced.

    Such a measurement went wrong: a longer context cannot take a third less. As rows never
    fall, one would raise all longer contexts to it.
    """
    words = []
    for n, row in zip(DECODE_BATCH, grid, strict=True):
        for j in range(1, len(row) - 1):
            if row[j] > SPIKE * max(row[j - 1], row[j + 1]):
                low, here, high = DECODE_CONTEXT[j - 1 : j + 2]
                line = row[j - 1] + (row[j + 1] - row[j - 1]) * (here - low) / (high - low)
                words.append(
                    f"decode attention, batch {n} at {here} tokens: {row[j]:.3g} ms, taken as {line:.3g}"
                )
                row[j] = line
    return grid, words


def source(target: Target) -> dict[str, Any]:
    """Where the numbers come from."""
    return {
        "package": PACKAGE,
        "version": version(PACKAGE),
        "licence": "Apache-2.0",
        "copyright": "2025-2026 NVIDIA CORPORATION & AFFILIATES",
        "checkpoint": target.checkpoint,
        "system": target.system,
        "kernels": f"vLLM {target.backend_version}, measured",
        **({"note": target.note} if target.note else {}),
        "exported": date.today().isoformat(),
        "command": COMMAND,
    }


def kv_memory(target: Target) -> dict[str, Any]:
    """KV blocks and the bytes they were computed from."""
    memory = estimate_kv_cache(
        target.checkpoint, target.system, "vllm", target.backend_version,
        max_num_tokens=PROFILED_TOKENS, max_batch_size=256,
        memory_fraction_kind="of_total", memory_fraction_value=MEMORY_FRACTION, **target.split,
    )  # fmt: skip
    parts = memory["memory_breakdown"]
    return {
        "blocks": memory["total_kv_size_tokens"] // 16,
        "block_tokens": 16,
        "bytes_per_token": int(memory["kv_size_per_token_bytes"]),
        "memory_bytes": int(memory["total_gpu_capacity_bytes"]),
        "memory_fraction": MEMORY_FRACTION,
        "weights_bytes": int(parts["weights_bytes"]),
        "activation_bytes": int(parts["activations_bytes"]),
        "activation_tokens": PROFILED_TOKENS,
        "runtime_bytes": int(parts["runtime_overhead_bytes"] + parts["comm_overhead_bytes"]),
    }


def short(ms: Sequence[float]) -> list[float]:
    """Five significant digits: a hundredth of the interpolation error."""
    return [float(f"{t:.5g}") for t in ms]


def write_json(path: Path, table: dict[str, Any]) -> None:
    """One field per line, one grid row per line; a table that did not change keeps its date."""
    if path.exists():
        old = json.loads(path.read_text(encoding="utf-8"))
        table["source"]["exported"], today = old["source"]["exported"], table["source"]["exported"]
        if table != old:
            table["source"]["exported"] = today
    text = json.dumps(table, indent=1)
    text = re.sub(r"\[[^][{}]*\]", lambda m: json.dumps(json.loads(m[0]), separators=(",", ":")), text)
    path.write_text(text + "\n", encoding="utf-8")


def main() -> None:
    """Write every table, then compare all of them with the library."""
    kernels = {target: Kernels(target) for target in TARGETS}
    folder = ROOT / "systems" / "latency" / "tables"
    for target in TARGETS:
        write_json(folder / table_file(target.model, target.gpu, target.tp), export(target, kernels[target]))
    latency_report.write(ROOT / "docs", kernels)


if __name__ == "__main__":
    main()
