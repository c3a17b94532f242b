"""From what was asked to what will run: programs, arrivals, system, engine, and the cell's address."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from bench.background import in_background
from bench.code import code_digest
from bench.config import RunConfig
from bench.errors import InvalidRun, UsageError
from bench.foreign import policies_of, programs_of
from bench.offline import Ledger, Offline, offline
from bench.serving import Serving, serving
from bench.tables import FORMAT
from bench.trace_options import split
from systems.catalog import CatalogError, SystemSpec, load_system
from systems.latency.calibration import load_calibration
from systems.latency.catalog import UnknownTable, latency_for
from systems.latency.scaled import ServedModel, floor
from vocabulary import BLOCK, EngineConfig
from workloads.arrivals import parse, recorded
from workloads.arrivals import times as arrival_times
from workloads.base import NothingLeft, ProgramSet, ProgramSpec, WorkloadError
from workloads.load import load
from workloads.overflow import exceeded

T = TypeVar("T")

CONTEXT = 131_072
"""Longest call of Llama-3.1: what a trace is read for where no engine says otherwise."""
SKIPPED_SHARE = 0.25
"""More skipped programs than this make a run invalid."""
FEW = 32
"""Programs that are looked at before a run; of more, the rest is looked at beside it."""


@dataclass
class Plan:
    """A run that is ready to start. ``times``: arrivals in seconds, None in a closed loop."""

    config: RunConfig
    programs: ProgramSet
    times: list[float] | None
    rate: float | None
    spec: SystemSpec
    serving: Serving
    latency: ServedModel
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
            "latency": self.latency.digest,
            "replicas": config.replicas,
        }

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
        """What kind of number this is: engine, table, provenance."""
        host = {"vllm-virtual": "vLLM's scheduler on a virtual clock"}.get(self.config.engine, "engine")
        options = f"; {words}" if (words := self.serving.words) else ""
        return (
            f"SIMULATED ({host} {self.config.engine}), {self.config.replicas} x {self.latency.name}, "
            f"{self.engine.kv_blocks} KV blocks each{options}; step times: {self.latency.describe()}"
        )

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
        changed = json.dumps([dict(self.programs.skipped), dict(self.programs.repaired)], sort_keys=True)
        digest = hashlib.sha256(f"{self.programs.digest} {changed}\n".encode())
        for i, spec in enumerate(self.programs.programs):
            when = "" if self.times is None else repr(self.times[i])
            digest.update(f"{spec.index} {spec.kind} {spec.key} {when}\n".encode())
        return digest.hexdigest()

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
            "latency_table": {
                "name": self.latency.name,
                "provenance": self.latency.provenance,
                "uncertainty": list(self.latency.uncertainty),
                "smallest_step_ms": round(floor(self.latency) * 1e3, 4),
            },
            "fallbacks": [str(fallback) for fallback in self.serving.fallbacks],
        }


def guests(spec: SystemSpec) -> dict[str, str]:
    """Policies from outside the project, with a hash of their source: their name is not enough."""
    found = {}
    for name in (spec.scheduler, spec.router):
        if ":" in name:
            try:
                source = inspect.getsource(import_module(name.partition(":")[0]))
            except (OSError, TypeError):
                source = ""
            found[name] = hashlib.sha256(source.encode()).hexdigest()[:16]
    return found


def plan(config: RunConfig) -> Plan:
    """Resolve a configuration. Raises UsageError or InvalidRun with one clear line."""
    with policies_of(config.system, config.scheduler, config.router):
        spec = _explained(
            lambda: load_system(config.system, config.scheduler, config.router, config.policy_knobs())
        )
    latency = _latency(config)
    served = _explained(lambda: serving(config, spec, latency))
    room, hint = longest(served.engine), _kv_hint(served.engine)
    programs, times = arriving(config, room, hint)
    enough(programs, config, hint if exceeded(programs.skipped, room) else "")
    rate = None if config.concurrency is not None else _rate(config, programs)
    return Plan(config, programs, times, rate, spec, served, latency)


def _latency(config: RunConfig) -> ServedModel:
    name = config.calibration()
    try:
        calibration = None if name is None else _explained(lambda: load_calibration(name))
    except OSError as error:
        raise UsageError(f"cannot read calibration {name}: {error.strerror or error}") from None
    return _explained(lambda: latency_for(config.model, config.gpu, _scales(config), calibration))


def _explained(make: Callable[[], T]) -> T:
    try:
        return make()
    except (CatalogError, UnknownTable, ValueError) as error:
        raise UsageError(str(error)) from None


def _kv_hint(engine: EngineConfig) -> str:
    """Readers know only a length; this says where a short one comes from."""
    room = longest(engine)
    if room == engine.max_model_len:
        return ""
    return f"; {room} tokens is what fits the KV cache of {engine.kv_blocks} blocks of {BLOCK} tokens"


def longest(engine: EngineConfig) -> int:
    """Longest prompt + output (tokens) that fits the model and the KV cache."""
    return min(engine.max_model_len, engine.kv_blocks * BLOCK + 1)


def load_programs(
    config: RunConfig, room: int = CONTEXT, hint: str = "", progress: Callable[[int, int], None] | None = None
) -> ProgramSet:
    """The programs of the workload, file or folder; calls have at most ``room`` tokens.

    ``progress`` is called with the bytes of a trace that were read, and those there are.
    Raises UsageError or InvalidRun, with ``hint`` behind the line where ``room`` was too short.
    """
    try:
        parameters, options = split(config.workload, config.parameters)
        with programs_of(config.workload):
            return load(
                config.workload,
                n=config.n,
                seed=config.seed,
                parameters=parameters,
                rate=config.rate,
                max_model_len=room,
                on_overflow=config.on_overflow or "auto",
                fmt=config.format,
                closed=config.concurrency is not None,
                progress=progress,
                **options,
            )
    except WorkloadError as error:
        kind = InvalidRun if isinstance(error, NothingLeft) else UsageError
        raise kind(f"{error}{hint if error.limit is not None else ''}") from None


def enough(programs: ProgramSet, config: RunConfig, hint: str = "") -> None:
    """Raises InvalidRun if nothing is left or too much was skipped, UsageError if a loop is too wide."""
    skipped = sum(programs.skipped.values())
    reasons = ", ".join(f"{count} x {reason}" for reason, count in programs.skipped.items())
    if not programs.programs:
        raise InvalidRun(
            f"no program is left of {config.workload}" + (f": skipped {reasons}{hint}" if reasons else "")
        )
    read = programs.read or len(programs.programs) + skipped
    if skipped > SKIPPED_SHARE * read:
        raise InvalidRun(
            f"{skipped} of {read} programs of {config.workload} are skipped ({reasons}): more than "
            f"{SKIPPED_SHARE:.0%}, so the rest does not stand for it{hint}"
        )
    if config.concurrency is not None and config.concurrency > len(programs.programs):
        raise UsageError(
            f"--concurrency {config.concurrency} needs at least as many programs; there are "
            f"{len(programs.programs)} (see --n)"
        )


def _scales(config: RunConfig) -> dict[str, float]:
    return {name: value for name, value in config.factors().items() if name != "kv_scale"}


def arriving(config: RunConfig, room: int, hint: str) -> tuple[ProgramSet, list[float] | None]:
    """The programs and when they arrive (s); a horizon decides how many there are.

    Raises UsageError or InvalidRun.
    """
    if config.concurrency is not None:
        return load_programs(config, room, hint), None
    if config.horizon is None:
        programs = load_programs(config, room, hint)
        rate = _rate(config, programs)
        return programs, _times(config, programs, rate)
    first = load_programs(replace(config, horizon=None, n=1 if config.rate is not None else None), room, hint)
    rate = _rate(config, first)
    if rate is None:
        return _until(first, config.horizon)
    times = _explained(lambda: arrival_times(config.arrivals, rate, config.seed, horizon=config.horizon))
    if not times:
        raise UsageError(
            f"no program arrives in --horizon {config.horizon:g} s at {rate:g}/s: raise one of them"
        )
    programs = load_programs(replace(config, horizon=None, n=len(times)), room, hint)
    programs.digest = first.digest  # how many come in a horizon is the seed's
    return programs, times


def _until(programs: ProgramSet, horizon: float) -> tuple[ProgramSet, list[float]]:
    """Recorded arrivals before ``horizon``."""
    times = _explained(lambda: recorded(programs.programs))
    kept = [i for i, time in enumerate(times) if time < horizon]
    programs.programs = [programs.programs[i] for i in kept]
    return programs, [times[i] for i in kept]


def _rate(config: RunConfig, programs: ProgramSet) -> float | None:
    return programs.rate if config.rate is None else config.rate


def _times(config: RunConfig, programs: ProgramSet, rate: float | None) -> list[float]:
    specs = programs.programs
    if rate is None:
        return _explained(lambda: recorded(specs))
    try:
        return arrival_times(config.arrivals, rate, config.seed, n=len(specs))
    except ValueError as error:
        raise UsageError(
            f"--rate {rate:g}: {len(specs)} programs take about {len(specs) / rate:.3g} s to arrive, more "
            f"than a run can last ({error}); give a higher --rate or a lower --n"
        ) from None


def check_fit(plan: Plan) -> None:
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
