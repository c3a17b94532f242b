"""What the relay must know of an API: how a length is forced, what a reply says, how a script says it.

One file per API in this folder with a module-level ``DIALECT``, found by scanning. Nothing here does I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, NamedTuple, Protocol

from workloads.agents import relay as folder
from workloads.agents.contract import Turn
from workloads.agents.relay.sse import Event


class Refused(Exception):
    """The relay will not pass a call on: why, in a sentence for the agent's author. ``status``: of HTTP; one
    after which SDKs do not try again."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class Counted(NamedTuple):
    """Tokens as the engine counted them, -1 where it did not say. ``prompt`` includes ``cached``."""

    prompt: int = -1
    output: int = -1
    cached: int = -1

    def and_then(self, later: Counted) -> Counted:
        """What both say; where both do, ``later``."""
        return Counted(*(new if new >= 0 else old for old, new in zip(self, later, strict=True)))


@dataclass(frozen=True, slots=True)
class Seen:
    """What an event of the engine's stream says. ``token``: it brings generated text (or what is none yet);
    ``over``: nothing comes after it; ``failed``: the engine's words, if it is an error."""

    token: bool = False
    over: bool = False
    failed: str = ""
    counted: Counted | None = None


class Player(Protocol):
    """A script's turn in the place of one streamed reply."""

    def play(self, event: Event, seen: Seen) -> bytes:
        """What the agent gets in the moment of the engine's ``event``; may be nothing."""


class Dialect(Protocol):
    """An API. ``path``: its calls are posted there; ``name``: as in ``RelayCall.dialect``; ``unparsed``: what
    says that tools are in the prompt and no call of one is looked for: engines need no tool parser then."""

    name: str
    path: str
    unparsed: Mapping[str, Any]

    def forced(self, asked: Mapping[str, Any], tokens: int) -> dict[str, Any]:
        """The body for the engine: what was asked, exactly ``tokens`` tokens long, greedily, as plain text.

        Tools stay in the prompt. Raises Refused for what a script cannot answer.
        """

    def observed(self, asked: Mapping[str, Any], name: str) -> dict[str, Any]:
        """Fields to add, so that the engine knows the call as ``name`` and says its usage."""

    def hidden(self, asked: Mapping[str, Any], event: Event) -> bool:
        """Whether an event comes only because of ``observed``."""

    def seen(self, event: Event) -> Seen:
        """What an event of a stream says."""

    def counted(self, reply: Mapping[str, Any]) -> Counted:
        """Of a whole reply."""

    def whole(self, reply: Mapping[str, Any], turn: Turn, asked: Mapping[str, Any]) -> dict[str, Any]:
        """The engine's reply with the turn in it. Raises KeyError, TypeError or IndexError if it is none."""

    def player(self, turn: Turn, asked: Mapping[str, Any]) -> Player:
        """For one streamed reply."""

    def error(self, status: int, message: str) -> dict[str, Any]:
        """A refusal as this API has it."""


class TellsUsage:
    """Part of a dialect whose replies always say their usage and that has a call's name in a header."""

    def observed(self, asked: Mapping[str, Any], name: str) -> dict[str, Any]:  # noqa: ARG002
        """Nothing."""
        return {}

    def hidden(self, asked: Mapping[str, Any], event: Event) -> bool:  # noqa: ARG002
        """Nothing."""
        return False


@cache
def dialects() -> Mapping[str, Dialect]:
    """Every dialect by its path."""
    modules = (import_module(f"{folder.__name__}.{m.name}") for m in iter_modules(folder.__path__))
    found = (getattr(module, "DIALECT", None) for module in modules)
    return {dialect.path: dialect for dialect in found if dialect is not None}


def without(asked: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """What was asked, but for some fields."""
    left_out = frozenset(names)
    return {name: value for name, value in asked.items() if name not in left_out}


def count(usage: object, prompt: str, output: str, details: str) -> Counted:
    """Of a ``usage`` object with these names, as OpenAI's APIs have it."""
    if not isinstance(usage, Mapping):
        return Counted()
    of_prompt = usage.get(details)
    cached = of_prompt.get("cached_tokens") if isinstance(of_prompt, Mapping) else None
    return Counted(number(usage.get(prompt)), number(usage.get(output)), number(cached))


def number(value: object) -> int:
    """A count, -1 if it is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) else -1


def openai_error(status: int, message: str) -> dict[str, Any]:
    """An error as OpenAI's APIs have it."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": status}}


def said(error: object) -> str:
    """The message in an API's ``error``."""
    message = error.get("message") if isinstance(error, Mapping) else error
    return str(message or "an error without a message")


class Pieces:
    """A text in the pieces that come with each of ``tokens`` tokens, as even as characters allow."""

    def __init__(self, text: str, tokens: int) -> None:
        self._text, self._tokens = text, max(1, tokens)
        self._token = self._at = 0

    def next(self) -> str:
        """What comes with one token more."""
        self._token += 1
        return self._to(len(self._text) * self._token // self._tokens)

    def rest(self) -> str:
        """What has not come yet: engines say fewer events than tokens at times."""
        return self._to(len(self._text))

    def _to(self, end: int) -> str:
        begin, self._at = self._at, max(self._at, end)
        return self._text[begin : self._at]
