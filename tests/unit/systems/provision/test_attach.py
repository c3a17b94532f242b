"""Engines that run already: asked, and left alone."""

import pytest

from systems.engines.vllm_virtual import EngineUnavailable
from systems.provision.attach import Attached
from systems.provision.process import free_port
from tests.unit.systems.provision.fakes import answering

MODELS = {"data": [{"id": "llama", "max_model_len": 4096}, {"id": "adapter"}]}


def test_facts_of_a_vllm_server():
    seen = []
    with answering({"/health": "", "/v1/models": MODELS, "/version": {"version": "0.32.0"}}, seen) as url:
        engine = Attached(f"{url}/v1/", "mine", key="sk-x")
        engine.begin()
        engine.ready(5.0)
        engine.check()
        assert (engine.name, engine.url) == ("mine", url)
        assert engine.facts() == {
            "kind": "vllm", "how": "attached", "url": url, "version": "0.32.0",
            "models": ["llama", "adapter"], "max_model_len": 4096,
        }  # fmt: skip
        engine.stop()
        engine.check()  # it still runs
    assert ("/v1/models", "Bearer sk-x") in seen
    with pytest.raises(EngineUnavailable, match="does not answer any more"):
        engine.check()
    assert (engine.calls, engine.steps, engine.control) == (None, None, None)


def test_facts_of_an_sglang_server_and_of_one_that_says_little():
    with answering({"/health": "", "/v1/models": MODELS, "/get_server_info": {"version": "0.5.4"}}) as url:
        engine = Attached(url)
        engine.ready(5.0)
        assert (engine.facts()["kind"], engine.facts()["version"]) == ("sglang", "0.5.4")
    with answering({"/health": "", "/v1/models": MODELS}) as url:
        engine = Attached(url.removeprefix("http://"))
        engine.ready(5.0)
        assert engine.facts()["kind"] == "attached"


def test_what_is_no_engine():
    with pytest.raises(EngineUnavailable, match=r"does not answer within 0\.1 s: does it run"):
        Attached(f"http://127.0.0.1:{free_port()}").ready(0.1)
    with answering({"/health": ""}) as url, pytest.raises(EngineUnavailable, match="/v1/models answers 404"):
        Attached(url).ready(5.0)
    with answering({"/health": "", "/v1/models": 401}) as url, pytest.raises(EngineUnavailable, match="401"):
        Attached(url).ready(5.0)
    for models in ("no json", {"data": []}, {"data": ["x"]}, ["x"]):
        with answering({"/health": "", "/v1/models": models}) as url, pytest.raises(EngineUnavailable):
            Attached(url).ready(5.0)


@pytest.mark.parametrize(
    "url",
    ["", "ftp://x:1", "http://", "http://x:99999999", "http://x/y", "http://u:p@x:1", "http://x:1?a=b"],
)
def test_an_address_that_is_none(url):
    with pytest.raises(EngineUnavailable, match=r"write http://HOST:PORT"):
        Attached(url)


def test_a_log_that_is_named_must_be_there(tmp_path):
    with pytest.raises(EngineUnavailable, match=r"cannot read .*calls\.jsonl"):
        Attached("http://x:1", calls=tmp_path / "calls.jsonl").begin()
