"""Files that are either whole or not there, and a folder that is known to take them."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import math
import os
import platform
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.errors import MissingError


class DiskFull(MissingError):
    """No room for a result: other results will not fit either."""


class Taken(MissingError):
    """Another process is writing this folder."""


WRITER = "writer.pid"
"""Process and machine of who writes a folder, while it does."""
PROBE = 1 << 20
"""Bytes written and removed again to learn that the folder takes data."""


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write ``path`` so that a crash leaves the old file or the new one; raises OSError, and then no part."""
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise


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


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What the system calls a full disk."""


def unwritten(error: OSError, file: Path) -> MissingError:
    """Why ``file``, named with -o, could not be written, as one line with what would help."""
    help_ = "free some space or give another file" if error.errno in FULL else "give another file"
    return MissingError(f"cannot write {file}: {error.strerror or error}; {help_} with -o")


def explain(error: OSError, folder: Path) -> MissingError:
    """An I/O error as one line with what would help."""
    if error.errno in FULL:
        return DiskFull(
            f"no space left for results in {folder} ({error.strerror}): free some space or "
            "give another folder with --out; finished results are kept"
        )
    reason = error.strerror or str(error)
    return MissingError(f"cannot write results to {folder}: {reason}; give another folder with --out")


def beneath(error: OSError, folder: Path) -> bool:
    """Whether an I/O error is about something in ``folder``, or about it itself."""
    path = Path(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else None
    return path is not None and (path == folder or folder in path.parents)


def ready(folder: Path, need: int) -> None:
    """Create ``folder`` and prove that it takes data. ``need``: bytes we expect to write.

    Raises MissingError when it is not writable, DiskFull when it is too full.
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
        raise DiskFull(
            f"{folder} has {free / 1e6:.0f} MB free and this run needs about {need / 1e6:.0f} MB: "
            "free some space, lower --n, or give another folder with --out"
        )


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder for one writer. Raises Taken naming the process that holds it.

    The folder itself is locked by the kernel, which lets go when the process ends, however
    it ends; ``writer.pid`` tells others who it is. Where the file system has no locks, that
    file alone decides, as well as it can: one whose process is gone (kill -9) is taken over.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            _sign(folder, alone=_lock(handle, folder))
        except OSError as error:
            raise explain(error, folder) from None
        try:
            yield
        finally:
            (folder / WRITER).unlink(missing_ok=True)
    finally:
        os.close(handle)


def _lock(handle: int, folder: Path) -> bool:
    """Whether the kernel now holds the folder for us; False where it cannot. Raises MissingError."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise _taken(folder) from None
    except OSError:
        return False
    return True


def _sign(folder: Path, alone: bool) -> None:
    """Create ``writer.pid``. ``alone``: we hold the lock, so one that is there is left over."""
    path = folder / WRITER
    for _ in range(2):
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(f"{os.getpid()} {platform.node()}")
            return
        except FileExistsError:
            if not alone and _alive(path):
                raise _taken(folder) from None
            path.unlink(missing_ok=True)
    raise _taken(folder)


def _alive(path: Path) -> bool:
    """Whether the process that signed may still run; one of another machine may."""
    pid, _, node = _signature(path).partition(" ")
    if node != platform.node() or not pid.isdigit():
        return bool(node)
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _signature(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


def _taken(folder: Path) -> Taken:
    pid, _, node = _signature(folder / WRITER).partition(" ")
    where = f" on {node}" if node and node != platform.node() else ""
    who = f" (pid {pid}{where})" if pid else ""
    return Taken(
        f"another bench run{who} is writing this cell, {folder}: wait for it to finish, or stop it; "
        "the same command then goes on from here"
    )
