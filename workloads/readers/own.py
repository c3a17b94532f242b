"""Reads our own format (``workloads/own.py``): programs as JSON lines, lossless."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

from vocabulary import Segment
from workloads.base import ProgramSet, ProgramSpec, WorkloadError
from workloads.files import Fields, Tally, brief, head, parse_json
from workloads.overflow import fit
from workloads.own import FORMAT, VERSION
from workloads.replay import replay_spec
from workloads.script import (
    AbandonOp,
    CallOp,
    CancelOp,
    JoinOp,
    Op,
    Script,
    SpawnOp,
    ThinkOp,
    TimeoutOp,
    ToolOp,
)
from workloads.session import CallId
from workloads.streams import lines


class OwnReader:
    """Format ``agent-programs``, version 1."""

    name = "own"

    def sniff(self, path: Path) -> str | None:
        """Why this looks like our format."""
        if path.is_file() and f'"{FORMAT}"'.encode() in head(path, 200).split(b"\n")[0]:
            return f'a header with format "{FORMAT}"'
        return None

    def read(self, path: Path, *, max_model_len: int, on_overflow: str) -> ProgramSet:
        """Replay programs. Raises WorkloadError with file, line and field."""
        name = _header(path)
        skipped, repaired = Tally(), Tally()
        programs: list[ProgramSpec] = []
        read = 0
        for number, line in islice(lines(path, path.name), 1, None):
            read += 1
            where = f"{path.name}:{number}"
            row = Fields(parse_json(line, where), where)
            if "do" not in row.values:
                raise row.wrong("do", "the list of what the program does")
            script = _Decoder().program(row.values["do"], f"{where}: do")
            fitting = fit(script, max_model_len, on_overflow, where, skipped, repaired)
            if fitting is not None:
                kind, arrival = row.text("kind", name), row.seconds("arrival")
                programs.append(replay_spec(len(programs), kind, fitting, arrival))
        return ProgramSet(
            programs, name, "", {}, None, skipped.counts, repaired.counts,
            {**skipped.where(), **repaired.where()}, read,
        )  # fmt: skip


def _header(path: Path) -> str:
    """The set's name, from the first line."""
    where = path.name
    first = next(lines(path, where, count=False), (0, b""))
    if first[0] != 1:
        raise WorkloadError(f"{where}: empty; the first line must be a header")
    header = Fields(parse_json(first[1].strip(), f"{where}:1"), f"{where}:1")
    if header.text("format") != FORMAT:
        raise header.wrong("format", f'"{FORMAT}"')
    if header.integer("version", low=1) != VERSION:
        raise header.wrong("version", f"{VERSION}, the only one there is")
    programs = header.integer("programs", default=-1)
    if programs != -1 and programs != (found := sum(1 for _ in lines(path, where, count=False)) - 1):
        raise WorkloadError(f"{where}:1.programs: says {programs}, but {found} lines follow (cut off?)")
    return header.text("name") or Path(where).name.partition(".")[0]


class _Decoder:
    """One program; keeps its calls by identity for ``from``."""

    def __init__(self) -> None:
        self.calls: dict[CallId, CallOp] = {}
        self.tasks: set[int] = set()
        self.cancelled: list[tuple[int, Fields]] = []
        self.named: list[tuple[CallId, str]] = []

    def program(self, value: object, where: str) -> Script:
        """A whole program."""
        script = self.script(value, where)
        for parent, place in self.named:
            if parent not in self.calls:
                raise WorkloadError(f"{place}.parents: {list(parent)} is no call of the program")
        for task, row in self.cancelled:
            if task not in self.tasks:
                raise row.wrong("cancel", "the task number of a spawn of the program")
        return script

    def script(self, value: object, where: str) -> Script:
        if isinstance(value, dict):
            row = Fields(value, where)
            return Script(
                self.ops(row.values.get("do"), f"{where}.do"),
                self.ops(row.values.get("cleanup"), f"{where}.cleanup"),
            )
        return Script(self.ops(value, where))

    def ops(self, value: object, where: str) -> list[Op]:
        if not isinstance(value, list):
            raise WorkloadError(f"{where}: expected a list of operations, got {brief(value)}")
        if where.count("[") > 200:
            raise WorkloadError(f"{where[:80]}...: joins nested more than 200 deep")
        return [self.op(Fields(item, f"{where}[{i}]")) for i, item in enumerate(value)]

    def op(self, row: Fields) -> Op:
        kind = next((name for name in _OPS if name in row.values), None)
        if kind is None:
            raise WorkloadError(f"{row.where}: expected one of {', '.join(_OPS)}, got {brief(row.values)}")
        return getattr(self, f"_{kind}")(row)  # type: ignore[no-any-return]

    def _call(self, row: Fields) -> CallOp:
        thread, index = _call_id(row.values["call"], row, "call")
        if (thread, index) in self.calls:
            raise row.wrong("call", "an identity no other call of the program has")
        parents = tuple(_call_id(item, row, "parents") for item in row.items("parents"))
        self.named.extend((parent, row.where) for parent in parents)
        base, keep = self.base(row)
        new = tuple(_segment(item, row, "new") for item in row.items("new"))
        if "reply" not in row.values:
            raise row.wrong("reply", "[segment id, length]")
        output_id, output = _segment(row.values["reply"], row, "reply")
        prompt = keep + sum(length for _, length in new)
        if prompt < 1:
            raise row.wrong("new", "a prompt of at least 1 token")
        op = CallOp(thread, index, parents, new, output_id, output, prompt, row.text("model"), base, keep)
        self.calls[op.id] = op
        return op

    def base(self, row: Fields) -> tuple[CallOp | None, int]:
        keep = row.integer("keep", default=0)
        if not row.has("from"):
            if keep:
                raise row.wrong("from", 'the call whose tokens "keep" counts')
            return None, 0
        base = self.calls.get(_call_id(row.values["from"], row, "from"))
        if base is None:
            raise row.wrong("from", "an earlier call of the program")
        if keep > base.total:
            raise row.wrong("keep", f"at most {base.total}, the prompt and reply of that call")
        return base, keep

    def _tool(self, row: Fields) -> ToolOp:
        return ToolOp(row.text("tool"), _seconds(row, "s"))

    def _think(self, row: Fields) -> ThinkOp:
        return ThinkOp(_seconds(row, "think"))

    def _join(self, row: Fields) -> JoinOp:
        scripts = row.items("join")
        return JoinOp([self.script(item, f"{row.where}.join[{i}]") for i, item in enumerate(scripts)])

    def _spawn(self, row: Fields) -> SpawnOp:
        task = row.integer("task")
        if task in self.tasks:
            raise row.wrong("task", "a number no other spawn of the program has")
        self.tasks.add(task)
        return SpawnOp(self.script(row.values["spawn"], f"{row.where}.spawn"), task)

    def _cancel(self, row: Fields) -> CancelOp:
        task = row.integer("cancel")
        # One branch may cancel what another starts: further down in the file, but earlier in time.
        self.cancelled.append((task, row))
        return CancelOp(task)

    def _timeout(self, row: Fields) -> TimeoutOp:
        return TimeoutOp(_seconds(row, "timeout"), self.script(row.values.get("do"), f"{row.where}.do"))

    def _abandon(self, row: Fields) -> AbandonOp:
        del row
        return AbandonOp()


_OPS = ("call", "tool", "think", "join", "spawn", "cancel", "timeout", "abandon")


def _seconds(row: Fields, name: str) -> float:
    value = row.seconds(name)
    if value is None:
        raise row.wrong(name, "a number of seconds")
    return value


def _call_id(value: Any, row: Fields, field: str) -> CallId:
    match value:
        case [str(thread), int(index)] if index >= 0 and not isinstance(index, bool):
            return thread, index
    raise WorkloadError(f"{row.where}.{field}: expected [thread, index], got {brief(value)}")


def _segment(value: Any, row: Fields, field: str) -> Segment:
    match value:
        case [str(text), int(length)] if 1 <= length < 1 << 53 and not isinstance(length, bool):
            try:
                return int(text, 16) & ((1 << 64) - 1), length
            except ValueError:
                pass
    raise WorkloadError(
        f"{row.where}.{field}: expected [hexadecimal id, length of at least 1], got {brief(value)}"
    )


READER = OwnReader()
