"""The programs of a run and when they arrive: loaded, counted, and refused where they mean nothing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from bench.config import RunConfig
from bench.errors import InvalidRun, UsageError
from bench.foreign import programs_of
from bench.trace_options import split
from systems.catalog import CatalogError
from systems.latency.catalog import UnknownTable
from workloads.arrivals import recorded
from workloads.arrivals import times as arrival_times
from workloads.base import NothingLeft, ProgramSet, WorkloadError
from workloads.load import load

T = TypeVar("T")

CONTEXT = 131_072
"""Longest call of Llama-3.1: what a trace is read for where no engine says otherwise."""
SKIPPED_SHARE = 0.25
"""More skipped programs than this make a run invalid."""


def explained(make: Callable[[], T]) -> T:
    """What ``make`` makes; a bad value in what was asked is a UsageError."""
    try:
        return make()
    except (CatalogError, UnknownTable, ValueError) as error:
        raise UsageError(str(error)) from None


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
        what = "records" if programs.read else "programs"
        raise InvalidRun(
            f"{skipped} of {read} {what} of {config.workload} are skipped ({reasons}): more than "
            f"{SKIPPED_SHARE:.0%}, so the rest does not stand for it{hint}"
        )
    if config.concurrency is not None and config.concurrency > len(programs.programs):
        raise UsageError(
            f"--concurrency {config.concurrency} needs at least as many programs; there are "
            f"{len(programs.programs)} (see --n)"
        )


def arriving(config: RunConfig, room: int, hint: str) -> tuple[ProgramSet, list[float] | None]:
    """The programs and when they arrive (s); a horizon decides how many there are.

    Raises UsageError or InvalidRun.
    """
    if config.concurrency is not None:
        return load_programs(config, room, hint), None
    if config.horizon is None:
        programs = load_programs(config, room, hint)
        _no_waves(config, programs)
        rate = rate_of(config, programs)
        return programs, _times(config, programs, rate)
    first = load_programs(replace(config, horizon=None, n=1 if config.rate is not None else None), room, hint)
    _no_waves(config, first)
    rate = rate_of(config, first)
    if rate is None:
        return _until(first, config.horizon)
    times = explained(lambda: arrival_times(config.arrivals, rate, config.seed, horizon=config.horizon))
    if not times:
        raise UsageError(
            f"no program arrives in --horizon {config.horizon:g} s at {rate:g}/s: raise one of them"
        )
    programs = load_programs(replace(config, horizon=None, n=len(times)), room, hint)
    programs.digest = first.digest  # how many come in a horizon is the seed's
    return programs, times


def _no_waves(config: RunConfig, programs: ProgramSet) -> None:
    """Raises UsageError for batches that wait for each other: they cannot arrive at a rate."""
    if any(spec.wave is not None for spec in programs.programs):
        raise UsageError(
            f"batches of {config.workload} start when those before have ended, not at a rate: "
            "give --concurrency N (programs at a time)"
        )


def _until(programs: ProgramSet, horizon: float) -> tuple[ProgramSet, list[float]]:
    """Recorded arrivals before ``horizon``."""
    times = explained(lambda: recorded(programs.programs))
    kept = [i for i, time in enumerate(times) if time < horizon]
    programs.programs = [programs.programs[i] for i in kept]
    return programs, [times[i] for i in kept]


def rate_of(config: RunConfig, programs: ProgramSet) -> float | None:
    """Programs per second: the run's, else the workload's; None where arrivals are recorded."""
    return programs.rate if config.rate is None else config.rate


def _times(config: RunConfig, programs: ProgramSet, rate: float | None) -> list[float]:
    specs = programs.programs
    if rate is None:
        return explained(lambda: recorded(specs))
    try:
        return arrival_times(config.arrivals, rate, config.seed, n=len(specs))
    except ValueError as error:
        raise UsageError(
            f"--rate {rate:g}: {len(specs)} programs take about {len(specs) / rate:.3g} s to arrive, more "
            f"than a run can last ({error}); give a higher --rate or a lower --n"
        ) from None


def program_hash(programs: ProgramSet, times: Sequence[float] | None) -> str:
    """Of every program's identity and arrival (s): 64 hex digits, the same in every process.

    What an overflow rule left out or cut, and at which length, is part of it.
    """
    changed = json.dumps([dict(programs.skipped), dict(programs.repaired)], sort_keys=True)
    digest = hashlib.sha256(f"{programs.digest} {changed}\n".encode())
    for i, spec in enumerate(programs.programs):
        when = "" if times is None else repr(times[i])
        digest.update(f"{spec.index} {spec.kind} {spec.key} {when}\n".encode())
    return digest.hexdigest()
