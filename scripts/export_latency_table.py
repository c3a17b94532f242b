"""Export systems/latency/tables/*.json from aiconfigurator-core, and validate them in docs/latency.md.

    pip install -e '.[tables]'       # 616 MB, x86-64 only, never needed at run time
    python scripts/export_latency_table.py

Queries the measured kernel times of one model on one GPU for the vLLM
backend, keeps them at a few dozen knots, and compares the table with the
library between the knots.
"""

from __future__ import annotations

import json
import random
import re
from bisect import bisect_right, insort
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from statistics import mean, quantiles
from typing import Any, NamedTuple

from aiconfigurator_core.sdk import EngineHandle, estimate_kv_cache

from systems.latency import RooflineLatency, TableLatency, gpu_facts, load_table, model_facts, table_file

ROOT = Path(__file__).resolve().parent.parent
DOC = ROOT / "docs" / "latency.md"
MARK = ("<!-- validation: written by scripts/export_latency_table.py -->", "<!-- end of validation -->")

PACKAGE = "aiconfigurator-core"
COMMAND = "python scripts/export_latency_table.py"
MEMORY_FRACTION = 0.9
PROFILED_TOKENS = 8192
"""vLLM sizes its activations by its default token budget of a server on these GPUs."""

KERNELS = {"a100": "0.14.0", "h100": "0.24.0", "h200": "0.24.0"}
"""The vLLM whose kernels the library has of each GPU."""

SHARED_KNOTS, SHARED_TOKENS = 44, [*range(1, 2049), *range(2112, 32769, 64)]
LOGITS_KNOTS, LOGITS_ROWS = 14, range(1, 1025)
FIXED_KNOTS = {1, 32, 128, 256, 512, 2048, 8192}
"""The common batches and token budgets are met exactly."""
DECODE_BATCH = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
DECODE_CONTEXT = [16, 128, 256, 512, 1024, 1536, 2048, 3072, 4096, 8192, 16384, 32768, 131072]
PREFILL_NEW = [1, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768]
PREFILL_CACHED = [0, 128, 512, 1024, 2048, 4096, 8192, 16384, 32768, 131072]


class Target(NamedTuple):
    """A table to export: our names, the library's checkpoint, GPUs per engine."""

    model: str
    gpu: str
    checkpoint: str
    tp: int = 1
    kv: str | None = None

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
    def spelled(self) -> str:
        """The model as ``--model`` takes it, size included."""
        return f"{self.model}:tp{self.tp}"


LLAMA_FP8 = "nvidia/Llama-3.1-70B-Instruct-FP8"
LLAMA_8B, LLAMA_70B = "meta-llama/Meta-Llama-3.1-8B", "meta-llama/Meta-Llama-3.1-70B"
TARGETS = [
    *(Target("llama-3.1-8b", gpu, LLAMA_8B) for gpu in KERNELS),
    *(Target("llama-3.1-70b", gpu, LLAMA_70B, tp) for gpu in ("a100", "h100") for tp in (4, 8)),
    *(
        Target("llama-3.1-70b-fp8", gpu, LLAMA_FP8, tp, kv="bfloat16")
        for gpu in ("h100", "h200")
        for tp in (2, 4, 8)
    ),
    *(Target("qwen3-8b", gpu, "Qwen/Qwen3-8B") for gpu in ("a100", "h100")),
]


class Kernels:
    """The library's times of one target, in ms, by the parts a step is made of."""

    def __init__(self, target: Target) -> None:
        self._engine = EngineHandle.compile(
            target.checkpoint,
            target.system,
            "vllm",
            backend_version=target.backend_version,
            tp_size=target.tp,
            kvcache_quant_mode=target.kv,
        )
        names = self._names()
        self._attention = [i for i, name in enumerate(names) if name == "attention"]
        self._logits = [i for i, name in enumerate(names) if name == "logits_gemm"]
        self._shared = [i for i in range(len(names)) if i not in self._attention + self._logits]

    def _names(self) -> list[str]:
        """Names of the operations; the context and generation lists must be the same kernels in one order."""
        every = range(len(self._engine.decode_step_per_op(gen_tokens=1, isl=16, osl=2)))
        context = self._engine.evaluate_context_ops(every, batch_size=1, s=16)
        generation = self._engine.evaluate_generation_ops(every, batch_size=1, s=16)
        names = [op[0].removeprefix("context_") for op in context]
        if names != [op[0].removeprefix("generation_") for op in generation]:
            raise SystemExit("context and generation layers differ: this model needs an exporter of its own")
        return names

    def _sum(self, ops: Sequence[tuple[Any, ...]]) -> float:
        return float(sum(op[1] for op in ops))

    def shared(self, tokens: int) -> float:
        """Embedding, norms and GEMMs of one step with ``tokens`` tokens."""
        return self._sum(self._engine.evaluate_context_ops(self._shared, batch_size=1, s=tokens))

    def logits(self, rows: int) -> float:
        """LM head over ``rows`` calls."""
        return self._sum(self._engine.evaluate_generation_ops(self._logits, batch_size=rows, s=1))

    def decode_attention(self, batch: int, context: int) -> float:
        """One new token in each of ``batch`` calls of ``context`` tokens."""
        return self._sum(self._engine.evaluate_generation_ops(self._attention, batch_size=batch, s=context))

    def context_attention(self, new: int, cached: int) -> float:
        """``new`` tokens of one call behind ``cached`` ones."""
        return self._sum(
            self._engine.evaluate_context_ops(self._attention, batch_size=1, s=new, prefix=cached)
        )

    def step(self, prefills: Sequence[tuple[int, int]], batch: int, context: int) -> float:
        """A whole step composed by the library: its own sum for pure steps."""
        if not prefills:
            return float(self._engine.predict_decode_latency(batch, context))
        ((new, cached),) = prefills
        if not batch:
            return float(self._engine.predict_prefill_latency(1, new + cached, cached))
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
    tokens, shared = choose_knots(kernels.shared, SHARED_TOKENS, SHARED_KNOTS)
    rows, logits = choose_knots(kernels.logits, LOGITS_ROWS, LOGITS_KNOTS)
    decode = [[kernels.decode_attention(n, c) for c in DECODE_CONTEXT] for n in DECODE_BATCH]
    prefill = [[kernels.context_attention(new, old) for old in PREFILL_CACHED] for new in PREFILL_NEW]
    return {
        "format": 1,
        "model": target.model,
        "gpu": target.gpu,
        "tp": target.tp,
        "dtype": "fp8" if model_facts()[target.model].matrix_bytes == 1 else "bf16",
        "max_model_len": target.max_model_len,
        "source": source(target),
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


def source(target: Target) -> dict[str, str]:
    """Where the numbers come from."""
    return {
        "package": PACKAGE,
        "version": version(PACKAGE),
        "licence": "Apache-2.0",
        "copyright": "2025-2026 NVIDIA CORPORATION & AFFILIATES",
        "checkpoint": target.checkpoint,
        "system": target.system,
        "kernels": f"vLLM {target.backend_version}, measured",
        "exported": date.today().isoformat(),
        "command": COMMAND,
    }


def kv_memory(target: Target) -> dict[str, Any]:
    """KV blocks and the bytes they were computed from."""
    memory = estimate_kv_cache(
        target.checkpoint, target.system, "vllm", target.backend_version,
        max_num_tokens=PROFILED_TOKENS, max_batch_size=256,
        memory_fraction_kind="of_total", memory_fraction_value=MEMORY_FRACTION, tp_size=target.tp,
        kvcache_quant_mode=target.kv,
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


Case = tuple[list[tuple[int, int]], int, int]
"""(prefills, decoding calls, context of each)."""


def reference_cases() -> Iterator[tuple[str, Case]]:
    """The steps of the published reference points."""
    for context in (1024, 4096):
        for n in (1, 8, 32, 128, 256):
            yield f"decode, batch {n} at {context} tokens", ([], n, context)
    for new in (128, 512, 2048, 8192):
        yield f"prefill of {new} tokens", ([(new, 0)], 0, 0)


def random_cases(kv_tokens: int) -> dict[str, list[Case]]:
    """Steps an engine may run, log-uniform, contexts within the KV cache."""
    rnd = random.Random(1)

    def log(low: int, high: int) -> int:
        return int(low * (high / low) ** rnd.random())

    def decode() -> tuple[int, int]:
        while True:
            n, context = log(1, 257), log(32, 65536)
            if n * context <= kv_tokens:
                return n, context

    def chunk() -> tuple[int, int]:
        return log(1, 2049), log(1, 65536) if rnd.random() < 0.75 else 0

    return {
        "decode": [([], *decode()) for _ in range(2000)],
        "prefill": [([chunk()], 0, 0) for _ in range(2000)],
        "mixed": [([chunk()], *decode()) for _ in range(2000)],
    }


def validate(target: Target, kernels: Kernels) -> Iterator[str]:
    """Lines of the validation section: reference points, then errors at random steps."""
    table, bare = load_table(target.spelled, target.gpu), bare_roofline(target)
    yield f"### {table.name.replace('/', ' on ')}"
    yield ""
    yield "| step | library, ms | table, ms | error | roofline, ms | measured / roofline |"
    yield "|---|---:|---:|---:|---:|---:|"
    for label, case in reference_cases():
        measured, ours, least = kernels.step(*case), ours_ms(table, case), ours_ms(bare, case)
        error = round(ours / measured - 1, 4) + 0.0
        yield f"| {label} | {measured:.2f} | {ours:.2f} | {error:+.2%} | {least:.2f} | {ours / least:.2f} |"
    yield ""
    yield "| 2 000 random steps | mean error | p99 | max | worst step |"
    yield "|---|---:|---:|---:|---|"
    for kind, cases in random_cases(table.kv_blocks * 16).items():
        errors = [abs(ours_ms(table, case) / kernels.step(*case) - 1) for case in cases]
        worst = cases[errors.index(max(errors))]
        p99 = quantiles(errors, n=100)[98]
        yield f"| {kind} | {mean(errors):.2%} | {p99:.2%} | {max(errors):.2%} | {describe(worst)} |"
    yield ""


def bare_roofline(target: Target) -> RooflineLatency:
    """What arithmetic and memory allow at best."""
    return RooflineLatency(model_facts()[target.model], gpu_facts()[target.gpu], target.tp, factor=1.0)


def ours_ms(table: TableLatency | RooflineLatency, case: Case) -> float:
    """The table's or roofline's time of a step, in ms."""
    prefills, n, context = case
    return table.step(prefills, n, n * context) * 1e3


def describe(case: Case) -> str:
    """A step in words."""
    prefills, n, context = case
    words = [f"{new} new behind {cached} cached" for new, cached in prefills]
    return " + ".join(words + [f"batch {n} at {context} tokens"] * (n > 0))


def write_validation(lines: Sequence[str]) -> None:
    """Replace the text between the marks in docs/latency.md."""
    text = DOC.read_text(encoding="utf-8")
    head, rest = text.split(MARK[0])
    tail = rest.split(MARK[1])[1]
    DOC.write_text("\n".join([head + MARK[0], "", *lines, MARK[1] + tail]), encoding="utf-8")


def main() -> None:
    """Write every table, then the validation of all of them."""
    kernels = {target: Kernels(target) for target in TARGETS}
    folder = ROOT / "systems" / "latency" / "tables"
    for target in TARGETS:
        write_json(folder / table_file(target.model, target.gpu, target.tp), export(target, kernels[target]))
    write_validation(list(chain.from_iterable(validate(t, kernels[t]) for t in TARGETS)))


if __name__ == "__main__":
    main()
