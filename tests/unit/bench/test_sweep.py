import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from bench.cells import Cells, Failure, Task
from bench.config import RunConfig
from bench.errors import Exit
from bench.files import locked
from bench.offline import Ledger, offline
from bench.plan import plan
from bench.run import RunResult, run
from bench.sweep import exit_code, points, run_cells, survey
from systems.schedulers.fcfs import Fcfs

HERE = "tests.unit.bench.test_sweep"
ROOT = Path(__file__).parents[3]


class Leaver(Fcfs):
    """A policy that ends the process it runs in."""

    name = "leaver"

    def arrive(self, call, snap, now):
        os._exit(9)


class Raiser(Fcfs):
    name = "raiser"

    def arrive(self, call, snap, now):
        raise RuntimeError("no such luck")


class Eater(Fcfs):
    name = "eater"

    def arrive(self, call, snap, now):
        raise MemoryError


class Suicide(Fcfs):
    name = "suicide"

    def arrive(self, call, snap, now):
        os.kill(os.getpid(), signal.SIGKILL)


def config(out, **words):
    return RunConfig(**({"system": "atlas", "workload": "chatbot", "n": 8, "rate": 2.0, "out": out} | words))


def grid(out, systems=("atlas", "vllm-opt", "plas"), seeds=(1, 2), **words):
    return [config(out, system=s, seed=seed, **words) for seed in seeds for s in systems]


def hashes(results):
    assert all(isinstance(r, RunResult) for r in results), results
    return [r.summary["result_hash"] for r in results]


@pytest.fixture(scope="module")
def serial(tmp_path_factory):
    """What ``bench run`` makes of the grid, one cell after the other."""
    return hashes([run(c) for c in grid(tmp_path_factory.mktemp("serial"))])


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_any_number_of_workers_gives_what_single_runs_give(tmp_path, serial, workers):
    results = run_cells(grid(tmp_path), workers=workers)
    assert hashes(results) == serial
    assert [r.summary["system"] for r in results] == [c.system for c in grid(tmp_path)]
    assert [r.folder for r in results] == [plan(c).folder for c in grid(tmp_path)]


def test_finished_cells_are_found_and_force_replaces_them(tmp_path, serial):
    first = grid(tmp_path)[1]
    run(first)
    assert [r.cached for r in run_cells(grid(tmp_path), workers=2)] == [c == first for c in grid(tmp_path)]
    again = run_cells(grid(tmp_path), workers=2)
    assert all(r.cached for r in again)
    assert hashes(again) == serial
    assert not any(r.cached for r in run_cells(grid(tmp_path)[:2], workers=1, force=True))


def test_no_configurations_no_results():
    assert run_cells([]) == []
    assert survey([]) == []


def test_more_of_the_same_programs_serve_for_fewer(tmp_path, monkeypatch):
    looks = []
    monkeypatch.setattr("bench.plan.Ledger", lambda specs: looks.append(len(specs)) or Ledger(specs))
    cells = Cells()
    for n in (40, 30, 36):
        (config,) = (c for c in grid(tmp_path, n=n, seeds=(1,))[:1])
        answer = cells(Task(config), lambda share: None)
        assert answer.fact[1] == offline(plan(config).programs.programs)
    assert looks == [40]


def test_programs_in_common_are_looked_at_once(tmp_path, monkeypatch):
    looks = []
    monkeypatch.setattr("bench.plan.Ledger", lambda specs: looks.append(len(specs)) or Ledger(specs))
    cells = Cells()
    answers = [cells(Task(c), lambda share: None) for c in grid(tmp_path, n=40, seeds=(1,))]
    assert looks == [40]
    assert len({a.fact for a in answers}) == 1
    told = Cells()(Task(grid(tmp_path / "b", n=40, seeds=(1,))[0], fact=answers[0].fact), lambda share: None)
    assert looks == [40]
    assert told.outcome.summary["result_hash"] == answers[0].outcome.summary["result_hash"]
    assert told.outcome.summary["metrics"] == answers[0].outcome.summary["metrics"]


def test_a_cell_in_a_sweep_starts_no_process_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr("bench.plan.in_background", lambda work: pytest.fail("forked"))
    assert isinstance(Cells()(Task(config(tmp_path, n=40)), lambda share: None).outcome, RunResult)


FAILING = {
    "Leaver": (Exit.INTERNAL, "seed 1: its process ended with exit code 9"),
    "Suicide": (Exit.MISSING, "seed 1: its process was ended by SIGKILL"),
    "Raiser": (Exit.USAGE, "no such luck"),
    "Eater": (Exit.MISSING, "out of memory"),
}


@pytest.mark.parametrize("workers", [1, 2])
def test_a_cell_that_fails_fails_alone(tmp_path, serial, workers):
    bad = {name: config(tmp_path, system=f"{HERE}:{name}") for name in FAILING}
    good = grid(tmp_path)
    results = run_cells([*bad.values(), *good], workers=workers)
    assert hashes(results[len(bad) :]) == serial
    for (name, asked), found in zip(bad.items(), results, strict=False):
        code, message = FAILING[name]
        assert isinstance(found, Failure)
        assert (found.config, found.exit_code) == (asked, code)
        assert message in found.message
        assert "\n" not in found.message
    assert exit_code(results) == Exit.INTERNAL
    assert exit_code(results[1:]) == Exit.MISSING
    assert exit_code(results[len(bad) :]) == Exit.OK


def test_invalid_cells_keep_their_code(tmp_path):
    wide = config(tmp_path, workload="tests.unit.bench.test_run:broken", n=2)
    results = run_cells([wide, config(tmp_path)], workers=2)
    assert results[0].exit_code == Exit.INVALID_RUN
    assert "a bug in the agent" in results[0].message
    assert isinstance(results[1], RunResult)
    assert exit_code(results) == Exit.INVALID_RUN


def test_a_full_disk_ends_it_and_the_rest_is_not_tried(tmp_path, monkeypatch):
    class Full:
        free = 1_000

    monkeypatch.setattr("bench.files.shutil.disk_usage", lambda folder: Full)
    results = run_cells(grid(tmp_path), workers=1)
    assert [r.message.startswith("not run") for r in results] == [False] + [True] * 5
    assert all(r.disk_full for r in results)
    assert "MB free" in results[0].message
    assert exit_code(results) == Exit.MISSING


def test_a_cell_that_another_bench_writes_is_waited_for(tmp_path):
    busy = plan(grid(tmp_path)[0]).folder
    busy.mkdir(parents=True)
    seen = []
    with locked(busy):
        assert run_until(lambda s: s.elsewhere and s.done == 5, grid(tmp_path), seen) is None
    assert not any(s.failed for s in seen)
    assert isinstance(run_cells(grid(tmp_path), workers=1)[0], RunResult)


class Enough(Exception):
    pass


def run_until(enough, configs, seen):
    """Run cells until ``enough(standing)``; None if it came to that."""

    def progress(standing):
        seen.append(standing)
        if enough(standing):
            raise Enough

    try:
        return run_cells(configs, workers=2, progress=progress)
    except Enough:
        return None


def test_two_sweeps_at_once_do_no_cell_twice(tmp_path, serial):
    code = (
        "import sys; from tests.unit.bench.test_sweep import grid, run_cells; from pathlib import Path\n"
        "results = run_cells(grid(Path(sys.argv[1])), workers=2)\n"
        "print(*(f'{r.summary[\"result_hash\"]}:{r.cached}' for r in results))"
    )
    both = [
        subprocess.Popen([sys.executable, "-c", code, tmp_path], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for _ in "ab"
    ]
    found = [[tuple(w.split(":")) for w in p.communicate(timeout=120)[0].split()] for p in both]
    assert [[h for h, _ in cells] for cells in found] == [serial, serial]
    assert all({a, b} != {"False"} for (_, a), (_, b) in zip(*found, strict=True))


def test_progress_counts_calls(tmp_path):
    seen = []
    results = run_cells(grid(tmp_path), workers=2, progress=seen.append)
    last = seen[-1]
    assert (last.cells, last.done, last.there, last.failed) == (6, 6, 0, 0)
    assert last.calls == sum(r.summary["calls"] for r in results)
    assert last.calls_left == 0
    assert [s.done for s in seen] == sorted(s.done for s in seen)


def test_seeds_are_pooled_point_by_point(tmp_path):
    configs = grid(tmp_path)
    results = run_cells(configs, workers=2)
    lost = Failure(configs[0], Exit.INVALID_RUN, "no")
    found = points(configs, [lost, *results[1:]])
    assert {c.system: s["seeds"] for c, s in found} == {"vllm-opt": [1, 2], "plas": [1, 2], "atlas": [2]}
    pooled = found[0][1]["metrics"]["program.s_per_token.mean_of_ratios"]["value"]
    single = [r.summary["metrics"]["program.s_per_token.mean_of_ratios"]["value"] for r in results[1::3]]
    assert pooled == pytest.approx(sum(single) / 2)


def test_a_survey_runs_nothing(tmp_path):
    configs = grid(tmp_path, seeds=(1,))
    run(configs[0])
    before = sorted(tmp_path.iterdir())
    looks = survey([*configs, replace(configs[0], system="atlass")], workers=2)
    assert sorted(tmp_path.iterdir()) == before
    assert [look.there for look in looks[:3]] == [True, False, False]
    assert {look.programs for look in looks[:3]} == {8}
    assert looks[0].calls == json.loads((before[0] / "summary.json").read_text())["calls"]
    assert looks[3].exit_code == Exit.USAGE


def test_an_interrupted_sweep_goes_on_to_the_same_results(tmp_path, serial):
    seen = []
    configs = grid(tmp_path)
    assert run_until(lambda s: s.done >= 1, configs, seen) is None
    results = run_cells(configs, workers=2)
    assert any(r.cached for r in results)
    assert hashes(results) == serial


def children(pid):
    listed = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(word) for word in listed.read_text().split()] if listed.exists() else []


def alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


SWEEP = [
    sys.executable, "-m", "bench.cli.main", "sweep", "--system", "atlas", "--system", "plas", "--workload",
    "mcts", "--rate", "0.3", "--n", "25", "--workers", "2", "--json", "--out",
]  # fmt: skip


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What the sweep stores where nobody stops it."""
    return stored(tmp_path_factory.mktemp("undisturbed"))


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_sweep_leaves_no_process_and_goes_on(tmp_path, how, undisturbed):
    process = subprocess.Popen([*SWEEP, str(tmp_path / "a")], stderr=subprocess.PIPE, text=True, cwd=ROOT)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("a/*/*.parquet.part")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    workers = children(process.pid)
    assert len(workers) == 2
    process.send_signal(how)
    stderr = process.communicate(timeout=30)[1]
    assert "Traceback" not in stderr
    assert "Warning" not in stderr
    if how == signal.SIGINT:
        assert process.returncode == 130
        assert "of 2 cells are finished and kept; the same command goes on" in stderr
    while any(alive(pid) for pid in workers):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert stored(tmp_path / "a") == undisturbed


def stored(out):
    """Result hashes by system, after one more sweep."""
    done = subprocess.check_output([*SWEEP, str(out)], text=True, cwd=ROOT, timeout=120)
    folders = {p["system"]: Path(p["results"]) for p in json.loads(done)["points"]}
    return {s: json.loads((f / "summary.json").read_text())["result_hash"] for s, f in folders.items()}
