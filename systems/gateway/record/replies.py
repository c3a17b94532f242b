"""What a reply says, gathered from its bytes as they pass: text, thoughts, tool calls, token ids.

Events are read some at a time, so that a long stream costs little memory; nothing is kept once its hashes are
written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from systems.gateway.bodies import Ask
from systems.gateway.record import prompts
from systems.http1 import Receive

_SOME = 1 << 14
"""Bytes of events that are read together."""


class Heard:
    """The reply to one request, once its pieces went ``through``."""

    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        self._clear()

    def _clear(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0
        self._thoughts: list[str] = []
        self._texts: list[str] = []
        self._calls: dict[object, list[str]] = {}
        self._ids: list[int] = []
        self._whole = b""

    def through(self, receive: Receive) -> Receive:
        """What takes the pieces of a reply from its beginning, on their way to ``receive``."""
        self._clear()

        def hear(stamp: float, piece: bytes) -> None:
            self._pieces.append(piece)
            self._size += len(piece)
            if self._size > _SOME and self.ask.stream:
                self._read()
            receive(stamp, piece)

        return hear

    def said(self) -> bytes:
        """In the form of ``prompts.said``."""
        self._finish()
        if self._whole:
            return self._whole
        calls = [prompts.called(name, "".join(rest)) for name, *rest in self._calls.values()]
        return prompts.joined(self._thoughts, self._texts, calls)

    def ids(self) -> list[int]:
        """The token ids that the reply says, if it does."""
        self._finish()
        return self._ids

    def tools(self) -> int:
        """How many tools it asks for."""
        self._finish()
        return len(self._calls)

    def _finish(self) -> None:
        if self._pieces:
            if self.ask.stream:
                self._read(last=True)
            else:
                reply, self._pieces = b"".join(self._pieces), []
                self._body(_object(reply))

    def _read(self, last: bool = False) -> None:
        """The events that are whole."""
        text = b"".join(self._pieces)
        end = len(text) if last else text.rfind(b"\n\n") + 2
        if end < 2:
            self._pieces, self._size = [text], 0
            return
        self._pieces, self._size = [text[end:]] if end < len(text) else [], 0
        for line in text[:end].split(b"\n"):
            if line.startswith(b"data:") and line[5:].lstrip()[:1] == b"{":
                self._event(_object(line[5:]))

    # -- the dialects ------------------------------------------------------------------

    def _event(self, event: Mapping[str, Any]) -> None:
        choices, kind = event.get("choices"), event.get("type")
        if isinstance(choices, list):
            if choices and isinstance(choices[0], dict):
                self._choice(choices[0], choices[0].get("delta"))
        elif kind == "content_block_start":
            self._block(event.get("index"), event.get("content_block"))
        elif kind == "content_block_delta":
            self._block_delta(event.get("index"), event.get("delta"))
        elif kind in ("response.completed", "response.incomplete"):
            self._body(event.get("response"))

    def _choice(self, choice: Mapping[str, Any], delta: object) -> None:
        """Of /v1/chat/completions and /v1/completions, a piece or whole."""
        if isinstance(choice.get("text"), str):
            self._texts.append(choice["text"])
        if isinstance(choice.get("token_ids"), list):
            self._ids += choice["token_ids"]
        if not isinstance(delta, dict):
            return
        if isinstance(delta.get("content"), str):
            self._texts.append(delta["content"])
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        if isinstance(thought, str):
            self._thoughts.append(thought)
        for place, call in enumerate(delta.get("tool_calls") or ()):
            function = call.get("function") if isinstance(call, dict) else None
            if isinstance(function, dict):
                self._call(call.get("index", place), function.get("name"), function.get("arguments"))

    def _call(self, index: object, name: object, arguments: object) -> None:
        parts = self._calls.setdefault(index, [""])
        if isinstance(name, str):
            parts[0] += name
        if isinstance(arguments, str):
            parts.append(arguments)

    def _block(self, index: object, block: object) -> None:
        """A block of /v1/messages begins."""
        if isinstance(block, dict) and block.get("type") == "tool_use":
            self._call(index, block.get("name"), orjson.dumps(block["input"]) if block.get("input") else "")

    def _block_delta(self, index: object, delta: object) -> None:
        if not isinstance(delta, dict):
            return
        if isinstance(delta.get("text"), str):
            self._texts.append(delta["text"])
        elif isinstance(delta.get("thinking"), str):
            self._thoughts.append(delta["thinking"])
        elif isinstance(delta.get("partial_json"), str):
            self._call(index, None, delta["partial_json"])

    def _body(self, body: object) -> None:
        """A reply in one piece."""
        if not isinstance(body, dict):
            return
        choices, output = body.get("choices"), body.get("output")
        if isinstance(choices, list) and choices and isinstance(choices[0], dict):
            message = choices[0].get("message")
            self._choice(choices[0], None)
            self._message([message] if isinstance(message, dict) else [])
        elif isinstance(output, list):
            self._message([item for item in output if isinstance(item, dict)])
        elif isinstance(body.get("content"), list):
            self._message([body])

    def _message(self, items: list[dict[str, Any]]) -> None:
        self._whole = b"".join(prompts.said(item) for item in items)
        for item in items:
            parts = item.get("content") if isinstance(item.get("content"), list) else []
            found = [*(item.get("tool_calls") or ()), *(p for p in parts or () if _is_tool(p))]
            found += [item] if item.get("type") == "function_call" else []
            for _ in found:
                self._calls[len(self._calls)] = [""]


def _is_tool(part: object) -> bool:
    return isinstance(part, dict) and part.get("type") == "tool_use"


def _object(text: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}
