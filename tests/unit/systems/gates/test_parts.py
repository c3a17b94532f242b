"""What gates by capacity are made of: books, line, victims, shared prefixes, ticks."""

import itertools
import random
from statistics import fmean

import pytest

from systems.gates.ledger import ACTIVE, MARKED, PAUSED, Ledger, Program
from systems.gates.line import Line
from systems.gates.ticking import after
from systems.gates.victims import ORDERS, acting_first, cheapest, chosen, needed
from vocabulary import Call
from workloads.dryrun import dry_run
from workloads.load import workload


def program(number, tokens=0, booked=None, **more):
    return Program(number, 0.0, 0.0, tokens=tokens, booked=tokens if booked is None else booked, **more)


# ledger


def test_calls_are_counted_one_by_one():
    books = Ledger()
    one = books.known(Call(1, 5, "", 0, 100), 2.0)
    assert books.known(Call(2, 5, "", 1, 100), 3.0) is one
    assert one.heard == 3.0
    books.open(one, 1, 100)
    books.open(one, 2, 300)
    assert (one.size, one.acting, books.reasoning(), books.in_flight) == (400, False, 1, 2)
    assert books.close(one, 1) == 100
    assert books.close(one, 1) is None, "a call ends once"
    assert (one.size, one.acting) == (300, False)
    books.close(one, 2)
    assert (one.size, one.acting, books.reasoning(), books.in_flight) == (0, True, 0, 0)


def test_what_waits_is_needed_but_not_there():
    books, one = Ledger(), program(1, 1000)
    books.hold(one, 7, 1200)
    assert (one.size, one.need) == (1000, 1200)
    assert (books.unhold(one, 8), books.unhold(one, 7)) == (False, True)
    assert one.need == 1000
    books.hold(one, 9, 1500)
    books.let_in(one)
    assert (one.size, one.open, one.held) == (1500, {9: 1500}, {})


def test_marked_programs_move_to_books_of_their_own():
    books = Ledger()
    one = books.known(Call(1, 1, "", 0, 100), 0.0)
    books.enter(one, 2, 100)
    assert (books.load, books.leaving, books.inside) == ({2: 100}, {}, {2: 1})
    books.mark(one)
    books.book(one, 150)
    assert (one.state, books.load, books.leaving) == (MARKED, {}, {2: 150})
    books.unmark(one)
    assert (one.state, books.load, books.leaving) == (ACTIVE, {2: 150}, {})
    books.leave(one)
    assert (one.state, one.booked, books.load, books.inside) == (PAUSED, 0, {}, {})
    books.book(one, 70)
    assert books.load == {}, "who runs nowhere is booked nowhere"


def test_a_program_learns_what_the_host_is_off_by():
    one = program(1)
    assert one.estimate(1000) == 1000
    one.learn(1000, 1500, 1500)
    assert one.estimate(1000) == 1500
    one.learn(1000, 1100, 1100)
    assert one.estimate(1000) == 1300
    one.learn(10, 5000, 5000)
    assert one.ratio == (1.3 + 4.0) / 2, "within bounds"
    assert program(2).estimate(0) == 1


def test_replies_are_no_part_of_the_ratio():
    known, guessed = program(1), program(2)
    for reply in (900, 100):
        known.learn(100, None, 100 + reply)
        guessed.learn(100, 200, 200 + reply)
    assert (known.ratio, known.estimate(1000), known.estimate(1000, 512)) == (1.0, 1500, 1512)
    assert (guessed.ratio, guessed.estimate(1000)) == (2.0, 2500)
    known.learn(100, None, 40)
    assert known.estimate(1000) == 1333, "usage below the prompt: no reply"


SEQUENCES = [
    ("swe", "mini", 0.02), ("swe", "openhands-paper", 0.02), ("swe", "claude_code", 0.02),
    ("toolorchestra", "hle", 0.30), ("scienceagent", "paper", 0.10), ("chatbot", "paper", 0.15),
]  # fmt: skip


@pytest.mark.parametrize(("name", "preset", "each"), SEQUENCES)
def test_contexts_are_expected_as_they_come(name, preset, each):
    """Mean of estimate over truth within 4 %; single calls are off by what replies differ."""
    found = []
    for spec in workload(name).build(40, 1, preset, {}).programs:
        one = program(0)
        for call in dry_run(spec).calls:
            true = call.prompt_tokens + call.output_tokens
            if one.answered:
                found.append(one.estimate(call.prompt_tokens) / true)
            one.learn(call.prompt_tokens, None, true)
        assert one.ratio == 1.0, "the host knew the prompts"
    assert fmean(found) == pytest.approx(1.0, abs=0.04)
    assert fmean(abs(ratio - 1.0) for ratio in found) < each


# line


def test_the_line_is_by_group_and_rank_and_knows_who_waits_longest():
    line, who = Line(), {i: program(i, waits=9.0) for i in range(4)}
    line.put(who[0], (1, -1), (50.0,))
    line.put(who[1], (0, -1), (70.0,))
    line.put(who[2], (1, -1), (20.0,))
    line.put(who[3], (1, -1), (20.0,))
    assert (len(line), line.groups(), line.longest()) == (4, [(0, -1), (1, -1)], who[0])
    assert line.first((1, -1)) is who[2], "equal ranks: the lower number"
    line.put(who[0], (0, -1), (10.0,))
    assert (line.first((0, -1)), line.longest()) == (who[0], who[0]), "a new rank, the old arrival"
    for gone in (0, 1, 1):
        line.take(who[gone])
    assert (line.groups(), line.longest(), line.first((0, -1))) == ([(1, -1)], who[2], None)
    assert who[0] not in line
    assert who[3] in line
    back = program(4, waits=2.0)
    line.put(back, (1, -1), (90.0,))
    assert line.longest() is back, "who comes back waits since before"
    line.take(back)
    assert line.longest() is who[2]


# victims


@pytest.mark.parametrize(
    ("order", "taken"),
    [("shortest", [0, 2]), ("longest", [1]), ("lru", [2, 1]), ("recompute", [0, 2]), ("optimal", [2, 0])],
)
def test_the_orders(order, taken):
    those = [program(0, 40), program(1, 90), program(2, 50)]
    for one, heard in zip(those, (9.0, 5.0, 1.0), strict=True):
        one.heard = heard
    found = [p.id for p in chosen(order, those, 70, 2.0)]
    assert (sorted(found) if order == "optimal" else found) == (
        sorted(taken) if order == "optimal" else taken
    )


def test_random_is_a_draw_that_repeats_itself():
    those = [program(i, 10) for i in range(20)]
    draws = {salt: [p.id for p in chosen("random", those, 60, 2.0, salt)] for salt in range(4)}
    assert draws[1] == [p.id for p in chosen("random", those[::-1], 60, 2.0, 1)]
    assert len({tuple(draw) for draw in draws.values()}) == 4
    assert all(len(draw) == 6 for draw in draws.values())


def test_recompute_takes_who_costs_least_per_token_that_is_freed():
    fresh, faded = program(0, 100, booked=100), program(1, 60, booked=10)
    assert chosen("shortest", [fresh, faded], 5, 2.0) == [faded]
    assert chosen("recompute", [fresh, faded], 5, 2.0) == [fresh], "100^2 / 100 < 60^2 / 10"


@pytest.mark.parametrize("order", ORDERS)
def test_nobody_pauses_who_frees_nothing(order):
    assert chosen(order, [program(0, 50, booked=0), program(1, 60)], 10, 2.0)[0].id == 1
    assert chosen(order, [program(0, 50, booked=0)], 10, 2.0) == []
    assert chosen(order, [program(0, 6400, booked=100)], 10, 2.0) == [], "next to nothing"


@pytest.mark.parametrize("order", ORDERS)
def test_all_pause_where_all_do_not_suffice(order):
    assert sorted(p.id for p in chosen(order, [program(0, 5), program(1, 6)], 100, 2.0)) == [0, 1]


def cost(programs, power=2.0):
    return sum(p.tokens**power for p in programs)


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_optimal_is_the_cheapest_subset_of_all(power):
    rng = random.Random(7)
    for _ in range(60):
        those = [program(i, rng.randrange(1, 40)) for i in range(rng.randrange(1, 9))]
        for one in those:
            one.booked = rng.randrange(1, one.tokens + 1)
        need = rng.randrange(1, sum(p.booked for p in those) + 1)
        subsets = itertools.chain.from_iterable(
            itertools.combinations(those, n) for n in range(len(those) + 1)
        )
        best = min(cost(s, power) for s in subsets if sum(p.booked for p in s) >= need)
        found = cheapest(those, need, power)
        assert sum(p.booked for p in found) >= need
        assert cost(found, power) == pytest.approx(best)


def test_beyond_its_size_optimal_is_the_better_of_two_greedy_ones():
    rng = random.Random(3)
    those = [program(i, rng.randrange(1000, 90_000)) for i in range(200)]
    need = 1_000_000
    found = cheapest(those, need, 2.0)
    assert sum(p.booked for p in found) >= need
    spare = sum(p.booked for p in found) - need
    assert all(p.booked > spare for p in found), "nobody in it is spare"
    assert cost(found) <= min(cost(chosen(order, those, need, 2.0)) for order in ("shortest", "longest"))


def test_acting_ones_are_spared_where_reasoning_ones_free_enough():
    faded, away, busy = program(0, 500, booked=5), program(1, 300, booked=250), program(2, 300)
    busy.open[1] = 300
    assert acting_first("shortest", [faded, away, busy], 100, 2.0) == [away], (
        "shortest first, and that suffices"
    )
    assert acting_first("shortest", [faded, away, busy], 400, 2.0) == [away, busy]
    assert acting_first("shortest", [faded, busy], 200, 2.0) == [busy]


def test_needed_keeps_the_order():
    those = [program(0, 30), program(1, 10), program(2, 20)]
    assert [p.id for p in needed(those, 25)] == [0, 1], "20 of the 25 spare tokens"
    assert needed(those, 0) == those


# ticks


@pytest.mark.parametrize("period", [5.0, 0.1, 1 / 3, 7.0])
def test_ticks_are_whole_multiples_after_now(period):
    now = 0.0
    for turn in range(1, 2000):
        now = after(now, period)
        assert now == pytest.approx(turn * period, abs=1e-9)
