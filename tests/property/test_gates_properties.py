"""Gates under any order of events: calls come, end in every way, leave the door; engines die and come back.

Two gates of a kind get the same events and must give the same answers.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from systems.gates.las_fairness import LasFairness
from systems.gates.ledger import ACTIVE, MARKED
from systems.gates.progress_ttl import ProgressTtl
from systems.gates.thunderagent import DECAY_ON, DECAYS, RESTORES, ThunderAgent
from systems.gates.victims import ORDERS
from tests.gate_host import LEFT, Host, kept

ENGINES = 3
SIZES = (16, 400, 1600, 4000)
HOLD_S = 200.0
LET_IN = ("admit", "resume", "move", "force", "unmark")
SWITCHES = {"phase_priority", "origin_first", "global_queue", "event_driven", "shared_prefix", "release"}

thunderagents = st.fixed_dictionaries(
    {
        "decay": st.sampled_from(DECAYS),
        "decay_on": st.sampled_from(DECAY_ON),
        "victims": st.sampled_from(ORDERS),
        "restore": st.sampled_from(RESTORES),
        "lambda_min": st.sampled_from((0.5, 1.0)),
        "ageing_s": st.sampled_from((0.0, 20.0)),
        "grace_s": st.sampled_from((0.0, 10.0)),
        "max_hold_s": st.just(HOLD_S),
        "lease_s": st.sampled_from((30.0, 600.0)),
        "buffer": st.sampled_from((0, 100)),
        "reserve": st.sampled_from((0, 64)),
        **dict.fromkeys(sorted(SWITCHES), st.booleans()),
    }
)
MAKERS = {
    "thunderagent": thunderagents.map(lambda knobs: lambda: ThunderAgent(**knobs)),
    "progress-ttl": st.just(lambda: ProgressTtl(ttl_s=8.0, max_hold_s=HOLD_S)),
    "las-fairness": st.just(lambda: LasFairness(ageing_s=20.0, max_hold_s=HOLD_S)),
}


def answers(host):
    return host.placed, host.pauses, host.events, sorted(host.held), host.gate.next_tick()


class Anything(RuleBasedStateMachine):
    """Every rule does the same to both hosts."""

    maker = MAKERS["thunderagent"]

    @initialize(data=st.data(), kv=st.lists(st.sampled_from(SIZES), min_size=ENGINES, max_size=ENGINES))
    def begin(self, data, kv):
        make = data.draw(self.maker)
        self.hosts = [Host(make(), *kv), Host(make(), *kv)]
        self.programs = set()
        self.dark = False  # was there a time without any engine?

    def both(self, act):
        first, second = (act(host) for host in self.hosts)
        return first, second

    def call(self, which, where):
        """The ``which``-th call inside or held, for both hosts: they are the same."""
        host = self.hosts[0]
        held = [call.seq for calls in host.held.values() for call in calls]
        calls = sorted(host.inside if where == "inside" else held)
        return calls[which % len(calls)] if calls else None

    @rule(program=st.integers(0, 7), tokens=st.integers(1, 2000), shared=st.integers(0, 1))
    def ask(self, program, tokens, shared):
        self.programs.add(program)
        prompt = ((shared, 100), (10 + program, tokens))
        self.both(lambda host: host.ask(program, tokens, prompt))

    @rule(which=st.integers(0, 20), usage=st.one_of(st.none(), st.integers(1, 3000)), good=st.booleans())
    def over(self, which, usage, good):
        seq = self.call(which, "inside")
        if seq is not None:
            self.both(lambda host: host.done(host.calls[seq], usage) if good else host.fail(host.calls[seq]))

    @rule(which=st.integers(0, 20))
    def gives_up(self, which):
        seq = self.call(which, "held")
        if seq is not None:
            self.both(lambda host: host.fail(host.calls[seq]))

    @rule(which=st.integers(0, 20))
    def is_sent_again(self, which):
        """A call whose engine died on its way asks where to go now."""
        seq = self.call(which, "inside")
        if seq is not None and len(self.hosts[0].dead) < ENGINES:
            first, second = self.both(lambda host: host.again(host.calls[seq]))
            assert first == second not in self.hosts[0].dead

    @rule(program=st.integers(0, 7))
    def end(self, program):
        """A program ends when nothing of it is left, as hosts do it."""
        host = self.hosts[0]
        if program not in host.held and all(host.calls[seq].program != program for seq in host.inside):
            self.both(lambda host: host.end(program))

    @rule(seconds=st.sampled_from((0.0, 0.5, 4.0, 5.0, 61.0)))
    def wait(self, seconds):
        self.both(lambda host: host.until(host.now + seconds))

    @rule(engine=st.integers(0, ENGINES - 1), size=st.sampled_from((0, *SIZES)))
    def engine_changes(self, engine, size):
        """It dies, comes back, tells another size, or none."""

        def change(host):
            host.dead ^= {engine}
            host.kv[engine] = size

        self.both(change)
        self.dark |= len(self.hosts[0].dead) == ENGINES

    @invariant()
    def books_are_right(self):
        if not hasattr(self, "hosts"):
            return
        self.both(lambda host: host.until(host.now))  # engines that came back make a longest hold due
        first, second = (answers(host) for host in self.hosts)
        assert first == second, "the same events, another answer"
        host = self.hosts[0]
        gate, ledger = host.gate, host.gate._ledger
        inside = [host.calls[seq].program for seq in host.inside]
        assert gate.reasoning() == len(set(inside))
        assert ledger.in_flight == len(inside)
        assert len(gate._line) == len(host.held)
        assert all(tokens >= 0 for tokens in gate.booked().values())
        for books, state in ((ledger.load, ACTIVE), (ledger.leaving, MARKED)):
            found = {}
            for program in ledger.programs.values():
                if program.state == state and program.booked:
                    found[program.engine] = found.get(program.engine, 0) + program.booked
            assert books == found

    def teardown(self):
        """Whoever is left goes on in time, and nothing is remembered of who is gone."""
        if not hasattr(self, "hosts"):
            return
        host = self.hosts[0]
        host.dead, host.kv = set(), [1600] * ENGINES
        for _ in range(100):
            for seq in list(host.inside):
                host.done(host.calls[seq], 50)
            if not host.held and not host.inside:
                break
            host.until(host.now + 5.0)
        assert host.held == {}, "held for ever"
        if not self.dark:
            assert all(until - since <= HOLD_S for since, until in holds(host.events))
        for program in self.programs:
            host.end(program)
        host.until(host.now + 700.0)
        assert kept(host.gate) <= 4 * ENGINES


def holds(events):
    """(from, until) of every hold that ended with the program let in."""
    since = {}
    for event in events:
        if event.what == "hold":
            since[event.program] = event.time
        elif event.what == LEFT:
            since.pop(event.program, None)
        elif event.what in LET_IN and event.program in since:
            yield since.pop(event.program), event.time


@pytest.mark.parametrize("name", MAKERS)
def test_any_order_of_events(name):
    machine = type("Machine", (Anything,), {"maker": MAKERS[name]})
    few = settings(
        max_examples=60 if name == "thunderagent" else 15, stateful_step_count=40, deadline=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    run_state_machine_as_test(machine, settings=few)
