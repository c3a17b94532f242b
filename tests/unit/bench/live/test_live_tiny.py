"""Which tiny model a run has: the usual one, a longer one, or, for agents, one without an end."""

import sys
from types import SimpleNamespace

import pytest

from bench.config import RunConfig
from bench.live.deployment import engine_key, make_engines, tiny_model
from bench.live.plan import live_plan
from systems.vllm_host.tiny import TinyLlama


def plan(workload, longest):
    config = RunConfig("vllm-opt", workload, rate=1.0, n=1, engine="vllm")
    return SimpleNamespace(config=config, engine=SimpleNamespace(max_model_len=longest))


@pytest.mark.parametrize(
    ("workload", "longest", "model"),
    [
        ("chatbot", 600, TinyLlama()),
        ("chatbot", 4096, TinyLlama()),
        ("mcts:lats", 8192, TinyLlama(context=8192)),
        ("agents:react", 4096, TinyLlama(ends=False)),
        ("agents:mini-swe", 32_768, TinyLlama(context=32_768, ends=False)),
        ("./agents.jsonl", 4096, TinyLlama()),
    ],
)
def test_the_model_of_a_run(workload, longest, model):
    assert tiny_model(plan(workload, longest)) == model


def test_the_usual_run_has_the_usual_folder(stage, config, tmp_path):
    python = {"live.python": sys.executable}
    usual = live_plan(config(knobs=python))
    (engine,) = make_engines(usual, tmp_path / "runs", ("",))
    assert engine.options.model == (tmp_path / "tiny-llama").resolve()
    longer = live_plan(config(knobs={**python, "engine.max_model_len": "8192", "engine.kv_blocks": "512"}))
    (engine,) = make_engines(longer, tmp_path / "runs", ("",))
    assert engine.options.model == (tmp_path / "tiny-llama-8192").resolve()
    assert (engine.options.model / "config.json").is_file()
    assert engine_key(usual) != engine_key(longer)
