"""Options of the vLLM host: ``--additional-config`` of a server, or arguments of the virtual engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TextIO

from systems.catalog import DEFAULT_SYSTEM, build_scheduler, load_system
from systems.protocols import Scheduler

PREEMPTIONS = ("recompute", "hold")


@dataclass(frozen=True, slots=True)
class HostOptions:
    """What the scheduler class needs to know beside vLLM's own configuration.

    ``scheduler``: the policy, a name of the catalog or ``pkg.mod:Class``, built
    with ``knobs``. ``preemption``: recompute (vLLM's) or hold (docs/vllm.md).
    ``log``: a file to which one JSON object per finished call is appended;
    ``steps``: another, for one per engine step (docs/vllm.md).
    Raises ValueError for an unknown preemption.
    """

    scheduler: str = "fcfs"
    knobs: Mapping[str, Any] = field(default_factory=dict)
    preemption: str = "recompute"
    log: str | None = None
    steps: str | None = None
    engine: int = 0
    record_decisions: bool = False

    def __post_init__(self) -> None:
        if self.preemption not in PREEMPTIONS:
            raise ValueError(f"preemption must be one of {', '.join(PREEMPTIONS)}, got {self.preemption!r}")

    @classmethod
    def parse(cls, config: Mapping[str, Any]) -> HostOptions:
        """From vLLM's ``additional_config``. Raises ValueError naming a key it does not know."""
        known = [f.name for f in fields(cls)]
        unknown = sorted(set(config) - set(known))
        if unknown:
            raise ValueError(f"additional-config: unknown key {unknown[0]!r}, known are {', '.join(known)}")
        return cls(**config)

    def build_scheduler(self) -> Scheduler:
        """The policy with a process table of its own. Raises CatalogError for an unknown name or knob."""
        knobs = {f"scheduler.{name}": value for name, value in self.knobs.items()}
        return build_scheduler(load_system(DEFAULT_SYSTEM, scheduler=self.scheduler, knobs=knobs))

    def open_log(self) -> TextIO | None:
        """The call log, line buffered, or None."""
        return Path(self.log).open("a", buffering=1) if self.log else None
