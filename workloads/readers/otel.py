"""Reads OpenTelemetry spans of generative AI: OTLP JSON, JSON lines, or lists of spans.

A program is a conversation (``gen_ai.conversation.id``, ``session.id``) or, without one, a trace; calls
are spans of a model operation. Spans that hold others (agents, chains) are branches of their
parent; what happened under one parent is ordered by time:

* What ended before something else began came before it, unless it belongs to a line of calls
  that went on meanwhile. A prompt that repeats an earlier prompt and goes on, and a call whose
  ``parent`` is a call, belong to that call's line. Overlapping spans are branches that are waited for.
* An agent or a tool during which its parent made its next call, or that outlives its parent, was
  launched asynchronously: nobody waits for it.
* Where no span of a program names a parent, all this is inferred and counted so.

Tools take the time of their span. Any other time before a call is a person's if the call goes on
from an earlier one with a message of the user, else the program's. Recorded times of replies are
not replayed. ``gen_ai.usage`` wins over lengths counted from the messages; without messages a
prompt is taken to continue the call before.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from workloads.base import ProgramSet, WorkloadError
from workloads.collect import Collector, heads
from workloads.keys import key_of
from workloads.order import Happened, Plan, arrange
from workloads.script import JoinOp, SpawnOp
from workloads.session import CallId
from workloads.spans import CALL, GROUP, TOOL, Span, spans
from workloads.transcript import MODEL, USER, Message, Prompts, Thread, content_id

INFERRED = "no parents: dependencies inferred from time and prefix"
NOT_EXACT = "dependencies that are no joins: a call waits for the last of those it followed only"
NO_MESSAGES = "messages not recorded: prompt taken to continue the call before"
NO_PROMPT = "call without messages and usage left out"
FAILED = "failed call without a reply left out"
TWICE = "span exported twice, one left out"
WRAPPER = "span that wraps another call of the model not counted as a call"
OTHERS = "span of no model, tool or agent left out"
NO_TIMES = "call without a time, taken in the order of the file"
_WANTED = "spans are under resourceSpans[] or spans[], or one a line"
_DEEPEST = 60
_SLACK = 10**6  # ns by which a child's end may be written down after its parent's
_SIGNS = (b'"gen_ai.', b'"llm.', b'"openinference.', b'"traceloop.')
_SPANS = (b'"resourceSpans"', b'"resource_spans"', b'"span_id"', b'"spanId"', b'"spans"')


class OtelReader:
    """A file of spans, or a folder of such files; a program never spans two files."""

    name = "otel"
    parameters = ("tokenizer",)

    def sniff(self, path: Path) -> str | None:
        """Why this looks like spans of generative AI."""
        for text in heads(path, (".json", ".jsonl")):
            if any(sign in text for sign in _SIGNS) and any(sign in text for sign in _SPANS):
                return "spans with gen_ai attributes"
        return None

    def read(
        self, path: Path, *, max_model_len: int, on_overflow: str, parameters: Mapping[str, str] = {}
    ) -> ProgramSet:
        """Replay programs. Raises WorkloadError with file, span and field, NothingLeft if none is left."""
        found = Collector(path, self.name, max_model_len, on_overflow, parameters)
        files: dict[str, list[Span]] = {}
        for place, record in found.records((".json", ".jsonl"), f"no span in it: {_WANTED}"):
            name = place.rpartition("#")[0] or place.rpartition(":")[0]
            files.setdefault(name, []).extend(spans(record, place))
        for name, all_of_them in files.items():
            if not all_of_them:
                found.skip("file without spans", name)
            for group in _programs(_once(all_of_them, found)):
                _Program(found, name, group).write()
        return found.result("program")


def _once(found: list[Span], where: Collector) -> list[Span]:
    seen: dict[tuple[str, str], Span] = {}
    for i, span in enumerate(found):
        key = (span.trace, span.id or f"no id {i}")
        if key in seen:
            where.repair(TWICE, span.where)
        else:
            seen[key] = span
    return list(seen.values())


def _programs(found: list[Span]) -> Iterator[list[Span]]:
    """Spans of one conversation, or of one trace; a trace belongs to its first conversation."""
    session: dict[str, str] = {}
    for span in found:
        if span.session:
            session.setdefault(span.trace, span.session)
    groups: dict[str, list[Span]] = {}
    for span in found:
        name = session.get(span.trace)
        groups.setdefault(f"trace {span.trace}" if name is None else f"session {name}", []).append(span)
    yield from groups.values()


@dataclass(slots=True, eq=False)
class _Item:
    """A call, a tool, or a span that holds some; ``start`` and ``end`` are of what is replayed in it (ns)."""

    span: Span
    start: int
    end: int
    inside: list[_Item]
    messages: list[Message]
    reply: str = ""
    after: Span | None = None
    """The call its span names as its parent."""


class _Program:
    """Builds one program from its spans."""

    def __init__(self, found: Collector, name: str, group: list[Span]) -> None:
        self.found = found
        self.place = f"{name}: trace {group[0].trace or '?'}"
        self.group = group
        self.prompts = Prompts(key_of("otel", name, group[0].trace, group[0].id), found.counter)
        self.fixes: dict[str, None] = {}
        self.forks: dict[str, int] = {}
        self.tasks = 0
        self.calls: dict[Span, CallId] = {}

    def fix(self, reason: str) -> None:
        self.fixes[reason] = None

    def write(self) -> None:
        self.times()
        items = self.items(self.tree(), None)
        thread = Thread(self.prompts, self.fix)
        clock = min((item.start for item in items), default=0)
        if any(True for _ in _calls(items)):
            if not any(span.parent for span in self.group) and len(self.group) > 1:
                self.fix(INFERRED)
            self.level(thread, items, clock)
        for reason in self.fixes:
            self.found.repair(reason, self.place)
        if not thread.calls and not self.calls:
            self.found.skip("no call of a model", self.place)
            return
        start = clock if NO_TIMES not in self.fixes else None
        self.found.add(thread.script, self.place, start, estimated=self.prompts.estimated)

    # The tree of spans

    def times(self) -> None:
        """Give every span a begin and an end."""
        latest = min((span.start for span in self.group if span.start is not None), default=0)
        for span in self.group:
            if span.start is None:
                if span.kind == CALL:
                    self.fix(NO_TIMES)
                span.start = span.end = latest
            span.end = max(span.start, span.end or span.start)
            latest = max(latest, span.end)

    def tree(self) -> list[Span]:
        """The spans without a parent; others are hung under theirs."""
        by_id = {(span.trace, span.id): span for span in self.group if span.id}
        by_name = {span.id: span for span in self.group if span.id}
        roots = []
        for span in self.group:
            parent = by_id.get((span.trace, span.parent), by_name.get(span.parent))
            above, seen = parent, {span}
            while above is not None and above not in seen:
                seen.add(above)
                if len(seen) > _DEEPEST:
                    raise WorkloadError(f"{span.where}: spans nested more than {_DEEPEST} deep")
                above = by_id.get((above.trace, above.parent), by_name.get(above.parent))
            if parent is None or above is not None:
                roots.append(span)
            else:
                parent.children.append(span)
        return roots

    def items(self, found: list[Span], after: Span | None) -> list[_Item]:
        """What the spans come to, sorted by begin; what a call's span holds follows the call."""
        result: list[_Item] = []
        stack = [(span, after) for span in found]
        while stack:
            span, after = stack.pop()
            children = span.children
            if span.kind == CALL and not self.wraps(span):
                if item := self.call(span, after):
                    result.append(item)
                stack += [(child, span) for child in children]
                continue
            inside = self.items(children, None) if children else []
            if any(True for _ in _calls(inside)):
                ends = max(item.end for item in _apart(inside, span)[0] or inside)
                result.append(_Item(span, inside[0].start, ends, inside, [], after=after))
            elif span.kind == TOOL and span.start is not None and span.end is not None:
                result.append(_Item(span, span.start, span.end, [], [], after=after))
            elif not span.means_something:
                self.fix(OTHERS)
        return sorted(result, key=lambda item: (item.start, item.end, item.span.where))

    def wraps(self, span: Span) -> bool:
        """Whether another call's span lies inside: then that one is the call."""
        start, end = span.start or 0, span.end or 0
        inside = list(span.children) if end > start else []
        while inside:
            child = inside.pop()
            if child.kind == CALL and start <= (child.start or 0) and (child.end or 0) <= end:
                self.fix(WRAPPER)
                return True
            inside += child.children
        return False

    def call(self, span: Span, after: Span | None) -> _Item | None:
        messages, reply = span.asked(), span.said()
        prompt, output = span.tokens()
        if span.failed and not output and not reply:
            self.fix(FAILED)
            return None
        if not messages and not prompt:
            self.fix(NO_PROMPT)
            return None
        return _Item(span, span.start or 0, span.end or 0, [], messages, reply, after)

    # The order of what happened under one parent

    def level(self, thread: Thread, items: list[_Item], clock: int, parent: Span | None = None) -> int:
        """Write down the items of one parent; returns the end of the last that is waited for."""
        waited, launched = _apart(items, parent)
        places: dict[Span, int] = {item.span: i for i, item in enumerate(waited)}
        lines: dict[int, int] = {}
        happened = [
            Happened(item.start, item.end, tuple(self.followed(i, item, waited, places, lines)))
            for i, item in enumerate(waited)
        ]
        try:
            plan, exact = arrange(happened)
        except WorkloadError as error:
            raise WorkloadError(f"{self.place}: {error}") from error
        if not exact:
            self.fix(NOT_EXACT)
        alone = len(items) == 1
        return self.sequence(thread, plan, waited, launched, clock, alone)

    def followed(
        self, i: int, item: _Item, items: list[_Item], places: dict[Span, int], lines: dict[int, int]
    ) -> Iterator[int]:
        """The earlier item whose line this one goes on."""
        if item.after is not None and item.after in places:
            before = places[item.after]
            if before < i and items[before].end <= item.start:
                yield before
        if item.span.kind != CALL:
            return
        name, found = 0, None
        for message in item.messages:
            name = content_id(str(name), message.role, message.text)
            before = lines.get(name, i)
            found = before if before < i and items[before].end <= item.start else found
        if found is not None:
            yield found
        lines[name] = i
        if item.reply:
            lines[content_id(str(name), MODEL, item.reply)] = i

    def sequence(
        self, thread: Thread, plan: Plan, items: list[_Item], launched: dict[int, list[_Item]],
        clock: int, alone: bool = False,
    ) -> int:  # fmt: skip
        for late in launched.get(-1, []):
            self.launch(thread, late, clock)
        launched.pop(-1, None)
        for step in plan:
            if isinstance(step, int):
                clock = self.one(thread, items[step], clock, alone)
                for late in launched.get(step, []):
                    self.launch(thread, late, clock)
                continue
            ends, parents = [clock], dict.fromkeys(thread.parents[:0])
            branches = [self.branch(thread) for _ in step]
            for branch, inner in zip(branches, step, strict=True):
                ends.append(self.sequence(branch, inner, items, launched, clock, len(inner) == 1))
                parents.update(dict.fromkeys(branch.parents))
            thread.script.ops.append(JoinOp([branch.script for branch in branches]))
            thread.parents = tuple(parents)
            clock = max(ends)
        return clock

    def one(self, thread: Thread, item: _Item, clock: int, alone: bool) -> int:
        """A call, a tool, or all that happened in a span."""
        gap = max(0, item.start - clock) / 1e9
        if item.inside and (alone or item.span.kind != GROUP):
            return self.level(thread, item.inside, clock, item.span)
        if item.inside:
            branch = self.branch(thread)
            end = self.level(branch, item.inside, clock, item.span)
            thread.script.ops.append(JoinOp([branch.script]))
            thread.parents = branch.parents
            return end
        if item.span.kind == CALL:
            self.write_call(thread, item, gap)
        else:
            name = item.span.attributes.get("gen_ai.tool.name") or item.span.name
            thread.tool("between calls", gap)
            thread.tool(str(name)[:40], (item.end - item.start) / 1e9)
        return max(clock, item.end)

    def write_call(self, thread: Thread, item: _Item, gap: float) -> None:
        prompt, output = item.span.tokens()
        goes_on = not item.messages
        if goes_on:
            self.fix(NO_MESSAGES)
            last = thread.place.call if thread.place is not None else None
            goes_on = last is not None and last.prompt_tokens <= (prompt or 0)
        reply = Message(MODEL, item.reply, output if output or not item.reply else None)
        op = thread.call(item.messages, reply, total=prompt, model=item.span.model, goes_on=goes_on)
        self.calls[item.span] = op.id
        # Only now it is known what the prompt goes on from.
        thread.script.ops.pop()
        goes_on = op.base is not None and op.keep >= op.base.prompt_tokens
        if goes_on and item.messages and item.messages[-1].role == USER:
            thread.think(gap)
        else:
            thread.tool("between calls", gap)
        thread.script.ops.append(op)

    def branch(self, thread: Thread) -> Thread:
        number = self.forks[thread.name] = self.forks.get(thread.name, -1) + 1
        name = f"{thread.name}.{number}".removeprefix(".")
        return Thread(self.prompts, self.fix, name, thread.parents)

    def launch(self, thread: Thread, item: _Item, clock: int) -> None:
        """Something nobody waits for."""
        branch = self.branch(thread)
        self.one(branch, item, clock, True)
        thread.script.ops.append(SpawnOp(branch.script, self.tasks))
        self.tasks += 1


def _calls(items: list[_Item]) -> Iterator[_Item]:
    for item in items:
        if item.span.kind == CALL and not item.inside:
            yield item
        yield from _calls(item.inside)


def _apart(items: list[_Item], parent: Span | None) -> tuple[list[_Item], dict[int, list[_Item]]]:
    """(what is waited for, what is not by the number of what it was launched after, -1 for none)."""
    own = [item for item in items if item.span.kind == CALL and not item.inside]
    calls = set(own)
    starts = sorted(call.start for call in own)
    until = None if parent is None or parent.end is None else parent.end + _SLACK
    late = {
        item
        for item in items
        if item not in calls
        and (
            bisect_right(starts, item.start) < bisect_left(starts, item.end)
            or (until is not None and item.start <= until < (item.span.end or 0))
        )
    }
    waited = [item for item in items if item not in late]
    launched: dict[int, list[_Item]] = {}
    for item in items:
        if item in late:
            ended = [i for i, other in enumerate(waited) if other.end <= item.start]
            launcher = max(ended, key=lambda i: waited[i].end, default=-1)
            launched.setdefault(launcher, []).append(item)
    return waited, launched


READER = OtelReader()
