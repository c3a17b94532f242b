"""docs/latency-tables.md: tables against the library, rooflines against tables, kernels against real engines.

Used by export_latency_table.py.
"""

from __future__ import annotations

import csv
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from statistics import geometric_mean, mean, median, quantiles
from typing import Any, NamedTuple, Protocol

from aiconfigurator_core.sdk import EngineHandle

from systems.latency import RooflineLatency, TableLatency, gpu_facts, load_table, model_facts

TAGS = {
    "silicon": "measured",
    "estimated": "from measured parts",
    "mixed": "measured and estimated",
    "empirical": "estimated",
}
"""The library's words for where a time comes from, and ours."""

INTRO = """# Tables against the library, rooflines against tables

Written by `scripts/export_latency_table.py`; [latency.md](latency.md) says what the words mean.

`measured / roofline`: a table's step over the bare roofline's at its 14 reference points (below). `step by
source`: how much of a decode step of 32 calls at 1 024 tokens the library measured, made of measured parts
(static FP8: the dynamic GEMM less its quantisation) and estimated (norms, activations, embedding: bytes
over bandwidth). The export ends with an error if anything else is an estimate, or if the library falls back
to another shape, type or GPU.
"""

PUBLISHED = """## Real engines against kernels

End-to-end points of vLLM servers that the library carries (`silicon_sample.csv`); no table is made of them.
The kernels' time per output token is a decode step of all concurrent calls at the mean context, plus what
the other calls' prefills add: batch - 1 of them per output length, each alone. Nothing is fitted, no queue
is simulated. 8B-FP8 is left out (its prompts look cached), and so are rows without a size.

| model | GPU | GPUs | experts over | vLLM | points | real / kernels, median | least | largest |
|---|---|---:|---|---|---:|---:|---:|---:|"""

SECTIONS = """
## Each table

Reference points first (`tests/unit/systems/test_latency.py` holds published ones to 1 %), then steps drawn
log-uniformly (batch up to 256, contexts up to 64k within the KV cache, chunks up to 2 048 new tokens). The
library has jumps between its own measured points (on the A100 between batch 31 and 32 at 10k tokens: 13 %)
where the table keeps a straight line; those are its largest errors. Mixed steps are compared with the
library's parts, added by the formula in latency.md. FP8 GEMMs step up at multiples of 256 tokens and fall
to the next one; beyond 4 352 tokens the library has no such points.
"""

Case = tuple[list[tuple[int, int]], int, int]
"""(prefills, decoding calls, context of each)."""


class Target(Protocol):
    """What a report needs of a table to export."""

    model: str
    gpu: str
    tp: int

    @property
    def spelled(self) -> str:
        """The model as ``--model`` takes it, size included."""


class Kernels(Protocol):
    """The library's times, in ms."""

    def step(self, prefills: Sequence[tuple[int, int]], batch: int, context: int) -> float:
        """A whole step."""

    def shares(self, tokens: int, context: int) -> dict[str, float]:
        """Share of a decode step by source."""


def write(docs: Path, kernels: Mapping[Any, Kernels]) -> None:
    """The whole document. Ends with an error if the published points give another ``engine_band``."""
    lines = [
        *INTRO.splitlines(),
        "",
        *overview(kernels),
        "",
        *PUBLISHED.splitlines(),
        *published(),
        *SECTIONS.splitlines(),
    ]
    for target, known in kernels.items():
        lines += ["", *validate(target, known)]
    (docs / "latency-tables.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def overview(kernels: Mapping[Any, Kernels]) -> Iterator[str]:
    """A row per table."""
    yield "| table | KV blocks | least measured / roofline | geometric mean | largest | step by source |"
    yield "|---|---:|---:|---:|---:|---|"
    for target, known in kernels.items():
        table, bare = load_table(target.spelled, target.gpu), bare_roofline(target)
        found = [ours_ms(table, case) / ours_ms(bare, case) for _, case in reference_cases()]
        words = [
            f"{TAGS[tag]} {share:.0%}"
            for tag, share in sorted(known.shares(32, 1024).items(), key=lambda item: -item[1])
        ]
        ratios = " | ".join(f"{x:.2f}" for x in (min(found), geometric_mean(found), max(found)))
        yield f"| {title(table)} | {table.kv_blocks} | {ratios} | {', '.join(words)} |"


def title(table: TableLatency) -> str:
    """As in "llama-3.1-70b:tp4 on a100"."""
    return table.name.replace("/", " on ")


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
    """Lines of one table: reference points, then errors at random steps."""
    table, bare = load_table(target.spelled, target.gpu), bare_roofline(target)
    yield f"### {title(table)}"
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


class Point(NamedTuple):
    """A published configuration: library's checkpoint and system, sizes, vLLM's version."""

    checkpoint: str
    system: str
    tp: int
    moe_tp: int
    ep: int
    version: str


LIKE = {"meta-llama/Llama-3.1-70B": "nvidia/Llama-3.1-70B-Instruct-FP8"}
"""The checkpoint whose kernels are compared, where the points' own name hides the FP8."""
COMPARED = {
    "meta-llama/Llama-3.1-70B": "fp8",
    "Qwen/Qwen3-32B": "",
    "Qwen/Qwen3-235B-A22B-FP8": "fp8",
}
"""Models of the published points on H100 and H200, and their precision there."""


def published() -> Iterator[str]:
    """A row per published configuration."""
    band: list[float] = []
    for point, rows in sorted(published_rows().items()):
        found = sorted(real_over_kernels(point, rows))
        with_experts = "A22B" in point.checkpoint
        band += found if with_experts else []
        over = ("GPUs" if point.ep > 1 else "slices") if with_experts else ""
        name, gpu = LIKE.get(point.checkpoint, point.checkpoint), point.system.partition("_")[0]
        ratios = " | ".join(f"{x:.2f}" for x in (median(found), found[0], found[-1]))
        version = point.version or "not given"
        yield f"| {name} | {gpu} | {point.tp} | {over} | {version} | {len(found)} | {ratios} |"
    if (round(min(band), 2), round(max(band), 2)) != model_facts()["qwen3-235b"].engine_band:
        raise SystemExit(f"engine_band of models with experts must be {min(band):.2f}, {max(band):.2f}")


def published_rows() -> dict[Point, list[dict[str, str]]]:
    """The library's end-to-end points with one server, by configuration."""
    found = defaultdict(list)
    text = (files("aiconfigurator_core") / "systems" / "silicon_sample.csv").read_text(encoding="utf-8")
    for row in csv.DictReader(text.splitlines()):
        wanted = (
            row["backend"] == "vllm" and row["mode"] == "agg" and row["system"] in ("h100_sxm", "h200_sxm")
        )
        if not wanted or COMPARED.get(row["model_path"]) != row["precision"] or not row["tp_size"]:
            continue
        sizes = [int(row[name]) for name in ("tp_size", "moe_tp_size", "moe_ep_size")]
        if "A22B" in row["model_path"] and sizes[0] != sizes[1] * sizes[2]:
            continue  # attention on fewer GPUs than the experts: not a shape of our tables
        found[Point(row["model_path"], row["system"], *sizes, row["backend_version"])].append(row)
    return found


def real_over_kernels(point: Point, rows: Sequence[Mapping[str, str]]) -> Iterator[float]:
    """Published time per output token over the kernels', for each row."""
    experts = {"moe_tp_size": point.moe_tp, "moe_ep_size": point.ep} if "A22B" in point.checkpoint else {}
    engine = EngineHandle.compile(
        LIKE.get(point.checkpoint, point.checkpoint), point.system, "vllm", backend_version="0.24.0",
        tp_size=point.tp, kvcache_quant_mode="bfloat16" if experts else None, **experts,
    )  # fmt: skip
    for row in rows:
        batch, new, out = (int(row[name]) for name in ("batch_size", "isl", "osl"))
        step = engine.predict_decode_latency(batch, new + out // 2)
        others = (batch - 1) * engine.predict_prefill_latency(1, new) / out
        yield float(row["silicon_tpot_ms"]) / (step + others)
