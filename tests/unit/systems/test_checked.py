"""Guests that read the cache, the prompt, or want to hear of a program's end are watched there, too."""

import pytest

from systems.checked import Checked, CheckedRouter, PolicyError
from systems.routers.cache_aware import CacheAware
from systems.routers.least_used import LeastUsed
from systems.routers.session_pinned import SessionPinned
from systems.schedulers.fcfs import Fcfs
from systems.schedulers.lpm import Lpm
from vocabulary import Call, EngineView, Slot, Snapshot


class Cache:
    def prefix(self, call):
        return [(1, 16 * call.seq)]


def test_a_watched_scheduler_reads_the_cache_through_the_watch():
    watched = Checked(Lpm(), "guest:Lpm")
    assert watched.reads_cache
    watched.attach(Cache())
    calls = [Call(seq, 0, "", 0, 100) for seq in range(2)]
    for call in calls:
        watched.arrive(call, Snapshot(), 0.0)
    assert watched.due(0.0) == [(calls[1], Slot(0, -16.0))]


def test_one_that_reads_none_says_so_and_is_given_none():
    watched = Checked(Fcfs(), "guest:Fcfs")
    assert not watched.reads_cache
    watched.attach(Cache())


def test_what_attach_raises_is_the_guests():
    class Breaks(Lpm):
        def attach(self, cache):
            raise KeyError("blocks")

    with pytest.raises(PolicyError, match=r"scheduler guest:Breaks, attach\(\): KeyError: 'blocks'"):
        Checked(Breaks(), "guest:Breaks").attach(Cache())


def test_a_watched_router_hears_of_the_end():
    pinned, views = SessionPinned(), [EngineView(i, True, i, 0, 100) for i in range(2)]
    watched = CheckedRouter(pinned, "guest:Pinned")
    assert watched.route(Call(0, 5, "", 0, 1), views, 0.0) == 0
    watched.end(5)
    assert len(pinned._pins) == 0
    CheckedRouter(LeastUsed(), "guest:LeastUsed").end(5)


def test_reads_prompt_is_passed_on():
    assert CheckedRouter(CacheAware(), "guest:A").reads_prompt
    assert not CheckedRouter(LeastUsed(), "guest:B").reads_prompt


def test_what_end_raises_is_the_guests():
    class Breaks(LeastUsed):
        def end(self, program):
            raise SystemExit(3)

    with pytest.raises(PolicyError, match=r"router guest:Breaks, end\(\): SystemExit: 3"):
        CheckedRouter(Breaks(), "guest:Breaks").end(1)
