"""Settings under which a policy silently becomes another one: a warning each, empty if all is well."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from systems.protocols import LatencyModel

CROWDED = 0.9
"""Share of calls in one level from which on the levels tell nothing apart."""
WAIT = 0.005
"""Share of waiting below which it is that for the next step."""


def roomy(wait_share: float, preemptions: float, was_full: bool) -> str:
    """Nobody waited for a place in the batch or for KV: no scheduler had anything to decide.

    ``wait_share``: waiting over waiting and execution, in which a call that only waits for
    the next step counts too. ``was_full``: an engine was seen without a place or a block.
    """
    if preemptions or was_full or not wait_share < WAIT:
        return ""
    return (
        "no call ever had to wait for a place or for KV: scheduling policies cannot differ here; "
        "a higher load (--rate, --concurrency) or a smaller engine tells them apart"
    )


def crowded(occupancy: Mapping[str, float], levels: int) -> str:
    """A policy with several levels used only one: with bounds out of range it is FCFS plus overhead.

    ``occupancy``: share of calls by the level in which they finished.
    """
    if levels < 2 or not occupancy:
        return ""
    level = max(occupancy, key=lambda k: occupancy[k])
    if occupancy[level] <= CROWDED:
        return ""
    return (
        f"{occupancy[level]:.0%} of calls finished in level {level}: the scheduler's bounds do not span this "
        "load, so it acts almost like FCFS; compare its bounds with the programs' service"
    )


def quantum_below_recompute(
    context: int, knobs: Mapping[str, object], unit: str, batch_tokens: int, latency: LatencyModel | None
) -> str:
    """The first quantum is used up by computing a preempted call's KV again, before it makes a new token.

    ``context``: the longest one (tokens), computed in chunks of ``batch_tokens``; ``knobs``
    and ``unit`` are the scheduler's. Such a call sinks without having moved. Without a ``latency`` nothing is
    said of quanta in seconds.
    """
    name, quanta = _quanta(knobs)
    first = next((i for i, quantum in enumerate(quanta) if math.isfinite(quantum)), None)
    if first is None or knobs.get("beta") == 0.0 or (unit == "s" and latency is None):
        return ""
    service = reprefill(context, unit, batch_tokens, latency)
    if service < quanta[first]:
        return ""
    units = {"step": "steps", "token": "tokens", "s": "s"}[unit]
    return (
        f"computing the longest context ({context:,} tokens) again takes {service:,.6g} {units}, and "
        f"scheduler.{name.format(first)} is {quanta[first]:,.6g}: preempted, a call of that length is "
        f"demoted before it makes a token; raise scheduler.{name.partition('[')[0]} or "
        "engine.max_num_batched_tokens"
    )


def _quanta(knobs: Mapping[str, object]) -> tuple[str, Sequence[float]]:
    """A scheduler's quanta, and what its i-th is called: one per queue, or round-robin's only one."""
    several, one = knobs.get("quanta"), knobs.get("quantum")
    if isinstance(one, float):
        return "quantum", (one,)
    return "quanta[{}]", several if isinstance(several, tuple) else ()


def reprefill(context: int, unit: str, batch_tokens: int, latency: LatencyModel | None) -> float:
    """Service, in the scheduler's unit, that computing ``context`` tokens alone takes (INF s if unknown)."""
    if unit == "token":
        return float(context)
    chunks = [(min(batch_tokens, context - done), done) for done in range(0, context, batch_tokens)]
    if unit == "step":
        return float(len(chunks))
    return math.inf if latency is None else sum(latency.step([chunk], 0, 0) for chunk in chunks)
