"""Requests of real clients as shapes: no text of theirs, no ids, no paths, but who repeats what.

Prompts, tool descriptions and schemas are others' text: their length (characters) stays. Ids become
``<id N>``, N by first appearance in the whole recording, so that the same id is the same in all calls.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks.client_parts.engine import Heard

_PLAIN = frozenset({
    "type", "role", "name", "model", "status", "effort", "summary", "keep", "include", "tool_choice",
    "request_kind", "thread_source", "agent_name", "turn_trigger", "namespace",
})  # fmt: skip
"""Keys whose short values are words of an API."""
_SCHEMAS = frozenset({"input_schema", "parameters"})
_DROPPED = frozenset({"host", "content-length", "connection", "date"})
_SECRET = frozenset({"authorization", "x-api-key"})
_ID = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b[0-9a-f]{16,64}\b"
    r"|\b(?:ses|call|msg|fc|fco|toolu|prt)_[0-9A-Za-z-]{8,}"
)
_LONGEST = 80


class Scrub:
    """One for all requests of a recording."""

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}

    def calls(self, heard: Iterable[Heard]) -> list[dict[str, Any]]:
        """As they are written."""
        return [
            {
                "method": one.method, "path": one.path, "headers": self.headers(one.headers),
                "body": self._value("", one.body),
            }
            for one in heard
        ]  # fmt: skip

    def headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Names as they were sent; values without ids and secrets."""
        found = {}
        for name, value in headers.items():
            if name.lower() in _SECRET:
                found[name] = "Bearer <key>" if value.startswith("Bearer ") else "<key>"
            elif name.lower() not in _DROPPED:
                found[name] = self._text("name", value) if value[:1] == "{" else self._without_ids(value)
        return found

    def _value(self, key: str, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: self._field(name, one) for name, one in value.items()}
        if isinstance(value, list):
            return [self._value(key, one) for one in value]
        return self._text(key, value) if isinstance(value, str) else value

    def _field(self, name: str, value: Any) -> Any:
        if name in _SCHEMAS:
            return {"<schema of characters>": len(json.dumps(value))}
        if isinstance(value, int) and not isinstance(value, bool) and value > 1 << 40:
            return "<time>"
        return self._value(name, value)

    def _text(self, key: str, text: str) -> str:
        if text[:1] == "{":
            try:
                return json.dumps(self._value("", json.loads(text)))
            except ValueError:
                return f"<{len(text)} characters>"
        if _ID.fullmatch(text):
            return self._without_ids(text)
        without = self._without_ids(text)
        return without if key in _PLAIN and len(text) <= _LONGEST else f"<{len(text)} characters>"

    def _without_ids(self, text: str) -> str:
        return _ID.sub(lambda found: self._ids.setdefault(found[0], f"<id {len(self._ids) + 1}>"), text)
