"""Rows of the event log from what schedulers and client saw, on one clock: seconds since the run began.

Calls are the schedulers' (arrival, waits, execution), programs the client's: from the scheduled arrival to
the end of the last task. What of a program's critical path is neither its calls' wait and execution nor its
tools and people is overhead: client, gateway, network, and the way from a step's end to the reply.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.drivers.live_records import LiveCall, LiveProgram, LiveRun
from bench.live.logs import EngineLog
from bench.records import EngineSample, ProgramRow, Sink
from vocabulary import BLOCK, INF, Call, Finished, on_grid

EVERY_S = 0.25
"""Seconds between two samples of an engine."""
_SPLIT = ("prefill_s", "reprefill_s", "decode_s", "swap_s", "wait_s")
_TIMES = ("t_arrive", "t_first_sched", "t_first_token", "t_end")
_COPIED = (
    "output_tokens", "cached_tokens", "prefill_tokens", "reprefill_tokens", *_SPLIT, "served", "steps",
    "preemptions", "demotions", "promotions", "level", "aborted",
)  # fmt: skip


@dataclass
class Rows:
    """What a run leaves in the event log; ``totals``: per engine, as ``Engine.stats`` says them."""

    calls: list[Finished] = field(default_factory=list)
    programs: list[ProgramRow] = field(default_factory=list)
    samples: list[EngineSample] = field(default_factory=list)
    totals: list[dict[str, float]] = field(default_factory=list)

    def send(self, sink: Sink) -> None:
        """Into the event log, in order of time."""
        for call in sorted(self.calls, key=lambda row: (row.t_end, row.call.seq)):
            sink.call(call)
        for program in sorted(self.programs, key=lambda row: (row.t_end, row.program)):
            sink.program(program)
        for sample in sorted(self.samples):
            sink.sample(sample)


def rows_of(live: LiveRun, logs: Sequence[EngineLog], held: Mapping[str, float] = {}) -> Rows:
    """Every call that came to an engine, every program; without logs calls are as the client saw them.

    ``held``: seconds that calls waited at a gate, by PROGRAM.THREAD.INDEX: wait, too.
    """
    asked = {_key(live, call): call for call in live.calls}
    order = {key: i for i, key in enumerate(sorted(asked, key=lambda key: asked[key].t_send), 1)}
    found = Rows()
    for log in logs:
        back = _shift(live.origin - log.origin)
        found.calls += [
            _waited(_finished(row, _call(asked[key], order[key]), log.engine, back), held.get(key, 0.0))
            for key, row in log.calls.items()
        ]
        found.totals.append(totals(log, asked))
        found.samples += samples(log, back)
    if not logs:
        found.calls = [_seen(call, order[key]) for key, call in asked.items() if call.answered]
        found.totals = [_nothing(found.calls)]
    by_program: dict[int, list[Finished]] = {}
    for row in found.calls:
        by_program.setdefault(row.call.program, []).append(row)
    found.programs = [
        _program(program, by_program.get(program.program, ()), live) for program in live.programs
    ]
    return found


def _key(live: LiveRun, call: LiveCall) -> str:
    return call.name.removeprefix(f"{live.name}.")


def _shift(seconds: float) -> float:
    """A difference of two clocks, on the grid."""
    return on_grid(seconds) if seconds >= 0.0 else -on_grid(-seconds)


def _call(call: LiveCall, seq: int) -> Call:
    return Call(seq, call.program, call.thread, call.index, call.prompt_tokens, parents=call.parents)


def _finished(row: Mapping[str, Any], call: Call, engine: int, back: float) -> Finished:
    """A row of the call log; its times ``back`` seconds earlier."""
    times: dict[str, Any] = {name: INF if row[name] is None else row[name] - back for name in _TIMES}
    copied: dict[str, Any] = {name: row[name] for name in _COPIED}
    return Finished(call, engine, **times, **copied)


def _waited(row: Finished, seconds: float) -> Finished:
    """A call that waited at the gate before it came to its engine."""
    row.t_arrive -= seconds
    row.wait_s += seconds
    row.hold_s += seconds
    return row


def _seen(call: LiveCall, seq: int) -> Finished:
    """A call of an engine without a log of ours: all of its time counts as execution, which it is not."""
    begin, end = on_grid(call.t_send), on_grid(call.t_last)
    return Finished(
        _call(call, seq), 0, begin, begin, on_grid(call.t_first), end,
        output_tokens=len(call.tokens), decode_s=end - begin,
    )  # fmt: skip


def _program(program: LiveProgram, calls: Sequence[Finished], live: LiveRun) -> ProgramRow:
    row = ProgramRow(
        program.program, program.kind, on_grid(program.t_sched), on_grid(program.t_end), program.outcome,
        len(calls), program.threads, tool_s=on_grid(program.tool_s), think_s=on_grid(program.think_s),
    )  # fmt: skip
    for call in calls:
        row.prompt_tokens += call.call.prompt_tokens
        row.output_tokens += call.output_tokens
        row.cached_tokens += call.cached_tokens
        row.preemptions += call.preemptions
        row.wait_s += call.wait_s
        row.hold_s += call.hold_s
        row.swap_s += call.swap_s
        row.exec_s += call.prefill_s + call.reprefill_s + call.decode_s + call.swap_s
    _critical(row, program, {f"{c.call.thread.replace('.', '_')}.{c.call.index}": c for c in calls}, live)
    return row


def _critical(row: ProgramRow, program: LiveProgram, calls: Mapping[str, Finished], live: LiveRun) -> None:
    for leg in program.path:
        row.cp_tool_s += on_grid(leg.tool_s)
        row.cp_think_s += on_grid(leg.think_s)
        if leg.name:
            call = calls[leg.name.removeprefix(f"{live.name}.{program.program}.")]
            for name in _SPLIT:
                setattr(row, f"cp_{name}", getattr(row, f"cp_{name}") + getattr(call, name))
    parts = (row.cp_tool_s, row.cp_think_s, *(getattr(row, f"cp_{name}") for name in _SPLIT))
    row.cp_overhead_s = row.t_end - row.t_arrive - sum(parts)


# Engines


def totals(log: EngineLog, asked: Mapping[str, LiveCall]) -> dict[str, float]:
    """An engine's totals by its steps; finished and aborted calls by its call log.

    Blocks evicted from the prefix cache are in no log: ``evicted_blocks`` is 0.
    """
    walk = _Walk()
    for step in log.steps:
        walk.step(step)
    first, last = (log.steps[0], log.steps[-1]) if log.steps else ({"evicted": 0}, {"evicted": 0})
    evicted = last["evicted"] - first["evicted"]
    aborted = sum(bool(row["aborted"]) for row in log.calls.values())
    admitted = [key for key, row in log.calls.items() if row["t_first_sched"] is not None]
    return {
        "steps": len(log.steps),
        "busy_s": walk.busy_s,
        "hit_tokens": walk.hits,
        "query_tokens": sum(asked[key].prompt_tokens for key in admitted),
        "computed_prefill_tokens": walk.prefilled,
        "decode_tokens": walk.decoded,
        "preemptions": walk.preempted,
        "displaced": walk.preempted - evicted,
        "evicted": evicted,
        "evicted_blocks": 0,
        "calls_finished": len(log.calls) - aborted,
        "calls_aborted": aborted,
        "kv_block_seconds": walk.block_seconds * int(log.head["block_size"]) / BLOCK,
    }


class _Walk:
    """Goes through the steps of a run: who is in the middle of a prefill, and what was computed."""

    def __init__(self) -> None:
        self._decoding: dict[str, bool] = {}
        self._end = 0.0
        self.busy_s = self.block_seconds = 0.0
        self.hits = self.prefilled = self.decoded = self.preempted = 0

    def step(self, step: Mapping[str, Any]) -> None:
        """Count a step."""
        seconds = step["end"] - max(step["start"], self._end)
        self._end = step["end"]
        self.busy_s += seconds
        self.block_seconds += seconds * step["kv_used"]
        self.preempted += len(step["preempted"])
        for name in step["preempted"]:
            self._decoding[name] = False
        for name, computed, new, emits in step["calls"]:
            if name not in self._decoding:
                self.hits += computed
            if self._decoding.get(name, False):
                self.decoded += 1
            else:
                self.prefilled += new
                self._decoding[name] = bool(emits)


def samples(log: EngineLog, back: float) -> Iterator[EngineSample]:
    """The engine every ``EVERY_S`` seconds in which it took a step, and idle after its last."""
    scale, due = int(log.head["block_size"]) / BLOCK, 0.0
    for step in log.steps:
        now = step["end"] - back
        if now >= due:
            due = now + EVERY_S
            used = int(step["kv_used"] * scale)
            yield EngineSample(now, log.engine, step["running"], step["waiting"], used, 0)
    if log.steps:
        yield EngineSample(log.steps[-1]["end"] - back, log.engine, 0, 0, 0, 0)


def _nothing(calls: Sequence[Finished]) -> dict[str, float]:
    """Totals of engines that say nothing: only what the client counted."""
    names = ("steps", "busy_s", "hit_tokens", "query_tokens", "computed_prefill_tokens", "decode_tokens",
             "preemptions", "displaced", "evicted", "evicted_blocks", "calls_aborted")  # fmt: skip
    return {**dict.fromkeys(names, 0), "calls_finished": len(calls), "kv_block_seconds": 0.0}
