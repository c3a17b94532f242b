"""The call log of an engine's scheduler, followed: every row goes to the call that waits for it, once."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from systems.gateway.usage import row_of

_PIECE = 1 << 20
_KINDS = ("chatcmpl-", "cmpl-", "resp_")
_RANDOM = re.compile(r"-[0-9a-f]{8}$")
_PART = re.compile(r"[-_]\d+$")
_SAMPLE = re.compile(r"^\d+_")


def names_of(request_id: str) -> list[str]:
    """What the gateway may have called a request that vLLM calls ``request_id``.

    vLLM puts the kind (cmpl-, chatcmpl-) in front, and behind it the prompt's number and 8 random
    digits; a further sample has its number in front.
    """
    name = _SAMPLE.sub("", request_id)
    for kind in _KINDS:
        if name.startswith(kind):
            name = name.removeprefix(kind)
            break
    short = _RANDOM.sub("", name)
    return [short, _PART.sub("", short), name, _PART.sub("", name)]


class CallLog:
    """One engine's log, read from where it ended when the gateway began.

    One that is not there yet is looked for again; a new one in its place is read whole.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._file: int | None = None
        self._rest = b""
        self._expected: dict[str, list[Mapping[str, Any]]] = {}
        self._open(at_end=True)

    def __len__(self) -> int:
        return len(self._expected)

    @property
    def readable(self) -> bool:
        """Whether it could be opened."""
        return self._file is not None or self._open()

    def expect(self, name: str) -> None:
        """A call of this name is about to be sent."""
        self._expected[name] = []

    def forget(self, name: str) -> None:
        """Nobody waits for its rows any more."""
        self._expected.pop(name, None)

    def rows(self, name: str) -> list[Mapping[str, Any]]:
        """The rows of an expected call so far."""
        self.read()
        if not self._expected.get(name) and self._new_file():
            self.read()
        return self._expected.get(name, [])

    def read(self) -> None:
        """Take in what was written since."""
        if not self.readable or self._file is None:
            return
        more = True
        while more:
            piece = os.read(self._file, _PIECE)
            *lines, self._rest = (self._rest + piece).split(b"\n")
            for line in lines:
                self._deliver(line)
            more = len(piece) == _PIECE

    def close(self) -> None:
        """Done; idempotent."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open(self, at_end: bool = False) -> bool:
        try:
            self._file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        if at_end:
            os.lseek(self._file, 0, os.SEEK_END)
        return True

    def _new_file(self) -> bool:
        """Whether an engine that was started again has begun a new file, which is open now."""
        if self._file is None:
            return False
        try:
            there = os.stat(self._path)
        except OSError:
            return False
        here = os.fstat(self._file)
        if there.st_ino == here.st_ino and here.st_size >= os.lseek(self._file, 0, os.SEEK_CUR):
            return False
        self.close()
        self._rest = b""
        return self._open()

    def _deliver(self, line: bytes) -> None:
        found = row_of(line)
        if found is None:
            return
        for name in names_of(found[0]):
            waiting = self._expected.get(name)
            if waiting is not None:
                waiting.append(found[1])
                return
