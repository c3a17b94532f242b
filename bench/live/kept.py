"""What engines kept for programs during a run, by their own counters (docs/vllm.md, Control channel)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from bench.drivers.calls import CallFailed
from bench.live.deployment import Deployment
from bench.live.warm import nudge
from systems.vllm_host.control import Client

COUNTERS = ("pinned", "expired", "given_up", "hits", "released", "dropped_blocks")
ASK_S = 5.0
PAUSE_S = 0.02


async def kept(deployment: Deployment) -> dict[str, int]:
    """Counts since they began, over all engines; those that do not answer within ``ASK_S`` are left out."""
    total = dict.fromkeys(COUNTERS, 0)
    for engine in deployment.engines:
        if engine.control is not None:
            found = await _asked(engine.control, engine.url, deployment.model)
            for name in COUNTERS:
                total[name] += int(found.get(name, 0))
    return total


def between(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """What was counted in a run."""
    return {name: after[name] - before[name] for name in COUNTERS}


async def _asked(path: str, url: str, model: str) -> Mapping[str, int]:
    """An engine reads messages when it takes a step, so it is given one."""
    asking = asyncio.create_task(asyncio.to_thread(_ask, path))
    with suppress(CallFailed):
        while not asking.done():
            await nudge(url, model)
            await asyncio.sleep(PAUSE_S)
    return await asking


def _ask(path: str) -> Mapping[str, int]:
    with suppress(OSError, ValueError), Client(path, timeout=ASK_S) as client:
        return client.ask("stats")
    return {}
