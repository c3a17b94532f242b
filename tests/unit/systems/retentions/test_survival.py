"""Keep or evict by price: every number by hand, and what may never happen whatever the numbers are."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from systems.protocols import Away, Kept
from systems.retentions.durations import Durations
from systems.retentions.market import Meter, clearing_price
from systems.retentions.survival import Survival
from vocabulary import INF, EngineView, blocks_for

TOTAL = 1000
"""Blocks of the engine."""


def full(used, waiting=0, total=TOTAL):
    """A look at an engine: blocks in use, prompt tokens that wait."""
    return EngineView(0, True, 8, used, total), waiting


def taught(durations, tool="bash", **knobs):
    """A policy that has seen a tool take so long, once each; it asks the price as threads leave."""
    policy = Survival(
        **{"least": 1, "firm": False, "price": "market", "token_s": 1e-3, "token2_s": 0.0, **knobs}
    )
    for i, seconds in enumerate(durations):
        policy.look(*full(0), 0.0)
        policy.idle(Away(1000 + i, "", 16, tool), 0.0)
        policy.called(1000 + i, "", seconds)
        policy.back(1000 + i, "", 0, 16, seconds)
        policy.end(1000 + i, seconds)
    policy.events.clear()
    return policy


def leave(policy, program, tokens, now, *, used=0, waiting=0, tool="bash", duration=None, output=10):
    policy.look(*full(used, waiting), now)
    return policy.idle(Away(program, "", tokens, tool, output, 0, duration), now)


def test_with_room_everything_is_kept_at_no_price():
    policy = taught([2.0] * 8)
    assert leave(policy, 1, 1600, 10.0, used=400) == INF
    (event,) = policy.events
    assert (event.what, event.until, event.keep_price) == ("keep", INF, 0.0)
    assert event.evict_price == pytest.approx(1.6 * TOTAL)  # 1600 tokens of 1 ms, all 1000 blocks idle
    assert math.isnan(event.regret)


def test_without_room_the_dearer_stays_and_the_price_is_the_other_ones_bid():
    """Blocks cost the same to compute again; who is back after 1 s bids ten times what 10 s bid."""
    policy = taught([1.0] * 8, tool="short")
    for i in range(8):
        leave(policy, 2000 + i, 16, 0.0, tool="long")
        policy.called(2000 + i, "", 10.0)
        policy.back(2000 + i, "", 0, 16, 10.0)
    policy.events.clear()
    assert leave(policy, 1, 800, 20.0, used=900, tool="short") == INF
    until = leave(policy, 2, 1600, 20.0, used=900, tool="long")
    assert until == 30.0  # it is not worth less than the price, which is its own bid
    assert leave(policy, 3, 1600, 20.0, used=950, tool="long") == 30.0
    assert leave(policy, 4, 1600, 20.0, used=950, tool="short") == 21.0
    assert leave(policy, 5, 1600, 20.0, used=950, tool="long") == 20.0
    keep, evict = policy.events[-1].keep_price, policy.events[-1].evict_price
    assert evict == pytest.approx(1.6 * TOTAL)
    assert keep == pytest.approx(10 * evict)  # ten seconds at the price of what one second saves


def test_what_waits_takes_room_too():
    policy = taught([1.0] * 8, tool="short")
    for i in range(8):
        leave(policy, 2000 + i, 16, 0.0, tool="long")
        policy.called(2000 + i, "", 10.0)
    args = {"used": 500, "tool": "short"}
    assert leave(policy, 1, 1600, 20.0, **args) == INF
    assert leave(policy, 2, 1600, 20.0, **args, waiting=16 * 450) == 21.0
    patient = Survival(waiting=0.0, firm=False, price="market")
    assert leave(patient, 1, 1600, 20.0, used=500, waiting=16 * 450) == INF


def test_victims_lose_least_per_block_at_that_moment():
    """Both tools take 2 s on average; after 1.5 s the punctual one is about to be back, the other is not."""
    policy = taught([2.0] * 8, tool="punctual")
    for seconds in (0.1, 0.2, 0.3, 0.4, 0.6, 1.0, 3.0, 10.4):
        leave(policy, 3000, 16, 100.0, tool="erratic")
        policy.called(3000, "", 100.0 + seconds)
        policy.back(3000, "", 16, 16, 100.0 + seconds)
    leave(policy, 1, 1600, 200.0, tool="punctual")
    leave(policy, 2, 1600, 200.0, tool="erratic")
    kept = [Kept(1, "", 1600, INF), Kept(2, "", 1600, INF)]
    assert [k.program for k in policy.victims(kept, 200.0)] == [1, 2]
    assert [k.program for k in policy.victims(kept, 201.5)] == [2, 1]
    policy.called(2, "", 201.5)  # it is back and waits: its KV is used next
    assert [k.program for k in policy.victims(kept, 201.6)] == [1, 2]


def test_at_a_shortage_those_stay_for_whom_keeping_costs_less_than_evicting():
    """All is kept until then; if the bid of the last one that went is the price, J agrees with the order."""
    policy = taught([], by="oracle", price="shortage")
    for program in range(12):
        tokens, seconds = 160 * (1 + program % 3), 1.0 + program * 5 % 12
        assert leave(policy, program, tokens, 10.0, used=TOTAL, duration=seconds) == INF
    order = [kept.program for kept in policy.victims([Kept(p, "", 1, INF) for p in range(12)], 10.0)]
    stakes = {p: policy._stakes[policy.absences.get(p, "")] for p in order}
    for gone in range(1, 12):
        price = stakes[order[gone - 1]].bid(0.0)
        for program in order:
            stake = stakes[program]
            keep = stake.cost(stake.curve.ages[-1], price)
            if program in order[gone:]:
                assert keep <= stake.at_stake * (1 + 1e-12)
            else:
                assert keep >= stake.at_stake * (1 - 1e-12)


def test_both_ways_of_asking_log_the_same_prices():
    policies = [taught([1.0, 2.0, 4.0], price=price) for price in ("shortage", "market")]
    for policy in policies:
        for program in range(4):
            leave(policy, program, 1600, 10.0, used=850)
    one, two = ([(e.keep_price, e.evict_price) for e in policy.events] for policy in policies)
    assert one == two
    assert [event.what for event in policies[0].events] == ["keep"] * 4
    assert policies[0].events[-1].until == INF > policies[1].events[-1].until


def test_longer_contexts_cost_more_per_block():
    policy = taught([2.0] * 8, token2_s=1e-6)
    leave(policy, 1, 16_000, 10.0)
    leave(policy, 2, 1600, 10.0)
    kept = [Kept(1, "", 16_000, INF), Kept(2, "", 1600, INF)]
    assert [k.program for k in policy.victims(kept, 10.0)] == [2, 1]


def test_what_was_given_up_bids_no_more():
    policy = taught([2.0] * 8)
    for program in (1, 2, 3):
        assert leave(policy, program, 4800, 10.0, used=50) == INF
    assert leave(policy, 4, 4800, 10.0, used=50) < INF
    policy.victims([Kept(4, "", 4800, INF)], 10.5)  # the others are not there any more
    assert leave(policy, 5, 4800, 11.0, used=50) == INF


def test_programs_that_do_not_come_back_are_worth_less():
    policy = taught([2.0] * 8)
    for program in range(50, 74):
        leave(policy, program, 16, 10.0)
        policy.end(program, 11.0)
    leave(policy, 1, 1600, 20.0)
    assert policy.events[-1].evict_price == pytest.approx(1.6 * TOTAL * (8 + 1) / (8 + 24 + 1))


def test_a_tool_nobody_knows_goes_by_all_tools_and_then_by_decay():
    policy = taught([2.0] * 8, least=4)
    leave(policy, 1, 1600, 10.0, tool="new")
    leave(policy, 2, 1600, 10.0)
    one, two = (policy._stakes[policy.absences.get(program, "")].bid(1.0) for program in (1, 2))
    assert one == two > 0.0
    unknown = Survival(least=4, firm=False)
    leave(unknown, 1, 1600, 0.0)
    for age in (0.5, 1.0, 3.0):  # ThunderAgent's decay: worth halves each second
        stakes = unknown._stakes[unknown.absences.get(1, "")]
        assert stakes.bid(age + 1.0) / stakes.bid(age) == pytest.approx(0.5, rel=0.1)


def test_each_arm_knows_what_it_says():
    """A tool that takes 1 s after short replies and 9 s after long ones, beside one of 20 s."""
    rows = [("bash", 2, 1.0), ("bash", 300, 9.0), ("search", 2, 20.0)] * 8
    bids = {}
    for by in ("elapsed", "tool", "tool+size", "oracle"):
        policy = Survival(by=by, least=4, firm=False)
        for i, (tool, output, seconds) in enumerate(rows):
            leave(policy, i, 1600, 0.0, tool=tool, output=output, duration=seconds)
            policy.called(i, "", seconds)
            policy.back(i, "", 0, 1600, seconds)
        for i, (tool, output, seconds) in enumerate(rows[:3]):
            leave(policy, 100 + i, 1600, 50.0, tool=tool, output=output, duration=seconds)
        stakes = [policy._stakes[policy.absences.get(100 + i, "")] for i in range(3)]
        bids[by] = [stake.bid(0.0) for stake in stakes]
    one, two, three = bids["elapsed"]
    assert one == two == three
    one, two, three = bids["tool"]
    assert one == two > three
    assert bids["tool+size"] == pytest.approx(bids["oracle"])
    assert bids["oracle"][0] == pytest.approx(9 * bids["oracle"][1])
    assert Survival(by="oracle").clairvoyant
    assert not Survival().clairvoyant


def test_regret_after_the_fact():
    """At a price of 2 a block-second: 50 blocks, 3 s away, 800 block-seconds to compute again."""
    policy = taught([3.0] * 8)
    leave(policy, 1, 800, 10.0)
    policy.absences.get(1, "").until = 12.0
    policy._meters[0].set(2.0, 10.0)
    policy.called(1, "", 13.0)
    policy.back(1, "", 0, 900, 14.0)
    event = policy.events[-1]
    assert (event.what, event.time, event.tokens) == ("back", 13.0, 784)
    assert event.keep_price == pytest.approx(2 * 50 * 3)
    assert event.evict_price == pytest.approx(0.8 * TOTAL)
    assert event.regret == pytest.approx(2 * 50 * 2 + 0.784 * TOTAL - 300)


def test_no_regret_for_the_cheaper_choice():
    policy = taught([3.0] * 8)
    leave(policy, 1, 800, 10.0)
    policy._meters[0].set(2.0, 10.0)
    policy.called(1, "", 13.0)
    policy.back(1, "", 784, 900, 14.0)
    assert policy.events[-1].regret == 0.0
    leave(policy, 2, 800, 20.0)
    policy._meters[0].set(2.0, 20.0)
    policy.end(2, 24.0)
    assert (policy.events[-1].what, policy.events[-1].regret) == ("gone", pytest.approx(2 * 50 * 4))


looks = st.tuples(st.integers(0, TOTAL), st.integers(0, 20_000))
others = st.lists(st.tuples(st.integers(1, 6000), st.floats(0.0, 5.0)), max_size=8)
durations = st.lists(st.floats(0.01, 30.0), min_size=1, max_size=30)


def crowd(seen, away, **knobs):
    """The policy, with others away, of threads that left at times in [0, 5]."""
    policy = taught(seen, **knobs)
    for i, (tokens, since) in enumerate(sorted(away, key=lambda row: row[1])):
        leave(policy, i, tokens, 50.0 + since)
    return policy


@given(durations, others, looks, st.integers(1, 6000), st.integers(0, TOTAL))
@settings(max_examples=60, deadline=None)
def test_less_room_never_keeps_longer(seen, away, look, tokens, more):
    used, waiting = look
    roomy, tight = crowd(seen, away), crowd(seen, away)
    assert leave(tight, 99, tokens, 60.0, used=min(used + more, TOTAL), waiting=waiting) <= leave(
        roomy, 99, tokens, 60.0, used=used, waiting=waiting
    )


@given(durations, st.floats(0.0, 10.0), st.floats(1.0, 10.0), st.integers(1, 6000))
@settings(max_examples=60, deadline=None)
def test_a_dearer_rebuild_never_keeps_shorter_at_the_same_price(seen, price, factor, tokens):
    policy = taught(seen)
    leave(policy, 1, tokens, 50.0)
    stake = policy._stakes[policy.absences.get(1, "")]
    before = stake.stop(price)
    stake.at_stake *= factor
    assert stake.stop(price) >= before


@given(durations, others, looks, st.floats(0.01, 100.0))
@settings(max_examples=30, deadline=None)
def test_decisions_do_not_depend_on_how_fast_the_engine_is(seen, away, look, factor):
    """Only the ratio of the two constants counts (but for rounding: a power of two)."""
    factor = 2.0 ** round(math.log2(factor))
    slow = crowd(seen, away, token_s=1e-3, token2_s=1e-7)
    fast = crowd(seen, away, token_s=1e-3 * factor, token2_s=1e-7 * factor)
    used, waiting = look
    found = [leave(policy, 99, 3000, 60.0, used=used, waiting=waiting) for policy in (slow, fast)]
    assert found[0] == found[1]


@given(st.integers(0, 100), st.lists(st.tuples(st.floats(0.0, 9.0), st.integers(1, 30)), max_size=12))
@settings(deadline=None)
def test_who_bids_more_than_the_price_fits(room, bids):
    price = clearing_price(room, bids)
    assert sum(blocks for bid, blocks in bids if bid > price) <= room
    if price:
        assert sum(blocks for bid, blocks in bids if bid >= price) > room


def test_a_meter_adds_up_a_price_that_changes():
    meter = Meter()
    meter.set(2.0, 10.0)
    meter.set(0.5, 14.0)
    assert meter.total(16.0) == 2.0 * 4 + 0.5 * 2
    assert meter.total(12.0) == 8.0  # not before the last change


def test_durations_are_bounded_and_the_newest_count():
    book = Durations(window=4, least=2)
    for seconds in (1.0, 2.0, 3.0, 4.0, 5.0, 6.0):
        book.add(["bash"], seconds, True)
    book.add(["bash"], 9.0, False)
    curve, chance = book.curve(["bash"], lambda group: [7.0])
    assert list(curve.ages) == [0.0, 4.0, 5.0, 6.0]
    assert curve.alive == pytest.approx([1.0, 4 / 5, 3 / 5, 2 / 5])  # 7 and 9 s are censored
    assert chance == (3 + 1) / (4 + 1)
    assert book.curve(["other"], lambda group: []) is None


def test_tools_beyond_all_bounds_are_forgotten():
    book = Durations(window=2, least=1)
    for i in range(5000):
        book.add([i], 1.0, True)
    assert book.curve([0], lambda group: []) is None
    assert book.curve([4999], lambda group: []) is not None


@pytest.mark.parametrize(
    "knobs",
    [{"by": "luck"}, {"least": 0}, {"window": 0}, {"window": True}, {"decay": "cubic"}, {"half_life": 0.0},
     {"half_life": INF}, {"price": "free"}, {"firm": 1}, {"price": "shortage", "firm": True}, {"waiting": -1},
     {"token_s": -1.0}, {"token_s": 0.0, "token2_s": 0.0}],
)  # fmt: skip
def test_wrong_knobs_are_refused_by_name(knobs):
    with pytest.raises(ValueError, match=next(iter(knobs))):
        Survival(**knobs)


def test_empty_contexts_are_nobodys_problem():
    policy = Survival()
    assert leave(policy, 1, 0, 0.0, used=TOTAL) >= 0.0
    assert blocks_for(0) == 0


def left(running=0, threads=40, total=4000, **knobs):
    """A policy after ``threads`` threads left 300 blocks each, 250 of them the same, a second apart."""
    policy = Survival(least=INF, half_life=100.0, **knobs)
    for i in range(threads):
        policy.look(EngineView(0, True, running, 0, total, running), 0, float(i))
        policy.idle(Away(i, "", 4800, "t", 16, 0, prompt=((7, 4000), (100 + i, 784))), float(i))
    return policy, [event.keep_price for event in policy.events]


def test_what_contexts_begin_with_alike_takes_room_once():
    """2 250 blocks of 4 000, not 12 000."""
    policy, prices = left()
    assert prices == [0.0] * 40, "all fit, so that keeping costs nothing"
    assert {policy.absences.get(i, "").blocks for i in range(40)} == {50}
    _, prices = left(shared_prefix=False)
    assert [price > 0.0 for price in prices] == [False] * 13 + [True] * 27


def test_a_shared_prefix_takes_no_room_where_calls_run():
    """It is in what they use: 500 blocks are enough for 10 threads; with nobody running 750 are."""
    assert left(1, 10, 500)[1][1:] == [0.0] * 9, "the first alone counts whole"
    assert max(left(0, 10, 500)[1]) > 0.0
    assert left(0, 10, 750)[1] == [0.0] * 10


def test_the_last_of_several_has_the_prefix_at_stake():
    policy, _ = left(threads=3)
    whole = Survival(shared_prefix=False, least=INF)
    whole.look(EngineView(0, True, 0, 0, 4000), 0, 0.0)
    whole.idle(Away(0, "", 4800), 0.0)
    policy.end(0, 5.0)
    assert policy.absences.get(1, "").blocks == 50
    policy.absences.get(2, "").until = 4.0  # given up
    policy.look(EngineView(0, True, 0, 0, 4000), 0, 6.0)
    policy.idle(Away(9, "", 160, "t", 16, 0, prompt=((9, 100),)), 6.0)
    last, alone = policy.absences.get(1, ""), whole.absences.get(0, "")
    assert last.blocks == 300
    assert policy._stakes[last].at_stake == whole._stakes[alone].at_stake
    for i in (1, 2, 9):
        policy.end(i, 50.0)
    assert (policy._shared.once, policy._shared._there) == ({}, {})
