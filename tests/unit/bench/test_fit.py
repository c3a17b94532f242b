"""A generator fitted to programs of known parameters finds them, and says where it does not match."""

import json
import math

import numpy as np
import pytest
from typer.testing import CliRunner

from bench.cli.main import app
from bench.config import RunConfig
from bench.errors import UsageError
from bench.fit import fit, table, toml
from bench.fit_report import marginal, report, two_sample
from bench.plan import load_programs
from bench.trace_survey import survey
from reports.trace_fit import mismatches, render
from workloads.base import ProgramSet, ProgramSpec, WorkloadError
from workloads.dag import program_hash
from workloads.dryrun import dry_runs
from workloads.fitted import WORKLOAD
from workloads.load import load
from workloads.random_streams import Stream, parse_dist

RNG = np.random.default_rng(2)


def fitted(name, n, path):
    found = fit(load(name, n=n, seed=4))
    path.write_text(toml(found))
    return found, report(found, path, 1)


def verdicts(facts):
    return {m["quantity"]: m["verdict"] for m in facts["marginals"]}


def test_chains_with_shared_prefixes_are_found_again(tmp_path):
    found, facts = fitted("react", 200, tmp_path / "f.toml")
    assert set(verdicts(facts).values()) <= {"matches", "close"}
    assert found.parameters["shared_groups"] == 20
    assert found.parameters["shared_share"] == 1.0
    for hits in facts["prefix"].values():
        assert hits["generated"] == pytest.approx(hits["trace"], abs=0.05)
    assert [r["trace"] == r["generated"] for r in facts["residual_life"]] == [True, True]
    assert mismatches(facts) == []
    render(facts)


def test_the_laws_of_a_chatbot_are_found_again(tmp_path):
    found, facts = fitted("chatbot", 600, tmp_path / "f.toml")
    new, output, steps = (found.parameters[name] for name in ("new_prompt", "output", "steps"))
    assert new["dist"] == "lognormal"
    assert new["mu"] == pytest.approx(4.39, abs=0.1)
    assert new["sigma"] == pytest.approx(1.55, abs=0.08)
    assert output["dist"] == "weibull"
    assert output["k"] == pytest.approx(1.347, abs=0.05)
    assert steps["dist"] in ("lognormal", "empirical")
    assert verdicts(facts)["new prompt tokens per call"] == "matches"
    assert any("no arrivals" in line for line in facts["left_out"])


def test_branches_go_as_far_as_they_go_and_the_rest_is_said(tmp_path):
    found, facts = fitted("mapreduce", 120, tmp_path / "f.toml")
    assert found.parameters["fork_share"] == 0.5  # one fan-out, one reduce
    assert verdicts(facts)["output tokens per call"] in ("matches", "close")
    # Steps fork independently, so some programs fork twice and some never: that must be said.
    assert any(line.startswith("calls per program") for line in mismatches(facts))
    deep, facts = fitted("mcts:lats", 12, tmp_path / "g.toml")
    assert deep.parameters["branch_inherits"] > 0.9
    assert any("prompt tokens per call" in line for line in mismatches(facts))


def test_a_fit_of_a_fit_is_stable(tmp_path):
    """Generated programs fitted again give the same marginals."""
    path = tmp_path / "f.toml"
    fitted("react:tau", 150, path)
    _, facts = fitted(f"fitted:{path}", 300, tmp_path / "g.toml")
    assert "differs" not in verdicts(facts).values()


def test_arrivals_become_a_kind_of_arrivals():
    programs = load("chatbot", n=400)
    for gaps, kind in ((RNG.exponential(2, 400), "poisson"), (RNG.gamma(0.25, 8, 400), "gamma:cv=")):
        for spec, time in zip(programs.programs, gaps.cumsum(), strict=True):
            spec.arrival = float(time)
        found = fit(programs)
        assert found.arrivals.startswith(kind)
        assert found.parameters["rate"] == pytest.approx(1 / gaps.mean(), rel=0.1)
        assert (f"--rate {found.arrivals}@" in toml(found)) == (kind != "poisson")
    for spec in programs.programs:
        spec.arrival = 3.0 * (spec.arrival // 3.0)
    ticked = fit(programs)
    assert ticked.arrivals == "poisson"
    assert any("coarse clock" in line for line in ticked.left_out)


@pytest.mark.parametrize(
    "values",
    [
        RNG.lognormal(3, 1, 2000),
        np.round(RNG.weibull(1.3, 2000) * 300),
        RNG.integers(1, 6, 500).astype(float),
        np.concatenate([RNG.normal(50, 2, 400), RNG.normal(5000, 9, 300)]),
        np.full(70, 9.0),
    ],
)
def test_a_table_draws_what_it_was_made_of(values):
    dist = parse_dist(table(values), "x")
    stream = Stream(99)
    drawn = np.array([dist.value(stream) for _ in range(4000)])
    drawn = np.round(drawn) if np.all(values == np.round(values)) else drawn
    assert two_sample(values, drawn) < 1.63 * math.sqrt(1 / len(values) + 1 / 4000) + 0.01
    assert drawn.min() >= values.min()
    assert drawn.max() <= values.max()


def test_two_sample_distance_by_hand():
    assert two_sample(np.array([1.0, 2, 3, 4]), np.array([3.0, 4, 5, 6])) == 0.5
    assert two_sample(np.array([1.0, 1]), np.array([1.0])) == 0.0


def test_a_quantity_that_is_not_generated_differs():
    tools, none = (survey(load(name, n=5)) for name in ("react:hotpot", "chatbot"))
    assert marginal("tool s per use", tools, none)["verdict"] == "differs"
    assert marginal("tool s per use", none, none) is None
    assert marginal("calls per program", tools, none)["verdict"] == "too few"


def test_the_file_runs_and_takes_parameters(tmp_path):
    path = tmp_path / "f.toml"
    got = CliRunner().invoke(app, ["trace", "fit", "react:tau", "-n", "80", "-o", str(path), "--json"])
    assert got.exit_code == 0, got.output
    facts = json.loads(got.output)
    assert facts["file"] == str(path)
    one = load(f"fitted:{path}", n=5, seed=1)
    assert one.name == "fitted:f"
    assert program_hash(dry_runs(one.programs)) == program_hash(
        dry_runs(load(f"fitted:{path}", n=5, seed=1).programs)
    )
    half = load(f"fitted:{path}", n=5, seed=1, parameters={"token_scale": "1/2"})
    assert half.digest != one.digest
    again = CliRunner().invoke(app, ["trace", "fit", "react:tau", "-n", "80", "-o", str(path)])
    assert (again.exit_code, "--force" in again.output) == (2, True)
    moved = tmp_path / "elsewhere" / "f.toml"
    moved.parent.mkdir()
    moved.write_text(path.read_text())
    assert load(f"fitted:{moved}", n=5, seed=1).digest == one.digest  # content counts, not where it is


def test_contexts_stay_inside_what_there_is():
    for limit in (3000, 200, 2):
        programs = WORKLOAD.build(40, 3, None, {"max_context": limit}).programs
        assert max(dag.longest for dag in dry_runs(programs)) <= limit


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "cannot be read"),
        ("[other]\n", "no .fitted. table"),
        ("= 1", "f.toml"),
        ("[fitted]\n", "missing"),
    ],
)
def test_files_that_are_no_fit_are_refused(content, says, tmp_path):
    path = tmp_path / "f.toml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(WorkloadError, match=says):
        WORKLOAD.build(1, 1, str(path))


def test_a_plan_of_a_fitted_file_says_its_name(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(toml(fit(load("chatbot", n=60))))
    assert load_programs(RunConfig("", f"fitted:{path}", n=4)).name == "fitted:mine"


def test_programs_that_make_no_calls_are_not_fitted(tmp_path):
    async def idle(s):
        await s.think(1.0)

    with pytest.raises(UsageError, match="nothing to fit"):
        fit(ProgramSet([ProgramSpec(0, "x", 1, idle)], "idle", "", {}, None))
