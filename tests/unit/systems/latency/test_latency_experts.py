"""Models with experts and FP8 weights: facts, rooflines by hand, refusals, what their tables are made of."""

import json
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from systems.latency import (
    RooflineLatency,
    TableLatency,
    gpu_facts,
    latency_for,
    load_table,
    model_and_tp,
    model_facts,
    tables,
)
from systems.latency.model import band
from systems.latency.roofline import EXPERT_LAYER_S, roofline_uncertainty

FOLDER = Path(__file__).parents[4] / "systems" / "latency" / "tables"
EXPERTS = [key for key in tables() if model_and_tp(key[0])[0].experts]
QWEN, GLM = model_facts()["qwen3-235b"], model_facts()["glm-4.6"]


def bare(model, gpu, tp=8):
    return RooflineLatency(model_facts()[model], gpu_facts()[gpu], tp, factor=1.0)


def test_one_token_touches_as_many_experts_as_it_chooses_and_many_touch_all():
    assert QWEN.experts_touched(1) * QWEN.experts == pytest.approx(8)
    assert QWEN.experts_touched(2) * QWEN.experts == pytest.approx(8 + 8 * 120 / 128)
    assert QWEN.experts_touched(4096) == pytest.approx(1.0)
    assert model_facts()["llama-3.1-8b"].experts_touched(7) == 0.0


def test_a_prefill_step_of_a_model_with_experts_by_hand():
    tokens, attention = 8192, 4096 * (64 + 2 * 4) * 128 + 64 * 128 * 4096
    common = 94 * (attention + 4096 * 128)
    chosen = 94 * 8 * 3 * 4096 * 1536
    flops = 2 * tokens * (common + chosen) + 4 * 94 * 64 * 128 * tokens * (tokens + 1) / 2
    head = 2 * 151_936 * 4096 / 8 / 3.35e12
    reduce = tokens * 4096 * 2 * 2 * 94 * 2 * 7 / 8 / 450e9
    seconds = bare("qwen3-235b", "h100").step([(tokens, 0)], 0, 0)
    assert seconds == pytest.approx(flops / 8 / 989e12 + head + reduce, rel=1e-6)


def test_a_decode_step_reads_the_experts_it_touches():
    a, b, _ = bare("qwen3-235b", "h100").decode_line(64, 64)
    experts = QWEN.routed_parameters * (1 - (1 - 8 / 128) ** 64)
    reduce = 64 * 4096 * 2 * 2 * 94 * 2 * 7 / 8 / 450e9
    read = 2 * (QWEN.common_parameters + experts + QWEN.head_parameters) / 8 / 3.35e12
    assert a == pytest.approx(read + reduce, rel=1e-6)
    assert b == pytest.approx(2 * 94 * 1 * 128 * 2 / 3.35e12, rel=1e-6)  # each GPU has one whole KV head


def test_no_measured_step_with_experts_is_below_the_floor():
    least = min(load_table(*key).step((), 1, 1) / model_and_tp(key[0])[0].moe_layers for key in EXPERTS)
    assert EXPERT_LAYER_S <= least < 1.1 * EXPERT_LAYER_S


def test_glm_has_dense_layers_first_and_a_shared_expert():
    assert (GLM.moe_layers, GLM.dense_layers, GLM.shared_experts) == (89, 3, 1)
    assert GLM.active_parameters - GLM.common_parameters == 89 * 8 * 3 * 5120 * 1536


def test_weights_in_fp8_are_half_but_for_embedding_and_head():
    eight, sixteen = model_facts()["llama-3.1-70b-fp8"], model_facts()["llama-3.1-70b"]
    assert sixteen.weight_bytes - eight.weight_bytes == sixteen.layer_parameters
    assert 2 * eight.kv_token_bytes(4) == sixteen.kv_token_bytes(4)  # KV has scales, too
    assert bare("llama-3.1-70b-fp8", "h100", 4).step([(4096, 0)], 0, 0) < bare(
        "llama-3.1-70b", "h100", 4
    ).step([(4096, 0)], 0, 0)


@pytest.mark.parametrize("model", ["llama-3.1-70b-fp8", "qwen3-235b-fp8", "glm-4.6-fp8"])
def test_fp8_is_refused_where_there_are_no_units_for_it(model):
    with pytest.raises(ValueError, match=f"{model} does not run on a100: the GPU has no FP8 matrix units"):
        latency_for(model, "a100")


@pytest.mark.parametrize(
    ("model", "gpu", "message"),
    [
        ("glm-4.6", "h100", "glm-4.6 does not fit on 8 x h100: .* 88 of 86 GB per GPU; a node has no more"),
        ("qwen3-235b:tp3", "h100", "cannot be split over 3 GPUs; possible: 1, 2, 4, 8"),
        ("llama-3.1-70b:tp16", "h100", "cannot be split over 16 GPUs"),
    ],
)
def test_what_does_not_fit_is_refused(model, gpu, message):
    with pytest.raises(ValueError, match=message):
        latency_for(model, gpu)


def test_a_roofline_with_experts_says_how_far_off_it_may_be():
    glm = latency_for("glm-4.6-fp8", "h100")
    low, high = roofline_uncertainty(model_facts()["glm-4.6-fp8"])
    assert glm.uncertainty == (low, high)
    assert glm.describe() == (
        f"roofline, no kernel measured: x{low:.2f}..x{high:.2f}, and not calibrated: x0.67..x1.70 on top"
    )


@given(st.integers(1, 4000), st.integers(0, 60_000), st.integers(0, 256), st.integers(1, 8192))
def test_more_work_never_takes_less_time(new, cached, n, context):
    glm = latency_for("glm-4.6", "h200")
    step = glm.step([(new, cached)], n, n * context)
    assert step <= glm.step([(new + 1, cached)], n, n * context)
    assert step <= glm.step([(new, cached + 1)], n, n * context)
    assert step <= glm.step([(new, cached)], n + 1, (n + 1) * context)


def test_pickled_rooflines_with_experts_answer_alike():
    glm = latency_for("glm-4.6", "h200")
    glm.step([(7, 0)], 3, 30)
    copy = pickle.loads(pickle.dumps(glm))
    assert copy.step([(77, 1234)], 9, 9 * 777) == glm.step([(77, 1234)], 9, 9 * 777)
    assert copy.digest == glm.digest


@pytest.mark.parametrize("key", EXPERTS, ids=" on ".join)
def test_a_table_with_experts_carries_the_band_of_the_published_points(key):
    table = load_table(*key)
    assert table.uncertainty == (0.67, 1.7)
    assert "power-law routing" in table.provenance["note"]


def test_tables_say_what_is_not_simply_measured():
    notes = {key: load_table(*key).provenance.get("note", "") for key in tables()}
    assert all(
        "static scales" in note for (model, _), note in notes.items() if model.startswith("llama-3.1-70b-fp8")
    )
    assert "55 us" in notes["qwen3-235b-fp8", "h100"]
    assert "Qwen3-30B-A3B" in notes["qwen3-coder-30b", "h100"]
    repaired = {key: load_table(*key).provenance.get("repaired", []) for key in tables()}
    assert {key: len(points) for key, points in repaired.items() if points} == {
        ("qwen3-coder-30b:tp1", "a100"): 1
    }


@pytest.mark.parametrize("field", [[1.0], [0.0, 1.0], [2.0, 1.0], [0.5, float("inf")]])
def test_a_broken_uncertainty_is_refused(field):
    table = json.loads((FOLDER / "llama-3.1-8b_a100.json").read_text())
    with pytest.raises(ValueError, match="uncertainty must be two factors"):
        TableLatency(table | {"uncertainty": field}, "")
    assert (
        TableLatency(table | {"uncertainty": [0.5, 3.0]}, "")
        .describe()
        .endswith("absolute times x0.50..x3.00")
    )


def test_a_band_in_words():
    assert (band((0.85, 1.15)), band((0.67, 1.7))) == ("+-15 %", "x0.67..x1.70")


def test_tables_are_small():
    sizes = {path.name: path.stat().st_size for path in FOLDER.glob("*.json")}
    assert max(sizes.values()) <= 6 * 1024
    assert len(sizes) >= 30
