"""Reads Weka's agent traces (kv-cache-tester): one JSON file is one session.

What each request becomes
* A request of type ``n`` (not streamed) or ``s`` (streamed) is a call. Prefixes are
  shared inside the session as ``hash_ids`` say (see ``block_hashes``), never across
  sessions: equal sessions in two files share nothing.
* The time before a call is the recorded ``think_time``; where that is missing, the
  time from the end of the request before, else 0. It is a wait for a person if the
  request before stopped with ``end_turn``, else a tool.
* A ``subagent`` is a thread. The ``t`` of a completed one is the time its result came
  back, so it started ``duration_ms`` earlier (in the public files this is always
  within 1 s of the launching reply); without a duration, or where that would be
  before its launch, it started at ``t``. If it is completed and the parent's next
  request comes after its end, the parent waits for it (join); else nobody does.
* ``t`` has whole seconds: comparisons allow for one.

Repaired, and counted: replies of 0 tokens (made 1), missing think times and hash ids,
requests out of order, requests without a prompt and sub-agents without requests
(left out). Refused: a number of hash ids that contradicts the prompt's length.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vocabulary import on_grid
from workloads.base import NothingLeft, ProgramSet, ProgramSpec, WorkloadError
from workloads.block_hashes import SharedPrompts
from workloads.files import Fields, Tally, files_of, parse_json, plain_name, read_bytes, shown
from workloads.files import head as file_head
from workloads.keys import key_of
from workloads.overflow import exceeded, fit
from workloads.replay import replay_spec
from workloads.script import CallOp, JoinOp, Op, Script, SpawnOp, ThinkOp, ToolOp
from workloads.session import CallId

_TICK = 1.0  # seconds; the resolution of recorded times
_DEEPEST = 50  # sub-agents of sub-agents
_LONGEST = 1 << 22  # tokens
_TYPES = ("n", "s", "subagent")
_NO_SESSION = "not a Weka session (an object with requests[])"


class WekaReader:
    """A session file, or a folder of them."""

    name = "weka"

    def sniff(self, path: Path) -> str | None:
        """Why this looks like a Weka session."""
        for file in session_files(path)[:20]:
            text = file_head(file)
            if b'"requests"' in text and (b'"hash_ids"' in text or b'"hash_id_scope"' in text):
                return "requests[] with hash_ids"
        return None

    def read(self, path: Path, *, max_model_len: int, on_overflow: str) -> ProgramSet:
        """Replay programs. In a folder, files that hold no session are skipped and counted.

        Raises WorkloadError with file, record and field, NothingLeft if no session is left.
        """
        skipped, repaired = Tally(), Tally()
        programs: list[ProgramSpec] = []
        files = session_files(path)
        for file in files:
            name = shown(file.name if file == path else file.relative_to(path).as_posix())
            document = _document(file, name, skipped, single=file == path)
            if document is None:
                continue
            session = _Session(document, name, repaired)
            script = fit(session.script(), max_model_len, on_overflow, name, skipped, repaired)
            if script is not None:
                programs.append(replay_spec(len(programs), self.name, script, session.start))
        if not programs:
            line = f"{path.name}: no session is left: {skipped.text() or 'no .json file'}"
            raise NothingLeft(line, exceeded(skipped.counts, max_model_len))
        return ProgramSet(
            programs, path.name, "", {}, None, skipped.counts, repaired.counts,
            {**skipped.where(), **repaired.where()}, len(files),
        )  # fmt: skip


def session_files(path: Path) -> list[Path]:
    """The files of a session or a folder of sessions, in a fixed order."""
    if path.is_file():
        return [path]
    return [file for file in files_of(path) if plain_name(file.name).endswith(".json")]


def _document(file: Path, name: str, skipped: Tally, *, single: bool) -> Fields | None:
    """The session's object; None (counted) for a file of a folder that holds none."""
    try:
        data = read_bytes(file)
        value = parse_json(data, name) if data.strip() else None
    except WorkloadError as error:
        if single:
            raise
        skipped.add("broken JSON", str(error))
        return None
    if isinstance(value, dict) and isinstance(value.get("requests"), list):
        if value["requests"]:
            return Fields(value, name)
        reason = "session without requests"
    else:
        reason = _NO_SESSION if data.strip() else "empty file"
    if single:
        raise WorkloadError(f"{name}: {reason}")
    skipped.add(reason, name)
    return None


@dataclass(slots=True, eq=False)
class _Request:
    """One entry of ``requests``; times in seconds from the session's start."""

    row: Fields
    kind: str
    t: float | None
    api_s: float | None = None
    end: float = 0.0
    children: list[_SubAgent] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _SubAgent:
    row: Fields
    start: float
    end: float
    joined: bool


class _Session:
    """Builds the script of one session."""

    def __init__(self, document: Fields, name: str, repaired: Tally) -> None:
        self.name = name
        self.repaired = repaired
        self.block = document.integer("block_size", low=1, default=64)
        self.rows = document.items("requests")
        self.prompts = SharedPrompts(key_of("weka", name, document.text("id")), self.block)
        self.start = 0.0
        self.tasks = 0
        self.forks: dict[str, int] = {}
        if document.text("hash_id_scope", "local") != "local":
            self.repair("sharing across sessions (hash_id_scope) is not reproduced", name)

    def repair(self, reason: str, where: str) -> None:
        self.repaired.add(reason, where)

    def script(self) -> Script:
        """The whole session. Raises WorkloadError if it has no call."""
        script, _ = self.thread("", self.rows, f"{self.name}: requests", 0.0, (), 0.0)
        if not script.ops:
            raise WorkloadError(f"{self.name}: requests: no request with a prompt")
        return script

    def thread(
        self, name: str, rows: list[Any], where: str, offset: float, parents: tuple[CallId, ...], lag: float
    ) -> tuple[Script, tuple[CallId, ...]]:
        """(script, last calls) of one thread that starts ``offset`` seconds into the session.

        ``lag`` is the time from the launching reply to its first request.
        """
        if name.count(".") >= _DEEPEST:
            raise WorkloadError(f"{self.name}: sub-agents nested more than {_DEEPEST} deep")
        script = Script()
        before: _Request | None = None
        last: CallOp | None = None
        head, *requests = self.arrange(rows, where, offset)
        if lag > 0.0:
            script.ops.append(ToolOp("subagent", on_grid(lag)))
        parents = self.children(name, head, script, parents) or parents
        for index, request in enumerate(requests):
            if before is not None:
                script.ops.extend(self.pause(request, before))
            last = self.call(request, name, index, parents, last)
            script.ops.append(last)
            parents = (last.id,)
            parents = self.children(name, request, script, parents) or parents
            before = request
        if name == "" and requests:
            self.start = on_grid(requests[0].t or 0.0)
        return script, parents

    def arrange(self, rows: list[Any], where: str, offset: float) -> list[_Request]:
        """The thread's calls in order, with the sub-agents each launches.

        Entry 0 is no call: it holds the sub-agents launched before the first one.
        """
        parsed = [self.request(row, f"{where}[{i}]", offset) for i, row in enumerate(rows)]
        requests = self.in_order([r for r in parsed if r is not None and r.kind != "subagent"], where)
        clock = offset
        for request in requests:
            began = clock if request.t is None else request.t
            request.end = clock = began + (request.api_s or 0.0)
        launchers = [_Request(Fields({}, where), "start", offset, end=offset), *requests]
        for child in parsed:
            if child is not None and child.kind == "subagent":
                self.attach(child, launchers)
        return launchers

    def request(self, value: object, where: str, offset: float) -> _Request | None:
        row = Fields(value, where)
        kind = row.values.get("type", "n")
        if kind not in _TYPES:
            raise row.wrong("type", " or ".join(_TYPES))
        t = row.seconds("t")
        t = None if t is None else t + offset
        if kind == "subagent":
            if row.items("requests"):
                return _Request(row, kind, t)
            self.repair("sub-agent without requests left out", self.name)
            return None
        if row.integer("in") == 0:
            self.repair("request without a prompt left out", self.name)
            return None
        return _Request(row, kind, t, row.seconds("api_time"))

    def in_order(self, requests: list[_Request], where: str) -> list[_Request]:
        times = [request.t for request in requests]
        if None in times:
            return requests
        ordered = sorted(requests, key=lambda request: request.t or 0.0)
        if ordered != requests:
            self.repair("requests out of time order, sorted", where.partition(":")[0])
        return ordered

    def attach(self, request: _Request, launchers: list[_Request]) -> None:
        """Give a sub-agent to the call that launched it."""
        row, origin = request.row, launchers[0].end
        duration = row.integer("duration_ms", default=0) / 1000.0
        t = request.t if request.t is not None else launchers[-1].end
        start = t
        if row.text("status", "completed") == "completed" and duration and t - duration >= origin:
            at = _launcher(launchers, t - duration)
            if at.end <= t - duration + _TICK:
                start = t - duration
        launcher = _launcher(launchers, start)
        end = start + (duration or self.length(row))
        place = launchers.index(launcher)
        following = launchers[place + 1].t if place + 1 < len(launchers) else None
        joined = row.text("status", "completed") == "completed"
        joined = joined and (following is None or following >= end - _TICK)
        launcher.children.append(_SubAgent(row, start, end, joined))

    def length(self, row: Fields) -> float:
        """Seconds from a sub-agent's start to its last reply, from its own requests."""
        end = 0.0
        for i, value in enumerate(row.items("requests")):
            inner = Fields(value, f"{row.where}.requests[{i}]")
            t, api = inner.seconds("t", 0.0), inner.seconds("api_time", 0.0)
            end = max(end, (t or 0.0) + (api or 0.0))
        return end

    def children(
        self, name: str, request: _Request, script: Script, parents: tuple[CallId, ...]
    ) -> tuple[CallId, ...]:
        """Start the request's sub-agents; the last calls of those that are waited for."""
        joined: list[Script] = []
        ends: list[CallId] = []
        for child in request.children:
            number = self.forks[name] = self.forks.get(name, -1) + 1
            path = f"{name}.{number}" if name else str(number)
            inner, last = self.thread(
                path, child.row.items("requests"), f"{child.row.where}.requests", child.start, parents,
                max(0.0, child.start - request.end),
            )  # fmt: skip
            if child.joined:
                joined.append(inner)
                ends.extend(last)
            else:
                script.ops.append(SpawnOp(inner, self.tasks))
                self.tasks += 1
        if joined:
            script.ops.append(JoinOp(joined))
        return tuple(dict.fromkeys(ends))

    def pause(self, request: _Request, before: _Request) -> list[Op]:
        """The tool or the person between two calls of a thread."""
        waited = [child.end for child in before.children if child.joined]
        gap = request.row.seconds("think_time")
        if waited:
            # The recorded think time holds the sub-agents' time, which is replayed.
            gap = max(0.0, request.t - max(before.end, *waited)) if request.t is not None else 0.0
        elif gap is None:
            gap = self.measured_gap(request, before)
        if not gap:
            return []
        return [ThinkOp(on_grid(gap)) if _person(request, before) else ToolOp("tool", on_grid(gap))]

    def measured_gap(self, request: _Request, before: _Request) -> float:
        """think_time is missing: the time since the end of the request before, if that is known."""
        if request.t is None or before.t is None or before.api_s is None:
            self.repair("think_time missing, 0 taken", self.name)
            return 0.0
        self.repair("think_time missing, taken from t and api_time", self.name)
        return max(0.0, request.t - before.t - before.api_s)

    def call(
        self, request: _Request, thread: str, index: int, parents: tuple[CallId, ...], last: CallOp | None
    ) -> CallOp:
        row = request.row
        tokens, output = row.integer("in", low=1, high=_LONGEST), row.integer("out", high=_LONGEST, default=0)
        if output == 0:
            self.repair("reply of 0 tokens, 1 taken", self.name)
            output = 1
        op = CallOp(thread, index, parents, (), self.prompts.new_id(), output, tokens, row.text("model"))
        self.prompts.place(op, self.hash_ids(row, tokens, last))
        return op

    def hash_ids(self, row: Fields, tokens: int, last: CallOp | None) -> list[int]:
        if not row.has("hash_ids"):
            self.repair("hash_ids missing, prompt taken to continue the one before", self.name)
            return self.prompts.unknown_blocks(tokens, last)
        ids = row.items("hash_ids")
        if len(ids) != tokens // self.block:
            raise WorkloadError(
                f"{row.where}.hash_ids: {len(ids)} ids for a prompt of {tokens} tokens; "
                f"floor({tokens} / {self.block}) = {tokens // self.block} would be right"
            )
        for i, value in enumerate(ids):
            if type(value) is not int or value < 0:
                raise WorkloadError(
                    f"{row.where}.hash_ids[{i}]: expected a whole number from 0, got {value!r}"
                )
        return ids


def _launcher(launchers: list[_Request], start: float) -> _Request:
    """The last call that had begun when a sub-agent started (entry 0 if none)."""
    found = launchers[0]
    for request in launchers[1:]:
        if request.t is None or request.t > start:
            break
        found = request
    return found


def _person(request: _Request, before: _Request) -> bool:
    """Did the call before end the turn? Old records leave ``stop`` empty: then the input tells."""
    stop = before.row.text("stop")
    if stop:
        return stop == "end_turn"
    return request.row.items("input_types") == ["text"]


READER = WekaReader()
