"""The roofline: against every table, and by hand."""

import itertools
import math
import pickle
import random
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from systems.latency import (
    MEASURED,
    RooflineLatency,
    factor_for,
    gpu_facts,
    latency_for,
    load_table,
    model_and_tp,
    model_facts,
    tables,
)
from systems.latency.facts import kv_blocks
from systems.latency.roofline import roofline_uncertainty
from vocabulary import on_grid

LIBRARY = [key for key in tables() if load_table(*key).provenance["package"] == "aiconfigurator-core"]
"""Tables of the boards the factor is made for; a consumer card's profile is no part of it."""
STEPS = [
    *[([], n, context) for context in (1024, 4096) for n in (1, 8, 32, 128, 256)],
    *[([(new, 0)], 0, 0) for new in (128, 512, 2048, 8192)],
]
"""The reference points of docs/latency.md."""


def ratios(model, gpu, steps=STEPS):
    """Measured over bare roofline at each step."""
    facts, tp = model_and_tp(model)
    table, bare = load_table(model, gpu), RooflineLatency(facts, gpu_facts()[gpu], tp, factor=1.0)
    return [table.step(p, n, n * c) / bare.step(p, n, n * c) for p, n, c in steps]


def kind_of(table):
    return model_and_tp(table[0])[0].kind


def test_the_ranges_of_the_factors_are_what_the_tables_show():
    found = {kind: [x for t in LIBRARY if kind_of(t) == kind for x in ratios(*t)] for kind in MEASURED}
    assert sum(map(len, found.values())) == 14 * len(LIBRARY) >= 14 * 30
    assert {kind: (round(min(r), 2), round(max(r), 2)) for kind, r in found.items()} == MEASURED
    for model in model_facts().values():
        assert factor_for(model) == math.sqrt(MEASURED[model.kind][0] * MEASURED[model.kind][1])


def random_step(rnd, kv_tokens):
    """(prefills, n, context), log-uniform: a decode, a prefill or a mixed step within the KV cache."""

    def log(low, high):
        return int(low * (high / low) ** rnd.random())

    kind = rnd.choice(("decode", "prefill", "mixed"))
    chunk = [(log(1, 2049), log(1, 65_536) if rnd.random() < 0.75 else 0)] if kind != "decode" else []
    n, context = (log(1, 257), log(32, 65_536)) if kind != "prefill" else (0, 0)
    return (chunk, n, context) if n * context <= kv_tokens else random_step(rnd, kv_tokens)


def share_within_the_range(model, gpu):
    rnd, table = random.Random(1), load_table(model, gpu)
    steps = [random_step(rnd, table.kv_blocks * 16) for _ in range(600)]
    low, high = MEASURED[kind_of((model, gpu))]
    return sum(low - 0.005 <= ratio <= high + 0.005 for ratio in ratios(model, gpu, steps)) / len(steps)


SHARES = {"bf16": (0.96, 0.74), "fp8": (0.919, 0.612), "MoE bf16": (0.976, 0.81), "MoE fp8": (0.967, 0.93)}
"""Share of random steps within the range, by kind: of all tables, and of the worst (docs/latency.md)."""


@pytest.mark.parametrize("kind", MEASURED)
def test_nearly_all_steps_are_within_the_range(kind):
    shares = [share_within_the_range(*table) for table in LIBRARY if kind_of(table) == kind]
    assert (sum(shares) / len(shares), min(shares)) == pytest.approx(SHARES[kind], abs=0.006)


def test_the_document_states_the_ranges_factors_and_shares():
    text = (Path(__file__).parents[3] / "docs" / "latency.md").read_text()
    number, percent = r"([\d.]+)", r"(\d+) %"
    cells = [r"([\w ]+)", r"(\d+)", number, number, number, rf"x([\d.]+?)\.\.x{number}", percent, percent]
    rows = re.findall(r"^\| " + r" \| ".join(cells), text, re.MULTILINE)
    assert [row[0] for row in rows] == list(MEASURED)
    for kind, count, *numbers, share, worst in rows:
        model = next(model for model in model_facts().values() if model.kind == kind)
        exact = [*MEASURED[kind], factor_for(model), *roofline_uncertainty(model)]
        assert [float(x) for x in numbers] == pytest.approx(exact, abs=0.0051)
        assert int(count) == sum(kind_of(table) == kind for table in LIBRARY)
        assert (int(share), int(worst)) == pytest.approx([100 * x for x in SHARES[kind]], abs=0.6)


@pytest.mark.parametrize("table", LIBRARY, ids=" on ".join)
def test_every_table_is_within_the_stated_uncertainty(table):
    facts, tp = model_and_tp(table[0])
    model, measured = RooflineLatency(facts, gpu_facts()[table[1]], tp), load_table(*table)
    low, high = model.uncertainty
    for prefills, n, context in STEPS:
        off = measured.step(prefills, n, n * context) / model.step(prefills, n, n * context)
        assert low - 0.005 <= off <= high + 0.005


@pytest.mark.parametrize("table", LIBRARY, ids=" on ".join)
def test_the_document_prints_the_ratios(table):
    text = (Path(__file__).parents[3] / "docs" / "latency-tables.md").read_text()
    name = load_table(*table).name.replace("/", " on ")
    section = text.partition(f"### {name}\n")[2].partition("###")[0]
    printed = [float(cell) for cell in re.findall(r"\| (\d+\.\d\d) \|$", section, re.MULTILINE)]
    assert printed == [pytest.approx(ratio, abs=0.0051) for ratio in ratios(*table)]


@pytest.mark.parametrize("table", LIBRARY, ids=" on ".join)
def test_kv_blocks_are_the_tables_within_half_a_percent(table):
    facts, tp = model_and_tp(table[0])
    within = 0.055 if facts.name == "qwen3-coder-30b" else 0.005  # the library counts its embedding once
    assert kv_blocks(facts, gpu_facts()[table[1]], tp) == pytest.approx(
        load_table(*table).kv_blocks, rel=within
    )


@pytest.mark.parametrize(
    ("name", "billions", "active", "within"),
    [
        ("llama-3.1-8b", 8.03, 8.03, 0.001),
        ("llama-3.1-70b", 70.55, 70.55, 0.001),
        ("llama-3.1-70b-fp8", 70.55, 70.55, 0.001),
        ("qwen3-8b", 8.19, 8.19, 0.001),
        ("falcon-180b", 178.6, 178.6, 0.001),
        ("qwen3-coder-30b", 30.5, 3.3, 0.02),
        ("qwen3-235b", 235, 22, 0.01),
        ("qwen3-235b-fp8", 235, 22, 0.01),
        ("glm-4.6", 355, 32, 0.06),
        ("glm-4.6-fp8", 355, 32, 0.06),
    ],
)
def test_parameters_add_up_to_the_published_size(name, billions, active, within):
    facts = model_facts()[name]
    around = facts.head_parameters * (1 if facts.tied else 2)
    assert (facts.layer_parameters + around) / 1e9 == pytest.approx(billions, rel=within)
    assert (facts.active_parameters + around) / 1e9 == pytest.approx(active, rel=within)
    assert facts.weight_bytes == facts.layer_parameters * facts.matrix_bytes + around * 2


def test_one_decode_step_of_8b_by_hand():
    bare = RooflineLatency(model_facts()["llama-3.1-8b"], gpu_facts()["a100"], 1, factor=1.0)
    layer = 4096 * (32 + 16) * 128 + 4096 * 4096 + 3 * 4096 * 14336
    weights = 2 * (32 * layer + 128_256 * 4096)
    assert bare.step((), 1, 1024) == pytest.approx((weights + 131_072 * 1024) / 2.039e12, abs=1e-8)
    flops = 2 * 32 * layer * 2048 + 4 * 32 * 4096 * 2048 * 2049 / 2
    head = 2 * 128_256 * 4096 / 2.039e12
    assert bare.step([(2048, 0)], 0, 0) == pytest.approx(flops / 312e12 + head, abs=1e-8)


def test_all_reduces_cost_their_bytes_over_the_link():
    facts = model_facts()["llama-3.1-70b"]
    four = RooflineLatency(facts, gpu_facts()["a100"], 4, factor=1.0).step([(8192, 0)], 0, 0)
    alone = 4 * four - RooflineLatency(facts, gpu_facts()["a100"], 8, factor=1.0).step([(8192, 0)], 0, 0) * 8
    sent = 8192 * 8192 * 2 * 2 * 80 / 300e9
    assert alone == pytest.approx(sent * (2 * 3 / 4 * 4 - 2 * 7 / 8 * 8), rel=1e-6)


def test_falcon_says_what_it_assumes():
    falcon = latency_for("falcon-180b", "a100")
    assert (falcon.tp, falcon.max_model_len) == (8, 131_072)
    assert falcon.describe() == (
        "roofline, no kernel measured: x0.68..x1.46, and not calibrated: +-15 % on top; "
        "context limit of 2048 tokens lifted to 131072"
    )
    assert falcon.kv_blocks * 16 > falcon.max_model_len
    assert falcon.provenance["model"]["source"].startswith("tiiuae/falcon-180B")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("falcon-180b:tp4", "falcon-180b does not fit on 4 x a100: .* 89 of 86 GB per GPU"),
        ("falcon-180b:tp7", "cannot be split over 7 GPUs; possible: 1, 2, 4, 8"),
        ("llama-3.1-8b:tp16", "cannot be split over 16 GPUs"),
    ],
)
def test_what_does_not_fit_is_refused(model, message):
    with pytest.raises(ValueError, match=message):
        latency_for(model, "a100")


def test_pickled_rooflines_answer_alike():
    falcon = latency_for("falcon-180b", "a100")
    falcon.step([(7, 0)], 3, 30)
    copy = pickle.loads(pickle.dumps(falcon))
    assert (copy.name, copy.digest) == (falcon.name, falcon.digest)
    assert copy.step([(77, 1234)], 9, 9 * 777) == falcon.step([(77, 1234)], 9, 9 * 777)


def test_digests_tell_models_apart():
    made = [
        latency_for(m, g).digest
        for m, g in itertools.product(("falcon-180b", "llama-3.1-70b:tp2"), ("a100", "h100"))
    ]
    assert len(set(made)) == 4


def test_an_empty_step_has_no_duration():
    with pytest.raises(ValueError, match="at least one call"):
        latency_for("falcon-180b", "a100").step((), 0, 0)


@given(st.integers(1, 4000), st.integers(0, 60_000), st.integers(0, 256), st.integers(1, 8192))
def test_more_work_never_takes_less_time(new, cached, n, context):
    falcon = latency_for("falcon-180b", "a100")
    step = falcon.step([(new, cached)], n, n * context)
    assert step == on_grid(step)
    assert step <= falcon.step([(new + 1, cached)], n, n * context)
    assert step <= falcon.step([(new, cached + 1)], n, n * context)
    assert step <= falcon.step([(new, cached)], n + 1, (n + 1) * context)
