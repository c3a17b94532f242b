"""Prometheus metrics of a gateway: an observer that counts, and the families a scrape gets.

Counting is plain arithmetic on dicts and lists; families are made when somebody scrapes. Labels are
endpoints of calls, outcomes, engine ids: never a program's name. The table is docs/gateway-operations.md.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from systems.gateway.observe import Passage
from vocabulary import EngineView, GateEvent, KeepEvent

ADDED = (1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.2, 0.5, 1.0, 5.0)
"""Bounds (s) of what the gateway adds, and of the event loop's lag."""
SECONDS = (
    0.01,
    0.02,
    0.05,
    0.1,
    0.2,
    0.5,
    1.0,
    2.0,
    5.0,
    10.0,
    20.0,
    60.0,
    120.0,
    300.0,
    600.0,
    1800.0,
    3600.0,
)
"""Bounds (s) of what calls and programs take."""
REASONS = 64
"""Label values: of what gates did and why."""
TICK_S = 0.1
"""How often the event loop's lag is looked at."""


class Histogram:
    """Counts by upper bound, the bound included; NaN is nothing."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        """Count one value."""
        if value == value:
            self.counts[bisect_left(self.bounds, value)] += 1
            self.sum += value

    def buckets(self) -> list[tuple[str, float]]:
        """(upper bound, values up to it), as Prometheus wants them."""
        found, total = [], 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            total += count
            found.append(("+Inf" if bound == float("inf") else repr(bound), float(total)))
        return found


class Tokens:
    """Per engine, as its ``usage`` says."""

    __slots__ = ("cache_unknown", "cached", "output", "prompt")

    def __init__(self) -> None:
        self.prompt = self.output = self.cached = self.cache_unknown = 0

    def add(self, call: Passage) -> None:
        """-1: the engine did not say."""
        if call.prompt_tokens > 0:
            self.prompt += call.prompt_tokens
            if call.cached_tokens < 0:
                self.cache_unknown += call.prompt_tokens
        if call.output_tokens > 0:
            self.output += call.output_tokens
        if call.cached_tokens > 0:
            self.cached += call.cached_tokens


class _Program:
    """What a program has had so far; seconds."""

    __slots__ = ("exec_s", "last", "started", "wait_s")

    def __init__(self, started: float) -> None:
        self.started = started
        self.last = float("nan")  # no call of it has left
        self.exec_s = self.wait_s = 0.0


class Metrics:
    """Observer and collector. ``registry`` has it and the process's own CPU, memory and descriptors.

    ``views`` tells the engines as a router sees them, ``dropped`` the lines that the event log lost;
    both are asked when somebody scrapes. The loop's lag is looked at from ``watch`` on, until ``close``.
    """

    def __init__(
        self, views: Callable[[], Sequence[EngineView]], dropped: Callable[[], int] = lambda: 0
    ) -> None:
        self._views = views
        self._dropped = dropped
        self._open: dict[int, Passage] = {}
        self._held: set[int] = set()
        self._programs: dict[int, _Program] = {}
        self._calls: Counter[tuple[str, str]] = Counter()
        self._tokens: dict[int, Tokens] = {}
        self._charged: Counter[str] = Counter()
        self._over: Counter[str] = Counter()
        self._passed: Counter[str] = Counter()
        self._turns: Counter[tuple[int, str]] = Counter()
        self._gated: Counter[tuple[str, str]] = Counter()
        self._gated_tokens: Counter[str] = Counter()
        self._kept: Counter[str] = Counter()
        self._kept_tokens: Counter[str] = Counter()
        self._sums = {"retries": 0, "received": 0, "sent": 0, "chunks": 0}
        self._times = {name: Histogram(bounds) for name, (bounds, _) in HISTOGRAMS.items()}
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self.registry = CollectorRegistry()
        self.registry.register(self)
        ProcessCollector(registry=self.registry)

    def arrived(self, call: Passage) -> None:
        """Open until it leaves."""
        self._open[call.seq] = call

    def held(self, call: Passage) -> None:
        """By the gate."""
        self._held.add(call.seq)

    def sent(self, call: Passage) -> None:
        """Which engine is on the passage."""

    def first(self, call: Passage) -> None:
        """The time is on the passage."""

    def left(self, call: Passage) -> None:
        """Count it, its tokens and its times."""
        times = self._times
        self._open.pop(call.seq, None)
        self._calls[call.endpoint, call.outcome] += 1
        since = call.t_arrive
        if call.seq in self._held:
            self._held.discard(call.seq)
            since = call.t_admit
            over = since if since == since else call.t_end  # it left while it was held
            times["hold"].add(over - call.t_arrive)
        times["added"].add(call.t_send - since)
        if call.outcome == "finished":
            times["call"].add(call.t_end - call.t_arrive)
            if call.stream:
                times["first_byte"].add(call.t_first - call.t_arrive)
        self._add_sums(call)
        program = self._programs.get(call.program)
        if program is not None:
            program.last = call.t_end
            program.exec_s += call.exec_s
            program.wait_s += call.wait_s

    def _add_sums(self, call: Passage) -> None:
        sums = self._sums
        sums["received"] += call.bytes_in
        sums["sent"] += call.bytes_out
        sums["chunks"] += call.chunks
        if call.attempt > 1:
            sums["retries"] += 1
        if call.source:
            self._charged[call.source] += 1
        if call.engine >= 0:
            tokens = self._tokens.get(call.engine)
            if tokens is None:
                tokens = self._tokens[call.engine] = Tokens()
            tokens.add(call)

    def started(self, program: int, name: str, now: float) -> None:  # noqa: ARG002
        """A row more."""
        self._programs[program] = _Program(now)

    def ended(self, program: int, name: str, why: str, now: float) -> None:  # noqa: ARG002
        """Its times count up to its last reply: a lease that runs out later is nobody's wait."""
        found = self._programs.pop(program, None)
        self._over[why] += 1
        if found is not None and found.last == found.last:
            self._times["program"].add(found.last - found.started)
            self._times["program_exec"].add(found.exec_s)
            self._times["program_wait"].add(found.wait_s)

    def passed(self, status: int) -> None:
        """A request for another path than those of calls was answered so."""
        self._passed[f"{status // 100}xx"] += 1

    def engine(self, engine: int, what: str, reason: str, now: float) -> None:  # noqa: ARG002
        """A turn in an engine's life."""
        self._turns[engine, what] += 1

    def gate(self, event: GateEvent, name: str) -> None:  # noqa: ARG002
        """A gate of somebody's own may give any reason: those beyond the first ``REASONS`` are ``other``."""
        key = event.what, event.reason
        if key not in self._gated and len(self._gated) >= REASONS:
            key = event.what, "other"
        self._gated[key] += 1
        self._gated_tokens[event.what] += event.tokens

    def kept(self, event: KeepEvent, name: str) -> None:  # noqa: ARG002
        """By what it was; tools are named by clients, so no label."""
        self._kept[event.what] += 1
        self._kept_tokens[event.what] += event.tokens

    def watch(self) -> None:
        """Begin to look at the lag of the running event loop, unless that has begun."""
        if self._timer is None and not self._closed:
            self._tick(asyncio.get_running_loop(), None)

    def close(self) -> None:
        """Leave nothing in the loop; idempotent."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self, loop: asyncio.AbstractEventLoop, due: float | None) -> None:
        now = loop.time()
        if due is not None:
            self._times["lag"].add(max(0.0, now - due))
        self._timer = loop.call_at(now + TICK_S, self._tick, loop, now + TICK_S)

    def states(self) -> Mapping[str, int]:
        """Programs by state: reasoning (a call of it is at an engine), held (one waits here), idle."""
        reasoning = {call.program for call in self._open.values() if call.t_send == call.t_send}
        waiting = {call.program for call in self._open.values()} - reasoning
        idle = sum(program not in reasoning and program not in waiting for program in self._programs)
        return {"reasoning": len(reasoning), "held": len(waiting), "idle": idle}

    def collect(self) -> Iterator[Metric]:
        """What a scrape gets."""
        yield from self._of_calls()
        yield from self._of_programs()
        yield from self._of_engines()
        for name, (_, text) in HISTOGRAMS.items():
            found = self._times[name]
            yield HistogramMetricFamily(f"gateway_{name}_seconds", text, found.buckets(), found.sum)

    def _of_calls(self) -> Iterable[Metric]:
        yield counter("calls", "Calls that left.", ("endpoint", "outcome"), self._calls)
        yield counter(
            "passed", "Requests passed through without a policy, by status.", ("status",), self._passed
        )
        yield counter(
            "charged_calls", "Calls charged, by where their service is from.", ("source",), self._charged
        )
        yield total("retries", "Calls that were another attempt at a turn.", self._sums["retries"])
        yield total("received_bytes", "Bytes of requests.", self._sums["received"])
        yield total("sent_bytes", "Bytes of replies.", self._sums["sent"])
        yield total("chunks", "Pieces of replies passed on.", self._sums["chunks"])
        yield total("log_dropped_lines", "Lines the event log lost.", self._dropped())
        yield gauge("tasks", "Tasks of the event loop.", tasks())
        yield gauge("calls_open", "Calls that arrived and did not leave.", len(self._open))
        yield gauge("calls_held", "Calls the gate holds.", self._holding())

    def _holding(self) -> int:
        return sum(
            self._open[seq].t_admit != self._open[seq].t_admit for seq in self._held if seq in self._open
        )

    def _of_programs(self) -> Iterable[Metric]:
        yield gauges("programs", "Programs in the table, by state.", "state", self.states())
        yield counter("programs_over", "Programs that left the table, and why.", ("why",), self._over)
        yield counter("gate_events", "What the gate did, and why.", ("what", "reason"), self._gated)
        yield counter("gate_tokens", "KV that was about (tokens).", ("what",), self._gated_tokens)
        yield counter("keep_events", "What retention did, and what came of it.", ("what",), self._kept)
        yield counter("keep_tokens", "KV that was about (tokens).", ("what",), self._kept_tokens)

    def _of_engines(self) -> Iterable[Metric]:
        views = {str(view.id): view for view in self._views()}
        flying = Counter(call.engine for call in self._open.values() if call.t_send == call.t_send)
        yield gauges("engine_up", "1: it takes calls.", "engine", {i: v.alive for i, v in views.items()})
        yield gauges(
            "calls_in_flight", "Calls at an engine.", "engine", {i: flying[v.id] for i, v in views.items()}
        )
        yield gauges("engine_running", "Of our calls there, those in the batch by its own metrics.", "engine",
                     {i: v.running for i, v in views.items()})  # fmt: skip
        yield gauges("engine_kv_usage", "Share of its KV blocks in use, 0 to 1.", "engine",
                     {i: v.kv_used / v.kv_total for i, v in views.items() if v.kv_total})  # fmt: skip
        yield counter("engine_events", "Turns in an engine's life.", ("engine", "what"), self._turns)
        for kind in Tokens.__slots__[::-1]:
            by_engine = {(engine,): getattr(tokens, kind) for engine, tokens in self._tokens.items()}
            yield counter(f"{kind}_tokens", f"Tokens: {kind}, as engines say.", ("engine",), by_engine)


HISTOGRAMS: Mapping[str, tuple[Sequence[float], str]] = {
    "added": (ADDED, "From a call's arrival to its sending, without what the gate held it."),
    "hold": (SECONDS, "What the gate held the calls that it held."),
    "first_byte": (SECONDS, "From arrival to the first byte of the reply; finished streams."),
    "call": (SECONDS, "From arrival to the end; finished calls."),
    "program": (SECONDS, "From a program's start to its last reply; programs that are over."),
    "program_exec": (SECONDS, "Execution a program was charged; programs that are over."),
    "program_wait": (SECONDS, "Waiting a program was charged; programs that are over."),
    "lag": (ADDED, "How late the event loop was for a timer."),
}


def tasks() -> int:
    """Of the running event loop, 0 outside of one."""
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:
        return 0


def counter(name: str, text: str, labels: Sequence[str], values: Mapping[Any, float]) -> Metric:
    """A counter; keys of ``values`` are label values, a tuple where there are several."""
    family = CounterMetricFamily(f"gateway_{name}", text, labels=labels)
    for key, value in values.items():
        family.add_metric([str(part) for part in (key if isinstance(key, tuple) else (key,))], value)
    return family


def total(name: str, text: str, value: float) -> Metric:
    """A counter without labels."""
    return CounterMetricFamily(f"gateway_{name}", text, value=value)


def gauge(name: str, text: str, value: float) -> Metric:
    """A gauge without labels."""
    return GaugeMetricFamily(f"gateway_{name}", text, value=value)


def gauges(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    """A gauge by one label."""
    family = GaugeMetricFamily(f"gateway_{name}", text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family
