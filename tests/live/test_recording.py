"""Recorded before a real vLLM: what prompts share by the recording is what the engine found in its cache."""

from __future__ import annotations

import json
import urllib.request

import pytest

from systems.engines.vllm_server import ServerOptions, VllmServer
from systems.gateway.options import GatewayOptions, Target
from systems.gateway.process import GatewayProcess
from systems.vllm_host.tiny import TinyLlama, write
from tests.property.test_workloads_readers import shared_tokens
from workloads.load import load

pytestmark = [pytest.mark.live, pytest.mark.slow]

MODEL, BLOCK = "tiny-llama", 32
SYSTEM = "You look after a house with many rooms. " * 12


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recording")
    options = ServerOptions(
        write(folder / "model", TinyLlama(ends=False)), scheduler="fcfs", block_size=BLOCK
    )
    with VllmServer(options, folder) as server:
        yield server


def recorded(server, folder, calls):
    """(replies to ``calls``, made one after the other through a gateway that records; the programs)."""
    target = Target(server.url, str(server.calls))
    options = GatewayOptions(
        (target,), system="session-pinned", observe=True, record=str(folder / "recording")
    )
    with GatewayProcess(options, folder / "gateway") as gateway:
        replies = calls(lambda path, body, session: post(gateway.url + path, body, session))
    found = load(str(folder / "recording"), max_model_len=4096)
    assert (found.skipped, found.repaired) == ({}, {})
    return replies, [[*spec.start.args[0].calls()] for spec in found.programs]


def post(url, body, session):
    data = json.dumps({"model": MODEL, "temperature": 0, **body}).encode()
    headers = {"Content-Type": "application/json", "X-Session-ID": session}
    with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=60) as answer:
        return json.load(answer)


def cached(server, last):
    """Of the last calls, by the scheduler's log."""
    return [json.loads(line)["cached_tokens"] for line in server.calls.read_text().splitlines()[-last:]]


def best(op, before):
    """Tokens in whole blocks that it shares with any earlier prompt and its reply; one is always computed."""
    contexts = [[*one.prompt(), (one.output_id, one.output_tokens)] for one in before]
    most = max((shared_tokens(op.prompt(), context) for context in contexts), default=0)
    return min(most, op.prompt_tokens - 1) // BLOCK * BLOCK


def test_token_ids_are_cached_to_the_block_as_the_recording_says(server, tmp_path):
    def calls(ask):
        prompts = [[7 + (k * k) % 900 for k in range(150)]]
        for turn in range(4):
            body = {"prompt": prompts[-1], "max_tokens": 37, "return_token_ids": True}
            reply = ask("/v1/completions", body, "ids")["choices"][0]["token_ids"]
            more = [11 + turn + (k * 13) % 700 for k in range(41)]
            prompts.append([*prompts[-1], *(reply if turn != 1 else reply[:20]), *more])
        return prompts[:-1]

    prompts, (ops,) = recorded(server, tmp_path, calls)
    assert [op.prompt_tokens for op in ops] == [len(prompt) for prompt in prompts]
    assert [best(op, ops[:k]) for k, op in enumerate(ops)] == cached(server, 4)


def test_messages_are_cached_as_far_as_the_recording_says(server, tmp_path):
    """Other words in the place of replies, as a script has them: prompts are shared, replies are not."""

    def calls(ask):
        counts = []
        for session in ("one", "two"):
            said = [
                {"role": "system", "content": SYSTEM},
                {"role": "user", "content": f"The {session} kitchen."},
            ]
            for turn in range(4):
                reply = ask("/v1/chat/completions", {"messages": said, "max_tokens": 20}, session)
                counts.append(reply["usage"]["prompt_tokens"])
                said += [{"role": "assistant", "content": f"I look at number {turn} of {session}."}]
                said += [{"role": "user", "content": f"There is nothing at {turn}. " * 6}]
        return counts

    counts, programs = recorded(server, tmp_path, calls)
    ops = [op for program in programs for op in program]
    assert [op.prompt_tokens for op in ops] == counts
    said = [best(op, ops[:k]) for k, op in enumerate(ops)]
    for mine, engines in zip(said, cached(server, 8), strict=True):
        assert abs(mine - engines) <= BLOCK
