"""Records what passes through a gateway as a workload: lengths, times and salted hashes, no text.

A folder gets a file for each start of a gateway (docs/recording.md). What prompts are made of is written
once, as a tree of pieces; a call names its last one. The event loop hashes after the reply has gone out;
a thread writes.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from systems.gateway.appending import FLUSH_S, Appending
from systems.gateway.observe import Passage
from systems.gateway.record.hashes import ID_BLOCK, TEXT_BLOCK, Hashes
from systems.gateway.record.prompts import FLAT, Piece, Prompt, Unreadable, ids_of, prompt_of
from systems.gateway.record.replies import Heard
from systems.gateway.ticket import Ticket
from vocabulary import BLOCK, GateEvent, KeepEvent

_LOG = logging.getLogger("gateway")
FORMAT: Final = "gateway-recording/1"
"""In the first line of each file; another number where a reader of this one would go wrong."""
MOST_PIECES = 100_000
"""Pieces that are known by their number; one that was forgotten is written again. About 200 bytes each."""
NAME_CHARS = 256
TIMES = ("t_arrive", "t_send", "t_first", "t_end")


class _Known(NamedTuple):
    """A piece that is in the file: its number, the hashes of its end and of its last whole block."""

    number: int
    end: bytes
    whole: bytes


class Recorder:
    """An observer that appends to a new file in ``folder``, which is made if it is not there.

    ``facts`` go into the first line. Opening raises OSError; nothing does later: see ``Appending``.
    """

    def __init__(
        self, folder: Path, facts: Mapping[str, Any], *, flush_s: float = FLUSH_S, salt: bytes | None = None
    ) -> None:
        self.hashes = Hashes(salt)
        head = {
            "event": "recording", "format": FORMAT, "salt": self.hashes.fingerprint, **facts,
            "text_block": TEXT_BLOCK, "id_block": BLOCK,
        }  # fmt: skip
        folder.mkdir(parents=True, exist_ok=True)
        self.file = _opened(folder, orjson.dumps(head), flush_s)
        self._heard: dict[int, Heard] = {}
        self._threads: dict[int, dict[str, int]] = {}
        self._models: dict[str, int] = {}
        self._over: list[tuple[Passage, Heard | None] | int] = []
        self._pieces: OrderedDict[bytes, _Known] = OrderedDict()
        self._number = 0
        self._dropped = 0

    def hear(self, ticket: Ticket) -> Heard:
        """What listens to the reply of a call that is sent now."""
        heard = self._heard[ticket.passage.seq] = Heard(ticket.ask)
        return heard

    def left(self, call: Passage) -> None:
        """It is written when the loop comes to it: its client has the reply's end first."""
        if call.program >= 0:  # else it is no call
            self._later((call, self._heard.pop(call.seq, None)))

    def ended(self, program: int, name: str, why: str, now: float) -> None:  # noqa: ARG002
        """Its numbers are not needed any more, once its last call is written."""
        self._later(program)

    def close(self) -> None:
        """Write the rest; idempotent."""
        self._work()
        self.file.close()

    def arrived(self, call: Passage) -> None:
        """Nothing: a call is written when it is over."""

    def held(self, call: Passage) -> None:
        """Nothing."""

    def sent(self, call: Passage) -> None:
        """Nothing."""

    def first(self, call: Passage) -> None:
        """Nothing."""

    def started(self, program: int, name: str, now: float) -> None:
        """Nothing."""

    def engine(self, engine: int, what: str, reason: str, now: float) -> None:
        """Nothing."""

    def gate(self, event: GateEvent, name: str) -> None:
        """Nothing."""

    def kept(self, event: KeepEvent, name: str) -> None:
        """Nothing."""

    # -- writing -----------------------------------------------------------------------

    def _later(self, one: tuple[Passage, Heard | None] | int) -> None:
        if not self._over:
            asyncio.get_running_loop().call_soon(self._work)
        self._over.append(one)

    def _work(self) -> None:
        over, self._over = self._over, []
        for one in over:
            if isinstance(one, int):
                self._threads.pop(one, None)
                continue
            call, heard = one
            try:
                self._call(call, heard)
            except Exception:  # whatever a body makes of us: its client has its reply
                _LOG.exception("call %d is not recorded", call.seq)
                self.file.drop(1)

    def _put(self, line: Mapping[str, Any]) -> None:
        self.file.append(orjson.dumps(line))

    def _call(self, call: Passage, heard: Heard | None) -> None:
        """Its line, behind those of the pieces that are new."""
        if self.file.dropped != self._dropped:  # pieces may be missing in the file: write all of them anew
            self._dropped = self.file.dropped
            self._pieces.clear()
            self._models.clear()
        line: dict[str, Any] = {
            "event": "call", "seq": call.seq, "program": call.program, "named": bool(call.name),
            "thread": self._thread(call), "index": call.index, "attempt": call.attempt,
            "endpoint": call.endpoint, "stream": call.stream, "engine": call.engine, "outcome": call.outcome,
        }  # fmt: skip
        for name in TIMES:
            value = getattr(call, name)
            line[name] = None if math.isnan(value) else round(value, 6)
        line |= {
            "prompt_tokens": call.prompt_tokens, "output_tokens": call.output_tokens,
            "cached_tokens": call.cached_tokens,
        }  # fmt: skip
        if call.source == "log":
            line["engine_s"] = round(call.exec_s + call.wait_s, 6)
        if heard is not None and call.outcome == "finished":
            line["model"] = self._model(heard.ask.model)
            line |= self._content(heard)
        self._put(line)

    def _content(self, heard: Heard) -> dict[str, Any]:
        """The prompt's last piece, and how the reply would go on in another prompt."""
        try:
            prompt = prompt_of(heard.ask)
        except Unreadable as error:
            return {"unreadable": str(error)}
        known = self._prompt(prompt)
        flat = prompt.pieces[-1].role == FLAT
        size, hashes = self._going_on(prompt, known.whole, heard) if flat else self._reply(heard.said())
        return {"prompt": known.number, "tools": heard.tools(), "reply_size": size, "reply": _hex(hashes)}

    def _prompt(self, prompt: Prompt) -> _Known:
        """Its last piece."""
        block = ID_BLOCK if prompt.unit == "token" else TEXT_BLOCK
        start = self.hashes.of(prompt.apart)
        known = _Known(0, start, start)
        for piece in prompt.pieces:
            known = self._piece(piece, prompt.unit, block, known)
        return known

    def _piece(self, piece: Piece, unit: str, block: int, before: _Known) -> _Known:
        """Written if it is new."""
        key = self.hashes.of(piece.data, before.end)
        known = self._pieces.get(key)
        if known is not None:
            self._pieces.move_to_end(key)
            return known
        hashes = self.hashes.blocks(piece.data, before.end, block)
        self._number += 1
        size = len(piece.data) // (ID_BLOCK // BLOCK) if unit == "token" else len(piece.data)
        line = {
            "event": "piece", "piece": self._number, "after": before.number, "role": piece.role, "unit": unit,
            "size": size, "hashes": _hex(hashes),
        }  # fmt: skip
        if piece.role == "a":
            line["said_size"], said = self._reply(piece.said)
            line["said"] = _hex(said)
        self._put(line)
        whole = [before.end, *hashes][len(piece.data) // block]
        found = self._pieces[key] = _Known(self._number, [before.end, *hashes][-1], whole)
        if len(self._pieces) > MOST_PIECES:
            self._pieces.popitem(last=False)
        return found

    def _reply(self, said: bytes) -> tuple[int, list[bytes]]:
        """(bytes, hashes) of what is said, wherever it is said."""
        return len(said), self.hashes.blocks(said, self.hashes.of(b"said"), TEXT_BLOCK)

    def _going_on(self, prompt: Prompt, after: bytes, heard: Heard) -> tuple[int, list[bytes]]:
        """(bytes or tokens of the reply, hashes of the whole blocks that it fills behind the prompt)."""
        token = prompt.unit == "token"
        block = ID_BLOCK if token else TEXT_BLOCK
        data = ids_of(heard.ids()) if token else heard.said()
        tail = prompt.pieces[-1].data
        rest = len(tail) % block
        all_of_it = (tail[len(tail) - rest :] if rest else b"") + data
        hashes = self.hashes.blocks(all_of_it[: len(all_of_it) // block * block], after, block)
        return len(data) // (ID_BLOCK // BLOCK) if token else len(data), hashes

    def _thread(self, call: Passage) -> int:
        threads = self._threads.setdefault(call.program, {})
        return threads.setdefault(call.thread, len(threads))

    def _model(self, name: str) -> int:
        found = self._models.get(name)
        if found is None:
            found = self._models[name] = len(self._models)
            self._put({"event": "model", "model": found, "name": name[:NAME_CHARS]})
        return found


def _opened(folder: Path, head: bytes, flush_s: float) -> Appending:
    """A file that was not there: of each start its own. Raises OSError."""
    number = 1 + max((int(path.stem[6:]) for path in folder.glob("calls-[0-9]*.jsonl")), default=0)
    path = folder / f"calls-{number:04d}.jsonl"
    return Appending(path, head, what="recording", flush_s=flush_s, new=True)


def _hex(hashes: list[bytes]) -> str:
    return b"".join(hashes).hex()
