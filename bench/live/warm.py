"""Warm-up: what an engine sets up at first use is set up before anything counts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from bench.drivers.completions import CallFailed, Completions, Request
from bench.drivers.loop import run
from bench.drivers.token_ids import TokenIds
from bench.errors import InvalidRun
from bench.live.plan import LivePlan
from systems.provision.engine import LiveEngine

MOST = 64
"""Calls at once."""
PROMPT, OUTPUT, TURNS = 100, 24, 2
VOCABULARY = 1000


def warm(engines: Sequence[LiveEngine], plan: LivePlan) -> None:
    """Full batches of prefills and decodes, to each engine; no program shares a token of them with a cell.

    Raises InvalidRun if a call fails.
    """
    count = min(MOST, 2 * plan.engine.max_num_seqs)
    for engine in engines:
        try:
            run(_warm(engine.url, plan.config.model, count))
        except CallFailed as error:
            raise InvalidRun(f"{engine.name}: warm-up: {error}") from error


async def _warm(url: str, model: str, count: int) -> None:
    ids = TokenIds(VOCABULARY, "warm-up")
    async with Completions(url, model) as client:
        for turn in range(TURNS):
            prompts = [list(ids.segment(1000 * turn + i, PROMPT)) for i in range(count)]
            calls = [
                Request(f"warm.{i}..{turn}", p, OUTPUT, cache_salt="warm-up") for i, p in enumerate(prompts)
            ]
            await asyncio.gather(*map(client.complete, calls))


async def nudge(url: str, model: str) -> None:
    """A call of one token: an engine that has taken a step has written what it logged before."""
    async with Completions(url, model) as client:
        await client.complete(Request("nudge.0..0", [1], 1, cache_salt="warm-up"))
