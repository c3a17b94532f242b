"""The records of a JSON file one after another: an array, JSON lines, or a single value.

One record is decoded at a time: a file of a million records needs its text in memory, and
one record.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NoReturn

from workloads.base import WorkloadError

_SPACE = re.compile(r"\s*")


def records(data: bytes, name: str) -> Iterator[tuple[str, Any]]:
    """(place, value) of each record: ``name#i`` in an array, ``name:line`` in JSON lines.

    Raises WorkloadError with line and column where the JSON is broken.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise WorkloadError(f"{name}: not UTF-8 text (byte {error.start})") from error
    scan = _Scan(text, name)
    if text[scan.at : scan.at + 1] == "[":
        yield from scan.array()
    else:
        yield from scan.lines()


class _Scan:
    """A place in a text, behind white space."""

    def __init__(self, text: str, name: str) -> None:
        self.text = text
        self.name = name
        self.decoder = json.JSONDecoder(parse_constant=self._constant)
        self.at = 0
        self.skip()

    def array(self) -> Iterator[tuple[str, Any]]:
        """The elements of the array that begins here; nothing may follow it."""
        self.step()
        index = 0
        while self.peek() != "]" or index:
            yield f"{self.name}#{index}", self.value()
            index += 1
            if self.peek() == "]":
                break
            if self.peek() != ",":
                raise self.broken("a comma or ] is missing")
            self.step()
        self.step()
        if self.at < len(self.text):
            raise self.broken("something follows the array")

    def lines(self) -> Iterator[tuple[str, Any]]:
        """The values that follow each other, with the line each begins on."""
        line, counted = 1, 0
        while self.at < len(self.text):
            line += self.text.count("\n", counted, self.at)
            counted = self.at
            yield f"{self.name}:{line}", self.value()

    def value(self) -> Any:
        """The value that begins here."""
        try:
            value, self.at = self.decoder.raw_decode(self.text, self.at)
        except json.JSONDecodeError as error:
            self.at = error.pos
            raise self.broken(error.msg) from error
        except RecursionError:
            raise WorkloadError(f"{self.name}: JSON nested too deeply") from None
        except ValueError as error:  # an integer of thousands of digits
            if isinstance(error, WorkloadError):
                raise
            raise WorkloadError(f"{self.name}: {error}") from error
        self.skip()
        return value

    def peek(self) -> str:
        """The next character; empty at the end."""
        return self.text[self.at : self.at + 1]

    def step(self) -> None:
        """Pass one character."""
        self.at += 1
        self.skip()

    def skip(self) -> None:
        """Pass white space."""
        match = _SPACE.match(self.text, self.at)
        self.at = match.end() if match else self.at

    def broken(self, why: str) -> WorkloadError:
        """The error for this place."""
        line = self.text.count("\n", 0, self.at) + 1
        column = self.at - self.text.rfind("\n", 0, self.at)
        return WorkloadError(f"{self.name}:{line}:{column}: broken JSON ({why})")

    def _constant(self, constant: str) -> NoReturn:
        raise WorkloadError(f"{self.name}: {constant} is no JSON number")
