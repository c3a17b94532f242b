"""Errors for people, and the exit code each of them becomes."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from enum import IntEnum


class Exit(IntEnum):
    """The exit codes of every verb."""

    OK = 0
    INTERNAL = 1
    USAGE = 2
    REGRESSION = 3
    INVALID_RUN = 4
    INCONCLUSIVE = 5
    MISSING = 6
    INTERRUPTED = 130


class BenchError(Exception):
    """Something the user can act on; the message is one or a few plain lines."""

    exit_code: Exit = Exit.INTERNAL


class UsageError(BenchError):
    """The command asks for something that does not exist (a name, a file, a folder), contradicts itself or
    cannot be used: a policy from outside the project that raises, say (``systems.checked``)."""

    exit_code = Exit.USAGE


class InvalidRun(BenchError):
    """The run happened or would happen, but its numbers would mean nothing."""

    exit_code = Exit.INVALID_RUN


class MissingError(BenchError):
    """The environment or a capability is missing: an engine, room on the disk, a finished result."""

    exit_code = Exit.MISSING


class RuleBroken(BenchError):
    """A sum rule does not hold: a bug of ours, never of the input."""

    exit_code = Exit.INTERNAL


def unknown(what: str, name: str, known: Iterable[str]) -> UsageError:
    """``name`` is no known ``what``: suggest the nearest names, or list them all."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(names) or 'none'}"
    return UsageError(f"unknown {what} {name!r}: {hint}")
