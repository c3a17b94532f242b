"""Every gate of ``systems/gates``, held to the interface by a scripted host; a new file needs no edit."""

import random

import pytest

from systems.catalog import build_gate, gate_names, load_system
from systems.protocols import Gate, Pause
from tests.gate_host import kept
from vocabulary import INF, Call, EngineView, GateEvent, Usage

PROGRAMS = 150
"""More than any gate's defaults let in at once: otherwise the script would tell little."""
ENGINES = 3
WHATS = {"admit", "hold", "mark", "unmark", "pause", "resume", "force", "move", "expire", "release"}
PINS_TO_THE_DEAD = {"thunderagent-code"}
"""Names an engine whether or not it lives, as what it copies does; hosts ask their router then."""


class Blindfolded(Call):
    """A call whose future must not be looked at."""

    @property
    def remaining(self):
        raise AssertionError("a gate read Call.remaining")

    @remaining.setter
    def remaining(self, value):
        pass

    output = remaining


class Door:
    """A scripted host: calls come, go, leave and are held; programs end. It notes every answer."""

    def __init__(self, name, seed, call_type=Call):
        self.rng = random.Random(seed)
        self.gate = build_gate(load_system("vllm-opt", gate=name))
        self.call_type = call_type
        self.now, self.seq = 0.0, 0
        self.out, self.held = {}, {}  # calls by program: on an engine, at the door
        self.answers, self.told = [], []
        self.paused = set()

    def views(self):
        alive = [i != self.seq % 7 for i in range(ENGINES)]
        return [EngineView(i, alive[i], len(self.out), self.rng.randrange(90), 100) for i in range(ENGINES)]

    def may_name(self, engine, views):
        known = self.gate.name in PINS_TO_THE_DEAD
        return engine is None or any(view.id == engine and (view.alive or known) for view in views)

    def arrive(self):
        program = self.rng.randrange(PROGRAMS)
        size = self.rng.choice((20, 100, 400, 5000))
        call = self.call_type(self.seq, program, "", 0, size, "", (), 5.0, 5.0)
        self.seq += 1
        views = self.views()
        goes_on = self.gate.request(call, views, self.now)
        assert isinstance(goes_on, bool)
        assert not goes_on or program not in self.held, "a later call of a program overtook a held one"
        if goes_on and getattr(self.gate, "places", False):
            engine = self.gate.place(call, views, self.now)
            assert self.may_name(engine, views)
            self.answers.append(engine)
        (self.out if goes_on else self.held).setdefault(program, []).append(call)
        self.paused -= {program} if goes_on else set()
        self.answers.append((call.seq, goes_on))

    def leave(self, where, way):
        program = self.rng.choice(sorted(where))
        call = where[program].pop(self.rng.randrange(len(where[program])))
        if not where[program]:
            del where[program]
        if where is self.out and getattr(self.gate, "counts", False):
            said = self.rng.random() < 0.8
            self.gate.count(call, call.prompt_tokens + 30 if said else None, self.now)
        way(call, Usage(1.0, 1.0, 0.0), self.now)
        self.tick()

    def end(self, program):
        for where in (self.held, self.out):
            for call in where.pop(program, []):
                self.gate.abort(call, Usage(0.0, 0.0, 0.0), self.now)
                self.tick()
        self.gate.end(program, self.now)
        self.tick()

    def tick(self):
        views = self.views()
        actions = self.gate.tick(views, self.now)
        resumed = [one.program for one in actions if not isinstance(one, Pause)]
        assert len(set(resumed)) == len(resumed), "each program once"
        for action in actions:
            if isinstance(action, Pause):
                self.paused.add(action.program)
                self.answers.append(action)
                continue
            assert action.program in self.held, "only who is held can go on"
            assert self.may_name(action.engine, views)
            self.paused.discard(action.program)
            self.out.setdefault(action.program, []).extend(self.held.pop(action.program))
            self.answers.append(action)
        self.listen()

    def listen(self):
        events = getattr(self.gate, "events", [])
        self.told += events
        events.clear()

    def run(self, events=1000):
        for _ in range(events):
            self.now += self.rng.choice((0.0, 0.25, 2.0))
            if self.gate.next_tick() <= self.now:
                self.tick()
                assert self.gate.next_tick() > self.now, "it asks for a time that is over"
            choice = self.rng.random()
            if choice < 0.55 or not self.out:
                self.arrive()
            elif choice < 0.8:
                self.leave(self.out, self.gate.finish)
            elif choice < 0.85:
                self.leave(self.out, self.gate.abort)
            elif choice < 0.9 and self.held:
                self.leave(self.held, self.gate.abort)
            else:
                self.end(self.rng.randrange(PROGRAMS))
        return self.answers

    def wind_down(self):
        """Nobody comes any more: whoever is inside ends."""
        for _ in range(10_000):
            if self.out:
                self.end(min(self.out))
            elif self.held:
                assert self.gate.next_tick() < INF, "somebody is held, and the gate waits for nothing"
                self.seq += 1  # another engine is dead
                self.now = max(self.now, self.gate.next_tick())
                self.tick()
            else:
                return


@pytest.mark.parametrize("name", gate_names())
def test_gate_follows_the_protocol(name):
    gate = build_gate(load_system("vllm-opt", gate=name))
    assert isinstance(gate, Gate)
    assert gate.name == name
    assert type(gate).__doc__
    assert gate.next_tick() == INF
    assert gate.tick([EngineView(0, True, 0, 0, 100)], 0.0) == []


@pytest.mark.parametrize("name", gate_names())
def test_same_script_same_answers_and_no_look_at_the_future(name):
    answers = Door(name, 1).run()
    assert Door(name, 1).run() == answers
    assert Door(name, 1, Blindfolded).run() == answers


@pytest.mark.parametrize("name", gate_names())
def test_nobody_is_held_for_ever_and_nothing_is_left(name):
    for seed in range(3):
        door = Door(name, seed)
        door.run()
        door.wind_down()
        assert door.held == {}
        for program in range(PROGRAMS):
            door.end(program)
        assert kept(door.gate) <= 4 * ENGINES, "engines may be remembered, programs may not"


@pytest.mark.parametrize("name", gate_names())
def test_every_decision_is_an_event(name):
    door = Door(name, 2)
    door.run()
    assert all(isinstance(event, GateEvent) and event.what in WHATS and event.reason for event in door.told)
    if name == "open":
        return
    said = {event.what for event in door.told}
    assert {"admit", "hold"} <= said
    resumed = sum(1 for answer in door.answers if hasattr(answer, "engine") and not isinstance(answer, Pause))
    assert sum(event.what in {"admit", "resume", "move", "force", "unmark"} for event in door.told) >= resumed
    pauses = sum(isinstance(answer, Pause) for answer in door.answers)
    assert sum(event.what == "pause" for event in door.told) >= pauses


def test_the_script_makes_gates_hold_and_pause():
    assert any(answer[1] is False for answer in Door("program-cap", 1).run() if isinstance(answer, tuple))
    assert any(isinstance(answer, Pause) for answer in Door("thunderagent", 1).run())


@pytest.mark.parametrize("name", gate_names())
def test_a_gate_asks_neither_clock_nor_chance(name, monkeypatch):
    def refuse(*_):
        raise AssertionError("a gate asked the machine for time or chance")

    expected = Door(name, 3).run(400)
    door = Door(name, 3)
    for function in ("time", "monotonic", "perf_counter"):
        monkeypatch.setattr(f"time.{function}", refuse)
    for function in ("random", "randrange", "choice", "uniform"):
        monkeypatch.setattr(f"random.{function}", refuse)
    assert door.run(400) == expected
