"""Reads TraceLab's traces of coding agents: its JSON lines, and the CSV it makes for replays.

Fields of a round (in brackets the names of the JSON lines): ``session_id`` or ``id``, ``round_idx``
[``round_index``], ``prefix_len`` [``prefix_tokens``], ``input_len`` [``newly_append_tokens``],
``output_len`` [``output_tokens``], ``tool_wait_after_ms`` [the sum of ``tools[].tool_wall_latency_ms``, as
TraceLab's own export has it], ``arrival_time`` (ms, of the session; its export invents it).

* The rounds of a session are a program, in the order of their numbers.
* A prompt is ``prefix_len`` + ``input_len`` tokens. Of it, the first ``prefix_len`` are the first tokens of
  the round before and its reply, as far as there are so many; what is over is text of its own:
  whose it is (a system prompt that sessions share?) is not recorded.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from vocabulary import on_grid
from workloads.base import ProgramSet, ProgramSpec, WorkloadError
from workloads.csv_rows import CsvRow, csv_rows, header_of
from workloads.files import Fields, Tally, first_line, of_folder, plain_name
from workloads.keys import key_of, mix
from workloads.overflow import fit
from workloads.replay import replay_spec
from workloads.requests import NO_TOKENS, nothing_left
from workloads.rows import MOST_TOKENS
from workloads.script import CallOp, Op, Script, ToolOp
from workloads.streams import lines, parse_line

MORE_PREFIX = "prefix longer than what the session said before, the rest taken as text of its own"
FIRST_PREFIX = "prefix of a session's first round, taken as text of its own"
NO_ROUND = "round missing before this one"
_SUFFIXES = (".csv", ".jsonl", ".json")
_NAMES = {
    "session": ("session_id", "id"),
    "index": ("round_idx", "round_index"),
    "prefix": ("prefix_len", "prefix_tokens"),
    "new": ("input_len", "newly_append_tokens"),
    "output": ("output_len", "output_tokens"),
}
_LONGEST_MS = 1 << 30
_Round = dict[str, Any]


class TraceLabReader:
    """A CSV or JSON-lines file, or a folder of them."""

    name = "tracelab"

    def sniff(self, path: Path) -> str | None:
        """Why this looks like TraceLab."""
        for file, _ in of_folder(path, _SUFFIXES, _is_ours, Tally()):
            if _is_ours(file):
                kind = "a CSV" if plain_name(file.name).endswith(".csv") else "JSON lines"
                return f"{kind} with {', '.join(_labels(_names_of(file)).values())}"
        return None

    def read(self, path: Path, *, max_model_len: int, on_overflow: str) -> ProgramSet:
        """A program for every session. Raises WorkloadError with file, line and field."""
        skipped, repaired = Tally(), Tally()
        programs, read = list[ProgramSpec](), 0
        for number, (file, name) in enumerate(of_folder(path, _SUFFIXES, _is_ours, skipped)):
            sessions: dict[str, list[_Round]] = {}
            for row in _rounds(file, name):
                read += 1
                sessions.setdefault(row["session"], []).append(row)
            for session, rounds in sessions.items():
                rounds.sort(key=lambda row: row["index"])
                script = _script(rounds, key_of("tracelab", number, session), repaired)
                kept = fit(script, max_model_len, on_overflow, rounds[0]["where"], skipped, repaired)
                if kept is not None:
                    programs.append(replay_spec(len(programs), self.name, kept, rounds[0]["arrival"]))
        if not programs:
            raise nothing_left(path, skipped, max_model_len)
        return ProgramSet(
            programs, path.name, "", {}, None, skipped.counts, repaired.counts,
            {**skipped.where(), **repaired.where()}, read,
        )  # fmt: skip


def _names_of(file: Path) -> set[str]:
    if plain_name(file.name).endswith(".csv"):
        return {name.strip() for name in header_of(file)}
    try:
        row = orjson.loads(first_line(file))
    except orjson.JSONDecodeError:
        return set()
    return set(row) if isinstance(row, dict) else set()


def _labels(names: set[str]) -> dict[str, str]:
    """What each of a round's fields is called in a file, where it has it."""
    found = {what: next((label for label in labels if label in names), "") for what, labels in _NAMES.items()}
    return {what: label for what, label in found.items() if label}


def _is_ours(file: Path) -> bool:
    return len(_labels(_names_of(file))) == len(_NAMES)


def _rounds(file: Path, name: str) -> Iterator[_Round]:
    if plain_name(file.name).endswith(".csv"):
        names = {column.strip() for column in header_of(file)}
        labels = {**{what: known[0] for what, known in _NAMES.items()}, **_labels(names)}
        for row in csv_rows(file, name, list(labels.values())):
            yield _csv_round(row, labels)
        return
    for number, line in lines(file, name):
        yield _json_round(Fields(parse_line(line, name, number), f"{name}:{number}"))


def _csv_round(row: CsvRow, labels: dict[str, str]) -> _Round:
    waited, arrived = ("tool_wait_after_ms", "arrival_time")
    return {
        "session": row.text(labels["session"]),
        **{what: row.tokens(labels[what]) for what in ("index", "prefix", "new", "output")},
        "wait": row.number(waited, _LONGEST_MS) / 1e3 if row.has(waited) else 0.0,
        "arrival": on_grid(row.number(arrived, _LONGEST_MS) / 1e3) if row.has(arrived) else None,
        "where": row.where,
    }


def _json_round(row: Fields) -> _Round:
    labels = {**{what: known[0] for what, known in _NAMES.items()}, **_labels(set(row.values))}
    session = row.values.get(labels["session"])
    if isinstance(session, bool) or not isinstance(session, (str, int)):
        raise row.wrong(labels["session"], "the session's name")
    return {
        "session": str(session),
        **{
            what: row.integer(labels[what], high=MOST_TOKENS) for what in ("index", "prefix", "new", "output")
        },
        "wait": _wait(row),
        "arrival": on_grid(_milliseconds(row, "arrival_time")) if row.has("arrival_time") else None,
        "where": row.where,
    }


def _wait(row: Fields) -> float:
    """Seconds of the tools after a round."""
    if row.has("tool_wait_after_ms"):
        return _milliseconds(row, "tool_wait_after_ms")
    tools = [Fields(tool, f"{row.where}.tools[{i}]") for i, tool in enumerate(row.items("tools"))]
    timed = [tool for tool in tools if tool.has("tool_wall_latency_ms")]
    total = sum(_milliseconds(tool, "tool_wall_latency_ms") for tool in timed)
    if total > _LONGEST_MS / 1e3:
        raise row.wrong("tools", "tools of at most 2**30 ms together")
    return total


def _milliseconds(row: Fields, name: str) -> float:
    value = row.values[name]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= _LONGEST_MS:
        raise row.wrong(name, "a number of milliseconds from 0 to 2**30")
    return value / 1e3


def _script(rounds: list[_Round], key: int, repaired: Tally) -> Script:
    """The calls of one session, and the tools between them."""
    ops: list[Op] = []
    last: CallOp | None = None
    for place, row in enumerate(rounds):
        if place and row["index"] == rounds[place - 1]["index"]:
            raise WorkloadError(
                f"{row['where']}: round {row['index']} is in {rounds[place - 1]['where']}, too"
            )
        if place and row["index"] > rounds[place - 1]["index"] + 1:
            repaired.add(NO_ROUND, row["where"])
        last = _call(row, place, last, key, repaired)
        ops.append(last)
        if row["wait"]:
            ops.append(ToolOp("tool", on_grid(row["wait"])))
    return Script(ops)


def _call(row: _Round, index: int, last: CallOp | None, key: int, repaired: Tally) -> CallOp:
    prompt, output = row["prefix"] + row["new"], row["output"]
    if not prompt:
        raise WorkloadError(f"{row['where']}: a prompt of 0 tokens (prefix_len + input_len)")
    if not output:
        repaired.add(NO_TOKENS, row["where"])
    keep = min(row["prefix"], last.total) if last is not None else 0
    if row["prefix"] > keep:
        repaired.add(MORE_PREFIX if last is not None else FIRST_PREFIX, row["where"])
    new = ((mix(key, 2 * index), prompt - keep),) if prompt > keep else ()
    parents = (last.id,) if last is not None else ()
    reply = mix(key, 2 * index + 1)
    return CallOp(
        "", index, parents, new, reply, max(1, output), prompt, "", last if keep else None, keep
    )  # fmt: skip


READER = TraceLabReader()
