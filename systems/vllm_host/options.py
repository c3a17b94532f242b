"""Options of the vLLM host: ``--additional-config`` of a server, or arguments of the virtual engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TextIO, cast

from systems.catalog import DEFAULT_SYSTEM, build_scheduler, load_system
from systems.protocols import Retention, Scheduler
from systems.slots import DEFAULTS, make, retention_names, unknown

PREEMPTIONS = ("recompute", "hold")
NO_POLICY = ("none", "control", DEFAULTS["retention"])
"""What ``retention`` may be beside the policies: nobody decides, clients do, nobody by the catalog's name."""


@dataclass(frozen=True, slots=True)
class HostOptions:
    """What the scheduler class needs to know beside vLLM's own configuration.

    ``scheduler``: the policy, a name of the catalog or ``pkg.mod:Class``, built
    with ``knobs``. ``preemption``: recompute (vLLM's) or hold (docs/vllm.md).
    ``log``: a file to which one JSON object per finished call is appended;
    ``steps``: another, for one per engine step. ``retention``: what is kept of
    programs that are away: none, control (what clients say), a policy of ``systems/retentions``
    or ``pkg.mod:Class``, built with ``retention_knobs``; ``kept``: a file
    for what that policy thinks. ``firm``: newcomers wait for what is kept, whatever the policy says of
    itself (where clients decide, nobody else says it).
    ``control``: path of the control channel's socket (docs/vllm.md).
    Raises ValueError for an unknown preemption or retention.
    """

    scheduler: str = "fcfs"
    knobs: Mapping[str, Any] = field(default_factory=dict)
    preemption: str = "recompute"
    log: str | None = None
    steps: str | None = None
    retention: str = "none"
    retention_knobs: Mapping[str, Any] = field(default_factory=dict)
    kept: str | None = None
    firm: bool = False
    control: str | None = None
    engine: int = 0
    record_decisions: bool = False

    def __post_init__(self) -> None:
        if self.preemption not in PREEMPTIONS:
            raise ValueError(f"preemption must be one of {', '.join(PREEMPTIONS)}, got {self.preemption!r}")
        if self.retention not in NO_POLICY and ":" not in self.retention:
            known = {*NO_POLICY, *retention_names()}
            if self.retention not in known:
                raise ValueError(f"{unknown('retention', self.retention, known)}, or pkg.mod:Class")

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
        return self.retention == "control" or self.retention not in NO_POLICY or self.control is not None

    def build_retention(self) -> Retention | None:
        """The retention policy, None if there is none or only clients decide. Raises ValueError."""
        if self.retention in NO_POLICY:
            return None
        policy = make("retention", {"name": self.retention, **self.retention_knobs}, "additional-config")
        if getattr(policy, "clairvoyant", False):
            raise ValueError(
                f"retention {self.retention} needs to know how long tools take; a server does not"
            )
        return cast(Retention, policy)

    def open_log(self) -> TextIO | None:
        """The call log, line buffered, or None."""
        return Path(self.log).open("a", buffering=1) if self.log else None

    def open_kept(self) -> TextIO | None:
        """The log of what the retention policy thinks, line buffered, or None."""
        return Path(self.kept).open("a", buffering=1) if self.kept else None
