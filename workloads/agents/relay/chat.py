"""/v1/chat/completions, as OpenAI defines it and vLLM 0.32 serves it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workloads.agents.contract import ToolCall, Turn
from workloads.agents.relay.bodies import arguments
from workloads.agents.relay.dialect import (
    Counted,
    Pieces,
    Refused,
    Seen,
    count,
    openai_error,
    said,
    without,
)
from workloads.agents.relay.sse import DONE, Event, event

LEFT_OUT = frozenset({
    "stop", "stop_token_ids", "bad_words", "allowed_token_ids", "logit_bias", "max_completion_tokens",
    "response_format", "structured_outputs", "guided_json", "guided_regex", "guided_choice",
    "guided_grammar", "logprobs", "top_logprobs", "prompt_logprobs", "echo", "use_beam_search", "best_of",
    "function_call", "functions", "tool_choice", "stream_options", "thinking_token_budget",
})  # fmt: skip
"""What would end a reply early, bend what is decoded, or speak of tokens that the agent does not get."""
_CHUNK = ("id", "object", "created", "model", "system_fingerprint", "service_tier")


class Chat:
    """The dialect. Length: ``max_tokens``, ``min_tokens``, ``ignore_eos``."""

    name = "chat"
    path = "/v1/chat/completions"
    unparsed: Mapping[str, Any] = {"tool_choice": "none"}

    def forced(self, asked: Mapping[str, Any], tokens: int) -> dict[str, Any]:
        """Raises Refused for several samples."""
        if asked.get("n", 1) not in (1, None):
            raise Refused(f"a script has one answer to a call, and this one asks for n={asked['n']}")
        body = without(asked, LEFT_OUT)
        body |= {"max_tokens": tokens, "min_tokens": tokens, "ignore_eos": True, "temperature": 0}
        return {**body, **(self.unparsed if asked.get("tools") else {})}

    def observed(self, asked: Mapping[str, Any], name: str) -> dict[str, Any]:  # noqa: ARG002
        """The name is in X-Request-Id; streams say their usage only if they are asked to."""
        if asked.get("stream") is not True:
            return {}
        options = asked.get("stream_options")
        known = options if isinstance(options, Mapping) else {}
        return {"stream_options": {**known, "include_usage": True}}

    def hidden(self, asked: Mapping[str, Any], event: Event) -> bool:
        """The event with the usage, where it was not asked for."""
        return event.data is not None and not event.data.get("choices", True) and not _wants_usage(asked)

    def seen(self, event: Event) -> Seen:
        """The first event of vLLM has a role and no text; it comes with the first token."""
        if event.text == DONE:
            return Seen(over=True)
        data = event.data
        if data is None:
            return Seen()
        if "error" in data:
            return Seen(failed=said(data["error"]))
        usage = self.counted(data) if data.get("usage") else None
        return Seen(token=bool(data.get("choices")), counted=usage)

    def counted(self, reply: Mapping[str, Any]) -> Counted:
        """``usage``."""
        return count(reply.get("usage"), "prompt_tokens", "completion_tokens", "prompt_tokens_details")

    def whole(self, reply: Mapping[str, Any], turn: Turn, asked: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        """Its only choice is the turn."""
        (choice,) = reply["choices"]
        message = without(choice["message"], ("reasoning", "reasoning_content", "tool_calls"))
        message |= {"role": "assistant", "content": turn.text or (None if turn.tool_calls else "")}
        if turn.tool_calls:
            message["tool_calls"] = [_call(call) for call in turn.tool_calls]
        own = {"index": 0, "message": message, "logprobs": None, "finish_reason": _reason(turn)}
        return {**reply, "choices": [{**without(choice, ("stop_reason", "token_ids")), **own}]}

    def player(self, turn: Turn, asked: Mapping[str, Any]) -> ChatPlayer:
        """For one stream."""
        return ChatPlayer(turn, _wants_usage(asked))

    def error(self, status: int, message: str) -> dict[str, Any]:
        """OpenAI's."""
        return openai_error(status, message)


class ChatPlayer:
    """Text with the tokens, tool calls at the end; ``usage``: whether the agent wants that event."""

    def __init__(self, turn: Turn, usage: bool) -> None:
        self._turn, self._usage = turn, usage
        self._pieces = Pieces(turn.text, turn.output_tokens)
        self._last: Mapping[str, Any] = {}
        self._ended = False

    def play(self, event: Event, seen: Seen) -> bytes:
        """The engine's chunk with the script's text; usage, errors and the end as they are."""
        data = event.data
        self._ended = self._ended or bool(seen.failed)  # nothing is made up behind an error
        if data is None or seen.failed:
            return (self._end(self._last) if seen.over else b"") + event.raw
        if not data.get("choices"):
            return event.raw if self._usage else b""
        choice, self._last = data["choices"][0], data
        if choice.get("finish_reason") is not None:
            return self._end(data)
        delta = choice.get("delta") or {}
        if "role" in delta and not delta.get("content"):
            return _chunk(data, {"role": "assistant", "content": ""})
        piece = self._pieces.next()
        return _chunk(data, {"content": piece}) if piece else b""

    def _end(self, data: Mapping[str, Any]) -> bytes:
        """Once: with the engine's reason to end, or at the latest with its stream."""
        if self._ended:
            return b""
        self._ended = True
        rest = self._pieces.rest()
        found = [_chunk(data, {"content": rest})] if rest else []
        for index, call in enumerate(self._turn.tool_calls):
            begun = {"index": index, **_call(call, "")}
            said = {"index": index, "function": {"arguments": arguments(call.arguments)}}
            found += [_chunk(data, {"tool_calls": [begun]}), _chunk(data, {"tool_calls": [said]})]
        return b"".join([*found, _chunk(data, {}, _reason(self._turn))])


def _wants_usage(asked: Mapping[str, Any]) -> bool:
    options = asked.get("stream_options")
    return isinstance(options, Mapping) and options.get("include_usage") is True


def _reason(turn: Turn) -> str:
    return "tool_calls" if turn.tool_calls else "stop"


def _call(call: ToolCall, said: str | None = None) -> dict[str, Any]:
    text = arguments(call.arguments) if said is None else said
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": text}}


def _chunk(data: Mapping[str, Any], delta: dict[str, Any], reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
    return event({**{name: data[name] for name in _CHUNK if name in data}, "choices": [choice]})


DIALECT = Chat()
