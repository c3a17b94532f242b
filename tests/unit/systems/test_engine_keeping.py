"""Kept and dropped KV in the simulated and the reference engine, small enough to follow by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from systems.engines.lazy import LazyEngine
from systems.engines.reference import ReferenceEngine
from systems.engines.sim import SimEngine
from systems.protocols import Kept
from systems.schedulers.fcfs import Fcfs
from systems.victims import giving_up
from tests.latency_models import BlockTransfer, ConstantLatency
from vocabulary import BLOCK, INF, Body, Call, EngineConfig, Finished, Segment, Snapshot

CONFIG = EngineConfig(20, max_num_seqs=8, max_num_batched_tokens=2048, retains=True)
SHARED = 7
"""A segment that several programs begin with."""


class World:
    """An engine whose steps take a second, and calls that are known by their program."""

    def __init__(self, make: Any, config: EngineConfig = CONFIG, scheduler: Any = None) -> None:
        self.engine = make(0, config, scheduler or Fcfs(), ConstantLatency(1.0), BlockTransfer(0.0))
        self.calls = 0
        self.texts: dict[tuple[int, str], list[Segment]] = {}

    @property
    def now(self) -> float:
        return float(self.engine.results_at())

    def start(
        self,
        program: int,
        new: int,
        output: int = 1,
        thread: str = "",
        shared: int = 0,
        at: float | None = None,
    ) -> Call:
        """The thread goes on by ``new`` tokens; it begins with ``shared`` tokens that others have, too."""
        text = self.texts.setdefault((program, thread), [(SHARED, shared)] if shared else [])
        text.append((1000 * (self.calls + 1), new))
        reply = 1000 * (self.calls + 1) + 1
        call = Call(self.calls, program, thread, 0, sum(length for _, length in text))
        self.engine.submit(call, Body(text, reply, output), Snapshot(), self.now if at is None else at)
        text.append((reply, output))
        self.calls += 1
        return call

    def run(self, until: float = INF) -> list[Finished]:
        """What is over by then."""
        rows: list[Finished] = []
        while self.engine.clock() < until and self.engine.advance(until):
            rows += self.engine.collect()
        return rows

    def ask(self, program: int, new: int, output: int = 1, **more: Any) -> Finished:
        """A call by itself, from its arrival to its end."""
        self.start(program, new, output, **more)
        return self.run()[-1]

    def keep(self, program: int, seconds: float = INF, priority: int = 0, thread: str = "") -> int:
        return int(self.engine.retain(program, thread, self.now + seconds, priority, self.now))

    def flood(self, blocks: int) -> None:
        """A program nobody keeps passes through so many blocks."""
        self.ask(100 + self.calls, BLOCK * blocks)

    def counts(self) -> dict[str, int]:
        return {name: n for name, n in self.engine.keeping_counts().items() if n}


@pytest.fixture(params=[SimEngine, ReferenceEngine], ids=["sim", "reference"])
def make(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_what_is_kept_survives_a_flood_and_what_is_not_does_not(make: Any) -> None:
    for seconds, found in ((-1.0, 0), (INF, 4 * BLOCK)):
        world = World(make)
        world.ask(1, 4 * BLOCK)
        assert world.keep(1, seconds) == (4 if seconds > 0 else 0)
        world.flood(16)
        world.flood(16)
        assert world.ask(1, BLOCK).cached_tokens == found
    assert world.counts() == {"pinned": 1, "hits": 1, "released": 1}


def test_a_deadline_is_looked_at_when_a_step_is_scheduled(make: Any) -> None:
    """Kept until 3.5 s; the flood's steps begin at 1, 2, 3, .. s, program 1 comes behind them.

    Behind three floods it comes at 4 s, before any step that begins later than 3.5 s: it has it still.
    """
    for floods, found, expired in ((2, 4 * BLOCK, 0), (3, 4 * BLOCK, 0), (5, 0, 1)):
        world = World(make)
        world.ask(1, 4 * BLOCK)
        world.keep(1, 2.5)
        for _ in range(floods):
            world.flood(16)
        assert world.ask(1, BLOCK).cached_tokens == found
        assert world.counts().get("expired", 0) == expired


def test_a_later_deadline_moves_its_place_among_those_that_are_over(make: Any) -> None:
    """Program 1 is due at 5 s, waits, and is kept until 5.8 s; its client leaves when 4 was due before it."""
    world = World(make, replace(CONFIG, max_num_seqs=1))
    for program, seconds in ((1, 3.0), (4, 3.6)):
        world.ask(program, 5 * BLOCK)
        world.keep(program, seconds if program == 4 else seconds + 1.0)
    world.start(2, BLOCK, output=10)
    world.run(until=4.5)
    call = world.start(1, 1, at=4.5)
    world.run(until=5.2)
    assert world.engine.retain(1, "", 5.8, 0, 5.2) == 5
    world.engine.abort(call, 5.9)
    world.run()
    assert world.counts() == {"pinned": 3, "expired": 2, "released": 1}
    world.flood(14)
    assert [world.ask(program, 1).cached_tokens // BLOCK for program in (1, 4)] == [5, 0]


def test_a_deadline_in_the_middle_of_a_decode_is_not_missed(make: Any) -> None:
    """At 11 s a call decodes alone, so that ``sim`` would jump; the flood comes at 20 s."""
    world = World(make)
    world.ask(1, 4 * BLOCK)
    world.keep(1, 10.0)
    world.start(2, 1, output=30)
    world.run(until=20.0)
    assert world.counts() == {"pinned": 1, "expired": 1}
    assert world.engine.release(1, 20.0) == 0


def test_kept_blocks_count_as_free(make: Any) -> None:
    world = World(make)
    world.ask(1, 8 * BLOCK)
    before = world.engine.view()
    assert world.keep(1) == 8
    assert world.engine.view() == before
    assert (before.kv_used, before.kv_cached) == (0, 8)


def test_pins_are_given_up_one_by_one_until_a_call_fits(make: Any) -> None:
    """The smallest priority first, then the earliest deadline; no more of them than it takes."""
    world = World(make)
    for program, seconds, priority in ((1, 300.0, 0), (2, 200.0, 0), (3, 100.0, 1)):
        world.ask(program, 5 * BLOCK)
        assert world.keep(program, seconds, priority) == 5
    world.flood(6)
    assert world.counts() == {"pinned": 3, "given_up": 1}
    assert [world.ask(p, 1).cached_tokens // BLOCK for p in (1, 3)] == [5, 5]
    assert world.ask(2, 1).cached_tokens < 5 * BLOCK


def test_victims_are_asked_once_a_boundary_with_everything_that_is_kept(make: Any) -> None:
    asked: list[tuple[float, list[Kept]]] = []

    def victims(kept: Sequence[Kept], now: float) -> Sequence[Kept]:
        asked.append((now, list(kept)))
        return [one for one in kept if one.program == 2]

    world = World(make)
    world.engine.victims = victims
    for program in (1, 2, 3):
        world.ask(program, 5 * BLOCK)
        world.keep(program, 1000.0 - program)
    world.flood(12)
    assert world.counts()["given_up"] == 2
    assert asked == [(3.0, [Kept(p, "", 5 * BLOCK, 1000.0, 0) for p in (1, 2, 3)])]
    assert world.ask(1, 1).cached_tokens == 0 or world.ask(3, 1).cached_tokens == 5 * BLOCK


def test_a_call_that_would_have_to_wait_anyway_takes_nothing(make: Any) -> None:
    """12 blocks in use, 5 kept, 3 free: one that needs 9 waits, and nothing is given up for it."""
    world = World(make)
    world.ask(1, 5 * BLOCK)
    world.keep(1)
    world.start(2, 12 * BLOCK - 4, output=5)
    world.start(3, 9 * BLOCK, at=1.0)
    world.run(until=3.0)
    assert world.counts() == {"pinned": 1}
    assert world.engine.waiting_tokens() == 9 * BLOCK
    world.run()
    assert world.counts() == {"pinned": 1}


def test_a_running_call_grows_into_what_is_kept_and_nobody_is_preempted(make: Any) -> None:
    """10 blocks are kept; 8 of prompt, then one more at 2, 18 and 34 s: it is at 34 s that one is lacking."""
    asked: list[float] = []

    def victims(kept: Sequence[Kept], now: float) -> Sequence[Kept]:
        asked.append(now)
        return kept

    world = World(make)
    world.engine.victims = victims
    world.ask(1, 10 * BLOCK)
    world.keep(1)
    row = world.ask(2, 8 * BLOCK, output=5 * BLOCK)
    assert row.preemptions == 0
    assert row.t_end - row.t_arrive == 5 * BLOCK
    assert world.counts() == {"pinned": 1, "given_up": 1}
    assert asked == [34.0]


def test_what_is_dropped_goes_before_what_was_left_earlier(make: Any) -> None:
    world = World(make)
    world.ask(1, 5 * BLOCK)
    world.ask(2, 5 * BLOCK)
    world.keep(2)
    assert world.engine.drop(2, world.now) == 5
    world.flood(15)
    assert world.ask(2, 1).cached_tokens == 0
    assert world.counts() == {"pinned": 1, "released": 1, "dropped_blocks": 5}
    world = World(make)
    world.ask(1, 5 * BLOCK)
    world.ask(2, 5 * BLOCK)
    world.flood(15)
    assert world.ask(2, 1).cached_tokens == 5 * BLOCK


def test_what_a_call_uses_or_is_kept_for_others_is_not_dropped(make: Any) -> None:
    """Three programs share four blocks: one runs, then it is kept for another."""
    world = World(make)
    for program in (1, 2):
        world.ask(program, 2 * BLOCK, shared=4 * BLOCK)
    running = world.start(3, BLOCK, output=10, shared=4 * BLOCK)
    world.run(until=5.0)
    assert world.engine.drop(1, 5.0) == 2
    world.engine.abort(running, world.engine.clock())
    assert world.keep(2) == 6
    assert world.engine.drop(1, world.now) == 2
    assert world.engine.release(2, world.now) == 1
    assert world.engine.drop(1, world.now) == 6


def test_threads_of_a_program_lose_their_own_before_what_they_share(make: Any) -> None:
    world = World(make)
    for thread in ("a", "b"):
        world.ask(1, 2 * BLOCK, thread=thread, shared=4 * BLOCK)
    assert world.engine.drop(1, world.now) == 8
    world.flood(12 + 4)
    assert world.ask(1, 1, thread="b").cached_tokens == 4 * BLOCK


def test_what_hangs_on_a_dropped_prefix_is_found_again_once_that_is_back(make: Any) -> None:
    """Program 2 loses the four blocks it shares with program 1, not its own; program 3 brings those back."""
    world = World(make, replace(CONFIG, max_num_seqs=32))
    world.ask(2, 2 * BLOCK, shared=4 * BLOCK)
    world.ask(1, BLOCK, shared=4 * BLOCK)
    assert world.engine.drop(1, world.now) == 5
    for program in range(13 + 5):  # a block each, and none is full
        world.start(100 + program, BLOCK // 2)
    world.run()
    assert world.ask(3, BLOCK, shared=4 * BLOCK).cached_tokens == 0
    assert world.ask(2, BLOCK).cached_tokens == 6 * BLOCK


def test_what_is_kept_late_is_what_is_still_there(make: Any) -> None:
    world = World(make)
    world.ask(1, 8 * BLOCK)
    world.flood(15)
    assert world.keep(1) == 5
    world.flood(15)
    assert world.ask(1, 1).cached_tokens == 5 * BLOCK


def test_blocks_that_were_lost_and_computed_again_are_not_what_the_thread_left(make: Any) -> None:
    world = World(make)
    world.ask(1, 2 * BLOCK, shared=4 * BLOCK)
    world.flood(20)
    world.ask(2, BLOCK, shared=4 * BLOCK)
    assert world.keep(1) == 0
    assert world.keep(2) == 5


def test_a_program_that_is_over_keeps_nothing(make: Any) -> None:
    world = World(make)
    world.ask(1, 5 * BLOCK)
    world.keep(1)
    world.engine.end_program(1, world.now)
    assert world.keep(1) == 0
    assert world.engine.drop(1, world.now) == 0
    assert world.counts() == {"pinned": 1, "released": 1}


def test_what_an_aborted_call_left_is_not_kept(make: Any) -> None:
    world = World(make)
    call = world.start(1, 5 * BLOCK, output=50)
    world.run(until=5.0)
    world.engine.abort(call, world.engine.clock())
    assert world.keep(1) == 0


def test_with_a_host_tier_what_is_given_up_moves_there_when_it_is_evicted(make: Any) -> None:
    config = replace(CONFIG, host_tier=True, host_blocks=100)
    world = World(make, config)
    world.ask(1, 5 * BLOCK)
    world.keep(1)
    world.flood(20)
    assert world.counts() == {"pinned": 1, "given_up": 1}
    assert world.ask(1, 1).cached_tokens == 5 * BLOCK
    assert world.engine.stats()["host_hit_tokens"] == 5 * BLOCK


def test_who_is_not_asked_to_keep_has_nothing_of_it() -> None:
    engine = SimEngine(0, replace(CONFIG, retains=False), Fcfs(), ConstantLatency(1.0))
    assert type(engine) is SimEngine
    assert type(engine).boundary is LazyEngine.boundary
    assert not hasattr(engine, "retain")


def test_everything_is_given_up_in_the_end_whatever_the_policy_names() -> None:
    kept = [Kept(p, "", 16, 100.0 - p, priority) for p, priority in ((1, 1), (2, 0), (3, 0))]
    assert giving_up(kept, None, 0.0) == [(3, ""), (2, ""), (1, "")]
    assert giving_up(kept, lambda kept, now: [kept[0], kept[0]], 0.0) == [(1, ""), (3, ""), (2, "")]
    stranger = Kept(9, "", 16, 0.0)
    assert giving_up(kept, lambda kept, now: [stranger], 0.0) == [(3, ""), (2, ""), (1, "")]
