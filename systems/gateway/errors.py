"""Errors of the gateway's own, in the shape that the client's endpoint has for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import orjson
from aiohttp import web

JSON = "application/json"
_KINDS = {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error",
          405: "invalid_request_error", 409: "conflict_error", 413: "request_too_large"}  # fmt: skip
"""By status; all others are ``api_error``."""
_AGAIN = dict.fromkeys((502, 503, 504), "overloaded_error")
"""Anthropic's word for what is worth another try. Claude Code asks again on it, as it had asked; after an
``api_error`` in a stream it asks once more without one, where no heartbeat can reach it (docs/clients.md)."""
_CODES = {401: "invalid_api_key", 409: "superseded", 413: "request_too_large", 502: "engine_lost",
          503: "unavailable", 504: "timeout"}  # fmt: skip


class Refused(Exception):
    """A request that is not, or no longer, passed on. ``retry_s``: when it may be worth another try (s).

    ``outcome``: of its passage (observe.OUTCOMES).
    """

    def __init__(
        self, status: int, message: str, *, outcome: str = "refused", param: str = "", retry_s: int = 0
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.outcome = outcome
        self.param = param
        self.retry_s = retry_s

    def body(self, anthropic: bool = False) -> bytes:
        """The error object: OpenAI's shape, or Anthropic's."""
        return error_body(self.status, self.message, self.param, anthropic)

    def headers(self) -> list[tuple[str, str]]:
        """Of the reply."""
        found = [("Content-Type", JSON)]
        if self.retry_s:
            found.append(("Retry-After", str(self.retry_s)))
        if self.status == 405:
            found.append(("Allow", "POST"))
        if self.status == 401:
            found.append(("WWW-Authenticate", "Bearer"))
        return found

    def response(self, anthropic: bool = False) -> web.Response:
        """The whole reply."""
        return web.Response(status=self.status, body=self.body(anthropic), headers=self.headers())


def error_body(status: int, message: str, param: str = "", anthropic: bool = False) -> bytes:
    """An error object of ``status`` as JSON."""
    kind = _KINDS.get(status, "api_error")
    if anthropic:
        kind = _AGAIN.get(status, kind)
        return orjson.dumps({"type": "error", "error": {"type": kind, "message": message}})
    error: Mapping[str, object] = {
        "message": message, "type": kind, "param": param or None, "code": _CODES.get(status)
    }  # fmt: skip
    return orjson.dumps({"error": error})


class Speech(NamedTuple):
    """What the gateway itself says in a stream of a dialect. ``heartbeat``: an event or a comment that every
    client of the dialect skips, and that its clock for silence sees; ``anthropic``: how errors look;
    ``error``: an error's body (a JSON object) as the event that ends the stream."""

    heartbeat: bytes
    error: Callable[[bytes], bytes]
    anthropic: bool = False


def _bare_event(body: bytes) -> bytes:
    return b"data: " + b" ".join(body.split(b"\n")) + b"\n\n"


def _named_event(body: bytes) -> bytes:
    return b"event: error\n" + _bare_event(body)


def _response_event(body: bytes) -> bytes:
    """With a type and a number, as all events of /v1/responses, besides the error as elsewhere."""
    try:
        error = orjson.loads(body)["error"]
    except (orjson.JSONDecodeError, KeyError, TypeError):  # an engine's, in a shape of its own
        error = body.decode(errors="replace")
    fields = error if isinstance(error, dict) else {"message": str(error)}
    said = {key: fields.get(key) for key in ("code", "message", "param")}
    return _named_event(orjson.dumps({"type": "error", "sequence_number": 0, **said, "error": fields}))


CHAT = Speech(b": waiting\n\n", _bare_event)
"""Comments: strict readers of chat chunks take no event that is none (OpenCode stops at one)."""
MESSAGES = Speech(b'event: ping\ndata: {"type": "ping"}\n\n', _named_event, anthropic=True)
RESPONSES = Speech(b": waiting\n\n", _response_event)
"""Comments: OpenAI's SDK (``responses.stream``) raises at any event before ``response.created``."""
CODEX = Speech(b'event: keepalive\ndata: {"type": "keepalive", "sequence_number": 0}\n\n', _response_event)
"""Its clock for silence sees events alone, not comments; this one OpenAI itself sends, and it is skipped."""


def speech_for(speech: Speech, headers: Mapping[str, str]) -> Speech:
    """As this client needs it; ``headers`` are found by names in lower case."""
    if speech is RESPONSES and (
        headers.get("originator", "").startswith("codex") or "x-codex-window-id" in headers
    ):
        return CODEX
    return speech
