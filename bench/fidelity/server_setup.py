"""What parts d and e run on a real vLLM server: workload, limits, rates, schedulers.

Rules; which of them were settled after development runs is on the page (``server_page``):

* **Rates** are shares of the capacity of the machine at hand: all programs of a pilot at once under fcfs;
  capacity is the programs per second at which three quarters of its tokens were computed. Fitted at one,
  predicted at one below and one above, where calls wait and schedulers matter. The shares, and e's slots
  and blocks, were changed after development runs had missed the bar, by what the simulator says of others:
  higher rates separate schedulers more, but beyond saturation 3 % in step times become 15 % in TPOT.
* **Bounds** of mlfq, plas and atlas are the shipped defaults in steps, times the workload's token scale.
* **Cores**: the model's process has the first core for itself, all else (vLLM's front end and engine loop,
  this client) the others; on one core nothing is pinned. One OpenMP thread.
* **Runs** of one rate are the same programs at the same times, ``repeats`` times; what differs is the
  machine. Schedulers take turns inside each, so that a drift of the machine is common to them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from bench.config import RunConfig
from bench.plan import arriving
from systems.engines.vllm_server import ServerOptions
from systems.schedulers.levels import DEFAULT_BOUNDS
from vocabulary import BLOCK, EngineConfig
from workloads.base import ProgramSpec

MODEL, GPU = "tiny-llama", "cpu"
PREDICTED = ("low", "high")
SCHEDULERS = ("fcfs", "mlfq", "plas", "atlas")
BLOCK_SIZE = 32
"""Tokens per block of vLLM's CPU back end, which takes multiples of 32 only; the simulator's have 16."""


@dataclass(frozen=True)
class Setup:
    """One part's. ``kv_blocks`` of ``BLOCK_SIZE`` tokens; ``pilot``: programs sent at once; ``horizon``:
    seconds in which programs arrive, then drained; ``shares``: the rates low, fit and high, of the capacity.
    """

    name: str
    workload: str
    token_scale: float
    kv_blocks: int
    max_num_seqs: int
    pilot: int
    horizon: float
    shares: Mapping[str, float]
    parameters: Mapping[str, str] = field(default_factory=dict)
    max_num_batched_tokens: int = 512
    max_model_len: int = 2048
    schedulers: tuple[str, ...] = SCHEDULERS
    repeats: int = 3
    probes: int = 8

    def quick(self) -> Setup:
        """Enough to see that it works: two schedulers, one short run."""
        small = {"pilot": max(4, self.pilot // 6), "horizon": 3.0, "probes": 2}
        return replace(self, schedulers=("fcfs", "atlas"), repeats=1, **small)  # type: ignore[arg-type]

    def identity(self, seed: int) -> dict[str, Any]:
        """All that decides what is sent and how it is served."""
        return {**asdict(self), "seed": seed, "bounds": self.bounds}

    @property
    def bounds(self) -> list[float]:
        """Of the queues, in steps."""
        return [bound * self.token_scale for bound in DEFAULT_BOUNDS["step"]]

    def knobs(self, scheduler: str) -> dict[str, Any]:
        """The scheduler's, without a prefix."""
        return {} if scheduler == "fcfs" else {"unit": "step", "bounds": self.bounds}

    def programs(
        self, seed: int, rate: float | None = None, n: int | None = None
    ) -> tuple[list[ProgramSpec], list[float]]:
        """Programs and arrivals (s): ``n`` at once, or those of the horizon at ``rate`` programs/s."""
        values = {"token_scale": str(self.token_scale), **self.parameters}
        horizon = None if rate is None else self.horizon
        config = RunConfig(
            "vllm-opt", self.workload, rate=rate or 1.0, n=n, horizon=horizon, seed=seed, parameters=values
        )
        room = min(self.max_model_len, self.kv_blocks * BLOCK_SIZE)
        found, times = arriving(config, room, "")
        programs = list(found.programs)
        return programs, list(times or ()) if rate is not None else [0.0] * len(programs)

    def server(self, scheduler: str, model: Path) -> ServerOptions:
        """How vLLM is started."""
        first, others = cores()
        return ServerOptions(
            model, MODEL, scheduler, self.knobs(scheduler), "recompute", self.kv_blocks, BLOCK_SIZE,
            self.max_num_seqs, self.max_num_batched_tokens, self.max_model_len,
            model_cores=first, other_cores=others,
        )  # fmt: skip

    def engine(self) -> EngineConfig:
        """The simulated engine: as many tokens of KV, in 16-token blocks."""
        return EngineConfig(
            kv_blocks=self.kv_blocks * BLOCK_SIZE // BLOCK,
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.max_num_batched_tokens,
            max_model_len=self.max_model_len,
            record_decisions=False,
        )


def cores() -> tuple[frozenset[int], frozenset[int]]:
    """(the model's, all others'); empty where there is only one."""
    mine = sorted(os.sched_getaffinity(0))
    return (frozenset(mine[:1]), frozenset(mine[1:])) if len(mine) > 1 else (frozenset(), frozenset())
