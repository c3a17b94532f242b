"""Reads ToolBench answers: one JSON object is the search tree of one question.

A question is a program. Every node with an ``expand_num`` above 0 ends a reply of the model (a
thought, an action and its input); the numbers give the order in which the search asked, one
call after the other. The prompt of a call is its path from the root: functions, system prompt,
question, replies and observations, so a branch shares what its branch point has in common.

The files do not time tools, and do not hold the hint ToolBench adds to a second try from a node.
``answer_generation.total_tokens``, the sum over all calls, wins over lengths counted from the text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from workloads.base import ProgramSet, WorkloadError
from workloads.collect import Collector, heads
from workloads.files import Fields
from workloads.keys import key_of
from workloads.tokens import Counter, Scaled
from workloads.transcript import (
    MODEL,
    SYSTEM,
    TOOL,
    USER,
    Message,
    Prompts,
    Thread,
    compact,
    role_of,
    text_of,
)

NO_TIMES = "no times of tools in the file, 0 taken"
SCALED = "lengths scaled to total_tokens"
IMPOSSIBLE = "total_tokens that the texts cannot have, not used"
MISSING = "tree with fewer calls than query_count"
_WANTED = "an answer is an object with tree and answer_generation"


class ToolBenchReader:
    """A file of one answer, or a folder of them."""

    name = "toolbench"
    parameters = ("tokenizer",)

    def sniff(self, path: Path) -> str | None:
        """Why this looks like ToolBench."""
        for text in heads(path, (".json",)):
            if all(word in text for word in (b'"tree"', b'"node_type"', b'"expand_num"', b'"children"')):
                return "a tree of nodes with node_type and expand_num"
        return None

    def read(
        self, path: Path, *, max_model_len: int, on_overflow: str, parameters: Mapping[str, str] = {}
    ) -> ProgramSet:
        """Replay programs. Raises WorkloadError with file and field, NothingLeft if no answer is left."""
        found = Collector(path, self.name, max_model_len, on_overflow, parameters)
        strangers = 0
        for place, record in found.records((".json",), f"empty: {_WANTED}"):
            if not isinstance(record, dict) or not isinstance(record.get("tree"), dict):
                strangers += 1
                found.skip(f"not an answer with a tree ({_WANTED})", place)
                continue
            _answer(found, place.removesuffix(":1"), Fields(record, place.removesuffix(":1")))
        if strangers and strangers == found.read:
            raise WorkloadError(f"{path.name}: no answer with a tree: {_WANTED}")
        return found.result("answer")


@dataclass(slots=True)
class _Query:
    """A call: its number in the search, prompt and reply."""

    number: int
    prompt: list[Message]
    reply: str
    where: str


def _answer(found: Collector, place: str, row: Fields) -> None:
    tree = Fields(row.values["tree"], f"{place}.tree")
    answer = Fields(row.values.get("answer_generation") or {}, f"{place}.answer_generation")
    root = Fields(tree.values.get("tree"), f"{place}.tree.tree")
    queries = sorted(_queries(root, _question(answer)), key=lambda query: query.number)
    for before, after in pairwise(queries):
        if before.number == after.number:
            raise WorkloadError(
                f"{after.where}.expand_num: {after.number} is the number of another reply, too"
            )
    if not queries:
        found.skip("no reply of the model in the tree", place)
        return
    thread = _written(found.counter, place, queries)
    total = answer.integer("total_tokens", default=0)
    if total:
        counted = sum(op.total for op in thread.script.calls())
        if 0.2 < total / counted < 5:
            thread = _written(Scaled(found.counter, total / counted), place, queries)
        found.repair(SCALED if 0.2 < total / counted < 5 else IMPOSSIBLE, place)
    if answer.integer("query_count", default=0) > len(queries):
        found.repair(MISSING, place)
    found.repair(NO_TIMES, place)
    found.add(thread.script, place, estimated=thread.prompts.estimated)


def _written(counter: Counter, place: str, queries: list[_Query]) -> Thread:
    thread = Thread(Prompts(key_of("toolbench", place), counter), lambda _: None)
    for query in queries:
        thread.call(query.prompt, Message(MODEL, query.reply))
    return thread


def _question(answer: Fields) -> list[Message]:
    """What every prompt begins with."""
    functions = answer.items("function")
    start = [Message(SYSTEM, compact(functions))] if functions else []
    trained = answer.items("train_messages")
    for value in trained[0] if trained and isinstance(trained[0], list) else []:
        role = role_of(value.get("role")) if isinstance(value, dict) else None
        if role in (SYSTEM, USER):
            start.append(Message(role, text_of(value)))
        else:
            break
    if all(message.role == SYSTEM for message in start):
        start.append(Message(USER, answer.text("query").strip() or "?"))
    return start


def _queries(root: Fields, start: list[Message]) -> Iterator[_Query]:
    """Every reply in the tree."""
    stack: list[tuple[Fields, list[Message], list[str]]] = [(root, start, [])]
    while stack:
        node, context, said = stack.pop()
        kind, text = node.text("node_type"), node.text("description").strip()
        if kind == "Action Input" and said:
            said = [*said[:-1], f"{said[-1]}({text})"]
        elif text:
            said = [*said, text]
        number = node.integer("expand_num", default=0)
        if number:
            reply = "\n".join(said)
            yield _Query(number, context, reply, node.where)
            context, said = [*context, Message(MODEL, reply)], []
        observation = _observation(node)
        if observation and not said:
            context = [*context, Message(TOOL, observation)]
        for i, child in enumerate(node.items("children")):
            stack.append((Fields(child, f"{node.where}.children[{i}]"), context, said))


def _observation(node: Fields) -> str:
    value: Any = node.values.get("observation")
    return value.strip() if isinstance(value, str) else compact(value) if value else ""


READER = ToolBenchReader()
