"""Every policy found in the folders, held to the interface without any engine.

A new file in ``systems/schedulers`` or ``systems/routers`` is tested here
with no edit.
"""

import random

import pytest

from systems.catalog import (
    CatalogError,
    build_front,
    build_router,
    build_scheduler,
    build_table,
    load_system,
    router_names,
    scheduler_names,
    skipped,
    system_names,
)
from systems.engines.reference import ReferenceEngine
from systems.protocols import Router, Scheduler
from tests.driven import serve
from tests.latency_models import LinearLatency
from vocabulary import INF, Call, EngineConfig, EngineView, Slot, Usage

CLAIRVOYANT = [name for name in scheduler_names() if load_system("vllm-opt", scheduler=name).clairvoyant]
BLIND = [name for name in scheduler_names() if name not in CLAIRVOYANT]


class Blindfolded(Call):
    """A call whose future must not be looked at."""

    @property
    def remaining(self):
        raise AssertionError("a policy that is not clairvoyant read Call.remaining")

    @remaining.setter
    def remaining(self, value):
        pass

    @property
    def output(self):
        raise AssertionError("a policy that is not clairvoyant read Call.output")

    @output.setter
    def output(self, value):
        pass


class Cache:
    """Prefixes that come and go with every question, the same ones for every policy."""

    def __init__(self):
        self.asked = 0

    def prefix(self, call):
        self.asked += 1
        draw = (call.seq * 7919 + self.asked * 104729) % 97
        return [(call.program % 3, 16 + draw % 5 * 16), (draw % 4, draw)][: draw % 3]


def scheduler_of(name):
    spec = load_system("vllm-opt", scheduler=name)
    table = build_table(spec)
    scheduler = build_scheduler(spec, table)
    if spec.reads_cache:
        scheduler.attach(Cache())
    return scheduler, table


class Script:
    """A scripted host: the same events for every policy, whatever it answers.

    Two calls run at a time, chosen at random by the script; every answer is
    recorded.
    """

    def __init__(self, name, seed, call_type=Call, future=lambda seq: 100.0):
        self.rng = random.Random(seed)
        self.scheduler, self.table = scheduler_of(name)
        self.call_type, self.future = call_type, future
        self.now, self.seq = 0.0, 0
        self.calls = {}  # seq: [call, slot, arrival, exec_s, running since or None, served at slot]
        self.answers = []

    def usage(self, entry):
        run = entry[3] + (self.now - entry[4] if entry[4] is not None else 0.0)
        return Usage(run * 64.0, run, self.now - entry[2] - run)

    def arrive(self):
        program, parents = self.rng.randrange(6), ((str(self.rng.randrange(9)), 0),) * self.rng.randrange(2)
        future = self.future(self.seq)
        c = self.call_type(self.seq, program, str(self.seq % 9), 0, self.rng.choice((100, 9000)), "",
                           parents, future, future)  # fmt: skip
        slot = self.scheduler.arrive(c, self.table.snapshot(c.program), self.now)
        self.calls[self.seq] = [c, slot, self.now, 0.0, None, 0.0]
        self.answers.append((self.seq, slot))
        self.seq += 1

    def toggle(self, entry):
        usage = self.usage(entry)
        if entry[4] is None:
            entry[4] = self.now
            if self.scheduler.tracks_wait:
                self.scheduler.start(entry[0], self.now)
            return
        if usage.served - entry[5] >= entry[1].quantum:
            entry[1], entry[5] = self.scheduler.expire(entry[0], usage.served, self.now), usage.served
            self.answers.append((entry[0].seq, entry[1]))
        entry[3], entry[4] = usage.exec_s, None
        if self.scheduler.tracks_wait:
            self.scheduler.stop(entry[0], usage, self.now)

    def leave(self, entry):
        way = self.scheduler.finish if self.rng.random() < 0.8 else self.scheduler.abort
        way(entry[0], self.usage(entry), self.now)
        del self.calls[entry[0].seq]

    def run(self, events=600):
        for _ in range(events):
            self.now += self.rng.choice((0.0, 0.25, 2.0))
            if self.scheduler.tracks_wait and self.scheduler.next_due() <= self.now:
                moved = self.scheduler.due(self.now)
                assert len({c.seq for c, _ in moved}) == len(moved), "each call once"
                for c, slot in moved:
                    entry = self.calls[c.seq]
                    assert entry[4] is None, "only waiting calls are promoted"
                    assert slot[:2] != entry[1][:2], "only calls that move"
                    entry[1], entry[5] = slot, entry[3] * 64.0
                    self.answers.append((c.seq, slot))
            choice = self.rng.random()
            if choice < 0.35 or not self.calls:
                self.arrive()
                continue
            entry = self.calls[self.rng.choice(sorted(self.calls))]
            self.toggle(entry) if choice < 0.75 else self.leave(entry)
        return self.answers


def test_every_file_of_the_folders_can_be_loaded():
    assert skipped() == {}


@pytest.mark.parametrize("name", scheduler_names())
def test_scheduler_follows_the_protocol(name):
    scheduler, _ = scheduler_of(name)
    assert isinstance(scheduler, Scheduler)
    assert scheduler.name == name
    assert scheduler.unit in ("step", "s", "token")
    assert type(scheduler).__doc__
    assert scheduler.next_due() == INF


@pytest.mark.parametrize("name", scheduler_names())
def test_every_answer_is_a_slot(name):
    for _, slot in Script(name, 1).run():
        assert isinstance(slot, Slot)
        assert isinstance(slot.level, int)
        assert slot.level >= 0
        assert slot.quantum > 0.0
        assert slot.key == slot.key


@pytest.mark.parametrize("name", scheduler_names())
def test_same_script_same_answers(name):
    assert Script(name, 2).run() == Script(name, 2).run()


@pytest.mark.parametrize("name", scheduler_names())
def test_the_future_is_read_only_by_the_clairvoyant(name):
    scheduler, _ = scheduler_of(name)
    if scheduler.clairvoyant:
        far = Script(name, 3, future=lambda seq: 5.0 + seq).run()
        assert far != Script(name, 3).run()
    else:
        assert Script(name, 3, call_type=Blindfolded).run() == Script(name, 3).run()


@pytest.mark.parametrize("name", scheduler_names())
def test_no_clock_but_the_argument(name, monkeypatch):
    def refuse(*_):
        raise AssertionError("a policy asked the machine for time or chance")

    expected = Script(name, 4).run()
    script = Script(name, 4)
    for module, function in (("time", "time"), ("time", "monotonic"), ("time", "perf_counter")):
        monkeypatch.setattr(f"{module}.{function}", refuse)
    for function in ("random", "randrange", "choice", "uniform"):
        monkeypatch.setattr(f"random.{function}", refuse)
    assert script.run() == expected


@pytest.mark.parametrize("name", scheduler_names())
def test_what_was_received_is_charged_and_forgotten_at_the_end(name):
    script = Script(name, 5)
    script.run()
    for entry in list(script.calls.values()):
        script.leave(entry)
    rows = [script.table.snapshot(program) for program in range(6)]
    assert all(row.service > 0.0 and row.exec_s > 0.0 for row in rows)
    if script.table.rule == "sum":
        assert all(row.service == row.exec_s * 64.0 for row in rows)
    assert script.scheduler.next_due() == INF
    for program in range(6):
        script.scheduler.end(program, script.now)
    assert len(script.table) == 0


@pytest.mark.parametrize("name", scheduler_names())
def test_an_ended_program_leaves_nothing_behind(name):
    """Memory follows the programs in the system, not those that ever were."""
    scheduler, table = scheduler_of(name)
    for seq in range(300):
        c = Call(seq, seq, "", 0, 10, remaining=50.0, output=20.0)
        scheduler.arrive(c, table.snapshot(seq), float(seq))
        scheduler.finish(c, Usage(70.0, 1.0, 0.0), seq + 1.0)
        scheduler.end(seq, seq + 1.0)
    kept = [v for v in vars(scheduler).values() if isinstance(v, dict)]
    assert not any(kept)
    assert len(table) == 0


def routes(name, call_type=Call, future=lambda seq: 0.0, calls=300):
    """One router over engines that fill, empty, die and come back."""
    rng, router = random.Random(6), build_router(load_system("vllm-opt", router=name))
    assert isinstance(router, Router)
    assert router.name == name
    chosen = []
    for seq in range(calls):
        views = [
            EngineView(i, rng.random() < 0.6, rng.randrange(90), rng.randrange(50), 100, 0, rng.randrange(50))
            for i in range(4)
        ]
        prompt = tuple((rng.randrange(9), rng.randrange(1, 900)) for _ in range(rng.randrange(1, 6)))
        tokens = sum(length for _, length in prompt)
        program, left = rng.randrange(20), future(seq)
        if any(view.alive for view in views):
            call = call_type(seq, program, "", 0, tokens, "", (), left, left, prompt)
            chosen.append(router.route(call, views, float(seq)))
            assert views[chosen[-1]].alive
        if hasattr(router, "end") and rng.random() < 0.1:
            router.end(program)
    return chosen


@pytest.mark.parametrize("name", router_names())
def test_router_sends_to_the_living_and_repeats_itself(name):
    assert routes(name) == routes(name)
    assert len(set(routes(name))) == 4


@pytest.mark.parametrize("name", router_names())
def test_a_router_does_not_read_the_future(name):
    assert routes(name, Blindfolded) == routes(name)


@pytest.mark.parametrize("name", router_names())
def test_a_router_asks_neither_clock_nor_chance(name, monkeypatch):
    def refuse(*_):
        raise AssertionError("a router asked the machine for time or chance")

    expected = routes(name, calls=60)
    for function in ("time", "monotonic", "perf_counter"):
        monkeypatch.setattr(f"time.{function}", refuse)
    for function in ("random", "randrange", "choice", "uniform"):
        monkeypatch.setattr(f"random.{function}", refuse)
    assert routes(name, calls=60) == expected


@pytest.mark.parametrize("name", router_names())
def test_a_router_forgets_programs_that_are_over(name):
    router = build_router(load_system("vllm-opt", router=name))
    if not hasattr(router, "end"):
        kept = [v for v in vars(router).values() if isinstance(v, dict) and v]
        assert not kept, "it keeps something and cannot be told when a program is over"
    views = [EngineView(i, True, i, 0, 100) for i in range(3)]
    for program in range(200):
        router.route(Call(program, program, "", 0, 5000, prompt=((program, 5000),)), views, 0.0)
        if hasattr(router, "end"):
            router.end(program)
    pins = [v for v in vars(router).values() if type(v).__name__ == "Pins"]
    assert [len(p) for p in pins] == [0] * len(pins)


# The metamorphic contract: programs whose futures differ from a moment on, served by the same system


REVEAL = 4
"""Programs are equal up to their call of this number, whose reply is longer in the other future."""


def agent(number, longer):
    """A program that forks; in the other future the fourth call of every second thread goes on longer."""

    async def thread(s, which, calls):
        for i in range(calls):
            more = 60 if longer and i == REVEAL - 1 and (number + which) % 2 else 0
            await s.call(40 + 30 * ((number + i) % 3), output=4 + (5 * number + 3 * i + which) % 11 + more)
            await s.tool("t", 0.05 * ((number + i + which) % 4))

    async def start(s):
        s.add((7, 96))
        await s.call(20 + number, output=5)
        await s.join(thread(s.fork(), 1, REVEAL), thread(s.fork(), 2, 2 + number % 4))
        await thread(s, 3, 2)

    return start


def two_futures(scheduler, router):
    def run(longer):
        return serve(
            [agent(number, longer) for number in range(14)],
            scheduler,
            router=router,
            engines=2,
            engine=ReferenceEngine,
            times=[0.04 * number for number in range(14)],
            config=EngineConfig(kv_blocks=110, max_num_seqs=3, max_num_batched_tokens=128),
            latency=LinearLatency(),
            knobs=NARROW.get(scheduler, {}) | SHORT.get(router, {}),
        )

    return run(False), run(True)


_QUEUES = {"scheduler.bounds": (4.0, 12.0, 30.0), "scheduler.beta": 2.0}
NARROW = dict.fromkeys(("mlfq", "mlfq-skipjoin", "plas", "atlas", "atlas-dag", "atlas-cp"), _QUEUES)
NARROW["round-robin"] = {"scheduler.quantum": 15.0}
SHORT = {"autellix": {"router.most_short": 200}}
SYSTEMS = [*((name, "least-used") for name in BLIND), *(("fcfs", name) for name in router_names())]


def assert_the_past_is_the_same(one, two):
    """Equal decisions and routes before the first call that ends otherwise; something differs after."""
    ends = {(r.call.program, r.call.thread, r.call.index): (r.t_end, r.output_tokens) for r in two.log.calls}
    revealed = min(
        row.t_end
        for row in one.log.calls
        if ends[row.call.program, row.call.thread, row.call.index] != (row.t_end, row.output_tokens)
    )
    before = [[d for d in run.log.decided if d.time < revealed] for run in (one, two)]
    same = before[0] == before[1]  # a comparison of long lists is not for pytest to explain
    assert same, "decisions differ before the futures do"
    assert len(before[0]) > 60, "the case tells little"
    routed = [[r for r in run.routes if r[0] < revealed] for run in (one, two)]
    same = routed[0] == routed[1]
    assert same, "routes differ before the futures do"
    assert len(routed[0]) > 20, "the case tells little"


@pytest.mark.parametrize(("scheduler", "router"), SYSTEMS, ids="/".join)
def test_an_unrevealed_future_changes_no_past_decision(scheduler, router):
    assert_the_past_is_the_same(*two_futures(scheduler, router))


@pytest.mark.parametrize("scheduler", CLAIRVOYANT)
def test_the_contract_catches_who_knows_the_future(scheduler):
    with pytest.raises(AssertionError, match="differ before the futures do"):
        assert_the_past_is_the_same(*two_futures(scheduler, "least-used"))


@pytest.mark.parametrize("name", router_names())
def test_router_raises_when_nobody_lives(name):
    router = build_router(load_system("vllm-opt", router=name))
    with pytest.raises(LookupError):
        router.route(Call(0, 0, "", 0, 1, prompt=((1, 1),)), [EngineView(0, False, 0, 0, 1)], 0.0)


@pytest.mark.parametrize("name", system_names())
def test_every_catalog_file_builds(name):
    spec = load_system(name)
    assert spec.description
    assert spec.source
    build_scheduler(spec, build_table(spec))
    front = build_front(spec)
    if front is None or front.counterpart() is not None:
        build_router(spec)
    else:
        with pytest.raises(CatalogError, match=f"system {name}: its front {front.name} routes as no router"):
            build_router(spec)
