"""Real CLIs, offline, through `bench gateway`: Claude Code, Codex, OpenCode, those that are installed.

BENCH_CLIENTS names a folder with their ``node_modules`` (docs/clients.md); without it these tests are left
out, which pytest's first lines say.
"""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from contextlib import contextmanager

import pytest

from benchmarks.client_parts.commands import CLIENTS, program, run
from benchmarks.client_parts.engine import ANSWER, ScriptedEngine, one_tool, sub_agent
from systems.engines.vllm_server import ServerOptions, VllmServer
from systems.gateway.events_reader import read_events
from systems.gateway.options import GatewayOptions, Target
from systems.gateway.process import GatewayProcess
from systems.vllm_host.tiny import TinyLlama, write
from workloads.agents.contract import ToolCall, Turn
from workloads.agents.relay.server import Relay

pytestmark = [pytest.mark.live, pytest.mark.clients]

INSTALLED = [one for one in CLIENTS if program(one)]
CONTEXT = 32_768


@contextmanager
def gateway(target, folder, **options):
    """Its URL; ``events`` of its log are there once it has stopped."""
    log = folder / "events.jsonl"
    with GatewayProcess(GatewayOptions((target,), log=str(log), **options), folder / "gateway") as process:
        until = time.monotonic() + 20
        while health(process.url) != "ok":
            assert time.monotonic() < until
            time.sleep(0.02)
        yield process.url


def health(url):
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
            return json.load(answer)["status"]
    except OSError:
        return ""


def calls(folder):
    (log,) = read_events(folder / "events.jsonl")
    return log.calls


def ended_well(client, url, folder, **more):
    ended = run(client, url, folder / "client", **more)
    assert ended.code == 0, ended
    assert ANSWER in ended.output
    return ended


@pytest.mark.parametrize("client", INSTALLED, ids=lambda one: one.name)
def test_a_prompt_with_a_tool_call_is_one_program_and_all_its_streams_end(client, tmp_path):
    with ScriptedEngine(one_tool) as engine, gateway(Target(engine.url), tmp_path) as url:
        ended_well(client, url, tmp_path)
        asked = [one for one in engine.heard if one.path.partition("?")[0] == client.path]
    found = calls(tmp_path)
    assert len(found) == len(asked) >= 2
    assert len({call.name for call in found}) == len({call.thread for call in found}) == 1
    assert {(call.outcome, call.status, call.attempt, call.stream) for call in found} == {
        ("finished", 200, 1, True)
    }
    assert len({one.body["vllm_xargs"]["program_id"] for one in asked}) == 1


@pytest.mark.parametrize("client", INSTALLED, ids=lambda one: one.name)
def test_a_sub_agent_is_a_thread_of_its_parents_program(client, tmp_path):
    with ScriptedEngine(sub_agent) as engine, gateway(Target(engine.url), tmp_path) as url:
        ended_well(client, url, tmp_path)
    found = calls(tmp_path)
    assert len({call.name for call in found}) == 1
    assert len({call.thread for call in found}) == 2


@pytest.mark.parametrize("client", INSTALLED, ids=lambda one: one.name)
def test_a_call_that_was_refused_is_asked_again_as_the_same_turn(client, tmp_path):
    """An error of the engine in the first call; its retry has the same index."""
    with ScriptedEngine(one_tool, refuse_first=1) as engine, gateway(Target(engine.url), tmp_path) as url:
        ended_well(client, url, tmp_path)
    found = sorted(calls(tmp_path), key=lambda call: call.seq)
    refused = next(call for call in found if call.status == 503)
    again = [call for call in found if call.attempt == 2]
    assert [(call.index, call.outcome) for call in again] == [(refused.index, "finished")]


@pytest.mark.parametrize("client", [one for one in INSTALLED if one.patience], ids=lambda one: one.name)
def test_a_client_that_waits_longer_than_it_is_patient_is_kept_by_heartbeats(client, tmp_path):
    """Its limit for silence is set to 3 s; the engine says nothing for 6 s."""
    slow = ScriptedEngine(one_tool, delay_first_s=6.0)
    with slow as engine, gateway(Target(engine.url), tmp_path, heartbeat_s=1.0) as url:
        ended_well(client, url, tmp_path, patience_s=3.0)
    assert {(call.outcome, call.attempt) for call in calls(tmp_path)} == {("finished", 1)}


class Overlay:
    """What our scripted engine says, as a relay's script: the engine behind decodes as many tokens."""

    def turn(self, thread, index, asked):
        said = one_tool(asked, index)
        wanted = (ToolCall(said.call_id, said.tool, said.arguments),) if said.tool else ()
        return Turn(said.text, wanted, 8)


@pytest.fixture(scope="module")
def vllm(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vllm")
    options = ServerOptions(
        write(folder / "model", TinyLlama(context=CONTEXT)), scheduler="atlas", max_num_seqs=4,
        kv_blocks=1500, max_num_batched_tokens=2048, max_model_len=CONTEXT,
    )  # fmt: skip
    with VllmServer(options, folder) as server:
        yield server


@pytest.mark.parametrize("client", INSTALLED, ids=lambda one: one.name)
def test_through_the_overlay_a_real_engine_reads_their_prompts_and_decodes_what_is_scripted(
    client, vllm, tmp_path
):
    told = []

    async def go(url):
        relay = Relay(url, "tiny-llama", run=client.name, scripts={0: Overlay()}, told=told.append)
        async with relay:
            await asyncio.to_thread(ended_well, client, relay.url, tmp_path, short=True, limit_s=120.0)

    with gateway(Target(vllm.url, str(vllm.calls)), tmp_path, system="atlas") as url:
        asyncio.run(go(url))
    rows = [row for row in map(json.loads, vllm.calls.open()) if f"{client.name}.0." in row["request_id"]]
    assert len(rows) == len(told) >= 2
    assert [row["output_tokens"] for row in rows] == [8] * len(rows)
    assert {call.output_tokens for call in told} == {call.scripted_tokens for call in told} == {8}
    assert {(call.outcome, call.program) for call in told} == {("finished", 0)}
    assert [call.output_tokens for call in calls(tmp_path)] == [8] * len(rows)
    assert told[-1].prompt_tokens > 1000
