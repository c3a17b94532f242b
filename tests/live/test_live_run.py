"""``bench run`` and ``bench sweep`` on a real vLLM server behind our gateway: measured, kept, predicted."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from bench.config import RunConfig
from bench.live.cells import Swept, run_live, sweep_live
from bench.live.options import device
from bench.live.pool import Pool
from bench.live.room import Machine

pytestmark = pytest.mark.live

PROGRAMS = 6


class Kept(Pool):
    """A pool that outlives the commands of this file."""

    def close(self):
        """Not yet."""


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    folder = tmp_path_factory.mktemp("live")
    pool = Kept(folder, print, machine=Machine(most=1))
    yield pool
    Pool.close(pool)
    assert not list(running(folder))


def running(folder):
    """Processes that name the folder in their command line."""
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and str(folder).encode() in (entry / "cmdline").read_bytes():
                yield entry.name
        except OSError:
            continue


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("out")


def config(out, system="vllm-opt", seed=1, **changes):
    knobs = {"engine.max_num_seqs": "2", "engine.kv_blocks": "128", "engine.max_model_len": "2048"}
    return RunConfig(
        system, "react", rate=6.0, n=PROGRAMS, seed=seed, engine="vllm", model="tiny-llama", gpu=device(),
        parameters={"token_scale": "1/16"}, knobs=knobs, out=out, **changes,
    )  # fmt: skip


def test_a_run_is_measured_from_the_schedulers_log_and_not_made_again(pool, out):
    said = []
    (result,) = run_live([config(out)], said.append, pool=lambda: pool).outcomes
    summary = result.summary
    assert summary["badge"].startswith("MEASURED (vLLM 0.")
    assert "behind our gateway" in summary["badge"]
    assert summary["outcomes"] == {"finished": PROGRAMS}
    assert 0.5 < summary["metrics"]["kv.hit_rate"]["value"] < 1.0
    assert (
        0
        < summary["metrics"]["wait.cp_overhead_s"]["value"]
        < summary["metrics"]["program.response.mean"]["value"]
    )
    made = json.loads((result.folder / "manifest.json").read_text())
    command = made["serving"]["engines"][0]["command"]
    assert any("PolicyScheduler" in word for word in command)
    assert made["serving"]["front"]["kind"] == "gateway"
    calls = pd.read_parquet(result.folder / "calls.parquet")
    assert len(calls) == summary["calls"]
    assert not any("could not be flushed" in warning for warning in summary["warnings"])
    again = run_live([config(out)], said.append, pool=lambda: pool)
    assert again.outcomes[0].cached
    assert again.outcomes[0].summary["result_hash"] == summary["result_hash"]


@pytest.mark.slow
def test_a_sweep_of_two_systems_on_one_engine_is_predicted_from_other_seeds(pool, out):
    configs = [config(out, system, seed) for seed in (1, 2) for system in ("vllm-opt", "session-pinned")]
    swept: Swept = sweep_live(configs, print, pool=lambda: pool)
    assert swept.done == 4, swept.outcomes
    assert swept.outcomes[0].cached  # of the test above
    assert pool._engines_up() == 1  # both systems' schedulers are alike: the engine is shared
    rows, notes = swept.beside(print)
    assert notes == []
    for row in rows:
        for name in ("measured", "predicted"):
            assert row[name]["response_mean"]["value"] > 0
        gap = row["measured"]["hit_rate"]["value"] - row["predicted"]["hit_rate"]["value"]
        assert abs(gap) < 0.1
