import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench.config import RunConfig, pairs
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
