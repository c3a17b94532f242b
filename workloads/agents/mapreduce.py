"""Map-Reduce: a call per piece of the documents, all at once, then rounds of calls that put notes together.

Dean and Ghemawat, "MapReduce" (OSDI 2004), as agent frameworks have it over long documents: pieces are read
each in a thread of its own (``map-0``, ...), notes are put together ``fan_in`` at a time (``reduce-L-I`` in
round L) until one is left, and that last call is the answer. The longest chain is 1 + rounds calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from workloads.agents.contract import AgentError, Budget, Chat, Script, Task, Told, Toolbox, Turn
from workloads.agents.scripts import lengthened
from workloads.agents.tasks.ledgers import Question, combine, find, read
from workloads.agents.work import Work, together
from workloads.random_streams import parse_dist

NOTE = parse_dist(
    {"dist": "lognormal", "mu": 3.4, "sigma": 0.4, "min": 1, "max": 200}, "workloads.agents.mapreduce: NOTE"
)
"""Tokens of a note (mean 32): ours."""
_MOST_TOKENS = 300
_LAST = "Put the notes together and answer the question."
_MIDDLE = "Put the notes together to one note, in one line."


@dataclass
class MapReduce:
    """``piece``: longest text of a map call (characters); ``fan_in``: most notes that a reduce call reads."""

    piece: int = 1600
    fan_in: int = 4
    name: str = field(default="mapreduce", init=False)
    suites: tuple[str, ...] = field(default=("documents",), init=False)
    needs: tuple[str, ...] = field(default=(), init=False)
    threads: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        if self.piece < 1 or self.fan_in < 2:
            raise ValueError(
                f"piece must be at least 1 and fan_in at least 2, got {self.piece} and {self.fan_in}"
            )

    def script(self, task: Task, seed: int) -> Script:
        """A reader that makes no mistake. Raises AgentError for a task that is not about ledgers."""
        return Reader(task, seed)

    async def run(self, task: Task, chat: Chat, toolbox: Toolbox, budget: Budget, told: Told) -> list[str]:
        """Its answers to the task's turns. Raises AgentError."""
        work = Work(chat, toolbox, budget, told)
        pieces = self.pieces(task.data["documents"])
        told.notes.update(pieces=len(pieces), rounds=self.rounds(len(pieces)))
        return [await self._answer(task.system, turn, pieces, work) for turn in task.turns]

    def pieces(self, documents: Mapping[str, str]) -> list[tuple[str, str]]:
        """(label, text) of what each map call reads, none longer than ``piece`` characters."""
        found = []
        for name, text in documents.items():
            parts = split(text, self.piece)
            found += [(f"{name}, part {i} of {len(parts)}", part) for i, part in enumerate(parts, 1)]
        return found

    def rounds(self, pieces: int) -> int:
        """How many reduce rounds that many pieces take: at least one, which answers."""
        rounds, notes = 1, -(-pieces // self.fan_in)
        while notes > 1:
            rounds, notes = rounds + 1, -(-notes // self.fan_in)
        return rounds

    async def _answer(self, system: str, asked: str, pieces: Sequence[tuple[str, str]], work: Work) -> str:
        if not pieces:
            raise AgentError("there is no text to read: documents are empty")
        maps = (_map(work, f"map-{i}", system, asked, *piece) for i, piece in enumerate(pieces))
        notes = await together(maps)
        for level in range(self.rounds(len(pieces))):
            groups = [notes[i : i + self.fan_in] for i in range(0, len(notes), self.fan_in)]
            last = len(groups) == 1
            notes = await together(
                _reduce(work, f"reduce-{level}-{i}", system, asked, group, last)
                for i, group in enumerate(groups)
            )
        return notes[0]


def split(text: str, most: int) -> list[str]:
    """Pieces of at most ``most`` characters that join to ``text``, cut behind lines where that can be."""
    pieces, start = [], 0
    while len(text) - start > most:
        end = text.rfind("\n", start, start + most) + 1 or start + most
        pieces.append(text[start:end])
        start = end
    return [*pieces, text[start:]] if text[start:] else pieces


async def _map(work: Work, thread: str, system: str, asked: str, label: str, text: str) -> str:
    # What all calls share stands first: an engine's prefix cache holds it once.
    prompt = (
        f"{asked}\n\nYou see one part of the documents. Write down in one line what of it the answer needs."
    )
    return await _ask(work, thread, system, f"{prompt}\n\n{label}:\n{text}")


async def _reduce(work: Work, thread: str, system: str, asked: str, notes: Sequence[str], last: bool) -> str:
    listed = "\n".join(f"- {' '.join(note.split())}" for note in notes)
    prompt = f"{asked}\n\nOthers read the documents in parts and left these notes:\n{listed}"
    return await _ask(work, thread, system, f"{prompt}\n\n{_LAST if last else _MIDDLE}")


async def _ask(work: Work, thread: str, system: str, text: str) -> str:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": text}]
    return (await work.ask(messages, thread=thread, max_tokens=_MOST_TOKENS)).text


class Reader:
    """Answers from what stands in the call itself: lines of ledgers, or notes."""

    def __init__(self, task: Task, seed: int) -> None:
        if "question" not in task.data:
            raise AgentError(f"{task.name}: its data has no question, so there is no script for it")
        self._question = Question(*task.data["question"])
        self._name = task.name
        self._seed = seed

    def turn(self, thread: str, index: int, asked: Mapping[str, Any]) -> Turn:
        """A note, or the answer. Raises AgentError in a thread that is neither map nor reduce."""
        text = str(asked["messages"][-1]["content"]) if asked["messages"] else ""
        if thread.startswith("map-"):
            said = find(self._question, read(text)).note(self._question.kind)
        elif thread.startswith("reduce-"):
            found = combine(self._question, text)
            last = text.endswith(_LAST)
            said = found.answer(self._question.kind) if last else found.note(self._question.kind)
        else:
            raise AgentError(f"the script of {self._name} has nothing for thread {thread}")
        return lengthened(Turn(said), NOTE, asked, self._seed, self._name, thread, index)


AGENT = MapReduce()
