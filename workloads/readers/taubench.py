"""Reads tau-bench results: a JSON array of episodes (``task_id``, ``traj``, ``reward``, ``trial``).

An episode is a program: a call for every message of the assistant, its prompt everything before.
Tools and the simulated customer are not timed in these files, so nothing passes between the
calls, and the definitions of the tools are not in them, so prompts are shorter than they were.
The policy (the system prompt) is shared by all episodes that have it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workloads.base import ProgramSet, WorkloadError
from workloads.collect import Collector, heads
from workloads.files import brief
from workloads.keys import key_of
from workloads.transcript import MODEL, Message, Prompts, Thread, role_of, text_of

_WANTED = "an episode of tau-bench has traj, a list of messages, and task_id"
BLANK = "blank message left out"
STARTS_WITH_REPLY = "starts with the model's reply, taken as context of the first prompt"
NO_TIMES = "no times of tools and customer in the file, 0 taken"
UNANSWERED = "last messages without a reply left out"


class TauBenchReader:
    """A file of episodes, or a folder of such files."""

    name = "taubench"
    parameters = ("tokenizer",)

    def sniff(self, path: Path) -> str | None:
        """Why this looks like tau-bench."""
        for text in heads(path, (".json", ".jsonl")):
            if b'"task_id"' in text and b'"traj"' in text and b'"role"' in text:
                return "episodes with task_id and traj"
        return None

    def read(
        self, path: Path, *, max_model_len: int, on_overflow: str, parameters: Mapping[str, str] = {}
    ) -> ProgramSet:
        """Replay programs. Raises WorkloadError with file, record and field, NothingLeft if none is left."""
        found = Collector(path, self.name, max_model_len, on_overflow, parameters)
        strangers = 0
        for place, record in found.records((".json", ".jsonl"), f"no episode in it: {_WANTED}"):
            if not isinstance(record, dict) or not isinstance(record.get("traj"), list):
                strangers += 1
                found.skip(f"not an episode ({_WANTED})", place)
                continue
            _episode(found, place, record["traj"])
        if strangers and strangers == found.read:
            raise WorkloadError(f"{path.name}: no record of it is an episode: {_WANTED}")
        return found.result("episode")


def _episode(found: Collector, place: str, rows: list[Any]) -> None:
    prompts = Prompts(key_of("taubench", place), found.counter)
    thread = Thread(prompts, lambda reason: found.repair(reason, place))
    new: list[Message] = []
    for index, row in enumerate(rows):
        role = role_of(row.get("role")) if isinstance(row, dict) else None
        if role is None:
            where = f"{place}.traj[{index}]"
            raise WorkloadError(f"{where}: expected a message with a known role, got {brief(row)}")
        message = Message(role, text_of(row))
        if role == MODEL and (new or thread.calls):
            thread.call(new, message, goes_on=thread.calls > 0)
            new = []
        elif message.text:
            new.append(message)
            if role == MODEL:
                found.repair(STARTS_WITH_REPLY, place)
        else:
            found.repair(BLANK, place)
    if not thread.calls:
        found.skip("no reply of the model to anything" if rows else "no messages", place)
        return
    if new:
        found.repair(UNANSWERED, place)
    found.repair(NO_TIMES, place)
    found.add(thread.script, place, estimated=prompts.estimated)


READER = TauBenchReader()
