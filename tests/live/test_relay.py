"""The relay before a real vLLM: agents get what scripts say, and the engine decodes as many tokens."""

from __future__ import annotations

import asyncio
import json

import aiohttp
import pytest

from systems.engines.vllm_server import ServerOptions, VllmServer
from systems.vllm_host.tiny import TinyLlama, write
from tests.unit.workloads.agents.relay import readers
from workloads.agents.contract import ToolCall, Turn
from workloads.agents.relay.server import Relay

pytestmark = [pytest.mark.live, pytest.mark.slow]

TURNS = (
    Turn("I look at the folder first.", (ToolCall("c1", "ls", {"path": "/é"}), ToolCall("c2", "ls", {})), 37),
    Turn("", (ToolCall("c3", "ls", {"path": "."}),), 3),
    Turn("Nothing is there; that is all.", (), 90),
    Turn("Yes.", (), 1),
)
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
READ = {
    ("chat/completions", False): readers.chat_whole, ("chat/completions", True): readers.chat_stream,
    ("responses", False): readers.response_whole, ("responses", True): readers.response_stream,
    ("messages", False): readers.message_whole, ("messages", True): readers.message_stream,
}  # fmt: skip


class Script:
    def turn(self, thread, index, asked):
        return TURNS[index]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """As agents have it: a long context, and a model without an end."""
    folder = tmp_path_factory.mktemp("relay")
    model = write(folder / "model", TinyLlama(context=32768, ends=False))
    with VllmServer(ServerOptions(model, scheduler="plas", max_model_len=32768), folder) as server:
        yield server


def conversation(path, turns):
    """The body of the call behind ``turns``, in its dialect."""
    if path == "responses":
        return responses(turns)
    tools, said = [], [{"role": "user", "content": "what is there?"}]
    for turn in turns:
        said += chat(turn) if path == "chat/completions" else messages(turn)
    if path == "chat/completions":
        tools = [{"type": "function", "function": {"name": "ls", "description": "d", "parameters": SCHEMA}}]
        return {"messages": said, "tools": tools, "stream_options": {"include_usage": True}}
    return {"messages": said, "tools": [{"name": "ls", "input_schema": SCHEMA}], "max_tokens": 4000}


def chat(turn):
    calls = [
        {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": json.dumps(c.arguments)}}
        for c in turn.tool_calls
    ]
    results = [{"role": "tool", "tool_call_id": c.id, "content": "a.txt"} for c in turn.tool_calls]
    more = results or [{"role": "user", "content": "sure?"}]
    return [{"role": "assistant", "content": turn.text, **({"tool_calls": calls} if calls else {})}, *more]


def messages(turn):
    text = [{"type": "text", "text": turn.text}] if turn.text else []
    calls = [
        {"type": "tool_use", "id": c.id, "name": c.name, "input": dict(c.arguments)} for c in turn.tool_calls
    ]
    results = [{"type": "tool_result", "tool_use_id": c.id, "content": "a.txt"} for c in turn.tool_calls]
    more = results or [{"type": "text", "text": "sure?"}]
    return [{"role": "assistant", "content": text + calls}, {"role": "user", "content": more}]


def responses(turns):
    said = [{"role": "user", "content": "what is there?"}]
    for turn in turns:
        if turn.text:
            part = {"type": "output_text", "text": turn.text, "annotations": []}
            said.append({"type": "message", "role": "assistant", "content": [part]})
        for c in turn.tool_calls:
            own = {"type": "function_call", "call_id": c.id, "name": c.name}
            said.append({**own, "arguments": json.dumps(c.arguments)})
            said.append({"type": "function_call_output", "call_id": c.id, "output": "a.txt"})
        if not turn.tool_calls:
            said.append({"role": "user", "content": "sure?"})
    patch = {
        "type": "custom",
        "name": "patch",
        "format": {"type": "grammar", "syntax": "lark", "definition": "x"},
    }
    return {"input": said, "tools": [{"type": "function", "name": "ls", "parameters": SCHEMA}, patch]}


async def post(client, url, body):
    async with client.post(url, json={"model": "whatever", **body}) as answer:
        data = await answer.read()
        assert answer.status == 200, data
        return data


def through(server, run, scenario, scripts):
    """The relay's calls, by name."""

    async def go():
        calls = []
        async with (
            Relay(server.url, "tiny-llama", run=run, scripts=scripts, told=calls.append) as relay,
            aiohttp.ClientSession() as client,
        ):
            await asyncio.wait_for(scenario(relay, client), 120)
        return {call.name: call for call in calls}

    return asyncio.run(go())


def logged(server, run):
    """The scheduler's rows of a run, by the names of their calls."""
    rows = [json.loads(line) for line in server.calls.read_text().splitlines()]
    found = {}
    for row in rows:
        name = row["request_id"].partition("_" if row["request_id"].startswith("resp_") else "-")[2]
        if name.startswith(f"{run}."):
            found[name.rpartition("-")[0].removesuffix("_0")] = row
    return found


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["chat/completions", "responses", "messages"])
def test_the_engine_decodes_what_the_script_says(server, path, stream):
    run, deltas = f"{path[:4]}{int(stream)}", {}

    async def scenario(relay, client):
        for index, turn in enumerate(TURNS):
            body = {**conversation(path, TURNS[:index]), "stream": stream}
            read = READ[path, stream](await post(client, f"{relay.url}/p/0/t1/v1/{path}", body))
            assert (read.text, read.calls) == (
                turn.text,
                [(c.id, c.name, dict(c.arguments)) for c in turn.tool_calls],
            )
            assert read.tokens[1] == turn.output_tokens
            deltas[index] = read.deltas

    calls, rows = through(server, run, scenario, {0: Script()}), logged(server, run)
    assert set(calls) == set(rows) == {f"{run}.0.t1.{index}" for index in range(len(TURNS))}
    for index, turn in enumerate(TURNS):
        call, row = calls[f"{run}.0.t1.{index}"], rows[f"{run}.0.t1.{index}"]
        assert call.output_tokens == call.scripted_tokens == row["output_tokens"] == turn.output_tokens
        assert call.prompt_tokens == row["prefill_tokens"] + row["cached_tokens"]
        assert call.cached_tokens == row["cached_tokens"]
        assert (row["thread"], row["index"]) == ("t1", index)
        assert call.t_first - call.t_send >= row["t_first_token"] - row["t_arrive"]
        assert call.t_last - call.t_send >= row["t_end"] - row["t_arrive"]
    assert len({row["program"] for row in rows.values()}) == 1
    if stream:  # an event with each token, so text comes while the engine decodes
        assert len(deltas[2]) >= 28


def test_without_a_script_replies_are_the_engines_own(server):
    said = {}

    async def scenario(relay, client):
        for base in (f"{relay.url}/p/0/main", server.url):
            body = {"prompt": "x", "messages": [{"role": "user", "content": "hi"}]}
            body |= {"max_tokens": 12, "temperature": 0}
            said[base] = readers.message_whole(
                await post(client, f"{base}/v1/messages", {**body, "model": "tiny-llama"})
            )

    calls = through(server, "plain", scenario, None)
    through_relay, direct = said.values()
    assert through_relay == direct
    assert direct.tokens[1] == 12
    (call,) = calls.values()
    assert (call.output_tokens, call.scripted_tokens) == (12, -1)
    assert logged(server, "plain")["plain.0.main.0"]["output_tokens"] == 12


def test_tokens_are_counted_without_a_tool_parser(server):
    async def scenario(relay, client):
        body = {
            "messages": [{"role": "user", "content": "hi"}],
            "tools": [{"name": "ls", "input_schema": SCHEMA}],
        }
        counted = json.loads(await post(client, f"{relay.url}/p/0/main/v1/messages/count_tokens", body))
        read = readers.message_whole(
            await post(client, f"{relay.url}/p/0/main/v1/messages", {**body, "max_tokens": 9})
        )
        assert counted["input_tokens"] == read.tokens[0] > 40

    through(server, "count", scenario, {0: Script()})


CLAUDE = {
    "system": [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1;"},
        {"type": "text", "text": "You are an agent.", "cache_control": {"type": "ephemeral"}},
    ],
    "messages": [
        {"role": "user", "content": [
            {"type": "text", "text": "<system-reminder>x</system-reminder>"},
            {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
        ]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "ls", "input": {}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c1", "is_error": True,
             "content": [{"type": "text", "text": "a.txt"}]},
        ]},
    ],
    "tools": [{"name": "ls", "description": "d", "input_schema": SCHEMA, "eager_input_streaming": True}],
    "metadata": {"user_id": "user_1_account__session_2"}, "max_tokens": 32000,
    "thinking": {"type": "enabled", "budget_tokens": 31999}, "output_config": {"effort": "medium"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}, "stream": True,
}  # fmt: skip
CODEX = {
    "instructions": "You are an agent.",
    "input": [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "be brief"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "function_call", "name": "ls", "arguments": "{}", "call_id": "c1"},
        {"type": "function_call_output", "call_id": "c1", "output": "a.txt"},
        {"type": "custom_tool_call", "name": "patch", "input": "*** Begin", "call_id": "c2"},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": "done"},
    ],
    "tools": [
        {"type": "function", "name": "ls", "description": "d", "strict": False, "parameters": SCHEMA},
        {"type": "custom", "name": "patch", "description": "d",
         "format": {"type": "grammar", "syntax": "lark", "definition": "start: /x/"}},
        {"type": "web_search", "external_web_access": False},
    ],
    "tool_choice": "auto", "parallel_tool_calls": False, "store": False, "stream": True,
    "reasoning": {"effort": "medium", "summary": "auto"}, "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "0198", "text": {"verbosity": "medium"},
}  # fmt: skip


def test_what_real_clients_send_is_taken(server):
    async def scenario(relay, client):
        for path, body in (("messages?beta=true", CLAUDE), ("responses", CODEX)):
            read = READ[path.partition("?")[0], True](
                await post(client, f"{relay.url}/p/0/{path[:4]}/v1/{path}", body)
            )
            assert (read.text, len(read.calls), read.tokens[1]) == (TURNS[0].text, 2, 37)

    calls = through(server, "real", scenario, {0: Script()})
    assert {call.outcome for call in calls.values()} == {"finished"}


def test_a_client_that_leaves_is_an_aborted_request(server):
    async def scenario(relay, client):
        asked = conversation("chat/completions", ())
        async with client.post(
            f"{relay.url}/p/0/main/v1/chat/completions", json={**asked, "stream": True}
        ) as answer:
            await answer.content.readany()
        for _ in range(1000):
            if logged(server, "leave"):
                return
            await asyncio.sleep(0.01)

    class Long:
        def turn(self, thread, index, asked):
            return Turn("x" * 4000, (), 4000)

    (call,) = through(server, "leave", scenario, {0: Long()}).values()
    (row,) = logged(server, "leave").values()
    assert (call.outcome, row["aborted"]) == ("cut", True)
    assert row["output_tokens"] < 4000
