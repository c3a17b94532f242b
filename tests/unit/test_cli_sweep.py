import inspect
import json
import re

import pytest
from typer.testing import CliRunner

from bench.cells import Failure
from bench.cli import sweep as verb
from bench.cli.main import app
from bench.config import RunConfig
from bench.errors import Exit
from bench.sweep import Standing
from systems.schedulers.fcfs import Fcfs

SMALL = ["--workload", "chatbot", "-n", "8", "--rate", "2", "--workers", "2"]
TWO = ["--system", "atlas", "--system", "vllm-opt"]


class Raiser(Fcfs):
    name = "raiser"

    def arrive(self, call, snap, now):
        raise RuntimeError("no such luck")


def invoke(*words):
    return CliRunner().invoke(app, ["sweep", *(str(w) for w in words)])


@pytest.fixture
def out(tmp_path):
    return tmp_path / "results"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--system", "atlass", *SMALL], "Did you mean atlas"),
        ([*TWO, "--workload", "mctz"], "did you mean 'mcts'"),
        ([*TWO, "--workload", "mcts", "--rate", "0"], "above 0"),
        ([*TWO, "--workload", "mcts", "--rate", "0.5:0.2:3"], "LOW must be below HIGH"),
        ([*TWO, *SMALL, "--vary", "scheduler.betta=1,2"], "beta"),
        ([*TWO, *SMALL, "--vary", "brannch=1,2"], "no parameter 'brannch'"),
        ([*TWO, *SMALL, "--seeds", "0"], "at least 1"),
        ([*TWO, *SMALL, "--gpu", "a10"], "a100"),
        ([*TWO, *SMALL, "--engine", "simm"], "did you mean sim"),
    ],
)
def test_bad_input_is_one_line_before_anything_runs(words, says, out):
    done = invoke(*words, "--out", out)
    assert done.exit_code == 2, done.output
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not out.exists()


def test_a_sweep_prints_a_row_for_each_point_and_is_found_again(out):
    done = invoke(*TWO, *SMALL, "--rate", "3", "--seeds", "2", "--out", out)
    assert done.exit_code == 0, done.output
    assert "8 cells; 64 programs and about" in done.stderr
    rows = [line.split()[:2] for line in done.stdout.splitlines() if line.startswith(("atlas", "vllm-opt"))]
    assert sorted(rows) == [["atlas", "2"], ["atlas", "3"], ["vllm-opt", "2"], ["vllm-opt", "3"]]
    for part in ("SIMULATED", "2 seeds from 1 on", "t over seeds", "exploratory", f"results     {out}"):
        assert part in done.stdout
    assert f"compare     bench compare {out} {out} --base-system atlas --new-system vllm-opt" in done.stdout
    assert f"report      bench report {out}" in done.stdout
    assert len(list(out.glob("*/summary.json"))) == 8
    (repeat,) = re.findall(r"^repeat +bench sweep (.*)$", done.stdout, re.MULTILINE)
    again = invoke(*repeat.split(), "--dry-run")
    assert again.exit_code == 0, again.output
    assert "8 cells, 8 of them already there" in again.stdout


def test_json_has_every_point_with_its_settings(out):
    done = invoke("--system", "atlas", *SMALL, "--vary", "scheduler.beta=2,8", "--json", "--out", out)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert [p["axes"] for p in found["points"]] == [
        {"system": "atlas", "rate": "2", "beta": "2"}, {"system": "atlas", "rate": "2", "beta": "8"},
    ]  # fmt: skip
    assert found["failures"] == []
    assert "--vary scheduler.beta=2,8" in found["repeat"]
    first = json.loads(next(out.glob("*/summary.json")).read_text())
    assert set(first["metrics"]) == set(found["points"][0]["metrics"])


def test_dry_run_writes_nothing(out):
    done = invoke(*TWO, *SMALL, "--seeds", "3", "--dry-run", "--json", "--out", out)
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert (facts["cells"], facts["there"], facts["programs"]) == (6, 0, 48)
    assert facts["calls"] > 48
    assert len(set(facts["results"])) == 6
    assert not out.exists()


def test_a_cell_that_fails_is_named_and_the_others_are_shown(out):
    guest = f"{__name__}:Raiser"
    done = invoke("--system", guest, "--system", "atlas", *SMALL, "--seeds", "2", "--out", out)
    assert done.exit_code == 2, done.output
    assert "atlas" in done.stdout
    errors = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert len(errors) == 1
    assert f"{guest} on chatbot at 2/s, seed 1 and 1 more" in errors[0]
    assert "no such luck" in errors[0]


def test_a_full_disk_is_said_once():
    cells = [RunConfig("atlas", "mcts", rate=0.5, seed=seed) for seed in (1, 2, 3)]
    full = [Failure(cells[0], Exit.MISSING, "not run: full", True)]
    full += [Failure(c, Exit.MISSING, f"no space left for results in {c.seed}", True) for c in cells[1:]]
    (line,) = verb.failed(full)
    assert line == "error: atlas on mcts at 0.5/s, seed 1 and 2 more: no space left for results in 2"


def test_how_far_it_is_in_words():
    standing = Standing(40, 10, 4, 1, calls=5e5, calls_left=1.5e6, seconds=60.0, elsewhere=2)
    assert verb.left(standing) == "about 3 min left"
    assert verb.where(standing) == ("11 of 40 cells, 4 there before, 1 failed, 2 being run by another bench")
    assert verb.left(Standing(40)) == ""


def test_lines_come_every_30_seconds(capsys):
    lines = verb.Lines()
    for seconds in (1.0, 29.0, 31.0, 45.0, 62.0):
        lines(Standing(4, 1, calls=1e4, calls_left=3e4, seconds=seconds))
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "1 of 4 cells; 10,000 calls in 31 s; about 2 min left",
        "1 of 4 cells; 10,000 calls in 62 s; about 3 min left",
    ]


def test_at_most_20_flags():
    assert len(inspect.signature(verb.sweep).parameters) <= 20
