"""What knobs may be, and what is said of those that may not."""

import pytest

from systems import knobs
from vocabulary import INF


@pytest.mark.parametrize(
    ("check", "value", "says"),
    [
        (lambda v: knobs.finite("dt", v, above=True), 0, "dt must be a number above 0, got 0"),
        (lambda v: knobs.finite("dt", v), float("nan"), "of at least 0, got nan"),
        (lambda v: knobs.finite("dt", v), float("inf"), "got inf"),
        (lambda v: knobs.finite("dt", v), True, "got True"),
        (lambda v: knobs.finite("dt", v), "5", "got '5'"),
        (lambda v: knobs.number("q", v), float("nan"), "q must be a number, got nan"),
        (lambda v: knobs.at_least("q", v, 2), 1, "q must be at least 2, got 1"),
        (lambda v: knobs.positives("bounds", v), "12", "bounds must be a list of numbers, got '12'"),
        (lambda v: knobs.positives("bounds", v), [1, 0], r"bounds\[1\] must be greater than 0, got 0"),
        (lambda v: knobs.increasing("b", v), [2, 2], r"but b\[1\] = 2 is not above b\[0\] = 2"),
        (lambda v: knobs.whole("n", v, least=1), 0, "n must be a whole number of at least 1, got 0"),
        (lambda v: knobs.whole("n", v), 1.5, "got 1.5"),
        (lambda v: knobs.flag("on", v), 1, "on must be true or false, got 1"),
        (lambda v: knobs.one_of("way", v, ("a", "b")), "c", "way must be one of a, b; got 'c'"),
    ],
)
def test_knobs_say_what_would_be_right(check, value, says):
    with pytest.raises(ValueError, match=f"{says}$"):
        check(value)


def test_good_knobs_come_back():
    assert (knobs.finite("x", 5), knobs.whole("x", 5), knobs.flag("x", False)) == (5.0, 5, False)
    assert knobs.one_of("x", "a", ("a",)) == "a"
    assert (knobs.at_least("x", INF, 1.0), knobs.positives("x", 3)) == (INF, (3.0,))
    assert knobs.increasing("x", [1, INF, INF]) == (1.0, INF, INF)
