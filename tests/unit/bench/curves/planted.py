"""A study whose cells are formulas: what comes out is known beforehand."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.config import RunConfig
from bench.curves.spec import Claim, Curves, Load, Scale, Variation
from bench.curves.study import Study
from bench.run import RunResult

Latency = Callable[[str, str, float, int], float]
"""(system, workload, rate, seed) -> s/token."""


def steep(capacity: dict[str, float], noise: float = 0.0) -> Latency:
    """.3 s/token exactly at the system's capacity, 8 % more rate doubles it; seeds differ by ``noise``."""

    def latency(system: str, workload: str, rate: float, seed: int) -> float:
        luck = zlib.crc32(f"{workload}{seed}".encode()) / 2**32 - 0.5
        own = zlib.crc32(f"{system}{workload}{seed}".encode()) / 2**32 - 0.5
        slope = math.log(2) / math.log(1.08)
        return 0.3 * (rate / capacity[system]) ** slope * math.exp(noise * (4 * luck + own))

    return latency


def queueing(capacity: dict[str, float], noise: float) -> Latency:
    """A convex curve, as an M/M/1 queue's at a fixed horizon: .1 s/token idle, steeper and steeper,
    with luck of the seed (common) and of every run (its own)."""

    def latency(system: str, workload: str, rate: float, seed: int) -> float:
        load = rate / capacity[system]
        value = 0.1 / (1 - load) if load < 0.8 else 0.5 + 5.0 * (load - 0.8)
        luck = zlib.crc32(f"{workload}{seed}".encode()) / 2**32 - 0.5
        own = zlib.crc32(f"{system}{workload}{rate:.9g}{seed}".encode()) / 2**32 - 0.5
        return value * math.exp(3.46 * noise * (luck + own))  # a uniform's sd is 1 / 3.46

    return latency


class Formula:
    """Answers cells at once; ``asked`` are the configurations in order."""

    def __init__(self, latency: Latency, keeps_up: Callable[[str, float], bool]) -> None:
        self.latency, self.keeps_up = latency, keeps_up
        self.asked: list[RunConfig] = []

    def __call__(self, configs: Sequence[RunConfig], phase: str) -> list[RunResult]:
        self.asked += configs
        return [RunResult(self.summary(c), Path("nowhere"), cached=False) for c in configs]

    def summary(self, config: RunConfig) -> dict[str, Any]:
        name = config.system + (f"/{config.scheduler}" if config.scheduler else "")
        rate = config.rate or 0.0
        value = self.latency(name, config.workload, rate, config.seed)
        keeps = self.keeps_up(name, rate)
        metrics = {f"{w}.mean_of_ratios": {"value": value} for w in ("transient", "sustained")}
        metrics["sustained.kept_up"] = {"value": float(keeps)}
        return {
            "cell": repr(config),
            "metrics": metrics,
            "calls": 10,
            "outcomes": {"finished": 5},
        }


def study(
    run: Formula,
    *,
    workload: str = "chatbot:paper",
    claims: Sequence[Claim] = (),
    sensitivity: Sequence[Variation] = (),
    **scale: Any,
) -> Study:
    """One workload, "chat", whose reference saturates at 1 program/s; base, opt and new are served."""
    load = Load("chat", workload, "Chat", {"m": 1.0}, {"base": 0.25})
    given: dict[str, Any] = {
        "cost": "none", "horizon": 100.0, "models": ("m",), "multiples": (0.5, 0.8, 1.0, 1.4, 2.0)
    }  # fmt: skip
    size = Scale(**given | scale)
    curves = Curves(
        "x:fig", "t", "s", "a100", "transient.mean_of_ratios", "opt", "new", ("base", "opt", "new"),
        ("bound", "new/other"), (0.2, 0.3), (), {"small": size}, (load,), tuple(claims), tuple(sensitivity),
    )  # fmt: skip
    return Study(curves, size, "m", "a100", Path("out"), run)


def complete(run: Formula, **given: Any) -> Study:
    """A study whose phases have run."""
    made = study(run, **given)
    made.scan()
    made.narrow()
    made.decide()
    return made
