"""Who watches a gateway: its metrics always, event log and recorder where they are asked for."""

from __future__ import annotations

from pathlib import Path

from systems.gateway.events import EventLog
from systems.gateway.gateway import Gateway
from systems.gateway.metrics import Metrics
from systems.gateway.record.recorder import Recorder


def attach(gateway: Gateway) -> None:
    """Add them to the gateway's observers, before its first call; ``Gateway.stop`` closes them.

    Raises OSError if a file cannot be opened.
    """
    path, system = gateway.options.log, gateway.system
    log = None
    if gateway.options.record is not None:
        gateway.observers.append(_recorder(gateway, Path(gateway.options.record)))
    if path is not None:
        log = EventLog(
            Path(path), system=system.name, unit=system.unit, wall=gateway.origin_wall,
            monotonic=gateway.origin,
        )  # fmt: skip
        gateway.observers.append(log)
    gateway.observers.append(Metrics(gateway.workers.views, lambda: log.dropped if log else 0))


def _recorder(gateway: Gateway, folder: Path) -> Recorder:
    facts = {
        "system": gateway.system.name, "observe": gateway.options.observe,
        "engines": len(gateway.options.targets), "wall": gateway.origin_wall,
    }  # fmt: skip
    recorder = Recorder(folder, facts)
    gateway.carrier.listens = recorder.hear
    return recorder
