"""One turn of an AIPerf input: its messages, its reply's length, its times, and what it starts.

Two fields that say the same thing differently are refused, never one of them ignored.
"""

from __future__ import annotations

from typing import Any

from workloads.base import WorkloadError
from workloads.files import Fields, brief
from workloads.transcript import SYSTEM, Message, compact, role_of, text_of

DEFAULT_OUTPUT = 128
NO_LENGTH = f"no output_length or max_tokens, {DEFAULT_OUTPUT} tokens taken"
AT_MOST = "max_tokens without ignore_eos or min_tokens taken as the reply's length"
MEDIA = "images, audio and video left out"
MEDIA_FIELDS = ("image", "images", "audio", "audios", "video", "videos")


def milliseconds(turn: Fields, name: str) -> float | None:
    """A ``delay`` or ``timestamp`` in milliseconds. Raises WorkloadError."""
    value = turn.values.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1 << 50:
        raise turn.wrong(name, "a number of milliseconds, not negative")
    if name == "delay" and value > 1e9:
        raise turn.wrong(name, "at most 1e9 milliseconds (12 days)")
    return float(value)


def has_no_schedule(turn: Fields) -> bool:
    """Whether nothing in the turn says when and how to ask."""
    return not any(turn.has(name) for name in ("timestamp", "delay", "output_length", "max_tokens", "extra"))


def messages_of(turn: Fields, fixes: list[str]) -> list[Message]:
    """The new messages of a turn."""
    given = [name for name in ("text", "texts", "messages") if turn.has(name)]
    if len(given) > 1:
        raise WorkloadError(f"{turn.where}: has {' and '.join(given)}; give one of them")
    media = any(turn.has(name) for name in MEDIA_FIELDS)
    if not given and not media:
        raise WorkloadError(
            f"{turn.where}: expected text, texts or messages, got {brief(sorted(turn.values))}"
        )
    fixes += [MEDIA] if media else []
    tools = turn.items("tools")
    found = [Message(SYSTEM, compact(tools))] if tools else []
    for i, value in enumerate(turn.items("messages")):
        role = role_of(value.get("role")) if isinstance(value, dict) else None
        if role is None:
            raise WorkloadError(
                f"{turn.where}.messages[{i}]: expected a message with a role, got {brief(value)}"
            )
        found.append(Message(role, text_of(value)))
    role = role_of(turn.values.get("role", "user"))
    if role is None:
        raise turn.wrong("role", "a known role")
    texts = turn.items("texts") if "texts" in given else [turn.text("text")]
    for text in texts:
        contents = text.get("contents") if isinstance(text, dict) else [text]
        found += [Message(role, part.strip()) for part in contents or [] if isinstance(part, str)]
    return [message for message in found if message.text]


def length_of(turn: Fields, fixes: list[str]) -> int:
    """The reply's length in tokens."""
    extra = turn.values.get("extra")
    inner = Fields(extra if isinstance(extra, dict) else {}, f"{turn.where}.extra")
    found = [
        (row, name) for row in (turn, inner) for name in ("output_length", "max_tokens") if row.has(name)
    ]
    values = {row.integer(name, low=1, high=1 << 22) for row, name in found}
    if len(values) > 1:
        names = " and ".join(f"{row.where}.{name}" for row, name in found)
        raise WorkloadError(f"{names} say different lengths of one reply; give one")
    if not values:
        fixes.append(NO_LENGTH)
        return DEFAULT_OUTPUT
    if found[0][1] == "max_tokens" and not (inner.values.get("ignore_eos") or inner.has("min_tokens")):
        fixes.append(AT_MOST)
    return values.pop()


def spawns_of(turn: Fields, i: int) -> list[tuple[list[str], int]]:
    """(children, the turn that waits for them) of each entry."""
    found = []
    for k, entry in enumerate(turn.items("spawns")):
        if isinstance(entry, dict):
            row = Fields(entry, f"{turn.where}.spawns[{k}]")
            found.append((row.items("children"), row.integer("join_at", default=i + 1)))
        else:
            found.append(([entry], i + 1))
    return found


def forks_of(turn: Fields) -> list[tuple[Any, bool]]:
    """(child, does the conversation go on beside it) of each entry."""
    return [
        (entry.get("child"), bool(entry.get("background"))) if isinstance(entry, dict) else (entry, False)
        for entry in turn.items("forks")
    ]
