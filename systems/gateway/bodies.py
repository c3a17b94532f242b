"""What clients send: parsed once, and sent on with the program's ids and numbers spliced in."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from systems.gateway.errors import CHAT, MESSAGES, RESPONSES, Refused, Speech
from vocabulary import BLOCK, Segment, Snapshot

OURS = frozenset({"program_id", "thread_id", "service", "wait", "exec_s"})
"""Keys of ``vllm_xargs`` that the gateway alone writes: schedulers order by them."""
_TEXT_BLOCK = 4 * BLOCK
"""Bytes of a prompt that count as a block where tokens are not known."""


class Endpoint(NamedTuple):
    """``prompt``: the field that holds it; ``usage_option``: streams say their usage if they are asked to;
    ``speech``: how its clients are spoken to; ``names_itself``: the request's id is in the body, not in a
    header."""

    path: str
    prompt: str
    usage_option: bool = False
    speech: Speech = CHAT
    names_itself: bool = False


ENDPOINTS = (
    Endpoint("/v1/chat/completions", "messages", usage_option=True),
    Endpoint("/v1/completions", "prompt", usage_option=True),
    Endpoint("/v1/responses", "input", speech=RESPONSES, names_itself=True),
    Endpoint("/v1/messages", "messages", speech=MESSAGES),
)
"""Where policies decide; all other paths below /v1/ are passed through."""


@dataclass(slots=True)
class Ask:
    """A request as it came. ``hides_usage``: its stream is asked for a usage that the client did not want."""

    endpoint: Endpoint
    raw: bytes
    data: dict[str, Any]
    stream: bool
    hides_usage: bool = False

    @property
    def model(self) -> str:
        """Which model is asked for."""
        return str(self.data.get("model") or "")

    @property
    def tool(self) -> str:
        """What the client says will run after the reply, "" if it says nothing."""
        extra = self.data.get("vllm_xargs")
        tool = extra.get("tool") if isinstance(extra, dict) else None
        return tool if isinstance(tool, str) else ""

    def alike(self) -> int:
        """A hash of what is asked, in whatever order its keys are, streamed or not: of a retry, the same."""
        asked = {key: value for key, value in self.data.items() if key not in ("stream", "stream_options")}
        try:
            return hash(orjson.dumps(asked, option=orjson.OPT_SORT_KEYS))
        except orjson.JSONEncodeError:  # too deep
            return hash(self.raw)

    @property
    def parts(self) -> int:
        """Requests that the engine makes of it, with a row each: prompts times samples."""
        if not self.endpoint.usage_option:
            return 1
        n, prompt = self.data.get("n"), self.data.get("prompt")
        samples = n if isinstance(n, int) and n > 1 else 1
        if self.endpoint.prompt != "prompt" or not isinstance(prompt, list) or not prompt:
            return samples
        return samples if isinstance(prompt[0], int) else samples * len(prompt)


def parse(endpoint: Endpoint, raw: bytes) -> Ask:
    """Raises Refused (400) if it is no JSON object."""
    try:
        data = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise Refused(400, f"the request's body is not valid JSON: {error}") from None
    if not isinstance(data, dict):
        raise Refused(400, f"the request's body must be one JSON object, got {raw[:60]!r}")
    return Ask(endpoint, raw, data, data.get("stream") is True)


def outgoing(ask: Ask, caller: Mapping[str, Any], request_id: str, *, wants_usage: bool) -> bytes:
    """The body for the engine: ``caller`` in ``vllm_xargs``, where the client's keys stay but for OURS.

    ``wants_usage``: a stream has to say its usage at the end. What is new goes in front of the
    client's bytes, which are not written again; only where a key is there already, all of it is.
    Raises Refused (400) if that cannot be written.
    """
    extra = ask.data.get("vllm_xargs")
    new: dict[str, Any] = {}
    if isinstance(extra, dict) and (caller or OURS & extra.keys()):
        new["vllm_xargs"] = {**{key: extra[key] for key in extra if key not in OURS}, **caller}
    elif extra is None and caller:  # what is no object is left to the engine, which says so
        new["vllm_xargs"] = caller
    if ask.stream and wants_usage and ask.endpoint.usage_option:
        _ask_usage(ask, new)
    if ask.endpoint.names_itself:
        new["request_id"] = f"resp_{request_id}"
    return _in_front(ask, new)


def observed(ask: Ask, *, wants_usage: bool) -> bytes:
    """The client's bytes, where nobody decides: a stream is asked for its usage, nothing else is new."""
    new: dict[str, Any] = {}
    if ask.stream and wants_usage and ask.endpoint.usage_option:
        _ask_usage(ask, new)
    return _in_front(ask, new)


def _in_front(ask: Ask, new: Mapping[str, Any]) -> bytes:
    """``new`` in front of the client's bytes; only where a key is there already, all of it is written."""
    if not new:
        return ask.raw
    if new.keys() & ask.data.keys():
        return _written({**ask.data, **new})
    start = ask.raw.index(b"{") + 1
    return orjson.dumps(new)[:-1] + (b"," if ask.data else b"") + ask.raw[start:]


def _written(data: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(data)
    except orjson.JSONEncodeError as error:  # read at any depth, written to 254
        raise Refused(400, f"the request's body cannot be written: {error}") from None


def _ask_usage(ask: Ask, new: dict[str, Any]) -> None:
    options = ask.data.get("stream_options")
    if options is None or (isinstance(options, dict) and not options.get("include_usage")):
        new["stream_options"] = {**(options or {}), "include_usage": True}
        ask.hides_usage = True


def caller_fields(name: str, thread: str, snap: Snapshot) -> dict[str, Any]:
    """What ``vllm_xargs`` says of a call; nothing for a program of one call."""
    if not name:
        return {}
    return {
        "program_id": name, "thread_id": thread,
        "service": snap.service, "wait": snap.wait, "exec_s": snap.exec_s,
    }  # fmt: skip


class Lengths:
    """Tokens of prompts before the engine has counted them.

    Token ids are counted; of text, the body's bytes are divided by the bytes per token that replies
    have shown so far (4 before the first one).
    """

    def __init__(self) -> None:
        self.bytes_per_token = 4.0

    def of(self, ask: Ask) -> int:
        """An estimate, unless the prompt is token ids; at least 1."""
        exact = _ids(ask.data.get(ask.endpoint.prompt))
        return exact or max(1, round(len(ask.raw) / self.bytes_per_token))

    def learn(self, ask: Ask, prompt_tokens: int) -> None:
        """The engine counted them."""
        if prompt_tokens > 0 and not _ids(ask.data.get(ask.endpoint.prompt)):
            seen = min(16.0, max(0.5, len(ask.raw) / prompt_tokens))
            self.bytes_per_token += (seen - self.bytes_per_token) / 16


def _ids(prompt: object) -> int:
    """How many token ids a prompt is, 0 if it is text."""
    if not isinstance(prompt, list) or not prompt:
        return 0
    if isinstance(prompt[0], int):
        return len(prompt)
    if isinstance(prompt[0], list):
        return sum(len(one) for one in prompt if isinstance(one, list))
    return 0


def segments(ask: Ask) -> tuple[Segment, ...]:
    """The prompt for routers that read it: blocks of 16 tokens, or of 64 bytes where tokens are not known.

    A segment's id is its content's hash: prompts share a prefix as far as their blocks are equal. What is no
    prompt has some, too: the engine says what is wrong with it.
    """
    prompt = ask.data.get(ask.endpoint.prompt)
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], int):
        with contextlib.suppress(TypeError):  # not all of them are numbers
            return tuple(
                (hash(tuple(prompt[i : i + BLOCK])), len(prompt[i : i + BLOCK]))
                for i in range(0, len(prompt), BLOCK)
            )
    try:
        text = orjson.dumps(prompt)[1:-1]  # without its quotes or brackets: a longer prompt starts with it
    except orjson.JSONEncodeError:  # too deep
        text = b""
    return tuple((hash(text[i : i + _TEXT_BLOCK]), BLOCK) for i in range(0, len(text), _TEXT_BLOCK)) or (
        (0, 1),
    )
