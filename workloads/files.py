"""Reading trace files: compressed or not, hashed, and errors that name the place."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from workloads.base import WorkloadError
from workloads.streams import lines, opened, pieces, unreadable
from workloads.streams import shown as shown

MOST_ENTRIES = 100_000
"""A folder of more entries is no folder of traces."""


COMPRESSED = (".gz", ".zst")


def read_bytes(path: Path) -> bytes:
    """The content, decompressed if it is gzip or Zstandard. Raises WorkloadError."""
    with opened(path) as file:
        return file.read()


def plain_name(name: str) -> str:
    """A file's name without the suffix of a compression."""
    for suffix in COMPRESSED:
        name = name.removesuffix(suffix)
    return name


def exists(spec: str) -> bool:
    """Whether there is such a file or folder. Raises WorkloadError where that cannot be known."""
    try:
        return Path(spec).exists()
    except OSError as error:
        raise unreadable(error, Path(spec)) from error


def files_of(path: Path) -> list[Path]:
    """The file, or all files below the folder, sorted.

    Raises WorkloadError for one that cannot be read, and above MOST_ENTRIES entries.
    """
    found, seen = [], 0

    def refuse(error: OSError) -> NoReturn:
        raise unreadable(error, Path(error.filename or path)) from error

    for folder, folders, files in os.walk(path, onerror=refuse) if path.is_dir() else ():
        seen += len(folders) + len(files)
        if seen > MOST_ENTRIES:
            raise WorkloadError(
                f"{shown(path)}: more than {MOST_ENTRIES} entries; name a folder of traces only"
            )
        found += [file for name in files if (file := Path(folder, name)).is_file()]
    found = sorted(found) if path.is_dir() else [path]
    for file in found:
        if not os.access(file, os.R_OK):
            raise WorkloadError(f"permission denied: {shown(file)}")
    return found


def fault(path: Path) -> str:
    """Why a JSON file is no trace of any format; empty for a file that is not meant to be JSON."""
    name = shown(path.name)
    if not head(path, 4096).strip() and not path.stat().st_size:
        return "the file is empty"
    if plain_name(name).endswith(".csv"):
        first = head(path).partition(b"\n")[0].decode("utf-8", "replace").strip()
        numbers = all(cell.strip(' "').replace(".", "", 1).isdigit() or not cell for cell in first.split(","))
        return f"a CSV that begins {brief(first)}" + (", without a header" if first and numbers else "")
    if not plain_name(name).endswith((".json", ".jsonl")):
        return ""
    try:
        text = next(lines(path, name), (0, b""))[1] if ".jsonl" in name else read_bytes(path)
        value = parse_json(text.rstrip(b"\r\n"), name)
    except WorkloadError as error:
        return str(error).removeprefix(name).removeprefix(":").strip()
    if isinstance(value, list) and not value:
        return "an empty list"
    if not isinstance(value, dict):
        return f"not an object but {brief(value)}"
    return (
        f"an object with the fields {', '.join(sorted(value)[:8])}" if value else "an object without fields"
    )


def head(path: Path, size: int = 65_536) -> bytes:
    """The first bytes of the content; empty if they cannot be read."""
    try:
        with opened(path, count=False) as file:
            return file.read(size)
    except WorkloadError:
        return b""


def first_line(path: Path) -> bytes:
    """The first line that is not blank, without its end; empty if it cannot be read or is over 16 MB."""
    try:
        with opened(path, count=False) as file:
            while line := file.readline(1 << 24):
                if text := line.removeprefix(b"\xef\xbb\xbf").strip():
                    return text if len(line) < 1 << 24 else b""
    except WorkloadError:
        pass
    return b""


def digest(path: Path) -> str:
    """sha256 of the (decompressed) content."""
    total = hashlib.sha256()
    for piece in pieces(path, count=False):
        total.update(piece)
    return total.hexdigest()


def parse_json(text: bytes, where: str) -> Any:
    """JSON, or WorkloadError with line and column. NaN and Infinity are refused."""

    def constant(name: str) -> NoReturn:
        raise WorkloadError(f"{where}: {name} is no JSON number")

    try:
        return json.loads(text.decode("utf-8-sig"), parse_constant=constant)
    except UnicodeDecodeError as error:
        raise WorkloadError(f"{where}: not UTF-8 text (byte {error.start})") from error
    except json.JSONDecodeError as error:
        raise WorkloadError(f"{where}:{error.lineno}:{error.colno}: broken JSON ({error.msg})") from error
    except RecursionError:
        raise WorkloadError(f"{where}: JSON nested too deeply") from None
    except ValueError as error:  # an integer of thousands of digits
        if isinstance(error, WorkloadError):
            raise
        raise WorkloadError(f"{where}: {error}") from error


class Fields:
    """Typed access to one JSON object; errors name file, record and field."""

    __slots__ = ("values", "where")

    def __init__(self, values: object, where: str) -> None:
        if not isinstance(values, dict):
            raise WorkloadError(f"{where}: expected an object, got {brief(values)}")
        self.values: dict[str, Any] = values
        self.where = where

    def has(self, name: str) -> bool:
        """Present and not null."""
        return self.values.get(name) is not None

    def integer(self, name: str, *, low: int = 0, high: int = 1 << 53, default: int | None = None) -> int:
        """A whole number in low..high; ``default`` where the field is missing."""
        value = self.values.get(name)
        if value is None and default is not None:
            return default
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.wrong(name, f"a whole number from {low} to {high}")
        return value

    def seconds(self, name: str, default: float | None = None) -> float | None:
        """A time of 0 s to 2**20 s (12 days), or ``default`` where the field is missing."""
        value = self.values.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1 << 20:
            raise self.wrong(name, "a number of seconds from 0 to 2**20")
        return float(value)

    def text(self, name: str, default: str = "") -> str:
        """A string, or ``default`` where the field is missing."""
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.wrong(name, "a string")
        return value

    def items(self, name: str) -> list[Any]:
        """A list; empty where the field is missing."""
        value = self.values.get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self.wrong(name, "a list")
        return value

    def wrong(self, name: str, expected: str) -> WorkloadError:
        """The error for a field."""
        got = brief(self.values[name]) if name in self.values else "nothing"
        return WorkloadError(f"{self.where}.{name}: expected {expected}, got {got}")


def brief(value: object) -> str:
    """A value for an error message."""
    text = repr(value) if not isinstance(value, (dict, list)) else f"{type(value).__name__} of {len(value)}"
    return text if len(text) <= 60 else text[:57] + "..."


def of_folder(
    path: Path, suffixes: tuple[str, ...], looks: Callable[[Path], object], skipped: Tally
) -> list[tuple[Path, str]]:
    """(file, name) of the file, or of those of a folder that hold the format.

    Others of the folder with these suffixes (compressed or not) are counted in ``skipped``.
    """
    if path.is_file():
        return [(path, shown(path.name))]
    found = []
    for file in files_of(path):
        name = shown(file.relative_to(path).as_posix())
        if not plain_name(name).endswith(suffixes):
            continue
        if looks(file):
            found.append((file, name))
        else:
            skipped.add("empty file" if not head(file, 256).strip() else "file of another format", name)
    return found


class Tally:
    """Counts records by reason, and remembers the first places of each."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.places: dict[str, list[str]] = {}

    def add(self, reason: str, where: str) -> None:
        """One more."""
        self.counts[reason] = self.counts.get(reason, 0) + 1
        places = self.places.setdefault(reason, [])
        if len(places) < 5 and where not in places:
            places.append(where)

    def where(self) -> dict[str, str]:
        """The places, as text."""
        return {reason: ", ".join(places) for reason, places in self.places.items()}

    def text(self) -> str:
        """All of it, for an error message."""
        where = self.where()
        return "; ".join(f"{n} x {reason} ({where[reason]})" for reason, n in self.counts.items())
