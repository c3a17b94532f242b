"""Several engines: all or none, with a clock of our own and engines that are none."""

from pathlib import Path

import pytest

from systems.engines.vllm_virtual import EngineUnavailable
from systems.provision import fleet as fleets
from systems.provision.fleet import Fleet


class Engine:
    """``up`` and ``dead``: at which time it answers or ends; ``events`` gets what is done to it."""

    calls = steps = control = None
    folder = Path()

    def __init__(self, name, clock, events, *, up=0.0, dead=float("inf"), fails="", interrupts=0):
        self.name, self.clock, self.events = name, clock, events
        self.up, self.dead, self.fails, self.interrupts = up, dead, fails, interrupts
        self.url = f"http://{name}"

    def begin(self):
        self.events.append(f"begin {self.name}")
        if self.fails == "begin":
            raise EngineUnavailable("cannot run it")

    def ready(self, limit_s=0.0):
        self.events.append(f"ready {self.name}")

    def check(self):
        if self.clock() >= self.dead:
            raise EngineUnavailable("it ended (exit code 3); its last words: out of memory")

    def words(self):
        return "its last words: loading"

    def facts(self):
        return {}

    def stop(self):
        if self.interrupts:
            self.interrupts -= 1
            raise KeyboardInterrupt
        self.events.append(f"stop {self.name}")
        if self.fails == "stop":
            raise OSError("it does not stop")


@pytest.fixture
def world(monkeypatch):
    """(clock, sleep, events, said, make): time passes where the fleet sleeps."""

    class World:
        now, events, said, engines = 0.0, [], [], {}
        wakes = staticmethod(lambda: None)

        def clock(self):
            return self.now

        def sleep(self, seconds):
            self.now += seconds
            self.wakes()

        def engine(self, name, **how):
            self.engines[f"http://{name}"] = made = Engine(name, self.clock, self.events, **how)
            return made

        def fleet(self, *engines, **more):
            return Fleet(engines, self.said.append, clock=self.clock, sleep=self.sleep, **more)

    found = World()
    found.events, found.said, found.engines = [], [], {}
    monkeypatch.setattr(fleets, "POLL_S", 0.5)  # sums of it are exact
    monkeypatch.setattr(fleets, "healthy", lambda url: found.now >= found.engines[url].up)
    return found


def test_all_begin_before_any_is_awaited_and_stop_in_reverse(world):
    begun = []
    slow, quick = world.engine("slow", up=25.0), world.engine("quick", up=3.0)
    with world.fleet(slow, quick, begun=lambda engine: begun.append(engine.name)) as fleet:
        fleet.check()
        assert world.events == ["begin slow", "begin quick", "ready quick", "ready slow"]
    assert world.events[4:] == ["stop quick", "stop slow"]
    assert begun == ["slow", "quick"]
    assert world.said == [
        "quick is up at http://quick after 3.0 s",
        "waiting for slow: 10 s of at most 300 s",
        "waiting for slow: 20 s of at most 300 s",
        "slow is up at http://slow after 25.0 s",
    ]
    fleet.stop()
    assert len(world.events) == 6


def test_one_that_dies_while_the_others_start_takes_them_along(world):
    good, bad = world.engine("good", up=1.0), world.engine("bad", up=60.0, dead=2.0)
    with pytest.raises(EngineUnavailable, match=r"^bad: it ended .*out of memory"):
        world.fleet(good, bad).start()
    assert world.events[-2:] == ["stop bad", "stop good"]
    assert world.now < 3.0


def test_one_that_was_up_and_dies_while_another_starts_is_noticed(world):
    """Not only those still awaited are looked at."""
    first, second = world.engine("first", dead=5.0), world.engine("second", up=60.0)
    with pytest.raises(EngineUnavailable, match=r"^first: it ended"):
        world.fleet(first, second).start()
    assert world.now < 6.0


def test_one_that_cannot_even_begin(world):
    first, second = world.engine("first"), world.engine("second", fails="begin")
    with pytest.raises(EngineUnavailable, match="second: cannot run it"):
        world.fleet(first, second, world.engine("third")).start()
    assert world.events == ["begin first", "begin second", "stop second", "stop first"]


def test_one_that_never_answers(world):
    with pytest.raises(EngineUnavailable, match=r"slow: no answer within 50 s; its last words: loading"):
        world.fleet(world.engine("slow", up=1e9), limit_s=50.0).start()
    assert world.events[-1] == "stop slow"


def test_ctrl_c_while_they_start(world):
    def interrupt():
        raise KeyboardInterrupt

    world.wakes = interrupt
    with pytest.raises(KeyboardInterrupt):
        world.fleet(world.engine("a", up=9.0), world.engine("b", up=9.0)).start()
    assert world.events[-2:] == ["stop b", "stop a"]


def test_ctrl_c_while_they_stop_still_stops_all(world):
    fleet = world.fleet(world.engine("a"), world.engine("b", interrupts=1))
    fleet.start()
    with pytest.raises(KeyboardInterrupt):
        fleet.stop()
    assert world.events[-2:] == ["stop b", "stop a"]


def test_one_that_fails_to_stop_does_not_keep_the_others(world):
    fleet = world.fleet(world.engine("a"), world.engine("b", fails="stop"))
    fleet.start()
    with pytest.raises(OSError, match="does not stop"):
        fleet.stop()
    assert world.events[-2:] == ["stop b", "stop a"]


def test_all_are_asked_before_any_is_awaited(world):
    a, b = world.engine("a"), world.engine("b")
    a.ask = lambda: world.events.append("ask a")
    fleet = world.fleet(a, b)
    fleet.start()
    fleet.stop()
    assert world.events[-3:] == ["ask a", "stop b", "stop a"]


def test_ctrl_c_while_they_are_asked_still_stops_all(world):
    def interrupt():
        raise KeyboardInterrupt

    a, b = world.engine("a"), world.engine("b", interrupts=1)
    a.ask = interrupt
    fleet = world.fleet(a, b)
    fleet.start()
    with pytest.raises(KeyboardInterrupt):
        fleet.stop()
    assert world.events[-2:] == ["stop b", "stop a"]


def test_check_names_the_one_that_ended(world):
    fleet = world.fleet(world.engine("a"), world.engine("b", dead=10.0))
    fleet.start()
    world.now = 11.0
    with pytest.raises(EngineUnavailable, match=r"^b: it ended"):
        fleet.check()
