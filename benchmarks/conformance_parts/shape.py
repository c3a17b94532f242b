"""What two replies must have in common: everything but ids, times, and where a stream was cut into pieces.

``shape`` makes a reply comparable, ``differences`` says in what two of them differ.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.conformance_parts.wire import Answer

VOLATILE = frozenset({"created", "created_at", "completed_at", "metrics"})
"""Times; that they are there, and their type, is compared."""
UNSEEN = frozenset({"date", "content-length", "transfer-encoding", "connection", "keep-alive"})
"""Headers that belong to the connection. Whether a stream's length is said is compared by what is read."""
_ID = re.compile(r"^(chatcmpl-tool|chatcmpl|cmpl|resp|msg|fc|rs|call|modelperm)[-_][\w.-]+$")
_HEX = re.compile(r"^[0-9a-f]{16,32}$")
_CUTS = frozenset({"sequence_number"})
_PIECES = ("content", "text", "arguments", "partial_json", "delta", "reasoning")
"""Fields of a stream's events that hold a piece of what is generated."""
_MOST = 5


class _Ids:
    """Ids become their kind and a number by first appearance, so that who repeats whose is compared."""

    def __init__(self, sent: str) -> None:
        self._sent = sent
        self._seen: dict[str, str] = {}
        self._counts: Counter[str] = Counter()

    def of(self, value: str) -> str:
        match = _ID.match(value) or _HEX.match(value)
        if match is None or value in self._sent:  # what the client named is to come back as it was
            return value
        kind = match.group(1) if match.re is _ID else "hex"
        if value not in self._seen:
            self._counts[kind] += 1
            self._seen[value] = f"<{kind} {self._counts[kind]}>"
        return self._seen[value]


def shape(answer: Answer, client_id: str = "", sent: str = "") -> dict[str, Any]:
    """``client_id``: the X-Request-Id that the client sent, "" for none; ``sent``: its body."""
    headers = {
        name: (value if value == client_id and client_id else "<an id>") if name == "x-request-id" else value
        for name, value in answer.headers
        if name not in UNSEEN
    }
    found: dict[str, Any] = {"status": answer.status, "headers": headers, "lost": answer.lost}
    if answer.streamed:
        return found | {"streams": dict(_streams(events(answer.body), _Ids(sent)))}
    try:
        return found | {"body": _plain(json.loads(answer.body), _Ids(sent))}
    except ValueError:
        return found | {"body": answer.body.decode(errors="replace")}


def events(body: bytes) -> Iterator[tuple[str, Any]]:
    """(name, data) of each server-sent event; data that is no JSON stays text. Comments are left out."""
    for block in re.split(r"\r?\n\r?\n", body.decode(errors="replace")):
        lines = [line for line in block.splitlines() if line and not line.startswith(":")]
        if not lines:
            continue
        fields = [line.partition(":")[::2] for line in lines]
        name = "".join(value.strip() for key, value in fields if key == "event")
        text = "\n".join(value.removeprefix(" ") for key, value in fields if key == "data")
        try:
            yield name, json.loads(text)
        except ValueError:
            yield name, text


def _streams(found: Iterator[tuple[str, Any]], ids: _Ids) -> Iterator[tuple[str, Any]]:
    """By choice: kinds of events in their order, the first of each run, and all that was said in them."""
    streams, numbers = dict[str, list[Any]](), list[int]()
    for name, data in found:
        if isinstance(data, dict) and isinstance(data.get("sequence_number"), int):
            numbers.append(data["sequence_number"])
        streams.setdefault(_choice(data), []).append((name, _plain(data, ids)))
    for choice in sorted(streams):
        yield choice, _runs(streams[choice])
    yield "sequence numbers", "none" if not numbers else numbers == list(range(len(numbers)))


def _choice(data: Any) -> str:
    choices = data.get("choices") if isinstance(data, dict) else None
    return f"choice {choices[0].get('index')}" if choices else "all"


def _runs(found: list[tuple[str, Any]]) -> dict[str, Any]:
    """Pieces of one text come in as many events as the engine was quick: such events are one.

    It has the fields of all of them; ``said``: by field, all the text of all events.
    """
    runs: list[list[Any]] = []
    said: dict[str, str] = {}
    piece = False
    for name, data in found:
        before, followed = dict(said), piece
        bare = _without_pieces(data, said)
        piece = said != before
        if piece and followed and runs[-1][0] == name:
            runs[-1][1] = _united(runs[-1][1], bare)
        else:
            runs.append([name, bare])
    return {"events": runs, "said": said}


def _united(one: Any, two: Any) -> Any:
    """All that either says; what is null in one is the other's."""
    if isinstance(one, dict) and isinstance(two, dict):
        return {key: _united(one.get(key), two.get(key)) for key in [*one, *(k for k in two if k not in one)]}
    if isinstance(one, list) and isinstance(two, list) and len(one) == len(two):
        return [_united(a, b) for a, b in zip(one, two, strict=True)]
    return one if two is None else two


def _without_pieces(data: Any, said: dict[str, str]) -> Any:
    """``data`` with pieces of generated text taken out and put into ``said``, by field."""
    if isinstance(data, list):
        return [_without_pieces(one, said) for one in data]
    if not isinstance(data, dict):
        return data
    bare: dict[str, Any] = {}
    for key, value in data.items():
        if key in _CUTS:
            continue
        if key in _PIECES and isinstance(value, str):
            said[key] = said.get(key, "") + value
            bare[key] = "<a piece>"
        elif key == "logprobs" and value:
            said[key] = said.get(key, "") + _tokens(value)
            bare[key] = "<some>"
        elif key == "usage" and isinstance(value, dict) and data.get("choices"):
            bare[key] = sorted(value)  # so far: as many as there are pieces
        else:
            bare[key] = _without_pieces(value, said)
    return bare


def _tokens(logprobs: Any) -> str:
    """The tokens that log probabilities are of; the numbers come in the reply that is whole."""
    found = logprobs.get("content", logprobs.get("tokens")) if isinstance(logprobs, dict) else logprobs
    return "".join(f"|{one.get('token') if isinstance(one, dict) else one}" for one in found or ())


def _plain(data: Any, ids: _Ids) -> Any:
    if isinstance(data, dict):
        return {
            key: f"<{type(value).__name__}>" if key in VOLATILE and value is not None else _plain(value, ids)
            for key, value in data.items()
        }
    if isinstance(data, list):
        return [_plain(one, ids) for one in data]
    return ids.of(data) if isinstance(data, str) else data


def differences(direct: Any, through: Any, at: str = "") -> list[str]:
    """``at: direct / through`` for what differs, at most a handful; numbers may differ by a millionth."""
    if isinstance(direct, Mapping) and isinstance(through, Mapping):
        keys = [*direct, *(key for key in through if key not in direct)]
        nothing = object()
        found = [
            line
            for key in keys
            for line in differences(direct.get(key, nothing), through.get(key, nothing), f"{at}.{key}")
        ]
        return found[:_MOST]
    if isinstance(direct, list) and isinstance(through, list) and len(direct) == len(through):
        pairs = enumerate(zip(direct, through, strict=True))
        return [line for i, (one, two) in pairs for line in differences(one, two, f"{at}[{i}]")][:_MOST]
    if (
        isinstance(direct, float)
        and isinstance(through, float)
        and math.isclose(direct, through, rel_tol=1e-6)
    ):
        return []
    return [] if direct == through else [f"{at.lstrip('.')}: {_short(direct)} / {_short(through)}"]


def _short(value: Any) -> str:
    if type(value) is object:
        return "absent"
    text = json.dumps(value, default=str)
    return text if len(text) <= 160 else text[:157] + "..."
