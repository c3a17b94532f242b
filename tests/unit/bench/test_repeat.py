from pathlib import Path

import pytest

from bench import repeat
from bench.config import RunConfig
from bench.errors import UsageError
from bench.manifest import command_line
from bench.repeat import check_code, config_of, split_format

FOLDER = Path("out") / "0123"
CONFIGS = [
    {},
    {"rate": 0.5, "n": 40, "seed": 7, "model": "qwen3-8b", "gpu": "h100", "replicas": 3},
    {"rate": 0.25, "arrivals": "gamma:cv=3", "horizon": 900.0},
    {"arrivals": "gamma:cv=3"},
    {"concurrency": 4, "n": 12, "engine": "reference", "scheduler": "plas", "router": "random"},
    {"knobs": {"engine.kv_scale": "0.5", "scheduler.bounds": "1,2"}, "parameters": {"token_scale": "1/4"}},
    {"workload": "a folder/x@y.jsonl", "format": "mooncake", "on_overflow": "skip"},
    {"system": "my.policies:Mine", "workload": "my.agents:one"},
]


@pytest.mark.parametrize("words", CONFIGS, ids=str)
def test_the_command_of_a_result_gives_its_configuration_back(words):
    config = RunConfig(**({"system": "atlas", "workload": "mcts", "out": FOLDER.parent} | words))
    assert config_of({"command": command_line(config.words())}, FOLDER) == config


@pytest.mark.parametrize(
    ("command", "says"),
    [("", "no `bench run`"), ("bench reproduce x", "no `bench run`"),
     ("bench run --system a --workload b -p token='***'", "hidden as a secret")],
)  # fmt: skip
def test_a_command_that_cannot_be_repeated_is_refused(command, says):
    with pytest.raises(UsageError, match=says):
        config_of({"command": command}, FOLDER)


def test_results_of_other_code_are_not_varied_by_this(monkeypatch):
    monkeypatch.setattr(repeat, "code_digest", lambda: "now")
    check_code({"identity": {"code": "now"}}, FOLDER)
    with pytest.raises(UsageError, match="made by code then, this is now"):
        check_code({"identity": {"code": "then"}, "command": "bench run"}, FOLDER)


def test_a_format_goes_before_the_path():
    assert split_format("weka@x.json") == ("weka", "x.json")
    assert split_format("a/b@c.jsonl") == (None, "a/b@c.jsonl")
    assert split_format("mcts") == (None, "mcts")
