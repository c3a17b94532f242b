"""The plain cap on programs, and no gate at all, call by call."""

import pytest

from systems.catalog import CatalogError, build_gate, load_system
from systems.gates.program_cap import ProgramCap
from systems.protocols import Resume
from vocabulary import INF, Call, Usage

NOTHING = Usage(0.0, 0.0, 0.0)


def call(seq, program):
    return Call(seq, program, "", 0, 10)


def asked(gate, *programs):
    return [gate.request(call(seq, program), [], 0.0) for seq, program in enumerate(programs)]


def test_open_lets_everybody_in():
    gate = build_gate(load_system("vllm-opt"))
    assert asked(gate, 1, 2, 3, 1) == [True] * 4
    gate.end(1, 1.0)
    assert (gate.tick([], 1.0), gate.next_tick()) == ([], INF)


def test_a_program_that_is_inside_keeps_its_place_between_calls():
    gate = ProgramCap(programs=2)
    assert asked(gate, 1, 2, 3, 1) == [True, True, False, True]
    for seq, program in ((0, 1), (1, 2), (3, 1)):
        gate.finish(call(seq, program), NOTHING, 1.0)
    gate.abort(call(4, 2), NOTHING, 1.0)
    assert gate.tick([], 1.0) == []
    assert asked(gate, 1, 2, 3) == [True, True, False]


def test_places_go_by_the_first_call_of_each_program():
    gate = ProgramCap(programs=1)
    assert asked(gate, 1, 3, 2, 3) == [True, False, False, False]
    gate.end(1, 1.0)
    assert asked(gate, 2, 4) == [False, False], "a free place is for who waited"
    assert gate.tick([], 1.0) == [Resume(3)]
    assert gate.tick([], 1.0) == []
    assert asked(gate, 3, 2) == [True, False]
    gate.end(3, 2.0)
    assert gate.tick([], 2.0) == [Resume(2)]


def test_a_free_place_is_taken_at_once_when_nobody_waits():
    gate = ProgramCap(programs=1)
    asked(gate, 1)
    gate.end(1, 1.0)
    assert asked(gate, 2, 3) == [True, False]


def test_who_left_the_door_keeps_the_rank_but_holds_nobody_up():
    gate = ProgramCap(programs=1)
    asked(gate, 1, 2, 3, 4)
    gate.abort(call(1, 2), NOTHING, 1.0)
    gate.end(1, 2.0)
    assert gate.tick([], 2.0) == [Resume(3)]
    assert asked(gate, 2) == [False]
    gate.end(3, 3.0)
    assert gate.tick([], 3.0) == [Resume(2)], "before 4, which came later"


def test_a_program_that_ends_at_the_door_is_forgotten():
    gate = ProgramCap(programs=1)
    asked(gate, 1, 2, 3)
    gate.end(2, 1.0)
    gate.end(1, 1.0)
    assert gate.tick([], 1.0) == [Resume(3)]
    gate.end(9, 1.0)


def test_several_places_at_once():
    gate = ProgramCap(programs=3)
    assert asked(gate, *range(6)) == [True] * 3 + [False] * 3
    for program in (0, 2):
        gate.end(program, 1.0)
    assert gate.tick([], 1.0) == [Resume(3), Resume(4)]


@pytest.mark.parametrize("text", ["0", "-1", "2.5", "true", "many", "inf"])
def test_the_number_of_programs_is_one(text):
    with pytest.raises(CatalogError, match="programs must be a whole number of at least 1, got"):
        load_system("vllm-opt", gate="program-cap", knobs={"gate.programs": text})


def test_knobs_and_names():
    spec = load_system("vllm-opt", gate="program-cap", knobs={"gate.programs": "8"})
    assert dict(spec.gate_knobs) == {"lease_s": 0.0, "programs": 8, "release": True}
    assert build_gate(spec).programs == 8
    assert load_system("vllm-opt", gate="program-cap").digest != spec.digest
    with pytest.raises(CatalogError, match=r"unknown program-cap knob 'program'\. Did you mean programs"):
        load_system("vllm-opt", gate="program-cap", knobs={"gate.program": 8})


def test_a_gate_from_outside():
    spec = load_system("systems.gates.program_cap:ProgramCap", knobs={"gate.programs": 3})
    assert build_gate(spec).programs == 3
    assert (spec.scheduler, dict(spec.gate_knobs)["programs"]) == ("fcfs", 3)


def test_without_releases_a_lease_takes_places_back():
    with pytest.raises(CatalogError, match="release off needs a lease_s above 0"):
        load_system("vllm-opt", gate="program-cap", knobs={"gate.release": False})
    gate = ProgramCap(programs=1, release=False, lease_s=60.0)
    assert asked(gate, 1, 2) == [True, False]
    gate.end(1, 1.0)
    assert (gate.tick([], 1.0), gate.next_tick()) == ([], INF), "a call is in flight: no lease runs"
    gate.finish(call(0, 1), NOTHING, 10.0)
    assert gate.next_tick() == 70.0
    assert gate.tick([], 69.0) == []
    assert gate.tick([], 70.0) == [Resume(2)]
    gate.finish(call(1, 2), NOTHING, 80.0)
    assert asked(gate, 2) == [True], "who comes back in time keeps the place"
    assert gate.next_tick() == INF


def test_what_it_did_is_told():
    gate = ProgramCap(programs=1)
    asked(gate, 1, 2, 2)
    gate.end(1, 3.0)
    gate.tick([], 3.0)
    told = [(event.time, event.program, event.what, event.reason) for event in gate.events]
    assert told == [
        (0.0, 1, "admit", "a place"),
        (0.0, 2, "hold", "places taken"),
        (3.0, 1, "release", "end"),
        (3.0, 2, "admit", "a place"),
    ]
