"""Reads logs of Tree of Thoughts: a JSON array, one puzzle an element.

An element has ``steps[]`` with ``ys`` (the beam), ``new_ys`` (candidates), ``values`` and
``select_new_ys``, and ``usage_so_far``: token counters that grow over the whole file, so a puzzle's
usage is the difference to the one before.

A puzzle is a program. A step asks for candidates, all states of the beam at once: one call a
state (``propose``) or one a candidate (``sample``); then it has them judged, all at once: some calls for
every candidate not judged before (``value``), or for all together (``vote``). The name of the file says
which and how many (``..._propose1_value3_greedy5_...``); else it is propose and value, three times.

The log holds the candidates and no prompts. Of a puzzle's completion tokens the judgements have,
in equal parts, what the candidates leave; its prompt tokens are spread evenly over the requests
(samples of one prompt are one request). A prompt is a template, the same in all puzzles, and the
state. Nothing is timed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vocabulary import Segment
from workloads.base import ProgramSet, WorkloadError
from workloads.collect import Collector, heads
from workloads.files import Fields, brief
from workloads.keys import key_of, mix
from workloads.script import CallOp, JoinOp, Script
from workloads.session import CallId
from workloads.transcript import content_id

RESTARTED = "usage_so_far smaller than before: taken as it stands"
UNNAMED = "method not in the file's name: propose and value, three times, taken"
EVEN = "lengths of prompts and judgements spread evenly, as only their sum is recorded"
NO_USAGE = "no usage_so_far, so no lengths"
NO_CANDIDATES = "step without candidates"
NO_STEPS = "no steps"
_WANTED = "a puzzle is an object with steps[] of ys and new_ys"
_NAME = re.compile(r"_(propose|sample)(\d*)_(value|vote)(\d*)_")
_LEFT = re.compile(r"\(left: ([^)]*)\)")


class TotReader:
    """A log file, or a folder of them."""

    name = "tot_logs"
    parameters = ("tokenizer",)

    def sniff(self, path: Path) -> str | None:
        """Why this looks like a log of Tree of Thoughts."""
        for text in heads(path, (".json",)):
            if all(word in text for word in (b'"steps"', b'"ys"', b'"new_ys"')):
                return "steps[] with ys and new_ys"
        return None

    def read(
        self, path: Path, *, max_model_len: int, on_overflow: str, parameters: Mapping[str, str] = {}
    ) -> ProgramSet:
        """Replay programs. Raises WorkloadError with file, record and field, NothingLeft if none is left."""
        found = Collector(path, self.name, max_model_len, on_overflow, parameters)
        usage: dict[str, tuple[int, int]] = {}
        strangers = 0
        for place, record in found.records((".json",), f"no puzzle in it: {_WANTED}"):
            if not isinstance(record, dict) or not ("steps" in record or "usage_so_far" in record):
                strangers += 1
                found.skip(f"not a puzzle ({_WANTED})", place)
                continue
            _puzzle(found, place, Fields(record, place), usage)
        if strangers and strangers == found.read:
            raise WorkloadError(f"{path.name}: no record of it is a puzzle: {_WANTED}")
        return found.result("puzzle")


@dataclass(slots=True)
class _Ask:
    """A request: its state, and how long each sample is (tokens), None if that is not recorded."""

    kind: str
    state: str
    samples: list[int | None]


def _puzzle(found: Collector, place: str, row: Fields, usage: dict[str, tuple[int, int]]) -> None:
    file = place.rpartition("#")[0] or place.rpartition(":")[0]
    used = _used(found, place, row, usage, file)
    steps = [Fields(value, f"{place}.steps[{i}]") for i, value in enumerate(row.items("steps"))]
    if not steps or used is None:
        found.skip(NO_USAGE if steps else NO_STEPS, place)
        return
    named = _NAME.search(file)
    if named is None:
        found.repair(UNNAMED, place)
    generate, _, evaluate, times = named.groups() if named else ("propose", "", "value", "3")
    phases, seen = [], set[str]()
    for step in steps:
        asks = _candidates(found, step, generate)
        judged = _judgements(step, evaluate, max(1, min(int(times or 1), 100)), seen)
        phases += [phase for phase in (asks, judged) if phase]
        if not judged:
            found.repair(NO_CANDIDATES, step.where)
    if not phases:
        found.skip(NO_STEPS, place)
        return
    found.repair(EVEN, place)
    found.add(_Puzzle(found, place, *used).script(phases), place)


def _used(
    found: Collector, place: str, row: Fields, usage: dict[str, tuple[int, int]], file: str
) -> tuple[int, int] | None:
    """(prompt, completion) tokens of this puzzle."""
    if not row.has("usage_so_far"):
        return None
    counters = Fields(row.values["usage_so_far"], f"{place}.usage_so_far")
    now = counters.integer("prompt_tokens"), counters.integer("completion_tokens")
    before = usage.get(file, (0, 0))
    usage[file] = now
    if now[0] < before[0] or now[1] < before[1]:
        found.repair(RESTARTED, place)
        return now
    return now[0] - before[0], now[1] - before[1]


def _texts(step: Fields, name: str) -> list[str]:
    values = step.items(name)
    for i, value in enumerate(values):
        if not isinstance(value, str):
            raise WorkloadError(f"{step.where}.{name}[{i}]: expected a string, got {brief(value)}")
    return values


def _candidates(found: Collector, step: Fields, how: str) -> list[_Ask]:
    """The requests that made the new candidates, each a state of the beam and what came of it."""
    beam = list(dict.fromkeys(_texts(step, "ys") or [""]))
    longest = sorted(beam, key=len, reverse=True)
    replies: dict[str, list[str]] = {state: [] for state in beam}
    for text in _texts(step, "new_ys"):
        state = next((state for state in longest if text.startswith(state)), beam[0])
        replies[state].append(text.removeprefix(state).strip())
    start = _said(step)
    asks = []
    for state, said in replies.items():
        samples = said if how == "sample" else ["\n".join(said)]
        asks.append(_Ask(how, start + state, [max(1, found.counter.count(text)) for text in samples]))
    return [ask for ask in asks if ask.samples]


def _judgements(step: Fields, how: str, times: int, seen: set[str]) -> list[_Ask]:
    candidates = _texts(step, "new_ys")
    if how == "vote":
        return [_Ask(how, _said(step) + "\n".join(candidates), [None] * times)] if candidates else []
    asks = []
    for text in candidates:
        left = _LEFT.findall(text.strip().rpartition("\n")[2])
        state = left[-1] if left else text
        if state not in seen:
            seen.add(state)
            asks.append(_Ask(how, state, [None] * times))
    return asks


def _said(step: Fields) -> str:
    value: Any = step.values.get("x")
    return f"{value}\n" if isinstance(value, str) else ""


class _Puzzle:
    """Writes down one puzzle's calls."""

    def __init__(self, found: Collector, place: str, prompt_tokens: int, completion_tokens: int) -> None:
        self.count = found.counter.count
        self.key = key_of("tot_logs", place)
        self.prompt_tokens = prompt_tokens
        self.completion_tokens = completion_tokens
        self.calls = 0

    def script(self, phases: Sequence[Sequence[_Ask]]) -> Script:
        """Phases one after the other, the requests of one beside each other."""
        asks = [ask for phase in phases for ask in phase]
        self.fill([ask for ask in asks if None in ask.samples], asks)
        prompts = _even(self.prompt_tokens, len(asks))
        script, parents, at = Script(), tuple[CallId, ...](), 0
        for phase in phases:
            calls: list[CallOp] = []
            for ask in phase:
                calls += self.ask(ask, prompts[at], parents)
                at += 1
            script.ops.append(JoinOp([Script([call]) for call in calls]))
            parents = tuple(call.id for call in calls)
        return script

    def fill(self, judgements: Sequence[_Ask], asks: Sequence[_Ask]) -> None:
        """Replies whose length is not recorded get what the others leave of the completion tokens."""
        known = sum(length for ask in asks for length in ask.samples if length is not None)
        unknown = sum(len(ask.samples) for ask in judgements)
        if known + unknown > self.completion_tokens > 0:
            scale = max(0, self.completion_tokens - unknown) / max(1, known)
            for ask in asks:
                ask.samples = [length and max(1, round(length * scale)) for length in ask.samples]
            known = sum(length for ask in asks for length in ask.samples if length is not None)
        lengths = iter(_even(max(0, self.completion_tokens - known), unknown))
        for ask in judgements:
            ask.samples = [next(lengths) for _ in ask.samples]

    def ask(self, ask: _Ask, tokens: int, parents: tuple[CallId, ...]) -> list[CallOp]:
        """A request's samples: calls of one prompt."""
        state = min(self.count(ask.state), tokens - 1)
        template: Segment = (key_of("tot_logs", ask.kind), tokens - state)
        prompt = (
            (template, (mix(self.key, content_id(ask.kind, ask.state)), state)) if state > 0 else (template,)
        )
        calls = []
        for length in ask.samples:
            name = str(self.calls)
            self.calls += 1
            reply = mix(self.key, -self.calls)
            calls.append(CallOp(name, 0, parents, prompt, reply, length or 1, tokens))
        return calls


def _even(total: int, parts: int) -> list[int]:
    """``total`` in whole parts as equal as can be, each at least 1."""
    return [max(1, total * (i + 1) // parts - total * i // parts) for i in range(parts)]


READER = TotReader()
