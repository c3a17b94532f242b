"""Trace files as streams: decompressed as they are read, line by line, with progress.

Nothing here holds more of a file than a piece of a megabyte or one line.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, BinaryIO, cast

import orjson
import zstandard

from workloads.base import WorkloadError

Progress = Callable[[int, int], None]
"""Called with the bytes read so far and the bytes there are (as on disk)."""

LONGEST_LINE = 1 << 26
_PIECE = 1 << 20
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_watch: ContextVar[_Watch | None] = ContextVar("_watch", default=None)


class _Watch:
    def __init__(self, report: Progress, total: int) -> None:
        self.report = report
        self.total = total
        self.done = 0

    def add(self, size: int) -> None:
        self.done = min(self.done + size, self.total)
        self.report(self.done, self.total)


@contextmanager
def watched(report: Progress | None, total: int) -> Iterator[None]:
    """Report what is read from trace files inside the block; ``total`` bytes are expected."""
    if report is None:
        yield
        return
    token = _watch.set(_Watch(report, total))
    try:
        yield
        report(total, total)
    finally:
        _watch.reset(token)


class _Counted(io.RawIOBase):
    """A file whose bytes are reported as they are read."""

    def __init__(self, file: io.RawIOBase, watch: _Watch) -> None:
        self.file = file
        self.watch = watch

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        size = cast("int | None", self.file.readinto(buffer))
        self.watch.add(size or 0)
        return size

    def close(self) -> None:
        self.file.close()
        super().close()


class _Unzstd(io.RawIOBase):
    """The content of a .zst file, frame after frame; one that is cut off is an error."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.decoder = zstandard.ZstdDecompressor()
        self.frame: Any = self.decoder.decompressobj()
        self.fresh = True
        self.left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self.left:
            piece = self.frame.unused_data if self.frame.eof else b""
            if self.frame.eof:
                self.frame, self.fresh = self.decoder.decompressobj(), True
            piece = piece or self.file.read(_PIECE // 64)
            if not piece:
                if not self.fresh:
                    raise EOFError("the file ends inside a frame")
                return 0
            self.fresh = False
            self.left = memoryview(self.frame.decompress(piece))
        size = min(len(buffer), len(self.left))
        buffer[:size] = self.left[:size]
        self.left = self.left[size:]
        return size


def unreadable(error: OSError, path: Path) -> WorkloadError:
    """The error for a file or folder that the system does not let us read."""
    if isinstance(error, PermissionError):
        return WorkloadError(f"permission denied: {shown(path)}")
    return WorkloadError(f"{shown(path)}: {error.strerror or error}")


def shown(path: Path | str) -> str:
    """A path as text that can be printed and hashed: bytes that are no UTF-8 as \\xNN."""
    return str(path).encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


@contextmanager
def opened(path: Path, *, count: bool = True) -> Iterator[BinaryIO]:
    """The content of a file, decompressed if it is gzip or Zstandard.

    ``count``: what is read is progress. Raises WorkloadError for broken data and what cannot be read.
    """
    try:
        with path.open("rb", buffering=0) as raw:
            watch = _watch.get() if count else None
            source = cast("io.RawIOBase", raw)
            source = source if watch is None else _Counted(source, watch)
            buffered = io.BufferedReader(source, _PIECE)
            magic = buffered.peek(4)[:4]
            if magic[:2] == _GZIP:
                unpacked = cast("io.RawIOBase", gzip.GzipFile(fileobj=buffered))
                yield io.BufferedReader(unpacked, _PIECE)
            elif magic == _ZSTD:
                yield io.BufferedReader(_Unzstd(buffered), _PIECE)
            else:
                yield buffered
    except (EOFError, zlib.error, gzip.BadGzipFile, zstandard.ZstdError) as error:
        kind = "Zstandard" if isinstance(error, zstandard.ZstdError) or "frame" in str(error) else "gzip"
        raise WorkloadError(f"{path.name}: broken {kind} data ({error})") from error
    except OSError as error:
        raise unreadable(error, path) from error


def pieces(path: Path, *, count: bool = True) -> Iterator[bytes]:
    """The content in pieces of a megabyte."""
    with opened(path, count=count) as file:
        while piece := file.read(_PIECE):
            yield piece


def lines(path: Path, name: str, *, count: bool = True) -> Iterator[tuple[int, bytes]]:
    """(number, line) of the lines that are not blank. Raises WorkloadError for one of over 64 MB."""
    with opened(path, count=count) as file:
        number, read = 0, file.readline
        while line := read(LONGEST_LINE):
            number += 1
            if len(line) == LONGEST_LINE:
                raise WorkloadError(f"{name}:{number}: a line of more than {LONGEST_LINE >> 20} MB")
            if number == 1 and line[:3] == b"\xef\xbb\xbf":
                line = line[3:]
            if not line.isspace() and line:
                yield number, line


def parse_line(line: bytes, name: str, number: int) -> Any:
    """The JSON value of a line. Raises WorkloadError with file, line and column."""
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError as error:
        if "utf-8" in str(error).lower():
            raise WorkloadError(f"{name}:{number}: not UTF-8 text") from None
        raise WorkloadError(f"{name}:{number}:{error.colno}: broken JSON ({error.msg})") from None
