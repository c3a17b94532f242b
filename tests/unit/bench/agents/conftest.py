"""Agents in ``bench run`` without vLLM: their host is real, the engines are none."""

from functools import partial

import pytest

from bench.agents import plan as plans
from bench.config import RunConfig
from tests.unit.bench.agents.engines import ChatEngine
from tests.unit.bench.live import conftest as live

stage = live.stage


@pytest.fixture
def agents(stage, monkeypatch):
    """The stage, with engines that chat."""
    monkeypatch.setattr(plans, "served", lambda config, options: live.SERVED)
    monkeypatch.setattr(plans, "device", lambda: "cpu")

    def make(plan, folder, gpus):
        made = [ChatEngine(folder / f"engine-{i}", **stage.options) for i in range(plan.config.replicas)]
        stage.engines += made
        return made

    monkeypatch.setattr(stage, "make", make)
    return stage


@pytest.fixture
def config(tmp_path):
    return partial(
        RunConfig, system="vllm-opt", workload="agents:react", n=3, engine="vllm", model="tiny-llama",
        gpu="cpu", parameters={"tasks": "game24"}, knobs={"live.front": "none"}, out=tmp_path / "out",
    )  # fmt: skip
