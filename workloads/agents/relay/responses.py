"""/v1/responses, as OpenAI defines it and vLLM 0.32 serves it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workloads.agents.contract import ToolCall, Turn
from workloads.agents.relay.bodies import arguments
from workloads.agents.relay.dialect import (
    Counted,
    Pieces,
    Seen,
    TellsUsage,
    count,
    openai_error,
    said,
    without,
)
from workloads.agents.relay.sse import Event, event

LEFT_OUT = frozenset({
    "stop", "stop_token_ids", "logit_bias", "structured_outputs", "top_logprobs", "include", "tool_choice",
})  # fmt: skip
"""What would end a reply early, bend what is decoded, or speak of tokens that the agent does not get."""
_ECHOED = {"tool_choice": "auto", "max_output_tokens": None, "temperature": 1.0}
"""What a reply repeats of the request and the engine is asked for otherwise; OpenAI's defaults."""
_BEGINNING = frozenset({"response.queued", "response.created", "response.in_progress"})
_END = frozenset({"response.completed", "response.incomplete"})


class Responses(TellsUsage):
    """The dialect. Length: ``max_output_tokens``, ``ignore_eos`` (``min_tokens`` is not known here)."""

    name = "responses"
    path = "/v1/responses"
    unparsed: Mapping[str, Any] = {"tool_choice": "none"}

    def forced(self, asked: Mapping[str, Any], tokens: int) -> dict[str, Any]:
        """Without grammars, which would shape what is decoded, in custom tools too: vLLM refuses those."""
        body = without(asked, LEFT_OUT)
        body |= {"max_output_tokens": tokens, "ignore_eos": True, "temperature": 0}
        if isinstance(text := asked.get("text"), Mapping):
            body["text"] = without(text, ("format",))
        if isinstance(tools := asked.get("tools"), list) and tools:
            body |= {**self.unparsed, "tools": [_plain(tool) for tool in tools]}
        return body

    def observed(self, asked: Mapping[str, Any], name: str) -> dict[str, Any]:  # noqa: ARG002
        """The name goes in the body: X-Request-Id is not looked at."""
        return {"request_id": f"resp_{name}"}

    def seen(self, event: Event) -> Seen:
        """By the event's type; vLLM ends with ``response.completed`` whatever the status."""
        data = event.data or {}
        kind = str(data.get("type", ""))
        if kind == "error":
            return Seen(failed=said(data.get("error") or data))
        if kind == "response.failed":
            return Seen(failed=said(_response(data).get("error")))
        if kind in _END:
            return Seen(over=True, counted=self.counted(_response(data)))
        return Seen(token=kind.endswith(".delta"))

    def counted(self, reply: Mapping[str, Any]) -> Counted:
        """``usage``."""
        return count(reply.get("usage"), "input_tokens", "output_tokens", "input_tokens_details")

    def whole(self, reply: Mapping[str, Any], turn: Turn, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Its output is the turn, and complete."""
        if "output" not in reply:
            raise KeyError("output")
        output = _items(turn, asked, str(reply["id"]))
        over = {"status": "completed", "incomplete_details": None}
        return {**reply, **_echo(reply, asked), **over, "output": output}

    def player(self, turn: Turn, asked: Mapping[str, Any]) -> ResponsesPlayer:
        """For one stream."""
        return ResponsesPlayer(turn, asked)

    def error(self, status: int, message: str) -> dict[str, Any]:
        """OpenAI's."""
        return openai_error(status, message)


class ResponsesPlayer:
    """A message that grows with the tokens, then the tool calls, each an item; events are numbered anew."""

    def __init__(self, turn: Turn, asked: Mapping[str, Any]) -> None:
        self._turn, self._asked = turn, asked
        self._pieces = Pieces(turn.text, turn.output_tokens)
        self._number = 0
        self._items = _items(turn, asked, "")
        self._opened = False

    def play(self, event: Event, seen: Seen) -> bytes:
        """The engine's beginning and end with the script's items between; errors and comments as they are."""
        data = event.data
        if data is None or seen.failed:
            return event.raw
        kind = data.get("type")
        if kind in _BEGINNING:
            self._items = _items(self._turn, self._asked, str(_response(data).get("id", "")))
            response = {**_response(data), **_echo(_response(data), self._asked)}
            return self._say(str(kind), response=response)
        if seen.token:
            return self._text(self._pieces.next())
        return self._end(data) if kind in _END else b""

    def _end(self, data: Mapping[str, Any]) -> bytes:
        found = [self._text(self._pieces.rest())]
        response = DIALECT.whole(_response(data), self._turn, self._asked)
        for index, item in enumerate(response["output"]):
            found.append(self._close(item) if item["type"] == "message" else self._call(index, item))
        return b"".join([*found, self._say("response.completed", response=response)])

    # -- the message, which is item 0 ---------------------------------------------------

    def _text(self, piece: str) -> bytes:
        if not piece:
            return b""
        return self._open() + self._say(
            "response.output_text.delta", **self._where(), delta=piece, logprobs=[]
        )

    def _where(self) -> dict[str, Any]:
        return {"item_id": self._items[0]["id"], "output_index": 0, "content_index": 0}

    def _open(self) -> bytes:
        """Once."""
        if self._opened:
            return b""
        self._opened = True
        item = {**self._items[0], "status": "in_progress", "content": []}
        part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        return self._say("response.output_item.added", output_index=0, item=item) + self._say(
            "response.content_part.added", **self._where(), part=part
        )

    def _close(self, item: dict[str, Any]) -> bytes:
        where, part = self._where(), item["content"][0]
        return b"".join((
            self._open(),
            self._say("response.output_text.done", **where, text=part["text"], logprobs=[]),
            self._say("response.content_part.done", **where, part=part),
            self._say("response.output_item.done", output_index=0, item=item),
        ))  # fmt: skip

    # -- tool calls --------------------------------------------------------------------

    def _call(self, index: int, item: dict[str, Any]) -> bytes:
        custom = item["type"] == "custom_tool_call"
        field = "input" if custom else "arguments"
        kind = "custom_tool_call_input" if custom else "function_call_arguments"
        where = {"item_id": item["id"], "output_index": index}
        done = {field: item[field]} if custom else {field: item[field], "name": item["name"]}
        begun = {**item, field: "", "status": "in_progress"}
        return b"".join((
            self._say("response.output_item.added", output_index=index, item=begun),
            self._say(f"response.{kind}.delta", **where, delta=item[field]),
            self._say(f"response.{kind}.done", **where, **done),
            self._say("response.output_item.done", output_index=index, item=item),
        ))  # fmt: skip

    def _say(self, kind: str, **data: Any) -> bytes:
        number, self._number = self._number, self._number + 1
        return event({"type": kind, "sequence_number": number, **data}, kind)


def _items(turn: Turn, asked: Mapping[str, Any], response: str) -> list[dict[str, Any]]:
    """A message if there is text or nothing else, and the calls; ids follow from the response's."""
    name = response.removeprefix("resp_")
    found: list[dict[str, Any]] = []
    if turn.text or not turn.tool_calls:
        part = {"type": "output_text", "text": turn.text, "annotations": [], "logprobs": []}
        own = {"id": f"msg_{name}", "type": "message", "role": "assistant", "status": "completed"}
        found.append({**own, "content": [part]})
    custom = {
        str(tool.get("name")) for tool in asked.get("tools") or () if _is(tool, "custom")
    }  # fmt: skip
    return found + [_call(call, call.name in custom, f"{name}.{i}") for i, call in enumerate(turn.tool_calls)]


def _call(call: ToolCall, custom: bool, name: str) -> dict[str, Any]:
    """``custom``: a tool that takes a text, which is the script's argument ``input``."""
    own = {"call_id": call.id, "name": call.name, "status": "completed"}
    if custom:
        text = str(call.arguments.get("input", ""))
        return {"id": f"ctc_{name}", "type": "custom_tool_call", **own, "input": text}
    return {"id": f"fc_{name}", "type": "function_call", **own, "arguments": arguments(call.arguments)}


def _plain(tool: object) -> object:
    return without(tool, ("format",)) if isinstance(tool, Mapping) and _is(tool, "custom") else tool


def _is(tool: object, kind: str) -> bool:
    return isinstance(tool, Mapping) and tool.get("type") == kind


def _response(data: Mapping[str, Any]) -> Mapping[str, Any]:
    found = data.get("response")
    return found if isinstance(found, Mapping) else {}


def _echo(reply: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """What the agent asked for, in place of what the engine was asked for."""
    usual = {name: asked.get(name, default) for name, default in _ECHOED.items() if name in reply}
    return usual | {name: asked[name] for name in ("tools", "text") if name in reply and name in asked}


DIALECT = Responses()
