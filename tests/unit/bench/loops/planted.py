"""A study whose cells are formulas: what comes out is known beforehand."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd

from bench.config import RunConfig
from bench.loops.parsing import parse
from bench.loops.runner import predicted_systems
from bench.loops.spec import Loop
from bench.loops.study import Study
from bench.loops.window import Log
from bench.run import RunResult

Rate = Callable[[RunConfig], float]
"""Steps per minute of a configuration."""
KV_BLOCKS = 1000


class Planted:
    """Answers cells at once with logs of evenly spaced steps; ``asked``: the configurations in order.

    ``minutes``: until when there are programs (the window ends at 3.5).
    """

    def __init__(self, rate: Rate, minutes: Rate = lambda _: 4.0) -> None:
        self.rate, self.minutes = rate, minutes
        self.asked: list[RunConfig] = []
        self.phases: list[str] = []

    def __call__(self, configs: Sequence[RunConfig], phase: str) -> list[RunResult]:
        self.phases.append(phase)
        first = len(self.asked)
        self.asked += configs
        return [
            RunResult(self.summary(c, first + i), Path(str(first + i)), cached=False)
            for i, c in enumerate(configs)
        ]

    def summary(self, config: RunConfig, number: int) -> dict[str, Any]:
        return {
            "cell": str(number), "badge": "SIMULATED (formula)", "calls": 10, "metrics": {},
            "card": {"engine": {"kv_blocks": KV_BLOCKS}}, "outcomes": {"finished": 5},
        }  # fmt: skip

    def read(self, folder: Path) -> Log:
        """In place of ``bench.loops.window.read``."""
        config = self.asked[int(folder.name)]
        return even_log(config.concurrency or 1, self.rate(config), self.minutes(config))


def even_log(threads: int, per_minute: float, minutes: float = 4.0, hold_s: float = 0.0) -> Log:
    """``threads`` programs that step in turn, ``per_minute`` in all; half of a cycle is the call."""
    cycle = 60.0 * threads / per_minute
    count = math.ceil(minutes * 60 / cycle)
    program, k = (part.ravel() for part in np.mgrid[0:threads, 0:count])
    start = (k + program / threads) * cycle
    calls = pd.DataFrame(
        {"program": program, "thread": "", "index": k, "prompt_tokens": 100 * (k + 1), "output_tokens": 10,
         "cached_tokens": 90 * (k + 1), "prefill_tokens": 10, "reprefill_tokens": 0, "t_arrive": start,
         "t_first_sched": start, "t_end": start + cycle / 2, "wait_s": hold_s + 1.0, "hold_s": hold_s,
         "aborted": False}
    )  # fmt: skip
    ends = (count + np.arange(threads) / threads) * cycle
    late = minutes * 60
    programs = pd.DataFrame(
        {"program": [*range(threads), threads], "t_arrive": [0.0] * threads + [late],
         "t_end": [*ends, late], "outcome": "finished", "calls": 1}
    )  # fmt: skip
    return Log(programs, calls, pd.DataFrame({"time": [0.0], "engine": [0], "kv_used": [1]}))


def luck(config: RunConfig) -> float:
    """A seed's luck, common to all systems, and a little of the run's own: factors near 1."""
    common = zlib.crc32(f"{config.seed}".encode()) / 2**32 - 0.5
    own = zlib.crc32(f"{config.system}{config.knobs}{config.seed}".encode()) / 2**32 - 0.5
    return math.exp(0.3 * common + 0.02 * own)


BASE: dict[str, Any] = {
    "name": "x:loop", "kind": "loop", "title": "t", "source": "s", "reference": "base",
    "scales": {"small": {"cost": "none", "warm_up": 30.0, "window": 180.0, "seeds": 8}},
    "systems": [
        {"name": "base", "system": "vllm-opt"}, {"name": "same", "system": "vllm-opt"},
        {"name": "double", "system": "thunderagent"},
        {"name": "cap", "system": "program-cap", "tune": "gate.programs", "shares": [0.25, 0.5, 1.0]},
    ],
    "panels": [
        {"name": "a", "label": "A", "workload": "swe:mini", "n": [8, 16, 32], "most": 500.0,
         "parameters": {"stagger": "1"}}
    ],
}  # fmt: skip


def loop(**changes: Any) -> Loop:
    """The base experiment with some keys replaced."""
    return parse({**BASE, **changes}, Path("x/loop.toml"))


def study(run: Planted, made: Loop) -> Study:
    """Checked, fitted, tuned and measured."""
    with patch("bench.loops.study.read", run.read), patch("bench.loops.study.LOOKED_AT", 4):
        done = Study(made, made.scale("small"), Path("out"), run)
        for step in (done.check, done.fit, done.tune, done.measure):
            step()
        done.vary(predicted_systems(done))
    return done
