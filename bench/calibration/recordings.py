"""What was measured on a real engine, and the formats it comes in.

A format is one file of ``bench.calibration.readers`` with an object ``READER``; it is found there. A file
of requests becomes a ``Recording``, one of operating points ``Points``, one of engine steps ``Steps``.
"""

from __future__ import annotations

import hashlib
import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from bench.calibration import readers as folder
from bench.errors import UsageError, unknown
from systems.latency import gpus, models
from workloads.files import fault

FEWEST = 8
"""Less than this many rows in either part say nothing."""


class Request(NamedTuple):
    """One request as it was measured. Times in seconds, lengths in tokens, None where not recorded.

    ``arrival``: on the clock of the recording, None in a closed loop; ``ttft`` and ``e2e`` from there,
    ``tpot``: (last token - first token) / (output - 1).
    """

    arrival: float | None
    prompt: int
    output: int
    ttft: float | None = None
    tpot: float | None = None
    e2e: float | None = None


class Point(NamedTuple):
    """A closed loop of ``concurrency`` requests at all times, ``prompts`` in all; mean times in seconds.

    Lengths (tokens) are drawn evenly from ``ratio`` x isl .. isl and ``ratio`` x osl .. osl.
    """

    isl: int
    osl: int
    concurrency: int
    tp: int
    ttft: float
    tpot: float
    ratio: float = 1.0
    prompts: int = 0


@dataclass(frozen=True)
class Facts:
    """What a recording says of the engine. ``model``, ``gpu`` as ``--model`` and ``--gpu`` take them,
    empty where it does not say; ``limits``: fields of ``EngineConfig``; ``source``: what made it;
    ``notes``: what a reader left out or assumed."""

    format: str
    path: Path
    model: str = ""
    gpu: str = ""
    limits: Mapping[str, int] = field(default_factory=dict)
    prefix_cache: bool = True
    source: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Recording:
    """Requests in order of arrival; ``concurrency``: how many at a time, where the loop was closed."""

    facts: Facts
    requests: Sequence[Request]
    concurrency: int | None = None


@dataclass(frozen=True)
class Points:
    """Operating points in the file's order; ``protocol``: how they were measured, in words."""

    facts: Facts
    points: Sequence[Point]
    protocol: str


@dataclass(frozen=True)
class Steps:
    """A log of engine steps: ``bench.calibration.steps`` reads it."""

    facts: Facts


Measured = Recording | Points | Steps


class Reader(Protocol):
    """Reads one format. ``name`` is what ``--format`` takes."""

    name: str

    def sniff(self, path: Path) -> str | None:
        """Why this looks like the format, or None."""

    def read(self, path: Path) -> Measured:
        """Raises UsageError with file, line and field; WorkloadError likewise."""


def readers() -> dict[str, Reader]:
    """Every reader, by name."""
    found = [import_module(f"{folder.__name__}.{m.name}") for m in pkgutil.iter_modules(folder.__path__)]
    named = {module.READER.name: module.READER for module in found if hasattr(module, "READER")}
    return dict(sorted(named.items()))


def read(path: Path, fmt: str | None = None) -> Measured:
    """What is in a file or folder. Raises UsageError if it is no recording of a known format."""
    there = readers()
    if not path.exists():
        raise UsageError(f"no file or folder {path}; a recording is one of: {', '.join(there)}")
    if fmt is not None:
        if fmt not in there:
            raise unknown("format", fmt, there)
        return there[fmt].read(path)
    fits = [reader for reader in there.values() if reader.sniff(path)]
    if len(fits) > 1:
        raise UsageError(f"{path} may be {' or '.join(r.name for r in fits)}: say which with --format")
    if not fits:
        why = "" if path.is_dir() or not (text := fault(path)) else f" ({text})"
        raise UsageError(f"{path}: no recording that can be read{why}; formats: {', '.join(there)}")
    return fits[0].read(path)


def request(
    arrival: float | None, prompt: int, output: int, first: float | None, last: float | None
) -> Request:
    """A request from its times (s), on one clock; None where there is none."""
    start = arrival if arrival is not None else 0.0
    spread = None if first is None or last is None or output < 2 else (last - first) / (output - 1)
    return Request(
        arrival,
        prompt,
        output,
        None if first is None else first - start,
        spread,
        None if last is None else last - start,
    )


def model_named(text: str) -> str:
    """Our name of a checkpoint ("meta-llama/Llama-3.1-8B-Instruct" is llama-3.1-8b), or empty."""
    words = text.rpartition("/")[2].lower().removeprefix("meta-").replace("-instruct", "")
    return words if words in models() else ""


def gpu_named(text: str) -> str:
    """Our name of a device ("NVIDIA H100 80GB HBM3" is h100); empty if there is none."""
    letters = "".join(c for c in text.lower() if c.isalnum())
    return next((name for name in sorted(gpus(), key=len, reverse=True) if name in letters), "")


def digest_of(path: Path) -> str:
    """sha256 (hex) of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
