"""Continuum's two rules, InferCept's wastes, pinning: golden numbers by hand."""

import math

import pytest

from systems.protocols import Away, Kept
from systems.retentions.continuum_fixed import ContinuumFixed
from systems.retentions.continuum_ttl import ContinuumTtl
from systems.retentions.infercept import InferCept
from systems.retentions.lru import Lru
from systems.retentions.pin import Pin
from vocabulary import INF, EngineView

TOTAL = 1000


def leave(policy, program, now, tool="bash", tokens=1600, used=400, waiting=0):
    policy.look(EngineView(0, True, 8, used, TOTAL), waiting, now)
    return policy.idle(Away(program, "", tokens, tool), now)


def away_for(policy, seconds, program=9, tool="bash", now=0.0):
    leave(policy, program, now, tool)
    policy.called(program, "", now + seconds)
    policy.back(program, "", 0, 1600, now + seconds + 1.0)


def test_lru_keeps_nothing_and_pin_everything():
    away = Away(1, "", 1600, "bash")
    assert Lru().idle(away, 5.0) == 5.0
    assert Pin().idle(away, 5.0) == 65.0
    assert Pin(firm=False).idle(away, 5.0) == INF
    assert Pin(seconds=3).idle(away, 5.0) == 8.0
    kept = [Kept(2, "", 1, 9.0), Kept(1, "", 1, 9.0), Kept(3, "", 1, 8.0)]
    assert [k.program for k in Pin().victims(kept, 5.0)] == [3, 1, 2]


def test_continuum_fixed_is_two_seconds_or_nothing():
    policy = ContinuumFixed()
    assert leave(policy, 1, 10.0) == 12.0  # unknown
    policy.called(1, "", 14.5)  # 4.5 s
    assert leave(policy, 2, 20.0) == 20.0
    assert leave(policy, 2, 20.0, tool="search") == 22.0  # another tool
    away_for(policy, 0.5)  # mean 2.5
    assert leave(policy, 3, 30.0) == 30.0
    away_for(policy, 1.0)  # mean 2.0
    assert leave(policy, 4, 40.0) == 42.0


def test_continuum_fixed_counts_neither_waits_nor_who_never_comes_back():
    policy = ContinuumFixed()
    leave(policy, 1, 0.0)
    policy.called(1, "", 2.0)
    policy.back(1, "", 0, 1600, 500.0)  # its call took long; the tool did not
    leave(policy, 2, 0.0)
    policy.end(2, 900.0)
    assert leave(policy, 3, 1000.0) == 1002.0
    assert [event.what for event in policy.events] == ["keep", "back", "keep", "gone", "keep"]
    assert all(math.isnan(event.keep_price) and math.isnan(event.regret) for event in policy.events)


def ttl(durations, **knobs):
    policy = ContinuumTtl(**{"least": 1, "token_s": 1e-3, "token2_s": 0.0, **knobs})
    for seconds in durations:
        away_for(policy, seconds)
    return policy


def test_continuum_ttl_starts_cold_until_a_hundred_samples():
    policy = ContinuumTtl()
    for _ in range(99):
        away_for(policy, 30.0)
    assert leave(policy, 1, 10.0) == 12.0
    policy.called(1, "", 40.0)
    assert leave(policy, 2, 50.0) != 52.0
    assert leave(policy, 2, 50.0, tool="search") == 52.0


def test_continuum_ttl_maximises_what_the_paper_says():
    """1600 tokens: 100 of 1000 blocks, so a second costs .1 s; nothing waits, so B is the rebuild, 1.6 s.

    d     P(finish <= d)   P * 1.6 - .1 * d
    1     1/4              .3
    4     2/4              .4
    6     3/4              .6      <- the best
    16    4/4              0
    """
    policy = ttl([1.0, 4.0, 6.0, 16.0])
    assert leave(policy, 1, 10.0) == 16.0
    event = policy.events[-1]
    assert event.keep_price == pytest.approx(6.0 * 0.1 * TOTAL)
    assert event.evict_price == pytest.approx(1.6 * TOTAL)
    assert leave(ttl([1.0, 4.0, 6.0, 16.0], cost=2.0), 1, 10.0) == 11.0  # .2, 0, 0, -1.6
    assert leave(ttl([1.0, 4.0, 6.0, 16.0], cost=9.0), 1, 10.0) == 10.0  # nothing pays


def test_continuum_ttl_benefits_from_skipped_queues():
    """Half of the looks so far saw 8 000 tokens wait, 8 s of prefill: B is 1.6 + 4 s."""
    policy = ttl([1.0, 4.0, 6.0, 16.0])
    for program in range(4):
        leave(policy, program, 0.0, waiting=8000)
    policy.look(EngineView(0, True, 8, 400, TOTAL), 8000, 10.0)
    assert policy._delay == pytest.approx(8.0 * 5 / 9)
    policy.idle(Away(50, "", 1600, "bash"), 10.0)
    assert policy.events[-1].evict_price == pytest.approx((1.6 + 8.0 * 5 / 9) * TOTAL)
    assert policy.events[-1].until == 26.0  # 1 * 6.04 - 1.6 against .75 * 6.04 - .6


@pytest.mark.parametrize(
    ("calls", "fullness"),
    [([5] * 8, 1.0), ([5] * 7, 1.0), ([2] * 8 + [4] * 8, None)],
)
def test_memoryfulness_is_one_where_all_programs_make_the_same_number_of_calls(calls, fullness):
    policy = ContinuumTtl()
    pairs = []
    for program, n in enumerate(calls):
        for _ in range(n - 1):
            away_for(policy, 1.0, program)
        policy.end(program, 9.0)
        pairs += [(k, n - k) for k in range(1, n + 1)]
    if fullness is None:
        mean = [sum(x) / len(pairs) for x in zip(*pairs, strict=True)]
        both = sum((k - mean[0]) * (left - mean[1]) for k, left in pairs)
        spread = [sum((pair[i] - mean[i]) ** 2 for pair in pairs) for i in (0, 1)]
        fullness = -both / math.sqrt(spread[0] * spread[1])
        assert 0.0 < fullness < 1.0
    assert policy._memory.fullness == pytest.approx(fullness)


def test_memoryfulness_is_none_where_the_number_of_calls_is_geometric():
    """Programs of n calls in proportion to 2 ** -n."""
    policy = ContinuumTtl()
    for n in range(1, 13):
        for _ in range(2 ** (12 - n)):
            policy._memory.add(n)
    assert policy._memory.fullness == pytest.approx(0.0, abs=0.02)


def infercept(**knobs):
    return InferCept(**{"token_s": 1e-3, "token2_s": 0.0, **knobs})


def test_infercept_keeps_until_it_has_wasted_what_discarding_would():
    """1.6 s to compute 100 blocks again while 400 others stand still: 800 block-seconds, 8 s of keeping."""
    policy = infercept()
    assert leave(policy, 1, 10.0) == 18.0
    assert policy.events[-1].evict_price == pytest.approx(1.6 * 500)
    assert leave(policy, 2, 10.0, used=0) == pytest.approx(11.6)


def test_infercept_swaps_where_that_wastes_less():
    """Out and in again, .1 ms a token each way: .32 s while 500 blocks stand still."""
    policy = infercept(swap_token_s=1e-4)
    assert leave(policy, 1, 10.0) == pytest.approx(10.0 + 0.32 * 500 / 100)


def test_infercept_by_the_mean_keeps_all_along_or_not_at_all():
    policy = infercept(estimate="mean")
    assert leave(policy, 1, 10.0) == 18.0  # nothing is known of the tool
    policy.called(1, "", 17.0)
    assert leave(policy, 2, 20.0) == INF  # 7 s of 100 blocks against 800
    policy.called(2, "", 31.0)
    assert leave(policy, 3, 40.0) == 40.0  # a mean of 9 s
    assert policy.events[-1].keep_price == pytest.approx(900.0)


@pytest.mark.parametrize("policy", [ContinuumFixed, ContinuumTtl, InferCept])
def test_given_up_first_is_whose_time_is_up_first(policy):
    kept = [Kept(2, "", 1, 9.0), Kept(1, "b", 1, 9.0), Kept(1, "a", 1, 9.0), Kept(3, "", 1, 8.0)]
    order = [(k.program, k.thread) for k in policy().victims(kept, 5.0)]
    assert order == [(3, ""), (1, "a"), (1, "b"), (2, "")]


@pytest.mark.parametrize(
    ("policy", "knobs"),
    [(Pin, {"seconds": -1}), (ContinuumFixed, {"seconds": "x"}), (ContinuumTtl, {"least": 0}),
     (ContinuumTtl, {"cold_s": -1}), (ContinuumTtl, {"cost": -1}), (InferCept, {"estimate": "oracle"}),
     (InferCept, {"swap_token_s": -1})],
)  # fmt: skip
def test_wrong_knobs_are_refused_by_name(policy, knobs):
    with pytest.raises(ValueError, match=next(iter(knobs))):
        policy(**knobs)
