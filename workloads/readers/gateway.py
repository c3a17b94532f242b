"""Reads what ``bench gateway --record DIR`` wrote: the folder, or one of its files (docs/recording.md).

* A program is one of the gateway's. Calls of clients that gave no id are grouped: one whose prompt quotes
  the whole reply of an earlier one goes on from it.
* A call's tokens are the engine's count; what prompts share is what their hashes say (``recorded_prompts``).
* The time between a reply's end and the next call of its thread is a tool's, if the reply asked for one or
  the prompt ends with a tool's result, else of somebody who thinks. Overlaps are branches (``lanes``).
* Simulated calls take their engine's time only. Where the scheduler's log tells that, what a call took
  beside it (front, HTTP, tokens to text; one number for the recording) is added to the pause before it.
* The arrival is that of the first call. Calls that did not finish are left out, and counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vocabulary import on_grid
from workloads.base import NothingLeft, ProgramSet, ProgramSpec
from workloads.files import Tally, first_line, of_folder, shown
from workloads.lanes import script_of
from workloads.overflow import exceeded, fit
from workloads.recorded import FORMAT, Seen, recording
from workloads.recorded_prompts import Prompts
from workloads.replay import replay_spec

NOBODY = "call without an id, taken to follow the one whose reply it quotes"


class GatewayReader:
    """A recording of our gateway."""

    name = "gateway"

    def sniff(self, path: Path) -> str | None:
        """Why this looks like one."""
        if any(_is_ours(file) for file, _ in of_folder(path, (".jsonl",), _is_ours, Tally())):
            return f'a first line with format "{FORMAT}"'
        return None

    def read(self, path: Path, *, max_model_len: int, on_overflow: str) -> ProgramSet:
        """Replay programs. Raises WorkloadError with file, line and field."""
        skipped, repaired = Tally(), Tally()
        files = of_folder(path, (".jsonl",), _is_ours, skipped)
        recordings = [recording(file, name, skipped, repaired) for file, name in files]
        first = min((one.wall for one in recordings), default=0.0)
        programs: list[ProgramSpec] = []
        for one in recordings:
            prompts = Prompts(one.key, repaired)
            for call in one.calls:
                prompts.place(call)
            for calls in _programs(one.calls, repaired):
                script, where = script_of(calls, prompts.content), calls[0].where
                fitting = fit(script, max_model_len, on_overflow, where, skipped, repaired)
                if fitting is not None:
                    arrival = on_grid(one.wall - first + calls[0].start)
                    programs.append(replay_spec(len(programs), self.name, fitting, arrival))
        if not programs:
            line = f"{shown(path.name)}: no program is left: {skipped.text() or 'there is no call'}"
            raise NothingLeft(line, exceeded(skipped.counts, max_model_len))
        return ProgramSet(
            programs, path.name, "", {}, None, skipped.counts, repaired.counts,
            {**skipped.where(), **repaired.where()}, sum(one.read for one in recordings),
        )  # fmt: skip


def _programs(calls: Sequence[Seen], repaired: Tally) -> list[list[Seen]]:
    """The calls of each program, by arrival; programs by their first call."""
    found: dict[tuple[str, int], list[Seen]] = {}
    groups: dict[int, tuple[str, int]] = {}
    for call in calls:
        key = ("named" if call.named else "nobody", call.program)
        if not call.named and call.follows is not None:
            key = groups[id(call.follows)]
            repaired.add(NOBODY, call.where)
        groups[id(call)] = key
        found.setdefault(key, []).append(call)
    return list(found.values())


def _is_ours(file: Path) -> bool:
    return f'"{FORMAT}"'.encode() in first_line(file)[:200]


READER = GatewayReader()
