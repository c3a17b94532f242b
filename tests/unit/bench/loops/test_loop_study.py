from dataclasses import replace

import pytest

from bench.errors import MissingError
from bench.loops.map import marks, winners
from bench.loops.study import FIT_SEED, TUNE_SEED, source
from systems.latency.scaled import SCALES
from tests.unit.bench.loops.planted import BASE, Planted, loop, luck, study

FEW = {"small": BASE["scales"]["small"] | {"seeds": 2}}


def rate(config):
    value = 100.0 * luck(config)
    return value * (2.0 if config.knobs.get("gate.programs") == "16" else 1.0)


def test_phases_and_their_seeds():
    panel = BASE["panels"][0] | {"fit": {"system": "base", "place": 8, "steps_per_min": 80.0}}
    run = Planted(rate)
    done = study(run, loop(panels=[panel], scales=FEW))
    assert run.phases[0] == "fit 1"
    assert run.phases[-2:] == ["tune 1", "measure"]
    assert {c.seed for c in run.asked} == {FIT_SEED, TUNE_SEED, TUNE_SEED + 1, 1, 2}
    assert done.tuned == {("a", "cap"): {8: "8", 16: "16", 32: "16"}}
    reported = [c for c in run.asked if c.seed < FIT_SEED]
    assert len(reported) == 2 * 3 * 4
    assert {c.knobs["latency.decode"] for c in reported} == {f"{next(iter(done.fits.values())).scale:g}"}
    assert {c.parameters["at_start"] for c in reported} == {"8", "16", "32"}


def test_the_systems_of_a_seed_run_the_same_programs():
    """But for a limit's line, whose programs have no age."""
    run = Planted(rate)
    study(run, loop(scales=FEW))
    rows = [c for c in run.asked if c.seed < FIT_SEED]
    for seed in (1, 2):
        for n in (8, 16, 32):
            same = [c for c in rows if (c.seed, c.concurrency) == (seed, n)]
            assert len({(c.workload, c.n, c.parameters["stagger"]) for c in same}) == 1
            aged = {c.knobs.get("gate.programs", ""): c.parameters["at_start"] for c in same}
            assert aged == {"": str(n), str(min(n, 16)): str(min(n, 16))}


def test_there_are_enough_programs_for_the_highest_rate():
    done = study(Planted(rate), loop(scales=FEW))
    (panel,) = done.panels
    steps = 1.2 * 500 * 210 / 60
    assert done.programs(panel, 8) == 8 + -(-steps // next(iter(done._steps.values())))
    assert done.programs(replace(panel, programs=300), 8) == 300
    assert done.programs(replace(panel, programs=-1), 8) == 8


def test_what_cannot_run_is_kept_with_its_reason(monkeypatch):
    def refused(config):
        if config.system == "thunderagent":
            raise MissingError("no such gate here")

    monkeypatch.setattr("bench.loops.study.plan", refused)
    done = study(Planted(rate), loop(scales=FEW))
    assert done.missing == {("a", "double"): "no such gate here"}
    assert "double" not in {row.system for row in done.rows}


def test_a_trace_that_is_not_there_is_not_testable(monkeypatch, tmp_path):
    monkeypatch.setenv("BENCH_TRACES", str(tmp_path))
    panel = {k: v for k, v in BASE["panels"][0].items() if k != "workload"} | {"trace": "weka"}
    done = study(Planted(rate), loop(panels=[panel]))
    assert not done.rows
    assert all("no folder weka" in why for why in done.missing.values())
    assert source(done.panels[0]) == str(tmp_path / "weka")


def test_prices_come_from_the_panels_step_times():
    systems = [{"name": "base", "system": "vllm-opt"}, {"name": "keep", "system": "survival", "prices": True}]
    panel = BASE["panels"][0]
    slow = panel | {"name": "slow", "knobs": {f"latency.{part}": "2" for part in SCALES}}
    tiered = panel | {"name": "tiered", "knobs": {"engine.host_tier": "true"}}
    run = Planted(rate)
    study(run, loop(systems=systems, panels=[panel, slow, tiered], scales=FEW))
    told = [c.knobs for c in run.asked if c.system == "survival" and (c.seed, c.concurrency) == (1, 8)]
    token, square = ([float(k[f"retention.{what}"]) for k in told] for what in ("token_s", "token2_s"))
    assert token[1] == pytest.approx(2 * token[0], rel=1e-3)
    assert square == [pytest.approx(square[1] / 2, rel=1e-3), square[1], 0.0]
    assert "retention.token_s" not in next(c.knobs for c in run.asked if c.system == "vllm-opt")


AXES = [
    {"name": "pressure", "crossed": True, "values": [{"name": "1", "n": [8]}, {"name": "2", "n": [16]}]},
    {"name": "tools", "crossed": True, "values": [{"name": "fast"}]},
    {"name": "loop", "values": [{"name": "closed"}, {"name": "open", "rates": [0.5], "in_system": 8}]},
]  # fmt: skip


def contest(config):
    better = config.system == "thunderagent" and config.concurrency == 16
    return 100.0 * luck(config) * (1.4 if better else 1.0)


def test_the_map_names_winners_and_whether_their_lead_is_clear():
    points = [{"label": "A: a paper", "at": {"pressure": "2", "tools": "fast"}}]
    systems = BASE["systems"][:3]
    done = study(Planted(contest), loop(axes=AXES, marks=points, systems=systems))
    found = {row["x"] + row["map"]: row for row in winners(done)}
    assert found["pressure 2loop closed"]["winner"] == "double"
    assert found["pressure 2loop closed"]["clear"]
    assert found["pressure 2loop closed"]["gain"] == pytest.approx(1.4, rel=0.02)
    assert not found["pressure 1loop closed"]["clear"]
    assert found["pressure 1loop open"]["metric"] == "program_s"
    (mark,) = marks(done)
    assert (mark["x"], mark["y"], mark["map"]) == ("pressure 2", "tools fast", "loop closed")
