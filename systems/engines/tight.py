"""A step in which KV blocks run out: vLLM's reactive preemption, call by call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from systems.engines.request import RUNNING, Request
from vocabulary import BLOCK, blocks_for

if TYPE_CHECKING:
    from systems.engines.lazy import LazyEngine


def tight_step(engine: LazyEngine) -> None:
    """Schedule the running in order, preempting the worst while blocks are short; run the step.

    Nobody is admitted in such a step. Calls after one that preempted itself get nothing.
    """
    prefills: list[tuple[int, int]] = []
    given = _schedule_running(engine, prefills)
    if not given:
        return
    n = ctx = 0
    for request in given:
        if request.decoding:
            n += 1
            ctx += request.tokens + engine.g - request.g0
    stalled = [r for r in engine.running.values() if r not in given]
    before = engine.t
    engine.run_mixed(prefills, n, ctx, {request.call.seq for request in given})
    for request in stalled:
        engine.stall(request, engine.t - before)
    engine.start_decoding()


def _schedule_running(engine: LazyEngine, prefills: list[tuple[int, int]]) -> dict[Request, int]:
    """Hand out tokens and blocks; returns the tokens of each scheduled call."""
    budget, g, kv = engine.budget, engine.g, engine.kv
    order = list(engine.running.values())
    given: dict[Request, int] = {}
    i = 0
    while i < len(order) and budget > 0:
        request = order[i]
        tokens = request.tokens
        if request.decoding:
            want, need = 1, int((tokens + g - request.g0) % BLOCK == 1)  # its last token opens a block
        else:
            computed = request.computed
            want = min(tokens - computed, budget)
            need = blocks_for(computed + want) - blocks_for(computed)
        while need > kv.plain + kv.idle and request.state == RUNNING:
            victim = engine.worst()
            at = order.index(victim)
            del order[at]
            i -= at < i
            budget += given.get(victim, 0)
            engine.preempt(victim, "evict", scheduled=given.pop(victim, 0) > 0)
        if request.state != RUNNING:
            break
        if need:
            kv.take(need)
        if not request.decoding:
            engine.schedule_chunk(request, want, prefills)
        given[request] = want
        budget -= want
        i += 1
    return given
