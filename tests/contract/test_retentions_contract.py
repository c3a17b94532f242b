"""Every retention policy of ``systems/retentions``, held to the interface by a scripted host."""

import random

import pytest

from systems.catalog import build_retention, load_system, retention_names
from systems.protocols import Away, Kept, Retention
from systems.slots import knob_names
from vocabulary import INF, EngineView, KeepEvent

TOOLS = ("", "bash", "search", "human")
ARMS = [
    {"by": "elapsed"},
    {"by": "tool+size"},
    {"by": "oracle"},
    {"decay": "linear", "least": INF},
    {"firm": False},
    {"firm": False, "price": "market"},
]
CASES = [*((name, {}) for name in retention_names()), *(("survival", arm) for arm in ARMS)]
IDS = [" ".join([name, *map(str, knobs.values())]) for name, knobs in CASES]


class Blindfolded(Away):
    """An absence whose end must not be looked at."""

    @property
    def duration(self):
        raise AssertionError("a policy that is not clairvoyant read Away.duration")


class Host:
    """Threads go away and come back, programs end, engines lack blocks; every answer is noted."""

    def __init__(self, case, seed, away_type=Away):
        name, knobs = case
        self.rng = random.Random(seed)
        named = {f"retention.{knob}": value for knob, value in knobs.items()}
        self.policy = build_retention(load_system("vllm-opt", retention=name, knobs=named))
        self.watches = getattr(self.policy, "watches", False)
        self.away_type = away_type
        self.now = 0.0
        self.away, self.here, self.kept = {}, {}, {}
        self.answers, self.events = [], []

    def leave(self):
        thread = (self.rng.randrange(30), str(self.rng.randrange(2)))
        if thread in self.away or thread in self.here:
            return
        tokens, engine = self.rng.choice((0, 7, 900, 30_000)), self.rng.randrange(2)
        tool = self.rng.choice(TOOLS)
        seconds = self.rng.choice((0.0, 0.3, 1.5, 40.0)) * (1 + TOOLS.index(tool))
        absence = self.away_type(*thread, tokens, tool, self.rng.randrange(500), engine, seconds)
        if self.watches:
            view = EngineView(engine, True, 9, self.rng.randrange(4000), 4000)
            self.policy.look(view, self.rng.choice((0, 0, 50_000)), self.now)
        until = self.policy.idle(absence, self.now)
        assert isinstance(until, float)
        assert until == until
        assert until < INF or not getattr(self.policy, "firm", False)
        self.answers.append(until)
        self.away[thread] = (self.now + seconds, tokens)
        if until > self.now:
            self.kept[thread] = Kept(*thread, tokens, until)

    def returns(self):
        for thread, (time, tokens) in sorted(self.away.items()):
            if time <= self.now:
                del self.away[thread]
                self.here[thread] = tokens
                if self.watches:
                    self.policy.called(*thread, self.now)

    def answered(self):
        for thread, tokens in sorted(self.here.items()):
            if self.rng.random() < 0.5:
                del self.here[thread]
                found = tokens // 16 * 16 if self.kept.pop(thread, None) else 0
                if self.watches:
                    self.policy.back(*thread, found, tokens + 50, self.now)

    def shortage(self):
        kept = list(self.kept.values())
        self.rng.shuffle(kept)
        order = list(self.policy.victims(tuple(kept), self.now))
        assert set(order) <= set(kept)
        assert len(set(order)) == len(order)
        self.answers.append([(one.program, one.thread) for one in order])
        for one in order[: len(order) // 3]:
            del self.kept[one.program, one.thread]

    def end(self, program):
        for book in (self.away, self.here, self.kept):
            for thread in [key for key in book if key[0] == program]:
                del book[thread]
        if self.watches:
            self.policy.end(program, self.now)

    def fetch(self):
        events = getattr(self.policy, "events", [])
        assert all(type(event) is KeepEvent for event in events)
        self.events += events
        events.clear()

    def run(self, events=800):
        for _ in range(events):
            self.now += self.rng.choice((0.0, 0.125, 1.0))
            self.returns()
            choice = self.rng.random()
            if choice < 0.6:
                self.leave()
            elif choice < 0.85:
                self.answered()
            elif choice < 0.95:
                self.shortage()
            else:
                self.end(self.rng.randrange(30))
            self.fetch()
        return self.answers


@pytest.mark.parametrize("name", retention_names())
def test_it_follows_the_protocol_and_keeps_its_knobs(name):
    policy = build_retention(load_system("vllm-opt", retention=name))
    assert isinstance(policy, Retention)
    assert policy.name == name
    assert type(policy).__doc__
    assert all(hasattr(policy, knob) for knob in knob_names(type(policy)))
    assert list(policy.victims((), 0.0)) == []


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_same_script_same_answers_and_no_look_at_the_future(case):
    one, two = Host(case, 1), Host(case, 1)
    assert one.run() == two.run()
    assert repr(one.events) == repr(two.events)  # NaN is not equal to itself
    if not getattr(one.policy, "clairvoyant", False):
        assert Host(case, 1, Blindfolded).run() == one.answers


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_what_is_decided_never_changes_with_what_comes_later(case):
    long, short = Host(case, 2), Host(case, 2)
    assert long.run(600)[: len(short.run(250))] == short.answers


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_nothing_is_left_of_programs_that_are_over(case):
    host = Host(case, 3)
    host.run()
    for program in range(30):
        host.end(program)
    book = getattr(host.policy, "absences", ())
    assert len(book) == 0
    assert not getattr(host.policy, "_stakes", {})
    assert not getattr(host.policy, "_calls", {})


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_every_absence_is_told_once_and_so_is_its_end(case):
    host = Host(case, 4)
    host.run()
    for program in range(30):
        host.end(program)
    host.fetch()
    begun = [event for event in host.events if event.what in ("keep", "evict")]
    over = [event for event in host.events if event.what in ("back", "gone")]
    assert len(begun) + len(over) == len(host.events)
    if host.watches:
        assert len(begun) == sum(isinstance(answer, float) for answer in host.answers)
        assert 0.8 * len(begun) < len(over) <= len(begun)  # whose program ended in its call says nothing
    assert all((event.what == "keep") == (event.until > event.time) for event in begun)
    assert all(not event.regret < 0.0 for event in over)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_it_asks_neither_clock_nor_chance(case, monkeypatch):
    def refuse(*_):
        raise AssertionError("a retention policy asked the machine for time or chance")

    expected = Host(case, 5).run(400)
    host = Host(case, 5)
    for function in ("time", "monotonic", "perf_counter"):
        monkeypatch.setattr(f"time.{function}", refuse)
    for function in ("random", "randrange", "choice", "uniform"):
        monkeypatch.setattr(f"random.{function}", refuse)
    assert host.run(400) == expected


def test_the_script_makes_policies_keep_and_evict():
    host = Host(("survival", {"price": "market"}), 1)
    host.run()
    whats = [event.what for event in host.events]
    assert min(whats.count(what) for what in ("keep", "evict", "back", "gone")) > 5
    assert any(INF > event.until > event.time for event in host.events if event.what == "keep")
