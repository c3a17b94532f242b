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
CHECK = "check"
"""The phase in which it is seen whether a task was solved."""
QUANTILES = {"p50": 0.5, "p95": 0.95}

Event = Mapping[str, Any]


def environments(events: Sequence[Event], leaks: Sequence[str]) -> dict[str, Any]:
    """Plain data of a run's sandbox events, which are of one kind, and of what was left after it (in words).

    Each of TIMED: how many, how many ``failed``, seconds of those that did not (mean, p50, p95). What checks
    did is no cost of a run and counted apart (``checks``: n, failed). ``disk``: bytes that a sandbox held at
    most, mean over those that say it; a check may have written some. ``trouble``: retried teardowns, leaks,
    killed tools; ``leaks``.
    """
    ours = [event for event in events if _phase(event) == CHECK]
    costs = [event for event in events if _phase(event) != CHECK]
    found: dict[str, Any] = {what: _timed([e for e in costs if e["what"] == what]) for what in TIMED}
    most: dict[str, int] = {}
    for event in events:
        if event.get("disk", -1) >= 0:
            most[event["sandbox"]] = max(event["disk"], most.get(event["sandbox"], 0))
    counts, checks = Counter(event["what"] for event in costs), [e for e in ours if e["what"] == "exec"]
    return {
        "sandboxes": len({event["sandbox"] for event in events}),
        **found,
        "checks": {"n": len(checks), "failed": sum(not e["ok"] for e in checks)},
        "disk": {"n": len(most), "mean": _mean(most.values()), "most": max(most.values(), default=None)},
        "trouble": {what: counts[what] for what in TROUBLE},
        "leaks": list(leaks),
    }


def _phase(event: Event) -> str:
    """Results from before hosts said it took all for the run's."""
    return str(event.get("phase", "run"))


def _timed(events: Sequence[Event]) -> dict[str, Any]:
    """One that failed says how long a limit or a fault was, not what the work takes."""
    values = np.array([event["seconds"] for event in events if event["ok"]], dtype=np.float64)
    quantiles = {
        name: None if too_small(values.size, q) else float(np.quantile(values, q))
        for name, q in QUANTILES.items()
    }
    return {"n": len(events), "failed": len(events) - values.size, "mean": _mean(values), **quantiles}


def _mean(values: Iterable[float]) -> float | None:
    found = list(values)
    return math.fsum(found) / len(found) if found else None


def metrics_of(events: Sequence[Event]) -> dict[str, Estimate]:
    """Mean seconds of each of TIMED that a run made and that did not fail, in the order they happened, with
    batch-means intervals."""
    found = {}
    costs = [e for e in sorted(events, key=lambda e: e["time"]) if e["ok"] and _phase(e) != CHECK]
    for what in TIMED:
        seconds = [e["seconds"] for e in costs if e["what"] == what]
        if seconds:
            found[f"sandbox.{what}_s"] = batch_mean(np.array(seconds, dtype=np.float64))
    return found
