"""Programs and policies of the user that fail: one line that names them, and an exit code that is not 0."""

import json
import random

import pytest
from typer.testing import CliRunner

from bench.cli.main import app
from systems.catalog import build_scheduler, load_system
from systems.schedulers.fcfs import Fcfs

HERE = "tests.unit.bench.test_foreign"


async def leaves(session):
    await session.call(new=10, output=2)
    raise SystemExit(0)


class Leaves(Fcfs):
    """Cannot be made."""

    def __init__(self):
        raise SystemExit


def bench(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def run(tmp_path, system="vllm-opt", workload="chatbot", *words):
    return bench(
        "run", "--system", system, "--workload", workload, "-n", 3, "--rate", 1, "--out", tmp_path, *words
    )


def fails(got, code, *says):
    assert (got.exit_code, len(got.output.splitlines())) == (code, 1), got.output
    assert "internal error" not in got.output
    for text in says:
        assert text in got.output


@pytest.mark.parametrize("verb", ["run", "stats"])
def test_a_program_that_exits_is_a_failed_program(tmp_path, verb):
    workload = f"{HERE}:leaves"
    got = bench("trace", "stats", workload) if verb == "stats" else run(tmp_path, workload=workload)
    fails(got, 4, workload, "SystemExit: 0")


def test_a_policy_that_cannot_be_made_is_named(tmp_path):
    fails(run(tmp_path, f"{HERE}:Leaves"), 2, f"{HERE}:Leaves cannot be made: SystemExit")


class Raises(Fcfs):
    def arrive(self, call, snap, now):
        raise RuntimeError("boom\nand more")


class Deep(Fcfs):
    def expire(self, call, served, now):
        return self.expire(call, served, now)

    def arrive(self, call, snap, now):
        return (0, now, 1.0)


class Strange(Fcfs):
    slot = None

    def arrive(self, call, snap, now):
        return self.slot


class Hours(Fcfs):
    unit = "hours"


class Early(Fcfs):
    tracks_wait = True

    def next_due(self):
        return "soon"


class Moves(Fcfs):
    tracks_wait = True

    def next_due(self):
        return 0.0

    def due(self, now):
        return [(1, (0, 0.0, 1.0))]


class Astray:
    name = "astray"

    def route(self, call, engines, now):
        return len(engines)


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        ("Raises", "scheduler tests.unit.bench.test_foreign:Raises, arrive(): RuntimeError: boom\n"),
        ("Deep", "expire(): RecursionError"),
        ("Hours", "one of step, s, token, got 'hours'"),
        ("Early", "next_due() returned 'soon'"),
        ("Moves", "due() returned 1"),
        ("Astray", "route() returned 2; it must return the id of a live engine"),
    ],
)
def test_what_a_policy_does_wrong_is_its_own(tmp_path, policy, says):
    fails(run(tmp_path, f"{HERE}:{policy}", "chatbot", "--replicas", 2), 2, says)


@pytest.mark.parametrize(
    "slot",
    [None, "abc", (-1, 0.0, 1.0), (0, float("nan"), 1.0), (0.5, 0.0, 1.0), (0, 0.0, 0.0), (0, "x", 1.0)],
)
def test_a_slot_is_a_level_a_key_and_a_quantum(tmp_path, monkeypatch, slot):
    monkeypatch.setattr(Strange, "slot", slot)
    fails(run(tmp_path, f"{HERE}:Strange"), 2, "arrive() returned", "it must return a Slot")


class Twice(Fcfs):
    """Moves the first call, whether it waits or not."""

    tracks_wait = True
    first = None

    def arrive(self, call, snap, now):
        self.first = self.first or call
        return (0, now, 1.0)

    def expire(self, call, served, now):
        return (0, now, 1.0)

    def next_due(self):
        return 0.0

    def due(self, now):
        return [(self.first, (0, 0.0, 1.0))] * 2


def test_due_moves_waiting_calls_once(tmp_path):
    fails(run(tmp_path, f"{HERE}:Twice"), 2, "due() returned", "waiting calls, each once")


@pytest.mark.parametrize("name", ["fcfs", "atlas"])
def test_a_watched_policy_decides_as_it_would_alone(tmp_path, name):
    cls = type(build_scheduler(load_system("vllm-opt", scheduler=name)))
    load = ["--knob", "engine.max_num_seqs=4", "--knob", "engine.kv_blocks=4000"]
    hashes = set()
    for scheduler in (name, f"{cls.__module__}:{cls.__qualname__}"):
        got = run(tmp_path, "vllm-opt", "mcts", "--scheduler", scheduler, *load, "--json")
        assert got.exit_code == 0, got.output
        hashes.add(json.loads(got.stdout)["result_hash"])
    assert len(hashes) == 1


PROGRAMS = {
    "tool": lambda s: s.tool("grep", -1.0),
    "think": lambda s: s.think(float("nan")),
    "forever": lambda s: s.tool("grep", float("inf")),
    "timeout": lambda s: s.timeout(-3.0, s.fork().join()),
}


async def waits(session):
    await session.call(new=10, output=2)
    await PROGRAMS[waits.how](session)


@pytest.mark.parametrize(
    ("how", "says"),
    [("tool", "-1.0 s"), ("think", "nan s"), ("forever", "inf s"), ("timeout", "a timeout of -3.0 s")],
)
def test_a_duration_that_is_none_names_program_and_value(tmp_path, how, says):
    waits.how = how
    fails(run(tmp_path, workload=f"{HERE}:waits"), 4, "program 0", says, "from 0 to")


async def joins(session):
    await session.join(session.call(new=10, output=2))


def test_join_says_what_it_takes(tmp_path):
    fails(run(tmp_path, workload=f"{HERE}:joins"), 4, "take coroutines", "got CallEffect")


async def gambles(session):
    await session.call(new=random.randrange(1, 10_000), output=2)


def test_a_program_that_is_not_the_same_twice_is_told_about_streams(tmp_path):
    fails(run(tmp_path, workload=f"{HERE}:gambles"), 4, "not the same twice", "workloads/random_streams.py")
