import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench.config import RunConfig, pairs, programs_or_horizon, rate_and_arrivals
from bench.errors import UsageError


def test_words_leave_defaults_out():
    assert RunConfig("atlas", "mcts").words() == ["bench", "run", "--system", "atlas", "--workload", "mcts"]


def test_every_option_in_the_words_is_an_option_of_the_command():
    from bench.cli.main import app

    config = RunConfig(
        "atlas", "mcts", 0.1, None, 3, 4, "m", "g", 2, "reference", "plas", "round-robin",
        {"engine.kv_blocks": "99"}, {"a": "b c"}, "skip", None, Path("o"),
    )  # fmt: skip
    words = config.words(seeds=3)
    text = CliRunner().invoke(app, ["run", "--help"]).output
    assert all(w in text for w in words if w.startswith("-"))
    assert shlex.split(shlex.join(words)) == words
    assert words[words.index("--rate") + 1] == "0.1"


def test_a_named_format_is_in_the_workload():
    assert "weka@some/folder" in RunConfig("atlas", "some/folder", format="weka").words()


def test_limits_are_engine_knobs():
    config = RunConfig("atlas", "mcts", knobs={"engine.max_num_seqs": "8", "engine.prefix_cache": "false"})
    assert config.limits() == {"max_num_seqs": 8}
    assert config.policy_knobs() == {"engine.prefix_cache": "false"}


def test_pairs():
    assert pairs(["a=1", " b = 2 ", "c=x=y"], "-p") == {"a": "1", "b": "2", "c": "x=y"}
    for bad in (["a"], ["=1"], ["a="], ["a=1", "a=2"]):
        with pytest.raises(UsageError):
            pairs(bad, "-p")


@pytest.mark.parametrize(
    ("text", "found"),
    [(None, (None, None)), ("700", (700, None)), ("900s", (None, 900.0)), ("0.5s", (None, 0.5))],
)
def test_programs_or_seconds_of_arrivals(text, found):
    assert programs_or_horizon(text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (None, (None, "poisson")),
        ("0.5", (0.5, "poisson")),
        ("gamma:cv=3@0.5", (0.5, "gamma:cv=3")),
        ("ramp:to=2", (None, "ramp:to=2")),
    ],
)
def test_rates_and_kinds_of_arrivals(text, found):
    assert rate_and_arrivals(text) == found


@pytest.mark.parametrize("text", ["", "x@y", "1,5", "s", "1e"])
def test_wrong_rates_and_horizons_say_what_would_be_right(text):
    with pytest.raises(UsageError, match="--rate takes programs per second"):
        rate_and_arrivals(text if text != "s" else "@s")
    with pytest.raises(UsageError, match="--n takes a number"):
        programs_or_horizon(text)


def test_horizon_and_arrivals_are_repeated_as_they_were_given():
    config = RunConfig("atlas", "mcts", rate=0.5, horizon=900.0, arrivals="gamma:cv=3")
    words = config.words()
    assert rate_and_arrivals(words[words.index("--rate") + 1]) == (0.5, "gamma:cv=3")
    assert programs_or_horizon(words[words.index("--n") + 1]) == (None, 900.0)
    assert RunConfig("atlas", "mcts", arrivals="ramp:to=2").words()[-2:] == ["--rate", "ramp:to=2"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"horizon": -1.0}, "above 0"),
        ({"horizon": 9.0, "n": 3}, "not both"),
        ({"horizon": 9.0, "concurrency": 3}, "nothing arrives"),
        ({"arrivals": "gamma"}, "gamma needs cv="),
        ({"knobs": {"latency.decode": "11"}}, "between 0.1 and 10"),
        ({"knobs": {"engine.kv_scale": "x"}}, "must be a factor"),
        ({"knobs": {"engine.record_decisions": "perhaps"}}, "true or false"),
    ],
)
def test_contradictions_are_refused(given, words):
    with pytest.raises(UsageError, match=words):
        RunConfig("atlas", "mcts", **given)


def test_factors_are_no_knobs_of_the_system():
    knobs = {"latency.decode": "1.15", "engine.kv_scale": "0.85", "engine.record_decisions": "false"}
    config = RunConfig("atlas", "mcts", knobs={**knobs, "scheduler.beta": "3"})
    assert config.factors() == {"decode": 1.15, "kv_scale": 0.85}
    assert config.policy_knobs() == {"scheduler.beta": "3"}
    assert not config.records_decisions()
