"""Our own format: programs as JSON lines, lossless. ``readers/own.py`` reads it.

The first line is a header, then one program a line:

    {"format": "agent-programs", "version": 1, "name": ..., "programs": n}
    {"id": 0, "kind": "chatbot", "arrival": null, "do": [op, ...]}

An op is one of (lengths in tokens, times in seconds, segment ids in hex)

    {"call": [thread, index], "parents": [[thread, index], ...], "from": [thread, index],
     "keep": 120, "new": [[id, length], ...], "reply": [id, length], "model": ""}
    {"tool": name, "s": 0.9}   {"think": 2.5}   {"join": [[op, ...], ...]}
    {"spawn": [op, ...], "task": 0}   {"cancel": 0}   {"timeout": 5.0, "do": [op, ...]}   {"abandon": true}

``from`` and ``keep``: the prompt starts with the first ``keep`` tokens of that
earlier call's prompt and reply; ``new`` follows. Absent fields are empty or 0.
A coroutine that did something after it was cancelled is an object
{"do": [op, ...], "cleanup": [op, ...]} in place of its list.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vocabulary import Segment
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

if TYPE_CHECKING:
    from workloads.dag import ProgramDag

FORMAT = "agent-programs"
VERSION = 1


def export(dags: Sequence[ProgramDag], path: Path, name: str = "") -> None:
    """Write programs to ``path`` (compressed if it ends in .gz)."""
    header = {"format": FORMAT, "version": VERSION, "name": name, "programs": len(dags)}
    with _open(path) as file:
        for row in [header, *({**_head(dag), "do": program_row(dag.script)} for dag in dags)]:
            file.write(json.dumps(row, separators=(",", ":")) + "\n")


def _open(path: Path) -> Any:
    if path.suffix == ".gz":
        return gzip.open(path, "wt", encoding="utf-8", newline="\n")
    return path.open("w", encoding="utf-8", newline="\n")


def _head(dag: ProgramDag) -> dict[str, object]:
    return {"id": dag.index, "kind": dag.kind, "arrival": dag.arrival}


def program_row(script: Script) -> Any:
    """What a program does, as JSON values: the "do" of its line."""
    return _Encoder().script(script)


class _Encoder:
    """Writes every prompt as a difference to the earlier call that explains most of it."""

    def __init__(self) -> None:
        self.contexts: dict[CallId, tuple[tuple[Segment, ...], int]] = {}
        self.last: dict[str, CallId] = {}

    def script(self, script: Script) -> Any:
        ops = [self.op(op) for op in script.ops]
        if script.cleanup is None:
            return ops
        return {"do": ops, "cleanup": [self.op(op) for op in script.cleanup]}

    def op(self, op: Op) -> dict[str, Any]:
        match op:
            case CallOp():
                return self.call(op)
            case ToolOp():
                return {"tool": op.name, "s": op.work_s}
            case ThinkOp():
                return {"think": op.seconds}
            case JoinOp():
                return {"join": [self.script(script) for script in op.scripts]}
            case SpawnOp():
                return {"spawn": self.script(op.script), "task": op.task}
            case CancelOp():
                return {"cancel": op.task}
            case TimeoutOp():
                return {"timeout": op.seconds, "do": self.script(op.script)}
            case AbandonOp():
                return {"abandon": True}

    def call(self, op: CallOp) -> dict[str, Any]:
        prompt = tuple(op.prompt())
        row: dict[str, Any] = {"call": [op.thread, op.index]}
        if op.parents:
            row["parents"] = [list(parent) for parent in op.parents]
        base, keep, kept = self.explain(op, prompt)
        if base is not None:
            row["from"], row["keep"] = list(base), keep
        if kept < len(prompt):
            row["new"] = [[f"{segment:x}", length] for segment, length in prompt[kept:]]
        row["reply"] = [f"{op.output_id:x}", op.output_tokens]
        if op.model:
            row["model"] = op.model
        self.contexts[op.id] = (*prompt, (op.output_id, op.output_tokens)), op.total
        self.last[op.thread] = op.id
        return row

    def explain(self, op: CallOp, prompt: tuple[Segment, ...]) -> tuple[CallId | None, int, int]:
        """(base call, tokens kept, segments kept) of the best base."""
        best: tuple[CallId | None, int, int] = (None, 0, 0)
        for base in self.candidates(op):
            context, total = self.contexts[base]
            n = len(context)
            if prompt[:n] == context:
                return base, total, n
            keep, kept = _common(context, prompt)
            if keep > best[1]:
                best = base, keep, kept
        return best

    def candidates(self, op: CallOp) -> Iterable[CallId]:
        """Its thread's last call, those of the threads it was forked from, its parents."""
        thread, found = op.thread, dict[CallId, None]()
        while True:
            if thread in self.last:
                found[self.last[thread]] = None
            if not thread:
                break
            thread = thread.rpartition(".")[0]
        found.update(dict.fromkeys(parent for parent in op.parents[:1] if parent in self.contexts))
        return found


def _common(context: Sequence[Segment], prompt: Sequence[Segment]) -> tuple[int, int]:
    """(tokens, segments of ``prompt``) that a cut of ``context`` gives exactly."""
    tokens = 0
    for i, (x, y) in enumerate(zip(context, prompt, strict=False)):
        if x[0] != y[0] or y[1] > x[1]:
            return tokens, i
        tokens += y[1]
        if y[1] < x[1]:
            return tokens, i + 1
    return tokens, min(len(context), len(prompt))
