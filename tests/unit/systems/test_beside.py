"""Tables that know what decoding calls cost beside a prefill."""

import json
import pickle
from copy import deepcopy
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from systems.latency import TableLatency, load_table, read_table
from systems.latency.beside import PART, BesideLatency, table_latency
from vocabulary import on_grid

FILE = Path(__file__).parents[3] / "systems" / "latency" / "tables" / "llama-3.1-8b_rtx4090.json"
RAW = json.loads(FILE.read_text())
TABLE = load_table("llama-3.1-8b", "rtx4090")
ALONE = TABLE.parts_alone()
few = settings(max_examples=60, deadline=None)
prefill = st.tuples(st.integers(1, 3000), st.integers(0, 30_000))


def test_the_part_decides_which_model_it_is():
    assert type(TABLE) is BesideLatency
    assert type(table_latency({k: v for k, v in RAW.items() if k != PART}, "x")) is TableLatency


@few
@given(st.integers(1, 400), st.integers(1, 30_000))
def test_pure_decode_steps_are_the_plain_table_s(n, context):
    assert TABLE.step((), n, n * context) == ALONE.step((), n, n * context)
    a, b, limit = TABLE.decode_line(n, n * context)
    assert on_grid(a + b * (n * context)) == TABLE.step((), n, n * context)
    assert limit > n * context


@few
@given(st.lists(prefill, min_size=1, max_size=3))
def test_pure_prefills_are_the_plain_table_s(prefills):
    assert TABLE.step(prefills, 0, 0) == ALONE.step(prefills, 0, 0)


@pytest.mark.parametrize(("i", "j", "k"), [(0, 0, 0), (2, 3, 4), (5, 6, 7), (4, 5, 2)])
def test_a_knot_gives_its_time(i, j, k):
    part = RAW[PART]
    new, n, context = part["new"][i], part["batch"][j], part["context"][k]
    assert TABLE.beside_s(new, n, context) * 1e3 == pytest.approx(max(part["ms"][i][j][: k + 1]))
    fixed = ALONE.step([(new, 0)], n, n * context) - ALONE.step([(new, 0)], n, 1)
    alone = fixed + ALONE.step([(new, 0)], n, 1)
    attention = ALONE.step((), n, n * context) - TABLE._shared[n] - TABLE._logits[n]
    mixed = TABLE.step([(new, 0)], n, n * context)
    assert mixed == pytest.approx(alone - attention + TABLE.beside_s(new, n, context), abs=1e-8)


def test_decoding_beside_a_prefill_takes_longer_than_alone():
    step = [(512, 0)], 32, 32 * 512
    assert TABLE.step(*step) > ALONE.step(*step) + 0.002


def test_below_the_first_knots_the_first_ones_hold():
    assert TABLE.beside_s(1, 8, 1) == TABLE.beside_s(16, 8, 16)


def test_beyond_the_last_knots():
    assert TABLE.beside_s(4096, 8, 512) == TABLE.beside_s(2048, 8, 512)
    assert TABLE.beside_s(512, 256, 512) == 2 * TABLE.beside_s(512, 128, 512)
    assert TABLE.beside_s(512, 8, 32_768) > TABLE.beside_s(512, 8, 16_384)


@few
@given(
    st.lists(prefill, min_size=1, max_size=3),
    st.integers(1, 300),
    st.integers(1, 20_000),
    st.integers(0, 10**6),
)
def test_mixed_steps_are_on_the_grid_in_any_order_and_never_shorter_for_longer_contexts(
    chunks, n, context, more
):
    seconds = TABLE.step(chunks, n, n * context)
    assert 0 < seconds == on_grid(seconds) == TABLE.step(chunks[::-1], n, n * context)
    assert seconds <= TABLE.step(chunks, n, n * context + more)


def test_pickled_it_answers_alike():
    copy = pickle.loads(pickle.dumps(TABLE))
    assert type(copy) is BesideLatency
    assert copy.step([(77, 12)], 9, 9000) == TABLE.step([(77, 12)], 9, 9000)


def broken(change):
    table = deepcopy(RAW)
    change(table[PART])
    return table


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda part: part.pop("batch"), "mixed_attention.batch is missing"),
        (lambda part: part.update(new=[2, 1]), "mixed_attention.new must be at least two increasing"),
        (lambda part: part["ms"].pop(), "must hold 6 x 7 x 8 times"),
        (lambda part: part["ms"][0][0].__setitem__(0, -1.0), "must not be negative"),
    ],
)
def test_a_broken_part_is_refused_by_field(tmp_path, change, message):
    path = tmp_path / "broken.json"
    path.write_text(json.dumps(broken(change)))
    with pytest.raises(ValueError, match=message) as error:
        read_table(path)
    assert str(path) in str(error.value)


def test_the_table_says_that_its_blocks_were_counted_on_the_card():
    assert (TABLE.kv_blocks, RAW["kv"]["measured"]) == (
        2587,
        "vLLM 0.19.0 found 2588 and keeps one to itself",
    )
