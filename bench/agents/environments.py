"""What tool environments cost: init, exec, teardown, disk; what was left behind."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bench.stats import Estimate, batch_mean, too_small

TIMED = ("init", "exec", "teardown")
TROUBLE = ("retry", "leak", "kill")
QUANTILES = {"p50": 0.5, "p95": 0.95}

Event = Mapping[str, Any]


def environments(events: Sequence[Event], leaks: Sequence[str]) -> dict[str, Any]:
    """Plain data of a run's sandbox events, which are of one kind, and of what was left after it (in words).

    Each of TIMED: how many, how many ``failed``, seconds (mean, p50, p95). ``disk``: bytes that a sandbox
    held at most, mean over those that say it. ``trouble``: retried teardowns, leaks, killed tools; ``leaks``.
    """
    found: dict[str, Any] = {what: _timed([e for e in events if e["what"] == what]) for what in TIMED}
    most: dict[str, int] = {}
    for event in events:
        if event.get("disk", -1) >= 0:
            most[event["sandbox"]] = max(event["disk"], most.get(event["sandbox"], 0))
    counts = Counter(event["what"] for event in events)
    return {
        "sandboxes": len({event["sandbox"] for event in events}),
        **found,
        "disk": {"n": len(most), "mean": _mean(most.values()), "most": max(most.values(), default=None)},
        "trouble": {what: counts[what] for what in TROUBLE},
        "leaks": list(leaks),
    }


def _timed(events: Sequence[Event]) -> dict[str, Any]:
    values = np.array([event["seconds"] for event in events], dtype=np.float64)
    quantiles = {
        name: None if too_small(values.size, q) else float(np.quantile(values, q))
        for name, q in QUANTILES.items()
    }
    return {"n": len(events), "failed": sum(not e["ok"] for e in events), "mean": _mean(values), **quantiles}


def _mean(values: Iterable[float]) -> float | None:
    found = list(values)
    return math.fsum(found) / len(found) if found else None


def metrics_of(events: Sequence[Event]) -> dict[str, Estimate]:
    """Mean seconds of each of TIMED, in the order they happened, with batch-means intervals."""
    found = {}
    for what in TIMED:
        seconds = [e["seconds"] for e in sorted(events, key=lambda e: e["time"]) if e["what"] == what]
        if seconds:
            found[f"sandbox.{what}_s"] = batch_mean(np.array(seconds, dtype=np.float64))
    return found
