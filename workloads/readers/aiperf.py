"""Reads AIPerf's own inputs: ``single_turn``, ``multi_turn`` and ``dag_jsonl`` (JSON lines).

* ``single_turn``: ``{"text" | "texts", "timestamp" | "delay", "output_length", "session_id"}``. A
  line is a program; lines of one session follow each other in one, each with its own prompt only.
* ``multi_turn``: ``{"session_id", "turns": [...]}``: a turn's prompt is all before it, and its text.
* ``dag_jsonl``: turns hold ``messages``, ``max_tokens``, ``delay`` and start other sessions. ``forks``
  go on from the turn's context when the conversation ends there, or beside it (``background``). ``spawns``
  start from nothing; the conversation waits for them before its next turn, or before turn
  ``join_at``, and runs the turns between beside them; spawned by the last turn, or before the first
  (``pre_session_spawns``), nobody waits. A session nothing starts is a program.

``delay`` and ``timestamp`` are milliseconds: before the turn, and since the start (the arrival).
These are inputs, not recordings: a reply is as long as ``output_length`` or ``max_tokens`` says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workloads.base import ProgramSet, WorkloadError
from workloads.collect import Collector, heads
from workloads.files import Fields, brief, parse_json
from workloads.keys import key_of
from workloads.script import JoinOp, Script, SpawnOp
from workloads.session import CallId
from workloads.transcript import (
    MODEL,
    SYSTEM,
    Message,
    Prompts,
    Thread,
)
from workloads.turns import (
    MEDIA_FIELDS,
    forks_of,
    has_no_schedule,
    length_of,
    messages_of,
    milliseconds,
    spawns_of,
)

TIMESTAMPS = "timestamp of a later turn: the time since the turn before taken as a wait after its reply"
EMPTY = "turn without text left out"
CROSSING = "join_at behind another join of the conversation, waited for at the earlier"
_SINGLE = {
    "type", "text", "texts", "timestamp", "delay", "role", "session_id", "output_length", "extra",
    "image_uuids", *MEDIA_FIELDS,
}  # fmt: skip
_SCHEDULED = {"timestamp", "delay", "output_length"}
_WANTED = "a line of AIPerf holds text, texts, or turns[]"
_MODES = {"deltas_without_responses": True, "message_array_with_responses": False}
_DEEPEST, _MOST_CALLS = 50, 1 << 14


class AiperfReader:
    """A file of AIPerf inputs, or a folder of such files."""

    name = "aiperf"
    parameters = ("tokenizer",)

    def sniff(self, path: Path) -> str | None:
        """Why this looks like an AIPerf input."""
        for start in heads(path, (".jsonl",)):
            first = start.lstrip().partition(b"\n")[0]
            try:
                row = parse_json(first, "") if first[:1] == b"{" else None
            except WorkloadError:
                row = None
            if isinstance(row, dict) and isinstance(row.get("turns"), list) and "session_id" in row:
                return "lines with session_id and turns[]"
            if isinstance(row, dict) and _is_single(row):
                return "lines with text, one request each"
        return None

    def read(
        self, path: Path, *, max_model_len: int, on_overflow: str, parameters: Mapping[str, str] = {}
    ) -> ProgramSet:
        """Replay programs. Raises WorkloadError with file, line and field, NothingLeft if none is left."""
        found = Collector(path, self.name, max_model_len, on_overflow, parameters)
        sessions: dict[str, _Session] = {}
        for place, record in found.records((".jsonl", ".json"), f"no record in it: {_WANTED}"):
            row = Fields(record, place)
            if not any(row.has(name) for name in ("turns", "text", "texts", *MEDIA_FIELDS)):
                if row.has("orchestrator"):
                    found.skip("orchestrator conversation, which makes no calls of its own", place)
                    continue
                raise WorkloadError(f"{place}: {_WANTED}, got {brief(sorted(row.values))}")
            _file(sessions, row)
        _Conversations(found, sessions).write()
        return found.result("conversation")


def _is_single(row: dict[str, Any]) -> bool:
    """A text with nothing else, or with a time or a length: any other field makes it any data set."""
    named = "text" in row or "texts" in row
    return named and (set(row) <= _SINGLE or not _SCHEDULED.isdisjoint(row))


@dataclass(slots=True)
class _Session:
    """A conversation: its turns, and whether each has the ones before in its prompt."""

    place: str
    turns: list[Fields]
    grows: bool
    before: list[Any] = field(default_factory=list)
    parents: list[str] = field(default_factory=list)


def _file(sessions: dict[str, _Session], row: Fields) -> None:
    """Put a line where it belongs. Raises WorkloadError for a session that is there already."""
    given = row.values.get("session_id")
    name = given if isinstance(given, str) else f"line {row.where}" if given is None else str(given)
    if not row.has("turns"):
        known = sessions.setdefault(name, _Session(row.where, [], False))
        if known.grows:
            raise row.wrong("session_id", "a session no line with turns[] has")
        known.turns.append(row)
        return
    if name in sessions:
        raise WorkloadError(f"{row.where}.session_id: {brief(name)} is that of {sessions[name].place}, too")
    values = row.items("turns")
    if not values:
        raise row.wrong("turns", "at least one turn")
    mode = row.text("context_mode", "deltas_without_responses")
    if mode not in _MODES:
        raise row.wrong("context_mode", " or ".join(_MODES))
    turns = [Fields(value, f"{row.where}.turns[{i}]") for i, value in enumerate(values)]
    sessions[name] = _Session(row.where, turns, _MODES[mode], row.items("pre_session_spawns"))


class _Conversations:
    """Writes down every conversation nothing else starts."""

    def __init__(self, found: Collector, sessions: dict[str, _Session]) -> None:
        self.found = found
        self.sessions = sessions

    def write(self) -> None:
        forked: dict[str, str] = {}
        for name, session in self.sessions.items():
            for turn in session.turns:
                for child in [c for children, _ in spawns_of(turn, 0) for c in children]:
                    self.child(child, turn, "spawns").parents.append(name)
                for child, _ in forks_of(turn):
                    self.child(child, turn, "forks").parents.append(name)
                    if forked.setdefault(str(child), name) != name:
                        raise WorkloadError(
                            f"{turn.where}.forks: {brief(child)} is forked by {forked[child]!r}, too"
                        )
            for child in session.before:
                self.child(child, Fields({}, session.place), "pre_session_spawns").parents.append(name)
        roots = [name for name, session in self.sessions.items() if not session.parents]
        if not roots and self.sessions:
            place = next(iter(self.sessions.values())).place
            raise WorkloadError(f"{place}: every session is started by another: there is no first one")
        for name in roots:
            _Program(self, name).write()

    def child(self, name: object, turn: Fields, what: str) -> _Session:
        """A session by the name another one starts it by."""
        if not isinstance(name, str) or name not in self.sessions:
            raise WorkloadError(f"{turn.where}.{what}: no session {brief(name)} in the file")
        return self.sessions[name]


class _Program:
    """One conversation with all it starts."""

    def __init__(self, all_of_them: _Conversations, name: str) -> None:
        self.found = all_of_them.found
        self.sessions = all_of_them.sessions
        self.root = name
        self.place = self.sessions[name].place
        self.prompts = Prompts(key_of("aiperf", self.place), self.found.counter)
        self.fixes: list[str] = []
        self.forks: dict[str, int] = {}
        self.tasks = self.calls = 0

    def write(self) -> None:
        thread = Thread(self.prompts, self.fixes.append)
        self.session(thread, self.root, (self.root,))
        for fix in dict.fromkeys(self.fixes):
            self.found.repair(fix, self.place)
        if not thread.calls:
            self.found.skip("no turn with a prompt", self.place)
            return
        first = milliseconds(self.sessions[self.root].turns[0], "timestamp")
        start = None if first is None else round(first * 1e6)
        self.found.add(thread.script, self.place, start, estimated=self.prompts.estimated)

    def session(self, thread: Thread, name: str, path: tuple[str, ...]) -> None:
        """All turns of a session, in ``thread``."""
        session = self.sessions[name]
        for child in session.before:
            self.spawn(thread, child, path)
        _Turns(self, session, thread, path).between(0, len(session.turns))

    def branch(self, parent: Thread, name: str, path: tuple[str, ...], fork: bool) -> Thread:
        """Another session as a branch; a fork goes on from the parent's context."""
        if name in path:
            raise WorkloadError(f"{self.place}: sessions start each other: {' -> '.join((*path, name))}")
        if len(path) > _DEEPEST:
            raise WorkloadError(f"{self.place}: sessions started more than {_DEEPEST} deep")
        number = self.forks[parent.name] = self.forks.get(parent.name, -1) + 1
        child = Thread(
            self.prompts, self.fixes.append, f"{parent.name}.{number}".removeprefix("."), parent.parents
        )
        child.place = parent.place if fork else None
        self.session(child, name, (*path, name))
        return child

    def spawn(self, parent: Thread, name: str, path: tuple[str, ...], fork: bool = False) -> None:
        """A branch nobody waits for."""
        task, self.tasks = self.tasks, self.tasks + 1
        script = self.branch(parent, name, path, fork).script
        parent.script.ops.append(SpawnOp(script, task))


class _Turns:
    """The turns of one session."""

    def __init__(self, program: _Program, session: _Session, thread: Thread, path: tuple[str, ...]) -> None:
        self.program = program
        self.session = session
        self.thread = thread
        self.path = path
        self.new: list[Message] = []
        self.clock: float | None = None

    def between(self, first: int, end: int) -> int:
        """Turns ``first`` to ``end``, ``end`` not included; returns the turn to go on with."""
        i = first
        while i < end:
            self.turn(i)
            groups: dict[int, list[str]] = {}
            for children, join_at in spawns_of(self.session.turns[i], i):
                last = len(self.session.turns)
                if not i < join_at < last + (join_at == i + 1):
                    raise self.session.turns[i].wrong("spawns", f"join_at from {i + 1} to {last - 1}")
                if join_at == last:
                    for child in children:
                        self.program.spawn(self.thread, child, self.path)
                    continue
                if join_at > end:
                    self.program.fixes.append(CROSSING)
                groups.setdefault(min(join_at, end), []).extend(children)
            self.forks(i)
            i = self.beside(i + 1, sorted(groups.items(), reverse=True))
        return i

    def beside(self, first: int, groups: Sequence[tuple[int, list[str]]]) -> int:
        """Children, and the turns that run beside them until their join; the longest wait first."""
        if not groups:
            return first
        (join_at, children), *inner = groups
        started = self.thread.parents
        branches = [self.program.branch(self.thread, child, self.path, False) for child in children]
        outer, self.thread.script = self.thread.script, Script()
        self.between(self.beside(first, inner), join_at)
        own, self.thread.script = self.thread.script, outer
        scripts = [own] if own.ops else []
        outer.ops.append(JoinOp([*scripts, *(branch.script for branch in branches)]))
        ends: list[CallId] = [end for branch in branches for end in branch.parents]
        before = self.thread.parents if self.thread.parents != started else ()
        self.thread.parents = tuple(dict.fromkeys((*before, *ends)))
        return join_at

    def forks(self, i: int) -> None:
        turn = self.session.turns[i]
        waited = [child for child, background in forks_of(turn) if not background]
        if waited and i + 1 < len(self.session.turns):
            raise turn.wrong("forks", 'names in the last turn only, before it {"child", "background": true}')
        for child, background in forks_of(turn):
            if background:
                self.program.spawn(self.thread, child, self.path, fork=True)
        if waited:
            branches = [self.program.branch(self.thread, child, self.path, True) for child in waited]
            self.thread.script.ops.append(JoinOp([branch.script for branch in branches]))
            self.thread.parents = tuple(end for branch in branches for end in branch.parents)

    def turn(self, i: int) -> None:
        """One call; none for a leading system prompt, or where there is nothing but media."""
        turn, thread, program = self.session.turns[i], self.thread, self.program
        messages = messages_of(turn, program.fixes)
        self.wait(turn, i)
        self.new += messages
        hoisted = i == 0 and messages and all(m.role == SYSTEM for m in messages) and has_no_schedule(turn)
        if hoisted or not self.new:
            program.fixes += [] if hoisted else [EMPTY]
            return
        program.calls += 1
        if program.calls > _MOST_CALLS:
            raise WorkloadError(f"{program.place}: more than {_MOST_CALLS} calls in one conversation")
        goes_on = self.session.grows and thread.place is not None
        length = length_of(turn, program.fixes)
        thread.call(self.new, Message(MODEL, "", length), model=turn.text("model"), goes_on=goes_on)
        self.new = []

    def wait(self, turn: Fields, i: int) -> None:
        delay, timestamp = milliseconds(turn, "delay"), milliseconds(turn, "timestamp")
        if delay is not None and timestamp is not None:
            raise WorkloadError(f"{turn.where}: has delay and timestamp; give one of the two")
        if delay is not None:
            self.thread.think(delay / 1e3)
        elif timestamp is not None and self.clock is not None and i:
            self.program.fixes.append(TIMESTAMPS)
            self.thread.think((timestamp - self.clock) / 1e3)
        self.clock = timestamp


READER = AiperfReader()
