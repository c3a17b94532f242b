"""What a live plan makes of what was asked."""

import pytest

from bench.errors import MissingError, UsageError
from bench.live import options, served
from bench.live.options import LiveOptions, with_defaults
from bench.live.plan import live_plan
from bench.run import kept
from systems.schedulers.levels import DEFAULT_BOUNDS
from tests.unit.bench.live.conftest import SERVED


def test_every_limit_is_said(stage, config):
    plan = live_plan(config())
    assert (plan.engine.kv_blocks, plan.engine.max_num_seqs) == (256, 4)
    assert (plan.engine.max_num_batched_tokens, plan.engine.max_model_len) == (512, 4096)
    words = plan.config.words()
    assert "engine.kv_blocks=256" in words
    assert "--gpu" not in words
    assert kept(plan) is None


def test_constants_follow_the_token_scale(stage, config):
    plan = live_plan(config(system="mlfq", parameters={"token_scale": "1/16"}))
    assert dict(plan.spec.scheduler_knobs)["bounds"] == tuple(b / 16 for b in DEFAULT_BOUNDS["step"])
    router = live_plan(config(system="autellix", parameters={"token_scale": "1/16"}))
    assert dict(router.spec.router_knobs)["most_short"] == 128
    given = live_plan(config(system="mlfq", knobs={"scheduler.bounds": "3,9"}))
    assert dict(given.spec.scheduler_knobs)["bounds"] == (3, 9)
    whole = live_plan(config(system="mlfq", parameters={"token_scale": "1", "max_context": "4000"}))
    assert dict(whole.spec.scheduler_knobs)["bounds"] == DEFAULT_BOUNDS["step"]


def test_a_cell_is_of_its_machine_engine_and_front(stage, config, monkeypatch):
    first = live_plan(config()).cell
    assert live_plan(config()).cell == first
    for change in (
        {"version": "0.1"},
        {"machine": "another CPU"},
        {"front": "gateway"},
        {"client": "stream"},
    ):
        other = served.Served(**{**SERVED.as_json(), **change})
        monkeypatch.setattr("bench.live.plan.served", lambda config, options, other=other: other)
        assert (live_plan(config()).cell == first) == (other == SERVED)


def test_engines_that_run_already_decide_how_many_there_are(stage, config):
    own = {"live.attach": "http://a:1/, http://b:2"}
    plan = live_plan(config(knobs=own))
    assert plan.options.attach == ("http://a:1", "http://b:2")
    assert plan.config.replicas == 2
    with pytest.raises(UsageError, match="names 2 engines, --replicas says 3"):
        live_plan(config(knobs=own, replicas=3))


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"live.how": "dockr"}, "did you mean docker"),
        ({"live.frnt": "none"}, "did you mean live.front"),
        ({"live.load": "much"}, "between 0.05 and 10, got 'much'"),
    ],
)
def test_wrong_knobs_are_named(config, knobs, message):
    with pytest.raises(UsageError, match=message):
        LiveOptions.of(config(knobs=knobs))


def test_live_knobs_are_for_live_engines(config):
    with pytest.raises(UsageError, match=r"live\.how is for live engines"):
        config(engine="sim", knobs={"live.how": "docker"})


def test_on_a_gpu_kv_must_be_said(config):
    with pytest.raises(UsageError, match=r"--knob engine\.kv_blocks=N"):
        with_defaults(config(), "gpu")
    limits = with_defaults(config(knobs={"engine.kv_blocks": "1001"}), "gpu").limits()
    assert limits == {
        "kv_blocks": 1001,
        "max_num_seqs": 256,
        "max_num_batched_tokens": 2048,
        "max_model_len": 16384,
    }


def test_an_attached_engine_that_is_silent(monkeypatch):
    with pytest.raises(MissingError, match="does not answer GET /version"):
        served.attached_version(("http://127.0.0.1:9",))


def test_a_python_without_vllm(tmp_path):
    with pytest.raises(MissingError, match=r"live\.python: there is no"):
        served.python_of(LiveOptions(python=tmp_path / "python"))


def test_the_device_is_told_from_the_driver(monkeypatch):
    monkeypatch.setattr(options.shutil, "which", lambda name: None)
    assert options.device() == "cpu"


def test_cells_behind_other_fronts_are_comparable(stage, config):
    behind = served.Served(**{**SERVED.as_json(), "front": "vllm-router==0.1.17"})
    assert behind.digest == SERVED.digest
    assert served.Served(**{**SERVED.as_json(), "version": "0.1"}).digest != SERVED.digest
