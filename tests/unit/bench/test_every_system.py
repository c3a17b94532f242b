"""Every system of the catalog on every workload: it runs, or exits 6 and says what is missing."""

import json

import pytest
from typer.testing import CliRunner

from bench.cli.main import app
from bench.config import ENGINES
from systems.capabilities import IMPOSSIBLE, capabilities, check, status
from systems.catalog import load_system, system_names
from workloads.load import workload_names

BUSY = ["--knob", "engine.max_num_seqs=8", "--knob", "engine.kv_blocks=9000", "--replicas", "2"]


def invoke(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def run(out, system, workload, *words):
    return invoke("run", "--system", system, "--workload", workload, "-n", 4, "--out", out, "--json", *words)


def possible(system, engine="sim"):
    return status(capabilities(load_system(system), engine)) != IMPOSSIBLE


OURS = [name for name in system_names() if possible(name) and load_system(name).front == "gateway"]
STOOD_IN_FOR = [name for name in system_names() if possible(name) and name not in OURS]


PAIRS = [(system, workload) for system in OURS for workload in workload_names()]
FORKS, TOOLS = "mcts", "swe"
"""Workloads that every system is held to with every change; the others on one system with a gate."""
FULL = "thunderagent"


def always(system, workload):
    return workload in (FORKS, TOOLS) or system == FULL


@pytest.mark.parametrize(
    ("system", "workload"),
    [pytest.param(*pair, marks=[] if always(*pair) else pytest.mark.slow) for pair in PAIRS],
)
def test_a_system_serves_a_workload(tmp_path, system, workload):
    closed = ["--concurrency", 4] if workload == "rl" else []  # its batches end before others begin
    got = run(tmp_path, system, workload, *BUSY, *closed)
    assert got.exit_code == 0, got.output
    found = json.loads(got.stdout)
    assert found["system"] == system
    assert found["metrics"]["program.response.mean"]["value"] > 0


@pytest.mark.parametrize("system", STOOD_IN_FOR)
def test_what_stands_in_for_a_third_party_is_said(tmp_path, system):
    got = invoke("run", "--system", system, "--workload", "chatbot", "-n", 4, "--out", tmp_path, *BUSY)
    assert got.exit_code == 0, got.output
    spec = load_system(system)
    assert f"FALLBACK front {spec.front} -> {spec.router}" in " ".join(got.stdout.split())


@pytest.mark.parametrize("system", [name for name in system_names() if not possible(name)])
def test_a_system_without_its_gate_retention_or_front_exits_6(tmp_path, system):
    got = run(tmp_path, system, "chatbot")
    assert got.exit_code == 6
    assert got.stderr.count("\n") == 1
    assert f"system {system} cannot run on engine sim: " in got.stderr


@pytest.mark.parametrize("system", [name for name in system_names() if not possible(name, "vllm-virtual")])
def test_vllm_is_refused_what_it_cannot_do_before_it_is_looked_for(tmp_path, system):
    got = run(tmp_path, system, "chatbot", "--engine", "vllm-virtual")
    assert got.exit_code == 6
    assert f"system {system} cannot run on engine vllm-virtual" in got.stderr


def test_the_lists_mark_what_cannot_run():
    matrix = {row["name"]: row for row in json.loads(invoke("ls", "capabilities", "--json").output)}
    assert sorted(matrix) == system_names()
    assert matrix["vllm-opt"]["vllm-virtual"] == "exact"
    assert matrix["mlfq"]["vllm-virtual"] == "swap -> recompute"
    assert matrix["vllm-base"]["vllm-virtual"] == "no: chunked_prefill false"
    marks = {row["name"]: row["engines"] for row in json.loads(invoke("ls", "systems", "--json").output)}
    assert marks["vllm-opt"] == "all"
    assert marks["mlfq"] == "sim, reference, vllm-virtual (swap -> recompute), vllm (swap -> recompute)"
    assert marks["lpm"] == "sim, reference, vllm-virtual"
    assert marks["thunderagent"] == "all"
    assert marks["smg-cache-aware"] == "vllm"
    assert set(ENGINES) <= set(matrix["atlas"])


@pytest.mark.parametrize("system", ["mlfq", "autellix", "srpt"])
def test_a_fallback_is_not_exact(system):
    (fallback,) = check(load_system(system), "vllm-virtual")
    assert (fallback.option, fallback.used) == ("preemption", "recompute")
