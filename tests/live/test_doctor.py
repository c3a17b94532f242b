"""bench doctor with a real vLLM: the contract's items, and the import that --deep does."""

from __future__ import annotations

import json

import pytest
import typer
from typer.testing import CliRunner

from bench.cli.doctor import doctor
from bench.doctor import contract
from bench.doctor.check import OK, Here
from bench.doctor.checks import vllm
from systems.engines.vllm_virtual import vllm_python

pytestmark = pytest.mark.live

SCHEDULERS = ("fcfs", "plas")
FAMILIES = ("forks", "starved")
"""The command tries all of them; here test_schedules does."""


@pytest.mark.slow
def test_the_contract_holds_in_this_vllm(monkeypatch):
    monkeypatch.setattr(contract, "scheduler_names", lambda: SCHEDULERS)
    monkeypatch.setattr(contract, "HELD", SCHEDULERS[1:])
    cases = [case for case in contract.scenarios(contract.SEED, 1) if case.family in FAMILIES]
    monkeypatch.setattr(contract, "scenarios", lambda first, each: cases)
    app = typer.Typer()
    app.command()(doctor)
    done = CliRunner().invoke(app, ["--vllm-python", str(vllm_python()), "--json"])
    assert done.exit_code == 0, done.output
    report = json.loads(done.output)
    failed = [row for row in report["verdicts"] if not row["holds"]]
    assert failed == []
    names = {row["name"] for row in report["verdicts"]}
    assert {"our class loads", "a server's scheduler", "two steps in flight (async)", "retention"} <= names
    assert {f"steps under {name}" for name in SCHEDULERS} <= names
    assert "wrong rules are seen" in names


@pytest.mark.slow
def test_our_class_can_be_imported_there():
    found = vllm.CHECK.look(Here(deep=True, limit_s=120.0))
    assert found.state == OK, found
