"""A live run that is ready to start: the same programs and systems, on engines with a clock of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

from bench.arriving import explained
from bench.config import RunConfig
from bench.errors import UsageError
from bench.live.code import live_code
from bench.live.options import LiveOptions, check_model, device, with_defaults
from bench.live.served import Served, served
from bench.plan import Planned, loaded, spec_of
from bench.serving import serving
from systems.catalog import SystemSpec, build_front
from systems.schedulers.levels import DEFAULT_BOUNDS
from systems.slots import DEFAULTS
from workloads.base import ProgramSet

BOUNDS, SHORT = SCALED = ("scheduler.bounds", "router.most_short")
"""Knobs that follow the workload's token scale."""
MOST_SHORT = 2048
"""Tokens: the router's default (Autellix, Algorithm 2)."""
SCALE = "token_scale"
COUNTED = ("step", "token")
"""Units of service in which bounds follow the workload's token scale."""


class Room(NamedTuple):
    """What an engine has (``bench.serving.Room``)."""

    kv_blocks: int
    max_model_len: int


@dataclass
class LivePlan(Planned):
    """``options``: how it is run. ``facts``: of what serves it, once it is there: command lines, versions."""

    options: LiveOptions
    served: Served
    facts: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def identity(self) -> dict[str, Any]:
        """All that decides what is measured, the machine included."""
        return {**super().identity, "live": self.served.as_json(), "live_code": live_code()}

    @property
    def step_times(self) -> str:
        """The engine itself: what it is and where it runs."""
        return self.served.digest

    @property
    def badge(self) -> str:
        """MEASURED, on what, with which limits (those we set), behind what."""
        words, name = self.serving.words, self.served.front
        front = "called directly" if name == "none" else f"behind {'our ' if name == 'gateway' else ''}{name}"
        what = f"MEASURED ({self.served.words}), {self.config.replicas} x {self.config.model}"
        if self.served.attached:
            return f"{what}, {front}"
        engine = self.engine
        return (
            f"{what}, {engine.kv_blocks} KV blocks, {engine.max_num_seqs} places and "
            f"{engine.max_num_batched_tokens} tokens a step each, {front}{f'; {words}' if words else ''}"
        )

    @property
    def tools(self) -> str:
        """Who tells our gateway which tool a program is in (``GatewayOptions.tools``)."""
        return "told"

    def traps(self) -> list[str]:
        """What holds for any step times."""
        return self.trap(None)

    def begin_offline(self) -> None:
        """Compute ``offline`` now: a process of its own would take a core from what is measured."""
        _ = self.offline

    def details(self) -> dict[str, Any]:
        """The manifest's part beside the identity."""
        return {**super().details(), "serving": dict(self.facts)}


def live_plan(config: RunConfig) -> LivePlan:
    """Resolve a live configuration: limits, scheduler bounds of the programs' size, what serves.

    Raises UsageError, InvalidRun, or MissingError where this machine cannot serve it.
    """
    options = LiveOptions.of(config)
    kind = device()
    config = replace(with_defaults(config, kind), replicas=options.engines(config))
    if not options.attach:
        check_model(config, kind)
    spec = spec_of(config)
    limits = config.limits()
    able = explained(lambda: serving(config, spec, Room(limits["kv_blocks"], limits["max_model_len"])))
    check_served(spec, options)
    programs, times, rate = loaded(config, able.engine)
    if any(spec.wave is not None for spec in programs.programs):
        raise UsageError("programs that come in waves (a barrier, new weights) are for simulated engines")
    config = with_scale(config, spec, programs)
    spec = spec_of(config)
    return LivePlan(config, programs, times, rate, spec, able, options, _served(config, spec, options))


def check_served(spec: SystemSpec, options: LiveOptions) -> None:
    """Raises UsageError for what the engines, or what is before them, could not do."""
    _check_attached(spec.scheduler, options)
    _check_governed(spec, options)


def _check_governed(spec: SystemSpec, options: LiveOptions) -> None:
    """Gates and retention act in our gateway; retention also needs control sockets, and to hear of tools.

    Sandboxes are the client's.
    """
    if spec.environment != DEFAULTS["environment"] and options.driver != "asyncio":
        raise UsageError(
            f"live.driver={options.driver} knows no sandboxes, and environment {spec.environment} is about "
            "them: leave it out"
        )
    if options.front == "none":
        for slot in ("gate", "retention"):
            if (name := getattr(spec, slot)) != DEFAULTS[slot]:
                raise UsageError(f"{slot} {name} acts in our gateway: leave live.front=none out")
    if spec.retention == DEFAULTS["retention"]:
        return
    if options.attach:
        raise UsageError(
            f"live.attach: engines that run already keep nothing for retention {spec.retention}: leave it out"
        )
    if options.driver != "asyncio":
        raise UsageError(
            f"live.driver={options.driver} does not say when tools begin, which retention {spec.retention} "
            "needs: leave it out"
        )


def _served(config: RunConfig, spec: SystemSpec, options: LiveOptions) -> Served:
    """Behind a third party's front, which and which version of it."""
    theirs = build_front(spec)
    if theirs is None:
        return served(config, options)
    if options.front == "none":
        raise UsageError(f"live.front=none leaves out {spec.front}, which system {spec.name} is about")
    return replace(served(config, options), front=theirs.requirement)


def _check_attached(scheduler: str, options: LiveOptions) -> None:
    """Engines that run already schedule as they were started to."""
    if options.attach and scheduler != "fcfs":
        raise UsageError(
            f"live.attach: engines that run already keep their scheduler, so {scheduler} would not act; take "
            "a system with scheduler fcfs, or leave live.attach out"
        )


def with_scale(config: RunConfig, spec: SystemSpec, programs: ProgramSet) -> RunConfig:
    """Policies' constants in tokens or steps follow the workload's ``token_scale``, unless they are given.

    Programs of a sixteenth have a sixteenth of them: bounds of multi-level queues (a step is about a token),
    and the length from which on Autellix's router calls a prompt long.
    """
    scale = float(Fraction(str(programs.parameters.get(SCALE, 1))))
    if scale == 1.0:
        return config
    scheduler, router = dict(spec.scheduler_knobs), dict(spec.router_knobs)
    own: dict[str, str] = {}
    if spec.unit in COUNTED and scheduler.get("bounds") == (default := DEFAULT_BOUNDS[spec.unit]):
        own[BOUNDS] = ",".join(f"{bound * scale:g}" for bound in default)
    if router.get("most_short") == MOST_SHORT:
        own[SHORT] = f"{round(MOST_SHORT * scale)}"
    return replace(config, knobs={**own, **config.knobs})
