"""The reference engine with a meter: what every block is used for, added up step by step.

``python -m tests.unit.bench.kv_oracle`` prints how far the accounting is off (half a minute).
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from bench.drivers.virtual import drive
from bench.eventlog import Tables, from_memory
from bench.kv_cost import PARTS, account, chains
from bench.offline import offline
from bench.records import EngineTotals, MemorySink
from systems.catalog import (
    build_gate,
    build_retention,
    build_router,
    build_scheduler,
    build_table,
    load_system,
)
from systems.engines.reference import ReferenceEngine
from systems.engines.reference_kv import content_of
from tests.latency_models import LinearLatency
from vocabulary import BLOCK, EngineConfig
from workloads.base import ProgramSpec
from workloads.keys import mix

SYSTEM = (7, 320)
"""A system prompt that programs share."""


class Metered(ReferenceEngine):
    """Knows of every program what it ever had in KV, so what is computed again, and whose content is cached.

    ``spent``: block-seconds by what they were for. A block in use counts for its calls in equal parts, each
    by its phase; one that is free is caching, once per content, where it has that of a program that is not
    over and made its last call here.
    """

    def __init__(self, *args, ended, **kwargs):
        super().__init__(*args, **kwargs)
        self.spent = dict.fromkeys(PARTS, 0.0)
        self.had = {}  # program -> what it ever had in KV here
        self.last = {}  # program -> the engine that it used last
        self.everything = {}  # program -> what it ever had in KV anywhere
        self.numbers = {}  # content -> number
        self.names = {}  # block -> number of what it holds
        self.ended = ended  # shared by all engines
        self._again = {}  # call -> share of its prefill that it had before
        self._at = 0.0
        self._now_used = self._look()

    def admit(self, job, prefix, now):
        super().admit(job, prefix, now)
        program = job.call.program
        before = self.everything.setdefault(program, set())
        whole = range(len(prefix.hits), (job.tokens - 1) // BLOCK)
        names = {self._name(content_of(job.segments, (i + 1) * BLOCK)) for i in whole}
        computed = max(1, job.tokens - job.computed)
        share = min(1.0, BLOCK * len(names & before) / computed)
        self._again[job.call.seq] = 1.0 if job.admissions > 1 else share
        self.last[program] = self.id
        self._note(program, prefix.hits)

    def give(self, job, n, blocks):
        super().give(job, n, blocks)
        self._note(job.call.program, job.blocks[: (job.computed + n) // BLOCK])

    def _note(self, program, blocks):
        """The program has these (full) blocks in KV."""
        for block in blocks:
            self.names[block] = self._name(block.content)
        names = {self.names[block] for block in blocks}
        self.had.setdefault(program, set()).update(names)
        self.everything[program] |= names

    def _name(self, content):
        """Equal contents have equal numbers, in all engines."""
        return self.numbers.setdefault(content, len(self.numbers))

    def _record(self, batch):
        self._lapse(batch.now)
        super()._record(batch)
        self._now_used = self._look()

    def collect(self):
        self._lapse(self._end)
        rows = super().collect()
        self._now_used = self._look()
        return rows

    def end_program(self, program, now):
        self.ended.add(program)
        if now > self._at:
            self._lapse(now)
        self._now_used = self._look()
        super().end_program(program, now)

    def _lapse(self, now):
        """Book what was there since the last time."""
        for name, blocks in self._now_used.items():
            self.spent[name] += blocks * (now - self._at)
        self._at = now

    def _look(self):
        found = dict.fromkeys(PARTS, 0.0)
        users = {}
        for job in self.running:
            for block in job.blocks:
                users.setdefault(block, []).append(job)
        for jobs in users.values():
            for job in jobs:
                again = self._again[job.call.seq] if job.prefilling else 0.0
                found["recompute"] += again / len(jobs)
                found["prefill" if job.prefilling else "decode"] += (1 - again) / len(jobs)
        here = [p for p in self.had if p not in self.ended and self.last[p] == self.id]
        alive = set().union(*(self.had[program] for program in here))
        used = {self.names[block] for block in users if block.content is not None}
        cached = {self.names[block] for block in (*self.kv._idle, *self.kv._kept)} - used
        found["caching"] = float(len(cached & alive))
        found["unused"] = self.kv.total - sum(found.values())
        return found


@dataclass
class Metering:
    """A run: its log, what the meters say (token-seconds per engine), and the cap on what was lost."""

    tables: Tables
    spent: list[dict[str, float]]
    most_lost: float
    kv_blocks: int


def agent(seed, steps, tool_s, shared=True, fork=False, reply=(4, 24)):
    """A program that appends to its context: (120-400 new tokens, a reply, a tool) x steps."""

    async def start(s):
        rng = random.Random(seed)
        if shared:
            s.add(SYSTEM)
        for step in range(steps):
            await s.call(rng.randint(120, 400), output=rng.randint(*reply))
            if fork and step == steps // 2:
                await s.join(*(branch(s.fork(), rng.random()) for _ in range(3)))
            elif step < steps - 1:
                await s.tool("shell", tool_s(rng))

    async def branch(s, draw):
        rng = random.Random(draw)
        for _ in range(2):
            await s.call(rng.randint(30, 90), output=rng.randint(4, 16))
            await s.tool("shell", tool_s(rng))

    return start


def meter(
    programs, *, kv_blocks, tool_s, concurrency=None, rate=1.0, engines=1, system="vllm-opt", **options
):
    """Serve agents of 3-8 steps on metered engines."""
    rng = random.Random(5)
    specs = [
        ProgramSpec(i, "agent", mix(3, i), agent(i, rng.randint(3, 8), tool_s, **options))
        for i in range(programs)
    ]
    spec = load_system(system)
    config = EngineConfig(
        kv_blocks=kv_blocks, max_num_seqs=32, max_num_batched_tokens=512, retains=spec.keeps
    )
    table, sink, ended = build_table(spec), MemorySink(), set()
    made = [
        Metered(i, config, build_scheduler(spec, table), LinearLatency(), ended=ended) for i in range(engines)
    ]
    for engine in made:  # what one of them knows of a program, all know
        one = made[0]
        engine.everything, engine.last, engine.numbers = one.everything, one.last, one.numbers
    times = None
    if concurrency is None:
        times = [float(t) for t in _arrivals(rng, programs, rate)]
    end = drive(specs, times=times, concurrency=concurrency, engines=made, router=build_router(spec),
                table=table, sink=sink, sample_s=1.0, gate=None if spec.gate == "open" else build_gate(spec),
                retention=None if spec.retention == "lru" else build_retention(spec))  # fmt: skip
    sink.totals += [EngineTotals.of(i, stats) for i, stats in enumerate(end.engines)]
    tables = from_memory(sink)
    for engine in made:
        engine._lapse(max(row.t_end for row in sink.programs))
    spent = [{name: BLOCK * v for name, v in engine.spent.items()} for engine in made]
    best = offline(specs).hit_tokens - int(tables.calls.cached_tokens.sum())
    return Metering(tables, spent, best, kv_blocks)


def _arrivals(rng, programs, rate):
    now = 0.0
    for _ in range(programs):
        yield now
        now += rng.expovariate(rate)


def accounted(run):
    """The accounting of a run's log, per engine."""
    tables = run.tables
    rows = chains(tables.calls)
    return account(tables.programs, rows, tables.engine, tables.totals, run.kv_blocks, run.most_lost)


def _exponential(rng):
    return rng.expovariate(1 / 3)


def _heavy(rng):
    return rng.lognormvariate(0.0, 1.5)


def _constant(rng):
    return 3 + 0.1 * rng.random()


def _short(rng):
    return 0.02


CASES = {
    "room for all": {"kv_blocks": 4000},
    "half": {},
    "a quarter": {"kv_blocks": 500, "concurrency": 14},
    "heavy tails": {"tool_s": _heavy},
    "nothing shared": {"shared": False},
    "open loop": {"concurrency": None, "rate": 0.8},
    "constant": {"tool_s": _constant},
    "branches": {"fork": True, "concurrency": 8},
    "two engines": {"kv_blocks": 500, "engines": 2},
    "thunderagent": {"concurrency": 14, "system": "thunderagent"},
    "thunderagent, two": {"kv_blocks": 600, "concurrency": 14, "engines": 2, "system": "thunderagent"},
    "continuum-ttl": {"system": "continuum-ttl"},
    "survival": {"tool_s": _heavy, "system": "survival"},
    "preempted": {"programs": 12, "kv_blocks": 250, "tool_s": _short, "concurrency": 8, "shared": False,
                  "system": "mlfq", "reply": (40, 90)},
}  # fmt: skip


def main():
    """A line per case and engine: log / meter, in percent of the capacity."""
    common = {"programs": 40, "kv_blocks": 900, "tool_s": _exponential, "concurrency": 12}
    for name, case in CASES.items():
        run = meter(**(common | case))
        for got, true in zip(accounted(run).to_dict("records"), run.spent, strict=True):
            each = (
                f"{part} {100 * got[part] / got['capacity']:5.2f}/{100 * true[part] / got['capacity']:5.2f}"
                for part in PARTS
            )
            bounds = (f"{100 * got[f'caching_{end}'] / got['capacity']:.1f}" for end in ("low", "high"))
            print(f"{name:18}", *each, f"caching in [{', '.join(bounds)}]", sep="  ")


if __name__ == "__main__":
    main()
