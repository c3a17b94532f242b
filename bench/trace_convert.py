"""``bench trace convert``: programs into a file of another format, whole or not at all."""

from __future__ import annotations

import contextlib
import gzip
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.errors import UsageError
from bench.files import unwritten
from workloads.base import ProgramSet, WorkloadError
from workloads.files import Tally
from workloads.writing import Dags, writer


def convert(
    programs: Callable[[], ProgramSet], to: str, output: Path, *, force: bool = False
) -> dict[str, Any]:
    """Write ``output`` in the format ``to``; {"file", "format", "programs", "written", "lost", "where"}.

    ``programs`` is called once format and file are known to be good. ``written``: lines, or records,
    of the file; ``lost``: what the format could not say, counted by kind. Raises UsageError, or
    MissingError if the file cannot be written.
    """
    try:
        form = writer(to)
    except WorkloadError as error:
        raise UsageError(str(error)) from None
    check_free(output, force)
    made, lost = programs(), Tally()
    dags, written = Dags(made.programs), 0
    with whole_file(output) as part, _text(part, output) as file:
        try:
            for line in form.lines(dags, made.name, lost):
                file.write(line + "\n")
                written += 1
        except WorkloadError as error:
            raise UsageError(str(error)) from None
    return {
        "file": str(output),
        "format": form.name,
        "source": made.name,
        "programs": len(dags),
        "lines": written,
        "lost": dict(lost.counts),
        "where": lost.where(),
        "skipped": dict(made.skipped),
        "repaired": dict(made.repaired),
    }


def check_free(output: Path, force: bool) -> None:
    """Raises UsageError if the file is there and not to be replaced."""
    try:
        there = output.exists()
    except OSError as error:
        raise unwritten(error, output) from None
    if there and not force:
        raise UsageError(f"{output} exists; --force replaces it")


@contextlib.contextmanager
def whole_file(output: Path) -> Iterator[Path]:
    """A path to write to, which becomes ``output`` at the end, or goes. Raises MissingError."""
    part = output.with_name(f".part-{output.name}")
    try:
        yield part
        part.replace(output)
    except OSError as error:
        raise unwritten(error, output) from None
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


@contextlib.contextmanager
def _text(part: Path, output: Path) -> Iterator[Any]:
    if output.suffix == ".gz":
        with part.open("wb") as raw, gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed:
            yield _Packed(packed)
        return
    with part.open("w", encoding="utf-8", newline="") as file:
        yield file


class _Packed:
    def __init__(self, file: gzip.GzipFile) -> None:
        self.file = file

    def write(self, text: str) -> None:
        self.file.write(text.encode())
