"""What passes between a call's end in the engine and the next one's arrival, beside tools and people."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bench.drivers.live_records import LiveRun
from bench.live.logs import EngineLog

EARLY = 0.1
"""Quantile of the ways from client to engine: of calls that met the engine between two steps, or almost.
Calls that come during a step are taken in at its end; that wait is the simulator's to make."""


def lag(live: LiveRun, logs: Sequence[EngineLog]) -> float:
    """Seconds: the way to the engine (``EARLY``) and back to the client (median), front included."""
    there, back = [], []
    for call in live.calls:
        key = call.name.removeprefix(f"{live.name}.")
        for log in logs:
            if (row := log.calls.get(key)) is not None and call.answered:
                since = log.origin - live.origin
                there.append(since + row["t_arrive"] - call.t_ready)
                back.append(call.t_last - since - row["t_end"])
    if not there:
        return 0.0
    return max(0.0, float(np.quantile(there, EARLY)) + float(np.median(back)))
