"""Options of the vLLM host: ``--additional-config`` of a server, or arguments of the virtual engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

from systems.catalog import DEFAULT_SYSTEM, build_scheduler, load_system
from systems.protocols import Retention, Scheduler
from systems.vllm_host.keeper import Fixed

PREEMPTIONS = ("recompute", "hold")
RETENTIONS = ("none", "control", "fixed")


@dataclass(frozen=True, slots=True)
class HostOptions:
    """What the scheduler class needs to know beside vLLM's own configuration.

    ``scheduler``: the policy, a name of the catalog or ``pkg.mod:Class``, built
    with ``knobs``. ``preemption``: recompute (vLLM's) or hold (docs/vllm.md).
    ``log``: a file to which one JSON object per finished call is appended;
    ``steps``: another, for one per engine step. ``retention``: what is kept of
    programs that are away: none, control (what clients say), fixed or
    ``pkg.mod:Class``, built with ``retention_knobs``. ``control``: path of the
    control channel's socket (docs/vllm.md).
    Raises ValueError for an unknown preemption or retention.
    """

    scheduler: str = "fcfs"
    knobs: Mapping[str, Any] = field(default_factory=dict)
    preemption: str = "recompute"
    log: str | None = None
    steps: str | None = None
    retention: str = "none"
    retention_knobs: Mapping[str, Any] = field(default_factory=dict)
    control: str | None = None
    engine: int = 0
    record_decisions: bool = False

    def __post_init__(self) -> None:
        if self.preemption not in PREEMPTIONS:
            raise ValueError(f"preemption must be one of {', '.join(PREEMPTIONS)}, got {self.preemption!r}")
        if self.retention not in RETENTIONS and ":" not in self.retention:
            known = ", ".join(RETENTIONS)
            raise ValueError(f"retention must be one of {known} or pkg.mod:Class, got {self.retention!r}")

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

    @property
    def keeps(self) -> bool:
        """Whether any KV may be kept for programs that are away."""
        return self.retention != "none" or self.control is not None

    def build_retention(self) -> Retention | None:
        """The retention policy, None if there is none or only clients decide. Raises ValueError."""
        if self.retention in ("none", "control"):
            return None
        try:
            policy = _retention_class(self.retention)(**self.retention_knobs)
        except (ImportError, AttributeError, TypeError) as error:
            raise ValueError(f"retention {self.retention}: {error}") from error
        if not isinstance(policy, Retention):
            raise ValueError(f"retention {self.retention} lacks idle or victims (systems/protocols.py)")
        return policy

    def open_log(self) -> TextIO | None:
        """The call log, line buffered, or None."""
        return Path(self.log).open("a", buffering=1) if self.log else None


def _retention_class(name: str) -> Any:
    if name == "fixed":
        return Fixed
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)
