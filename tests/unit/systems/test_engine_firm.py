"""Firm retention by hand: who waits for what is kept, and who does not. 20 blocks, steps of a second."""

from __future__ import annotations

from typing import Any

import pytest

from systems.engines.reference import ReferenceEngine
from systems.engines.sim import SimEngine
from systems.schedulers.fcfs import Fcfs
from tests.unit.systems.test_engine_keeping import World
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


def come(world: World, at: float, program: int, new: int, **more: Any) -> None:
    """The program calls at that time; nothing is over before."""
    assert not world.run(until=at)
    world.start(program, new, at=at, **more)


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
