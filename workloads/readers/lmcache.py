"""Reads LMCache's agent traces (JSON lines): the text of every call.

Fields ``timestamp`` (microseconds), ``input``, ``output`` (text), ``session_id``. Rows may be in any
order (the public files have the newest first).

* A session is a program. Its calls follow one another in the order of their times; the tool
  before a call is given the whole time since the call before: what that call itself took is
  not recorded, which is counted (``--cap-idle`` bounds it).
* Equal text is the same tokens, to the character and across sessions. A reply is reused where
  a later prompt holds it right behind the prompt that it answered.
* Lengths are counted by a tokenizer if one is named, else estimated, which is counted.
"""

from __future__ import annotations

from pathlib import Path

import orjson

from workloads.base import ProgramSet
from workloads.files import Fields, Tally, first_line, of_folder
from workloads.keys import key_of
from workloads.requests import NO_PROMPT, NO_TOKENS, Requests, in_time_order, program_set
from workloads.rows import Table
from workloads.streams import lines, parse_line
from workloads.texts import Place, TextTree
from workloads.tokens import Counter, counter

ESTIMATED = "length estimated from the text"
_SUFFIXES = (".jsonl", ".json")


class LmcacheReader:
    """A file of one or more sessions, or a folder of them."""

    name = "lmcache"
    parameters = ("tokenizer",)

    def sniff(self, path: Path) -> str | None:
        """Why this looks like LMCache's."""
        if any(_is_ours(file) for file, _ in of_folder(path, _SUFFIXES, _is_ours, Tally())):
            return "JSON lines with timestamp, input, output, session_id"
        return None

    def read(
        self, path: Path, *, max_model_len: int, on_overflow: str, parameters: dict[str, str] = {}
    ) -> ProgramSet:
        """A program for every session. Raises WorkloadError with file, line and field."""
        skipped, repaired = Tally(), Tally()
        tree = TextTree(key_of("lmcache text"))
        count = counter(parameters.get("tokenizer"))
        read, files = 0, list[_File]()
        for number, (file, name) in enumerate(of_folder(path, _SUFFIXES, _is_ours, skipped)):
            rows = _File(Requests(self.name, name, number), tree, count, skipped, repaired)
            for line, text in lines(file, name):
                read += 1
                rows.add(Fields(parse_line(text, name, line), f"{name}:{line}"), line)
            files.append(rows)
        tree.measure(count.count)
        tables = [rows.table() for rows in files]
        for rows, table in zip(files, tables, strict=True):
            table.fit(max_model_len, on_overflow, rows.rows.name, skipped, repaired)
        result = program_set(path, self.name, tables, skipped, repaired, read, max_model_len)
        result.parameters = {"tokenizer": count.description}
        return result


def _is_ours(file: Path) -> bool:
    try:
        row = orjson.loads(first_line(file))
    except orjson.JSONDecodeError:
        return False
    return isinstance(row, dict) and {"timestamp", "input", "output", "session_id"} <= row.keys()


class _File:
    """Reads one file into rows."""

    def __init__(
        self, rows: Requests, tree: TextTree, count: Counter, skipped: Tally, repaired: Tally
    ) -> None:
        self.rows = rows
        self.rows.tool = "tool"
        self.tree = tree
        self.count = count
        self.skipped = skipped
        self.repaired = repaired
        self.sessions: dict[str, list[int]] = {}
        self.places: list[tuple[Place, Place]] = []

    def add(self, row: Fields, line: int) -> None:
        """One call."""
        time = row.integer("timestamp", high=1 << 62)
        text, reply = row.text("input"), row.text("output")
        session = row.text("session_id")
        if not session:
            raise row.wrong("session_id", "the session's name")
        if not text:
            self.skipped.add(NO_PROMPT, row.where)
            return
        if not reply:
            self.repaired.add(NO_TOKENS, row.where)
        output = max(1, self.count.count(reply))
        self.sessions.setdefault(session, []).append(len(self.places))
        self.rows.columns.add(line, time / 1e6, 1, output, [])
        self.places.append((self.tree.add(text), self.tree.add(text + reply)))

    def table(self) -> Table:
        """The sessions, once the texts are measured."""
        rows = self.rows
        for row, (prompt, reply) in enumerate(self.places):
            rows.columns.inputs[row] = prompt.total
            rows.texts[row] = self.tree.segments(prompt)
            name = self.tree.reply_id(prompt, reply)
            if name is not None:
                rows.replies[row] = name
            if not self.count.exact:
                self.repaired.add(ESTIMATED, rows.place(row))
        sessions = [in_time_order(found, rows, self.repaired) for found in self.sessions.values()]
        rows.chain(sessions)
        rows.pause({}, {}, self.repaired)
        return rows.table(sessions)


READER = LmcacheReader()
