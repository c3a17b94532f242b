"""From what relay and host saw to a ``LiveRun``, of which the ordinary tables are made (``bench.live.rows``).

Times become seconds since the run began, on the grid. A program is there from its ``began`` to its
``ended``; its critical path is the chain that ends last, walked back from its end: whatever ended last
before, then what ended last before that began. For programs that fork and join that is the branch everybody
waited for; where threads go on side by side without joining, it is one chain of things that came one after
the other, never two at a time. Clocks are read in two processes, one after the other: links that overlap by
less than OVERLAP_S touch. What overlaps by more is in no chain, and how much of the time between links that
leaves unexplained is told (``dropped_s``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from bench.drivers.audit import Audit
from bench.drivers.live_records import Leg, LiveCall, LiveProgram, LiveRun
from bench.errors import InvalidRun
from bench.live.logs import EngineLog
from vocabulary import on_grid
from workloads.agents.contract import MAIN
from workloads.agents.relay.contract import RelayCall

Event = Mapping[str, Any]
OVERLAP_S = 1e-3
"""Far over the time between two readings of a clock, far under that of a call."""


class Span(NamedTuple):
    """Something of a program, in seconds since the run began; ``name``: of a call, "" for a tool."""

    begin: float
    end: float
    name: str = ""


@dataclass(frozen=True)
class AgentRun:
    """A run that is over. ``events``: the host's, ``origin``: when it began (s of CLOCK_MONOTONIC), ``wall``
    the same in Unix time. ``kind``: what programs are called in the tables. ``left``: what of it stayed in
    the gateway, in words."""

    name: str
    kind: str
    wall: float
    origin: float
    took: float
    calls: Sequence[RelayCall]
    events: Sequence[Event]
    audit: Audit
    versions: Mapping[str, str] = field(default_factory=dict)
    left: Sequence[str] = ()

    def of(self, event: str) -> list[Event]:
        """The host's events of one kind, in order."""
        return [one for one in self.events if one["event"] == event]

    @property
    def sent(self) -> list[RelayCall]:
        """The last attempt of every call that went to the engines.

        Raises InvalidRun if an earlier attempt may have been computed, too: the engines' logs have one name
        for both, and cannot tell them apart."""
        found: dict[str, RelayCall] = {}
        for call in self.calls:
            if not math.isfinite(call.t_send):
                continue
            before = found.get(call.name)
            if before is not None and (before.outcome != "failed" or math.isfinite(before.t_first)):
                raise InvalidRun(f"run {self.name}: call {call.name} was computed, and asked for again")
            found[call.name] = call
        return list(found.values())

    def since(self, time: float) -> float:
        """Seconds since the run began."""
        return on_grid(max(0.0, time - self.origin))


def live_run(run: AgentRun, logs: Sequence[EngineLog]) -> LiveRun:
    """Calls and programs as a driver of ours would tell them."""
    rows = {key: row for log in logs for key, row in log.calls.items()}
    calls = with_parents([_call(run, call, rows.get(key_of(run.name, call.name))) for call in run.sent])
    programs = programs_of(run, _by_program(calls), set(rows) if logs else None)
    return LiveRun(run.name, run.wall, run.took, programs, calls, run.audit, run.origin)


def dropped_s(run: AgentRun, logs: Sequence[EngineLog]) -> float:
    """Seconds between links of critical paths in which a call or tool of the program went on all the same:
    it overlapped the link after it, so it is in no chain, and its time there counts as overhead."""
    logged = {key for log in logs for key in log.calls} if logs else None
    calls = _by_program(live_run(run, logs).calls)
    tools, ended = _tools(run), {one["program"]: one for one in run.of("ended")}
    found = 0.0
    for began in run.of("began"):
        number = began["program"]
        spans = _spans(run, calls.get(number, ()), tools.get(number, ()), logged)
        begin, end = run.since(began["t"]), run.since(ended[number]["t"])
        links = path(spans, begin, end)
        within = [span for span in spans if span.begin >= begin and span.end <= end]
        found += max(0.0, covered(within) - covered(links))
    return found


def covered(spans: Iterable[Span]) -> float:
    """Seconds in which at least one of them went on."""
    found, at = 0.0, -math.inf
    for span in sorted(spans):
        found += max(0.0, span.end - max(at, span.begin))
        at = max(at, span.end)
    return found


def _by_program(calls: Iterable[LiveCall]) -> dict[int, list[LiveCall]]:
    found: dict[int, list[LiveCall]] = {}
    for call in calls:
        found.setdefault(call.program, []).append(call)
    return found


def key_of(run: str, name: str) -> str:
    """PROGRAM.THREAD.INDEX of a call's name."""
    return name.removeprefix(f"{run}.")


def _call(run: AgentRun, call: RelayCall, row: Mapping[str, Any] | None) -> LiveCall:
    ready, sent = run.since(call.t_arrive), run.since(call.t_send)
    last = run.since(call.t_last) if math.isfinite(call.t_last) else sent
    first = run.since(call.t_first) if math.isfinite(call.t_first) else math.nan
    prompt = call.prompt_tokens
    if prompt < 0:  # given up before the engine could say it: what it took in
        prompt = 0 if row is None else int(row["cached_tokens"] + row["prefill_tokens"])
    answered = call.outcome == "finished"
    return LiveCall(
        call.program, call.thread, call.index, call.name, ready, ready, sent, first, last, prompt,
        (0,) * max(0, call.output_tokens) if answered else (),  # how many there were; which, nobody keeps
        "finished" if answered else "cut",
    )  # fmt: skip


def with_parents(calls: Iterable[LiveCall]) -> list[LiveCall]:
    """Each with the call before it in its thread, or, of a thread's first, with the program's call that ended
    last before it: the one that it can have come from."""
    found: list[LiveCall] = []
    before: dict[int, list[LiveCall]] = {}
    for call in sorted(calls, key=lambda call: (call.t_ready, call.name)):
        own = before.setdefault(call.program, [])
        past = [one for one in own if one.thread == call.thread]
        if not past and (ended := [one for one in own if one.t_last <= call.t_ready]):
            past = [max(ended, key=lambda one: (one.t_last, one.name))]
        own.append(call)
        parents = ((past[-1].thread, past[-1].index),) if past else ()
        found.append(_with(call, parents))
    return found


def _with(call: LiveCall, parents: tuple[tuple[str, int], ...]) -> LiveCall:
    return LiveCall(
        call.program, call.thread, call.index, call.name, call.t_ready, call.t_sched, call.t_send,
        call.t_first, call.t_last, call.prompt_tokens, call.tokens, call.outcome, parents,
    )  # fmt: skip


def programs_of(
    run: AgentRun, calls: Mapping[int, Sequence[LiveCall]], logged: set[str] | None
) -> list[LiveProgram]:
    """Every program that began. ``logged``: PROGRAM.THREAD.INDEX of calls with a row; None: all have one.

    Raises InvalidRun if one did not end.
    """
    ended = {one["program"]: one for one in run.of("ended")}
    tools = _tools(run)
    found = []
    for began in run.of("began"):
        number = began["program"]
        if number not in ended:
            raise InvalidRun(f"run {run.name}: program {number} ({began['task']}) began and did not end")
        own = calls.get(number, ())
        found.append(_program(run, began, ended[number], own, tools.get(number, ()), logged))
    return sorted(found, key=lambda program: program.program)


def _tools(run: AgentRun) -> dict[int, list[Span]]:
    found: dict[int, list[Span]] = {}
    for tool in run.of("tool"):
        found.setdefault(tool["program"], []).append(Span(run.since(tool["t"]), run.since(tool["t_end"])))
    return found


def _spans(
    run: AgentRun, calls: Sequence[LiveCall], tools: Sequence[Span], logged: set[str] | None
) -> list[Span]:
    """All that can be a link: tools, and calls that were answered and have a row."""
    rows = [call for call in calls if call.answered and _has_row(run, call, logged)]
    return [*tools, *(Span(call.t_ready, call.t_last, call.name) for call in rows)]


def _has_row(run: AgentRun, call: LiveCall, logged: set[str] | None) -> bool:
    return logged is None or key_of(run.name, call.name) in logged


def _program(
    run: AgentRun, began: Event, ended: Event, calls: Sequence[LiveCall], tools: Sequence[Span],
    logged: set[str] | None,
) -> LiveProgram:  # fmt: skip
    begin, end = run.since(began["t"]), run.since(ended["t"])
    rows = [call for call in calls if _has_row(run, call, logged)]
    spans = _spans(run, calls, tools, logged)
    legs = [Leg(one.name) if one.name else Leg(tool_s=one.end - one.begin) for one in path(spans, begin, end)]
    return LiveProgram(
        began["program"], run.kind, begin, begin, end, ended["outcome"], len(rows),
        threads=max(1, len({call.thread for call in calls} or {MAIN})),
        tool_s=sum(span.end - span.begin for span in tools), path=tuple(legs),
    )  # fmt: skip


def path(spans: Sequence[Span], begin: float, end: float) -> list[Span]:
    """The chain that ends last within [``begin``, ``end``], its last link first.

    A link that ends up to OVERLAP_S after the next one began is cut off there, so links never overlap. Calls
    that were given up are in none: what waited for them is overhead.
    """
    left = sorted(span for span in spans if span.begin >= begin and span.end <= end)
    left.sort(key=lambda span: span.end)
    found, at = [], end
    while left:
        span = left.pop()
        if span.end <= at + OVERLAP_S and span.begin <= at:
            found.append(span._replace(end=min(span.end, at)))
            at = span.begin
    return found
