"""ATLAS with the program's graph: equal to ATLAS and PLAS on chains, the critical path on forks."""

import random

import pytest

from systems.catalog import build_scheduler, build_table, load_system
from systems.engines.reference import ReferenceEngine
from systems.engines.sim import SimEngine
from systems.process_table import ProcessTable
from systems.schedulers.atlas import Atlas
from systems.schedulers.atlas_cp import AtlasCp
from systems.schedulers.atlas_dag import AtlasDag
from tests.driven import chain, forked, serve
from vocabulary import INF, Call, Slot, Snapshot, Usage

NONE = Snapshot()
QUEUES = {"scheduler.bounds": (4.0, 12.0, 22.0), "scheduler.beta": INF}
ENGINES = pytest.mark.parametrize("engine", [ReferenceEngine, SimEngine], ids=["reference", "sim"])


def call(seq, thread="", index=0, parents=(), program=0):
    return Call(seq, program, thread, index, 100, parents=parents)


def finish(scheduler, c, served, now=0.0):
    scheduler.finish(c, Usage(float(served), float(served), 0.0), now)


def chains(seed, programs=9):
    rng = random.Random(seed)
    return [
        chain(*((rng.randint(5, 60), rng.randint(1, 12)) for _ in range(rng.randint(1, 5))))
        for _ in range(programs)
    ]


@ENGINES
@pytest.mark.parametrize("seed", range(4))
def test_on_chains_the_graph_tells_nothing_new(engine, seed):
    """atlas-dag == atlas == plas == atlas-cp in whole schedules."""
    schedules = [
        serve(chains(seed), name, knobs=QUEUES, engine=engine).steps
        for name in ("plas", "atlas", "atlas-dag", "atlas-cp")
    ]
    assert schedules[1:] == schedules[:1] * 3
    assert schedules[0] != serve(chains(seed), "fcfs", engine=engine).steps, "the case tells nothing"


LIMITS = {
    "beta 0": {"beta": 0.0},
    "K 1": {"bounds": (), "quanta": (INF,)},
    "first queue never ends": {"bounds": (INF,), "quanta": (INF, INF)},
}


@ENGINES
@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("name", ["atlas-dag", "atlas-cp", "mlfq-skipjoin"])
def test_limits_are_fcfs_in_whole_schedules(engine, name, limit):
    programs = [*chains(3, 6), forked((20, 6), [(5, 9)], [(6, 8), (5, 3)], last=(5, 4))]
    knobs = {f"scheduler.{knob}": value for knob, value in LIMITS[limit].items()}
    fcfs = serve(programs, "fcfs", engine=engine).steps
    assert serve(programs, name, knobs=knobs, engine=engine).steps == fcfs
    assert serve(programs, name, knobs=QUEUES, engine=engine).steps != fcfs, "the case tells nothing"


def test_the_path_is_the_longest_over_all_parents():
    """Equation 2 on a diamond with a tail: 10, then 3 and 8, the join starts at 18."""
    scheduler = AtlasDag(bounds=(5, 15, 17, 19))
    root, short, long = call(0), call(1, "0", 0, (("", 0),)), call(2, "1", 0, (("", 0),))
    assert scheduler.arrive(root, NONE, 0.0).level == 0
    finish(scheduler, root, 10)
    assert [scheduler.arrive(c, NONE, 0.0).level for c in (short, long)] == [1, 1]
    finish(scheduler, long, 8)
    finish(scheduler, short, 3)
    assert scheduler.arrive(call(3, "", 1, (("0", 0), ("1", 0))), NONE, 0.0).level == 3
    assert scheduler.arrive(call(4, "0", 1, (("0", 0),)), NONE, 0.0).level == 1
    assert scheduler.table.row(0).service == 18.0


def test_a_short_branch_does_not_inherit_the_long_one():
    """What tells it from atlas: the second call of a short branch, after the long one ended."""
    levels = {}
    for cls in (Atlas, AtlasDag):
        scheduler = cls(bounds=(20, 60))
        long, short = call(0, "0"), call(1, "1")
        for c in (long, short):
            scheduler.arrive(c, NONE, 0.0)
        finish(scheduler, long, 100)
        finish(scheduler, short, 5)
        levels[cls] = scheduler.arrive(call(2, "1", 1, (("1", 0),)), NONE, 0.0).level
    assert levels == {Atlas: 2, AtlasDag: 0}


@ENGINES
def test_a_fork_through_the_driver(engine):
    """Branches of 1 and 4 calls: atlas-dag keeps the short branch's call apart, and joins at the longest."""
    program = forked((20, 5), [(5, 30)], [(5, 2), (5, 2), (5, 2), (5, 2)], last=(5, 4))
    knobs = {"scheduler.bounds": (4.0, 8.0, 12.0, 16.0, 30.0), "scheduler.beta": INF}
    knobs["scheduler.quanta"] = (INF,) * 6
    got = serve([program], "atlas-dag", knobs=knobs, engine=engine)
    assert [got.level(0, "1", i) for i in range(4)] == [1, 1, 2, 2]  # 5, 7, 9, 11 steps
    assert got.level(0, "", 1) == 5  # 5 + 30
    late = forked((20, 5), [(5, 6)], [(5, 8), (5, 2)], last=(5, 4))
    assert serve([late], "atlas-dag", knobs=knobs, engine=engine).level(0, "1", 1) == 3  # 5 + 8
    assert serve([late], "atlas", knobs=knobs, engine=engine).level(0, "1", 1) == 3


def test_engines_that_share_a_table_agree_and_the_end_forgets():
    spec = load_system("atlas-dag", knobs={"scheduler.bounds": (5, 15)})
    table = build_table(spec)
    one, two = build_scheduler(spec, table), build_scheduler(spec, table)
    parent, child = call(0), call(1, "", 1, (("", 0),))
    one.arrive(parent, NONE, 0.0)
    finish(one, parent, 10)
    assert two.arrive(child, table.snapshot(0), 1.0).level == 1
    two.abort(child, Usage(2.0, 2.0, 0.0), 2.0)
    assert table.row(0).paths == {("", 0): 10.0, ("", 1): 12.0}
    for scheduler in (one, two):
        scheduler.end(0, 3.0)
    assert len(table) == 0


def test_a_parent_that_ran_elsewhere_counts_as_the_longest_path():
    scheduler = AtlasDag(bounds=(5, 15))
    slot = scheduler.arrive(call(7, "", 3, (("", 2),)), Snapshot(10.0, 0.0, 1.0), 0.0)
    assert slot.level == 1


def test_a_waiting_program_puts_its_longest_path_first():
    """Places 1, 3 and 4 are the program's; another program's place 2 stays between them."""
    scheduler = AtlasCp(bounds=(50,))
    root = call(0)
    scheduler.arrive(root, NONE, 0.0)
    finish(scheduler, root, 3)
    left = call(1, "0", 0, (("", 0),))
    scheduler.arrive(left, NONE, 0.0)
    finish(scheduler, left, 9)
    short = call(2, "1", 0, (("", 0),))
    other = call(3, program=1)
    middle = call(4, "2", 0, (("", 0),))
    long = call(5, "0", 1, (("0", 0),))
    slots = {c: scheduler.arrive(c, NONE, 1.0) for c in (short, other, middle, long)}
    assert [slots[c].key for c in (short, other, middle, long)] == [3.0, 4.0, 5.0, 6.0]
    assert scheduler.next_due() == 0.0
    moved = dict(scheduler.due(1.0))
    assert moved == {long: Slot(0, 3.0, 50.0), short: Slot(0, 5.0, 50.0), middle: Slot(0, 6.0, 50.0)}
    assert scheduler.next_due() == INF
    assert scheduler.due(1.0) == []


def test_a_moved_call_keeps_the_rest_of_its_quantum():
    scheduler = AtlasCp(bounds=(50,), table=ProcessTable("max"))
    first, second = call(0, "0"), call(1, "1", 0, (("x", 0),))
    scheduler.arrive(first, NONE, 0.0)
    scheduler.start(first, 0.0)
    scheduler.stop(first, Usage(20.0, 1.0, 0.0), 1.0)
    scheduler.arrive(second, Snapshot(7.0, 0.0, 1.0), 1.0)
    assert dict(scheduler.due(1.0)) == {second: Slot(0, 1.0, 50.0), first: Slot(0, 2.0, 30.0)}
    scheduler.start(first, 1.0)
    scheduler.stop(first, Usage(25.0, 2.0, 0.0), 2.0)
    assert scheduler.due(2.0) == []


def test_a_running_call_keeps_its_place():
    scheduler = AtlasCp(bounds=(50,))
    first, second = call(0, "0"), call(1, "1", 0, (("x", 0),))
    scheduler.arrive(first, NONE, 0.0)
    scheduler.start(first, 0.0)
    scheduler.arrive(second, Snapshot(7.0, 0.0, 1.0), 1.0)
    assert scheduler.next_due() == INF


def test_programs_are_to_each_other_as_under_atlas():
    """The places a program has in a queue are atlas's, whoever of its calls is in them."""
    rng = random.Random(4)
    knobs = {"bounds": (5.0, 20.0), "beta": INF}
    plain, critical = Atlas(**knobs), AtlasCp(**knobs)
    places = {plain: {}, critical: {}}
    for seq in range(60):
        program, parents = rng.randrange(4), ((str(rng.randrange(9)), 0),)
        c = call(seq, str(seq), 0, parents, program)
        snap = Snapshot(rng.choice([0.0, 7.0, 30.0]), 0.0, 0.0)
        for scheduler, held in places.items():
            held[c] = scheduler.arrive(c, snap, 0.0)
        places[critical].update(critical.due(0.0))

        def by_program(held):
            return sorted((slot.level, slot.key, c.program) for c, slot in held.items())

        assert by_program(places[plain]) == by_program(places[critical])
