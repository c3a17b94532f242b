import pytest

from bench.config import RunConfig
from bench.curves.saturation import saturation
from tests.unit.bench.curves.planted import Formula, steep

CONFIG = RunConfig("opt", "chatbot:paper", 1.0, horizon=100.0)


@pytest.mark.parametrize("guess", [0.05, 0.7, 3.0])
def test_bisection_finds_the_planted_rate(guess):
    run = Formula(steep({"opt": 1.0}), lambda _, rate: rate < 0.73)
    found = saturation(CONFIG, guess, (1, 2), run)
    assert found.low < 0.73 <= found.high
    assert found.high / found.low <= 1.03
    assert {c.seed for c in run.asked} == {1, 2}


def test_no_saturation_is_said():
    with pytest.raises(ValueError, match="no saturation within"):
        saturation(CONFIG, 1.0, (1,), Formula(steep({"opt": 1.0}), lambda *_: True))
