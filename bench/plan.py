"""From what was asked to what will run: programs, arrivals, system, engine, and the cell's address."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.arriving import CONTEXT, arriving, enough, explained, load_programs, program_hash, rate_of
from bench.background import in_background
from bench.code import code_digest
from bench.config import RunConfig
from bench.errors import UsageError
from bench.foreign import policies_of, programs_of
from bench.offline import Ledger, Offline, offline
from bench.serving import Serving, serving
from bench.tables import FORMAT
from bench.traps import quantum_below_recompute
from systems.catalog import SLOTS, SystemSpec, load_system
from systems.latency.calibration import load_calibration
from systems.latency.catalog import latency_for
from systems.latency.scaled import ServedModel, floor
from systems.protocols import LatencyModel
from vocabulary import BLOCK, INF, EngineConfig
from workloads.arrivals import parse
from workloads.base import ProgramSet, ProgramSpec
from workloads.overflow import exceeded

__all__ = [
    "CONTEXT", "FEW", "Plan", "Planned", "arriving", "check_fit", "enough", "guests", "load_programs",
    "loaded", "longest", "plan", "spec_of",
]  # fmt: skip

FEW = 32
"""Programs that are looked at before a run; of more, the rest is looked at beside it."""


@dataclass
class Planned:
    """A run that is ready to start, on whatever engine.

    ``times``: arrivals in seconds, None in a closed loop.
    """

    config: RunConfig
    programs: ProgramSet
    times: list[float] | None
    rate: float | None
    spec: SystemSpec
    serving: Serving
    _offline: Callable[[], Offline] | None = field(default=None, init=False, repr=False)

    @property
    def engine(self) -> EngineConfig:
        """Limits and options of each engine."""
        return self.serving.engine

    @cached_property
    def identity(self) -> dict[str, Any]:
        """All that decides the result, and nothing else."""
        config = self.config
        return {
            "format": FORMAT,
            "code": code_digest(),
            "workload": self.programs.digest,
            "programs": self.program_hash,
            "n": len(self.programs.programs),
            "seed": config.seed,
            "arrivals": self._arrivals(),
            "system": self.spec.digest,
            "guests": guests(self.spec),
            "engine": config.engine,
            "engine_config": asdict(self.engine),
            "transfer": None if self.serving.transfer is None else asdict(self.serving.transfer),
            "latency": self.step_times,
            "replicas": config.replicas,
            **({} if (cores := config.tool_cores()) == INF else {"tool_cores": cores}),
        }

    @property
    def step_times(self) -> str:
        """Digest (hex) of what decides how long a step takes."""
        raise NotImplementedError

    @cached_property
    def cell(self) -> str:
        """The content address: 16 hex digits."""
        text = json.dumps(self.identity, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def folder(self) -> Path:
        """Where the result is or will be."""
        return self.config.out / self.cell

    @property
    def load(self) -> str:
        """The load in words."""
        n = len(self.programs.programs)
        if self.config.concurrency is not None:
            return f"{n} programs, {self.config.concurrency} at all times"
        within = "" if self.config.horizon is None else f" for {self.config.horizon:g} s, then drained"
        if self.rate is not None:
            return f"{n} programs, {parse(self.config.arrivals)} {self.rate:g}/s{within}"
        return f"{n} programs at their recorded times{within}"

    @property
    def badge(self) -> str:
        """What kind of number this is: simulated or measured, on what."""
        raise NotImplementedError

    def traps(self) -> list[str]:
        """Warnings about settings under which a policy is not what it says."""
        raise NotImplementedError

    @cached_property
    def offline(self) -> Offline:
        """Calls, longest context and the best prefix hits, from a run without a clock."""
        return self._offline() if self._offline is not None else self._look(self.programs.programs)

    def _look(self, specs: Sequence[ProgramSpec]) -> Offline:
        with programs_of(self.config.workload):
            return offline(specs)

    def ledger(self) -> Ledger:
        """``offline`` of these programs and of every shorter set."""
        with programs_of(self.config.workload):
            return Ledger(self.programs.programs)

    def begin_offline(self) -> None:
        """Compute ``offline`` on another core while this one does the run."""
        specs = self.programs.programs
        if "offline" not in self.__dict__ and len(specs) > FEW:
            self._offline = in_background(lambda: self._look(specs))

    @property
    def calls_estimate(self) -> int:
        """About how many calls there will be: from the first programs, unless all are known."""
        specs = self.programs.programs
        if "offline" in self.__dict__ or len(specs) <= FEW:
            return self.offline.calls
        return self._look(specs[:FEW]).calls * len(specs) // FEW

    @cached_property
    def program_hash(self) -> str:
        """Of every program's identity and arrival: equal for every system (common random numbers).

        What an overflow rule left out or cut, and at which length, is part of it.
        """
        return program_hash(self.programs, self.times)

    def _arrivals(self) -> dict[str, Any]:
        if self.times is None:
            return {"concurrency": self.config.concurrency}
        if self.rate is None:
            return {"recorded": True, "horizon": self.config.horizon}
        return {self.config.arrivals: self.rate, "horizon": self.config.horizon}

    def details(self) -> dict[str, Any]:
        """The manifest's part beside the identity."""
        programs = self.programs
        return {
            "cell": self.cell,
            "system": asdict(self.spec),
            "workload": {
                "name": programs.name,
                "parameters": programs.parameters,
                "program_hash": self.program_hash,
                "read": programs.read,
                "skipped": programs.skipped,
                "repaired": programs.repaired,
                "where": programs.where,
            },
            "load": self.load,
            "seeds": [self.config.seed],
            "badge": self.badge,
            "model": self.config.model,
            "gpu": self.config.gpu,
            "fallbacks": [str(fallback) for fallback in self.serving.fallbacks],
        }

    def trap(self, latency: LatencyModel | None) -> list[str]:
        """Whether the first quantum is too short to compute a context again (``bench.traps``)."""
        found = quantum_below_recompute(
            max(0, self.offline.longest - 1), dict(self.spec.scheduler_knobs), self.spec.unit,
            self.engine.max_num_batched_tokens, latency,
        )  # fmt: skip
        return [found] if found else []


@dataclass
class Plan(Planned):
    """A run on virtual time."""

    latency: ServedModel

    @property
    def step_times(self) -> str:
        """The table's digest, or the roofline's."""
        return self.latency.digest

    @property
    def badge(self) -> str:
        """What kind of number this is: engine, table, provenance."""
        host = {"vllm-virtual": "vLLM's scheduler on a virtual clock"}.get(self.config.engine, "engine")
        options = f"; {words}" if (words := self.serving.words) else ""
        return (
            f"SIMULATED ({host} {self.config.engine}), {self.config.replicas} x {self.latency.name}, "
            f"{self.engine.kv_blocks} KV blocks each{options}; step times: {self.latency.describe()}"
        )

    def traps(self) -> list[str]:
        """Of the scheduler's quanta, by these step times."""
        return self.trap(self.latency)

    def details(self) -> dict[str, Any]:
        """The manifest's part beside the identity."""
        table = {
            "name": self.latency.name,
            "provenance": self.latency.provenance,
            "uncertainty": list(self.latency.uncertainty),
            "smallest_step_ms": round(floor(self.latency) * 1e3, 4),
        }
        return {**super().details(), "latency_table": table}


def guests(spec: SystemSpec) -> dict[str, str]:
    """Policies from outside the project, with a hash of their source: their name is not enough."""
    names = (getattr(spec, slot) for slot in SLOTS)
    return {name: source_hash(name) for name in names if ":" in name}


def source_hash(name: str) -> str:
    """16 hex digits over the source of the module of ``pkg.mod:NAME``; of nothing if it has none."""
    try:
        source = inspect.getsource(import_module(name.partition(":")[0]))
    except (OSError, TypeError):
        source = ""
    return hashlib.sha256(source.encode()).hexdigest()[:16]


def plan(config: RunConfig) -> Plan:
    """Resolve a configuration on virtual time. Raises UsageError or InvalidRun with one clear line."""
    spec, latency = spec_of(config), _latency(config)
    served = explained(lambda: serving(config, spec, latency))
    return Plan(config, *loaded(config, served.engine), spec, served, latency)


def spec_of(config: RunConfig) -> SystemSpec:
    """The system, every knob resolved. Raises UsageError."""
    replaced = (config.knobs.get(slot) for slot in SLOTS)
    with policies_of(config.system, config.scheduler, config.router, *replaced):
        return explained(
            lambda: load_system(config.system, config.scheduler, config.router, config.policy_knobs())
        )


def loaded(config: RunConfig, engine: EngineConfig) -> tuple[ProgramSet, list[float] | None, float | None]:
    """Programs that fit the engine, their arrivals (s) and rate (per s). Raises UsageError or InvalidRun."""
    room, hint = longest(engine), _kv_hint(engine)
    programs, times = arriving(config, room, hint)
    enough(programs, config, hint if exceeded(programs.skipped, room) else "")
    return programs, times, None if config.concurrency is not None else rate_of(config, programs)


def _latency(config: RunConfig) -> ServedModel:
    name = config.calibration()
    try:
        calibration = None if name is None else explained(lambda: load_calibration(name))
    except OSError as error:
        raise UsageError(f"cannot read calibration {name}: {error.strerror or error}") from None
    return explained(lambda: latency_for(config.model, config.gpu, _scales(config), calibration))


def _kv_hint(engine: EngineConfig) -> str:
    """Readers know only a length; this says where a short one comes from."""
    room = longest(engine)
    if room == engine.max_model_len:
        return ""
    return f"; {room} tokens is what fits the KV cache of {engine.kv_blocks} blocks of {BLOCK} tokens"


def longest(engine: EngineConfig) -> int:
    """Longest prompt + output (tokens) that fits the model and the KV cache."""
    return min(engine.max_model_len, engine.kv_blocks * BLOCK + 1)


def _scales(config: RunConfig) -> dict[str, float]:
    return {name: value for name, value in config.factors().items() if name != "kv_scale"}


def check_fit(plan: Planned) -> None:
    """Raises UsageError if a call of the programs can never fit (costs a dry run where no bound is known)."""
    room, known = longest(plan.engine), plan.programs.longest
    if known is not None and known <= room:
        return
    facts = plan.offline
    if facts.longest > room:
        raise UsageError(
            f"program {facts.longest_program} of {plan.programs.name} makes a call of {facts.longest} tokens "
            f"(prompt and output), but {room} is the most that fits: {plan.engine.kv_blocks} KV blocks of "
            f"{BLOCK} tokens, model length {plan.engine.max_model_len}; use shorter programs or "
            "a larger engine.kv_blocks"
        )
