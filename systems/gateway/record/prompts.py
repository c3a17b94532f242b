"""What a prompt is made of: a piece per message, as text that only hashes will ever leave.

A template turns messages into tokens; here they are rendered by a rule of our own that keeps what matters:
equal messages are equal pieces, in the same order. What stands in front of all messages in most templates
(tools, a system text beside the messages) is a piece of its own at the front.
"""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from systems.gateway.bodies import Ask

FRONT = ("system", "instructions", "tools", "functions", "documents", "chat_template", "chat_template_kwargs")
"""Fields beside the messages that templates write, in front of them."""
ROLES = {"system": "s", "developer": "s", "user": "u", "assistant": "a", "tool": "t", "function": "t"}
FLAT = "f"
"""The role of a piece of a prompt without messages: a text, or token ids."""
PIECE = 4096
"""Bytes of a flat prompt that make a piece: a longer prompt writes but its last one anew."""
_ITEMS = {"function_call": "a", "reasoning": "a", "function_call_output": "t", "computer_call_output": "t"}
_COMMON = frozenset({"role", "content", "type"})


class Piece(NamedTuple):
    """``role``: a letter of ROLES, ``h`` for the front, FLAT, ``?``. ``data``: what is hashed. ``said``: of
    an assistant's, what it says, in the form of a reply (``said``); b"" else."""

    role: str
    data: bytes
    said: bytes = b""


class Prompt(NamedTuple):
    """``apart``: what keeps prompts apart that read the same (model, cache_salt). ``unit``: byte or token."""

    apart: bytes
    pieces: list[Piece]
    unit: str = "byte"


class Unreadable(ValueError):
    """The body does not hold its prompt in a form that has one sequence: why, in a few words."""


def prompt_of(ask: Ask) -> Prompt:
    """The pieces of a request's prompt. Raises Unreadable."""
    data, field = ask.data, ask.endpoint.prompt
    if data.get("previous_response_id") is not None:
        raise Unreadable("earlier turns are kept by the engine")
    if ask.parts > 1:
        raise Unreadable("several prompts or samples in one request")
    apart = orjson.dumps([str(data.get("model")), str(data.get("cache_salt"))])
    value = data.get(field)
    if field == "prompt":
        return _flat(apart, value)
    front = {name: data[name] for name in FRONT if data.get(name)}
    pieces = [Piece("h", orjson.dumps(front, option=orjson.OPT_SORT_KEYS))] if front else []
    if isinstance(value, str):
        value = [{"role": "user", "content": value}]
    if not isinstance(value, list) or not value:
        raise Unreadable("no messages")
    return Prompt(apart, [*pieces, *_messages(value, items=field == "input")])


def _flat(apart: bytes, value: object) -> Prompt:
    """A text or token ids, in pieces of PIECE bytes."""
    if isinstance(value, list) and len(value) == 1 and not isinstance(value[0], int):
        value = value[0]
    if isinstance(value, str) and value:
        return Prompt(apart, _cut(value.encode(errors="replace")))
    if isinstance(value, list) and value:
        return Prompt(apart, _cut(ids_of(value)), "token")
    raise Unreadable("no prompt")


def _cut(data: bytes) -> list[Piece]:
    return [Piece(FLAT, data[i : i + PIECE]) for i in range(0, len(data), PIECE)]


def ids_of(tokens: Sequence[Any]) -> bytes:
    """Four bytes a token. Raises Unreadable for what are no token ids."""
    try:
        return array("I", tokens).tobytes()
    except (TypeError, OverflowError):
        raise Unreadable("no token ids") from None


def _messages(messages: Sequence[object], *, items: bool) -> list[Piece]:
    """A piece each; ``items``: of /v1/responses, where one reply may be several in a row."""
    found: list[Piece] = []
    for item in messages:
        if not isinstance(item, dict):
            found.append(Piece("?", orjson.dumps(item)))
            continue
        role = ROLES.get(str(item.get("role")), "?")
        role = _ITEMS.get(str(item.get("type")), role) if role == "?" else role
        text = _text(item)
        spoken = said(item) if role == "a" else b""
        if items and role == "a" and found and found[-1].role == "a":
            found[-1] = Piece("a", found[-1].data + b"\n" + text, found[-1].said + spoken)
        else:
            found.append(Piece(role, text, spoken))
    return found


def _text(item: Mapping[str, Any]) -> bytes:
    """A message as text: its role, its content, and all other fields as JSON."""
    content, role = item.get("content"), str(item.get("role") or item.get("type"))
    body = content.encode(errors="replace") if isinstance(content, str) else orjson.dumps(content)
    more = {name: value for name, value in item.items() if name not in _COMMON and value}
    rest = b"\n" + orjson.dumps(more, option=orjson.OPT_SORT_KEYS) if more else b""
    return role.encode(errors="replace") + b"\n" + body + rest


def said(item: Mapping[str, Any]) -> bytes:
    """What an assistant's message (or item of /v1/responses) says: thoughts, text, tool calls, in this order.

    Only what a model generates, in one form for all dialects, so that a reply and the message that quotes it
    are equal bytes.
    """
    thoughts, texts, calls = list[str](), list[str](), list[bytes]()
    for name in ("reasoning_content", "reasoning"):
        if isinstance(item.get(name), str):
            thoughts.append(item[name])
    if item.get("type") == "function_call":
        calls.append(called(item.get("name"), item.get("arguments")))
    content = item.get("content")
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict):
            _part(part, thoughts, texts, calls)
    for call in item.get("tool_calls") or ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            calls.append(called(function.get("name"), function.get("arguments")))
    return joined(thoughts, texts, calls)


def _part(part: Mapping[str, Any], thoughts: list[str], texts: list[str], calls: list[bytes]) -> None:
    """A part of a message's content: OpenAI's and Anthropic's kinds."""
    kind = part.get("type")
    if kind == "tool_use":
        calls.append(called(part.get("name"), part.get("input")))
    elif kind in ("thinking", "reasoning_text"):
        thoughts.append(str(part.get("thinking", part.get("text", ""))))
    elif isinstance(part.get("text"), str):
        texts.append(part["text"])


def called(name: object, arguments: object) -> bytes:
    """A tool call; arguments are an object, or JSON that is one: both read the same."""
    if isinstance(arguments, str):
        with contextlib.suppress(orjson.JSONDecodeError):
            arguments = orjson.loads(arguments or "{}")
    return orjson.dumps([str(name), arguments], option=orjson.OPT_SORT_KEYS)


def joined(thoughts: Sequence[str], texts: Sequence[str], calls: Sequence[bytes]) -> bytes:
    """The one form of a reply."""
    words = "".join(thoughts).encode(errors="replace"), "".join(texts).encode(errors="replace")
    return b"\x00".join([piece for piece in words if piece] + list(calls))
