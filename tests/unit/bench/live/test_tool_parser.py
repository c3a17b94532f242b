"""Who reads tool calls in a model's replies: a knob, or what the model's folder says of itself."""

import json
from functools import partial

import pytest

from bench.agents.options import with_agent_defaults
from bench.config import RunConfig
from bench.errors import UsageError
from bench.live.deployment import engine_key, server_options
from bench.live.options import LiveOptions
from bench.live.plan import live_plan
from systems.engines.vllm_server import ServerOptions
from systems.vllm_host.smollm2.words import PARSER, SOURCE

KNOB = "live.tool_parser"
ANYWHERE = (frozenset[int](), frozenset[int]())


@pytest.fixture
def plan(stage, config):
    """A plan with more knobs."""

    def make(**knobs):
        return live_plan(config(knobs={"live.front": "none", **knobs}))

    return make


def test_engines_are_told_and_are_not_those_without(plan, tmp_path):
    bare, reading = plan(), plan(**{KNOB: "hermes"})
    assert server_options(bare, tmp_path / "a", 0, ANYWHERE).flags == ServerOptions(tmp_path).flags
    flags = server_options(reading, tmp_path / "b", 0, ANYWHERE).flags
    assert flags == ("--enable-auto-tool-choice", "--tool-call-parser", "hermes")
    assert engine_key(bare) != engine_key(reading)


@pytest.mark.parametrize(
    ("knobs", "why"),
    [
        ({KNOB: "--api-key"}, "takes a name such as hermes"),
        ({KNOB: "a b"}, "takes a name such as hermes"),
        ({KNOB: "hermes", "live.attach": "http://127.0.0.1:1"}, "engines that we start"),
    ],
)
def test_what_is_no_name_or_cannot_be_told_is_refused(config, knobs, why):
    with pytest.raises(UsageError, match=why):
        LiveOptions.of(config(knobs=knobs))


@pytest.fixture
def agents(tmp_path):
    (tmp_path / "model").mkdir()
    return partial(
        RunConfig, system="vllm-opt", workload="agents:react", n=2, engine="vllm", gpu="cpu",
        model=str(tmp_path / "model"),
    )  # fmt: skip


def test_a_models_folder_says_it_itself_unless_somebody_else_does(agents, tmp_path):
    assert KNOB not in with_agent_defaults(agents()).knobs
    said = tmp_path / "model" / SOURCE
    said.write_text(json.dumps({"tool_parser": PARSER}))
    assert with_agent_defaults(agents()).knobs[KNOB] == PARSER == "hermes"
    assert with_agent_defaults(agents(knobs={KNOB: "mistral"})).knobs[KNOB] == "mistral"
    attached = {"live.attach": "http://127.0.0.1:1"}
    assert KNOB not in with_agent_defaults(agents(knobs=attached)).knobs
    for damaged in ("[1]", "{}", "{", "\xff"):
        said.write_text(damaged, encoding="latin-1")
        assert KNOB not in with_agent_defaults(agents()).knobs
