"""Seeded scenarios and schedulers for the vLLM host. Its worker imports this: stdlib and our rooms only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any, cast

from systems.catalog import DEFAULT_SYSTEM, SystemSpec, build_scheduler, load_system
from systems.process_table import ProcessTable
from systems.protocols import Scheduler
from tests.latency_models import LinearLatency
from tests.scenarios import Ask, Chain, Fork, Scenario, Script
from vocabulary import BLOCK, INF, Call, EngineConfig, Slot, Snapshot, blocks_for, on_grid

_BOUNDS = {"step": (4.0, 16.0, 64.0), "s": (0.05, 0.25, 1.0), "token": (64.0, 200.0, 800.0)}


class Told:
    """A clairvoyant policy, told invented remaining work: it differs by program, falls with each call."""

    def __init__(self, inner: Scheduler) -> None:
        self.inner = inner

    def arrive(self, call: Call, snap: Snapshot, now: float) -> Slot:
        remaining = float(max(1, (1 + call.program * 37 % 11) * 60 - 40 * call.index))
        return self.inner.arrive(replace(call, remaining=remaining), snap, now)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.inner, name)


def system(name: str, seed: int) -> SystemSpec:
    """The policy; one with queues gets bounds so narrow that small programs cross them."""
    spec = load_system(DEFAULT_SYSTEM, scheduler=name)
    knobs: dict[str, object] = {}
    if "bounds" in dict(spec.scheduler_knobs):
        unit = ("step", "s", "token")[seed % 3]
        knobs = {"bounds": _BOUNDS[unit], "unit": unit, "beta": (1.5, 4.0, INF)[seed // 3 % 3]}
        knobs["max_promotions"] = 2.0
    scheduler_knobs = {f"scheduler.{knob}": value for knob, value in knobs.items()}
    return load_system(DEFAULT_SYSTEM, scheduler=name, knobs=scheduler_knobs)


def scheduler(name: str, seed: int) -> Callable[[ProcessTable], Scheduler]:
    """What ``play`` wants: the policy over a deployment's table."""
    spec = system(name, seed)

    def build(table: ProcessTable) -> Scheduler:
        policy = build_scheduler(spec, table)
        return cast(Scheduler, Told(policy)) if spec.clairvoyant else policy

    return build


def scenario(seed: int, engines: int = 1) -> Scenario:
    """Forks, shared and cut contexts, ties in time, leaving clients; KV from too little to plenty."""
    rng = Random(seed)
    scripts = tuple(_script(rng) for _ in range(rng.randint(4, 12)))
    largest = max(_largest(script.chain) for script in scripts)
    need = blocks_for(largest)
    seqs = rng.choice([1, 2, 3, 4, 8])
    config = EngineConfig(
        kv_blocks=need + int(need * rng.choice([0.0, 0.1, 0.5, 1.0, 4.0])),
        max_num_seqs=seqs,
        max_num_batched_tokens=max(seqs, rng.choice([8, 32, 64, 128, 512])),
        max_model_len=largest + rng.choice([0, 1, 1000]),
        prefix_cache=rng.random() < 0.85,
        record_steps=True,
    )
    return Scenario(scripts, config, LinearLatency(), engines)


def _script(rng: Random) -> Script:
    system = Ask(rng.choice([32, 64, 100]), rng.randint(1, 40), text=rng.choice(["system", "system", None]))
    chain: list[Ask | Fork] = [system]
    chain += [_fork(rng) if rng.random() < 0.3 else _ask(rng) for _ in range(rng.randint(0, 4))]
    leaves = on_grid(rng.random() * 2) if rng.random() < 0.1 else None
    return Script(tuple(chain), on_grid(rng.choice([0.0, 0.0, rng.random(), rng.random() * 3])), leaves)


def _fork(rng: Random) -> Fork:
    return Fork(tuple(tuple(_ask(rng) for _ in range(rng.randint(1, 2))) for _ in range(rng.randint(2, 4))))


def _ask(rng: Random) -> Ask:
    new = rng.choice([1, BLOCK - 1, BLOCK, BLOCK + 1, rng.randint(1, 300)])
    output = rng.choice([1, 2, BLOCK, rng.randint(1, 90)])
    gap = on_grid(rng.choice([0.0, 0.0, 0.03, rng.random()]))
    text = rng.choice([None, None, None, "question"])
    keep = rng.choice([None] * 6 + [0, 40, 64])
    return Ask(new, output, gap, text, keep)


def _largest(chain: Chain, context: int = 0) -> int:
    largest = 0
    for item in chain:
        if isinstance(item, Fork):
            largest = max(largest, *(_largest(branch, context) for branch in item.chains))
        else:
            context = min(context, context if item.keep is None else item.keep) + item.new + item.output
            largest = max(largest, context)
    return largest
