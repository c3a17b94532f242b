"""Live runs without vLLM: plans that believe in one, and pools of engines that are none."""

from functools import partial

import pytest

from bench.config import RunConfig
from bench.drivers.audit import Audit
from bench.live import beside, predict
from bench.live import plan as plans
from bench.live.pool import Pool
from bench.live.room import Machine
from bench.live.served import Served
from tests.unit.bench.live.engines import FakeEngine

SERVED = Served("vllm", "0.0", "tiny-llama", "A CPU", 2, "cpu", "none", "process", "stream", False, 32)


class Stage:
    """Makes pools whose engines it remembers."""

    def __init__(self, folder):
        self.folder = folder
        self.engines = []
        self.said = []
        self.pools = []
        self.options = {"slots": 8, "step_s": 0.0005}
        self.gpus = []

    def pool(self, **changes):
        own = {"engines": self.make, "front": lambda *_: None, "machine": Machine(most=8), "sweep": list}
        pool = Pool(self.folder, self.said.append, **{**own, **changes})
        self.pools.append(pool)
        return pool

    def make(self, plan, folder, gpus):
        self.gpus.append(list(gpus))
        made = [FakeEngine(folder / f"engine-{i}", **self.options) for i in range(plan.config.replicas)]
        self.engines += made
        return made


@pytest.fixture
def stage(tmp_path, monkeypatch):
    monkeypatch.setattr(plans, "served", lambda config, options: SERVED)
    monkeypatch.setattr(plans, "device", lambda: "cpu")
    monkeypatch.setattr(Audit, "verdict", property(lambda self: "ok"))  # however busy this machine is
    for module in (beside, predict):
        monkeypatch.setattr(module, "ENSEMBLE", 2)
    found = Stage(tmp_path / "out" / "live")
    yield found
    for pool in found.pools:
        pool.close()


@pytest.fixture
def config(tmp_path):
    own = {"live.front": "none", "live.client": "whole"}
    return partial(
        RunConfig, system="vllm-opt", workload="chatbot", rate=60.0, n=6, engine="vllm",
        model="tiny-llama", gpu="cpu",
        parameters={"token_scale": "1/64"}, knobs=own, out=tmp_path / "out",
    )  # fmt: skip
