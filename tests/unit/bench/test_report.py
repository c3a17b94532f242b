"""From results on disk to a report."""

import json
import math
import os
import re
import shutil

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from bench.cli.main import app
from bench.config import RunConfig
from bench.errors import MissingError, UsageError
from bench.gather import Labels, edges_of, find, joined
from bench.report import cross, crossings, frames, write
from bench.run import run

MEAN = "transient.mean_of_ratios"
LOOPS = {"loop_hits", "loop_rates", "settle_map"}
"""Figures that only experiments make."""
POLICIES = {
    "disk",
    "engines_over_time",
    "holds",
    "imbalance",
    "kv_costs",
    "regrets",
    "steps_over_time",
    "worst_turns",
}
"""Figures of runs in which a gate, retention or sandboxes acted."""


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Two systems, two rates, two seeds; one set-up with a knob; one unfinished cell."""
    out = tmp_path_factory.mktemp("cells")
    base = {"workload": "chatbot", "n": 20, "out": out}
    for system in ("vllm-opt", "mlfq"):
        for rate in (1.0, 40.0):
            for seed in (1, 2):
                run(RunConfig(system, rate=rate, seed=seed, knobs={"engine.max_num_seqs": "4"}, **base))
    (out / "half").mkdir()
    (out / "half" / "manifest.json").write_text("{}")
    return out


@pytest.fixture(scope="module")
def data(results):
    return frames([results])


def invoke(*words):
    return CliRunner().invoke(app, [str(w) for w in words])


def test_points_have_place_load_and_every_number(data, results):
    points = data["points"]
    assert len(points) == 8
    assert sorted(set(points.system)) == ["mlfq", "vllm-opt"]
    assert sorted(set(points.rate)) == [1.0, 40.0]
    cell = json.loads((results / points.cell[0] / "summary.json").read_text())
    assert points[MEAN][0] == cell["metrics"][MEAN]["value"]
    assert points.horizon.tolist() == (20 / points.rate).tolist()
    assert not points.sustainable.any()  # 20 programs are too few to show it
    assert points.badge.str.startswith("SIMULATED").all()


def test_splits_sum_to_the_response(data):
    split = data["split"]
    parts = [c for c in split if c.endswith("_s")]
    path = split[split["path"] == "critical path"].set_index(["system", "rate"])[parts].sum(axis=1)
    responses = data["points"].groupby(["system", "rate"])["program.response.mean"].mean()
    pd.testing.assert_series_equal(path.sort_index(), responses.sort_index(), check_names=False)
    waits = split[split["path"] == "all calls"].set_index(["system", "rate"]).wait_s
    expected = data["points"].groupby(["system", "rate"])["wait.wait_s"].mean()
    pd.testing.assert_series_equal(waits.sort_index(), expected.sort_index(), check_names=False)


def test_bins_hold_every_call_and_every_program(data):
    points = data["points"].groupby(["system", "rate"])
    for name, column in (("bins_calls", "calls"), ("bins_programs", "programs")):
        counts = data[name].groupby(["system", "rate"]).n.sum()
        assert (counts.sort_index() == points[column].sum().sort_index()).all()
        one = data[name][(data[name].system == "mlfq") & (data[name].rate == 40.0)].sort_values("bin_low")
        assert (one.bin_high.to_numpy()[:-1] < one.bin_low.to_numpy()[1:]).all()
        assert one.centre.between(one.bin_low, one.bin_high).all()


def test_bins_keep_equal_values_together():
    assert edges_of(np.array([1] * 90 + list(range(2, 12)))).tolist() == [1]
    assert len(edges_of(np.arange(800))) == 8


def test_hits_are_the_summarys(data):
    hits, points = data["hits"], data["points"]
    assert hits.hit_rate.tolist() == points["kv.hit_rate"].tolist()
    assert (hits.hit_rate <= hits.optimum + 1e-12).all()


def test_crossings():
    rates, values = np.array([1.0, 2.0, 4.0]), np.array([0.1, 0.2, 0.6])
    assert cross(rates, values, 0.4) == pytest.approx((3.0, 2.0, 4.0))
    assert math.isnan(cross(rates, values, 0.7)[0])
    assert cross(rates, values, 0.7)[1:] == (4.0, math.inf)
    assert cross(rates, values, 0.05)[1:] == (0.0, 1.0)
    one = pd.DataFrame([{"workload": "w", "model": "m", "system": "s", "rate": 1.0, MEAN: 0.1}])
    assert crossings(one).attrs["reason"].startswith("one rate only")


def test_set_ups_never_share_a_name(results, tmp_path):
    base = {"workload": "chatbot", "n": 5, "rate": 1.0, "out": tmp_path}
    run(RunConfig("mlfq", knobs={"engine.max_num_seqs": "4"}, **base))
    run(RunConfig("mlfq", knobs={"engine.max_num_seqs": "8"}, **base))
    cells = find([tmp_path]).cells
    labels = Labels.of(cells)
    assert sorted(labels.system(c) for c in cells) == [
        "mlfq engine.max_num_seqs=4",
        "mlfq engine.max_num_seqs=8",
    ]
    same = find([results]).cells
    assert {Labels.of(same).system(c) for c in same} == {"mlfq", "vllm-opt"}


def test_options_that_a_whole_picture_shares_stand_with_its_model(tmp_path):
    base = {"n": 5, "rate": 1.0, "out": tmp_path}
    for system in ("mlfq", "vllm-opt"):
        run(RunConfig(system, "chatbot", knobs={"engine.max_num_seqs": "4"}, **base))
    run(RunConfig("mlfq", "mcts", knobs={"engine.record_decisions": "false"}, **base))
    cells = find([tmp_path]).cells
    labels = Labels.of(cells)
    assert {labels.system(c) for c in cells} == {"mlfq", "vllm-opt"}
    assert {labels.model(c) for c in cells} == {"llama-3.1-8b", "llama-3.1-8b engine.max_num_seqs=4"}


def test_what_is_only_written_down_makes_no_other_set_up(tmp_path):
    for recorded in ("true", "false"):
        knobs = {"engine.record_decisions": recorded}
        run(RunConfig("mlfq", "chatbot", n=5, rate=1.0, knobs=knobs, out=tmp_path))
    cells = find([tmp_path]).cells
    assert {Labels.of(cells).system(c) for c in cells} == {"mlfq"}


def test_options_of_one_slot_and_value_are_one_word():
    given = ["latency.prefill=0.9", "latency.decode=0.9", "gate.programs=3", "latency.overhead=1"]
    assert joined(given) == ["latency.prefill/decode=0.9", "gate.programs=3", "latency.overhead=1"]


def test_closed_loops_of_two_sizes_are_not_averaged(tmp_path):
    for size in (2, 6):
        run(RunConfig("mlfq", "chatbot", concurrency=size, n=12, out=tmp_path))
    data = frames([tmp_path])
    for name in ("split", "bins_calls", "hits"):
        assert set(data[name].load) == {"2 at all times", "6 at all times"}


def test_a_closed_loop_has_no_rate_and_says_so(tmp_path):
    run(RunConfig("mlfq", "chatbot", concurrency=2, n=12, out=tmp_path))
    data = frames([tmp_path])
    assert np.isnan(data["points"].rate[0])
    assert data["points"].load[0] == "2 at all times"
    paths = write(tmp_path / "r", "t", data, provenance={})
    assert {p.stem for p in paths[1:]} == {
        "kv_hits", "pareto", "time_split", "wait_exec_calls", "wait_exec_programs"
    }  # fmt: skip
    assert "latency_curves: no arrival rate" in paths[0].read_text()


def test_folders_that_are_none_or_empty(tmp_path):
    with pytest.raises(UsageError, match="no folder"):
        frames([tmp_path / "none"])
    with pytest.raises(MissingError, match="no finished result"):
        frames([tmp_path])


def test_the_command_writes_page_and_figures(results, tmp_path):
    out = tmp_path / "rep"
    done = invoke("report", results, results, "--out", out, "--title", "A & B", "--json")
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert facts["results"] == 8
    assert list(facts["unfinished"]) == [str(results / "half")]
    assert set(facts["not_drawn"]) == {"agents", "horizon", "sensitivity", "tail_curves"} | LOOPS | POLICIES
    html = (out / "report.html").read_text()
    assert "<h1>A &amp; B</h1>" in html
    assert "bench report" in html
    assert "half" in html
    cells = [p.name for p in results.iterdir() if p.name != "half"]
    assert all(cell in html for cell in cells)
    for word in ("sensitivity: no sensitivity: only an experiment", "Exploratory", "engine.max_num_seqs=4"):
        assert word in html
    names = {p.name for p in (out / "figures").iterdir()}
    assert {"latency_curves.png", "latency_curves.svg", "latency_curves.csv"} <= names
    assert not [name for name in names if name.endswith(".part")]


def test_the_command_says_what_is_wrong(tmp_path):
    (tmp_path / "file").write_text("x")
    for words, code, message in (
        ([tmp_path / "none"], 2, "is no folder"),
        ([tmp_path], 6, "no finished result"),
    ):
        done = invoke("report", *words, "--out", tmp_path / "r")
        assert done.exit_code == code
        assert message in done.output


def remade(folder, copy, **identity):
    """The result again in another folder, with another cell and another identity."""
    shutil.copytree(folder, copy)
    for name in ("manifest.json", "summary.json"):
        data = json.loads((copy / name).read_text())
        data["cell"] = copy.name
        data.get("identity", {}).update(identity)
        (copy / name).write_text(json.dumps(data))
    return copy


def test_a_run_made_again_by_other_code_counts_once_and_a_changed_system_gets_its_hash(tmp_path):
    old = run(RunConfig("mlfq", "chatbot", n=5, rate=1.0, out=tmp_path)).folder
    new = remade(old, tmp_path / "aaaa", code="0")
    os.utime(old / "summary.json", (1, 1))
    found = find([tmp_path])
    assert [cell.folder for cell in found.cells] == [new]
    assert "made again later" in found.unfinished[str(old)]
    remade(old, tmp_path / "bbbb", system="changed")
    names = frames([tmp_path])["points"].system.tolist()
    assert len(set(names)) == 2
    assert all(re.fullmatch("mlfq #[0-9a-f]{4}", name) for name in names)


def test_horizons_are_never_averaged(tmp_path):
    for n in (5, 10):
        for system in ("vllm-opt", "mlfq"):
            run(RunConfig(system, "chatbot", n=n, rate=1.0, out=tmp_path))
    data = frames([tmp_path])
    assert data["points"].programs.tolist() == [10, 10]
    assert sorted(data["horizons"].horizon) == [5.0, 5.0, 10.0, 10.0]
    assert data["bins_programs"].n.sum() == 20
