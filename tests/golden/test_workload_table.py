"""docs/workloads.md says what the programs are: its table is made again, in part."""

from pathlib import Path

import pytest

from scripts.workload_table import HEAD, PUBLISHED, line, measure, presets, ratio

PAGE = (Path(__file__).parents[2] / "docs" / "workloads.md").read_text(encoding="utf-8")


def test_every_preset_has_a_row_and_a_source():
    assert HEAD in PAGE
    assert set(PUBLISHED) == set(presets())
    assert [preset for preset in presets() if f"\n| `{preset}` | {PUBLISHED[preset][0]} |" not in PAGE] == []


@pytest.mark.parametrize(
    "preset", ["chatbot:paper", "chatbot:v3_split", "react:hotpot", "mapreduce:summarise"]
)
def test_the_rows_are_what_comes_out(preset):
    assert line(preset, measure(preset, 2000, 1)) in PAGE


def test_the_interval_of_a_ratio():
    """With equal bottoms it is that of a mean: 1.96 * sd / sqrt(n)."""
    found = ratio([1.0, 2.0, 3.0, 6.0], [2.0] * 4)
    assert found.value == 1.5
    assert found.half == pytest.approx(1.96 * (14 / 3) ** 0.5 / 2 / 2)
