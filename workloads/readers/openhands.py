"""Reads OpenHands results (``output.jsonl``): one line is one run, its ``history`` a list of events.

A run is a program. What the agent does is a call: actions that came from one reply of the model
(equal ``tool_call_metadata.model_response.id``) are one call, actions that need no model (setup,
state changes) none. Observations and messages of the user are the next call's new prompt. The time
from an action to its observation is the tool's, that before a message of the user a person's.

Lengths: ``usage`` of the model's response, or the run's ``token_usages``; where events carry only
``accumulated_token_usage``, the difference to the event before; else counted from the text.
Records without a ``system`` event do not hold the system prompt: then prompts lack it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workloads.base import ProgramSet, WorkloadError
from workloads.collect import Collector, heads
from workloads.files import Fields, brief
from workloads.keys import key_of
from workloads.transcript import (
    MODEL,
    SYSTEM,
    TOOL,
    USER,
    Message,
    Prompts,
    Thread,
    compact,
    nanoseconds,
    text_of,
)

NO_TIMES = "no times in the record, 0 taken for tools and people"
NO_SYSTEM = "no system prompt in the record, prompts are without it"
CONDENSED = "condensation of the history not reproduced"
UNANSWERED = "last messages without a reply left out"
TOO_EARLY = "action before anything was asked left out"
BACKWARDS = "accumulated usage that does not grow, not used"
_WANTED = "a run is an object with history[] of actions and observations"
_NO_MODEL = {
    "initialize", "change_agent_state", "change_task_state", "null", "start", "pause", "resume", "stop",
    "recall", "start_hook",
}  # fmt: skip
_SAID = (
    "thought", "final_thought", "content", "command", "code", "path", "file_text", "old_str", "new_str",
    "url", "browser_actions", "inputs", "outputs", "task",
)  # fmt: skip


class OpenHandsReader:
    """A file of runs, or a folder of such files."""

    name = "openhands"
    parameters = ("tokenizer",)

    def sniff(self, path: Path) -> str | None:
        """Why this looks like OpenHands."""
        for text in heads(path, (".jsonl", ".json")):
            words = (b'"history"', b'"observation"', b'"action"')
            if b'"trajectory"' not in text and all(word in text for word in words):
                return "runs with history[] of actions and observations"
        return None

    def read(
        self, path: Path, *, max_model_len: int, on_overflow: str, parameters: Mapping[str, str] = {}
    ) -> ProgramSet:
        """Replay programs. Raises WorkloadError with file, line and field, NothingLeft if no run is left."""
        found = Collector(path, self.name, max_model_len, on_overflow, parameters)
        strangers = 0
        for place, record in found.records((".jsonl", ".json"), f"no run in it: {_WANTED}"):
            if not isinstance(record, dict) or not isinstance(record.get("history"), list):
                strangers += 1
                found.skip(f"not a run ({_WANTED})", place)
                continue
            _Run(found, place, Fields(record, place)).write()
        if strangers and strangers == found.read:
            raise WorkloadError(f"{path.name}: no record of it is a run: {_WANTED}")
        return found.result("run")


@dataclass(slots=True)
class _Run:
    """Writes down one run."""

    found: Collector
    place: str
    row: Fields
    fixes: list[str] = field(default_factory=list)
    new: list[Message] = field(default_factory=list)
    clock: int | None = None
    """Time of the last event, in nanoseconds."""
    responses: set[str] = field(default_factory=set)
    accumulated: tuple[int, int] = (0, 0)
    spoke: bool = False
    """Whether the event before was a message of the agent."""

    def write(self) -> None:
        thread = Thread(Prompts(key_of("openhands", self.place), self.found.counter), self.fixes.append)
        usages = _usages(self.row)
        times: list[int] = []
        asked = False
        for event in self.events():
            time = nanoseconds(event.values.get("timestamp"))
            times += [time] if time is not None else []
            if event.has("observation"):
                self.observed(thread, event, time)
            elif self.from_user(event, asked):
                self.told(thread, event, time)
                asked = True
            elif event.text("action") not in _NO_MODEL:
                self.acted(thread, event, usages)
            self.clock = time if time is not None else self.clock
        self.close(thread, times)

    def events(self) -> Iterator[Fields]:
        """The events in order; old files hold pairs of an action and its observation."""
        for i, value in enumerate(self.row.items("history")):
            for event in value if isinstance(value, list) and value else [value]:
                fields = Fields(event, f"{self.place}.history[{i}]")
                if not (fields.has("action") or fields.has("observation")):
                    raise fields.wrong("action", "an action or an observation")
                yield fields

    def from_user(self, event: Fields, asked: bool) -> bool:
        """Is it something the model is told? Old files do not name the source of a message."""
        action = event.text("action")
        if action == "system":
            return True
        if action != "message":
            return False
        source = event.text("source")
        return source == "user" if source else not asked or self.spoke

    def told(self, thread: Thread, event: Fields, time: int | None) -> None:
        """A message of the user, or the system prompt and the tools."""
        arguments = _arguments(event)
        self.spoke = False
        if event.text("action") == "system":
            tools = arguments.get("tools")
            self.new += [Message(SYSTEM, compact(tools))] if tools else []
            self.new.append(Message(SYSTEM, text_of(arguments)))
            return
        self.new.append(Message(USER, text_of(arguments) or event.text("message").strip()))
        if thread.calls:
            thread.think(self.passed(time))

    def observed(self, thread: Thread, event: Fields, time: int | None) -> None:
        """What a tool gave back."""
        name = event.text("observation")
        text = text_of(event.values)
        if name == "condense":
            self.fixes.append(CONDENSED)
        if text:
            self.new.append(Message(TOOL, text))
        if thread.calls and name not in ("agent_state_changed", "null", "recall"):
            thread.tool(name[:40], self.passed(time))

    def acted(self, thread: Thread, event: Fields, usages: dict[str, tuple[int, int]]) -> None:
        """A reply of the model, unless it is one more action of the reply before."""
        if not (self.new or thread.calls):
            self.fixes.append(TOO_EARLY)
            return
        arguments = _arguments(event)
        self.spoke = event.text("action") == "message"
        if event.text("action") == "condensation":
            self.fixes.append(CONDENSED)
            return
        response = _object(_object(event.values.get("tool_call_metadata")).get("model_response"))
        name = response.get("id")
        if isinstance(name, str) and name:
            if name in self.responses:
                return
            self.responses.add(name)
        choices = response.get("choices")
        said = _object(_object(choices[0]).get("message")) if isinstance(choices, list) and choices else {}
        text = text_of(said) or _action(event.text("action"), arguments)
        prompt, output = self.usage(event, response, usages)
        thread.call(self.new, Message(MODEL, text, output), total=prompt, goes_on=thread.calls > 0)
        self.new = []

    def usage(
        self, event: Fields, response: dict[str, Any], usages: dict[str, tuple[int, int]]
    ) -> tuple[int | None, int | None]:
        """(prompt, reply) in tokens as the file gives them, None where it does not."""
        given = usages.get(str(response.get("id")))
        if isinstance(response.get("usage"), dict):
            given = _pair(Fields(response["usage"], f"{event.where}.usage"))
        if given is not None:
            return given[0] or None, given[1] or None
        metrics = _object(event.values.get("llm_metrics"))
        total = metrics.get("accumulated_token_usage")
        if not isinstance(total, dict):
            return None, None
        now, before = _pair(Fields(total, f"{event.where}.accumulated_token_usage")), self.accumulated
        if now[0] <= before[0] or now[1] < before[1]:
            self.fixes.append(BACKWARDS)
            return None, None
        self.accumulated = now
        return now[0] - before[0], now[1] - before[1] or None

    def passed(self, time: int | None) -> float:
        """Seconds since the event before."""
        return 0.0 if time is None or self.clock is None else max(0, time - self.clock) / 1e9

    def close(self, thread: Thread, times: list[int]) -> None:
        if not thread.calls:
            self.found.skip("no action of the agent", self.place)
            return
        self.fixes += [NO_TIMES] * (not times) + [UNANSWERED] * bool(self.new)
        if not any(event.text("action") == "system" for event in self.events()):
            self.fixes.append(NO_SYSTEM)
        for fix in dict.fromkeys(self.fixes):
            self.found.repair(fix, self.place)
        start = min(times, default=None)
        self.found.add(thread.script, self.place, start, estimated=thread.prompts.estimated)


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _arguments(event: Fields) -> dict[str, Any]:
    """What an action says: under ``args``, in old files beside it."""
    return event.values["args"] if isinstance(event.values.get("args"), dict) else event.values


def _action(name: str, arguments: dict[str, Any]) -> str:
    parts = [arguments[key] for key in _SAID if arguments.get(key)]
    text = "\n".join(part if isinstance(part, str) else compact(part) for part in parts)
    return text.strip() or name


def _pair(usage: Fields) -> tuple[int, int]:
    return usage.integer("prompt_tokens", default=0), usage.integer("completion_tokens", default=0)


def _usages(row: Fields) -> dict[str, tuple[int, int]]:
    """Usage by response, from the run's metrics."""
    found = {}
    rows = _object(row.values.get("metrics")).get("token_usages")
    for i, value in enumerate(rows if isinstance(rows, list) else []):
        usage = Fields(value, f"{row.where}.metrics.token_usages[{i}]")
        name = usage.values.get("response_id")
        if not isinstance(name, str):
            raise WorkloadError(f"{usage.where}.response_id: expected a string, got {brief(name)}")
        found[name] = _pair(usage)
    return found


READER = OpenHandsReader()
