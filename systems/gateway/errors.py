"""Errors of the gateway's own, in the shape that the client's endpoint has for them."""

from __future__ import annotations

from collections.abc import Mapping

import orjson
from aiohttp import web

JSON = "application/json"
_KINDS = {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error",
          405: "invalid_request_error", 409: "conflict_error", 413: "request_too_large"}  # fmt: skip
"""By status; all others are ``api_error``."""
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
        return orjson.dumps({"type": "error", "error": {"type": kind, "message": message}})
    error: Mapping[str, object] = {
        "message": message, "type": kind, "param": param or None, "code": _CODES.get(status)
    }  # fmt: skip
    return orjson.dumps({"error": error})


def error_event(body: bytes, anthropic: bool = False) -> bytes:
    """A server-sent event that ends a stream with an error: ``body`` is a JSON object on one line."""
    head = b"event: error\n" if anthropic else b""
    return head + b"data: " + b" ".join(body.split(b"\n")) + b"\n\n"
