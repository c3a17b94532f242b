"""Who watches a gateway: its metrics always, the event log where one is asked for."""

from __future__ import annotations

from pathlib import Path

from systems.gateway.events import EventLog
from systems.gateway.gateway import Gateway
from systems.gateway.metrics import Metrics


def attach(gateway: Gateway) -> None:
    """Add them to the gateway's observers, before its first call; ``Gateway.stop`` closes them.

    Raises OSError if the event log cannot be opened.
    """
    path, system = gateway.options.log, gateway.system
    log = None
    if path is not None:
        log = EventLog(
            Path(path), system=system.name, unit=system.unit, wall=gateway.origin_wall,
            monotonic=gateway.origin,
        )  # fmt: skip
        gateway.observers.append(log)
    gateway.observers.append(Metrics(gateway.workers.views, lambda: log.dropped if log else 0))
