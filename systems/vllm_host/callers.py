"""Who a request of a live server belongs to, from ``sampling_params.extra_args``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from vocabulary import INF, Call, Snapshot


class Callers:
    """Numbers programs and calls as they come.

    A client sends ``vllm_xargs: {"program_id": .., "thread_id": .., "service": ..,
    "wait": .., "exec_s": ..}``; the last three are the front end's process table
    (scheduler's unit, seconds, seconds). A request without ``program_id`` is a
    program of its own.
    """

    def __init__(self) -> None:
        self._calls = 0
        self._programs: dict[str, int] = {}
        self._next_program = 0
        self._index: Counter[tuple[int, str]] = Counter()

    def identify(self, extra: Mapping[str, Any], prompt_tokens: int) -> tuple[Call, Snapshot, bool]:
        """(call, what its program had received, whether it is a one-shot program)."""
        name = extra.get("program_id")
        program = self._program(None if name is None else str(name))
        thread = str(extra.get("thread_id", ""))
        index = 0
        if name is not None:
            index = self._index[program, thread]
            self._index[program, thread] += 1
        call = Call(self._calls, program, thread, index, prompt_tokens)
        self._calls += 1
        return call, _snapshot(extra), name is None

    def _program(self, name: str | None) -> int:
        if name is not None and name in self._programs:
            return self._programs[name]
        program = self._next_program
        self._next_program += 1
        if name is not None:
            self._programs[name] = program
        return program


def _snapshot(extra: Mapping[str, Any]) -> Snapshot:
    """Zeros if a number is none: a client's mistake must not stop the server."""
    try:
        numbers = [float(extra.get(name, 0.0)) for name in Snapshot._fields]
    except (TypeError, ValueError):
        return Snapshot()
    return Snapshot(*numbers) if all(0.0 <= number < INF for number in numbers) else Snapshot()
