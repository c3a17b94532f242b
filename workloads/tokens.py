"""How many tokens a text has: by a tokenizer that is given, else by an estimate whose error is stated.

Traces that hold text and no lengths need one of the two. A reader whose ``parameters``
name ``tokenizer`` takes the name of a tokenizer or the path of its ``tokenizer.json``.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from workloads.base import WorkloadError

INSTALL = "pip install 'agent-serving-bench[tokens]'"


class Counter(Protocol):
    """Counts the tokens of a text. Two counters of one description count alike."""

    @property
    def exact(self) -> bool:
        """Whether the counts are those of a tokenizer."""

    @property
    def description(self) -> str:
        """What counts, for people and for the workload's hash."""

    def count(self, text: str) -> int:
        """Tokens of ``text`` by itself, without special tokens; 0 only for the empty text."""


def counter(name: str | None = None) -> Counter:
    """The counter for ``-p tokenizer=NAME|FILE``; the estimate for None.

    Raises WorkloadError if the library is not there, or the tokenizer cannot be had.
    """
    return _counter(name) if name else ESTIMATE


@cache
def _counter(name: str) -> Counter:
    return _Tokenizer(name)


class _Tokenizer:
    """A tokenizer of the ``tokenizers`` library, from a file or by its name on the hub."""

    exact = True

    def __init__(self, name: str) -> None:
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise WorkloadError(
                f"tokenizer={name}: needs the tokenizers library ({INSTALL}); "
                "leave it out to estimate the lengths"
            ) from error
        self._tokenizer: Any = _from_file(Tokenizer, name) if Path(name).exists() else _named(Tokenizer, name)
        content = hashlib.sha256(self._tokenizer.to_str().encode()).hexdigest()
        self.description = f"{Path(name).name} (sha256 {content[:16]})"

    def count(self, text: str) -> int:
        """Tokens of the text, without those that mark its begin and end."""
        if not text:
            return 0
        # JSON may hold halves of surrogate pairs, which are no text.
        clean = text.encode("utf-8", "replace").decode()
        return max(1, len(self._tokenizer.encode(clean, add_special_tokens=False).ids))


def _from_file(tokenizer: Any, name: str) -> Any:
    path = Path(name)
    if path.is_dir():
        path = path / "tokenizer.json"
    try:
        return tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise WorkloadError(
            f"tokenizer={name}: no tokenizer.json of the tokenizers library ({error})"
        ) from error


def _named(tokenizer: Any, name: str) -> Any:
    try:
        return tokenizer.from_pretrained(name)
    except Exception as error:  # no network, no such name, no rights
        reason = " ".join(str(error).split())[:200]
        raise WorkloadError(
            f"tokenizer={name}: no such file, and it cannot be fetched by name ({reason}); "
            "download its tokenizer.json and give the path"
        ) from error


# The estimate

_PIECES = re.compile(
    r"(?:[^\r\n\w]|_)?[^\W\d_]+"  # a word, with the character before it
    r"|\d{1,3}"
    r"| ?(?:[^\s\w]|_)+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_UNSPACED = re.compile(r"[^ A-Za-z][A-Za-z]")
_LONG = re.compile(r"[A-Za-z]{6}([A-Za-z]+)")
_CAPITALS = re.compile(r"[A-Za-z]([A-Z]+)")
_SYMBOLS = re.compile(r"[!-/:-@\[-`{-~]{2}([!-/:-@\[-`{-~]+)")
_ACCENTED = re.compile("[\u00c0-\u024f\u1e00-\u1eff]")
_IDEOGRAPH = re.compile("(?<=[\u2e80-\ud7ff\uf900-\ufaff])[\u2e80-\ud7ff\uf900-\ufaff]")
_OTHER_LETTER = re.compile("(?<=[\u0370-\u1dff])[\u0370-\u1dff]")
_ASTRAL = re.compile("[\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class Estimate:
    """Tokens by classes of characters, for the byte-pair tokenizers of today (Llama 3, GPT-4).

    Every piece such a tokenizer may not cross (a word with its space, up to three digits, a
    run of signs, a run of white space) is a token, plus a share of one for each character that
    tends to split it. The shares are a least-squares fit to the Llama-3 counts of 1 961 messages
    (0.8 M characters: tau-bench, SWE-agent, OpenHands, ToolBench, LMCache, OpenTelemetry, BFCL).

    Error against Llama 3, each source estimated with the shares fitted to the others: -2.8 % to
    +5.5 % for the total of a source; half of the messages within 2.8 %, 95 % within 11 %. (4.2
    characters per token: -21 % to +13 % for a source.) English and code, that is: a paragraph each
    of eleven other languages was between 32 % below (German) and 60 % above (Vietnamese).
    """

    exact: bool = False
    description: str = "estimated by classes of characters (English and code: within 6 % of Llama 3)"
    unspaced: float = field(default=0.25, repr=False)
    long: float = field(default=0.044, repr=False)
    capital: float = field(default=0.113, repr=False)
    symbol: float = field(default=0.153, repr=False)
    accented: float = field(default=0.5, repr=False)
    ideograph: float = field(default=0.65, repr=False)
    other_letter: float = field(default=0.25, repr=False)
    astral: float = field(default=1.5, repr=False)

    def count(self, text: str) -> int:
        """Estimated tokens; at least 1 unless the text is empty."""
        if not text:
            return 0
        total = float(len(_PIECES.findall(text)))
        total += self.unspaced * len(_UNSPACED.findall(text))
        total += self.long * _length(_LONG, text)
        total += self.capital * _length(_CAPITALS, text)
        total += self.symbol * _length(_SYMBOLS, text)
        if not text.isascii():
            total += self.accented * len(_ACCENTED.findall(text))
            total += self.ideograph * len(_IDEOGRAPH.findall(text))
            total += self.other_letter * len(_OTHER_LETTER.findall(text))
            total += self.astral * len(_ASTRAL.findall(text))
        return max(1, round(total))


def _length(pattern: re.Pattern[str], text: str) -> int:
    return sum(map(len, pattern.findall(text)))


ESTIMATE = Estimate()


@dataclass(frozen=True)
class Scaled:
    """Another counter times ``factor``, so that lengths add up to a total the file gives."""

    counter: Counter
    factor: float
    exact: bool = True

    @property
    def description(self) -> str:
        """What is scaled."""
        return f"{self.counter.description}, scaled to totals of the file"

    def count(self, text: str) -> int:
        """Tokens, at least 1 unless the text is empty."""
        return max(1, round(self.factor * self.counter.count(text))) if text else 0
