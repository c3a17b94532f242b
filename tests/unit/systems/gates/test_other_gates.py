"""progress-ttl and las-fairness: what each does on its own."""

from systems.gates.las_fairness import LasFairness
from systems.gates.progress_ttl import ProgressTtl
from tests.gate_host import Host
from vocabulary import Usage

KV = 16_000


# progress-ttl


def test_who_is_away_for_too_long_gives_the_place_away():
    door = Host(ProgressTtl(ttl_s=20.0), KV)
    door.turn(0, 9000)
    waiting = door.ask(1, 9000)
    door.until(19.0)
    assert waiting.seq not in door.inside
    door.until(20.0)
    assert (door.pauses, waiting.seq in door.inside) == ([0], True)
    assert [e.reason for e in door.events if e.what == "pause"] == ["overdue"]


def test_who_makes_progress_keeps_it():
    door = Host(ProgressTtl(ttl_s=20.0), KV)
    waiting = None
    for _ in range(20):
        door.turn(0, 9000)
        waiting = waiting or door.ask(1, 9000)
        door.until(door.now + 15.0)
    assert (door.pauses, waiting.seq in door.inside) == ([], False)


def test_over_capacity_the_longest_away_leaves_then_whose_call_began_last():
    door = Host(ProgressTtl(ttl_s=1000.0, buffer=0), KV)
    for program in range(4):
        door.turn(program, 4000)
        door.until(door.now + 0.5)
    door.ask(0, 4000)
    door.until(4.0)
    door.ask(3, 9000)
    door.until(5.0)
    assert door.pauses == [1, 2], "5 000 too many"
    for program in (0, 3):
        door.until(door.now + 1.0)
        door.ask(program, 9000)
    door.until(10.0)
    assert door.what("mark") == [(10.0, 3)]


def test_it_is_first_come_first_served():
    door = Host(ProgressTtl(buffer=0), KV)
    door.ask(0, 16_000)
    for program, tokens in ((1, 9000), (2, 100), (3, 5000)):
        door.until(door.now + 0.5)
        door.ask(program, tokens)
    door.end(0)
    door.until(5.0)
    assert [program for time, program, _ in door.placed if time == 5.0] == [1, 2, 3]


# las-fairness


def served(door, program, tokens, service):
    """A turn that received so much service."""
    call = door.ask(program, tokens)
    door.inside.pop(call.seq)
    door.gate.count(call, tokens, door.now)
    door.gate.finish(call, Usage(service, 1.0, 0.0), door.now)
    door.tick()


def test_who_has_had_most_pauses_and_who_has_had_least_goes_on():
    door = Host(LasFairness(buffer=0), KV)
    for program, service in ((0, 5.0), (1, 50.0), (2, 20.0)):
        served(door, program, 5000, service)
    served(door, 0, 7000, 1.0)
    door.until(5.0)
    assert door.pauses == [1]
    served(door, 2, 12_000, 5.0)
    door.until(10.0)
    assert door.pauses == [1, 2]
    for program, tokens in ((1, 9500), (2, 5000), (3, 100)):
        door.ask(program, tokens)
    door.until(14.0)
    door.end(0)
    door.until(15.0)
    assert [program for time, program, _ in door.placed if time == 15.0] == [3, 2]
    assert list(door.held) == [1]


def test_a_reasoning_program_with_most_service_is_marked():
    door = Host(LasFairness(buffer=0), KV)
    for program, service in ((0, 5.0), (1, 50.0)):
        served(door, program, 8000, service)
    door.ask(1, 9000)
    door.until(5.0)
    assert (door.pauses, door.what("mark")) == ([], [(5.0, 1)])


def test_ageing_lets_who_had_much_go_on():
    door = Host(LasFairness(buffer=0, ageing_s=30.0), KV)
    served(door, 1, 8000, 100.0)
    served(door, 0, 8000, 1.0)
    served(door, 0, 9000, 1.0)
    door.until(5.0)
    assert door.pauses == [1]
    old = door.ask(1, 8000)
    for turn in range(10):
        door.ask(10 + turn, 7000)
        door.until(door.now + 5.0)
        for call in [door.calls[seq] for seq in door.inside if door.calls[seq].program >= 10]:
            door.done(call, 7000)
            door.end(call.program)
    assert {program for time, program, _ in door.placed if time > 5.0} == set(range(10, 15))
    assert old.seq not in door.inside, "the engine is kept clear for it since 35 s, but program 0 stays"
    door.end(0)
    door.until(door.now + 5.0)
    assert old.seq in door.inside
