"""Requests that clients of the three dialects send, right ones and wrong ones (docs/conformance.md).

The model is tiny and has random weights: what it says means nothing, but is the same each time (temperature
0), and its tool calls are forced where they are to come.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

MODEL = "tiny-llama"
KEY = "conformance-key"
CHAT, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
MESSAGES, COUNT = "/v1/messages", "/v1/messages/count_tokens"
BEARER = {"Authorization": f"Bearer {KEY}"}
LONG = "word " * 4000
"""More tokens than the engine's 2048."""


@dataclass(frozen=True)
class Case:
    """One request. ``raw``: the body's bytes, None: no body. ``cut_after``: the client leaves so many bytes
    into the reply, 0: it reads all of it. ``chunked``: how the body is sent."""

    name: str
    method: str
    path: str
    raw: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=lambda: BEARER)
    cut_after: int = 0
    chunked: bool = False


def _post(name: str, path: str, body: Any, **more: Any) -> Case:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Case(f"{path} {name}", "POST", path, raw, **more)


FUNCTION = {
    "name": "look", "description": "Look something up.", "strict": True,
    "parameters": {"type": "object", "enum": [{"what": "x"}]},
}  # fmt: skip
"""One call is possible, so that even random weights make it."""
_SAID = [{"role": "user", "content": "hello"}]
_CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"what": "x"}'}}
_TOOLS = [{"type": "function", "function": FUNCTION}]
_CHAT: Mapping[str, Mapping[str, Any]] = {
    "plain": {},
    "system prompt": {"messages": [{"role": "system", "content": "be short"}, *_SAID]},
    "content parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}]}]},
    "several turns": {"messages": [*_SAID, {"role": "assistant", "content": "hi"}, *_SAID]},
    "max_completion_tokens": {"max_tokens": None, "max_completion_tokens": 5},
    "tools offered": {"tools": _TOOLS},
    "tools offered, choice none": {"tools": _TOOLS, "tool_choice": "none"},
    "tool call required": {"tools": _TOOLS, "tool_choice": "required", "max_tokens": 60},
    "tool call of one name": {
        "tools": _TOOLS, "tool_choice": {"type": "function", "function": {"name": "look"}}, "max_tokens": 60,
    },
    "tool result in the history": {
        "tools": _TOOLS,
        "messages": [*_SAID, {"role": "assistant", "content": None, "tool_calls": [_CALL]},
                     {"role": "tool", "tool_call_id": "c1", "content": "found"}],
    },
    "stop": {"stop": ["e", "t"], "max_tokens": 40},
    "logprobs": {"logprobs": True, "top_logprobs": 2},
    "n 2": {"n": 2, "temperature": 1.0, "seed": 7},
    "usage asked for": {"stream_options": {"include_usage": True}},
    "usage in every chunk": {"stream_options": {"include_usage": True, "continuous_usage_stats": True}},
    "unknown field": {"no_such_field": 1},
    "own vllm_xargs": {"vllm_xargs": {"mine": "yes"}},
    "ids of our own": {"program_id": "conformance", "thread_id": "t", "metadata": {"a": "b"}},
}  # fmt: skip
_COMPLETIONS: Mapping[str, Mapping[str, Any]] = {
    "text": {},
    "token ids": {"prompt": [5, 6, 7, 8]},
    "two prompts": {"prompt": ["one", "two"]},
    "n 2": {"n": 2, "temperature": 1.0, "seed": 7},
    "echo": {"echo": True},
    "logprobs": {"logprobs": 2},
    "stop": {"stop": "e", "max_tokens": 40},
    "suffix": {"suffix": "end"},
    "usage asked for": {"stream_options": {"include_usage": True}},
}
_FLAT = {"type": "function", **FUNCTION}
_RESPONSES: Mapping[str, Mapping[str, Any]] = {
    "text": {},
    "instructions": {"instructions": "be short"},
    "items": {"input": [{"type": "message", "role": "user", "content": [
        {"type": "input_text", "text": "hello"}]}]},
    "tools offered": {"tools": [_FLAT]},
    "tool call required": {"tools": [_FLAT], "tool_choice": "required", "max_output_tokens": 60},
    "tool result in the history": {"tools": [_FLAT], "input": [
        {"role": "user", "content": "hello"},
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "look",
         "arguments": '{"what": "x"}', "status": "completed"},
        {"type": "function_call_output", "call_id": "c1", "output": "found"}]},
    "not stored, with a cache key": {"store": False, "prompt_cache_key": "k", "metadata": {"a": "b"}},
    "logprobs": {"include": ["message.output_text.logprobs"], "top_logprobs": 2},
    "previous response unknown": {"previous_response_id": "resp_unknown"},
    "own request_id": {"request_id": "resp_mine"},
}  # fmt: skip
_ANTHROPIC_TOOLS = [{"name": "look", "strict": True, "input_schema": FUNCTION["parameters"]}]
_MESSAGES: Mapping[str, Mapping[str, Any]] = {
    "plain": {},
    "system prompt": {"system": "be short"},
    "system blocks": {"system": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]},
    "tools offered": {"tools": _ANTHROPIC_TOOLS},
    "tool call required": {"tools": _ANTHROPIC_TOOLS, "tool_choice": {"type": "any"}, "max_tokens": 60},
    "tool result in the history": {"tools": _ANTHROPIC_TOOLS, "messages": [
        *_SAID,
        {"role": "assistant", "content": [
            {"type": "tool_use", "id": "c1", "name": "look", "input": {"what": "x"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "found"}]}]},
    "stop_sequences": {"stop_sequences": ["e", "t"], "max_tokens": 40},
    "top_k and metadata": {"top_k": 5, "metadata": {"user_id": "u"}},
    "thinking": {"thinking": {"type": "enabled", "budget_tokens": 1024}},
}  # fmt: skip
_COUNT: Mapping[str, Mapping[str, Any]] = {
    "plain": {}, "system prompt": {"system": "be short"}, "tools": {"tools": _ANTHROPIC_TOOLS},
}  # fmt: skip
BASES: Mapping[str, Mapping[str, Any]] = {
    CHAT: {"model": MODEL, "messages": _SAID, "max_tokens": 6, "temperature": 0},
    COMPLETIONS: {"model": MODEL, "prompt": "hello there", "max_tokens": 6, "temperature": 0},
    RESPONSES: {"model": MODEL, "input": "hello", "max_output_tokens": 6, "temperature": 0},
    MESSAGES: {"model": MODEL, "messages": _SAID, "max_tokens": 6, "temperature": 0},
    COUNT: {"model": MODEL, "messages": _SAID},
}
_RIGHT = {CHAT: _CHAT, COMPLETIONS: _COMPLETIONS, RESPONSES: _RESPONSES, MESSAGES: _MESSAGES, COUNT: _COUNT}
_PROMPT = {
    CHAT: "messages",
    COMPLETIONS: "prompt",
    RESPONSES: "input",
    MESSAGES: "messages",
    COUNT: "messages",
}
_LENGTH = {
    CHAT: "max_tokens",
    COMPLETIONS: "max_tokens",
    RESPONSES: "max_output_tokens",
    MESSAGES: "max_tokens",
}


def _right(path: str) -> Iterator[Case]:
    """Requests that are answered, each whole and as a stream."""
    for name, changes in _RIGHT[path].items():
        body = {key: value for key, value in {**BASES[path], **changes}.items() if value is not None}
        yield _post(name, path, {k: v for k, v in body.items() if k != "stream_options"})
        if path != COUNT:
            yield _post(f"{name}, stream", path, body | {"stream": True})


def _wrong(path: str) -> Iterator[Case]:
    """Requests that are refused, in the same words."""
    base, prompt = dict(BASES[path]), _PROMPT[path]
    long = LONG if isinstance(base[prompt], str) else [{"role": "user", "content": LONG}]
    without = {key: value for key, value in base.items() if key != prompt}
    yield _post("no JSON", path, b'{"model": ')
    yield _post("empty body", path, b"")
    yield _post("an array", path, [1, 2])
    yield _post("unknown model", path, base | {"model": "no-such-model"})
    yield _post("too long a prompt", path, base | {prompt: long})
    yield _post("too long a prompt, stream", path, base | {prompt: long, "stream": True})
    yield _post("prompt of a wrong type", path, base | {prompt: 5})
    yield _post("prompt missing", path, without)
    yield _post("stream of a wrong type", path, base | {"stream": "perhaps"})
    yield _post("as text/plain", path, base, headers=BEARER | {"Content-Type": "text/plain"})
    if path in _LENGTH:
        yield _post("length below 0", path, base | {_LENGTH[path]: -1})
        yield _post("length of a wrong type", path, base | {_LENGTH[path]: "many"})
        yield _post("temperature of a wrong type", path, base | {"temperature": "hot"})
        yield _post("vllm_xargs that is none", path, base | {"vllm_xargs": 5})


def _who(path: str) -> Iterator[Case]:
    """Keys of all kinds."""
    for name, headers in {
        "no key": {},
        "a wrong key": {"Authorization": "Bearer wrong"},
        "key without Bearer": {"Authorization": KEY},
        "key in x-api-key": {"x-api-key": KEY},
        "wrong key in x-api-key": {"x-api-key": "wrong"},
        "a name of its own": BEARER | {"X-Request-Id": "mine-1"},
    }.items():
        yield _post(name, path, BASES[path], headers=headers)


def _how(path: str) -> Iterator[Case]:
    """Other methods, and bodies that come otherwise."""
    for method in ("GET", "HEAD", "OPTIONS", "PUT", "DELETE"):
        yield Case(f"{path} {method}", method, path)
    preflight = {"Origin": "http://example.com", "Access-Control-Request-Method": "POST"}
    yield Case(f"{path} preflight", "OPTIONS", path, headers=preflight)
    yield _post("from another origin", path, BASES[path], headers=BEARER | {"Origin": "http://example.com"})
    yield replace(_post("", path, BASES[path]), name=f"{path} query ?beta=true", path=f"{path}?beta=true")
    yield replace(_post("", path, BASES[path]), name=f"{path}/ with a slash", path=f"{path}/")
    yield _post("body in chunks", path, BASES[path], chunked=True)
    yield _post("Expect: 100-continue", path, BASES[path], headers=BEARER | {"Expect": "100-continue"})
    yield _post("reply may be packed", path, BASES[path], headers=BEARER | {"Accept-Encoding": "gzip"})


def _cut(path: str) -> Iterator[Case]:
    """A client that leaves in mid-stream."""
    long = {**BASES[path], _LENGTH[path]: 900, "stream": True, "ignore_eos": True}
    yield _post("client leaves in mid-stream", path, long, cut_after=1500)


def _elsewhere() -> Iterator[Case]:
    for method, path in (
        ("GET", "/v1/models"), ("HEAD", "/v1/models"), ("POST", "/v1/models"), ("OPTIONS", "/v1/models"),
        ("GET", "/v1/models/no-such-model"), ("GET", "/v1/nothing"), ("GET", "/v1/"), ("GET", "/v1"),
        ("GET", "/v1/responses/resp_unknown"), ("POST", "/v1/responses/resp_unknown/cancel"),
    ):  # fmt: skip
        yield Case(f"{method} {path}", method, path)
    yield Case("GET /v1/models, no key", "GET", "/v1/models", headers={})
    yield _post("not served here", "/v1/embeddings", {"model": MODEL, "input": "hello"})


def cases() -> list[Case]:
    """All of them, by endpoint; names are unique."""
    found: list[Case] = []
    for path in _RIGHT:
        found += [*_right(path), *_wrong(path), *_who(path), *_how(path)]
        found += _cut(path) if path in _LENGTH else ()
    return [*found, *_elsewhere()]
