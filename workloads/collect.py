"""What every reader of recordings does besides reading: files of a folder, counting, fitting."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import orjson

from vocabulary import on_grid
from workloads.base import NothingLeft, ProgramSet, ProgramSpec, WorkloadError
from workloads.files import Tally, files_of, head, plain_name, read_bytes, shown
from workloads.overflow import exceeded, fit
from workloads.records import records
from workloads.replay import replay_spec
from workloads.script import Script
from workloads.streams import lines, parse_line
from workloads.tokens import Counter, counter
from workloads.transcript import ESTIMATED, too_deep

BROKEN = "broken file"
MOST_SNIFFED = 20
LATEST_S = 1 << 20
"""Recorded arrivals may be so many seconds (12 days) apart."""
_PACKED = ("", ".gz", ".zst")


def files_named(path: Path, suffixes: tuple[str, ...]) -> list[tuple[str, Path]]:
    """(name to show, file): the file itself, or the folder's files with these suffixes, compressed or not."""
    if path.is_file():
        return [(path.name, path)]
    endings = tuple(suffix + packed for suffix in suffixes for packed in _PACKED)
    return [
        (shown(file.relative_to(path).as_posix()), file)
        for file in files_of(path)
        if file.name.endswith(endings)
    ]


def heads(path: Path, suffixes: tuple[str, ...]) -> Iterator[bytes]:
    """The first bytes of the first files, to recognise a format by."""
    for _, file in files_named(path, suffixes)[:MOST_SNIFFED]:
        yield head(file)


def _records(file: Path, name: str, not_ours: str) -> Iterator[tuple[str, Any]]:
    """(place, record) of one file; JSON lines are read as a stream."""
    empty = True
    for place, record in _lines(file, name) if _has_lines(file, name) else records(read_bytes(file), name):
        if too_deep(record):
            raise WorkloadError(f"{place}: JSON nested too deeply")
        yield place, record
        empty = False
    if empty:
        raise WorkloadError(f"{name}: {not_ours}")


def _has_lines(file: Path, name: str) -> bool:
    """Whether every line is a record: the first one is an object."""
    if not plain_name(name).endswith(".jsonl"):
        return False
    first = next(lines(file, name, count=False), (0, b""))[1]
    return isinstance(_parsed(first), dict)


def _lines(file: Path, name: str) -> Iterator[tuple[str, Any]]:
    for number, line in lines(file, name):
        value = _parsed(line)
        yield f"{name}:{number}", parse_line(line, name, number) if value is _BROKEN else value


_BROKEN = object()


def _parsed(line: bytes) -> Any:
    """The value of a line. Halves of surrogate pairs, which models do write, are let pass."""
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        try:
            return json.loads(line.decode(), parse_constant=_refuse)
        except (ValueError, RecursionError):
            return _BROKEN


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON number")


class Collector:
    """Gathers the programs of one reader's run, and the reasons for what is left out."""

    def __init__(
        self, path: Path, kind: str, limit: int, on_overflow: str, parameters: Mapping[str, str]
    ) -> None:
        self.path = path
        self.kind = kind
        self.limit = limit
        self.on_overflow = on_overflow
        self.counter: Counter = counter(parameters.get("tokenizer"))
        self.skipped, self.repaired = Tally(), Tally()
        self.programs: list[ProgramSpec] = []
        self.starts: list[tuple[str, int | None]] = []
        self.read = 0

    def records(self, suffixes: tuple[str, ...], not_ours: str) -> Iterator[tuple[str, Any]]:
        """(place, record) of every file, one at a time.

        A file without any record is ``not_ours``. A single file that is broken raises
        WorkloadError; of a folder's what stands before the break is read, and the file is counted.
        """
        for name, file in files_named(self.path, suffixes):
            found = _records(file, name, not_ours)
            while True:
                try:
                    place, record = next(found)
                except StopIteration:
                    break
                except WorkloadError as error:
                    if file == self.path:
                        raise
                    self.read += 1
                    self.skipped.add(BROKEN, str(error))
                    break
                yield place, record

    def skip(self, reason: str, place: str) -> None:
        """A record that is left out."""
        self.read += 1
        self.skipped.add(reason, place)

    def repair(self, reason: str, place: str) -> None:
        """Something taken otherwise than it stands there."""
        self.repaired.add(reason, place)

    def add(
        self, script: Script, place: str, start_ns: int | None = None, *, estimated: bool = False
    ) -> None:
        """A program, if it fits the context; ``start_ns`` is a recorded time (nanoseconds)."""
        self.read += 1
        if estimated:
            self.repaired.add(ESTIMATED, place)
        kept = fit(script, self.limit, self.on_overflow, place, self.skipped, self.repaired)
        if kept is not None:
            self.programs.append(replay_spec(len(self.programs), self.kind, kept, None))
            self.starts.append((place, start_ns))

    def _arrivals(self) -> None:
        """Recorded starts as arrivals, the first at 0 s, if every program has one."""
        known = [start for _, start in self.starts if start is not None]
        if not known:
            return
        if len(known) < len(self.starts):
            place = next(place for place, start in self.starts if start is None)
            self.repaired.add("program without a time: no recorded arrivals are used", place)
        elif max(known) - min(known) > LATEST_S * 10**9:
            place = next(place for place, start in self.starts if start == max(known))
            self.repaired.add(f"arrivals over more than {LATEST_S} s: none is used", place)
        else:
            for spec, start in zip(self.programs, known, strict=True):
                spec.arrival = on_grid((start - min(known)) / 1e9)

    def result(self, what: str) -> ProgramSet:
        """The set. Raises NothingLeft if every ``what`` was left out."""
        if not self.programs:
            line = f"{self.path.name}: no {what} is left: {self.skipped.text() or 'there is none'}"
            raise NothingLeft(line, exceeded(self.skipped.counts, self.limit))
        self._arrivals()
        return ProgramSet(
            self.programs, self.path.name, "", {"tokenizer": self.counter.description}, None,
            self.skipped.counts, self.repaired.counts,
            {**self.skipped.where(), **self.repaired.where()}, self.read,
        )  # fmt: skip
