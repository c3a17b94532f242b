"""JSON objects read and written: orjson, and the standard library for what orjson refuses.

That is numbers of more than 64 bits and halves of surrogate pairs, which tools' output has at times.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import orjson


class BadBody(ValueError):
    """It is no JSON object: why."""


def parsed(data: bytes) -> dict[str, Any]:
    """Raises BadBody."""
    try:
        found = _read(data)
    except (ValueError, RecursionError) as error:
        raise BadBody(f"the body is not valid JSON: {error}") from None
    if not isinstance(found, dict):
        raise BadBody(f"the body must be one JSON object, got {data[:60]!r}")
    return found


def _read(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return json.loads(data)


def written(data: Mapping[str, Any]) -> bytes:
    """UTF-8. Raises TypeError for what JSON has not."""
    try:
        return orjson.dumps(data)
    except orjson.JSONEncodeError:
        return json.dumps(data).encode()


def arguments(found: Mapping[str, Any]) -> str:
    """A tool call's arguments as the text that OpenAI's dialects have them in."""
    return written(found).decode()
