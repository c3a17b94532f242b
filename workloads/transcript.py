"""From recorded messages to calls: segments whose identity is what was said.

Equal messages of a program are equal segments, so a prompt that repeats an earlier one shares
exactly the messages they have in common. Between programs only system prompts at the start
are shared: whatever else is equal in two recordings (a session recorded twice) stays apart.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from vocabulary import on_grid
from workloads.base import WorkloadError
from workloads.keys import mix
from workloads.script import CallOp, Script, ThinkOp, ToolOp
from workloads.session import CallId
from workloads.tokens import Counter

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ISO = re.compile(r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:[.,](\d+))?(Z|[+-]\d\d:\d\d)?", re.ASCII)
SYSTEM, USER, TOOL, MODEL = "system", "user", "tool", "model"
ROLES = {
    **dict.fromkeys(("human", "user"), USER),
    **dict.fromkeys(("system", "developer"), SYSTEM),
    **dict.fromkeys(("tool", "observation", "function", "environment"), TOOL),
    **dict.fromkeys(("assistant", "gpt", "chatgpt", "model", "ai", "agent"), MODEL),
}
LONGEST_S = float(1 << 20)
TOO_LONG = f"pause of more than {LONGEST_S:.0f} s, {LONGEST_S:.0f} s taken"
_DEEPEST = 250
NO_TOKENS = "reply of 0 tokens, 1 taken"
ESTIMATED = "length estimated from the text"


class Message(NamedTuple):
    """What was said: ``role`` is one of SYSTEM, USER, TOOL, MODEL; ``tokens`` what the file says
    it is long, None to count."""

    role: str
    text: str
    tokens: int | None = None


def role_of(value: object) -> str | None:
    """Our name of a role, None for one nobody knows."""
    return ROLES.get(value.strip().lower()) if isinstance(value, str) else None


def text_of(message: dict[str, Any]) -> str:
    """The text of a message of the OpenAI or the OpenTelemetry form; calls of tools are text, too."""
    texts = _texts(message.get("content")) + _texts(message.get("parts"))
    calls = message.get("tool_calls")
    texts += [_tool_call(call) for call in calls] if isinstance(calls, list) else []
    if message.get("function_call"):
        texts.append(_tool_call(message["function_call"]))
    return "\n".join(text for text in texts if text).strip()


def _texts(content: object) -> list[str]:
    if isinstance(content, str):
        return [content]
    if isinstance(content, dict):
        return _part(content)
    if isinstance(content, list):
        return [
            text for part in content for text in (_part(part) if isinstance(part, dict) else _texts(part))
        ]
    return []


def _part(part: dict[str, Any]) -> list[str]:
    if part.get("type") in ("tool_call", "tool_use", "function"):
        return [_tool_call(part)]
    for name in ("text", "content", "response", "result"):
        if part.get(name) is not None:
            return _texts(part[name]) or [compact(part[name])]
    return []


def _tool_call(call: object) -> str:
    """``name(arguments)``; the ids of calls are no text of the model."""
    if not isinstance(call, dict):
        return call if isinstance(call, str) else compact(call)
    inner = call.get("function")
    row = inner if isinstance(inner, dict) else call
    arguments = next((row[name] for name in ("arguments", "input") if row.get(name) is not None), "")
    return f"{row.get('name', '')}({arguments if isinstance(arguments, str) else compact(arguments)})"


def compact(value: object) -> str:
    """A JSON value as text."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), default=str)


def structure(value: object) -> Any:
    """What a string of JSON, or of a Python literal, holds; any other value as it is.

    A string that is neither comes back unchanged.
    """
    if not isinstance(value, str) or not value.lstrip().startswith(("[", "{")):
        return value
    found: Any = value
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        with suppress(ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
            found = ast.literal_eval(value.strip())
    return value if too_deep(found) else found


def too_deep(value: object) -> bool:
    """Whether lists and objects are nested deeper than any recording is."""
    level: list[object] = [value]
    for _ in range(_DEEPEST):
        inner: list[object] = []
        for item in level:
            inside = (
                item.values() if isinstance(item, dict) else item if isinstance(item, (list, tuple)) else ()
            )
            inner += [thing for thing in inside if isinstance(thing, (dict, list, tuple))]
        if not inner:
            return False
        level = inner
    return True


def nanoseconds(value: object) -> int | None:
    """A time as whole nanoseconds since 1970: ISO 8601 text (UTC where it names no zone), or Unix
    nanoseconds as a number or digits. None for anything else."""
    if isinstance(value, str) and not value.strip().isdecimal():
        match = _ISO.fullmatch(value.strip())
        if match is None:
            return None
        whole, fraction, zone = match.groups()
        try:
            time = datetime.fromisoformat(whole.replace(" ", "T") + (zone or "+00:00").replace("Z", "+00:00"))
        except ValueError:
            return None
        since = time - _EPOCH
        return (since.days * 86_400 + since.seconds) * 10**9 + int((fraction or "0").ljust(9, "0")[:9])
    if isinstance(value, str):
        return int(value) if len(value.strip()) <= 20 else None
    return int(value) if isinstance(value, (int, float)) and 0 < value < 1 << 64 else None


def content_id(*parts: str) -> int:
    """A 64-bit id of a text."""
    text = "\x1f".join(parts).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")


@dataclass(slots=True, eq=False)
class Place:
    """A place in the tree of what was said: after some messages, in the context of ``call``.

    ``end`` is the number of tokens up to here there, ``least`` how many of them belong to prompts:
    the rest is a reply, of which a later prompt may have left something out.
    """

    after: dict[int, Place] = field(default_factory=dict)
    call: CallOp | None = None
    end: int = 0
    least: int = 0


_UNKNOWN = -1  # the key of a reply whose text is not recorded


class Prompts:
    """Finds for every prompt of a program what it shares with an earlier call."""

    def __init__(self, key: int, counter: Counter) -> None:
        self.key = key
        self.root = Place()
        self.counter = counter
        self.estimated = False
        """Whether a length was estimated that the file does not give."""
        self._made = 0
        self._counts: dict[int, int] = {}

    def new_id(self) -> int:
        """An id of this program that nothing else has."""
        self._made += 1
        return mix(self.key, self._made)

    def place(
        self,
        op: CallOp,
        messages: Sequence[Message],
        reply: str | None,
        total: int | None,
        at: Place | None = None,
    ) -> Place:
        """Set prompt and reply id of ``op``; the place behind its reply.

        ``messages`` is the prompt after ``at`` (the whole of it if that is None). ``total`` is
        the file's prompt length in tokens; then lengths counted here only say where its messages
        end. ``reply`` is the text of the reply, if it is recorded.
        """
        start = at or self.root
        keys = [content_id(m.role, m.text) for m in messages]
        passed = self._passed(start, messages, keys)
        op.base, op.keep = passed[-1].call, passed[-1].end
        known = len(passed) - 1
        lengths = [self._length(m, key, total) for m, key in zip(messages[known:], keys[known:], strict=True)]
        lengths = self._fitted(op, passed[-1].least, lengths, total)
        ids = self._ids(messages, keys, at is None)[known:]
        shown = op.keep + sum(lengths)
        rest = [(self.new_id(), total - shown)] if total is not None and total > shown else []
        op.new = (*((name, length) for name, length in zip(ids, lengths, strict=True) if length), *rest)
        op.prompt_tokens = op.keep + sum(length for _, length in op.new)
        op.base = op.base if op.keep else None
        self._remember(op, passed, keys[known:], lengths)
        return self._replied(op, passed[-1], reply)

    def _passed(self, at: Place, messages: Sequence[Message], keys: list[int]) -> list[Place]:
        """The places an earlier call passed and this prompt passes, too; ``at`` first."""
        found = [at]
        for message, key in zip(messages, keys, strict=True):
            after = found[-1].after
            following = after.get(key) or (after.get(_UNKNOWN) if message.role == MODEL else None)
            if following is None:
                break
            found.append(following)
        return found

    def _length(self, message: Message, key: int, total: int | None) -> int:
        if message.tokens is not None:
            return message.tokens
        if key not in self._counts:
            self._counts[key] = self.counter.count(message.text)
        if total is None and self._counts[key] and not self.counter.exact:
            self.estimated = True
        return self._counts[key]

    def _fitted(self, op: CallOp, least: int, lengths: list[int], total: int | None) -> list[int]:
        """The lengths of the new messages, shorter where the whole would be more than ``total``.

        What comes first goes: the end of the base's reply, then the new messages in proportion.
        """
        length = sum(lengths)
        if total is None or op.keep + length <= total:
            return lengths
        op.keep = min(op.keep, max(least, total - length), max(0, total - len(lengths)))
        return _scaled(lengths, total - op.keep)

    def _ids(self, messages: Sequence[Message], keys: list[int], start: bool) -> list[int]:
        """Segment ids: system prompts at the start are the same in all programs."""
        leading, ids = start, []
        for message, key in zip(messages, keys, strict=True):
            leading = leading and message.role == SYSTEM
            ids.append(key if leading else mix(self.key, key))
        return ids

    def _remember(self, op: CallOp, passed: list[Place], keys: list[int], lengths: list[int]) -> None:
        """Make this call the one to go on from at every place it passed; ``passed`` grows."""
        for place in passed[1:]:
            place.call, place.end = op, min(place.end, op.keep)
        end = op.keep
        for key, length in zip(keys, lengths, strict=True):
            end += length
            following = passed[-1].after[key] = Place(call=op, end=end, least=end)
            passed.append(following)
        if len(passed) > 1:
            passed[-1].end = passed[-1].least = op.prompt_tokens

    def _replied(self, op: CallOp, at: Place, reply: str | None) -> Place:
        key = content_id(MODEL, reply) if reply else _UNKNOWN
        op.output_id = mix(self.key, key) if reply else self.new_id()
        # A new place each time: who went on from an equal reply keeps the context it had.
        place = at.after[key] = Place(call=op, end=op.total, least=op.prompt_tokens)
        return place


def _scaled(lengths: list[int], total: int) -> list[int]:
    """Lengths in proportion, ``total`` in sum, each at least 1 while there are tokens."""
    if total < len(lengths):
        return [1] * total + [0] * (len(lengths) - total)
    spare, whole = total - len(lengths), max(1, sum(lengths) - len(lengths))
    result, passed, given = [], 0, 0
    for length in lengths:
        passed += length - 1
        share = spare * passed // whole
        result.append(1 + share - given)
        given = share
    return result


class Thread:
    """One line of control of a program, written down call by call."""

    def __init__(
        self,
        prompts: Prompts,
        repair: Callable[[str], None],
        name: str = "",
        parents: tuple[CallId, ...] = (),
    ) -> None:
        self.prompts = prompts
        self.repair = repair
        self.name = name
        self.parents = parents
        self.script = Script()
        self.calls = 0
        self.place: Place | None = None
        """Behind the last reply, where a prompt that only adds to it goes on."""

    def call(
        self,
        messages: Sequence[Message],
        reply: Message,
        *,
        total: int | None = None,
        model: str = "",
        goes_on: bool = False,
    ) -> CallOp:
        """A call with this prompt; with ``goes_on`` the prompt is the context so far and ``messages``.

        ``total`` is the recorded length of the prompt (tokens). Raises WorkloadError on an empty
        prompt.
        """
        output = reply.tokens
        if output is None:
            output = self.prompts.counter.count(reply.text)
            self.prompts.estimated |= bool(output) and not self.prompts.counter.exact
        if output == 0:
            self.repair(NO_TOKENS)
        op = CallOp(self.name, self.calls, self.parents, (), 0, max(1, output), 0, model)
        at = self.place if goes_on else None
        self.place = self.prompts.place(op, messages, reply.text, total or None, at)
        if op.prompt_tokens < 1:
            raise WorkloadError("a call without a prompt")
        self.calls += 1
        self.parents = (op.id,)
        self.script.ops.append(op)
        return op

    def tool(self, name: str, seconds: float) -> None:
        """A tool that took ``seconds``; none of 0 s is written down."""
        if seconds := self._bounded(seconds):
            self.script.ops.append(ToolOp(name, seconds))

    def think(self, seconds: float) -> None:
        """A person who took ``seconds``."""
        if seconds := self._bounded(seconds):
            self.script.ops.append(ThinkOp(seconds))

    def _bounded(self, seconds: float) -> float:
        if seconds > LONGEST_S:
            self.repair(TOO_LONG)
        return on_grid(min(max(0.0, seconds), LONGEST_S))
