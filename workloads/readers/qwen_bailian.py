"""Reads the Qwen-Bailian traces (JSON lines): chats as trees of calls.

Fields ``chat_id``, ``parent_chat_id`` (-1 or absent for a root), ``timestamp`` (s), ``input_length``,
``output_length``, ``hash_ids`` (blocks of 16 tokens); ``type`` and ``turn`` are ignored.

* A program is a root with all that follow it. A call with several successors is followed by
  all of them, each after the time between the two requests.
* Every prompt is whole, as the service got it. Equal ids are equal text everywhere in a file.
  A file has one id for every whole block, or one more for what is left; a row that differs
  from the rows before it is refused.
"""

from __future__ import annotations

from array import array
from pathlib import Path

import orjson

from workloads.base import ProgramSet, WorkloadError
from workloads.files import Fields, Tally, first_line, of_folder
from workloads.requests import NO_PROMPT, NO_TOKENS, Requests, block_ids, forks_of, program_set
from workloads.rows import MOST_TOKENS, Table
from workloads.streams import lines, parse_line

BLOCK = 16
NO_PARENT = "parent that is not in the file, taken as a root"
_SUFFIXES = (".jsonl", ".json")


class QwenBailianReader:
    """A JSON-lines file, or a folder of them."""

    name = "qwen-bailian"

    def sniff(self, path: Path) -> str | None:
        """Why this looks like a Qwen-Bailian trace."""
        if any(_is_ours(file) for file, _ in of_folder(path, _SUFFIXES, _is_ours, Tally())):
            return "JSON lines with chat_id and parent_chat_id"
        return None

    def read(self, path: Path, *, max_model_len: int, on_overflow: str) -> ProgramSet:
        """A program for every root. Raises WorkloadError with file, line and field."""
        skipped, repaired = Tally(), Tally()
        tables, read = list[Table](), 0
        for number, (file, name) in enumerate(of_folder(path, _SUFFIXES, _is_ours, skipped)):
            rows = _File(Requests(self.name, name, number, BLOCK), skipped, repaired)
            for line, text in lines(file, name):
                read += 1
                rows.add(Fields(parse_line(text, name, line), f"{name}:{line}"), line)
            table = rows.table()
            table.fit(max_model_len, on_overflow, name, skipped, repaired)
            tables.append(table)
        return program_set(path, self.name, tables, skipped, repaired, read, max_model_len)


def _is_ours(file: Path) -> bool:
    try:
        row = orjson.loads(first_line(file))
    except orjson.JSONDecodeError:
        return False
    return isinstance(row, dict) and {"chat_id", "input_length"} <= row.keys()


class _File:
    """Reads one file into rows, then into trees."""

    def __init__(self, rows: Requests, skipped: Tally, repaired: Tally) -> None:
        self.rows = rows
        self.skipped = skipped
        self.repaired = repaired
        self.chats: dict[int, int] = {}
        self.parents = array("q")
        self.rest_has_id: bool | None = None

    def add(self, row: Fields, line: int) -> None:
        """One request."""
        chat = row.integer("chat_id", low=-(1 << 62), high=1 << 62)
        if chat in self.chats:
            first = self.rows.place(self.chats[chat])
            raise WorkloadError(
                f"{row.where}.chat_id: {chat} is that of {first}, too; every call has its own"
            )
        tokens = row.integer("input_length", high=MOST_TOKENS)
        output = row.integer("output_length", high=MOST_TOKENS)
        time = row.seconds("timestamp")
        if time is None:
            raise row.wrong("timestamp", "a number of seconds")
        if not tokens:
            self.skipped.add(NO_PROMPT, row.where)
            return
        if not output:
            self.repaired.add(NO_TOKENS, row.where)
        self.chats[chat] = len(self.parents)
        self.parents.append(row.integer("parent_chat_id", low=-(1 << 62), high=1 << 62, default=-1))
        self.rows.columns.add(line, time, tokens, max(1, output), self.ids(row, tokens))

    def ids(self, row: Fields, tokens: int) -> list[int]:
        """The block ids, whose number must be right."""
        ids = row.items("hash_ids")
        if not row.has("hash_ids"):
            return ids
        whole, rest = divmod(tokens, BLOCK)
        if rest and self.rest_has_id is None and len(ids) in (whole, whole + 1):
            self.rest_has_id = len(ids) > whole
        right = whole + bool(rest and self.rest_has_id)
        rounding = "ceil" if right > whole else "floor"
        return block_ids(row, right, f"{rounding}({tokens} / {BLOCK})")

    def table(self) -> Table:
        """The trees of what was read."""
        rows, roots = self.rows, list[int]()
        rows.columns.refuse_partial_and_whole(BLOCK, rows.name, "hash_ids")
        parents = array("q", [-1]) * len(self.parents)
        for row, chat in enumerate(self.parents):
            parents[row] = self.chats.get(chat, -1)
            if parents[row] < 0:
                roots.append(row)
                if chat != -1:
                    self.repaired.add(NO_PARENT, rows.place(row))
        trees = forks_of(roots, parents, rows.name)
        if sum(map(len, trees)) < len(parents):
            inside = {row for tree in trees for row in tree}
            lost = next(row for row in range(len(parents)) if row not in inside)
            raise WorkloadError(f"{rows.place(lost)}.parent_chat_id: the call follows itself")
        rows.parents = parents
        rows.pause({}, {}, self.repaired)
        rows.count_continued(self.repaired)
        return rows.table(trees)


READER = QwenBailianReader()
