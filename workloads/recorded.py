"""The lines of a gateway's recording: pieces of prompts, and calls (docs/recording.md)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from workloads.base import WorkloadError
from workloads.files import Fields, Tally
from workloads.keys import key_of
from workloads.streams import lines, parse_line

FORMAT = "gateway-recording/1"
OUTCOMES = ("finished", "error", "refused", "disconnected", "lost", "timeout")
ROLES = "hsuatf?"
TORN = "last line cut short by a crash"
DROPPED = "lines that a full disk took"
LOST = "prompt whose lines were lost: shares nothing"
EARLY = 0.1
"""Quantile of what calls took outside of their engines."""
_HASH = 16
_LONGEST = 1 << 22


@dataclass(slots=True, eq=False)
class Piece:
    """``hashes``: chained, one a block of ``block`` (bytes, or tokens where ``unit`` is token), the last one
    may be shorter. ``said``: of an assistant's, hashes of what it says, of ``said_size`` bytes."""

    after: Piece | None
    role: str
    unit: str
    size: int
    block: int
    hashes: tuple[int, ...]
    said: tuple[int, ...] = ()
    said_size: int = 0

    def path(self) -> list[Piece]:
        """From the first piece to this one."""
        found = [self]
        while (before := found[-1].after) is not None:
            found.append(before)
        return found[::-1]


@dataclass(slots=True, eq=False)
class Seen:
    """A call that finished. Times in seconds since the recording began, ``engine_s`` what it was in its
    engine by the scheduler's log, None: not known. ``reply``: hashes, of ``reply_size`` bytes or tokens.

    ``prompt`` None: it shares nothing that is known. ``follows``: the call whose reply its prompt quotes.
    ``overhead``: seconds of a call outside of its engine, 0 where ``engine_s`` is not known.
    """

    where: str
    program: int
    named: bool
    thread: int
    start: float
    end: float
    prompt_tokens: int
    output_tokens: int
    engine_s: float | None
    model: str
    tools: int
    prompt: Piece | None = None
    reply: tuple[int, ...] = ()
    reply_size: int = 0
    follows: Seen | None = None
    overhead: float = 0.0

    @property
    def by_tool(self) -> bool:
        """Whether it brings a tool's result."""
        return self.prompt is not None and self.prompt.role == "t"


@dataclass(slots=True, eq=False)
class Recording:
    """One start of a gateway. ``key``: of its hashes; ``wall``: Unix time at 0 s; calls by their arrival."""

    key: int
    wall: float
    calls: list[Seen] = field(default_factory=list)
    read: int = 0


def recording(path: Path, name: str, skipped: Tally, repaired: Tally) -> Recording:
    """One file. Raises WorkloadError with file, line and field."""
    rows = _rows(path, name, skipped)
    head = next(rows, None)
    if head is None or head.values.get("format") != FORMAT:
        raise WorkloadError(f'{name}: the first line must say "format": "{FORMAT}"')
    return _File(head, skipped, repaired).read(rows)


def _rows(path: Path, name: str, skipped: Tally) -> Iterator[Fields]:
    """The lines; a last one that is cut short is left out and counted."""
    wrong: WorkloadError | None = None
    where = name
    for number, line in lines(path, name):
        if wrong is not None:
            raise wrong
        where = f"{name}:{number}"
        try:
            value = parse_line(line, name, number)
        except WorkloadError as error:
            wrong = error
            continue
        yield Fields(value, where)
    if wrong is not None:
        if line.endswith(b"\n"):
            raise wrong
        skipped.add(TORN, where)


class _File:
    def __init__(self, head: Fields, skipped: Tally, repaired: Tally) -> None:
        if not head.text("salt"):
            raise head.wrong("salt", "the fingerprint of a salt")
        wall = head.values.get("wall")
        if isinstance(wall, bool) or not isinstance(wall, int | float) or not 0 <= wall < 1 << 40:
            raise head.wrong("wall", "Unix time in seconds")
        self.found = Recording(key_of("gateway", head.text("salt")), float(wall))
        self.blocks = {
            "byte": head.integer("text_block", low=1, high=1 << 20),
            "token": head.integer("id_block", low=1, high=1 << 20),
        }
        self.skipped = skipped
        self.repaired = repaired
        self.pieces: dict[int, Piece] = {}
        self.models: dict[int, str] = {}

    def read(self, rows: Iterator[Fields]) -> Recording:
        for row in rows:
            self.found.read += 1
            match row.values.get("event"):
                case "piece":
                    self.pieces[row.integer("piece", low=1)] = self.piece(row)
                case "model":
                    self.models[row.integer("model")] = row.text("name")
                case "call":
                    self.call(row)
                case "dropped":
                    self.found.read += row.integer("lines", low=1) - 1
                    for _ in range(min(row.integer("lines", low=1), 1 << 20)):
                        self.skipped.add(DROPPED, row.where)
                case _:
                    raise row.wrong("event", "piece, model, call or dropped")
        self.found.calls.sort(key=lambda call: (call.start, call.end))
        _set_overhead(self.found.calls)
        return self.found

    def piece(self, row: Fields) -> Piece:
        unit, role, number = row.text("unit"), row.text("role"), row.integer("after")
        if unit not in self.blocks:
            raise row.wrong("unit", "byte or token")
        if len(role) != 1 or role not in ROLES:
            raise row.wrong("role", f"a letter of {ROLES}")
        if number >= row.integer("piece"):
            raise row.wrong("after", "an earlier piece, or 0")
        size, block = row.integer("size", low=1, high=1 << 34), self.blocks[unit]
        hashes = _hashes(row, "hashes", -(-size // block))
        said_size = row.integer("said_size", high=1 << 34, default=0)
        said = _hashes(row, "said", -(-said_size // self.blocks["byte"]))
        after = self.pieces.get(number) if number else None
        if number and after is None:
            after = _GONE
        return Piece(after, role, unit, size, block, hashes, said, said_size)

    def call(self, row: Fields) -> None:
        outcome = row.text("outcome")
        if outcome not in OUTCOMES:
            raise row.wrong("outcome", f"one of {', '.join(OUTCOMES)}")
        start, end = row.seconds("t_arrive"), row.seconds("t_end")
        if start is None or end is None or end < start:
            raise row.wrong("t_end", "t_arrive and, not before it, t_end")
        if outcome != "finished":
            self.skipped.add(f"call that did not finish ({outcome})", row.where)
            return
        tokens = row.integer("prompt_tokens", low=-1, high=_LONGEST)
        output = row.integer("output_tokens", low=-1, high=_LONGEST)
        if tokens < 1 or output < 0:
            self.skipped.add("call whose tokens nobody counted", row.where)
            return
        if not output:
            self.repaired.add("reply of 0 tokens, 1 taken", row.where)
        seen = Seen(
            row.where, row.integer("program"), _flag(row, "named"), row.integer("thread"), start, end, tokens,
            max(1, output), row.seconds("engine_s"), self.model(row),
            row.integer("tools", default=0),
        )  # fmt: skip
        self.content(row, seen)
        self.found.calls.append(seen)

    def model(self, row: Fields) -> str:
        return self.models.get(row.integer("model"), "") if row.has("model") else ""

    def content(self, row: Fields, seen: Seen) -> None:
        if row.has("unreadable"):
            self.repaired.add(f"prompt that shares nothing: {row.text('unreadable')}", row.where)
            return
        piece = self.pieces.get(row.integer("prompt", low=1))
        if piece is None or piece.path()[0] is _GONE:
            self.repaired.add(LOST, row.where)
            return
        seen.prompt, seen.reply = piece, _hashes(row, "reply")
        seen.reply_size = row.integer("reply_size", high=1 << 34)


def _set_overhead(calls: list[Seen]) -> None:
    """Front, HTTP and the way from tokens to text: what EARLY of the calls took outside of their engines.

    Others came in the middle of a step, and until its end their scheduler did not know of them: a simulated
    engine makes that wait itself.
    """
    outside = sorted(one.end - one.start - one.engine_s for one in calls if one.engine_s is not None)
    if outside:
        least = max(0.0, outside[int(EARLY * (len(outside) - 1))])
        for call in calls:
            call.overhead = 0.0 if call.engine_s is None else least


_GONE = Piece(None, "?", "byte", 1, 1, (0,))
"""Stands for what came before a piece and was lost."""


def _flag(row: Fields, name: str) -> bool:
    value = row.values.get(name)
    if not isinstance(value, bool):
        raise row.wrong(name, "true or false")
    return value


def _hashes(row: Fields, name: str, right: int | None = None) -> tuple[int, ...]:
    """The hashes of a field, of which there must be ``right``."""
    text = row.text(name)
    try:
        found = tuple(int(text[i : i + _HASH], 16) for i in range(0, len(text), _HASH))
    except ValueError:
        raise row.wrong(name, "hexadecimal hashes") from None
    if len(text) % _HASH or (right is not None and len(found) != right):
        expected = f"{right} hashes" if right is not None else "hashes"
        raise row.wrong(name, f"{expected} of {_HASH} hexadecimal digits")
    return found
