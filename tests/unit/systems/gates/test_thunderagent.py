"""ThunderAgent's gate, event by event; the ten behaviours are in tests/golden."""

import re
from pathlib import Path

import pytest

from systems.catalog import CatalogError, build_gate, load_system
from systems.gates.thunderagent import ThunderAgent
from systems.protocols import Pause, Resume
from tests.gate_host import NOTHING
from tests.unit.systems.gates.doors import host, running
from vocabulary import INF, Call, EngineView

# letting in


def test_a_new_program_goes_on_where_it_fits_and_nobody_waits():
    door = host(1600)
    assert [door.ask(0, 1000), door.ask(1, 600)][1].seq in door.inside
    waiting = [door.ask(2, 100), door.ask(3, 16)]
    assert not any(call.seq in door.inside for call in waiting)
    assert [(e.program, e.reason) for e in door.events if e.what == "hold"] == [(2, "no room"), (3, "line")]


def test_a_program_that_runs_always_passes():
    door = running(800, 800)
    call = door.ask(0, 5000)
    assert call.seq in door.inside
    assert door.gate.booked() == {0: 5800}


def test_alone_on_an_engine_every_program_fits_and_is_not_paused():
    door = host(1600)
    door.done(door.ask(0, 9000), 9100)
    door.until(30.0)
    assert (door.pauses, door.held) == ([], {})
    assert door.ask(1, 16).program in door.held


def test_new_programs_go_where_most_room_is():
    door = host(1600, 3200, 3200)
    for program in range(4):
        door.ask(program, 800)
    assert [engine for *_, engine in door.placed] == [1, 2, 1, 2]


def test_who_returns_goes_before_who_is_new_and_the_shorter_before_the_longer():
    def order(**knobs):
        door = host(4000, **knobs)
        for program in (0, 1):
            door.turn(program, 400)
        blocker = door.ask(9, 3200)
        door.turn(0, 500)
        door.done(blocker, 4000)  # outgrown: 0 and 1 pause
        door.until(5.0)
        assert door.pauses == [1, 0]
        for program, tokens in ((5, 16), (0, 500), (1, 400), (6, 300)):
            door.ask(program, tokens)
        door.end(9)
        door.until(10.0)
        return [program for time, program, _ in door.placed if time == 10.0]

    assert order() == [1, 0, 5, 6]
    assert order(phase_priority=False) == [5, 6, 1, 0]


@pytest.mark.parametrize(
    ("restore", "order"), [("shortest", [3, 1, 2]), ("longest", [2, 1, 3]), ("arrival", [1, 2, 3])]
)
def test_the_order_of_going_on_is_not_that_of_pausing(restore, order):
    door = host(1600, restore=restore, event_driven=True)
    whole = door.ask(0, 1600)
    for program, tokens in ((1, 800), (2, 1200), (3, 500)):
        door.until(door.now + 1.0)
        door.ask(program, tokens)
    door.done(whole, 1600)
    for program in (0, *order):
        door.end(program)
    assert [program for _, program, _ in door.placed[1:]] == order


def test_a_random_order_is_a_draw_that_repeats_itself():
    def order(salt):
        door = host(1600, restore="random", salt=salt)
        door.ask(99, 1600)
        for program in range(8):
            door.ask(program, 1600)
        door.end(99)
        for _ in range(8):
            door.until(door.now + 5.0)
            door.end(door.placed[-1][1])
        return [program for _, program, _ in door.placed[1:]]

    assert order(1) == order(1) != order(2)
    assert sorted(order(1)) == list(range(8))


def test_shares_of_the_kv():
    door = host(16_000, lambda_min=0.5)
    assert door.ask(0, 4000).seq in door.inside
    assert door.ask(1, 4000).seq in door.inside
    assert 2 in {call.program for call in [door.ask(2, 16)] if call.program in door.held}
    tight = host(16_000, lambda_max=0.5)
    for program in (0, 1):
        tight.turn(program, 4000)
    tight.turn(0, 5000)
    tight.until(5.0)
    assert tight.pauses == [1], "9 000 of 8 000"


# pausing


def test_acting_programs_pause_at_once_and_reasoning_ones_when_their_turn_ends():
    door = running(400, 800, 800)
    calls = [door.ask(program, 1700) for program in (1, 2)]  # 1 800 too many
    door.until(5.0)
    assert (door.pauses, door.what("mark")) == ([0], [(5.0, 1)])
    door.until(20.0)
    assert door.pauses == [0]
    door.done(calls[0], 1800)
    assert door.pauses == [0, 1]
    assert [(e.program, e.reason) for e in door.events if e.what == "pause"] == [
        (0, "over capacity"),
        (1, "turn over"),
    ]


def test_where_a_reasoning_one_must_leave_and_frees_enough_acting_ones_are_spared():
    door = running(400, 800, 800)
    for program in (1, 2):
        door.ask(program, 1600)  # 1 600 too many
    door.until(5.0)
    assert (door.pauses, door.what("mark")) == ([], [(5.0, 1)])


def test_who_has_been_away_for_long_is_no_victim():
    door = running(400, 800, 800, decay="exponential")
    door.until(20.0)
    for program in (1, 2):
        door.ask(program, 1010)
    door.until(25.0)
    assert (door.pauses, door.what("mark")) == ([], [(25.0, 1)]), "400 tokens away since 25 s weigh 1"


@pytest.mark.parametrize("frees", [True, False])
def test_a_pause_says_whether_the_kv_is_to_go(frees):
    gate = ThunderAgent(decay="none", buffer=0, pause_frees_kv=frees)
    views = [EngineView(0, True, 0, 0, 100)]
    for program in (0, 1):
        call = Call(program, program, "", 0, 800)
        assert gate.request(call, views, 0.0)
        gate.count(call, 800 + 200 * program, 0.0)
        gate.finish(call, NOTHING, 0.0)
    assert gate.tick(views, 0.0) == []
    assert gate.next_tick() == 5.0
    assert gate.tick(views, 5.0) == [Pause(0, 0, frees)]


def test_a_marked_program_that_fits_again_stays():
    door = running(400, 800)
    calls = [door.ask(0, 800), door.ask(1, 800)]
    door.until(5.0)
    assert door.what("mark") == [(5.0, 0)]
    more = door.ask(0, 300)
    assert door.held == {0: [more]}, "a second turn of it waits: it is about to leave"
    door.done(calls[1], 16)
    door.until(10.0)
    assert door.what("unmark") == [(10.0, 0)]
    assert more.seq in door.inside
    assert door.pauses == []


def test_a_marked_program_that_waits_is_let_in_after_the_longest_hold():
    door = running(400, 800, max_hold_s=60.0)
    for program in (0, 1):
        door.ask(program, 800)
    door.until(5.0)
    door.ask(0, 800)
    door.until(64.0)
    assert 0 in door.held
    door.until(65.0)
    assert (door.held, door.what("force")) == ({}, [(65.0, 0)])


def test_without_phases_the_shortest_pauses_whatever_it_does():
    door = running(400, 800, phase_priority=False)
    door.ask(0, 500)
    door.until(5.0)
    assert (door.pauses, door.what("mark")) == ([], [(5.0, 0)])
    usual = running(400, 800)
    usual.ask(0, 500)
    usual.until(5.0)
    assert usual.pauses == [1]


def test_paused_programs_that_find_room_go_on_at_once():
    door = running(400, 800)
    door.turn(1, 1100)
    door.until(5.0)
    assert door.pauses == [0]
    door.end(1)
    assert door.ask(0, 400).seq in door.inside
    assert door.events[-1].what == "resume"


# where to


def two_engines(**knobs):
    """Program 0 was paused on engine 0, which is full; engine 1 is empty."""
    door = host(1600, 1600, **knobs)
    for program, tokens in ((0, 400), (1, 400), (2, 300)):
        door.turn(program, tokens)
    door.turn(2, 1500)
    door.end(1)
    door.until(5.0)
    assert door.pauses == [0]
    door.ask(0, 400)
    door.until(10.0)
    return door


def test_with_a_global_queue_it_goes_elsewhere():
    door = two_engines()
    assert door.placed[-1] == (5.0, 0, 1)
    assert door.events[-1].what == "move"


def test_without_one_it_waits_for_its_own_engine():
    door = two_engines(global_queue=False)
    assert 0 in door.held
    door.ask(3, 16)
    door.until(15.0)
    assert door.placed[-1] == (15.0, 3, 1), "others are not behind it"
    door.end(2)
    door.until(20.0)
    assert door.placed[-1] == (20.0, 0, 0)
    dead = two_engines(global_queue=False)
    dead.dead = {0}
    dead.until(30.0)
    assert dead.placed[-1][1:] == (0, 1), "there is no more to wait for"


# time


def test_it_sleeps_when_nothing_can_change():
    door = host(lease_s=60.0)
    assert door.gate.next_tick() == INF
    call = door.ask(0, 400)
    door.until(3.0)
    door.done(call, 400)
    assert door.gate.next_tick() == 5.0
    door.until(5.0)
    assert door.gate.next_tick() == 63.0, "only the lease is left"
    door.until(63.0)
    assert (door.gate.next_tick(), door.what("expire")) == (INF, [(63.0, 0)])


def test_without_leases_nobody_is_forgotten():
    door = host(lease_s=0.0)
    door.turn(0, 400)
    door.until(1e6)
    assert (door.gate.next_tick(), door.gate.booked()) == (INF, {0: 400})


def test_a_longest_hold_ends_between_ticks():
    door = host(1600, max_hold_s=7.0)
    door.ask(0, 1600)
    door.until(1.0)
    late = door.ask(1, 1600)
    door.until(7.9)
    assert late.seq not in door.inside
    door.until(8.0)
    assert late.seq in door.inside
    assert door.what("force") == [(8.0, 1)]


# knobs


@pytest.mark.parametrize(
    ("knob", "value", "says"),
    [
        ("dt", 0, "dt must be a number above 0"),
        ("lambda_max", 0, "lambda_max must be a number above 0"),
        ("base", 1, "base must be a number above 1"),
        ("decay", "quick", "decay must be one of none, exponential, linear"),
        ("decay_on", "pause", "decay_on must be one of both, restore"),
        ("victims", "tallest", "victims must be one of shortest, longest, random, lru, recompute, optimal"),
        ("restore", "tallest", "restore must be one of shortest, longest, arrival, random"),
        ("ageing_s", -1, "ageing_s must be a number of at least 0"),
        ("buffer", 1.5, "buffer must be a whole number"),
        ("release", 1, "release must be true or false"),
    ],
)
def test_bad_knobs_are_named(knob, value, says):
    with pytest.raises(CatalogError, match=says):
        load_system("vllm-opt", gate="thunderagent", knobs={f"gate.{knob}": value})


def test_the_gate_is_as_the_catalog_says():
    spec = load_system("thunderagent", knobs={"gate.dt": "2", "gate.shared_prefix": "true"})
    gate = build_gate(spec)
    assert (gate.dt, gate.decay, gate.reads_prompt) == (2.0, "exponential", True)
    assert dict(spec.gate_knobs)["victims"] == "shortest"
    assert not build_gate(load_system("thunderagent")).reads_prompt


def test_the_page_says_which_knobs_are_the_papers_arm():
    page = (Path(__file__).parents[4] / "docs" / "gates.md").read_text()
    command = re.search(r"```\n--system thunderagent (.*)\n```", page).group(1)
    knobs = dict(word.split("=") for word in command.replace("--knob ", "").split())
    spec = load_system("thunderagent", knobs=knobs)
    usual = dict(load_system("thunderagent").gate_knobs)
    changed = {knob: value for knob, value in spec.gate_knobs if usual[knob] != value}
    off = {"ageing_s": 0.0, "grace_s": 0.0, "max_hold_s": 0.0, "lease_s": 0.0, "origin_first": False}
    assert changed == {**off, "buffer": 0}
    gate = build_gate(spec)
    assert (gate.ageing_s, gate.buffer, gate.decay_on, gate.restore) == (0.0, 0, "both", "shortest")
    sentence = page[page.index("The rest of the paper is the default") :]
    named = re.findall(r"`(\w+)=([\w.]+)`", sentence[: sentence.index("No knob takes back")])
    assert len(named) == 8
    assert all(str(usual[knob]) in (value, f"{value}.0") for knob, value in named)


def test_resumes_name_their_engine():
    gate = ThunderAgent(decay="none", buffer=0)
    views = [EngineView(0, True, 0, 0, 100), EngineView(1, True, 0, 0, 50)]
    calls = [Call(i, i, "", 0, 1600) for i in range(3)]
    assert [gate.request(call, views, 0.0) for call in calls] == [True, True, False]
    assert [gate.place(call, views, 0.0) for call in calls] == [0, 1, None]
    gate.end(1, 1.0)
    assert gate.tick(views, 1.0) == []
    assert gate.tick(views, 5.0) == [Resume(2, 1)]
