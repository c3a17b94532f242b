"""Third-party routers, as their makers ship them, in front of a real vLLM server and a fake one."""

from __future__ import annotations

import http.client
import json
from collections import defaultdict
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest

from systems.catalog import build_front, front_names, load_system, system_names
from systems.engines.vllm_server import ServerOptions, VllmServer
from systems.provision.front import FrontProcess
from systems.slots import DEFAULTS
from systems.vllm_host.tiny import write
from tests.fake_engine import FakeEngine

pytestmark = pytest.mark.live

THIRD_PARTY = [name for name in system_names() if load_system(name).front != DEFAULTS["front"]]
PROGRAMS = 12
"""A hash sends all of them to one of two engines once in 2 048 runs."""
TOKENS = 3


@pytest.fixture(scope="module")
def engines(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fronts")
    options = ServerOptions(write(folder / "model"), scheduler="fcfs", max_model_len=600)
    with VllmServer(options, folder / "server") as real, FakeEngine(options.name) as fake:
        yield real, fake


class Answer(NamedTuple):
    status: int
    text: str

    def tokens(self):
        """Token ids of a reply, streamed or whole."""
        if not self.text.startswith("data: "):
            return json.loads(self.text)["choices"][0]["token_ids"]
        events = [line.removeprefix("data: ") for line in self.text.splitlines() if line.startswith("data: ")]
        assert events.pop() == "[DONE]"
        return [token for event in events for c in json.loads(event)["choices"] for token in c["token_ids"]]


def exchange(url, method, path, body=None, headers={}):
    line = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    try:
        line.request(method, path, body, headers)
        answer = line.getresponse()
        return Answer(answer.status, answer.read().decode())
    finally:
        line.close()


def ask(system, front, url, program, call, *, stream):
    """One call as our driver sends it; text where the front takes no token ids."""
    prompt = [65 + program % 26] * 40 + [97 + call]
    body = {
        "model": "tiny-llama", "prompt": prompt if front.token_ids else "".join(map(chr, prompt)),
        "max_tokens": TOKENS, "min_tokens": TOKENS, "ignore_eos": True, "temperature": 0, "stream": stream,
        "return_token_ids": True, "cache_salt": "s",
        "vllm_xargs": {"program_id": f"p{program}", "thread_id": f"t{program}", "service": 1.5},
    }  # fmt: skip
    headers = {"Content-Type": "application/json", "X-Request-Id": f"{system}.{program}.{call}"}
    headers.update(front.headers(f"p{program}", prompt))
    return exchange(url, "POST", "/v1/completions", json.dumps(body), headers)


def served(real, fake, system):
    """thread -> engines that got its calls: the real one tells by its log what vllm_xargs said."""
    where = defaultdict(set)
    for line in real.calls.read_text().splitlines():
        row = json.loads(line)
        if f"{system}." in row["request_id"]:
            where[row["thread"]].add("real")
    for seen in fake.log():
        where[seen.fields["vllm_xargs"]["thread_id"]].add("fake")
        assert seen.headers["x-request-id"].startswith(f"{system}.")
    return where


WITH_EVERY_CHANGE = ("vllm-router-hash",)
"""The others, whose environments take a minute to build, are `make test-all`'s."""


@pytest.mark.parametrize(
    "system",
    [pytest.param(s, marks=() if s in WITH_EVERY_CHANGE else pytest.mark.slow) for s in THIRD_PARTY],
)
def test_calls_go_through_and_programs_stay_where_they_are_pinned(engines, tmp_path, system):
    real, fake = engines
    front = build_front(load_system(system))
    with FrontProcess(front, [real.url, fake.url], tmp_path / "front") as process:
        for program in range(PROGRAMS):
            for call in range(2):
                answer = ask(system, front, process.url, program, call, stream=bool(call))
                assert answer.status == 200, answer.text
                assert len(answer.tokens()) == TOKENS
        assert process.facts()["package"] == front.requirement
        known = exchange(process.url, "GET", "/scheduling/diagnostics")
        if dict(load_system(system).front_knobs).get("programs") == "scheduling":
            ranks = json.loads(known.text)["ranks"]
            assert sum(len(rank["programs"]) for rank in ranks) == PROGRAMS
        for program in range(PROGRAMS):
            if (path := front.end(f"p{program}")) is not None:
                assert exchange(process.url, "POST", path).status == 200
        where = served(real, fake, system)
        assert set(where) == {f"t{program}" for program in range(PROGRAMS)}
        assert set().union(*where.values()) == {"real", "fake"}
        if front.pins:
            assert all(len(engines) == 1 for engines in where.values())
    assert process.processes() == {}


@pytest.mark.slow
def test_what_each_keeps_of_a_chat_call(tmp_path):
    """``keeps_body`` and ``token_ids`` of every front, as they are: a fake engine tells what came."""
    for name in front_names():
        front = build_front(load_system("vllm-opt", front=name))
        body = {
            "model": "tiny-llama", "messages": [{"role": "user", "content": "hello"}], "priority": 3,
            "vllm_xargs": {"program_id": "p"}, "cache_salt": "s", "max_tokens": 2,
        }  # fmt: skip
        headers = {"Content-Type": "application/json", **front.headers("p")}
        with FakeEngine("tiny-llama") as fake, FrontProcess(front, [fake.url], tmp_path / name) as process:
            assert (
                exchange(process.url, "POST", "/v1/chat/completions", json.dumps(body), headers).status == 200
            )
            (seen,) = fake.log()
            dropped = {field for field in body if field not in seen.fields}
            assert front.keeps_body == (not dropped & {"priority", "vllm_xargs", "cache_salt"}), dropped
            ids = json.dumps({"model": "tiny-llama", "prompt": [1, 2, 3], "max_tokens": 2})
            status = exchange(process.url, "POST", "/v1/completions", ids, headers).status
            assert front.token_ids == (status == 200), status
