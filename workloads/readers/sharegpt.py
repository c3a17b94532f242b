"""Reads conversations: ShareGPT JSON, chat messages of the OpenAI form, or lengths in a CSV.

Files
* ``.json`` with an array of records, ``.jsonl`` with one a line, or a single record. A record is
  ``{"conversations": [{"from", "value"}]}`` or ``{"messages": [{"role", "content"}]}`` (also under
  ``conversation`` or ``items``, and a ``system`` text beside them), or just the list: of messages,
  or of texts that alternate, the user first.
* CSV with the columns ``conversation, message, from, tokens``: lengths only.

A program is one conversation, one call per reply: everything since the last reply is the call's
new prompt (the user, tool results, a system prompt). ``function_call`` is the model's.

Lengths are those of the file (``tokens``, ``num_tokens`` or ``token_count`` of a message), or counted
in the text: by ``-p tokenizer=NAME|FILE``, else estimated, which is counted in ``repaired``.

Sharing is literal: equal system prompts at the start of two conversations are the same tokens,
nothing else is shared between conversations, however equal they are.

Skipped: records that are no conversation, have one message, an unknown role, or no reply.
Repaired: see the constants. Broken JSON is an error in a file, and skips a file of a folder.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

from vocabulary import Segment
from workloads.base import NothingLeft, ProgramSet, ProgramSpec, WorkloadError
from workloads.files import Tally, brief, files_of, head, read_bytes, shown
from workloads.keys import key_of, mix
from workloads.overflow import exceeded, fit
from workloads.records import records
from workloads.replay import replay_spec
from workloads.script import CallOp, Script
from workloads.tokens import Counter, counter

ESTIMATED = "length estimated from the text"
STARTS_WITH_REPLY = "starts with the model's reply, taken as context of the first prompt"
SAME_ROLE = "two messages of the same role in a row, joined"
BLANK = "blank message left out"
NO_TOKENS = "reply of 0 tokens, 1 taken"
UNANSWERED = "last messages without a reply left out"

_USER, _SYSTEM, _TOOL, _MODEL = "user", "system", "tool", "model"
ROLES = {
    **dict.fromkeys(("human", "user"), _USER),
    **dict.fromkeys(("system", "developer"), _SYSTEM),
    **dict.fromkeys(("tool", "observation", "function"), _TOOL),
    **dict.fromkeys(("gpt", "chatgpt", "assistant", "bing", "bard", "model", "function_call"), _MODEL),
}
_LISTS = ("conversations", "conversation", "messages", "items")
_COUNTS = ("tokens", "num_tokens", "token_count")
_COLUMNS = ["conversation", "message", "from", "tokens"]
_SUFFIXES = tuple(name + gz for name in (".json", ".jsonl", ".csv") for gz in ("", ".gz", ".zst"))
_MOST = 1 << 40  # tokens
_SNIFF_LIST = re.compile(
    rb'"(?:conversations|conversation|messages|items)"\s*:\s*\[|^\s*\[\s*(?:\[\s*\{|\{\s*"(?:from|role)")'
)
_SNIFF_ROLE = re.compile(rb'"(?:from|role)"\s*:\s*"')
_SNIFF_TEXT = re.compile(rb'"(?:value|content|tokens|num_tokens|token_count)"\s*:')
_OTHERS = re.compile(
    rb'(?<!\\)"(?:(?:hash_ids|input_length|output_length|resourceSpans|turns)"\s*:|gen_ai\.)'
)


class _NoConversation(WorkloadError):
    """The record is left out; the text is the reason, ``place`` says where in the record."""

    def __init__(self, reason: str, place: str = "") -> None:
        super().__init__(reason)
        self.place = place


@dataclass(slots=True)
class _Message:
    """``role`` is one of ours; ``text`` is None in files of lengths."""

    role: str
    tokens: int
    text: str | None
    estimated: bool


class ShareGptReader:
    """A file of conversations, or a folder of such files."""

    name = "sharegpt"
    parameters = ("tokenizer",)

    def sniff(self, path: Path) -> str | None:
        """Why this looks like conversations."""
        for file in _files(path)[:20]:
            text = head(file)
            if _is_csv(text[:200]):
                return "columns conversation, message, from, tokens"
            signs = (_SNIFF_LIST, _SNIFF_ROLE, _SNIFF_TEXT)
            if all(sign.search(text) for sign in signs) and not _OTHERS.search(text):
                return "lists of messages with from/value or role/content"
        return None

    def read(
        self, path: Path, *, max_model_len: int, on_overflow: str, parameters: Mapping[str, str] = {}
    ) -> ProgramSet:
        """Replay programs. Raises WorkloadError with file, line or record, NothingLeft if none is left."""
        skipped, repaired = Tally(), Tally()
        counts = counter(parameters.get("tokenizer"))
        programs: list[ProgramSpec] = []
        read = 0
        for place, value in _all_records(path, skipped):
            read += 1
            try:
                script = _Conversation(place, repaired, counts).script(value)
            except _NoConversation as reason:
                skipped.add(str(reason), place + reason.place)
                continue
            kept = fit(script, max_model_len, on_overflow, place, skipped, repaired)
            if kept is not None:
                programs.append(replay_spec(len(programs), self.name, kept, None))
        read += skipped.counts.get(_NO_FILE, 0) + skipped.counts.get(_BROKEN_FILE, 0)
        if read == skipped.counts.get(_NO_RECORD, 0):
            raise WorkloadError(f"{path.name}: no record of it is a conversation: {_WANTED}")
        if not programs:
            line = f"{path.name}: no conversation is left: {skipped.text() or 'there is no record'}"
            raise NothingLeft(line, exceeded(skipped.counts, max_model_len))
        return ProgramSet(
            programs, path.name, "", {"tokenizer": counts.description}, None, skipped.counts, repaired.counts,
            {**skipped.where(), **repaired.where()}, read,
        )  # fmt: skip


# Files and records

_NO_FILE = "file without conversations"
_BROKEN_FILE = "broken file"
_WANTED = "a list of messages, or an object with conversations[] or messages[]"
_NO_RECORD = f"not a conversation ({_WANTED})"


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    return [file for file in files_of(path) if file.name.endswith(_SUFFIXES)]


def _all_records(path: Path, skipped: Tally) -> Iterator[tuple[str, Any]]:
    """(place, record) of every file; files of a folder that hold none are skipped and counted."""
    for file in _files(path):
        if file == path:
            yield from _records(read_bytes(file), path.name)
            continue
        name = shown(file.relative_to(path).as_posix())
        try:
            found = list(_records(read_bytes(file), name))
        except WorkloadError as error:
            skipped.add(_BROKEN_FILE, str(error))
            continue
        if any(_list_of(value) is not None for _, value in found):
            yield from found
        else:
            skipped.add(_NO_FILE, name)


def _records(data: bytes, name: str) -> Iterator[tuple[str, Any]]:
    """(place, record) of one file. A file that is one list of messages is one record."""
    if _is_csv(data[:200]):
        yield from _csv_records(data, name)
        return
    messages: list[Any] = []
    for place, value in records(data, name):
        if _list_of(value) is None and _is_message(value) and place.startswith(f"{name}#"):
            messages.append(value)
        else:
            yield place, value
    if messages:
        yield name, messages


def _csv_records(data: bytes, name: str) -> Iterator[tuple[str, Any]]:
    """Rows of lengths as messages, by conversation; the place is that of its first row."""
    found: dict[str, tuple[str, list[dict[str, Any]]]] = {}
    for number, text in enumerate(data.decode("utf-8-sig", "replace").splitlines()[1:], 2):
        place, row = f"{name}:{number}", [cell.strip() for cell in text.split(",")]
        if not text.strip():
            continue
        if len(row) != len(_COLUMNS):
            raise WorkloadError(f"{place}: expected {len(_COLUMNS)} columns, got {len(row)}")
        conversation, _, role, tokens = row
        if not (tokens.isascii() and tokens.isdigit() and len(tokens) < 13):
            raise WorkloadError(f"{place}.tokens: expected a whole number, got {brief(tokens)}")
        found.setdefault(conversation, (place, []))[1].append({"from": role, "tokens": int(tokens)})
    yield from found.values()


def _is_csv(start: bytes) -> bool:
    return start.partition(b"\n")[0].decode("utf-8-sig", "replace").strip().split(",") == _COLUMNS


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and ("from" in value or "role" in value)


def _list_of(value: Any) -> list[Any] | None:
    """The messages of a record, None if it is no conversation."""
    if isinstance(value, list):
        return value
    if not isinstance(value, dict):
        return None
    return next((value[name] for name in _LISTS if isinstance(value.get(name), list)), None)


# Conversations


@dataclass(slots=True)
class _Conversation:
    """Builds the script of one record."""

    place: str
    repaired: Tally
    counts: Counter
    fixes: list[str] = field(default_factory=list)

    def script(self, record: Any) -> Script:
        """The calls. Raises _NoConversation."""
        found = _list_of(record)
        if found is None:
            raise _NoConversation(_NO_RECORD)
        if len(found) < 2:
            raise _NoConversation("one message" if found else "no messages")
        if isinstance(record, dict) and isinstance(record.get("system"), str) and record["system"].strip():
            found = [{"role": "system", "content": record["system"]}, *found]
        messages = [self.message(value, i) for i, value in enumerate(found)]
        calls = self.calls(messages)
        if not calls:
            raise _NoConversation("no reply of the model to anything")
        if any(message.estimated for message in messages):
            self.fixes.append(ESTIMATED)
        for fix in dict.fromkeys(self.fixes):
            self.repaired.add(fix, self.place)
        return Script(list(calls))

    def message(self, value: Any, index: int) -> _Message:
        where = f" message {index}"
        if isinstance(value, str):
            role, content, count = ("user", "assistant")[index % 2], value, None
        elif _is_message(value):
            role, content = _first(value, ("from", "role")), _content(value, where)
            count = _first(value, _COUNTS)
        else:
            raise _NoConversation("message that is neither a text nor has a role", where)
        ours = ROLES.get(role.strip().lower()) if isinstance(role, str) else None
        if ours is None:
            raise _NoConversation("message of an unknown role", f"{where}: {brief(role)}")
        if count is None:
            text = content.strip()
            return _Message(ours, self.counts.count(text), text, bool(text) and not self.counts.exact)
        if type(count) is not int or not 0 <= count < _MOST:
            raise WorkloadError(f"{self.place}{where}: expected a number of tokens, got {brief(count)}")
        return _Message(ours, count, content or None, False)

    def calls(self, messages: list[_Message]) -> list[CallOp]:
        """One call per reply, in one thread."""
        key, result = key_of("sharegpt", self.place), []
        base: CallOp | None = None
        for index, (new, output) in enumerate(self.turns(self.without_blanks(messages), key)):
            keep = base.total if base is not None else 0
            prompt = keep + sum(length for _, length in new)
            parents = (base.id,) if base is not None else ()
            reply = mix(key, 2 * index + 1)
            base = CallOp("", index, parents, tuple(new), reply, output, prompt, "", base, keep)
            result.append(base)
        return result

    def without_blanks(self, messages: list[_Message]) -> list[_Message]:
        """What says something, and empty replies to it."""
        kept: list[_Message] = []
        for message in messages:
            if message.tokens or (message.role == _MODEL and kept and kept[-1].role != _MODEL):
                kept.append(message)
            else:
                self.fixes.append(BLANK)
        return kept

    def turns(self, messages: list[_Message], key: int) -> Iterator[tuple[list[Segment], int]]:
        """(new prompt, reply length) of each call; ``key`` is the conversation's."""
        prompt: list[Segment] = []
        asked, turn = False, 0
        for by_model, run in groupby(messages, lambda message: message.role == _MODEL):
            said = list(run)
            if any(a.role == b.role and a.role in (_USER, _MODEL) for a, b in pairwise(said)):
                self.fixes.append(SAME_ROLE)
            tokens = sum(message.tokens for message in said)
            if by_model and asked:
                if tokens == 0:
                    self.fixes.append(NO_TOKENS)
                yield prompt, max(1, tokens)
                prompt, asked, turn = [], False, turn + 1
                continue
            if by_model:
                self.fixes.append(STARTS_WITH_REPLY)
            asked = not by_model
            first = said[0]
            if not turn and not prompt and first.role == _SYSTEM and first.text:
                prompt.append((key_of("sharegpt", "system", first.text), first.tokens))
                tokens -= first.tokens
            prompt = _grown(prompt, (mix(key, 2 * turn), tokens))
        if asked:
            self.fixes.append(UNANSWERED)


def _grown(prompt: list[Segment], more: Segment) -> list[Segment]:
    """A prompt and more text of the same turn: one segment has one id."""
    name, length = more
    if prompt and prompt[-1][0] == name:
        return [*prompt[:-1], (name, prompt[-1][1] + length)]
    return [*prompt, more] if length else prompt


def _first(value: dict[str, Any], names: tuple[str, ...]) -> Any:
    """The first of these fields that is there and not null."""
    return next((value[name] for name in names if value.get(name) is not None), None)


def _content(value: dict[str, Any], where: str) -> str:
    """The text of a message; calls of tools are text of the model, too."""
    content = _first(value, ("value", "content"))
    texts = [content]
    if isinstance(content, list):
        texts = [part.get("text") if isinstance(part, dict) else part for part in content]
    if not all(text is None or isinstance(text, str) for text in texts):
        raise _NoConversation("message whose content is no text", where)
    texts += [json.dumps(value[name]) for name in ("tool_calls", "function_call") if value.get(name)]
    return "\n".join(text for text in texts if text)


READER = ShareGptReader()
