"""Behaviours 3, 4 and 5: what the front end does with clients that leave, with names, and with backends.

The original's faults here are its front end's: nobody takes a client's leaving from the queue, calls without
an id are all one program's, and the size of the KV is asked for once. ``CopiedFront`` is as few lines as
show them, around the faithful gate; ``Front`` does what our hosts do, around ours. The gateway's own tests
have the same over HTTP (tests/unit/systems/gateway).
"""

import itertools

from systems.gates.thunderagent import ThunderAgent
from systems.gates.thunderagent_code import ThunderAgentCode
from tests.gate_host import Host


class CopiedFront:
    """Requests wait for their program's resume, whether or not their client still does."""

    def __init__(self, *kv):
        self.host = Host(ThunderAgentCode(chars_per_token=5.0), *kv)
        self.numbers = {}
        self.gone = set()

    def post(self, tokens, name=None):
        name = "default" if name is None else name
        return self.host.ask(self.numbers.setdefault(name, len(self.numbers)), tokens)

    def client_leaves(self, call):
        self.gone.add(call.seq)

    def forwarded_to_nobody(self):
        return sorted(self.gone & set(self.host.inside))


class Front(CopiedFront):
    """A client that leaves is an abort; who gives no name is a program of one call."""

    def __init__(self, *kv):
        super().__init__(*kv)
        self.host = Host(ThunderAgent(decay="none"), *kv)
        self.anonymous = itertools.count()

    def post(self, tokens, name=None):
        return super().post(tokens, ("anonymous", next(self.anonymous)) if name is None else name)

    def client_leaves(self, call):
        super().client_leaves(call)
        self.host.fail(call)


# 3. Cancellation


def left_in_the_queue(front):
    """Three clients are held, two of them leave, the room comes."""
    first = front.post(9000, "a")
    held = [front.post(3000, name) for name in "bcd"]
    assert not any(call.seq in front.host.inside for call in held)
    for call in held[:2]:
        front.client_leaves(call)
    front.host.until(6.0)
    front.host.done(first, 9000)
    front.host.end(first.program)
    front.host.until(15.0)
    assert held[2].seq in front.host.inside
    return held


def test_3_nobody_is_let_in_whose_client_left():
    front = Front(10_000)
    left_in_the_queue(front)
    assert front.forwarded_to_nobody() == []
    assert front.host.gate.booked() == {0: 3100}, "nothing is booked for them either"
    assert [program for _, program in front.host.what("release")] == [0], "their waits are known for a lease"


def test_3_the_copied_front_sends_their_requests_on():
    front = CopiedFront(10_000)
    held = left_in_the_queue(front)
    assert front.forwarded_to_nobody() == [held[0].seq, held[1].seq]


# 4. Identity


def two_strangers(front):
    """Two clients that give no name, 6 000 tokens each: what the gate takes them for."""
    return front.post(6000), front.post(6000)


def test_4_who_gives_no_name_is_a_program_of_one_call():
    front = Front(10_000)
    one, other = two_strangers(front)
    assert one.program != other.program
    assert (one.seq in front.host.inside, other.seq in front.host.inside) == (True, False), "12 000 > 10 000"


def test_4_the_copied_front_lets_all_strangers_in_as_one():
    front = CopiedFront(10_000)
    one, other = two_strangers(front)
    assert one.program == other.program
    assert {one.seq, other.seq} <= set(front.host.inside)


def concurrent(front):
    """Two turns of one program at the same time; the first ends; programs reasoning by the books."""
    calls = [front.post(1000, "a") for _ in range(2)]
    front.host.done(calls[0], 1100)
    return front.host.gate.reasoning()


def test_4_turns_of_one_program_are_counted():
    front = Front(10_000)
    assert concurrent(front) == 1 == len(front.host.inside)
    host = Host(ThunderAgent(decay="none", buffer=0), 10_000)
    calls = [host.ask(1, 1000) for _ in range(3)]
    assert host.gate.booked() == {0: 3000}
    for call in calls:
        assert host.gate.reasoning() == 1
        host.done(call, 1200)
    assert (host.gate.reasoning(), host.gate.booked()) == (0, {0: 1200})


def test_4_the_copied_front_takes_one_end_for_all():
    front = CopiedFront(10_000)
    assert concurrent(front) == 0 != len(front.host.inside)


# 5. Backends that die, come late, or tell nothing


def grows(front):
    """A backend comes back with less KV than it had: do programs beyond it pause?"""
    calls = [front.post(3000, name) for name in "abc"]
    for call in calls:
        front.host.done(call, 3000)
    front.host.kv[0] = 6400
    front.host.until(5.0)
    return front.host.pauses


def test_5_the_size_of_the_kv_is_read_each_time():
    assert len(grows(Front(10_000))) == 1
    assert grows(CopiedFront(10_000)) == []


def late(front):
    """A backend tells the size of its KV only after the first call: is it held to it then?"""
    (size,), front.host.kv = front.host.kv, [0]
    first = front.post(9000, "a")
    front.host.kv = [size]
    second = front.post(9000, "b")
    assert first.seq in front.host.inside
    return second.seq in front.host.inside


def test_5_a_backend_that_tells_its_size_late_is_held_to_it():
    assert not late(Front(10_000))
    assert late(CopiedFront(10_000))


def test_5_the_last_size_told_counts_while_a_backend_tells_none():
    front = Front(10_000)
    front.post(9000, "a")
    front.host.kv = [0]
    assert front.post(9000, "b").seq not in front.host.inside


def dies(front):
    """A program acts on backend 0, which dies; where its next call goes."""
    call = front.post(3000, "a")
    front.host.done(call, 3000)
    front.host.dead = {0}
    front.host.until(11.0)
    again = front.post(3000, "a")
    return front.host.inside[again.seq]


def test_5_programs_of_a_dead_backend_go_elsewhere():
    front = Front(10_000, 10_000)
    assert dies(front) == 1
    assert [(e.what, e.reason) for e in front.host.events if e.time > 0] == [
        ("pause", "engine gone"),
        ("move", "room"),
    ]
    assert dies(CopiedFront(10_000, 10_000)) == 0, "pinned to the dead"


def test_5_with_no_backend_everybody_waits_and_the_first_that_comes_takes_them():
    front = Front(10_000, 10_000)
    front.host.dead = {0, 1}
    calls = [front.post(3000, name) for name in "ab"]
    front.host.until(30.0)
    assert front.host.inside == {}
    front.host.dead = {0}
    front.host.until(35.0)
    assert [front.host.inside[call.seq] for call in calls] == [1, 1]


def test_5_a_call_whose_backend_died_on_its_way_is_placed_anew():
    front = Front(10_000, 10_000)
    call = front.post(3000, "a")
    front.host.dead = {0}
    assert front.host.gate.place(call, front.host.views(), 1.0) == 1
    assert front.host.gate.booked() == {1: 3100}


def test_5_what_waits_beside_a_call_that_is_placed_anew_goes_on_with_it():
    front = Front(10_000, 10_000)
    call, other = front.post(9000, "a"), front.post(9000, "b")
    front.host.dead = {0}
    beside = front.post(9500, "a")
    assert beside.seq not in front.host.inside, "its engine is dead, and the other one is full"
    assert front.host.again(call) == 1
    assert front.host.inside[beside.seq] == 1
    assert other.seq in front.host.inside
