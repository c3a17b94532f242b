"""From runs with a gate and two engines to the frames and lines that show them."""

import math

import pytest
from rich.console import Console

from bench.config import RunConfig
from bench.gather import Labels, find
from bench.kv_cost import PARTS
from bench.policy_frames import SPANS, PolicyLogs, acted, by_size, kv_costs
from bench.report import NO_POLICY, frames
from bench.run import run
from reports.summary import render


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """Nobody at the door, and ThunderAgent: 10 programs, 8 at a time, on two engines too small for them."""
    out = tmp_path_factory.mktemp("cells")
    common = {"workload": "rollout:mini", "n": 10, "concurrency": 8, "replicas": 2, "out": out}
    small = {"engine.kv_blocks": "2000"}
    run(RunConfig("vllm-opt", knobs=small, on_overflow="truncate", **common))
    run(
        RunConfig(
            "thunderagent", knobs=small | {"environment": "on-demand"}, on_overflow="truncate", **common
        )
    )
    return out


@pytest.fixture(scope="module")
def cells(out):
    return {cell.summary["system"]: cell for cell in find([out]).cells}


def page(cell):
    console = Console(width=150, record=True)
    console.print(render(cell.summary))
    return console.export_text()


def value(cell, name):
    return cell.summary["metrics"][name]["value"]


def test_the_gate_held_and_its_numbers_fit_together(cells):
    gated = cells["thunderagent"]
    assert acted(gated)
    assert not acted(cells["vllm-opt"])
    assert value(gated, "gate.pause") > 0
    assert value(gated, "gate.hold") > 0
    assert 0 < value(gated, "hold.mean") < value(gated, "hold.max") <= value(gated, "worst_turn.max")
    assert value(gated, "env.peak_disk_gb") > 0
    assert math.fsum(value(gated, f"kv_cost.{part}") for part in PARTS) == pytest.approx(1.0)
    assert value(cells["vllm-opt"], "hold.max") == 0


def test_frames_hold_every_session_and_every_step(out, cells):
    data = frames([out])
    assert set(data["kv_costs"].system) == {cell["system"] for cell in data["points"].to_dict("records")}
    sessions = data["worst_turns"].groupby("system").size()
    assert sessions.tolist() == [10, 10]
    assert data["holds"].n.sum() == 10  # the gate's alone
    steps = data["steps_over_time"].groupby("system")
    assert steps.size().tolist() == [SPANS, SPANS]
    for name, rows in steps:
        cell = cells[name.split(" ")[0]]
        minutes = value(cell, "steps.makespan_s") / 60 / SPANS
        assert rows.per_min.sum() * minutes == pytest.approx(cell.summary["calls"])
    engines = data["engines_over_time"]
    assert engines.groupby("system").engine.nunique().tolist() == [2, 2]
    assert (engines.used + engines.cached).max() <= 1.0
    assert engines[engines.system.str.startswith("thunderagent")].held.max() > 0
    assert data["imbalance"].gap.between(0, 1).all()


def test_without_any_policy_the_frames_say_so(cells):
    logs = PolicyLogs(Labels.of([]))
    assert all(frame.empty for frame in logs.frames().values())
    assert by_size(logs.frames()["worst_turns"]).empty
    plain = frames([cells["vllm-opt"].folder])
    assert {plain[name].attrs["reason"] for name in ("kv_costs", "holds", "imbalance")} == {NO_POLICY}


def test_costs_are_those_of_the_summary(cells):
    gated = cells["thunderagent"]
    (row,) = kv_costs([gated], Labels.of([gated])).to_dict("records")
    assert row["caching"] == value(gated, "kv_cost.caching")
    assert row["load"] == "8 at all times"


def test_the_page_has_lines_where_a_gate_acted(cells):
    gated, plain = page(cells["thunderagent"]), page(cells["vllm-opt"])
    for word in ("holds", "pauses", "sandboxes", "KV used for", "gap of KV in use", "N = X x cycle"):
        assert word in gated
    flat = " ".join(gated.split())
    assert f"{value(cells['thunderagent'], 'gate.hold'):.0f} calls held" in flat
    assert f"{value(cells['thunderagent'], 'gate.admit'):.0f} programs let in" in flat
    assert "p99 n too small" in flat
    assert "assumed, not measured: preparing takes init_s = 30 s" in flat
    assert "pauses" not in plain
    assert "holds" not in plain
    assert "steps" in plain  # a closed loop
