"""What every reader of recordings does besides reading: files of a folder, counting, fitting."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from vocabulary import on_grid
from workloads.base import NothingLeft, ProgramSet, ProgramSpec, WorkloadError
from workloads.files import Tally, files_of, head, read_bytes, shown
from workloads.overflow import exceeded, fit
from workloads.records import records
from workloads.replay import replay_spec
from workloads.script import Script
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
        """(place, record) of every file; a broken file of a folder is skipped and counted.

        A file without any record is ``not_ours``. Raises WorkloadError for a single file.
        """
        for name, file in files_named(self.path, suffixes):
            try:
                found = list(records(read_bytes(file), name))
                if not found:
                    raise WorkloadError(f"{name}: {not_ours}")
                if deep := next((place for place, record in found if too_deep(record)), ""):
                    raise WorkloadError(f"{deep}: JSON nested too deeply")
            except WorkloadError as error:
                if file == self.path:
                    raise
                self.read += 1
                self.skipped.add(BROKEN, str(error))
                continue
            yield from found

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
