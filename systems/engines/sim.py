"""The simulated engine: ``lazy``, or the one of its subclasses that has the options asked for.

A class of its own, so that nobody who sets no option pays for one, and since a
compiled class (``make native``) cannot choose what it makes.
"""

from __future__ import annotations

from systems.engines.lazy import LazyEngine
from systems.protocols import LatencyModel, Scheduler, TransferModel
from vocabulary import EngineConfig


def _class_for(config: EngineConfig, scheduler: Scheduler) -> type[SimEngine]:
    """The class that has what is asked for, and no more."""
    cls = _with_options(config, scheduler)
    if config.retains:
        from systems.engines.retaining import retaining

        return retaining(cls)
    return cls


def _with_options(config: EngineConfig, scheduler: Scheduler) -> type[SimEngine]:
    """The class for everything but retention."""
    if config.preemption == "hold":
        from systems.engines.holding import HoldEngine

        return HoldEngine
    if not config.chunked_prefill or config.schedule_every > 1:
        from systems.engines.paced import PacedEngine

        return PacedEngine
    if config.preemption == "swap" or config.host_tier or getattr(scheduler, "reads_cache", False):
        from systems.engines.options import OptionEngine

        return OptionEngine
    return SimEngine


class SimEngine(LazyEngine):
    """One engine on virtual time (systems.protocols.Engine)."""

    __slots__ = ()

    def __new__(
        cls,
        id: int,  # noqa: A002, ARG004
        config: EngineConfig,
        scheduler: Scheduler,
        latency: LatencyModel,  # noqa: ARG004
        transfer: TransferModel | None = None,  # noqa: ARG004
    ) -> SimEngine:
        """The engine that knows the options of docs/engine-options.md, where one is set."""
        return super().__new__(_class_for(config, scheduler) if cls is SimEngine else cls)
