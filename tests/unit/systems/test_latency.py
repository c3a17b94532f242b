"""Latency tables: the published points, the decode line, the limits."""

import dataclasses
import json
import math
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from systems.latency import (
    ConstantLatency,
    RooflineLatency,
    ScaledLatency,
    TableLatency,
    UnknownTable,
    gpu_facts,
    gpus,
    latency_for,
    load_table,
    model_facts,
    models,
    read_table,
    table_file,
    tables,
)
from systems.latency.facts import kv_blocks
from vocabulary import GRID, INF, on_grid

ALL = {(model, gpu): load_table(model, gpu) for model, gpu in tables()}
ADDITIVE = sorted(key for key, table in ALL.items() if type(table) is TableLatency)
TABLES = {gpu: ALL["llama-3.1-8b", gpu] for gpu in ("a100", "h100")}
MODELS = [
    *ALL.values(),
    ConstantLatency(1.0),
    latency_for("falcon-180b", "a100"),
    ScaledLatency(TABLES["a100"], 1.07, 0.9),
    ScaledLatency(ConstantLatency(0.02), 0.5, 0.1),
    *(latency_for("llama-3.1-70b", "a100", {name: 1.15}) for name in ("prefill", "decode", "overhead")),
    latency_for("falcon-180b", "a100", {"prefill": 0.85, "decode": 1.3, "overhead": 0.5}),
]
any_model = st.sampled_from(MODELS)
batches = st.integers(1, 1500)
contexts = st.integers(1, 400_000)
prefill = st.tuples(st.integers(1, 70_000), st.integers(0, 300_000))

# Milliseconds from aiconfigurator-core 0.12.0, rounded to what is printed here:
# (gpu, prefills, decoding calls, context of each)
POINTS_70B = [
    *[([], n, 1024, ms) for n, ms in [(1, 27.2), (8, 29.9), (32, 33.1), (128, 45.9), (256, 70.5)]],
    *[([(n, 0)], 0, 0, ms) for n, ms in [(128, 37.9), (512, 105), (2048, 337), (8192, 1372)]],
]
POINTS = [
    *[("a100", [], n, 1024, ms) for n, ms in [(1, 11.9), (8, 12.6), (32, 15.6), (128, 24.8), (256, 43.7)]],
    *[("a100", [], n, 4096, ms) for n, ms in [(1, 12.2), (8, 14.7), (32, 25.1), (128, 56.4), (256, 105.8)]],
    *[("h100", [], n, 1024, ms) for n, ms in [(1, 6.2), (8, 6.6), (32, 8.3), (128, 12.8), (256, 19.6)]],
    *[("a100", [(n, 0)], 0, 0, ms) for n, ms in [(128, 14.5), (512, 36), (2048, 125), (8192, 557)]],
    *[("h100", [(n, 0)], 0, 0, ms) for n, ms in [(128, 7.6), (512, 12), (2048, 43.5), (8192, 200)]],
]


def raw_table(model, gpu):
    name, _, tp = model.partition(":tp")
    file = table_file(name, gpu, int(tp or model_facts()[name].tp))
    return json.loads((Path(__file__).parents[3] / "systems" / "latency" / "tables" / file).read_text())


@pytest.mark.parametrize(("gpu", "prefills", "n", "context", "ms"), POINTS)
def test_reference_points_within_one_percent(gpu, prefills, n, context, ms):
    assert TABLES[gpu].step(prefills, n, n * context) * 1e3 == pytest.approx(ms, rel=0.01)


@pytest.mark.parametrize(("prefills", "n", "context", "ms"), POINTS_70B)
def test_reference_points_of_70b_on_four_a100(prefills, n, context, ms):
    table = ALL["llama-3.1-70b", "a100"]
    assert table.tp == 4
    assert table.step(prefills, n, n * context) * 1e3 == pytest.approx(ms, rel=0.01)


BLOCKS = {
    ("llama-3.1-8b", "a100"): 27_062,
    ("llama-3.1-8b", "h100"): 27_062,
    ("llama-3.1-70b", "a100"): 28_376,
    ("qwen3-8b", "h100"): 23_919,
    ("qwen3-235b-fp8", "h100"): 54_892,  # and 109 784 with KV in FP8, below
}


@pytest.mark.parametrize("key", ALL, ids=" on ".join)
def test_kv_blocks_follow_from_the_memory_recorded(key):
    kv = raw_table(*key)["kv"]
    free = kv["memory_bytes"] * kv["memory_fraction"]
    free -= kv["weights_bytes"] + kv["activation_bytes"] + kv["runtime_bytes"]
    blocks = free // (kv["bytes_per_token"] * kv["block_tokens"])
    assert blocks == ALL[key].kv_blocks == BLOCKS.get(key, blocks)


def test_kv_in_fp8_gives_the_published_blocks_of_qwen3_235b():
    """The published 109 784 blocks have KV in FP8; vLLM keeps it in bf16 unless told otherwise."""
    kv = raw_table("qwen3-235b-fp8", "h100")["kv"]
    free = kv["memory_bytes"] * kv["memory_fraction"]
    free -= kv["weights_bytes"] + kv["activation_bytes"] + kv["runtime_bytes"]
    assert free // (kv["bytes_per_token"] // 2 * kv["block_tokens"]) == 109_784
    facts = dataclasses.replace(model_facts()["qwen3-235b-fp8"], kv_bytes=1)
    assert kv_blocks(facts, gpu_facts()["h100"], 8) == pytest.approx(109_784, rel=0.002)


@pytest.mark.parametrize("key", ALL, ids=" on ".join)
def test_a_table_says_where_it_comes_from_and_what_it_is_of(key):
    table = ALL[key]
    model, _, tp = key[0].partition(":tp")
    facts = model_facts()[model]
    assert (table.model, table.gpu, table.tp) == (model, key[1], int(tp or facts.tp))
    assert table.max_model_len == facts.max_model_len
    assert raw_table(*key)["kv"]["bytes_per_token"] == facts.kv_token_bytes(table.tp)
    package = table.provenance["package"]
    assert (
        table.provenance["licence"] == {"aiconfigurator-core": "Apache-2.0", "LLMServingSim": "MIT"}[package]
    )
    assert len(table.digest) == 64
    assert table.describe().startswith(f"{package} {table.provenance['version']} vLLM 0.")
    off = "x0.67..x1.70" if facts.experts else "+-15 %"
    assert table.describe().endswith(f"measured, not calibrated: absolute times {off}")
    assert table.uncertainty == facts.engine_band


@given(any_model, batches, contexts)
def test_decode_line_is_the_step_bit_for_bit(model, n, context):
    total = n * context
    a, b, limit = model.decode_line(n, total)
    assert limit > total
    last = min(limit, total + 100_000)
    for c in {total, (total + int(last)) // 2, math.ceil(last) - 1}:
        assert on_grid(a + b * c) == model.step((), n, c)


@given(any_model, batches, contexts, st.integers(0, 10**9))
def test_decode_time_never_falls_as_contexts_grow(model, n, context, more):
    shorter = model.step((), n, n * context)
    assert 0 < shorter <= model.step((), n, n * context + more) + GRID  # two lines meet up to a rounding


@given(any_model, st.lists(prefill, max_size=4), st.integers(0, 600), contexts)
def test_steps_are_on_the_grid_and_do_not_depend_on_the_order_of_prefills(model, prefills, n, context):
    if not prefills and not n:
        prefills = [(1, 0)]
    seconds = model.step(prefills, n, n * context)
    assert 0 < seconds == on_grid(seconds)
    assert seconds == model.step(prefills[::-1], n, n * context)


@given(st.sampled_from(ADDITIVE), prefill, st.integers(1, 300), st.integers(1, 30_000))
def test_a_mixed_step_takes_longer_than_its_attention_and_no_longer_than_two_steps(key, chunk, n, context):
    table = ALL[key]
    both = table.step([chunk], n, n * context)
    assert both > table.step([chunk], n, n) - GRID
    step_up = 1.65 if key[0].startswith("llama-3.1-70b-fp8") else 1.1  # FP8 GEMMs, at multiples of 256 tokens
    assert both < step_up * (table.step([chunk], 0, 0) + table.step((), n, n * context))


@pytest.mark.parametrize("gpu", ["a100", "h100"])
def test_pickled_tables_answer_alike(gpu):
    table = TABLES[gpu]
    copy = pickle.loads(pickle.dumps(ScaledLatency(table, 1.1))).base
    assert isinstance(copy, TableLatency)
    assert (copy.digest, copy.name) == (table.digest, table.name)
    assert copy.step([(77, 1234)], 9, 9 * 777) == table.step([(77, 1234)], 9, 9 * 777)


def test_answers_do_not_depend_on_what_was_asked_before():
    fresh = load_table("llama-3.1-8b", "a100")
    asked = [((), 5, 900), ([(5, 5)], 0, 0), ([(64, 0)], 5, 900), ((), 5, 900)]
    assert [fresh.step(*q) for q in asked] == [load_table("llama-3.1-8b", "a100").step(*q) for q in asked]


@pytest.mark.parametrize("key", ALL, ids=" on ".join)
def test_beyond_the_last_knot_a_step_grows_as_before(key):
    last = raw_table(*key)["shared"]["tokens"][-1]
    half, whole, more = (ALL[key].step([(n, 0)], 0, 0) for n in (last // 2, last, 4 * last))
    assert (more - whole) / (3 * last) > 0.8 * (whole - half) / (last - last // 2)


def test_an_empty_step_has_no_duration():
    with pytest.raises(ValueError, match="at least one call"):
        TABLES["a100"].step((), 0, 0)


@pytest.mark.parametrize("seconds", [0.0, -1.0, INF, math.nan])
def test_a_constant_step_takes_time(seconds):
    with pytest.raises(ValueError):
        ConstantLatency(seconds)


def test_catalogue_lists_what_is_there():
    assert {("llama-3.1-8b", "a100"), ("llama-3.1-70b", "a100"), ("llama-3.1-70b:tp8", "h100")} <= set(
        tables()
    )
    assert {"llama-3.1-8b", "llama-3.1-70b", "falcon-180b"} <= set(models())
    assert gpus() == ["a100", "h100", "h200", "rtx4090", "rtx5090"]


@pytest.mark.parametrize(
    ("asked", "kind", "name", "tp"),
    [
        ("llama-3.1-70b", TableLatency, "llama-3.1-70b:tp4/a100", 4),
        ("llama-3.1-70b:tp4", TableLatency, "llama-3.1-70b:tp4/a100", 4),
        ("llama-3.1-70b:tp8", TableLatency, "llama-3.1-70b:tp8/a100", 8),
        ("llama-3.1-70b:tp2", RooflineLatency, "llama-3.1-70b:tp2/a100", 2),
        ("llama-3.1-8b:tp1", TableLatency, "llama-3.1-8b/a100", 1),
        ("llama-3.1-8b:tp2", RooflineLatency, "llama-3.1-8b:tp2/a100", 2),
    ],
)
def test_a_model_without_a_table_gets_a_roofline(asked, kind, name, tp):
    latency = latency_for(asked, "a100")
    assert (type(latency), latency.name, latency.tp) == (kind, name, tp)


@pytest.mark.parametrize(
    ("model", "gpu", "hint"),
    [
        ("lama-3.1-8b", "a100", "unknown model, nearest: llama-3.1-8b"),
        ("llama-3.1-8b", "a1000", "unknown GPU, nearest: a100"),
        ("llama-3.1-70b:4", "a100", ":tpN.*not '4'"),
        ("llama-3.1-70b:tp0", "a100", ":tpN.*not 'tp0'"),
        ("../x", "a100", "unknown model"),
    ],
)
def test_unknown_names_are_explained(model, gpu, hint):
    with pytest.raises(UnknownTable, match=hint):
        latency_for(model, gpu)


@pytest.mark.parametrize(
    ("model", "gpu", "hint"),
    [
        ("lama-3.1-8b", "a100", "unknown model, nearest: llama-3.1-8b"),
        ("llama-3.1-8b", "a1000", "unknown GPU, nearest: a100"),
        ("llama-3.1-8b", "zzz", "unknown GPU, nearest: a100, h100"),
        ("../x", "a100", "unknown model"),
        ("falcon-180b", "a100", "no latency table.*there are: llama-3.1-70b on a100"),
    ],
)
def test_unknown_table_names_the_nearest(model, gpu, hint):
    with pytest.raises(UnknownTable, match=hint):
        load_table(model, gpu)


@pytest.mark.parametrize(
    ("part", "field", "value", "message"),
    [
        ("shared", "tokens", None, "field 'tokens' is missing"),
        ("shared", "tokens", [2, 1], "shared.tokens must be at least two increasing numbers"),
        ("logits", "ms", [1.0], "logits.ms must hold"),
        ("decode_attention", "ms", [[1.0]], "decode_attention.ms has 1 rows"),
        ("context_attention", "new", [1], "context_attention.new must be"),
    ],
)
def test_a_broken_table_is_refused_by_file_and_field(tmp_path, part, field, value, message):
    table = raw_table("llama-3.1-8b", "a100")
    if value is None:
        del table[part][field]
    else:
        table[part][field] = value
    path = tmp_path / "broken.json"
    path.write_text(json.dumps(table))
    with pytest.raises(ValueError, match=message) as error:
        read_table(path)
    assert str(path) in str(error.value)
