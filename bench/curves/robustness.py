"""Which verdicts survive when the simulation is wrong: the experiment again, one part at a time changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.curves.grading import EXPLORATORY, NOT_TESTABLE
from bench.curves.runner import Options, Outcome, Progress, run

PARTS = {
    "prefill": "latency.prefill",
    "decode": "latency.decode",
    "per-step overhead": "latency.overhead",
    "KV blocks": "engine.kv_scale",
    "PCIe": "engine.swap_scale",
}
"""What is varied, and the knob that multiplies it."""
FACTORS = (0.85, 1.15)
UNTESTED = "untested"


def variations(gpus: Sequence[str] = ("h100",)) -> Iterator[tuple[str, str | None, dict[str, str]]]:
    """(name, GPU or None, knobs) of every variation: other tables, then each part by 15 % both ways."""
    for gpu in gpus:
        yield gpu.upper(), gpu, {}
    for part, knob in PARTS.items():
        for factor in FACTORS:
            yield f"{part} x {factor:g}", None, {knob: f"{factor:g}"}


def vary(
    data: Mapping[str, Any], path: Path, options: Options, progress: Progress | None = None
) -> Iterator[tuple[str, Outcome]]:
    """The experiment as it is, then every variation, claims only. Raises BenchError."""
    plain = replace(options, beside=False)
    yield "as it is", run(data, path, plain, progress)
    for name, gpu, knobs in variations():
        yield name, run(data, path, replace(plain, gpu=gpu, knobs={**plain.knobs, **knobs}), progress)


def table(outcomes: Mapping[str, Outcome]) -> list[dict[str, Any]]:
    """A row per claim: what was got under each variation, and whether its transient verdict never changes."""
    rows = []
    for number, claim in enumerate(next(iter(outcomes.values())).claims):
        mine = {name: outcome.claims[number] for name, outcome in outcomes.items()}
        words = {name: str(row["transient"]).removeprefix(EXPLORATORY) for name, row in mine.items()}
        first = next(iter(words.values()))
        changed = [f"{name}: {word}" for name, word in words.items() if word != first]
        rows.append(
            {
                "id": claim["id"],
                "statement": claim["statement"],
                "expected": claim["expected"],
                "verdict": claim["transient"],
                "got": {name: (row["got"], row["low"], row["high"]) for name, row in mine.items()},
                "survives": UNTESTED if first == NOT_TESTABLE and not changed else "no" if changed else "yes",
                "changed": changed,
            }
        )
    return rows
