"""Numbers of the project's note on ThunderAgent: decay, victims, and the bound on unused capacity.

The note's numbers are times 16 here: engines hold whole blocks.
"""

import heapq
import random

import pytest

from systems.gates.ledger import Program
from systems.gates.thunderagent import ThunderAgent
from systems.gates.victims import chosen
from tests.gate_host import Host

BLOCK = 16
BUFFER = 100


# decay


def example(decay_on):
    """C = 100: one program reasons on 60 tokens, one of 40 acts from time 0 on; f = .25 after 2 s."""
    host = Host(ThunderAgent(dt=2.0, base=2.0, tau_s=1.0, decay_on=decay_on, buffer=0), 100 * BLOCK)
    host.ask(1, 60 * BLOCK)
    host.turn(2, 40 * BLOCK)
    return host


def d_eff(host):
    return host.gate.booked()[0] / BLOCK


def test_the_decay_example():
    host = example("restore")
    assert d_eff(host) == 100
    host.until(2.0)
    assert d_eff(host) == 70
    host.ask(3, 20 * BLOCK)
    assert host.placed[-1] == (2.0, 3, 0)
    assert d_eff(host) == 90
    assert host.pauses == [], "60 + 40 + 20 = 120 tokens on an engine that holds 100"
    host.until(4.0)
    assert host.pauses == [2], "the check by what programs hold: 80 are left"
    assert d_eff(host) == 80


def test_where_decay_governs_pausing_too_nobody_pauses_for_who_is_away():
    host = example("both")
    host.until(2.0)
    host.ask(3, 20 * BLOCK)
    host.until(4.0)
    assert (host.pauses, d_eff(host)) == ([], 60 + 20 + 2.5)
    host.ask(2, 40 * BLOCK)
    assert d_eff(host) == 120, "it is back, and weighs what it holds"
    host.until(6.0)
    assert host.what("mark") == [(6.0, 3)], "all reason: the shortest pauses when its turn ends"


@pytest.mark.parametrize(
    ("decay", "weights"), [("none", (1, 1, 1)), ("exponential", (0.5, 0.25, 0.0625)), ("linear", (0.5, 0, 0))]
)
def test_the_forms_of_decay(decay, weights):
    gate = ThunderAgent(decay=decay, base=2.0)
    assert tuple(gate.share(t) for t in (1.0, 2.0, 4.0)) == weights


# victims


def programs(*sizes):
    found = [Program(i, 0.0, 0.0, tokens=size) for i, size in enumerate(sizes)]
    for program in found:
        program.booked = program.tokens
    return found


def test_shortest_first_does_not_cost_least():
    of = programs(4, 6, 7)
    shortest = chosen("shortest", of, need=7, power=2.0)
    best = chosen("optimal", of, need=7, power=2.0)
    assert (sum(p.tokens**2 for p in shortest), sum(p.tokens**2 for p in best)) == (52, 49)


@pytest.mark.parametrize(("order", "pauses"), [("shortest", [4, 6]), ("optimal", [7]), ("longest", [7])])
def test_the_gate_pauses_those(order, pauses):
    host = Host(ThunderAgent(decay="none", victims=order, buffer=0), 10 * BLOCK)
    for size in (4, 6, 7):
        host.turn(size, 2 * BLOCK)
    for size in (4, 6, 7):
        host.turn(size, size * BLOCK)
    host.until(5.0)
    assert host.pauses == pauses


# the bound on unused capacity


class Loop:
    """A closed loop of programs on engines of 100 000 tokens; turns of 1-8 s, tools of 1-15 s, 8-16 turns.

    ``intervals``: for each tick interval that begins with somebody waiting, the token-seconds that each
    engine left unused while somebody waited, and the bound: what the smallest that waits at its beginning
    would be booked for, times dt.
    """

    def __init__(self, gate, engines, programs, seed):
        self.host = Host(gate, *[100_000] * engines)
        self.rng = random.Random(seed)
        self.events, self.count = [], 0
        self.left, self.context = {}, {}
        self.unused = [0.0] * engines
        self.intervals = []
        self.asked = {}
        for _ in range(programs):
            self.new()

    def at(self, delay, act, *what):
        self.count += 1
        heapq.heappush(self.events, (self.host.now + delay, self.count, act, what))

    def new(self):
        program = len(self.context)
        self.left[program] = self.rng.randrange(8, 17)
        self.context[program] = self.rng.randrange(2_000, 12_000)
        self.at(self.rng.uniform(0.0, 5.0), self.call, program)

    def call(self, program):
        self.asked[program] = self.host.ask(program, self.context[program])
        self.started()

    def started(self):
        """Whoever went on gets a reply after its time."""
        for program, call in list(self.asked.items()):
            if call.seq in self.host.inside:
                del self.asked[program]
                self.at(self.rng.uniform(1.0, 8.0), self.reply, program, call)

    def reply(self, program, call):
        self.context[program] += self.rng.randrange(200, 1500)
        self.host.done(call, self.context[program])
        self.left[program] -= 1
        if self.left[program]:
            self.context[program] += self.rng.randrange(200, 1500)
            self.at(self.rng.uniform(1.0, 15.0), self.call, program)
        else:
            self.host.end(program)
            self.new()
        self.started()

    def forward(self, time):
        if self.host.held:
            booked = self.host.gate.booked()
            for engine, kv in enumerate(self.host.kv):
                self.unused[engine] += max(0, kv - booked.get(engine, 0)) * (time - self.host.now)
        self.host.now = time

    def run(self, intervals, dt=5.0):
        for turn in range(1, intervals + 1):
            needs = {event.program: event.tokens for event in self.host.events if event.what == "hold"}
            waiting = [needs[program] + BUFFER for program in self.host.held]
            self.unused = [0.0] * len(self.host.kv)
            while self.events and self.events[0][0] < turn * dt:
                time, _, act, what = heapq.heappop(self.events)
                self.forward(time)
                act(*what)
            self.forward(turn * dt)
            if waiting:
                self.intervals.append((self.unused, min(waiting) * dt))
            self.host.until(turn * dt)
            self.started()
        return self.intervals


def violations(engines, **knobs):
    """Of 400 intervals of 5 s, in how many somebody waits, how many leave more unused than the bound says,
    and of those, in how many a single engine does."""
    intervals = Loop(ThunderAgent(decay="none", **knobs), engines, 30 * engines, seed=1).run(400)
    over = [unused for unused, bound in intervals if sum(unused) >= bound]
    single = [unused for unused, bound in intervals if max(unused) >= bound]
    return len(intervals), len(over), len(single)


def test_the_bound_on_unused_capacity_is_violated_between_ticks():
    """C_unused < c_min * dt is derived for the moment of a tick. Turns and programs end in between, and what
    they free waits for the next; resuming at ends closes that."""
    assert violations(1, ageing_s=0.0) == (399, 43, 43)
    assert violations(1, ageing_s=0.0, event_driven=True) == (399, 0, 0)


def test_the_bound_is_violated_where_rooms_on_several_engines_add_up():
    """No program runs on two engines: four rooms together exceed the smallest that waits, none does alone."""
    within, over, single = violations(4, ageing_s=0.0, event_driven=True)
    assert (within, over, single) == (399, 161, 0)


def test_the_bound_is_violated_where_an_engine_is_kept_clear():
    """The price of ageing: room that would fit a small program is kept for a large one that waited long."""
    assert violations(1, event_driven=True)[:2] == (399, 112)
