"""Policies whose whole point is an order: turns, programs, prefill lengths, cached prefixes, oracles."""

import random

import pytest

from systems.schedulers.cache_order import CacheOrder
from systems.schedulers.dfs_weight import DfsWeight
from systems.schedulers.fcfs import Fcfs
from systems.schedulers.job_fcfs import JobFcfs
from systems.schedulers.lpm import Lpm
from systems.schedulers.mlfq import Mlfq
from systems.schedulers.mlfq_skipjoin import MlfqSkipJoin
from systems.schedulers.round_robin import RoundRobin
from systems.schedulers.srpt import Srpt
from tests.driven import chain, serve
from vocabulary import INF, Call, Slot, Snapshot, Usage

NONE = Snapshot()
USED = Usage(1.0, 1.0, 0.0)


def call(seq, program=0, tokens=100, **more):
    return Call(seq, program, "", 0, tokens, **more)


def test_round_robin_goes_to_the_tail_with_a_new_quantum():
    scheduler = RoundRobin(quantum=5)
    first, second = call(0), call(1)
    assert scheduler.arrive(first, NONE, 0.0) == Slot(0, 1.0, 5.0)
    assert scheduler.arrive(second, NONE, 0.0) == Slot(0, 2.0, 5.0)
    assert scheduler.expire(first, 5.0, 1.0) == Slot(0, 3.0, 5.0)


def test_round_robin_in_turns_of_two_steps():
    """Three calls of 6 tokens, one place: each is preempted after 2 steps, prefill included."""
    programs = [chain((16, 6))] * 3
    got = serve(programs, "round-robin", knobs={"scheduler.quantum": 2}, times=[0.0] * 3, config=one_place())
    turns = [step.batch[0][0] for step in got.steps[0]]
    assert turns[:6] == [1, 1, 2, 2, 3, 3]
    assert turns[6:8] == [1, 1]


@pytest.mark.parametrize("knobs", [{"quantum": INF}, {"quantum": 1e9}])
def test_round_robin_with_an_endless_quantum_is_fcfs(knobs):
    rng = random.Random(2)
    programs = [chain(*((rng.randint(5, 40), rng.randint(1, 20)) for _ in range(3))) for _ in range(8)]
    fcfs = serve(programs, "fcfs").steps
    named = {f"scheduler.{knob}": value for knob, value in knobs.items()}
    assert serve(programs, "round-robin", knobs=named).steps == fcfs
    assert serve(programs, "round-robin", knobs={"scheduler.quantum": 3}).steps != fcfs


def one_place():
    from vocabulary import EngineConfig

    return EngineConfig(kv_blocks=100, max_num_seqs=1, record_steps=True)


@pytest.mark.parametrize(
    ("cls", "knobs", "message"),
    [
        (RoundRobin, {"quantum": 0}, "quantum must be greater than 0"),
        (RoundRobin, {"unit": "x"}, "unit must be one of step, s, token; got 'x'"),
        (MlfqSkipJoin, {"prefill_rate": 0}, "prefill_rate must be greater than 0"),
        (MlfqSkipJoin, {"unit": "x"}, "unit must be one of step, s, token; got 'x'"),
        (Srpt, {"by": "thread"}, "by must be one of program, call; got 'thread'"),
        (Lpm, {"most_waiting": -1}, "most_waiting must be at least 0"),
        (JobFcfs, {"kept_first": 1}, "kept_first must be true or false, got 1"),
    ],
)
def test_bad_knobs_are_named(cls, knobs, message):
    with pytest.raises(ValueError, match=message):
        cls(**knobs)


def test_job_fcfs_keeps_the_programs_place():
    scheduler = JobFcfs()
    slots = [
        scheduler.arrive(call(seq, program), NONE, now)
        for seq, (program, now) in enumerate([(5, 1.0), (3, 2.0), (5, 9.0)])
    ]
    assert slots == [Slot(0, 1.0, INF), Slot(0, 2.0, INF), Slot(0, 1.0, INF)]


def test_job_fcfs_can_serve_kept_programs_first_in_their_order():
    """Within one level: nobody who runs is displaced. Keys stay exact on the time grid."""
    late = 2.0**21 - 2.0**-30
    arrivals = [(1, 0.0, 0), (2, 2.0**-30, 160), (3, late, 160), (4, 0.5, 0)]
    for kept_first, order in ((True, [2, 3, 1, 4]), (False, [1, 2, 4, 3])):
        scheduler, slots = JobFcfs(kept_first=kept_first), {}
        for seq, (program, now, kept) in enumerate(arrivals):
            scheduler.table.start(program, now)
            slots[program] = scheduler.arrive(Call(seq, program, "", 0, 320, kept=kept), NONE, now)
        assert sorted(slots, key=lambda program: slots[program].key) == order
        assert {slot.level for slot in slots.values()} == {0}
        assert len({slot.key for slot in slots.values()}) == 4


@pytest.mark.parametrize(
    ("unit", "tokens", "level"),
    [
        ("step", 1, 0),
        ("step", 2048, 0),
        ("step", 2049, 1),
        ("step", 4096, 1),
        ("step", 100_000, 6),
        ("step", 10**9, 11),
        ("s", 512, 0),
        ("s", 513, 1),
        ("token", 2048, 0),
        ("token", 8192, 2),
    ],
)
def test_skip_join_enters_the_first_queue_that_covers_the_prefill(unit, tokens, level):
    scheduler = MlfqSkipJoin(unit=unit)
    slot = scheduler.arrive(call(0, tokens=tokens), NONE, 0.0)
    assert slot.level == level
    assert slot.quantum * scheduler.prefill_rate >= tokens
    assert level == 0 or scheduler.quanta[level - 1] * scheduler.prefill_rate < tokens


def test_skip_join_quanta_double_and_demotion_goes_on_from_there():
    scheduler = MlfqSkipJoin()
    assert scheduler.quanta == (*(float(2**i) for i in range(11)), INF)
    c = call(0, tokens=3000)
    assert scheduler.arrive(c, NONE, 0.0).level == 1
    assert scheduler.expire(c, 2.0, 1.0) == Slot(2, 2.0, 4.0)
    assert Mlfq(bounds=scheduler.bounds).arrive(call(1, tokens=3000), NONE, 0.0).level == 0


def test_a_call_that_skipped_may_starve():
    scheduler = MlfqSkipJoin(beta=2)
    c = call(0, tokens=3000)
    scheduler.arrive(c, NONE, 0.0)
    scheduler.start(c, 1.0)
    scheduler.stop(c, Usage(1.0, 1.0, 1.0), 2.0)
    assert scheduler.next_due() == 3.0
    assert scheduler.due(3.0)[0][1].level == 0


def test_srpt_by_call():
    short, long = call(0, remaining=900.0, output=10.0), call(1, remaining=20.0, output=20.0)
    by_call, by_program = Srpt(by="call"), Srpt()
    assert by_call.arrive(short, NONE, 0.0) < by_call.arrive(long, NONE, 0.0)
    assert by_program.arrive(short, NONE, 0.0) > by_program.arrive(long, NONE, 0.0)
    with pytest.raises(ValueError, match="srpt needs the output length, but call 5 does not carry it"):
        Srpt(by="call").arrive(call(5, remaining=3.0), NONE, 0.0)


# Orders by what is cached


class Cache:
    """Cached prefixes by call."""

    def __init__(self, **prefixes):
        self.prefixes = {int(name[1:]): prefix for name, prefix in prefixes.items()}

    def prefix(self, call):
        return self.prefixes.get(call.seq, ())


def waiting(cls, cache, count, **knobs):
    scheduler = cls(**knobs)
    scheduler.attach(cache)
    calls = [call(seq) for seq in range(count)]
    assert [scheduler.arrive(c, NONE, 0.0) for c in calls] == [Slot(0, 0.0, INF)] * count
    return scheduler, calls


def order(scheduler, calls, now=1.0):
    """The calls in the host's order after ``due``."""
    slots = {c.seq: Slot(0, scheduler._keys[c.seq]) for c in calls}
    for c, slot in scheduler.due(now):
        assert slot != slots[c.seq], "only calls that move are answered"
        slots[c.seq] = slot
    return sorted(slots, key=lambda seq: (slots[seq].key, seq))


def test_lpm_puts_the_longest_cached_prefix_first():
    cache = Cache(c1=[(7, 32)], c2=[(7, 64), (8, 16)], c3=[(9, 32)])
    scheduler, calls = waiting(Lpm, cache, 4)
    assert scheduler.next_due() == 0.0
    assert [(c.seq, slot.key) for c, slot in scheduler.due(1.0)] == [(1, -32.0), (2, -80.0), (3, -32.0)]
    assert order(scheduler, calls) == [2, 1, 3, 0]
    assert scheduler.due(1.0) == []
    cache.prefixes = {0: [(5, 160)]}
    assert {c.seq: slot.key for c, slot in scheduler.due(2.0)} == {0: -160.0, 1: 0.0, 2: 0.0, 3: 0.0}


@pytest.mark.parametrize("cls", [Lpm, DfsWeight])
def test_above_so_many_waiting_calls_it_is_fcfs(cls):
    cache = Cache(c2=[(7, 64)], c1=[(7, 32)])
    scheduler, calls = waiting(cls, cache, 3, most_waiting=2)
    assert order(scheduler, calls) == [0, 1, 2]
    scheduler.start(calls[0], 1.0)
    assert order(scheduler, calls[1:])[0] in (1, 2)
    assert scheduler._keys[2] != scheduler._keys[1], "with two waiting the cache decides"
    scheduler.stop(calls[0], USED, 2.0)
    assert order(scheduler, calls) == [0, 1, 2]


def test_dfs_weight_takes_the_heavier_branch_first_and_leaves_before_their_stem():
    r"""
    root: 5; stem (1, 64): 4; its branch a (2, 32): 0, 1, 3; branch b: (3, 32): 2; another root child: 6
    """
    stem = (1, 64)
    cache = Cache(
        c0=[stem, (2, 16)],
        c1=[stem, (2, 32)],
        c2=[stem, (3, 32)],
        c3=[stem, (2, 32)],
        c4=[stem],
        c6=[(9, 160)],
    )
    scheduler, calls = waiting(DfsWeight, cache, 7)
    assert order(scheduler, calls) == [1, 3, 0, 2, 4, 6, 5]


def test_dfs_weight_breaks_ties_by_arrival():
    cache = Cache(c0=[(9, 16)], c1=[(1, 160)], c2=[(5, 32)])
    scheduler, calls = waiting(DfsWeight, cache, 4)
    assert order(scheduler, calls) == [0, 1, 2, 3]


def test_dfs_weight_walks_very_deep_trees():
    prefix = [(i, 16) for i in range(5000)]
    scheduler, calls = waiting(DfsWeight, Cache(c0=prefix, c1=prefix[:-1]), 2)
    assert order(scheduler, calls) == [0, 1]


@pytest.mark.parametrize("cls", [Lpm, DfsWeight])
def test_without_a_cache_there_is_an_error_and_no_order(cls):
    scheduler = cls()
    scheduler.arrive(call(0), NONE, 0.0)
    with pytest.raises(ValueError, match="reads the prefix cache, but its engine attached none"):
        scheduler.due(0.0)


@pytest.mark.parametrize("cls", [Lpm, DfsWeight])
def test_with_nothing_cached_it_is_fcfs(cls):
    scheduler, calls = waiting(cls, Cache(), 5)
    assert order(scheduler, calls) == list(range(5))
    fcfs = Fcfs()
    assert [fcfs.arrive(c, NONE, 0.0) for c in calls] == [Slot(0, 0.0, INF)] * 5


@pytest.mark.parametrize("cls", [Lpm, DfsWeight])
def test_running_and_finished_calls_have_no_order(cls):
    scheduler, calls = waiting(cls, Cache(c1=[(1, 32)]), 2)
    assert issubclass(cls, CacheOrder)
    for c in calls:
        scheduler.start(c, 1.0)
    assert scheduler.next_due() == INF
    assert scheduler.due(1.0) == []
    for c in calls:
        scheduler.finish(c, USED, 2.0)
    assert scheduler._keys == {}
