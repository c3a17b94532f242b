import pytest

from bench.config import RunConfig
from bench.errors import MissingError
from bench.plan import plan
from bench.serving import UNLIMITED


def made(system, **given):
    return plan(RunConfig(system, "chatbot:paper", n=8, **given))


def test_a_system_s_options_reach_the_engine():
    base = made("vllm-base")
    assert (base.engine.prefix_cache, base.engine.chunked_prefill) == (False, False)
    assert base.serving.transfer is None
    assert base.engine.host_blocks == 0
    assert "chunked prefill off" in base.badge


def test_swap_has_a_cost_and_a_room_by_model():
    small, large = made("mlfq"), made("mlfq", model="llama-3.1-70b")
    assert small.serving.transfer.seconds(1) == pytest.approx(0.4e-3, rel=0.02)
    assert made("autellix").serving.transfer.seconds(1000) / 1000 == pytest.approx(0.084e-3, rel=0.01)
    assert small.engine.host_blocks > large.engine.host_blocks > 0
    assert "preemption by swap" in small.badge


def test_free_preemption_moves_for_nothing_without_end():
    srpt = made("srpt")
    assert srpt.serving.transfer is None
    assert srpt.engine.host_blocks == UNLIMITED
    assert made("mlfq", knobs={"engine.swap_scale": "0"}).serving.transfer is None


def test_factors_change_engine_times_and_address():
    plain = made("vllm-opt")
    for knob in ("latency.prefill", "latency.decode", "latency.overhead", "engine.kv_scale"):
        other = made("vllm-opt", knobs={knob: "1.15"})
        assert other.cell != plain.cell
    slower = made("vllm-opt", knobs={"latency.decode": "1.15"})
    assert slower.latency.step((), 64, 64_000) > plain.latency.step((), 64, 64_000)
    assert made("vllm-opt", knobs={"engine.kv_scale": "0.5"}).engine.kv_blocks == round(
        plain.engine.kv_blocks / 2
    )


def test_a_fallback_is_part_of_the_badge_and_what_is_missing_is_named():
    assert "FALLBACK preemption swap -> recompute" in made("mlfq", engine="vllm-virtual").badge
    with pytest.raises(MissingError, match="chunked_prefill"):
        made("vllm-base", engine="vllm-virtual")
    with pytest.raises(MissingError, match="front smg"):
        made("smg-cache-aware")


def test_a_horizon_decides_how_many_programs_come():
    config = RunConfig("vllm-opt", "chatbot:paper", rate=2.0, horizon=50.0)
    one, other = plan(config), plan(config.with_seed(2))
    assert len(one.programs.programs) == len(one.times)
    assert max(one.times) < 50.0
    assert len(one.programs.programs) != len(other.programs.programs)
    assert one.programs.digest == other.programs.digest
    assert "for 50 s, then drained" in one.load


def test_other_arrivals_are_in_load_and_address():
    poisson = RunConfig("vllm-opt", "chatbot:paper", rate=2.0, n=40)
    gamma = RunConfig("vllm-opt", "chatbot:paper", rate=2.0, n=40, arrivals="gamma:cv=3")
    assert plan(gamma).load == "40 programs, gamma, CV 3 2/s"
    assert plan(gamma).cell != plan(poisson).cell
