"""What the scheduler class logged of one run: read from where the logs ended before it (docs/vllm.md)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.errors import InvalidRun
from bench.fidelity.server_calls import request_name
from systems.provision.engine import LiveEngine

PATIENCE_S = 10.0
"""A call that was answered has its row by then, or the logs and the client disagree."""
POLL_S = 0.02


class Tail:
    """The lines that a file gets from ``mark`` on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._at = 0

    def mark(self) -> None:
        """From here on."""
        self._at = self.path.stat().st_size if self.path.is_file() else 0

    def lines(self) -> list[dict[str, Any]]:
        """The whole lines since the mark, parsed. Raises InvalidRun naming the file for one that is none."""
        if not self.path.is_file():
            return []
        with self.path.open("rb") as file:
            file.seek(self._at)
            data = file.read()
        try:
            return [json.loads(line) for line in data[: data.rfind(b"\n") + 1].splitlines()]
        except ValueError as error:
            raise InvalidRun(f"{self.path}: a line that is no JSON ({error})") from None


@dataclass(frozen=True)
class EngineLog:
    """One engine's part of a run. ``calls``: rows of the call log by PROGRAM.THREAD.INDEX; ``steps``: lines
    of the step log, without calls that are not the run's; ``head``: its first line. Times on the engine's
    clock, which was 0 at ``origin`` of this machine's CLOCK_MONOTONIC."""

    engine: int
    calls: Mapping[str, Mapping[str, Any]]
    steps: Sequence[Mapping[str, Any]]
    head: Mapping[str, Any]

    @property
    def origin(self) -> float:
        """Seconds."""
        return float(self.head["origin_monotonic"])


class Logs:
    """The logs of a deployment's engines; empty if they have none of ours (attached ones)."""

    def __init__(self, engines: Sequence[LiveEngine]) -> None:
        self._tails: list[tuple[Tail, Tail]] = []
        self._heads: list[Mapping[str, Any]] = []
        for engine in engines:
            if engine.calls is not None and engine.steps is not None:
                self._tails.append((Tail(engine.calls), Tail(engine.steps)))
                self._heads.append(head_of(engine.steps))

    @property
    def there(self) -> bool:
        """Whether schedulers of ours say what they did."""
        return bool(self._tails)

    def mark(self) -> None:
        """A run begins."""
        for calls, steps in self._tails:
            calls.mark()
            steps.mark()

    def gather(
        self, run: str, answered: set[str], *, sleep: Callable[[float], None] = time.sleep
    ) -> list[EngineLog]:
        """What each engine logged of ``run``; waits until every call of ``answered`` has its row.

        Raises InvalidRun if one has none.
        """
        deadline = time.monotonic() + PATIENCE_S
        while True:
            found = [_rows(calls.lines(), run) for calls, _ in self._tails]
            lost = answered.difference(*found)
            if not lost:
                break
            if time.monotonic() > deadline:
                raise InvalidRun(
                    f"run {run}: {len(lost)} of {len(answered)} answered calls are in no scheduler's log, "
                    f"{min(lost)} first ({', '.join(str(calls.path) for calls, _ in self._tails)})"
                )
            sleep(POLL_S)
        steps = [own_steps(steps.lines(), run) for _, steps in self._tails]
        return [EngineLog(i, found[i], steps[i], head) for i, head in enumerate(self._heads)]


def own_steps(lines: Sequence[Mapping[str, Any]], run: str) -> list[Mapping[str, Any]]:
    """The steps in which calls of ``run`` were, with those calls only: an engine also answers what is asked
    of it beside the run (``bench.live.warm.nudge``). A step that both shared keeps its time."""
    found: list[Mapping[str, Any]] = []
    for line in lines:
        calls = [call for call in line["calls"] if _is_of(call[0], run)]
        preempted = [name for name in line["preempted"] if _is_of(name, run)]
        if calls or preempted:
            found.append({**line, "calls": calls, "preempted": preempted})
    return found


def unwritten(logs: Sequence[EngineLog]) -> set[str]:
    """PROGRAM.THREAD.INDEX of calls that were in a step and have no row."""
    stepped = {_key(call[0]) for log in logs for step in log.steps for call in step["calls"]}
    return stepped.difference(*(log.calls for log in logs))


def _key(request_id: str) -> str:
    return ".".join(request_name(str(request_id))[1:])


def _is_of(request_id: str, run: str) -> bool:
    return request_name(str(request_id))[0] == run


def head_of(steps: Path) -> Mapping[str, Any]:
    """The first line of a step log. Raises InvalidRun if there is none with a clock."""
    try:
        with steps.open(encoding="utf-8") as file:
            head: Mapping[str, Any] = json.loads(file.readline())
        float(head["origin_monotonic"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise InvalidRun(f"{steps}: no first line with origin_monotonic ({error!r})") from None
    return head


def _rows(lines: Sequence[Mapping[str, Any]], run: str) -> dict[str, Mapping[str, Any]]:
    found = {}
    for row in lines:
        name = request_name(str(row["request_id"]))
        if name[0] == run:
            found[_key(row["request_id"])] = row
    return found
