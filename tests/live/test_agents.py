"""Agents on a real vLLM server behind our gateway: scripts, real decoding, real tools; nothing left."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pandas as pd
import pytest

from bench.agents.drive import HOST
from bench.agents.pairs import outcomes_between
from bench.comparing import read_groups
from bench.config import RunConfig
from bench.live.cells import sweep_live
from bench.live.options import device
from bench.live.pool import Pool
from bench.live.room import Machine
from bench.run import RunResult
from workloads.agents import catalog
from workloads.agents.host_process import HostGone, find_python
from workloads.sandboxes.leaks import leaks

pytestmark = pytest.mark.live

SYSTEMS = ("vllm-opt", "atlas")
LOOPS = {"react": 2, "mapreduce": 1, "mcts": 1}
"""Agents, and how many programs of each."""
GUEST = "mini-swe"


def agents():
    """The loops, and a guest where the extra ``agents`` is installed."""
    try:
        find_python(catalog.agent(GUEST))
    except HostGone as error:
        print(f"without {GUEST}: {error}")
        return LOOPS
    return {**LOOPS, GUEST: 2}


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("agents")


def sweep(out, systems):
    """All agents under these systems; one server is up at a time, each is started once."""
    configs = [
        RunConfig(
            system, f"agents:{name}", n=n, engine="vllm", model="tiny-llama", gpu=device(), out=out,
            parameters={"sandbox": "bwrap"},
        )
        for system in systems
        for name, n in agents().items()
    ]  # fmt: skip
    return sweep_live(configs, print, pool=lambda: Pool(out / "live", print, machine=Machine(most=1)))


@pytest.fixture(scope="module")
def swept(out):
    """Under one system."""
    return sweep(out, SYSTEMS[1:])


def test_every_program_ends_and_the_engine_decodes_what_the_scripts_say(swept):
    failed = [outcome for outcome in swept.outcomes if not isinstance(outcome, RunResult)]
    assert failed == []
    for result in swept.outcomes:
        name, told = result.summary["workload"], result.summary["agents"]
        assert result.summary["outcomes"] == {"finished": told["success"]["n"]}, name
        tokens = told["tokens"]
        assert tokens["engine"] == tokens["scripted"] > 0, name
        assert tokens["calls_differ"] == 0, name
        assert told["calls"] == {"finished": result.summary["calls"]}, name


def test_critical_paths_and_costs_add_up(swept):
    for result in swept.outcomes:
        programs = pd.read_parquet(result.folder / "programs.parquet")
        parts = [column for column in programs if column.startswith("cp_")]
        assert (programs[parts].sum(axis=1) == programs.t_end - programs.t_arrive).all()
        kept = json.loads((result.folder / "agents.json").read_text())
        shared = kept["totals"]["cost"]["by_program"].values()
        totals = pd.read_parquet(result.folder / "totals.parquet")
        assert sum(shared) == pytest.approx(totals.busy_s.sum(), abs=1e-9)


@pytest.mark.slow
def test_outcomes_are_the_same_under_both_systems(swept, out):
    sweep(out, SYSTEMS)
    groups = read_groups(out, "BASE")
    for name in agents():
        mine = {
            g.first.summary["system"]: g for g in groups if g.first.summary["workload"] == f"agents:{name}"
        }
        told = outcomes_between(mine["vllm-opt"].cells, mine["atlas"].cells, True)
        assert (told["mcnemar"]["base_only"], told["mcnemar"]["new_only"]) == ([], []), name
        assert told["mcnemar"]["pairs"] == agents()[name]
        assert told["latency"]["value"] > 0


def test_nothing_is_left(swept, out):
    for result in swept.outcomes:
        environment = result.summary["agents"]["environment"]
        assert environment["leaks"] == []
        if result.summary["agents"]["sandbox"]:
            programs = result.summary["agents"]["success"]["n"]
            assert environment["init"]["n"] == environment["teardown"]["n"] == programs
            assert environment["init"]["failed"] == environment["teardown"]["failed"] == 0
    assert list((out / HOST).glob("*/sandboxes/*")) == []
    assert running(out) == []


def running(folder):
    """Processes whose command line or environment names the folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            words = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
        except OSError:
            continue
        if str(folder).encode() in words:
            found.append(entry.name)
    return found


def test_the_leak_check_itself_can_fail(tmp_path):
    """What is left in a folder of sandboxes is found."""
    (tmp_path / "left").mkdir()
    assert leaks(tmp_path, "nobody-of-this-name") == ["folder left"]
