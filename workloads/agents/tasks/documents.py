"""Questions whose answer stands in no single document: totals, extremes and counts over generated ledgers.

A task has 4 to 8 ledgers of 12 to 60 lines (some 40 characters each). ``data``: ``documents`` (text by name),
``question`` (kind, about). Generated from the seed; nothing is read from ``data``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from workloads.agents.contract import Action, Task, Toolbox, ToolSpec, Verdict
from workloads.agents.tasks.ledgers import Entry, find, ledgers, question
from workloads.keys import key_of
from workloads.parameters import nearest
from workloads.sandboxes.contract import Sandbox

SYSTEM = (
    "You answer questions about the ledgers of a company's branches. A line of a ledger is: date; payee; "
    "purpose; amount. Count exactly. End with a line that begins with 'Answer:' and states the answer alone."
)
_LEAST_DOCUMENTS, _MOST_DOCUMENTS = 4, 8
_LEAST_LINES, _MOST_LINES = 12, 60
_LIST = ToolSpec("list_documents", "Names of all documents.", {"type": "object", "properties": {}})
_READ = ToolSpec(
    "read_document",
    "The text of a document.",
    {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
)


class Shelf:
    """The tools of one program: they read, and nothing they do lasts."""

    specs: Sequence[ToolSpec] = (_LIST, _READ)

    def __init__(self, documents: Mapping[str, str]) -> None:
        self._documents = documents

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """What the tool says; of an unknown tool or document, what was wrong."""
        if name == _LIST.name:
            return "\n".join(self._documents)
        if name != _READ.name:
            return f"error: there is no tool {name!r}: {nearest(name, (_LIST.name, _READ.name))}"
        wanted = arguments.get("name")
        if not isinstance(wanted, str):
            return "error: read_document needs the name of a document"
        if wanted not in self._documents:
            return f"error: there is no document {wanted!r}: {nearest(wanted, self._documents)}"
        return self._documents[wanted]


@dataclass
class DocumentsTask:
    """One question; solved if the last answer states what the ledgers say (``right``), and nothing else."""

    name: str
    turns: Sequence[str]
    solution: Sequence[Sequence[Action]]
    data: Mapping[str, Any]
    right: str
    system: str = SYSTEM
    files: Mapping[str, str] = field(default_factory=dict)

    def toolbox(self, sandbox: Sandbox | None) -> Toolbox:
        """Its ledgers on a shelf."""
        del sandbox
        return Shelf(self.data["documents"])

    async def check(self, toolbox: Toolbox, answers: Sequence[str]) -> Verdict:
        """By the line of the last answer that begins with ``Answer:``."""
        del toolbox
        said = _stated(answers[-1] if answers else "")
        payee, _, _ = self.right.rpartition(", ")
        if payee.casefold() in said.casefold() and _numbers(said) == _numbers(self.right):
            return Verdict(True)
        return Verdict(False, f"answered {said[:80]!r}; the ledgers say {self.right!r}")


def _numbers(text: str) -> list[float]:
    return [float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*(?:\.\d+)?", text)]


def _stated(answer: str) -> str:
    """What stands behind the last ``Answer:``; all of it if there is none."""
    stated = re.findall(r"answer\s*:\s*(.+)", answer, re.IGNORECASE)
    return str(stated[-1] if stated else answer).strip()


class Documents:
    """Generated: as many tasks as are asked for, all different."""

    name = "documents"
    needs_sandbox = False

    def missing(self, data: Path | None) -> str:
        """Nothing is."""
        del data
        return ""

    def tasks(self, n: int, seed: int, data: Path | None) -> list[Task]:
        """The first ``n`` of the seed; more of them begin with the same."""
        del data
        return [_task(seed, i) for i in range(n)]


def _task(seed: int, number: int) -> DocumentsTask:
    rng = Random(key_of("documents", seed, number))
    books = ledgers(rng, rng.randint(_LEAST_DOCUMENTS, _MOST_DOCUMENTS), _LEAST_LINES, _MOST_LINES)
    entries = [entry for book in books.values() for entry in book]
    asked = question(rng, entries)
    texts = {f"{branch.lower()}.txt": _text(branch, book) for branch, book in books.items()}
    answer = find(asked, entries).answer(asked.kind)
    return DocumentsTask(
        f"documents-{seed}-{number}",
        turns=(asked.text(),),
        solution=(_solution(texts, answer),),
        data={"documents": texts, "question": list(asked)},
        right=_stated(answer),
    )


def _solution(documents: Iterable[str], answer: str) -> tuple[Action, ...]:
    """Look what there is, read all at once, answer."""
    reads = tuple((_READ.name, {"name": name}) for name in documents)
    look = Action("I look at which ledgers there are.", ((_LIST.name, {}),))
    return look, Action("I read all of them.", reads), Action(answer)


def _text(branch: str, book: Sequence[Entry]) -> str:
    head = f"Ledger of the {branch} branch, March 2031. date; payee; purpose; amount"
    return "\n".join([head, *(entry.line() for entry in book)]) + "\n"


SUITE = Documents()
