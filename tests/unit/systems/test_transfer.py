"""Moving KV over PCIe: the published costs, and what follows for other models."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from systems.latency import Transfer, UnknownTable, host_blocks, transfer_for
from vocabulary import GRID, on_grid


def test_a_block_of_8b_costs_four_tenths_of_a_millisecond_one_by_one():
    transfer = transfer_for("llama-3.1-8b", "a100", batched=False)
    assert (transfer.bytes_per_block, transfer.copies_per_block) == (2 * 2**20, 64)
    assert transfer.seconds(1) == pytest.approx(64 * (5e-6 + 32_768 / 25e9), abs=GRID)
    assert round(transfer.seconds(1) * 1e3, 2) == 0.40


def test_a_block_of_8b_costs_84_microseconds_batched_and_one_set_up():
    transfer = transfer_for("llama-3.1-8b", "a100", batched=True)
    per_block = transfer.seconds(101) - transfer.seconds(1)
    assert round(per_block * 1e3 / 100, 3) == 0.084
    assert transfer.seconds(1) == pytest.approx(5e-6 + 2 * 2**20 / 25e9, abs=GRID)


@pytest.mark.parametrize("batched", [False, True])
def test_70b_on_four_gpus_moves_a_quarter_over_each_link(batched):
    transfer = transfer_for("llama-3.1-70b", "a100", batched)
    quarter = 16 * 2 * 80 * 8 * 128 * 2 // 4
    assert (transfer.bytes_per_block, transfer.copies_per_block) == (quarter, 160)
    copies = 1 if batched else 160
    assert transfer.seconds(1) == pytest.approx(copies * 5e-6 + quarter / 25e9, abs=GRID)
    assert transfer_for("llama-3.1-70b:tp8", "a100", batched).bytes_per_block == quarter // 2


def test_a_split_that_leaves_gpus_unequal_is_refused():
    with pytest.raises(ValueError, match="cannot be split over 16 GPUs; possible: 1, 2, 4, 8"):
        transfer_for("llama-3.1-8b:tp16", "a100", batched=True)
    with pytest.raises(ValueError, match="cannot be split over 3 GPUs"):
        host_blocks("llama-3.1-70b", 3)


@given(st.booleans(), st.integers(0, 100_000), st.integers(0, 100_000), st.floats(0.1, 10))
def test_moving_together_is_never_slower(batched, some, more, scale):
    transfer = transfer_for("falcon-180b", "a100", batched, scale)
    seconds = transfer.seconds(some + more)
    assert seconds == on_grid(seconds)
    assert transfer.seconds(some) <= seconds <= transfer.seconds(some) + transfer.seconds(more) + 2 * GRID


@pytest.mark.parametrize("batched", [False, True])
def test_nothing_costs_nothing(batched):
    assert transfer_for("llama-3.1-8b", "a100", batched).seconds(0) == 0.0


def test_scale_multiplies_the_time():
    base, scaled = (transfer_for("llama-3.1-8b", "a100", False, scale) for scale in (1.0, 1.15))
    assert scaled.seconds(1000) == pytest.approx(1.15 * base.seconds(1000), abs=2 * GRID)


def test_descriptions_give_the_cost_of_a_block():
    assert transfer_for("llama-3.1-8b", "a100", False).describe() == (
        "PCIe 25 GB/s, 5 us per copy, 64 copies per block: 0.404 ms per block"
    )
    assert transfer_for("llama-3.1-8b", "a100", True, 2.0).describe() == (
        "PCIe 25 GB/s, 5 us per copy, batched: 0.168 ms per block (x 2 included)"
    )


def test_host_memory_holds_all_shards_of_a_block():
    assert host_blocks("llama-3.1-8b") == 1_200_000_000_000 // (2 * 2**20)
    assert host_blocks("llama-3.1-70b", 4) == host_blocks("llama-3.1-70b", 8) == 228_881
    assert host_blocks("llama-3.1-70b", gigabytes=0.01) == 1
    assert host_blocks("falcon-180b", gigabytes=0) == 0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("bytes_per_block", 0),
        ("copies_per_block", 0),
        ("bandwidth", -1.0),
        ("scale", 0.0),
        ("setup_s", -1e-6),
    ],
)
def test_what_cannot_be_is_refused(field, value):
    with pytest.raises(ValueError, match=field):
        Transfer(**{"bytes_per_block": 1, "copies_per_block": 1, field: value})


def test_negative_amounts_are_refused():
    with pytest.raises(ValueError, match="cannot move -1 blocks"):
        transfer_for("llama-3.1-8b", "a100", False).seconds(-1)
    with pytest.raises(ValueError, match="host memory"):
        host_blocks("llama-3.1-8b", gigabytes=-1)


def test_unknown_names_are_explained():
    with pytest.raises(UnknownTable, match="unknown model, nearest: llama"):
        transfer_for("lama-3.1-8b", "a100", False)
    with pytest.raises(UnknownTable, match="unknown GPU, nearest: a100"):
        transfer_for("llama-3.1-8b", "a1000", False)
