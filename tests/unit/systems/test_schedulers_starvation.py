"""Anti-starvation: due times, promotion, and a polled version to compare with."""

import random

import pytest

from systems.process_table import ProcessTable
from systems.schedulers.atlas import Atlas
from systems.schedulers.mlfq import Mlfq
from systems.schedulers.plas import Plas
from vocabulary import INF, Call, Slot, Snapshot, Usage

NONE = Snapshot()
OLD = Snapshot(service=20.0, wait=3.0, exec_s=2.0)


def call(seq, program=0):
    return Call(seq, program, "", 0, 100)


def plas(**knobs):
    return Plas(**{"bounds": (10, 100), "beta": 4.0, **knobs})


def test_due_time_is_exact():
    scheduler = plas()
    c = call(0)
    assert scheduler.arrive(c, OLD, 100.0) == Slot(1, 1.0, 90.0)
    assert scheduler.next_due() == 105.0  # (3 + w) / 2 >= 4 from w = 5
    assert scheduler.due(104.999) == []
    assert scheduler.due(105.0) == [(c, Slot(0, 2.0, 10.0))]
    assert scheduler.next_due() == INF
    assert scheduler.promotions == 1


def test_a_program_that_starved_already_is_due_at_once():
    scheduler = plas()
    c = call(0)
    scheduler.arrive(c, Snapshot(20.0, 100.0, 2.0), 7.0)
    assert scheduler.next_due() <= 7.0
    assert [moved.seq for moved, _ in scheduler.due(7.0)] == [0]


@pytest.mark.parametrize("cls", [Mlfq, Plas, Atlas])
def test_the_first_queue_is_left_alone(cls):
    scheduler = cls(bounds=(10, 100), beta=4.0)
    scheduler.arrive(call(0), Snapshot(5.0, 1e6, 1.0), 0.0)
    assert scheduler.next_due() == INF


def test_no_execution_no_ratio():
    scheduler = plas()
    scheduler.arrive(call(0), Snapshot(20.0, 50.0, 0.0), 0.0)
    assert scheduler.next_due() == INF
    sibling = call(1)
    scheduler.arrive(sibling, NONE, 0.0)
    scheduler.finish(sibling, Usage(1.0, 20.0, 0.0), 20.0)
    assert scheduler.next_due() == 30.0  # (50 + w) / 20 >= 4


def test_running_stops_the_clock_and_preemption_counts_execution():
    scheduler = plas()
    c = call(0)
    scheduler.arrive(c, OLD, 0.0)
    scheduler.start(c, 2.0)
    assert scheduler.next_due() == INF
    scheduler.stop(c, Usage(10.0, 1.0, 2.0), 3.0)
    assert scheduler.next_due() == 3.0 + 7.0  # (3 + 2 + w) / (2 + 1) >= 4


def test_mlfq_first_call_starves_by_its_own_execution():
    scheduler = Mlfq(bounds=(10,), beta=4.0)
    c = call(0)
    scheduler.arrive(c, NONE, 0.0)
    scheduler.start(c, 1.0)
    scheduler.expire(c, 10.0, 3.0)
    scheduler.stop(c, Usage(10.0, 2.0, 1.0), 3.0)
    assert scheduler.next_due() == 10.0  # (1 + w) / 2 >= 4
    assert scheduler.due(10.0) == [(c, Slot(0, 3.0, 10.0))]


def test_a_siblings_completion_moves_due_times_both_ways():
    scheduler = plas()
    waiting, short, long = call(0), call(1), call(2)
    for c in (waiting, short, long):
        scheduler.arrive(c, OLD, 0.0)
    for c in (short, long):
        scheduler.start(c, 0.0)
    assert scheduler.next_due() == 5.0
    scheduler.finish(long, Usage(10.0, 2.0, 0.0), 2.0)
    assert scheduler.next_due() == 13.0
    scheduler.finish(short, Usage(1.0, 0.5, 8.0), 3.0)
    assert scheduler.next_due() == 7.0


def test_engines_that_share_a_table_hear_of_each_other():
    table = ProcessTable("sum")
    here, there = plas(table=table), plas(table=table)
    waiting, elsewhere = call(0), call(1)
    here.arrive(waiting, OLD, 0.0)
    there.arrive(elsewhere, OLD, 0.0)
    there.start(elsewhere, 0.0)
    there.finish(elsewhere, Usage(1.0, 1.0, 0.0), 1.0)
    assert here.next_due() == 9.0


def test_promotion_resets_only_the_calls_counters():
    scheduler = plas(max_promotions=9)
    c, sibling = call(0), call(1)
    scheduler.arrive(c, OLD, 0.0)
    before = scheduler.table.snapshot(0)
    scheduler.due(5.0)
    assert scheduler.table.snapshot(0) == before
    scheduler.start(c, 5.0)
    scheduler.expire(c, 10.0, 6.0)
    scheduler.stop(c, Usage(10.0, 1.0, 5.0), 6.0)
    assert scheduler.next_due() == 6.0 + 9.0  # (3 + w) / (2 + 1) >= 4: its 5 s of wait are gone
    scheduler.arrive(sibling, NONE, 6.0)
    assert scheduler.next_due() == 6.0 + 5.0  # and the program's 3 are not
    scheduler.start(c, 7.0)
    scheduler.finish(c, Usage(30.0, 3.0, 6.0), 9.0)
    assert scheduler.table.snapshot(0) == Snapshot(50.0, 9.0, 5.0)  # all of it is charged


def test_siblings_are_promoted_together_in_queue_order():
    scheduler = plas()
    calls = [call(i) for i in range(3)]
    for c in calls:
        scheduler.arrive(c, OLD, 0.0)
    assert [c.seq for c, _ in scheduler.due(5.0)] == [0, 1, 2]
    other, late = call(3, 1), call(4, 2)
    scheduler.arrive(other, Snapshot(200.0, 3.0, 2.0), 10.0)
    scheduler.arrive(late, OLD, 11.0)
    assert [(c.seq, slot.key) for c, slot in scheduler.due(99.0)] == [(4, 9.0), (3, 10.0)]


@pytest.mark.parametrize(("limit", "times"), [(0, 0), (1, 1), (3, 3), (INF, 6)])
def test_a_call_is_promoted_at_most_so_often(limit, times):
    scheduler = plas(max_promotions=limit)
    c, now, moved = call(0), 0.0, 0
    scheduler.arrive(c, OLD, now)
    assert scheduler.tracks_wait == (limit > 0)
    for turn in range(6):
        now += 1000.0
        moved += len(scheduler.due(now))
        scheduler.start(c, now)
        scheduler.expire(c, 10.0 * (turn + 1), now)
        scheduler.stop(c, Usage(10.0 * (turn + 1), 1.0 + turn, now), now)
    assert moved == times


def test_reset_of_nothing_and_of_the_program():
    keep, forgive = plas(promote_reset="none", max_promotions=2), plas(promote_reset="program")
    for scheduler, wait in ((keep, 3.0), (forgive, 0.0)):
        scheduler.arrive(call(0), OLD, 0.0)
        scheduler.due(5.0)
        assert scheduler.table.snapshot(0).wait == wait
        assert scheduler.table.snapshot(0).service == 20.0
    keep.start(call(0), 5.0)
    keep.expire(call(0), 10.0, 6.0)
    keep.stop(call(0), Usage(10.0, 1.0, 5.0), 6.0)
    assert keep.next_due() == 10.0  # (3 + 5 + w) / (2 + 1) >= 4


def test_without_refill_the_rest_of_the_quantum_counts():
    scheduler = plas(promote_refill=False)
    c = call(0)
    assert scheduler.arrive(c, OLD, 0.0).quantum == 90.0
    scheduler.start(c, 0.0)
    scheduler.stop(c, Usage(25.0, 1.0, 0.0), 1.0)
    assert scheduler.due(100.0) == [(c, Slot(0, 2.0, 65.0))]


def test_who_left_is_not_due():
    scheduler = plas()
    for seq in range(2):
        scheduler.arrive(call(seq, seq), OLD, 0.0)
    scheduler.abort(call(0), Usage(0.0, 0.0, 1.0), 1.0)
    scheduler.finish(call(1), Usage(1.0, 1.0, 0.0), 1.0)
    scheduler.end(0, 1.0)
    assert scheduler.next_due() == INF
    assert scheduler.due(1e6) == []


class Polled:
    """Algorithm 1's test of every waiting call, written down directly."""

    def __init__(self, beta):
        self.beta = beta
        self.calls = {}  # seq: [call, level, waiting, since, exec, wait, promoted]

    def due(self, table, now):
        moved = []
        for c, level, waiting, since, exec_s, wait_s, promoted in self.calls.values():
            row = table.snapshot(c.program)
            wait, run = row.wait + wait_s + now - since, row.exec_s + exec_s
            if waiting and level and not promoted and run and wait >= self.beta * run:
                moved.append(c.seq)
        return sorted(moved)


@pytest.mark.parametrize("cls", [Mlfq, Plas, Atlas])
@pytest.mark.parametrize("seed", range(8))
def test_due_equals_polling(cls, seed):
    rng = random.Random(seed)
    scheduler, polled, now, seq = cls(bounds=(4, 16), beta=2.0), Polled(2.0), 0.0, 0
    for _ in range(1500):
        now += rng.choice((0.0, 0.5, 1.0, 8.0))
        expected = polled.due(scheduler.table, now)
        assert (scheduler.next_due() <= now) == bool(expected)
        moved = scheduler.due(now)
        assert sorted(c.seq for c, _ in moved) == expected
        for c, slot in moved:
            polled.calls[c.seq][1], polled.calls[c.seq][6] = slot.level, True
        if rng.random() < 0.3 or not polled.calls:
            c = call(seq, rng.randrange(4))
            slot = scheduler.arrive(c, NONE, now)
            polled.calls[seq] = [c, slot.level, True, now, 0.0, 0.0, False]
            seq += 1
            continue
        entry = polled.calls[rng.choice(list(polled.calls))]
        _step(scheduler, polled, entry, now, rng)


def _step(scheduler, polled, entry, now, rng):
    c, _, waiting, since, *_ = entry
    if waiting:
        entry[5] += now - since
    else:
        entry[4] += now - since
    entry[3] = now
    usage = Usage(entry[4] * 2.0, entry[4], entry[5])
    if rng.random() < 0.2:
        scheduler.finish(c, usage, now)
        del polled.calls[c.seq]
    elif waiting:
        scheduler.start(c, now)
        entry[2] = False
    else:
        if rng.random() < 0.5:
            entry[1] = scheduler.expire(c, usage.served, now).level
        scheduler.stop(c, usage, now)
        entry[2] = True
