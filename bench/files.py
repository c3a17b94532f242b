"""Files that are either whole or not there, and a folder that is known to take them."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import math
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.errors import MissingError

PROBE = 1 << 20
"""Bytes written and removed again to learn that the folder takes data."""


def write_atomic(path: Path, text: str) -> None:
    """Write ``path`` so that a crash leaves the old file or the new one, never a part."""
    part = path.with_name(path.name + ".part")
    with part.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def write_json(path: Path, data: Any) -> None:
    """Atomically write strict JSON (infinite and undefined numbers become null)."""
    write_atomic(path, json.dumps(plain(data), indent=1, allow_nan=False) + "\n")


def plain(data: Any) -> Any:
    """``data`` with only JSON's types: no NaN or infinity, no numpy scalars, str keys."""
    if isinstance(data, dict):
        return {str(k): plain(v) for k, v in data.items()}
    if isinstance(data, list | tuple | set | frozenset):
        return [plain(v) for v in data]
    if isinstance(data, bool | str | int) or data is None:
        return data
    if hasattr(data, "item"):
        return plain(data.item())
    if isinstance(data, float):
        return data if math.isfinite(data) else None
    return str(data)


def explain(error: OSError, folder: Path) -> MissingError:
    """An I/O error as one line with what would help."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return MissingError(
            f"no space left for results in {folder} ({error.strerror}): free some space or "
            "give another folder with --out; finished results are kept"
        )
    reason = error.strerror or str(error)
    return MissingError(f"cannot write results to {folder}: {reason}; give another folder with --out")


def ready(folder: Path, need: int) -> None:
    """Create ``folder`` and prove that it takes data. ``need``: bytes we expect to write.

    Raises MissingError when it is not writable or too full.
    """
    probe = folder / f"probe-{os.getpid()}.part"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with probe.open("wb") as file:
                file.write(b"\0" * PROBE)
                file.flush()
                os.fsync(file.fileno())
        finally:
            probe.unlink(missing_ok=True)
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise explain(error, folder) from None
    if free < need:
        raise MissingError(
            f"{folder} has {free / 1e6:.0f} MB free and this run needs about {need / 1e6:.0f} MB: "
            "free some space, lower --n, or give another folder with --out"
        )


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder for one writer; the lock goes with the process, however it ends.

    Raises MissingError if another process writes there.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise MissingError(f"another bench process is writing {folder}; wait for it to finish") from None
        except OSError:  # a file system without locks: the run itself is still safe
            pass
        yield
    finally:
        os.close(handle)
