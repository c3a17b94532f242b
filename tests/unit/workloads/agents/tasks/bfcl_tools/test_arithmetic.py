import pytest

from workloads.agents.tasks.bfcl_tools.arithmetic import MathAPI
from workloads.agents.tasks.bfcl_tools.base import ToolError

MATH = MathAPI({"numbers": [1, 2]})


@pytest.mark.parametrize(
    ("function", "arguments", "result"),
    [
        ("absolute_value", (-2.5,), 2.5),
        ("divide", (1, 4), 0.25),
        ("power", (2, 10), 1024),
        ("percentage", (1, 8), 12.5),
        ("round_number", (2.345, 1), 2.3),
        ("square_root", (2.0, 5), 1.4142),
        ("logarithm", (36.0, 6.0, 4), 2.0),
        ("logarithm", (20, 10, 3), 1.30),
        ("mean", ([1, 2, 6],), 3),
        ("standard_deviation", ([2, 4],), 1),
        ("max_value", ([1, 3, 2],), 3),
        ("min_value", ([1, 3, 2],), 1),
        ("sum_values", ([1, 3, 2],), 6),
        ("si_unit_conversion", (1.5, "km", "m"), 1500),
        ("imperial_si_conversion", (2.54, "cm", "in"), 1),
        ("imperial_si_conversion", (1, "miles", "km"), 1.609344),
    ],
)
def test_results(function, arguments, result):
    assert getattr(MATH, function)(*arguments)["result"] == pytest.approx(result)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        ("divide", (1, 0)),
        ("power", (10.0, 1e9)),
        ("power", (-1, 0.5)),
        ("square_root", (-1, 5)),
        ("logarithm", (0, 10, 5)),
        ("logarithm", (5, 1, 5)),
        ("logarithm", (5, 10, 10**9)),
        ("mean", ([],)),
        ("max_value", ([],)),
        ("si_unit_conversion", (1, "km", "parsec")),
        ("imperial_si_conversion", (1, "km", "m")),
    ],
)
def test_what_cannot_be_computed_is_refused(function, arguments):
    with pytest.raises(ToolError):
        getattr(MATH, function)(*arguments)


def test_there_is_no_state():
    assert MATH.state() == {}
