"""What a model says in each of the three dialects, whole and as a stream, from a text and a tool call.

Written from the vendors' descriptions of their APIs; real clients read it (``benchmarks/clients.py``).
Ids are counted, so that the same call has the same answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

Event = tuple[str, Any]
"""Name ("" none) and data of a server-sent event."""


class Said(NamedTuple):
    """A reply: ``tool`` with ``arguments`` is wanted if it is not ""; ``number`` makes its ids.

    ``group``: of tools that the tool is in, which only Codex has.
    """

    text: str
    tool: str = ""
    arguments: Mapping[str, Any] = {}
    number: int = 0
    group: str = ""

    @property
    def call_id(self) -> str:
        """Of the tool call."""
        return f"call_{self.number:08d}"


def sse(events: Iterator[Event], done: bool) -> bytes:
    """As bytes; ``done``: with the terminator of chat completions."""
    parts = [(f"event: {name}\n" if name else "") + f"data: {json.dumps(data)}\n\n" for name, data in events]
    return ("".join(parts) + ("data: [DONE]\n\n" if done else "")).encode()


# -- /v1/messages ----------------------------------------------------------------------


def _blocks(said: Said) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [{"type": "text", "text": said.text}] if said.text else []
    if said.tool:
        call = {"type": "tool_use", "id": said.call_id, "name": said.tool, "input": dict(said.arguments)}
        found.append(call)
    return found


def message(said: Said, model: str) -> dict[str, Any]:
    """A reply of /v1/messages."""
    return {
        "id": f"msg_{said.number:08d}", "type": "message", "role": "assistant", "model": model,
        "content": _blocks(said), "stop_reason": "tool_use" if said.tool else "end_turn",
        "stop_sequence": None, "usage": {"input_tokens": 10, "output_tokens": 5},
    }  # fmt: skip


def message_events(said: Said, model: str) -> Iterator[Event]:
    """Its stream."""
    whole = message(said, model)
    start = {**whole, "content": [], "stop_reason": None, "usage": {"input_tokens": 10, "output_tokens": 1}}
    yield "message_start", {"type": "message_start", "message": start}
    for index, block in enumerate(_blocks(said)):
        tool = block["type"] == "tool_use"
        empty = {**block, "input": {}} if tool else {**block, "text": ""}
        delta = (
            {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
            if tool
            else {"type": "text_delta", "text": block["text"]}
        )
        yield (
            "content_block_start",
            {"type": "content_block_start", "index": index, "content_block": empty},
        )
        yield "content_block_delta", {"type": "content_block_delta", "index": index, "delta": delta}
        yield "content_block_stop", {"type": "content_block_stop", "index": index}
    end = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    yield "message_delta", {"type": "message_delta", "delta": end, "usage": {"output_tokens": 5}}
    yield "message_stop", {"type": "message_stop"}


# -- /v1/responses ---------------------------------------------------------------------


def _items(said: Said) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if said.text:
        part = {"type": "output_text", "text": said.text, "annotations": []}
        found.append({
            "type": "message", "id": f"msg_{said.number:08d}", "role": "assistant", "status": "completed",
            "content": [part],
        })  # fmt: skip
    if said.tool:
        found.append({
            "type": "function_call", "id": f"fc_{said.number:08d}", "call_id": said.call_id,
            "name": said.tool, "arguments": json.dumps(dict(said.arguments)), "status": "completed",
            **({"namespace": said.group} if said.group else {}),
        })  # fmt: skip
    return found


def response(said: Said, model: str) -> dict[str, Any]:
    """A reply of /v1/responses."""
    usage = {
        "input_tokens": 10, "output_tokens": 5, "total_tokens": 15,
        "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0},
    }  # fmt: skip
    return {
        "id": f"resp_{said.number:08d}", "object": "response", "created_at": 1, "status": "completed",
        "model": model, "output": _items(said), "usage": usage, "error": None, "parallel_tool_calls": True,
        "tool_choice": "auto", "tools": [],
    }  # fmt: skip


def response_events(said: Said, model: str) -> Iterator[Event]:
    """Its stream; every event has its ``sequence_number``."""
    for number, (name, data) in enumerate(_response_events(said, model)):
        yield name, {"type": name, "sequence_number": number, **data}


def _response_events(said: Said, model: str) -> Iterator[Event]:
    whole = response(said, model)
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    yield "response.created", {"response": begun}
    for index, item in enumerate(whole["output"]):
        place = {"item_id": item["id"], "output_index": index}
        text = item["type"] == "message"
        empty = {**item, "status": "in_progress", **({"content": []} if text else {"arguments": ""})}
        yield "response.output_item.added", {"output_index": index, "item": empty}
        if text:
            yield from _text_events({**place, "content_index": 0}, item["content"][0])
        else:
            yield "response.function_call_arguments.delta", {**place, "delta": item["arguments"]}
            yield (
                "response.function_call_arguments.done",
                {**place, "name": item["name"], "arguments": item["arguments"]},
            )
        yield "response.output_item.done", {"output_index": index, "item": item}
    yield "response.completed", {"response": whole}


def _text_events(place: Mapping[str, Any], part: Mapping[str, Any]) -> Iterator[Event]:
    yield "response.content_part.added", {**place, "part": {**part, "text": ""}}
    yield "response.output_text.delta", {**place, "delta": part["text"], "logprobs": []}
    yield "response.output_text.done", {**place, "text": part["text"], "logprobs": []}
    yield "response.content_part.done", {**place, "part": part}


# -- /v1/chat/completions --------------------------------------------------------------


def _calls(said: Said) -> list[dict[str, Any]]:
    function = {"name": said.tool, "arguments": json.dumps(dict(said.arguments))}
    return [{"id": said.call_id, "type": "function", "function": function}] if said.tool else []


def completion(said: Said, model: str) -> dict[str, Any]:
    """A reply of /v1/chat/completions."""
    found: dict[str, Any] = {"role": "assistant", "content": said.text or None}
    if said.tool:
        found["tool_calls"] = _calls(said)
    choice = {"index": 0, "message": found, "finish_reason": "tool_calls" if said.tool else "stop"}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    return {
        "id": f"chatcmpl-{said.number:08d}", "object": "chat.completion", "created": 1, "model": model,
        "choices": [choice], "usage": usage,
    }  # fmt: skip


def completion_events(said: Said, model: str, usage: bool) -> Iterator[Event]:
    """Its stream; ``usage``: with a last event that has it."""
    whole = completion(said, model)
    head = {key: whole[key] for key in ("id", "created", "model")} | {"object": "chat.completion.chunk"}

    def chunk(delta: Mapping[str, Any], end: str | None = None) -> Event:
        return "", {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": end}]}

    yield chunk({"role": "assistant", "content": ""})
    if said.text:
        yield chunk({"content": said.text})
    for index, call in enumerate(_calls(said)):
        yield chunk({"tool_calls": [{"index": index, **call}]})
    yield chunk({}, whole["choices"][0]["finish_reason"])
    if usage:
        yield "", {**head, "choices": [], "usage": whole["usage"]}
