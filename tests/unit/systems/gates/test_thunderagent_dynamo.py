"""The gate that follows NVIDIA's port of ThunderAgent, where it differs from the original and from ours."""

import pytest

from systems.catalog import CatalogError, load_system
from systems.gates.thunderagent_dynamo import ThunderAgentDynamo
from tests.gate_host import Host

KV = 16_000
"""Pause above 15 200 tokens down to 12 800, resume up to 13 600."""


def host(*kv, **knobs):
    return Host(ThunderAgentDynamo(**{"buffer": 0, **knobs}), *(kv or (KV,)))


def test_it_pauses_above_95_percent_down_to_80_and_resumes_up_to_85():
    door = host()
    for program in range(4):
        door.turn(program, 3000)
    door.turn(0, 6000)
    door.until(5.0)
    assert door.pauses == [], "15 000"
    door.turn(0, 6400)
    door.until(10.0)
    assert door.pauses == [1], "15 400; 12 400 are left"
    waiting = door.ask(1, 3000)
    door.until(15.0)
    assert waiting.seq not in door.inside, "15 400 > 13 600"
    door.turn(0, 4000)
    door.until(20.0)
    assert waiting.seq in door.inside


def test_new_programs_are_let_in_up_to_all_of_it():
    door = host()
    assert [door.ask(program, 8000).seq in door.inside for program in range(3)] == [True, True, False]


def test_a_program_whose_first_step_paused_goes_with_the_new_and_idle_ones_last():
    door = host()
    for program, steps in ((0, 2), (1, 1), (2, 2)):
        for _ in range(steps):
            door.turn(program, 2000 + program)
    door.turn(9, 4000)
    door.ask(9, 13_000)
    door.until(5.0)
    assert door.pauses == [0, 1, 2]
    for program in (2, 1):
        door.ask(program, 2000 + program)
    door.end(9)
    door.until(10.0)
    assert [program for time, program in door.what("resume") if time == 10.0] == [2, 1, 0]
    assert [program for time, program, _ in door.placed if time == 10.0] == [2, 1], "0 had no request"


def test_marking_lowers_nothing_here_either():
    door = host()
    for program in range(4):
        door.turn(program, 3000)
    for program in range(4):
        door.ask(program, 3900)
    door.until(5.0)
    assert [program for _, program in door.what("mark")] == [0, 1, 2, 3], "15 600"


def test_requests_in_flight_are_a_second_dimension():
    door = host(most_running=4)
    for program in range(3):
        door.ask(program, 100)
    door.turn(3, 100)
    assert door.ask(4, 100).seq in door.inside, "an acting program holds no slot"
    assert door.ask(5, 100).seq not in door.inside
    door.until(5.0)
    assert [program for _, program in door.what("mark")] == [0, 1, 2, 4], "4 > .95 of 4"
    for seq in list(door.inside):
        door.done(door.calls[seq], 100)
    door.until(10.0)
    assert 5 not in door.held


def test_new_programs_go_to_the_least_decayed_load():
    door = host(KV, KV)
    door.turn(0, 8000)
    door.ask(1, 4000)
    door.until(4.0)
    door.ask(2, 100)
    assert [engine for *_, engine in door.placed] == [0, 1, 0], "8 000 tokens away since 4 s weigh 500"


def test_a_request_that_leaves_the_queue_is_rolled_back():
    door = host()
    door.turn(0, 6000)
    door.turn(1, 9000)
    door.turn(1, 9900)
    door.until(5.0)
    assert door.pauses == [0]
    door.fail(door.ask(0, 7000))
    assert (door.gate.reasoning(), door.gate._programs[0].tokens) == (0, 6000)
    door.ask(2, 9000)
    door.fail(door.held[2][0])
    assert door.what("release") == [(5.0, 2)]
    assert 2 not in door.gate._programs


def test_every_end_of_a_turn_closes_it_but_concurrent_ones_are_one():
    door = host()
    for way in (lambda c: door.done(c, 500), lambda c: door.done(c, None), door.fail):
        way(door.ask(0, 400))
        assert door.gate.reasoning() == 0
    first, _ = door.ask(0, 400), door.ask(0, 400)
    door.done(first, 500)
    assert (door.gate.reasoning(), len(door.inside)) == (0, 1)


def test_the_size_of_the_kv_is_read_each_time_and_the_dead_are_left():
    door = host(KV, KV)
    door.turn(0, 6000)
    door.dead = {0}
    assert door.inside[door.ask(0, 6000).seq] == 1
    door.kv[1] = 3200
    door.until(5.0)
    assert door.what("mark") == [(5.0, 0)]
    door.dead = {0, 1}
    assert door.ask(7, 100).seq in door.inside, "no engine to reason about: it goes unplaced"


def test_who_is_idle_for_long_is_forgotten():
    door = host(idle_ttl_s=50.0)
    door.turn(0, 9000)
    busy = door.ask(1, 100)
    door.until(49.0)
    assert door.what("expire") == []
    door.until(50.0)
    assert door.what("expire") == [(50.0, 0)]
    door.until(500.0)
    assert door.what("expire") == [(50.0, 0)], "a call is in flight"
    door.done(busy, 100)


def test_the_longest_hold():
    door = host(max_hold_s=60.0)
    door.ask(0, 15_000)
    door.until(1.0)
    late = door.ask(1, 15_000)
    door.until(60.0)
    assert late.seq not in door.inside
    door.until(61.0)
    assert (late.seq in door.inside, door.what("force")) == (True, [(61.0, 1)])


def test_its_bounds_have_an_order():
    with pytest.raises(
        CatalogError, match=r"pause_to and resume_to must be at most pause_at, got 0\.99, 0\.85"
    ):
        load_system("vllm-opt", gate="thunderagent-dynamo", knobs={"gate.pause_to": 0.99})
