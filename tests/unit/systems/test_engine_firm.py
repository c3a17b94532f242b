"""Firm retention by hand: who waits for what is kept, and who does not. 20 blocks, steps of a second."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from systems.engines.reference import ReferenceEngine
from systems.engines.sim import SimEngine
from systems.schedulers.fcfs import Fcfs
from tests.unit.systems.test_engine_keeping import CONFIG, World
from vocabulary import BLOCK, INF, Call, Finished, Slot, Snapshot


@pytest.fixture(params=[SimEngine, ReferenceEngine], ids=["sim", "reference"])
def make(request: pytest.FixtureRequest) -> Any:
    return request.param


class TwoLevels(Fcfs):
    """Programs from 50 on come before all others, running ones included."""

    def arrive(self, call: Call, snap: Snapshot, now: float) -> Slot:
        super().arrive(call, snap, now)
        return Slot(int(call.program < 50), now, INF)


def crowded(make: Any, kept_s: float = INF, *, firm: bool = True, output: int = 100, **more: Any) -> World:
    """At 1 s ten blocks are kept for program 1, and program 2 begins with eight; two are left until 6 s."""
    world = World(make, **more)
    world.engine.firm = firm
    world.ask(1, 10 * BLOCK)
    assert world.keep(1, kept_s) == 10
    world.start(2, 8 * BLOCK - 4, output=output)
    return world


def come(world: World, at: float, program: int, new: int, **more: Any) -> Call:
    """The program calls at that time; nothing is over before."""
    assert not world.run(until=at)
    return world.start(program, new, at=at, **more)


def rows(world: World) -> dict[int, Finished]:
    """The calls from now on, by program."""
    return {row.call.program: row for row in world.run()}


def test_a_newcomer_waits_until_the_time_of_what_is_kept_is_over(make: Any) -> None:
    """Program 2 decodes alone meanwhile, so that ``sim`` would jump."""
    for firm, since in ((False, 2.0), (True, 11.0)):
        world = crowded(make, 10.0, firm=firm)
        come(world, 1.5, 3, 5 * BLOCK)
        assert rows(world)[3].t_first_sched == since
        assert world.counts() == {"pinned": 1, "expired" if firm else "given_up": 1}


def test_it_does_not_wait_where_it_fits_beside_what_is_kept(make: Any) -> None:
    world = crowded(make)
    come(world, 1.5, 3, 2 * BLOCK)
    assert rows(world)[3].t_first_sched == 2.0


def test_what_it_shares_with_what_is_kept_counts_as_found(make: Any) -> None:
    for new, since in ((BLOCK, 2.0), (3 * BLOCK, 31.0)):
        world = World(make)
        world.engine.firm = True
        world.ask(1, 6 * BLOCK, shared=4 * BLOCK)
        world.keep(1, 30.0)
        world.start(2, 8 * BLOCK - 4, output=100)
        come(world, 1.5, 3, new, shared=4 * BLOCK)
        row = rows(world)[3]
        assert (row.t_first_sched, row.cached_tokens) == (since, 4 * BLOCK)


def test_a_call_whose_thread_is_kept_takes_what_is_kept_for_others_and_last_its_own(make: Any) -> None:
    """Five and five are kept, two are left; program 1, whose time would be up first, needs three more."""
    world = World(make)
    world.engine.firm = True
    for program, seconds in ((1, 50.0), (4, 90.0)):
        world.ask(program, 5 * BLOCK)
        world.keep(program, seconds)
    world.start(2, 8 * BLOCK - 4, output=100)
    come(world, 2.5, 1, 3 * BLOCK - 4)
    row = rows(world)[1]
    assert (row.t_first_sched, row.cached_tokens) == (3.0, 5 * BLOCK)
    assert world.counts() == {"pinned": 2, "given_up": 1, "hits": 1, "released": 1}


def test_where_nothing_runs_the_first_goes_and_only_the_first(make: Any) -> None:
    """Six and six are kept, eight left: ten take six of the kept, and eight more wait for their end."""
    for firm, since in ((False, 2.0), (True, 22.0)):
        world = World(make)
        world.engine.firm = firm
        for program in (1, 2):
            world.ask(program, 6 * BLOCK)
            world.keep(program)
        come(world, 2.0, 3, 10 * BLOCK - 4, output=20)
        come(world, 2.0, 4, 8 * BLOCK - 4)
        found = rows(world)
        assert (found[3].t_first_sched, found[4].t_first_sched) == (2.0, since)
        assert world.counts()["given_up"] == (1 if firm else 2)


def test_a_running_call_grows_into_what_is_kept_and_who_waits_is_looked_at_again(make: Any) -> None:
    """Program 2 takes a block more at 6, 22 and 38 s: the third is lacking, and frees ten."""
    world = crowded(make)
    come(world, 1.5, 3, 5 * BLOCK)
    found = rows(world)
    assert found[2].preemptions == 0
    assert found[3].t_first_sched == 38.0
    assert world.counts() == {"pinned": 1, "given_up": 1}


@pytest.mark.parametrize("what", ["release", "drop", "end_program"])
def test_who_waits_is_looked_at_again_when_the_host_gives_it_up(make: Any, what: str) -> None:
    world = crowded(make)
    come(world, 1.5, 3, 5 * BLOCK)
    world.run(until=7.0)
    getattr(world.engine, what)(1, 7.0)
    assert rows(world)[3].t_first_sched == 7.0


def test_what_a_call_took_over_is_no_longer_in_the_way(make: Any) -> None:
    """Program 1 is back at 5 s and done at 6 s; what it left then is not kept."""
    world = crowded(make)
    come(world, 4.5, 1, 1)
    come(world, 4.5, 3, 5 * BLOCK)
    found = rows(world)
    assert (found[1].t_first_sched, found[1].t_end, found[3].t_first_sched) == (5.0, 6.0, 6.0)


def test_who_is_back_at_its_deadline_keeps_its_place(make: Any) -> None:
    """Kept until 11 s, where a step ends: program 1 is back in that step, or exactly then."""
    for back in (10.25, 11.0):
        world = crowded(make, 10.0)
        come(world, back, 1, 1)
        come(world, 10.75 if back < 11.0 else 11.0, 3, 5 * BLOCK)
        found = rows(world)
        assert found[1].t_first_sched == 11.0
        assert found[3].t_first_sched > 11.0
        assert world.counts() == {"pinned": 1, "hits": 1, "released": 1}


def test_who_is_back_and_leaves_again_keeps_nothing_past_its_deadline(make: Any) -> None:
    """At 11 s it still waits for a place: one call runs at a time. Its client leaves at 12.5 s."""
    world = World(make, replace(CONFIG, max_num_seqs=1))
    world.engine.firm = True
    world.ask(1, 4 * BLOCK)
    world.keep(1, 10.0)
    world.start(2, BLOCK, output=30)
    call = come(world, 5.0, 1, 1)
    world.run(until=12.25)
    assert world.counts() == {"pinned": 1}
    world.engine.abort(call, 12.5)
    world.run(until=14.0)
    assert world.counts() == {"pinned": 1, "expired": 1}


class Promoting(Fcfs):
    """At 12.5 s the call of program 3 comes before all others."""

    tracks_wait = True

    def __init__(self) -> None:
        super().__init__()
        self.late: Call | None = None

    def arrive(self, call: Call, snap: Snapshot, now: float) -> Slot:
        super().arrive(call, snap, now)
        self.late = call if call.program == 3 else self.late
        return Slot(1, now, INF)

    def next_due(self) -> float:
        return INF if self.late is None else 12.5

    def due(self, now: float) -> list[tuple[Call, Slot]]:
        found, self.late = self.late, None
        return [] if found is None else [(found, Slot(1, -1.0, INF))]


@pytest.mark.parametrize(("every", "since"), [(1, 14.0), (4, 17.0)])
def test_a_newcomer_that_is_promoted_before_who_is_back_does_not_wait_for_it(
    make: Any, every: int, since: float
) -> None:
    """Program 1, kept until 11 s, is at the head from 4.5 s on and lacks room; then program 3 is.

    The next step is told of that, also where ``sim`` would jump: the other decodes alone.
    """
    world = World(make, replace(CONFIG, schedule_every=every), Promoting())
    world.engine.firm = True
    world.ask(1, 6 * BLOCK)
    assert world.keep(1, 10.0) == 6
    world.start(2, 8 * BLOCK - 4, output=40)
    come(world, 4.5, 1, 8 * BLOCK - 8)
    world.start(3, 9 * BLOCK, at=4.5)
    assert rows(world)[3].t_first_sched == since
    assert world.counts() == {"pinned": 1, "expired": 1}


def test_who_comes_behind_a_newcomer_waits_with_it(make: Any) -> None:
    """Until its own time is over as well; then it is a newcomer, and has too little room beside the other."""
    world = crowded(make, 10.0)
    come(world, 1.5, 3, 5 * BLOCK)
    come(world, 4.5, 1, 1)
    found = rows(world)
    assert (found[3].t_first_sched, found[1].t_first_sched) == (11.0, 12.0)
    assert world.counts() == {"pinned": 1, "expired": 1}


def test_a_newcomer_displaces_before_it_takes_what_is_kept(make: Any) -> None:
    """Program 50 outranks program 2, whose eight blocks are enough; without firm there is no need to."""
    for firm, displaced, counts in ((False, 0, {"pinned": 1, "given_up": 1}), (True, 1, {"pinned": 1})):
        world = crowded(make, firm=firm, output=4, scheduler=TwoLevels())
        come(world, 1.5, 50, 5 * BLOCK)
        found = rows(world)
        assert found[50].t_first_sched == 2.0
        assert found[2].preemptions == displaced
        assert world.counts() == counts


def test_what_is_promised_to_the_first_newcomer_is_not_there_for_the_second(make: Any) -> None:
    """Ten are kept, six in use, four left: the first of two that outrank those in use takes the four."""
    world = World(make, scheduler=TwoLevels())
    world.engine.firm = True
    world.ask(1, 10 * BLOCK)
    world.keep(1)
    for program, blocks in ((2, 4), (3, 2)):
        world.start(program, blocks * BLOCK - 4, output=4)
    come(world, 1.5, 50, 4 * BLOCK)
    come(world, 1.5, 51, 4 * BLOCK)
    found = rows(world)
    assert [found[program].t_first_sched for program in (50, 51)] == [2.0, 2.0]
    assert [found[program].preemptions for program in (2, 3)] == [1, 1]
    assert world.counts() == {"pinned": 1}


def test_between_passes_nobody_is_looked_at_and_no_pass_is_missed(make: Any) -> None:
    """Passes are at 1, 5, 9, .. s: what ends at 11, 7 or 38 s lets the newcomer in at the next of them."""
    config = replace(CONFIG, schedule_every=4)
    for kept_s, released, since in ((10.0, None, 13.0), (INF, 7.0, 9.0), (INF, None, 41.0)):
        world = crowded(make, kept_s, config=config)
        come(world, 1.5, 3, 5 * BLOCK)
        if released is not None:
            assert not world.run(until=released)
            world.engine.release(1, released)
        assert rows(world)[3].t_first_sched == since


def test_what_a_swapped_call_takes_over_is_looked_at_in_the_next_step(make: Any) -> None:
    """One thread has two calls: what the second left is kept until the first, swapped out at 2 s, is back.

    That is at 5 s, with all its KV in place, so that nothing is computed but tokens of running calls.
    """
    config = replace(CONFIG, max_num_seqs=4, preemption="swap", host_blocks=100)
    world = World(make, config, TwoLevels())
    world.engine.firm = True
    for program, new, output in ((4, 1, 60), (2, 47, 50), (2, 64, 1), (50, 1, 5)):
        world.start(program, new, output=output)
    (second,) = world.run(until=1.0)
    assert (second.call.seq, world.keep(2)) == (2, 10)
    world.start(51, 1, output=60)
    come(world, 1.5, 52, 1, output=3)
    world.run(until=4.5)
    world.start(3, 8 * BLOCK, at=4.5)
    found = rows(world)
    assert (found[2].preemptions, found[2].swap_s, found[2].reprefill_tokens) == (1, 0.0, 0)
    assert (world.counts()["released"], found[3].t_first_sched) == (1, 6.0)
