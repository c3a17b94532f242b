"""Which tool a reply asks for: its name, read from the bytes as they pass."""

from __future__ import annotations

import re

from systems.http1 import Receive

_FIELDS = rb'(?:[^{}"]|"(?:[^"\\]|\\.)*"){0,40}?'
"""Other fields before it, their text whole."""
_NAMED = rb'"name"\s*:\s*"([^"\\]{1,64})"'
_NAME = re.compile(
    rb'"function"\s*:\s*\{' + _FIELDS + _NAMED
    + rb'|"type"\s*:\s*"(?:tool_use|function_call)"' + _FIELDS + _NAMED
)  # fmt: skip
"""A tool call as OpenAI's chat completions name it; as /v1/messages and /v1/responses do. Within a text such
a thing has backslashes before its quotes."""
_OVERLAP = 512
"""Bytes of earlier pieces that are looked at again: a name may come in two."""
MOST = 3
"""Names of tools that run side by side; together they are one tool."""


class Tools:
    """The tools that a reply asks for, once its pieces went ``through``."""

    __slots__ = ("_names", "_tail")

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._tail = b""

    def __str__(self) -> str:
        """The tool, ``a+b`` where several run; "" if the reply asks for none that we recognise."""
        return "+".join(sorted(self._names)[:MOST])

    def through(self, receive: Receive) -> Receive:
        """What takes the pieces of a reply from its beginning, on their way to ``receive``."""
        self._names, self._tail = set(), b""

        def read(stamp: float, piece: bytes) -> None:
            text = self._tail + piece
            for found in _NAME.finditer(text):
                self._names.add((found[1] or found[2]).decode(errors="replace"))
            self._tail = text[-_OVERLAP:]
            receive(stamp, piece)

        return read
