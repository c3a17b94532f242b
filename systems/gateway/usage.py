"""What a call received: from the scheduler's own row, or else from what its reply says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from vocabulary import Usage

_DECODER = json.JSONDecoder()
_MARK = b'"usage":'
TAIL = 1 << 16
"""Bytes from a stream's end in which its usage is looked for."""


class Counted(NamedTuple):
    """Tokens as the engine counted them; ``cached`` is -1 where it did not say."""

    prompt: int
    output: int
    cached: int = -1


class Charge(NamedTuple):
    """What a call is charged: ``usage`` in the scheduler's unit, from ``source`` (log or usage)."""

    usage: Usage
    source: str
    counted: Counted | None = None


def counted_in(reply: bytes) -> Counted | None:
    """The last ``usage`` object of a body, or of the end of a stream; None if there is none."""
    end = len(reply)
    while (at := reply.rfind(_MARK, 0, end)) >= 0:
        if reply[at - 1 : at] != b"\\":  # else it is text
            found = _usage(reply[at + len(_MARK) :])
            if found is not None:
                return found
        end = at
    return None


def _usage(text: bytes) -> Counted | None:
    try:
        usage, _ = _DECODER.raw_decode(text.decode(errors="replace").lstrip())
    except ValueError:
        return None
    return _counted(usage) if isinstance(usage, dict) else None


def _counted(usage: Mapping[str, Any]) -> Counted | None:
    """OpenAI's names, and those of /v1/responses and /v1/messages."""
    prompt = usage.get("prompt_tokens", usage.get("input_tokens"))
    output = usage.get("completion_tokens", usage.get("output_tokens"))
    if not isinstance(prompt, int) or not isinstance(output, int | None):
        return None
    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details") or {}
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    if cached is None:
        cached = usage.get("cache_read_input_tokens")
        prompt += cached if isinstance(cached, int) else 0  # Anthropic counts them apart
    return Counted(prompt, output or 0, cached if isinstance(cached, int) else -1)


def told_by_reply(unit: str, counted: Counted | None, seconds: float, waited: float, most: int) -> Charge:
    """Without the scheduler's row: service from token counts, execution is the whole reply time.

    ``most``: tokens of a step, which says how many a prompt took. Without counts nothing but time is known.
    """
    if unit == "s" or counted is None:
        served = seconds if unit == "s" else 0.0
        return Charge(Usage(served, seconds, waited), "usage", counted)
    fresh = max(1, counted.prompt - max(0, counted.cached))
    later = max(0, counted.output - 1)  # the prompt's last step brings the first token
    served = fresh + later if unit == "token" else -(-fresh // most) + later
    return Charge(Usage(float(served), seconds, waited), "usage", counted)


def told_by_rows(rows: list[Mapping[str, Any]], waited: float) -> Charge:
    """From the scheduler's rows of a call: one, or one per prompt and sample, whose service adds up.

    Its wait and execution are those of the row that took longest.
    """
    longest = max(rows, key=lambda row: row["t_end"] - row["t_arrive"])
    exec_s = longest["prefill_s"] + longest["reprefill_s"] + longest["decode_s"] + longest["swap_s"]
    served = sum(row["served"] for row in rows)
    cached = sum(row["cached_tokens"] for row in rows)
    output = sum(row["output_tokens"] for row in rows)
    prompt = cached + sum(row["prefill_tokens"] for row in rows)
    usage = Usage(served, exec_s, longest["wait_s"] + waited)
    return Charge(usage, "log", Counted(prompt, output, cached))


def row_of(line: bytes) -> tuple[str, Mapping[str, Any]] | None:
    """(request id, row) of a line of a call log; None if it is none."""
    try:
        row = orjson.loads(line)
        return (row["request_id"], row) if isinstance(row["request_id"], str) else None
    except (ValueError, TypeError, KeyError):
        return None
