"""The user's own code: what it raises is a failure of that code, named in one line, whatever it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.config import AGENTS
from bench.errors import BenchError, InvalidRun, UsageError
from workloads.base import WorkloadError
from workloads.load import workload_names
from workloads.session import Effect


def in_a_line(error: BaseException) -> str:
    """The error's type, and the first line of what it says."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def is_foreign(workload: str) -> bool:
    """Whether a workload is code of the user (``pkg.mod:fn``), neither one of ours nor a file."""
    kind = workload.partition(":")[0]
    return ":" in workload and kind not in (AGENTS, *workload_names()) and not Path(workload).exists()


@contextmanager
def programs_of(workload: str) -> Iterator[None]:
    """Around code that runs programs without a clock. Raises InvalidRun for what a program raised.

    SystemExit is no way out of a program. Only ``pkg.mod:fn`` is the user's code.
    """
    try:
        yield
    except (BenchError, WorkloadError, KeyboardInterrupt, MemoryError):
        raise
    except BaseException as error:
        if not is_foreign(workload):
            raise
        raise InvalidRun(f"{workload}: {_what(error)}") from error


def _what(error: BaseException) -> str:
    if isinstance(error, AttributeError) and isinstance(error.obj, Effect):
        return (
            f"join, spawn and timeout take coroutines (an async def, called with a fork of the session), "
            f"got {type(error.obj).__name__}: await it, or await it in an async def of its own"
        )
    return f"a program raised {in_a_line(error)}"


@contextmanager
def policies_of(*names: str | None) -> Iterator[None]:
    """Around code that makes policies. Raises UsageError for what one of ``pkg.mod:Class`` raised."""
    try:
        yield
    except (
        BenchError,
        KeyboardInterrupt,
        MemoryError,
        ValueError,
    ):  # ValueError: the catalog names it
        raise
    except BaseException as error:
        guests = [name for name in names if name and ":" in name]
        if not guests:
            raise
        raise UsageError(f"{', '.join(guests)} cannot be made: {in_a_line(error)}") from error
