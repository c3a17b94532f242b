"""Every policy found in the folders, held to the interface without any engine.

A new file in ``systems/schedulers`` or ``systems/routers`` is tested here
with no edit.
"""

import random

import pytest

from systems.catalog import (
    build_router,
    build_scheduler,
    build_table,
    load_system,
    router_names,
    scheduler_names,
    skipped,
    system_names,
)
from systems.protocols import Router, Scheduler
from vocabulary import INF, Call, EngineView, Slot, Usage


class Blindfolded(Call):
    """A call whose future must not be looked at."""

    @property
    def remaining(self):
        raise AssertionError("a policy that is not clairvoyant read Call.remaining")

    @remaining.setter
    def remaining(self, value):
        pass


def scheduler_of(name):
    spec = load_system("vllm-opt", scheduler=name)
    table = build_table(spec)
    return build_scheduler(spec, table), table


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
        c = self.call_type(self.seq, self.rng.randrange(6), "", 0, 100, remaining=self.future(self.seq))
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
                for c, slot in self.scheduler.due(self.now):
                    assert self.calls[c.seq][4] is None, "only waiting calls are promoted"
                    self.calls[c.seq][1] = slot
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
        c = Call(seq, seq, "", 0, 10, remaining=50.0)
        scheduler.arrive(c, table.snapshot(seq), float(seq))
        scheduler.finish(c, Usage(70.0, 1.0, 0.0), seq + 1.0)
        scheduler.end(seq, seq + 1.0)
    kept = [v for v in vars(scheduler).values() if isinstance(v, dict)]
    assert not any(kept)
    assert len(table) == 0


@pytest.mark.parametrize("name", router_names())
def test_router_sends_to_the_living_and_repeats_itself(name):
    def route():
        rng, router = random.Random(6), build_router(load_system("vllm-opt", router=name))
        assert isinstance(router, Router)
        assert router.name == name
        chosen = []
        for seq in range(200):
            views = [EngineView(i, rng.random() < 0.6, rng.randrange(9), 0, 100) for i in range(4)]
            if any(view.alive for view in views):
                chosen.append(router.route(Blindfolded(seq, 0, "", 0, 1), views, float(seq)))
                assert views[chosen[-1]].alive
        return chosen

    assert route() == route()


@pytest.mark.parametrize("name", router_names())
def test_router_raises_when_nobody_lives(name):
    router = build_router(load_system("vllm-opt", router=name))
    with pytest.raises(LookupError):
        router.route(Call(0, 0, "", 0, 1), [EngineView(0, False, 0, 0, 1)], 0.0)


@pytest.mark.parametrize("name", system_names())
def test_every_catalog_file_builds(name):
    spec = load_system(name)
    assert spec.description
    assert spec.source
    build_scheduler(spec, build_table(spec))
    build_router(spec)
