"""Reads Mooncake's request traces (JSON lines), and the variants others write.

* ``timestamp`` (ms), ``input_length``, ``output_length`` (tokens), ``hash_ids``: one id for every
  512 tokens of the prompt, the last for what is left, so ceil(input_length / 512) of them.
* AIPerf and genai-perf add ``session_id``, ``delay`` (ms after the reply before; instead of a
  timestamp), and ``text_input``, ``messages`` or ``payload`` in place of ``input_length``;
  ``tools``, ``priority``, ``extra`` and others are ignored, but ``tools`` is text of the prompt.
* vLLM's timed traces have blocks of 16 and seconds. The block is the size that fits the first rows:
  512 if it does, else 16, else (if ten rows or more say so) another power of two.
* Other names: ``input_tokens``, ``input_toks``, ``output_tokens``, ``output_toks``, ``created_time`` (ms),
  ``arrival_time`` (s), ``delay_ms``.

Equal ids are equal text everywhere in a file, so programs share what the ids say. Refused: a
number of ids that is not right for the length; an id that is a whole block here and a part of one
there; two fields for one thing; ``delay`` and ``timestamp`` in one row.
"""

from __future__ import annotations

import math
from itertools import islice, pairwise
from pathlib import Path
from types import NoneType
from typing import Any

import orjson

from workloads.base import ProgramSet, WorkloadError
from workloads.files import Fields, Tally, brief, first_line, of_folder
from workloads.keys import key_of
from workloads.requests import NO_PROMPT, NO_TOKENS, Requests, block_ids, in_time_order, program_set
from workloads.rows import MOST_TOKENS, Table
from workloads.streams import lines, parse_line
from workloads.texts import TextTree
from workloads.tokens import Counter, counter

ESTIMATED = "length estimated from the text"
CAPPED_OUTPUT = "output length taken from the limit of the payload"
FIRST_DELAY = "delay before a first call left out"
_PLAIN = {"timestamp", "input_length", "output_length", "hash_ids"}
_IN_SESSION = _PLAIN | {"session_id"}
_LATEST = 1 << 53
_INPUT = ("input_length", "input_tokens", "input_toks")
_OUTPUT = ("output_length", "output_tokens", "output_toks")
_TEXT = ("text_input", "messages", "payload")
_TIME = {"timestamp": 1e3, "created_time": 1e3, "arrival_time": 1.0}
_DELAY = ("delay", "delay_ms")
_BLOCKS = (512, 16, 32, 64, 128, 256, 1024)
_LOOKED_AT = 50
_ENOUGH = 10  # rows, and blocks of the longest: no other size than the right one fits them all


class MooncakeReader:
    """A JSON-lines file of requests, or a folder of them."""

    name = "mooncake"
    parameters = ("tokenizer",)

    def sniff(self, path: Path) -> str | None:
        """Why this looks like requests in Mooncake's form."""
        skipped = Tally()
        for file, _ in of_folder(path, (".jsonl", ".json"), _fields_of, skipped)[:20]:
            if fields := _fields_of(file):
                return f"JSON lines with {', '.join(fields)}"
        return None

    def read(
        self, path: Path, *, max_model_len: int, on_overflow: str, parameters: dict[str, str] = {}
    ) -> ProgramSet:
        """Programs of one call, or of a session. Raises WorkloadError with file, line and field."""
        skipped, repaired = Tally(), Tally()
        count = counter(parameters.get("tokenizer"))
        tables, read, blocks, texts = list[Table](), 0, set[int](), False
        for number, (file, name) in enumerate(of_folder(path, (".jsonl", ".json"), _fields_of, skipped)):
            rows = _File(file, name, number, count, skipped, repaired)
            read += rows.read()
            table = rows.table()
            table.fit(max_model_len, on_overflow, name, skipped, repaired)
            tables.append(table)
            blocks.add(rows.block)
            texts = texts or bool(rows.texts)
        result = program_set(path, self.name, tables, skipped, repaired, read, max_model_len)
        result.parameters = {"block_tokens": sorted(blocks - {0})}
        if texts:
            result.parameters["tokenizer"] = count.description
        return result


def _fields_of(file: Path) -> list[str]:
    """The fields of the first row by which it is one of ours, in the order they stand in."""
    try:
        row = orjson.loads(first_line(file))
    except orjson.JSONDecodeError:
        return []
    if not isinstance(row, dict) or "chat_id" in row or "round_idx" in row or "turns" in row:
        return []
    size = [name for name in row if name in (*_INPUT, *_TEXT)]
    more = [name for name in row if name in (*_OUTPUT, *_TIME, *_DELAY, "hash_ids")]
    if not size or not more or ("messages" in size and not any(name in row for name in _OUTPUT)):
        return []
    return [name for name in row if name in (*size, *more, "session_id")]


class _File:
    """Reads one file into rows."""

    def __init__(
        self, path: Path, name: str, number: int, count: Counter, skipped: Tally, repaired: Tally
    ) -> None:
        self.path = path
        self.name = name
        self.count = count
        self.skipped = skipped
        self.repaired = repaired
        self.block = _block(path, name)
        self.rows = Requests("mooncake", name, number, self.block)
        self.unit = 1.0 if self.block == 16 else 1e3
        self.tree = TextTree(key_of("mooncake text"))
        self.sessions: dict[str, list[int]] = {}
        self.alone: list[int] = []
        self.delays: dict[int, float] = {}
        self.texts: dict[int, Any] = {}
        self.deltas: dict[int, int] = {}

    def read(self) -> int:
        """Read all rows; how many there are."""
        read = 0
        for number, line in lines(self.path, self.name):
            row = parse_line(line, self.name, number)
            read += 1
            if not (type(row) is dict and self.plain(row, line, number)):
                self.odd(Fields(row, f"{self.name}:{number}"), number)
        return read

    def plain(self, row: dict[str, Any], line: bytes, number: int) -> bool:
        """The fast way for a row like nearly all of them; False if it is not one, or wrong somewhere."""
        session = row.get("session_id")
        if row.keys() != (_PLAIN if session is None else _IN_SESSION) or not self.block:
            return False
        time, tokens, output, ids = (
            row["timestamp"],
            row["input_length"],
            row["output_length"],
            row["hash_ids"],
        )
        if not (
            type(tokens) is int and type(output) is int and type(ids) is list
            and 0 < tokens <= MOST_TOKENS and 0 < output <= MOST_TOKENS
            and type(time) in (int, float) and 0 <= time < _LATEST and type(session) in (str, NoneType)
            and len(ids) == -(-tokens // self.block) and b"true" not in line and b"false" not in line
        ):  # fmt: skip
            return False
        try:
            self.rows.columns.add(number, time / self.unit, tokens, output, ids)
        except (OverflowError, TypeError):
            return False
        if session is not None:
            self.sessions.setdefault(session, []).append(len(self.rows.columns) - 1)
        return True

    def odd(self, row: Fields, number: int) -> None:
        """A row of a variant, or one that is wrong somewhere."""
        text, tokens = self.prompt(row)
        output = self.output(row)
        time, delay = self.times(row)
        if not tokens:
            self.skipped.add(NO_PROMPT, row.where)
            return
        ids = self.ids(row, tokens)
        if output == 0:
            self.repaired.add(NO_TOKENS, row.where)
        place = len(self.rows.columns)
        session = _session(row)
        self.rows.columns.add(number, time, tokens, max(1, output), ids)
        if delay is not None:
            self.delays[place] = delay
        if session is None:
            self.alone.append(place)
        else:
            self.sessions.setdefault(session, []).append(place)
        if text and session in self.sessions and len(self.sessions[session]) > 1 and _is_delta(row):
            self.deltas[place] = self.count.count(text)
        elif text:
            self.texts[place] = self.tree.add(text)

    def prompt(self, row: Fields) -> tuple[str, int]:
        """(text, empty where there is a length; length, 1 until a text is measured)."""
        given = [name for name in _TEXT if row.has(name)]
        length = _one(row, _INPUT)
        if len(given) + (length is not None) != 1 or (given and row.has("hash_ids")):
            names = [*([length] if length else []), *given, *(["hash_ids"] if row.has("hash_ids") else [])]
            raise WorkloadError(
                f"{row.where}: expected one of input_length (with hash_ids or not), text_input, messages "
                f"or payload, got {' and '.join(names) or 'none'}"
            )
        if length is not None:
            return "", row.integer(length, high=MOST_TOKENS)
        text = _text(row, given[0])
        return text, min(1, len(text))

    def output(self, row: Fields) -> int:
        name = _one(row, _OUTPUT)
        payload = row.values.get("payload")
        if name is None and isinstance(payload, dict):
            inner = Fields(payload, f"{row.where}.payload")
            name = _one(inner, ("max_tokens", "max_completion_tokens"))
            if name is not None:
                self.repaired.add(CAPPED_OUTPUT, row.where)
                return inner.integer(name, high=MOST_TOKENS)
        return row.integer(name or "output_length", high=MOST_TOKENS)

    def times(self, row: Fields) -> tuple[float, float | None]:
        """(arrival in seconds, NaN where there is none; delay in seconds)."""
        time, delay = _one(row, tuple(_TIME)), _one(row, _DELAY)
        if time is not None and delay is not None:
            raise WorkloadError(f"{row.where}: {time} and {delay} in one row; a request has one of them")
        if delay is not None:
            return math.nan, _number(row, delay) / 1e3
        if time is None:
            return math.nan, None
        return _number(row, time) / (self.unit if time == "timestamp" else _TIME[time]), None

    def ids(self, row: Fields, tokens: int) -> list[int]:
        if not row.has("hash_ids"):
            return []
        right = -(-tokens // self.block) if self.block else 0
        return block_ids(row, right, f"ceil({tokens} / {self.block})")

    def table(self) -> Table:
        """The programs of what was read."""
        rows = self.rows
        if self.block:
            rows.columns.refuse_partial_and_whole(self.block, self.name, "hash_ids")
        self.place_texts()
        sessions = [in_time_order(found, rows, self.repaired) for found in self.sessions.values()]
        firsts = [*self.alone, *(found[0] for found in sessions)] if self.delays else []
        for row in firsts:
            if self.delays.pop(row, None):
                self.repaired.add(FIRST_DELAY, rows.place(row))
        if not sessions:
            return rows.table()
        rows.chain(sessions)
        rows.pause(self.delays, {}, self.repaired)
        rows.count_continued(self.repaired)
        in_session = {row for found in sessions for row in found}
        alone = [[row] for row in range(len(rows.columns)) if row not in in_session]
        return rows.table(sorted([*sessions, *alone], key=lambda found: min(found)))

    def place_texts(self) -> None:
        """Give prompts of text their lengths and segments."""
        inputs, outputs = self.rows.columns.inputs, self.rows.columns.outputs
        self.tree.measure(self.count.count)
        for row, node in self.texts.items():
            self.rows.texts[row] = self.tree.segments(node)
            inputs[row] = node.total
        for found in self.sessions.values():
            for before, row in pairwise(found):
                if row in self.deltas:
                    inputs[row] = min(MOST_TOKENS, inputs[before] + outputs[before] + self.deltas[row])
        self.rows.continues = set(self.deltas)
        for row in [*self.texts, *self.deltas] if not self.count.exact else ():
            self.repaired.add(ESTIMATED, self.rows.place(row))


def _block(path: Path, name: str) -> int:
    """Tokens of a block: what fits the first rows; 0 where none has ids."""
    seen = []
    for number, line in islice(lines(path, name), _LOOKED_AT):
        row = parse_line(line, name, number)
        if isinstance(row, dict) and isinstance(row.get("hash_ids"), list):
            tokens = next((row[label] for label in _INPUT if label in row), None)
            if type(tokens) is int:
                seen.append((tokens, len(row["hash_ids"])))
    sure = len(seen) >= _ENOUGH and max((n for _, n in seen), default=0) > _ENOUGH
    sizes = _BLOCKS if sure else _BLOCKS[:2]
    fitting = (size for size in sizes if all(-(-tokens // size) == n for tokens, n in seen))
    return next(fitting, 512) if seen else 0


def _one(row: Fields, names: tuple[str, ...]) -> str | None:
    """Which of these names for one thing the row has. Raises WorkloadError for two that differ."""
    given = [name for name in names if row.has(name)]
    if len(given) > 1 and any(row.values[name] != row.values[given[0]] for name in given):
        values = " and ".join(f"{name} = {brief(row.values[name])}" for name in given)
        raise WorkloadError(f"{row.where}: {values} are two fields for one thing")
    return given[0] if given else None


def _number(row: Fields, name: str) -> float:
    value = row.values[name]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < _LATEST:
        raise row.wrong(name, "a number from 0")
    return float(value)


def _session(row: Fields) -> str | None:
    value = row.values.get("session_id")
    if value is None or isinstance(value, (str, int)):
        return None if value is None else str(value)
    raise row.wrong("session_id", "a string")


def _is_delta(row: Fields) -> bool:
    """Are the messages only what is new? (AIPerf's message_mode.)"""
    mode = row.text("message_mode", "history")
    if mode not in ("delta", "history"):
        raise row.wrong("message_mode", "delta or history")
    return mode == "delta"


def _text(row: Fields, name: str) -> str:
    """The text of a prompt, or of all its messages."""
    if name == "text_input":
        return row.text(name)
    inner = row
    if name == "payload":
        inner = Fields(row.values[name], f"{row.where}.payload")
        if inner.has("prompt"):
            return inner.text("prompt")
    parts = [_compact(inner.values["tools"])] if inner.has("tools") else []
    return "\n".join(parts + [_message(message, inner.where) for message in inner.items("messages")])


def _message(value: object, where: str) -> str:
    if not isinstance(value, dict) or "role" not in value:
        raise WorkloadError(f"{where}.messages: expected messages with a role, got {brief(value)}")
    content = value.get("content")
    text = content if isinstance(content, str) else _compact(content) if content is not None else ""
    calls = _compact(value["tool_calls"]) if value.get("tool_calls") else ""
    return f"{value['role']}\n{text}{calls}"


def _compact(value: object) -> str:
    return orjson.dumps(value).decode()


READER = MooncakeReader()
