"""ThunderAgent's gate where clients give up, come back, and end."""

from tests.gate_host import NOTHING
from tests.unit.systems.gates.doors import host, running


def test_who_leaves_the_door_was_never_there():
    door = running(400, 800)
    gone = door.ask(7, 5000)
    door.fail(gone)
    assert (door.gate.booked(), door.held) == ({0: 1200}, {})
    assert door.ask(8, 5000).seq not in door.inside
    again = door.ask(8, 16)
    door.fail(door.held[8][0])
    assert door.held == {8: [again]}
    assert door.gate.next_tick() == 5.0


def test_how_long_it_waited_is_known_for_a_lease():
    def longest(back, **knobs):
        door = running(400, 800, ageing_s=0.0, max_hold_s=100.0, **knobs)
        calls = [door.ask(0, 400), door.ask(1, 800)]
        door.fail(door.ask(7, 5000))
        door.until(back)
        door.ask(7, 5000)
        door.until(back + 120.0)
        assert not any(call.seq not in door.inside for call in calls)
        return door.what("force"), door.what("expire"), door.what("release")

    assert longest(29.0, lease_s=30.0) == ([(100.0, 7)], [], [])
    assert longest(31.0, lease_s=30.0) == ([(131.0, 7)], [(30.0, 7)], []), "a new one"
    assert longest(29.0, lease_s=0.0) == ([(129.0, 7)], [], [(0.0, 7)]), "nothing would ever forget it"


def test_who_was_let_in_has_not_waited():
    door = running(400, 800, ageing_s=0.0, max_hold_s=100.0)
    door.fail(door.ask(7, 1000))
    door.end(0)
    door.end(1)
    door.until(50.0)
    door.turn(7, 400)
    door.turn(8, 800)
    door.ask(8, 1100)
    door.until(55.0)
    assert door.pauses == [7]
    door.ask(7, 400)
    door.until(160.0)
    assert door.what("force") == [(155.0, 7)]


def test_an_aged_program_that_gives_up_lets_the_others_by():
    door = running(400, 800, ageing_s=10.0, grace_s=0.0, event_driven=True)
    busy = door.ask(1, 800)
    big = door.ask(5, 1200)
    door.until(15.0)
    door.end(0)
    small = door.ask(6, 100)
    door.until(20.0)
    assert small.seq not in door.inside, "the engine is kept clear"
    door.fail(big)
    assert small.seq in door.inside
    door.done(busy, 800)


def test_an_engine_is_kept_clear_for_who_gave_up_not_for_who_came_back():
    door = host(1600, ageing_s=10.0, event_driven=True)
    busy = door.ask(0, 800)
    big = door.ask(1, 1200)
    door.until(15.0)
    door.fail(big)
    big = door.ask(1, 1200)
    door.done(busy, 800)
    door.end(0)
    assert big.seq in door.inside
    door.done(big, 1200)
    assert door.ask(2, 400).seq in door.inside


def test_an_engine_is_not_kept_clear_for_who_has_waited_less():
    door = host(1600, ageing_s=10.0)
    busy = door.ask(0, 800)
    door.fail(door.ask(1, 1200))
    door.until(1.0)
    second = door.ask(2, 1500)
    door.until(15.0)
    door.fail(second)
    first = door.ask(1, 1200)
    door.done(busy, 800)
    door.end(0)
    door.until(20.0)
    assert first.seq in door.inside, "5 s of grace are left to the other"


def test_ends_without_an_effect():
    door = host(release=False)
    door.ask(0, 400)
    door.gate.end(0, 1.0)
    door.gate.end(99, 1.0)
    assert door.gate.booked() == {0: 400}
    door = host()
    call = door.ask(0, 400)
    door.gate.end(0, 1.0)
    door.gate.count(call, 500, 1.0)
    door.gate.finish(call, NOTHING, 1.0)
    door.gate.abort(call, NOTHING, 1.0)
    assert (door.gate.booked(), door.gate.reasoning()) == ({}, 0)


def test_usage_of_nothing_is_no_usage():
    door = host()
    door.done(door.ask(0, 400), 0)
    assert door.gate.booked() == {0: 400}
