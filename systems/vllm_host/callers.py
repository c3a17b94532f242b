"""Who a request of a live server belongs to, from ``sampling_params.extra_args``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from vocabulary import INF, Call, Snapshot

AHEAD = 1000
"""Programs without a call that may be known at a time."""


class Callers:
    """Numbers programs and calls as they come.

    A client sends ``vllm_xargs: {"program_id": .., "thread_id": .., "service": ..,
    "wait": .., "exec_s": ..}``; the last three are the front end's process table
    (scheduler's unit, seconds, seconds). A request without ``program_id`` is a
    program of its own. ``len``: programs with an id that are not over.
    """

    def __init__(self) -> None:
        self._calls = 0
        self._programs: dict[str, int] = {}
        self._next_program = 0
        self._index: dict[int, Counter[str]] = {}
        self._here: Counter[int] = Counter()
        self._over: dict[int, str] = {}
        self._ahead: dict[str, float] = {}  # no call yet: until when it is known (s)

    def __len__(self) -> int:
        return len(self._programs)

    def identify(self, extra: Mapping[str, Any], prompt_tokens: int) -> tuple[Call, Snapshot, bool]:
        """(call, what its program had received, whether it is a one-shot program)."""
        name = extra.get("program_id")
        thread = str(extra.get("thread_id", ""))
        index = 0
        if name is None:
            program = self._new()
        else:
            self._ahead.pop(str(name), None)
            program = self._known(str(name))
            index = self._index[program][thread]
            self._index[program][thread] += 1
            self._here[program] += 1
        call = Call(self._calls, program, thread, index, prompt_tokens)
        self._calls += 1
        return call, _snapshot(extra), name is None

    def expect(self, name: str, until: float) -> int:
        """The number of a program; without a call, it is known until the first or until ``until`` (s).

        Raises ValueError if AHEAD others without a call are known already.
        """
        known = name in self._programs
        if known and name not in self._ahead:
            return self._programs[name]
        if not known and len(self._ahead) >= AHEAD:
            raise ValueError(
                f"unknown program {name!r}, and {AHEAD} without a call are known already: "
                "one of them must make one, end, or be past its deadline first"
            )
        self._ahead[name] = until
        return self._known(name)

    def overdue(self, now: float) -> list[int]:
        """Forget programs that should have made their first call by ``now`` (s): the numbers they had."""
        names = [name for name, until in self._ahead.items() if until <= now]
        numbers = [self._programs[name] for name in names]
        for name in names:
            self._forget(name)
        return numbers

    def _known(self, name: str) -> int:
        if name not in self._programs:
            program = self._programs[name] = self._new()
            self._index[program] = Counter()
        return self._programs[name]

    def number(self, name: str) -> int | None:
        """The number of a known program."""
        return self._programs.get(name)

    def left(self, program: int) -> bool:
        """One of its calls is over; True if its program is, too, which is then forgotten."""
        if program not in self._here:
            return False
        self._here[program] -= 1
        if self._here[program]:
            return False
        del self._here[program]
        if program not in self._over:
            return False
        self._forget(self._over.pop(program))
        return True

    def end(self, name: str) -> bool:
        """The program is over: True if it is forgotten now, False if a call of it is still here."""
        program = self._programs[name]
        if self._here[program]:
            self._over[program] = name
            return False
        self._forget(name)
        return True

    def _forget(self, name: str) -> None:
        program = self._programs.pop(name)
        del self._index[program]
        self._here.pop(program, None)
        self._ahead.pop(name, None)

    def _new(self) -> int:
        self._next_program += 1
        return self._next_program - 1


def _snapshot(extra: Mapping[str, Any]) -> Snapshot:
    """Zeros if a number is none: a client's mistake must not stop the server."""
    numbers = [seconds_of(extra, name) for name in Snapshot._fields]
    return Snapshot() if None in numbers else Snapshot(*(number or 0.0 for number in numbers))


def seconds_of(extra: Mapping[str, Any], name: str) -> float | None:
    """A number of 0 or more that a client sent, 0 if it sent none; None if it is no such number."""
    try:
        number = float(extra.get(name, 0.0))
    except (TypeError, ValueError):
        return None
    return number if 0.0 <= number < INF else None
