"""Parts of a step varied one at a time, and together."""

import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from systems.latency import ConstantLatency, ScaledLatency, latency_for, load_table, tables
from systems.latency.scaled import SCALES, floor
from vocabulary import GRID, INF, on_grid

A100 = load_table("llama-3.1-8b", "a100")
BASES = [
    *(load_table(*table) for table in tables()),
    latency_for("falcon-180b", "a100"),
    ConstantLatency(0.02),
]
STEP = [((), 8, 8192), ([(512, 0)], 0, 0), ([(512, 64)], 8, 8192)]

bases = st.sampled_from(BASES)
factors = st.floats(0.1, 10.0)
batches = st.integers(1, 600)
contexts = st.integers(1, 50_000)
chunks = st.lists(st.tuples(st.integers(1, 4096), st.integers(0, 100_000)), min_size=1, max_size=3)
FLOORS = {base.name: floor(base) for base in BASES}


@given(bases, factors, factors, factors, batches, contexts)
def test_decode_line_is_the_step_bit_for_bit(base, prefill, decode, overhead, n, context):
    model = ScaledLatency(base, 1.1, 0.3, prefill=prefill, decode=decode, overhead=overhead)
    a, b, limit = model.decode_line(n, n * context)
    assert limit > n * context
    last = min(limit, n * context + 100_000)
    for c in {n * context, math.ceil(last) - 1}:
        assert on_grid(a + b * c) == model.step((), n, c) > 0


@given(bases, batches, contexts, chunks)
def test_factors_of_one_change_no_bit(base, n, context, prefills):
    model = ScaledLatency(base)
    assert model.name == base.name
    assert model.step((), n, n * context) == base.step((), n, n * context)
    assert model.step(prefills, 0, 0) == base.step(prefills, 0, 0)
    assert model.step(prefills, n, n * context) == base.step(prefills, n, n * context)
    assert model.decode_line(n, n * context) == base.decode_line(n, n * context)


@given(bases, st.integers(0, 600), contexts, chunks)
def test_each_factor_moves_its_own_part_and_the_parts_add_up(base, n, context, prefills):
    low, query = FLOORS[base.name], (prefills, n, n * context)
    whole = base.step(*query)
    decode = base.step((), n, n * context) if n else low
    parts = {"overhead": low, "decode": decode - low, "prefill": max(whole - decode, 0.0)}
    for name, part in parts.items():
        moved = ScaledLatency(base, **{name: 1.15}).step(*query)
        assert moved - whole == pytest.approx(0.15 * part, abs=2 * GRID)


@given(bases, batches, contexts, factors)
def test_a_pure_decode_step_knows_no_prefill(base, n, context, factor):
    assert ScaledLatency(base, prefill=factor).step((), n, n * context) == base.step((), n, n * context)


@given(bases, chunks, factors)
def test_a_pure_prefill_step_knows_no_decode(base, prefills, factor):
    moved = ScaledLatency(base, decode=factor).step(prefills, 0, 0)
    assert moved == pytest.approx(base.step(prefills, 0, 0), abs=2 * GRID)


@given(bases, st.integers(0, 600), contexts, chunks)
def test_no_step_is_shorter_than_the_overhead(base, n, context, prefills):
    assert base.step(prefills, n, n * context) >= FLOORS[base.name] - 4 * GRID
    assert base.step((), n + 1, (n + 1) * context) >= FLOORS[base.name] - 4 * GRID


@given(bases, factors, factors, factors, st.integers(0, 600), contexts, chunks)
def test_any_factors_give_a_step_on_the_grid(base, prefill, decode, overhead, n, context, prefills):
    model = ScaledLatency(base, prefill=prefill, decode=decode, overhead=overhead)
    seconds = model.step(prefills, n, n * context)
    assert 0 < seconds == on_grid(seconds)
    assert seconds == model.step(prefills[::-1], n, n * context)


def test_a_constant_is_all_overhead():
    assert ScaledLatency(ConstantLatency(0.5), overhead=1.5).step([(512, 0)], 8, 8192) == 0.75
    assert ScaledLatency(ConstantLatency(0.5), prefill=2, decode=3).step([(512, 0)], 8, 8192) == 0.5


def test_calibration_moves_every_step_alike():
    scaled = ScaledLatency(A100, 1.25, 2.0)
    for query in STEP:
        assert scaled.step(*query) == pytest.approx(A100.step(*query) * 1.25 + 0.002, abs=2 * GRID)


@pytest.mark.parametrize(
    ("scale", "extra"), [(0.0, 1.0), (-1.0, 1.0), (1.0, -0.1), (INF, 0.0), (math.nan, 0.0)]
)
def test_calibration_refuses_what_cannot_be_a_fit(scale, extra):
    with pytest.raises(ValueError, match="need scale > 0"):
        ScaledLatency(A100, scale, extra)


@pytest.mark.parametrize("name", SCALES)
@pytest.mark.parametrize("factor", [0.0, -1.0, 0.09, 11.0, INF, math.nan])
def test_a_factor_is_between_a_tenth_and_ten(name, factor):
    with pytest.raises(ValueError, match=rf"latency\.{name} must be a factor between 0\.1 and 10"):
        latency_for("llama-3.1-8b", "a100", {name: factor})


def test_an_unknown_part_is_refused():
    with pytest.raises(ValueError, match=r"no latency\.speed to scale; there are: prefill, decode, overhead"):
        latency_for("llama-3.1-8b", "a100", {"speed": 2.0})


def test_a_scaled_model_keeps_what_the_engine_needs_and_says_what_was_varied():
    base, scaled = A100, latency_for("llama-3.1-8b", "a100", {"prefill": 1.15, "overhead": 0.85})
    assert scaled.name == "llama-3.1-8b/a100 (prefill x 1.15, overhead x 0.85)"
    assert scaled.describe() == base.describe() + " (prefill x 1.15, overhead x 0.85)"
    assert (scaled.kv_blocks, scaled.max_model_len, scaled.tp) == (base.kv_blocks, base.max_model_len, 1)
    assert scaled.provenance == {**base.provenance, "scales": {"overhead": 0.85, "prefill": 1.15}}


def test_digests_follow_the_factors_and_nothing_else():
    made = [latency_for("llama-3.1-8b", "a100", {name: 1.15}).digest for name in SCALES]
    assert len({A100.digest, *made}) == 4
    again = latency_for("llama-3.1-8b", "a100", {"decode": 1.0, "prefill": 1.15})
    assert again.digest == made[0]
    assert latency_for("llama-3.1-8b", "a100", {}).digest == A100.digest


def test_pickled_scaled_models_answer_alike():
    model = latency_for("llama-3.1-70b", "a100", {"decode": 1.15})
    copy = pickle.loads(pickle.dumps(model))
    assert (copy.digest, copy.name) == (model.digest, model.name)
    assert [copy.step(*query) for query in STEP] == [model.step(*query) for query in STEP]
