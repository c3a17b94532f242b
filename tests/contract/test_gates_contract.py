"""Every gate of ``systems/gates``, held to the interface by a scripted host; a new file needs no edit."""

import random

import pytest

from systems.catalog import build_gate, gate_names, load_system
from systems.protocols import Gate
from vocabulary import INF, Call, EngineView, Usage

PROGRAMS = 150
"""More than any gate's defaults let in at once: otherwise the script would tell little."""


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
        self.answers = []

    def views(self):
        return [
            EngineView(i, i != self.seq % 7, len(self.out), self.rng.randrange(90), 100) for i in range(3)
        ]

    def arrive(self):
        program = self.rng.randrange(PROGRAMS)
        call = self.call_type(self.seq, program, "", 0, 100, "", (), 5.0, 5.0)
        self.seq += 1
        goes_on = self.gate.request(call, self.views(), self.now)
        assert isinstance(goes_on, bool)
        assert not goes_on or program not in self.held, "a later call of a program overtook a held one"
        (self.out if goes_on else self.held).setdefault(program, []).append(call)
        self.answers.append((call.seq, goes_on))

    def leave(self, where, way):
        program = self.rng.choice(sorted(where))
        call = where[program].pop(self.rng.randrange(len(where[program])))
        if not where[program]:
            del where[program]
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
        resumed = self.gate.tick(views, self.now)
        assert len({one.program for one in resumed}) == len(resumed), "each program once"
        for program, engine in resumed:
            assert program in self.held, "only who is held can go on"
            assert engine is None or any(view.id == engine and view.alive for view in views)
            self.out.setdefault(program, []).extend(self.held.pop(program))
            self.answers.append((program, engine))

    def run(self, events=3000):
        for _ in range(events):
            self.now += self.rng.choice((0.0, 0.25, 2.0))
            if self.gate.next_tick() <= self.now:
                self.tick()
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
        while self.out:
            self.end(min(self.out))
            if not self.out and self.gate.next_tick() < INF:
                self.now = max(self.now, self.gate.next_tick())
                self.tick()


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
    for seed in range(5):
        door = Door(name, seed)
        door.run()
        door.wind_down()
        assert door.held == {}
        for program in range(PROGRAMS):
            door.end(program)
        assert not any(v for v in vars(door.gate).values() if isinstance(v, dict | set | list))


def test_the_script_makes_a_gate_hold():
    assert any(not answer for _, answer in Door("program-cap", 1).run() if isinstance(answer, bool))


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
