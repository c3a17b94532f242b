"""/v1/messages, as Anthropic defines it and vLLM 0.32 serves it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workloads.agents.contract import Turn
from workloads.agents.relay.bodies import arguments
from workloads.agents.relay.dialect import Counted, Pieces, Seen, TellsUsage, number, said, without
from workloads.agents.relay.sse import Event, event

LEFT_OUT = frozenset({"stop_sequences", "thinking", "output_config", "tool_choice"})
"""What would end a reply early, bend what is decoded, or want more tokens than a short reply has."""
_KINDS = {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error"}


class Messages(TellsUsage):
    """The dialect. Length: ``max_tokens``, and a model without an end (vLLM knows no ``ignore_eos`` here)."""

    name = "messages"
    path = "/v1/messages"
    unparsed: Mapping[str, Any] = {"tool_choice": {"type": "none"}}

    def forced(self, asked: Mapping[str, Any], tokens: int) -> dict[str, Any]:
        """A model with an end token may say it earlier: the call's tokens are then fewer than scripted."""
        body = without(asked, LEFT_OUT) | {"max_tokens": tokens, "temperature": 0}
        return {**body, **(self.unparsed if asked.get("tools") else {})}

    def seen(self, event: Event) -> Seen:
        """By the event's type; vLLM starts a message with its first token, and the last usage counts."""
        data = event.data or {}
        match data.get("type"):
            case "error":
                return Seen(failed=said(data.get("error")))
            case "message_start":
                message = data.get("message")
                return Seen(True, counted=self.counted(message) if isinstance(message, Mapping) else None)
            case "content_block_delta":
                return Seen(token=True)
            case "message_delta":
                return Seen(counted=self.counted(data))
            case kind:
                return Seen(over=kind == "message_stop")

    def counted(self, reply: Mapping[str, Any]) -> Counted:
        """``usage``, where cached tokens of the prompt are counted apart."""
        usage = reply.get("usage")
        if not isinstance(usage, Mapping):
            return Counted()
        prompt, cached = number(usage.get("input_tokens")), number(usage.get("cache_read_input_tokens"))
        more = cached, number(usage.get("cache_creation_input_tokens"))
        whole = prompt + sum(n for n in more if n > 0) if prompt >= 0 else prompt
        return Counted(whole, number(usage.get("output_tokens")), cached)

    def whole(self, reply: Mapping[str, Any], turn: Turn, asked: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        """Its content is the turn."""
        if "content" not in reply:
            raise KeyError("content")
        text = [{"type": "text", "text": turn.text}] if turn.text else []
        calls = [
            {"type": "tool_use", "id": call.id, "name": call.name, "input": dict(call.arguments)}
            for call in turn.tool_calls
        ]
        return {**reply, "content": [*text, *calls], **_stop(turn)}

    def player(self, turn: Turn, asked: Mapping[str, Any]) -> MessagesPlayer:  # noqa: ARG002
        """For one stream."""
        return MessagesPlayer(turn)

    def error(self, status: int, message: str) -> dict[str, Any]:
        """Anthropic's."""
        return {"type": "error", "error": {"type": _KINDS.get(status, "api_error"), "message": message}}


class MessagesPlayer:
    """A block of text that grows with the tokens, then a block for each tool call."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._pieces = Pieces(turn.text, turn.output_tokens)
        self._opened = False

    def play(self, event: Event, seen: Seen) -> bytes:
        """The engine's start and end with the script's blocks between; pings, errors and comments pass."""
        data = event.data
        kind = None if data is None else data.get("type")
        if data is None or seen.failed or kind in ("message_start", "message_stop", "ping"):
            return event.raw
        if seen.token:
            return self._text(self._pieces.next())
        return self._end(data) if kind == "message_delta" else b""

    def _end(self, data: Mapping[str, Any]) -> bytes:
        found = [self._text(self._pieces.rest())]
        if self._opened:
            found.append(_block("stop", 0))
        for index, call in enumerate(self._turn.tool_calls, int(self._opened)):
            begun = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
            said = {"type": "input_json_delta", "partial_json": arguments(call.arguments)}
            found.append(_block("start", index, content_block=begun))
            found.append(_block("delta", index, delta=said))
            found.append(_block("stop", index))
        over = {**data, "delta": _stop(self._turn)}
        return b"".join([*found, event(over, "message_delta")])

    def _text(self, piece: str) -> bytes:
        if not piece:
            return b""
        begun = b"" if self._opened else _block("start", 0, content_block={"type": "text", "text": ""})
        self._opened = True
        return begun + _block("delta", 0, delta={"type": "text_delta", "text": piece})


def _block(what: str, index: int, **more: Any) -> bytes:
    kind = f"content_block_{what}"
    return event({"type": kind, "index": index, **more}, kind)


def _stop(turn: Turn) -> dict[str, Any]:
    return {"stop_reason": "tool_use" if turn.tool_calls else "end_turn", "stop_sequence": None}


DIALECT = Messages()
