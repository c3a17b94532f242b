"""By which power of its length a context costs more to compute again: what ``cost_power`` is by default."""

from pathlib import Path
from statistics import median

import pytest

from benchmarks.recompute import LENGTHS, exponent, main, measured, seconds
from systems.gates.thunderagent import ThunderAgent

PAGE = Path(__file__).parents[4] / "docs" / "gates.md"


def test_the_default_is_the_median_over_all_tables():
    whole = [powers[-1] for powers in measured().values()]
    assert len(whole) > 20
    assert round(median(whole), 1) == ThunderAgent().cost_power


def test_no_table_comes_near_the_square():
    short, long, whole = zip(*measured().values(), strict=True)
    assert 1.0 < min(short) < max(short) < 1.3
    assert 1.1 < min(long) < max(long) < 1.6
    assert all(a < c < b for a, b, c in zip(short, long, whole, strict=True)), "it grows with the length"


class Planted:
    """A chunk costs what a whole context of tokens^``power`` grows by with it."""

    name = "planted"

    def __init__(self, power):
        self.power = power

    def step(self, prefill, decodes, context):
        return sum((at + tokens) ** self.power - at**self.power for tokens, at in prefill)


@pytest.mark.parametrize("power", [1.0, 1.3, 2.0])
@pytest.mark.parametrize("chunk", [512, 2048, 3000])
def test_a_power_that_was_planted_is_found(power, chunk):
    assert seconds(Planted(power), 5000, chunk) == pytest.approx(5000**power)
    assert exponent(Planted(power), *LENGTHS[:2], chunk) == pytest.approx(power)


def test_the_page_has_the_table_as_it_is_measured(capsys):
    main()
    printed = capsys.readouterr().out.strip()
    assert printed.count("\n") > 10
    assert printed in PAGE.read_text()
