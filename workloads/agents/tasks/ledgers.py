"""Ledgers, questions about them, and a reader that makes no mistake.

A ledger is lines ``date; payee; purpose; amount`` under a heading. The reader answers in place of a model
(``workloads.agents.mapreduce``), and says what is true when tasks are made.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from random import Random
from typing import NamedTuple

KINDS = ("total", "largest", "count")
NOTHING = "nothing in this part"
_BRANCHES = (
    "Ashford", "Brill", "Corwen", "Dunmore", "Elstow", "Farley", "Garth", "Holmby", "Ivel", "Jarrow",
)  # fmt: skip
_PAYEES = (
    "Harbor Mill", "Lindqvist Freight", "Oakes and Daughters", "Pell Printing", "Quay Insurance",
    "Rook Bakery", "Saltmarsh Energy", "Tallis Glass",
)  # fmt: skip
_PURPOSES = ("freight", "insurance", "power", "printing", "rent", "repairs")
_LINE = re.compile(r"^(\d{4}-\d\d-\d\d); ([^;\n]+); ([^;\n]+); (\d+\.\d\d)$", re.MULTILINE)
_NOTE = re.compile(
    r"total (?P<total>\d+\.\d\d)|count (?P<count>\d+)|largest (?P<largest>\d+\.\d\d) to (?P<payee>[^;\n]+)"
)


class Entry(NamedTuple):
    """A payment; ``cents``: hundredths."""

    date: str
    payee: str
    purpose: str
    cents: int

    def line(self) -> str:
        """As it stands in a ledger."""
        return f"{self.date}; {self.payee}; {self.purpose}; {money(self.cents)}"


class Question(NamedTuple):
    """``kind``: one of KINDS. ``about``: the payee of a total, the purpose of a count, "" of the largest."""

    kind: str
    about: str

    def text(self) -> str:
        """In words."""
        return {
            "total": f"How much was paid to {self.about} in all ledgers together?",
            "largest": "Which is the largest single payment of all ledgers? Name its payee and its amount.",
            "count": f"How many payments of all ledgers together were for {self.about}?",
        }[self.kind]


class Found(NamedTuple):
    """What part of the ledgers says to a question: hundredths or a number, and the payee of the largest."""

    number: int
    payee: str = ""

    def note(self, kind: str) -> str:
        """As a reader writes it down."""
        if kind == "count":
            return f"count {self.number}"
        if kind == "total":
            return f"total {money(self.number)}"
        return f"largest {money(self.number)} to {self.payee}" if self.payee else NOTHING

    def answer(self, kind: str) -> str:
        """As the end of a program."""
        if kind == "largest":
            return f"Answer: {self.payee}, {money(self.number)}"
        return f"Answer: {self.number if kind == 'count' else money(self.number)}"


def money(cents: int) -> str:
    """Hundredths with a decimal point."""
    return f"{cents // 100}.{cents % 100:02d}"


def ledgers(rng: Random, n: int, least: int, most: int) -> dict[str, list[Entry]]:
    """``n`` (up to 10) ledgers of ``least`` to ``most`` lines by branch; no amount comes twice."""
    lengths = [rng.randint(least, most) for _ in range(n)]
    amounts = iter(rng.sample(range(500, 250_000), sum(lengths)))
    found = {}
    for branch, length in zip(rng.sample(_BRANCHES, n), lengths, strict=True):
        days = sorted(rng.randint(1, 28) for _ in range(length))
        found[branch] = [
            Entry(f"2031-03-{day:02d}", rng.choice(_PAYEES), rng.choice(_PURPOSES), next(amounts))
            for day in days
        ]
    return found


def question(rng: Random, entries: Sequence[Entry]) -> Question:
    """One of the three kinds, about somebody or something that occurs."""
    kind, some = rng.choice(KINDS), rng.choice(entries)
    return Question(kind, {"total": some.payee, "largest": "", "count": some.purpose}[kind])


def read(text: str) -> list[Entry]:
    """The entries that stand in ``text``, whatever else does."""
    return [
        Entry(date, payee, purpose, int(amount.replace(".", "")))
        for date, payee, purpose, amount in _LINE.findall(text)
    ]


def find(asked: Question, entries: Iterable[Entry]) -> Found:
    """What they say to the question."""
    if asked.kind == "total":
        return Found(sum(entry.cents for entry in entries if entry.payee == asked.about))
    if asked.kind == "count":
        return Found(sum(entry.purpose == asked.about for entry in entries))
    top = max(entries, key=lambda entry: entry.cents, default=None)
    return Found(top.cents, top.payee) if top else Found(0)


def combine(asked: Question, notes: str) -> Found:
    """What all notes in a text say together."""
    parts = [
        Found(int(note[asked.kind].replace(".", "")), note["payee"] or "")
        for note in _NOTE.finditer(notes)
        if note[asked.kind] is not None
    ]
    if asked.kind == "largest":
        return max(parts, default=Found(0))
    return Found(sum(part.number for part in parts))
