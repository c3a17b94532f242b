"""Queues, quanta, demotion, the limits, and PLAS against ATLAS."""

import random

import pytest

from systems.process_table import ProcessTable
from systems.schedulers.atlas import Atlas
from systems.schedulers.fcfs import Fcfs
from systems.schedulers.levels import DEFAULT_BOUNDS, Levels, widths
from systems.schedulers.mlfq import Mlfq
from systems.schedulers.plas import Plas
from systems.schedulers.srpt import Srpt
from vocabulary import INF, Call, Slot, Snapshot, Usage

NONE = Snapshot()
LEVELED = [Mlfq, Plas, Atlas]
BY_SERVICE = [Plas, Atlas]


def call(seq, program=0, remaining=None):
    return Call(seq, program, "", 0, 100, remaining=remaining)


def used(served, exec_s=0.0, wait_s=0.0):
    return Usage(float(served), exec_s, wait_s)


@pytest.mark.parametrize("cls", BY_SERVICE)
@pytest.mark.parametrize(
    ("service", "level"), [(0, 0), (9.5, 0), (10, 1), (39, 1), (40, 2), (100, 3), (1e9, 3)]
)
def test_queue_of_a_service(cls, service, level):
    scheduler = cls(bounds=(10, 40, 100))
    slot = scheduler.arrive(call(0), Snapshot(float(service), 0.0, 1.0), 0.0)
    assert slot == Slot(level, 1.0, (10.0, 30.0, 60.0, INF)[level])


def test_mlfq_enters_every_call_in_the_first_queue():
    scheduler = Mlfq(bounds=(10, 40))
    slot = scheduler.arrive(call(0), Snapshot(1e6, 0.0, 1.0), 0.0)
    assert slot == Slot(0, 1.0, 10.0)


@pytest.mark.parametrize("cls", LEVELED)
def test_expiry_demotes_to_the_tail_and_stops_at_the_last_queue(cls):
    scheduler = cls(bounds=(2, 3), quanta=(2, 1, 5))
    first, second = call(0, 0), call(1, 1)
    assert scheduler.arrive(first, NONE, 0.0) == Slot(0, 1.0, 2.0)
    assert scheduler.arrive(second, NONE, 0.0) == Slot(0, 2.0, 2.0)
    assert scheduler.expire(second, 2.0, 1.0) == Slot(1, 3.0, 1.0)
    assert scheduler.expire(first, 2.0, 1.0) == Slot(1, 4.0, 1.0)
    assert scheduler.expire(first, 3.0, 1.0) == Slot(2, 5.0, 5.0)
    assert scheduler.expire(first, 8.0, 1.0) == Slot(2, 6.0, 5.0)


def test_defaults_span_real_programs_and_quanta_are_the_widths():
    scheduler = Plas()
    assert scheduler.bounds == DEFAULT_BOUNDS["step"]
    assert scheduler.bounds[0] < 280 < scheduler.bounds[2]
    assert scheduler.bounds[-1] > 260_000
    assert scheduler.quanta == widths(scheduler.bounds)
    assert scheduler.quanta[:3] == (64.0, 192.0, 768.0)
    assert scheduler.quanta[-1] == INF
    assert Plas(unit="s").bounds == DEFAULT_BOUNDS["s"]


@pytest.mark.parametrize("seed", range(5))
def test_atlas_equals_plas_on_chains(seed):
    rng = random.Random(seed)
    plas, atlas = Plas(bounds=(8, 64)), Atlas(bounds=(8, 64))
    for seq in range(200):
        c, served = call(seq, rng.randrange(9)), rng.randrange(1, 20)
        assert plas.arrive(c, NONE, 0.0) == atlas.arrive(c, NONE, 0.0)
        for scheduler in (plas, atlas):
            scheduler.finish(c, used(served), 1.0)
        assert plas.table.snapshot(c.program) == atlas.table.snapshot(c.program)


def test_a_fork_of_two_is_one_share_for_atlas_and_two_for_plas():
    after = {}
    for cls in BY_SERVICE:
        scheduler = cls(bounds=(10, 40))
        root, left, right, joined = (call(i) for i in range(4))
        scheduler.arrive(root, NONE, 0.0)
        scheduler.finish(root, used(10), 1.0)
        slots = [scheduler.arrive(c, NONE, 1.0) for c in (left, right)]
        assert [slot.level for slot in slots] == [1, 1]
        for c in (left, right):
            scheduler.finish(c, used(20), 2.0)
        after[cls.name] = scheduler.arrive(joined, NONE, 2.0).level
        assert scheduler.table.snapshot(0).service == {"atlas": 30.0, "plas": 50.0}[cls.name]
    assert after == {"atlas": 1, "plas": 2}


def test_siblings_released_together_share_the_start():
    scheduler = Atlas(bounds=(10, 40))
    calls = [call(i) for i in range(3)]
    levels = {scheduler.arrive(c, Snapshot(12.0, 0.0, 1.0), 0.0).level for c in calls}
    assert levels == {1}
    scheduler.finish(calls[0], used(100), 1.0)
    scheduler.finish(calls[1], used(5), 2.0)
    assert scheduler.table.snapshot(0).service == 112.0


@pytest.mark.parametrize("cls", [Fcfs, Mlfq, Plas, Atlas])
def test_aborted_calls_are_charged(cls):
    scheduler = cls()
    c = call(0)
    scheduler.arrive(c, NONE, 0.0)
    scheduler.abort(c, used(7, 1.0, 2.0), 3.0)
    assert scheduler.table.snapshot(0) == Snapshot(7.0, 2.0, 1.0)


@pytest.mark.parametrize("cls", [Fcfs, Mlfq, Plas, Atlas])
def test_own_table_learns_from_the_snapshot_and_forgets_at_the_end(cls):
    scheduler = cls()
    c = call(0, 5)
    scheduler.arrive(c, Snapshot(30.0, 1.0, 1.0), 0.0)
    scheduler.finish(c, used(7), 3.0)
    assert scheduler.table.snapshot(5).service == 37.0
    scheduler.end(5, 4.0)
    assert len(scheduler.table) == 0


def test_engines_that_share_a_table_count_once():
    table = ProcessTable("sum")
    engines = [Plas(table=table), Plas(table=table)]
    for seq, scheduler in enumerate(engines):
        c = call(seq)
        scheduler.arrive(c, table.snapshot(0), 0.0)
        scheduler.finish(c, used(10), 1.0)
    assert table.snapshot(0).service == 20.0


LIMITS = [
    (cls, knobs)
    for cls in LEVELED
    for knobs in (
        {"beta": 0.0},
        {"bounds": ()},
        {"bounds": (), "quanta": (3,)},
        {"bounds": (INF,)},
        {"bounds": (INF, INF)},
    )
] + [(Mlfq, {"bounds": (4, 8), "quanta": (INF, 1, 1)})]


@pytest.mark.parametrize(("cls", "knobs"), LIMITS)
def test_limits_are_fcfs_in_every_slot(cls, knobs):
    scheduler, fcfs = cls(**knobs), Fcfs()
    assert not scheduler.tracks_wait
    assert scheduler.next_due() == INF
    rng = random.Random(3)
    for seq in range(50):
        c, snap = call(seq, seq % 4), Snapshot(rng.random() * 1e6, 1e6, 1.0)
        assert scheduler.arrive(c, snap, float(seq)) == fcfs.arrive(c, snap, float(seq))
        assert scheduler.expire(c, 9.0, float(seq)) == fcfs.expire(c, 9.0, float(seq))
        if seq % 3:
            scheduler.finish(c, used(9, 1.0, 1.0), float(seq))
    assert scheduler.due(1e9) == []


@pytest.mark.parametrize("cls", LEVELED)
def test_infinite_beta_is_the_plain_policy(cls):
    scheduler = cls(beta=INF)
    assert not scheduler.tracks_wait
    scheduler.arrive(call(0), Snapshot(100.0, 1e9, 1.0), 0.0)
    assert scheduler.next_due() == INF


BAD = [
    ({"bounds": (10, 5)}, r"bounds must increase.*bounds\[1\] = 5"),
    ({"bounds": (5, 5)}, "bounds must increase"),
    ({"bounds": (0, 5)}, r"bounds\[0\] must be greater than 0"),
    ({"bounds": "64"}, "bounds must be a list"),
    ({"bounds": (1, "x")}, r"bounds\[1\] must be a number, got 'x'"),
    ({"bounds": (1, float("nan"))}, "must be a number"),
    ({"bounds": (1, 2), "quanta": (1, 2)}, "2 bounds make 3 queues, got 2 quanta"),
    ({"bounds": (1,), "quanta": (0, 2)}, r"quanta\[0\] must be greater than 0"),
    ({"beta": -1}, "beta must be at least 0, got -1"),
    ({"beta": "high"}, "beta must be a number"),
    ({"beta": True}, "beta must be a number"),
    ({"unit": "ms"}, "unit must be one of step, s, token; got 'ms'"),
    ({"promote_reset": "all"}, "promote_reset must be one of none, call, program"),
    ({"promote_refill": 1}, "promote_refill must be true or false"),
    ({"max_promotions": -1}, "max_promotions must be at least 0"),
]


@pytest.mark.parametrize(("knobs", "message"), BAD)
def test_bad_knobs_are_named(knobs, message):
    with pytest.raises(ValueError, match=message):
        Levels(**knobs)


def test_a_table_that_counts_otherwise_is_refused():
    with pytest.raises(ValueError, match="atlas needs a process table with rule 'max', got 'sum'"):
        Atlas(table=ProcessTable("sum"))
    assert Mlfq(table=ProcessTable("max")).rule == "sum"


def test_fcfs_is_one_slot():
    fcfs = Fcfs()
    assert [fcfs.arrive(call(i, i), NONE, 0.0) for i in range(3)] == [Slot(0, 0.0, INF)] * 3


@pytest.mark.parametrize(
    ("remaining", "level"), [(1, 0), (1.9, 0), (2, 1), (1023, 9), (1024, 10), (1e12, 30)]
)
def test_srpt_bins_remaining_work(remaining, level):
    assert Srpt().arrive(call(0, remaining=float(remaining)), NONE, 0.0) == Slot(level, remaining, INF)


def test_srpt_needs_to_be_told():
    with pytest.raises(ValueError, match="needs the remaining work of program 3"):
        Srpt().arrive(call(0, 3), NONE, 0.0)
    with pytest.raises(ValueError, match="ratio must be at least"):
        Srpt(ratio=1.0)
