import random
from collections import Counter

import pytest

from systems.catalog import CatalogError, build_router, load_system, router_names
from systems.routers.autellix import Autellix
from systems.routers.cache_aware import CacheAware
from systems.routers.least_used import LeastUsed
from systems.routers.pins import MOST_PINS, Pins
from systems.routers.random import Random
from systems.routers.round_robin import RoundRobin
from systems.routers.session_pinned import SessionPinned
from vocabulary import Call, EngineView

CALL = Call(9, 0, "", 0, 1)


def views(*calls, dead=()):
    return [EngineView(i, i not in dead, n, 0, 100) for i, n in enumerate(calls)]


def call(seq=0, program=0, prompt=((1, 100),)):
    return Call(seq, program, "", 0, sum(length for _, length in prompt), prompt=tuple(prompt))


def test_round_robin_takes_turns():
    router = RoundRobin()
    assert [router.route(CALL, views(9, 0, 5), 0.0) for _ in range(5)] == [0, 1, 2, 0, 1]


def test_round_robin_skips_the_dead_and_keeps_its_place():
    router = RoundRobin()
    chosen = [router.route(CALL, views(0, 0, 0, dead=dead), 0.0) for dead in [(), (1,), (1,), (), (2,)]]
    assert chosen == [0, 2, 0, 1, 0]


@pytest.mark.parametrize(
    ("calls", "dead", "engine"),
    [((3, 1, 2), (), 1), ((2, 2, 2), (), 0), ((0, 1, 1), (0,), 1), ((5, 4, 0), (2,), 1), ((7,), (), 0)],
)
def test_least_used(calls, dead, engine):
    assert LeastUsed().route(CALL, views(*calls, dead=dead), 0.0) == engine


@pytest.mark.parametrize("name", router_names())
@pytest.mark.parametrize("engines", [[], views(0, 0, dead=(0, 1))])
def test_nobody_alive(name, engines):
    router = build_router(load_system("vllm-opt", router=name))
    with pytest.raises(LookupError, match="no engine is alive to take call 9"):
        router.route(call(9), engines, 0.0)


# Random


def test_random_spreads_evenly_and_repeats_itself():
    def routes(salt):
        router = Random(salt=salt)
        return [router.route(call(seq), views(9, 0, 5), 0.0) for seq in range(3000)]

    assert routes(0) == routes(0)
    assert routes(0) != routes(1)
    assert all(900 < count < 1100 for count in Counter(routes(0)).values())  # sd 26
    assert Counter(zip(routes(0), routes(0)[1:], strict=False))[0, 0] < 450  # 333 expected, sd 17


# Session-pinned


def test_sticky_starts_at_the_least_used_and_stays():
    router = SessionPinned(by="sticky")
    assert router.route(call(0, 1), views(3, 1, 2), 0.0) == 1
    assert router.route(call(1, 1), views(0, 50, 0), 0.0) == 1
    assert router.route(call(2, 2), views(0, 50, 0), 0.0) == 0
    router.end(1)
    assert router.route(call(3, 1), views(0, 50, 0), 0.0) == 0


@pytest.mark.parametrize("by", ["sticky", "footprint", "hash", "programs"])
def test_a_dead_engine_loses_its_programs_for_good(by):
    router = SessionPinned(by=by)
    programs = range(40)
    before = {p: router.route(call(0, p), views(1, 1, 1), 0.0) for p in programs}
    lost = {before[p] for p in programs}.pop()
    during = {p: router.route(call(1, p), views(1, 1, 1, dead=[lost]), 0.0) for p in programs}
    after = {p: router.route(call(2, p), views(1, 1, 1), 0.0) for p in programs}
    assert lost not in during.values()
    assert all(during[p] == before[p] for p in programs if before[p] != lost)
    assert after == (before if by == "hash" else during)


def test_hash_depends_on_the_program_alone_and_spreads():
    routes = {p: SessionPinned(by="hash").route(call(p, p), views(9, 0, 4), 0.0) for p in range(900)}
    router = SessionPinned(by="hash")
    assert all(router.route(call(1, p), views(0, 9, 0), 5.0) == engine for p, engine in routes.items())
    assert all(240 < count < 360 for count in Counter(routes.values()).values())


def test_programs_are_counted_until_they_are_over():
    router = SessionPinned(by="programs")
    routed = [router.route(call(seq, p), views(9, 0), 0.0) for seq, p in enumerate((1, 2, 3, 1))]
    assert routed == [0, 1, 0, 0]
    router.end(1)
    router.end(3)
    assert router.route(call(9, 4), views(9, 0), 0.0) == 0


def test_footprint_counts_used_and_cached_blocks():
    def loaded(*blocks):
        return [EngineView(i, True, 0, used, 100, 0, cached) for i, (used, cached) in enumerate(blocks)]

    router = SessionPinned(by="footprint")
    assert router.route(call(0, 1), loaded((10, 30), (20, 10), (0, 40)), 0.0) == 1
    assert router.route(call(1, 1), loaded((0, 0), (90, 10), (0, 0)), 0.0) == 1


# Autellix, Algorithm 2


@pytest.mark.parametrize(
    ("tokens", "pinned", "engine", "pin_after"),
    [
        (2048, None, 1, None),  # short: least used, no pin created
        (2048, 2, 1, 2),  # short: least used, its engine stays its engine
        (2049, None, 1, 1),  # long: least used, and pinned there
        (2049, 2, 2, 2),  # long: its engine, however full
        (2049, 0, 1, 1),  # its engine is dead
    ],
)
def test_algorithm_2(tokens, pinned, engine, pin_after):
    router = Autellix()
    if pinned is not None:
        router._pins.pin(7, pinned)
    loads = views(0, 3, 50, dead=(0,))
    assert router.route(call(0, 7, [(1, tokens)]), loads, 0.0) == engine
    assert router._pins.of(7, loads) == pin_after
    router.end(7)
    assert len(router._pins) == 0


def test_pins_are_bounded_and_the_longest_unused_go():
    pins, everywhere = Pins(most=3), views(0, 0)
    for program in range(3):
        pins.pin(program, program % 2)
    assert pins.of(0, everywhere) == 0
    pins.pin(3, 1)
    assert [pins.of(p, everywhere) for p in range(4)] == [0, None, 0, 1]
    assert MOST_PINS >= 1_000_000


# Cache-aware


def test_cache_aware_follows_the_prefix_and_remembers_what_it_sent():
    router = CacheAware()
    assert router.route(call(0, prompt=[(1, 100)]), views(1, 0, 0), 0.0) == 1
    assert router.route(call(1, prompt=[(1, 100), (2, 200)]), views(0, 9, 0), 0.0) == 1  # 1/3 > 0.3
    assert router.route(call(2, prompt=[(1, 100), (3, 300)]), views(0, 9, 1), 0.0) == 0  # 1/4
    assert router.route(call(3, prompt=[(1, 100), (3, 300), (4, 5)]), views(5, 0, 0), 0.0) == 0
    assert router.route(call(4, prompt=[(1, 60)]), views(5, 9, 0), 0.0) == 0, "equal matches: fewer calls"


def test_cache_aware_balances_only_what_is_uneven_on_both_counts():
    prompt = [(1, 100)]
    for loads, engine in [((64, 0), 0), ((65, 0), 1), ((200, 134), 0), ((300, 199), 1)]:
        router = CacheAware()
        router.route(call(0, prompt=prompt), views(0, 1), 0.0)
        assert router.route(call(1, prompt=prompt), views(*loads), 0.0) == engine, loads


def test_cache_aware_forgets_dead_engines_and_bounds_its_memory():
    router = CacheAware(max_tokens=1000)
    rng = random.Random(3)
    for seq in range(200):
        prompt = [(rng.randrange(50), rng.randint(1, 90)) for _ in range(4)]
        router.route(call(seq, prompt=prompt), views(seq % 2, 0), 0.0)
        assert all(tree.tokens <= 1000 for tree in router._trees.values())
    assert set(router._trees) == {0, 1}
    router.route(call(900), views(0, 0, dead=(1,)), 0.0)
    assert set(router._trees) == {0}


def test_cache_aware_needs_prompts():
    with pytest.raises(ValueError, match="needs the prompt of call 9, but the host did not fill it"):
        CacheAware().route(CALL, views(0, 0), 0.0)


@pytest.mark.parametrize(
    ("router", "knob", "value", "message"),
    [
        ("random", "salt", -1, "salt must be a whole number of at least 0, got -1"),
        ("session-pinned", "by", "hsah", "by must be one of hash, sticky, footprint, programs; got 'hsah'"),
        ("autellix", "most_short", "x", "most_short must be a number of tokens"),
        ("cache-aware", "cache_threshold", 1.5, "cache_threshold must be a number, 0 to 1; got 1.5"),
        ("cache-aware", "balance_abs", -1, "balance_abs must be a number, at least 0; got -1"),
        ("cache-aware", "max_tokens", 0, "max_tokens must be a whole number of at least 1, got 0"),
    ],
)
def test_bad_knobs_are_named(router, knob, value, message):
    with pytest.raises(CatalogError, match=message):
        load_system("vllm-opt", router=router, knobs={f"router.{knob}": value})
