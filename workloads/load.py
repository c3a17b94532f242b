"""From what the user names to a set of programs: ``chatbot``, ``mcts:lats``, a trace, ``pkg.mod:fn``.

Workloads are found by scanning this folder for a ``WORKLOAD``, readers by scanning
``readers/`` for a ``READER``: a new one is one new file. One that cannot be loaded is
skipped with a line on stderr, and is an error only where it is the one asked for.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import math
import pkgutil
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import workloads
from workloads import readers
from workloads.base import NothingLeft, ProgramSet, ProgramSpec, Reader, Workload, WorkloadError
from workloads.files import COMPRESSED, Tally, exists, shown
from workloads.keys import key_of
from workloads.overflow import RULES, exceeded, fit_specs
from workloads.parameters import nearest
from workloads.session import Program, Session
from workloads.streams import Progress
from workloads.traces import Asked, read_trace, recognise, workload_digest

DEFAULT_PROGRAMS = 700
_FILES = tuple(kind + packed for kind in (".json", ".jsonl", ".csv", ".traj") for packed in ("", *COMPRESSED))
_SKIPPED: dict[str, str] = {}
"""Files that could not be loaded and why, by their module's name."""


def load(
    spec: str,
    *,
    n: int | None = None,
    seed: int = 0,
    parameters: Mapping[str, str] = {},
    rate: float | None = None,
    max_model_len: int = 131_072,
    on_overflow: str = "auto",
    fmt: str | None = None,
    closed: bool = False,
    strict: bool = False,
    cap_idle: float | None = None,
    scale_rate: float | None = None,
    progress: Progress | None = None,
) -> ProgramSet:
    """The programs ``spec`` names: a pure function of the arguments and the files read.

    ``n``: how many; None is 700 generated ones (p99 needs 662), or all of a trace. ``rate``:
    programs per second; for a trace it replaces the recorded arrivals, and sessions
    are drawn without replacement in a seeded order, again and again under new
    segment ids until there are ``n``; ``closed`` (a closed loop) draws them the same
    way. ``on_overflow``: refuse, skip, truncate, or auto (generators refuse, traces
    skip). ``fmt`` names the reader. Of traces: ``strict`` refuses what would be skipped or
    repaired, ``cap_idle`` lets no pause or tool take more seconds, ``scale_rate`` divides
    recorded arrivals, ``progress`` is called with bytes read and bytes in all. Raises WorkloadError.
    """
    _check(n, rate, max_model_len, on_overflow)
    asked = Asked(n, seed, rate, closed, strict, cap_idle, scale_rate)
    if shown(spec) != spec:
        raise WorkloadError(f"{shown(spec)}: the name is not UTF-8 text; give the file or folder another")
    kind, target, preset = _resolve(spec)
    if kind == "trace":
        reader, _ = detect(Path(target), fmt)
        return read_trace(Path(target), reader, parameters, max_model_len, on_overflow, asked, progress)
    if fmt is not None:
        raise WorkloadError(f"--format {fmt} is for traces; {spec} is a generator")
    if option := next((o for o in ("cap_idle", "scale_rate") if getattr(asked, o) is not None), ""):
        raise WorkloadError(f"--{option.replace('_', '-')} is for traces; {spec} is a generator")
    workload = _workload(target) if kind == "name" else _imported(target)
    count = DEFAULT_PROGRAMS if n is None else n
    result = _generate(workload, count, seed, preset, parameters, max_model_len, on_overflow)
    result.rate = rate if rate is not None else result.rate
    result.digest = workload_digest(result, {}, {}, count, rate)
    return result


def detect(path: Path, fmt: str | None = None) -> tuple[Reader, str]:
    """(reader, why it is this one: "looks like mooncake because ...").

    ``fmt`` names it. Raises WorkloadError if no reader, or more than one, recognises the input.
    """
    if fmt is None:
        return recognise(path, _readers())
    if fmt not in _readers():
        _refuse_skipped(f"workloads.readers.{fmt}")
        raise WorkloadError(f"no format {fmt!r}: {nearest(fmt, _readers())}")
    return _readers()[fmt], f"{fmt}, as asked for"


def workload_names() -> list[str]:
    """Every workload of this folder."""
    return sorted(_workloads())


def reader_names() -> list[str]:
    """Every trace format that can be read."""
    return sorted(_readers())


def workload(name: str) -> Workload:
    """A workload by name. Raises WorkloadError naming the nearest."""
    return _workload(name)


def skipped() -> dict[str, str]:
    """Files of workloads and readers that cannot be loaded: why, by module."""
    _workloads(), _readers()
    return dict(_SKIPPED)


def _check(n: int | None, rate: float | None, max_model_len: int, on_overflow: str) -> None:
    if n is not None and n < 1:
        raise WorkloadError(f"the number of programs must be at least 1, got {n}")
    if rate is not None and not (rate > 0 and math.isfinite(rate)):
        raise WorkloadError(f"the rate must be above 0 programs/s and finite, got {rate!r}")
    if max_model_len < 2:
        raise WorkloadError(f"max_model_len must be at least 2 tokens, got {max_model_len}")
    if on_overflow not in ("auto", *RULES):
        raise WorkloadError(f"--on-overflow {on_overflow}: {nearest(on_overflow, RULES)}")


def _resolve(spec: str) -> tuple[str, str, str | None]:
    """(name, trace or import; what; preset)."""
    head, _, rest = spec.partition(":")
    if head in _workloads():
        return "name", head, rest or None
    _refuse_skipped(f"workloads.{head}")
    if exists(spec):
        return "trace", spec, None
    if rest and "/" not in spec:
        return "import", spec, None
    if "/" in spec or spec.endswith(_FILES):
        raise WorkloadError(f"no file or folder {spec}")
    raise WorkloadError(f"no workload {spec!r}, and no such file: {nearest(head, _workloads())}")


# Generators


def _generate(
    workload: Workload, n: int, seed: int, preset: str | None,
    parameters: Mapping[str, str], limit: int, on_overflow: str,
) -> ProgramSet:  # fmt: skip
    result = workload.build(n, seed, preset, parameters)
    longest = result.longest
    if longest is not None and longest > limit and "max_context" in result.parameters:
        # Its programs can end before they overflow: let them.
        result = workload.build(n, seed, preset, {**parameters, "max_context": str(limit)})
        longest = result.longest
    if longest is None or longest > limit:
        skipped, cuts = Tally(), Tally()
        rule = "refuse" if on_overflow == "auto" else on_overflow
        result.programs = fit_specs(list(result.programs), limit, rule, skipped, cuts)
        result.skipped.update(skipped.counts)
        result.repaired.update(cuts.counts)
        result.where.update(skipped.where() | cuts.where())
        if not result.programs:
            line = f"{result.name}: no program is left: {skipped.text()}"
            raise NothingLeft(line, exceeded(skipped.counts, limit))
    return result


@cache
def _workloads() -> Mapping[str, Workload]:
    return _scan(workloads.__path__, "workloads.", "WORKLOAD")


@cache
def _readers() -> Mapping[str, Reader]:
    return _scan(readers.__path__, "workloads.readers.", "READER")


def _scan(folder: Any, package: str, attribute: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for module in pkgutil.iter_modules(folder, package):
        if module.ispkg:
            continue
        try:
            thing = getattr(importlib.import_module(module.name), attribute, None)
            if thing is not None:
                found[thing.name] = _named(thing)
        except (Exception, SystemExit) as error:  # whatever a half-written file raises is about that file
            _SKIPPED[module.name] = f"{type(error).__name__}: {' '.join(str(error).split())}"
            print(f"warning: skipped {_file(module.name)}: {_SKIPPED[module.name]}", file=sys.stderr)
    return found


def _named(thing: Any) -> Any:
    """The thing, if what lists show of it can be had."""
    if hasattr(thing, "build"):
        thing.presets()
    return thing


def _file(module: str) -> str:
    return module.replace(".", "/") + ".py"


def _refuse_skipped(module: str) -> None:
    module = module.replace("-", "_")
    if module in _SKIPPED:
        raise WorkloadError(f"{_file(module)} cannot be loaded: {_SKIPPED[module]}")


def _workload(name: str) -> Workload:
    if name not in _workloads():
        _refuse_skipped(f"workloads.{name}")
        raise WorkloadError(f"no workload {name!r}: {nearest(name, _workloads())}")
    return _workloads()[name]


def _imported(spec: str) -> Workload:
    """``pkg.mod:thing``: a Workload, or an ``async def`` that takes a session."""
    module, _, name = spec.partition(":")
    try:
        thing = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise WorkloadError(
            f"{spec}: {error} (a known workload is one of {', '.join(_workloads())})"
        ) from error
    if hasattr(thing, "build"):
        built: Workload = thing() if isinstance(thing, type) else thing
        return built
    if inspect.iscoroutinefunction(thing):
        return _Function(spec, thing)
    raise WorkloadError(f"{spec}: neither a Workload (it has no build) nor an async def that takes a session")


class _Function:
    """A user's ``async def agent(session)`` as a workload."""

    default_preset = ""

    def __init__(self, name: str, start: Callable[[Session], Program]) -> None:
        self.name = name
        self.start = start

    def presets(self) -> list[str]:
        """None: it has no parameters."""
        return []

    def build(
        self, n: int, seed: int, preset: str | None = None, parameters: Mapping[str, object] = {}
    ) -> ProgramSet:
        """``n`` programs that differ by their session's key."""
        if preset or parameters:
            raise WorkloadError(f"{self.name} is a function: it has no presets and no parameters")
        source = hashlib.sha256(_source(self.start).encode()).hexdigest()
        programs = [ProgramSpec(i, self.name, key_of(self.name, seed, i), self.start) for i in range(n)]
        return ProgramSet(programs, self.name, "", {"source_sha256": source}, 1.0)


def _source(function: Callable[..., object]) -> str:
    try:
        return inspect.getsource(inspect.getmodule(function) or function)
    except (OSError, TypeError):
        return ""
