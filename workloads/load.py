"""From what the user names to a set of programs: ``chatbot``, ``mcts:lats``, a trace, ``pkg.mod:fn``.

Workloads are found by scanning this folder for a ``WORKLOAD``, readers by scanning
``readers/`` for a ``READER``: a new one is one new file. One that cannot be loaded is
skipped with a line on stderr, and is an error only where it is the one asked for.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import json
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
from workloads.files import Tally, digest, exists, fault, files_of, shown
from workloads.keys import key_of
from workloads.overflow import RULES, exceeded, fit_specs
from workloads.parameters import nearest
from workloads.random_streams import Stream
from workloads.replay import replay
from workloads.session import Program, Session

DEFAULT_PROGRAMS = 700
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
) -> ProgramSet:
    """The programs ``spec`` names: a pure function of the arguments and the files read.

    ``n``: how many; None is 700 generated ones (p99 needs 662), or all of a trace. ``rate``:
    programs per second; for a trace it replaces the recorded arrivals, and sessions
    are drawn without replacement in a seeded order, again and again under new
    segment ids until there are ``n``; ``closed`` (a closed loop) draws them the same
    way. ``on_overflow``: refuse, skip, truncate, or auto (generators refuse, traces
    skip). ``fmt`` names the reader. Raises WorkloadError.
    """
    _check(n, rate, max_model_len, on_overflow)
    if shown(spec) != spec:
        raise WorkloadError(f"{shown(spec)}: the name is not UTF-8 text; give the file or folder another")
    kind, target, preset = _resolve(spec)
    if kind == "trace":
        return _trace(Path(target), n, seed, parameters, rate, max_model_len, on_overflow, fmt, closed)
    if fmt is not None:
        raise WorkloadError(f"--format {fmt} is for traces; {spec} is a generator")
    workload = _workload(target) if kind == "name" else _imported(target)
    count = DEFAULT_PROGRAMS if n is None else n
    result = _generate(workload, count, seed, preset, parameters, max_model_len, on_overflow)
    result.rate = rate if rate is not None else result.rate
    result.digest = _digest(result, {}, {}, count, rate)
    return result


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
    if "/" in spec or spec.endswith((".json", ".jsonl", ".gz", ".csv")):
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
        result.programs = fit_specs(result.programs, limit, rule, skipped, cuts)
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


# Traces


def _trace(
    path: Path, n: int | None, seed: int, parameters: Mapping[str, str], rate: float | None,
    limit: int, on_overflow: str, fmt: str | None, closed: bool,
) -> ProgramSet:  # fmt: skip
    if parameters:
        raise WorkloadError(f"{path.name} is a trace and has no parameter {next(iter(parameters))!r}")
    files = files_of(path)
    if not files:
        raise WorkloadError(f"no files in {path}")
    reader = _reader(path, files, fmt)
    rule = "skip" if on_overflow == "auto" else on_overflow
    result = reader.read(path, max_model_len=limit, on_overflow=rule)
    if not result.programs:
        reasons = "; ".join(f"{count} x {reason}" for reason, count in result.skipped.items())
        line = f"{path.name}: no program is left: {reasons or 'the file holds none'}"
        raise NothingLeft(line, exceeded(result.skipped, limit))
    if rate is not None or closed:
        result.programs = _drawn(result.programs, n or len(result.programs), seed)
        result.rate = rate
    else:
        result.programs = _recorded(result.programs, n, path.name)
    result.parameters = {"format": reader.name, "on_overflow": rule, **result.parameters}
    result.digest = _digest(result, _hashes(path, files), result.skipped, n, rate)
    return result


def _reader(path: Path, files: list[Path], fmt: str | None) -> Reader:
    if fmt is not None:
        if fmt not in _readers():
            _refuse_skipped(f"workloads.readers.{fmt}")
            raise WorkloadError(f"no format {fmt!r}: {nearest(fmt, _readers())}")
        return _readers()[fmt]
    if path.is_file() and path.stat().st_size == 0:
        raise WorkloadError(f"{path.name}: the file is empty")
    for name in sorted(_readers()):
        if _readers()[name].sniff(path):
            return _readers()[name]
    why = next((f"{shown(file.name)}: {line}" for file in files if (line := fault(file))), "")
    why = why.removeprefix(f"{path.name}: ")
    raise WorkloadError(
        f"{path.name}: no reader recognises this{why and f': {why}'} (formats: {', '.join(reader_names())}); "
        "name the format to see what is wrong with it"
    )


def _drawn(programs: list[ProgramSpec], n: int, seed: int) -> list[ProgramSpec]:
    """``n`` programs without replacement in a seeded order, round after round."""
    order = Stream(key_of("sample", seed))
    result: list[ProgramSpec] = []
    copy = 0
    while len(result) < n:
        for spec in order.shuffled(programs)[: n - len(result)]:
            result.append(_copy(spec, len(result), copy))
        copy += 1
    return result


def _copy(spec: ProgramSpec, index: int, copy: int) -> ProgramSpec:
    """A trace's program at another place, with segment ids of its own in every round."""
    start: Any = spec.start
    if getattr(start, "func", None) is not replay:
        raise WorkloadError(f"program {spec.index} ({spec.kind}) is no replay: it cannot be drawn again")
    return ProgramSpec(
        index, spec.kind, key_of("replay", spec.index, copy), type(start)(replay, start.args[0], copy)
    )


def _recorded(programs: list[ProgramSpec], n: int | None, where: str) -> list[ProgramSpec]:
    """The first ``n`` in order of their recorded arrival, which starts at 0."""
    if n is not None and n > len(programs):
        raise WorkloadError(
            f"{where} has {len(programs)} usable programs, {n} were asked for; give a rate to repeat them"
        )
    times = [spec.arrival for spec in programs if spec.arrival is not None]
    if len(times) < len(programs):
        return programs[:n]
    first = min(times)
    ordered = sorted(programs, key=lambda spec: (spec.arrival, spec.index))[:n]
    return [
        ProgramSpec(i, spec.kind, spec.key, spec.start, (spec.arrival or 0.0) - first)
        for i, spec in enumerate(ordered)
    ]


def _hashes(path: Path, files: list[Path]) -> dict[str, str]:
    if path.is_file():
        return {path.name: digest(path)}
    return {shown(file.relative_to(path).as_posix()): digest(file) for file in files}


def _digest(
    result: ProgramSet,
    files: Mapping[str, str],
    skipped: Mapping[str, int],
    n: int | None,
    rate: float | None,
) -> str:
    """sha256 of what defines the workload, without the seed (a generator's skips depend on it)."""
    what = [result.name, dict(result.parameters), dict(files), dict(skipped), n, rate]
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()
