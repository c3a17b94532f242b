"""A whole experiment on the simulator, small: runs, fit, tuning, claims, page, what there was before."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench.cli.main import app
from bench.curves.runner import Options
from bench.loops.runner import facts, run, write
from reports.claims import render

DATA = {
    "name": "x:smoke", "kind": "loop", "title": "a small loop", "source": "ours", "reference": "vLLM",
    "scales": {"small": {"cost": "none", "warm_up": 5.0, "window": 20.0, "seeds": 2, "tune_seeds": 1}},
    "systems": [
        {"name": "vLLM", "system": "vllm-opt"}, {"name": "gate", "system": "thunderagent"},
        {"name": "cap", "system": "program-cap", "tune": "gate.programs", "shares": [0.5]},
    ],
    "panels": [
        {"name": "a", "label": "mini", "workload": "swe:mini", "n": [2, 4], "programs": 16,
         "parameters": {"stagger": "1", "calls": "6"}, "knobs": {"engine.kv_blocks": "3000"},
         "fit": {"system": "vLLM", "place": 2, "steps_per_min": 60.0},
         "paper": {"steps_per_min": {"vLLM": [60, 110]}}}
    ],
    "claims": [
        {"id": "same", "source": "ours", "statement": "room for all: the gate does nothing", "kind": "same",
         "panels": ["a"], "places": [2], "top": "gate", "bottom": "vLLM", "tolerance": 0.02},
        {"id": "little", "source": "ours", "statement": "Little's law", "kind": "level", "panels": ["a"],
         "quantity": "in_loop", "top": "vLLM", "places": [4], "expected": 4.0, "tolerance": 0.01},
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    out = tmp_path_factory.mktemp("loop")
    return run(DATA, Path("smoke.toml"), Options("small", out, workers=1)), out


def test_claims_rows_and_fit(outcome):
    found, _ = outcome
    same, little = found.claims
    assert same["verdict"] == little["verdict"] == "exploratory: reproduced"
    (fit,) = found.study.fits.values()
    assert fit.reached or fit.tries > 1
    assert len(found.tables["Every row"]) == 6
    assert found.study.tuned[("a", "cap")] in ({2: a, 4: b} for a in "12" for b in "124")


def test_the_page_and_its_figures(outcome, tmp_path):
    found, _ = outcome
    files = write(found, tmp_path, "bench reproduce x:smoke")
    assert {"loop_rates.svg", "loop_hits.png"} <= {f.name for f in files}
    page = files[0].read_text()
    assert "Fitted and tuned" in page
    assert "room for all: the gate does nothing" in page
    shown = facts(found, files) | {"computed_s": 1.0, "repeat": "bench reproduce x:smoke"}
    text = (tmp_path / "claims.md").read_text()
    assert "| room for all: the gate does nothing | 1 within 2% |" in text
    assert render(shown) is not None
    assert shown["badge"][0].startswith("SIMULATED")


def test_run_again_it_is_all_there_and_the_same(outcome):
    found, out = outcome
    again = run(DATA, Path("smoke.toml"), Options("small", out, workers=1))
    assert facts(again, [out])["cells_there"] == len(again.results)
    assert again.claims == found.claims


@pytest.mark.parametrize("option", ["--robustness", "--only-claims"])
def test_options_of_other_kinds_are_refused(option):
    result = CliRunner().invoke(app, ["reproduce", "thunderagent:fig4", option])
    assert result.exit_code == 2
