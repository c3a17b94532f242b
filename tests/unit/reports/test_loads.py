"""Which loads a picture shows."""

import pandas as pd
import pytest

from reports.loads import drawn, sets, size_of


@pytest.mark.parametrize(
    ("load", "size"),
    [("24 at all times", 24), ("poisson 2.5/s", 2.5), ("recorded times", 0), ("gamma 1e-3/s", 0.001)],
)
def test_the_size_of_a_load_is_its_number(load, size):
    assert size_of(load) == size


def test_the_least_and_the_greatest_load_are_drawn_in_order():
    loads = ["24 at all times", "8 at all times", "16 at all times"]
    table = pd.DataFrame({"workload": "w", "model": "m", "load": loads})
    found = drawn(table)
    assert found.drawn.tolist() == [True, True, False]
    assert [key[2] for key in sets(found[found.drawn])] == ["8 at all times", "24 at all times"]
