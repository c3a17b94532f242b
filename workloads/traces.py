"""From a trace to the programs that run: the reader, then which programs, in which order, and when."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vocabulary import on_grid
from workloads.base import NothingLeft, ProgramSet, ProgramSpec, Reader, WorkloadError
from workloads.files import digest, fault, files_of, shown
from workloads.keys import key_of
from workloads.overflow import exceeded
from workloads.parameters import nearest
from workloads.random_streams import Stream
from workloads.replay import replay
from workloads.rows import LATEST, Programs, cap_pauses
from workloads.streams import Progress, watched


@dataclass(frozen=True, slots=True)
class Asked:
    """What is wanted of a trace's programs."""

    n: int | None
    seed: int
    rate: float | None
    closed: bool
    strict: bool
    cap_idle: float | None
    scale_rate: float | None

    def __post_init__(self) -> None:
        cap, scale = self.cap_idle, self.scale_rate
        if cap is not None and not 0 <= cap <= LATEST:
            raise WorkloadError(f"--cap-idle must be from 0 to {LATEST} s, got {cap!r}")
        if scale is not None and not 1e-6 <= scale <= 1e6:
            raise WorkloadError(f"--scale-rate must be from 1e-6 to 1e6, got {scale!r}")
        if scale is not None and (self.rate is not None or self.closed):
            raise WorkloadError(
                "--scale-rate divides recorded arrivals; with a rate or a concurrency there are none"
            )


def trace_files(path: Path) -> list[Path]:
    """The file or the files of a folder. Raises WorkloadError if there is none."""
    files = files_of(path)
    if not files:
        raise WorkloadError(f"no files in {path}")
    return files


def read_trace(
    path: Path, reader: Reader, parameters: Mapping[str, str], limit: int, on_overflow: str,
    asked: Asked, progress: Progress | None,
) -> ProgramSet:  # fmt: skip
    """The programs of a trace. Raises WorkloadError."""
    files = trace_files(path)
    more = _parameters(path, reader, parameters)
    rule = "skip" if on_overflow == "auto" else on_overflow
    with watched(progress, sum(file.stat().st_size for file in files)):
        result = reader.read(path, max_model_len=limit, on_overflow=rule, **more)
    if not result.programs:
        reasons = "; ".join(f"{count} x {reason}" for reason, count in result.skipped.items())
        line = f"{path.name}: no program is left: {reasons or 'the file holds none'}"
        raise NothingLeft(line, exceeded(result.skipped, limit))
    if asked.strict:
        _refuse_changes(path.name, result)
    _choose(result, asked, path.name)
    given = {name: value for name, value in parameters.items() if name != "tokenizer"}  # readers name it
    result.parameters = {"format": reader.name, "on_overflow": rule, **given, **result.parameters}
    result.digest = workload_digest(result, _hashes(path, files), result.skipped, asked.n, asked.rate)
    return result


def _parameters(path: Path, reader: Reader, given: Mapping[str, str]) -> dict[str, Any]:
    """The ``parameters`` argument for a reader that has one: its attribute names them."""
    known: Sequence[str] = tuple(getattr(reader, "parameters", ()))
    for name in given:
        if name not in known:
            hint = f": {nearest(name, known)}" if known else ""
            raise WorkloadError(f"{path.name} is a trace and has no parameter {name!r}{hint}")
    return {"parameters": dict(given)} if known else {}


def _refuse_changes(name: str, result: ProgramSet) -> None:
    """``strict``: whatever was left out or changed is an error."""
    changed = [
        f"{count} x {reason} ({result.where.get(reason, '')})"
        for found in (result.skipped, result.repaired)
        for reason, count in found.items()
    ]
    if changed:
        raise WorkloadError(
            f"{name}: --strict refuses what would be skipped or repaired: {'; '.join(changed)}"
        )


def _choose(result: ProgramSet, asked: Asked, name: str) -> None:
    """Which programs run, in which order, when, and with which pauses."""
    if asked.rate is not None or asked.closed:
        result.programs = _drawn(result.programs, asked.n or len(result.programs), asked.seed)
        result.rate = asked.rate
    else:
        result.programs = _recorded(result.programs, asked.n, name)
        if asked.scale_rate is not None:
            _scale(result, asked.scale_rate, name)
        _not_too_late(result.programs, name)
    if asked.cap_idle is not None:
        _cap(result, asked.cap_idle)


def _scale(result: ProgramSet, scale: float, name: str) -> None:
    programs = result.programs
    if programs[0].arrival is None:
        raise WorkloadError(f"{name} has no recorded arrivals for --scale-rate to divide")
    if isinstance(programs, Programs):
        programs.scale = scale
    else:
        result.programs = [replace(p, arrival=on_grid((p.arrival or 0.0) / scale)) for p in programs]
    result.repaired[f"recorded arrivals divided by {scale:g}"] = len(programs)
    result.parameters = {**result.parameters, "scale_rate": scale}


def _not_too_late(programs: Sequence[ProgramSpec], name: str) -> None:
    """Programs in order of arrival: the last one must come in the time that can be told apart."""
    last = programs.last() if isinstance(programs, Programs) else programs[-1].arrival
    if last is not None and last > LATEST:
        raise WorkloadError(
            f"{name}: the last of {len(programs)} programs arrives {last:.0f} s after the first, more than "
            f"{LATEST} s; take fewer (n), divide the arrivals (--scale-rate) or give a rate"
        )


def _cap(result: ProgramSet, cap: float) -> None:
    """No pause and no tool over ``cap`` seconds; each that was is counted once."""
    cut = 0
    if isinstance(result.programs, Programs):
        programs = result.programs
        numbers = set(programs.order)
        cut = sum(cap_pauses(programs.script(number), cap) for number in numbers)
        programs.cap = cap
    else:
        scripts: dict[int, Any] = {
            id(spec.start.args[0]): spec.start for spec in map(_replayed, result.programs)
        }
        cut = sum(cap_pauses(start.args[0], cap) for start in scripts.values())
    if cut:
        result.repaired[f"pause or tool over {cap:g} s cut to it"] = cut
    result.parameters = {**result.parameters, "cap_idle": cap}


def _replayed(spec: ProgramSpec) -> Any:
    if getattr(spec.start, "func", None) is not replay:
        raise WorkloadError(f"program {spec.index} ({spec.kind}) is no replay: it cannot be drawn or changed")
    return spec


def recognise(path: Path, readers: Mapping[str, Reader]) -> tuple[Reader, str]:
    """(the one reader that knows the format, why). Raises WorkloadError for none and for several."""
    files = trace_files(path)
    if path.is_file() and path.stat().st_size == 0:
        raise WorkloadError(f"{path.name}: the file is empty")
    found = {name: why for name in sorted(readers) if (why := readers[name].sniff(path))}
    if len(found) == 1:
        ((name, why),) = found.items()
        return readers[name], f"looks like {name} because of {why}"
    if found:
        reasons = "; ".join(f"{name} because of {why}" for name, why in found.items())
        raise WorkloadError(
            f"{path.name} looks like {reasons}; name the format: "
            + " or ".join(f"{name}@{path.name}" for name in found)
        )
    why = next((f"{shown(file.name)}: {line}" for file in files if (line := fault(file))), "")
    why = why.removeprefix(f"{path.name}: ")
    if path.is_file() and not why:
        why = "neither .json, .jsonl, .csv nor .traj by its name"
    raise WorkloadError(
        f"{path.name}: no reader recognises this{why and f': {why}'} "
        f"(formats: {', '.join(sorted(readers))}); name the format to see what is wrong with it"
    )


def _drawn(programs: Sequence[ProgramSpec], n: int, seed: int) -> Sequence[ProgramSpec]:
    """``n`` programs without replacement in a seeded order, round after round."""
    order, numbers = Stream(key_of("sample", seed)), list[int]()
    while len(numbers) < n:
        numbers += order.shuffled(range(len(programs)))[: n - len(numbers)]
    if isinstance(programs, Programs):
        return programs.drawn(numbers)
    return [_copy(programs[number], i, i // len(programs)) for i, number in enumerate(numbers)]


def _copy(spec: ProgramSpec, index: int, copy: int) -> ProgramSpec:
    """A trace's program at another place, with segment ids of its own in every round."""
    start: Any = _replayed(spec).start
    return ProgramSpec(
        index, spec.kind, key_of("replay", spec.index, copy), type(start)(replay, start.args[0], copy)
    )


def _recorded(programs: Sequence[ProgramSpec], n: int | None, where: str) -> Sequence[ProgramSpec]:
    """The first ``n`` in order of their recorded arrival, which starts at 0."""
    if n is not None and n > len(programs):
        raise WorkloadError(
            f"{where} has {len(programs)} usable programs, {n} were asked for; give a rate to repeat them"
        )
    if isinstance(programs, Programs):
        return programs.by_arrival().head(n)
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


def workload_digest(
    result: ProgramSet,
    files: Mapping[str, str],
    skipped: Mapping[str, int],
    n: int | None,
    rate: float | None,
) -> str:
    """sha256 of what defines the workload, without the seed (a generator's skips depend on it)."""
    what = [result.name, dict(result.parameters), dict(files), dict(skipped), n, rate]
    if files:
        what.append(dict(result.repaired))
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()
