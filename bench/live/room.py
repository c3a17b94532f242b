"""How many engines fit on this machine, and which GPU each of them gets."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache

from bench.errors import MissingError
from bench.live.plan import LivePlan
from bench.memory import free_gb
from systems.provision.docker import split_gpus

ENGINE_GB = 2.0
"""Memory of an engine on a CPU with a small model (measured: 1.8)."""
SPARE_GB = 1.5
GPUS_EACH = 1
"""GPUs of an engine: live runs have no tensor parallelism."""
VISIBLE = "CUDA_VISIBLE_DEVICES"


@cache
def gpus_here() -> tuple[str, ...]:
    """Ids of the GPUs we may use: those CUDA_VISIBLE_DEVICES names, else all. Raises MissingError."""
    if VISIBLE in os.environ:
        found = os.environ[VISIBLE].split(",")
    else:
        ask = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
        try:
            done = subprocess.run(ask, capture_output=True, text=True, timeout=20, check=False)
        except (OSError, subprocess.SubprocessError) as error:
            raise MissingError(f"nvidia-smi does not say which GPUs there are ({error})") from None
        found = done.stdout.splitlines() if done.returncode == 0 else []
    ids = tuple(one.strip() for one in found if one.strip())
    if not ids:
        raise MissingError(f"no GPU may be used: nvidia-smi, or {VISIBLE}, names none")
    return ids


@dataclass(frozen=True)
class Machine:
    """What engines of this machine share. ``free_gb`` reads memory (None: cannot be told), ``gpus`` the ids;
    ``most``: engines that may be up at once, None: as many as fit."""

    most: int | None = None
    free_gb: Callable[[], float | None] = free_gb
    gpus: Callable[[], tuple[str, ...]] = gpus_here

    def fitting(self, plan: LivePlan, up: int) -> int:
        """How many more engines like the plan's fit beside ``up``; at least 1 where none is up."""
        if plan.options.attach:  # they are somewhere else, or there already
            return plan.config.replicas
        if self.most is not None:
            more = self.most - up
        elif plan.served.kind == "gpu":
            more = len(self.gpus()) // GPUS_EACH - up
        else:
            more = self._by_memory()
        return more if up else max(1, more)

    def _by_memory(self) -> int:
        free = self.free_gb()
        return 0 if free is None else max(0, int((free - SPARE_GB) / ENGINE_GB))

    def deal(self, plan: LivePlan, taken: Iterable[str]) -> list[str]:
        """The GPUs of each of the plan's engines, none of those ``taken``; "" where it needs none.

        Raises MissingError if there are too few.
        """
        count = plan.config.replicas
        if plan.options.attach or plan.served.kind != "gpu":
            return [""] * count
        all_, taken = self.gpus(), set(taken)
        mine = [gpu for gpu in all_ if gpu not in taken][: count * GPUS_EACH]
        if len(mine) < count * GPUS_EACH:
            raise MissingError(
                f"{count} engines need {count * GPUS_EACH} GPUs, there are {len(all_)}: fewer --replicas"
            )
        return split_gpus(",".join(mine), count, GPUS_EACH)


def engines_of(plan: LivePlan) -> int:
    """How many engines a plan takes room for: none where they run already."""
    return 0 if plan.options.attach else plan.config.replicas
