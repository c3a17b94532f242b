"""The relay between a client and an engine that is none: ids, turns, streams, retries, ends of all kinds."""

import asyncio
import json
import math

import aiohttp
import pytest

from tests.unit.workloads.agents.relay import readers
from tests.unit.workloads.agents.relay.upstream import CACHED, MODEL, PROMPT, Upstream
from workloads.agents.contract import AgentError, ToolCall, Turn
from workloads.agents.relay.server import Relay

TURNS = (
    Turn("I look.", (ToolCall("c1", "ls", {"path": "/é"}), ToolCall("c2", "ls", {})), 9),
    Turn("Nothing there.", (), 6),
)
PATHS = {"chat": "chat/completions", "responses": "responses", "messages": "messages"}
READ = {
    ("chat", False): readers.chat_whole, ("chat", True): readers.chat_stream,
    ("responses", False): readers.response_whole, ("responses", True): readers.response_stream,
    ("messages", False): readers.message_whole, ("messages", True): readers.message_stream,
}  # fmt: skip
BODIES = {
    "chat": {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4},
    "responses": {"model": "m", "input": "hi", "max_output_tokens": 4},
    "messages": {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4},
}


class Script:
    def turn(self, thread, index, asked):
        if index >= len(TURNS):
            raise AgentError(f"nothing for call {index} of {thread}")
        return TURNS[index]


def played(scenario, **options):
    """Run ``scenario(relay, client, upstream, calls)`` with everything up."""

    async def go():
        calls = []
        options.setdefault("scripts", {3: Script()})
        async with (
            Upstream() as upstream,
            Relay(upstream.url, MODEL, run="r", told=calls.append, **options) as relay,
            aiohttp.ClientSession() as client,
        ):
            async with asyncio.timeout(20):
                await scenario(relay, client, upstream, calls)

    asyncio.run(go())


async def post(client, url, body, **headers):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with client.post(url, json=body, headers=named) as answer:
        return answer.status, await answer.read()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", PATHS)
def test_the_script_answers_and_the_engine_works(dialect, stream):
    async def scenario(relay, client, upstream, calls):
        url = f"{relay.url}/p/3/map/v1/{PATHS[dialect]}"
        for index, turn in enumerate(TURNS):
            body = {**BODIES[dialect], "stream": stream, "vllm_xargs": {"own": 1, "program_id": "mine"}}
            status, reply = await post(client, url, body, authorization="Bearer mine", x_session_id="mine")
            assert status == 200
            read = READ[dialect, stream](reply)
            assert (read.text, len(read.calls)) == (turn.text, len(turn.tool_calls))
            asked, call, name = upstream.asked[index], calls[index], f"r.3.map.{index}"
            assert asked.path == f"/v1/{PATHS[dialect]}"
            assert asked.body["model"] == MODEL
            assert asked.body["cache_salt"] == "salt"
            assert asked.body["vllm_xargs"] == {"own": 1, "program_id": "r.3", "thread_id": "map"}
            names = ("x-request-id", "x-session-id", "x-smg-routing-key", "x-thread-id", "authorization")
            assert [asked.headers[n] for n in names] == [name, "r.3", "r.3", "map", "Bearer theirs"]
            if dialect == "responses":
                assert asked.body["request_id"] == f"resp_{name}"
            assert (call.program, call.thread, call.index, call.name) == (3, "map", index, name)
            assert (call.dialect, call.stream, call.status, call.outcome) == (
                dialect,
                stream,
                200,
                "finished",
            )
            assert (call.prompt_tokens, call.cached_tokens) == (PROMPT, CACHED)
            assert call.output_tokens == call.scripted_tokens == turn.output_tokens
            assert call.t_arrive <= call.t_send <= call.t_first <= call.t_last

    played(scenario, key="theirs", cache_salt="salt")


def test_without_a_script_bytes_pass_but_for_a_usage_that_nobody_asked_for():
    async def scenario(relay, client, upstream, calls):
        for dialect, path in PATHS.items():
            for stream in (False, True):
                body = {**BODIES[dialect], "stream": stream}
                name = f"r.0.{dialect}.{int(stream)}"
                status, reply = await post(client, f"{relay.url}/p/0/{dialect}/v1/{path}", body)
                known = {**body, "request_id": f"resp_{name}"}
                direct = await post(client, f"{upstream.url}/v1/{path}", known, x_request_id=name)
                assert (status, reply) == direct
                assert (calls[-1].output_tokens, calls[-1].scripted_tokens) == (4, -1)
                assert (calls[-1].name, calls[-1].prompt_tokens) == (name, PROMPT)
        body = {**BODIES["chat"], "stream": True, "stream_options": {"include_usage": True}}
        _, reply = await post(client, f"{relay.url}/p/1/main/v1/chat/completions", body)
        assert b'"usage"' in reply
        assert upstream.asked[0].body["max_tokens"] == 4
        assert upstream.asked[0].body["vllm_xargs"] == {"program_id": "r.0", "thread_id": "chat"}

    played(scenario, scripts=None)


@pytest.mark.parametrize("wanted", [False, True])
def test_usage_comes_if_it_was_asked_for(wanted):
    async def scenario(relay, client, upstream, calls):
        body = {**BODIES["chat"], "stream": True, "stream_options": {"include_usage": wanted}}
        _, reply = await post(client, f"{relay.url}/p/3/main/v1/chat/completions", body)
        assert readers.chat_stream(reply).tokens == ((PROMPT, 9) if wanted else None)
        assert calls[0].output_tokens == 9

    played(scenario)


def test_a_retry_gets_the_same_turn_under_the_same_name():
    async def scenario(relay, client, upstream, calls):
        url = f"{relay.url}/p/3/main/v1/chat/completions"
        upstream.status = 503
        status, _ = await post(client, url, BODIES["chat"])
        assert (status, calls[0].outcome, calls[0].status) == (503, "failed", 503)
        upstream.status = 200
        first = readers.chat_whole((await post(client, url, BODIES["chat"]))[1])
        again = readers.chat_whole((await post(client, url, BODIES["chat"], x_stainless_retry_count="1"))[1])
        other = readers.chat_whole((await post(client, url, BODIES["chat"]))[1])
        assert first == again
        assert (first.text, other.text) == (TURNS[0].text, TURNS[1].text)
        assert [call.index for call in calls] == [0, 0, 0, 1]

    played(scenario)


@pytest.mark.parametrize("dialect", PATHS)
def test_errors_of_upstream_pass_unchanged(dialect):
    async def scenario(relay, client, upstream, calls):
        upstream.status, upstream.said = 422, {"odd": ["words"]}
        async with client.post(
            f"{relay.url}/p/3/main/v1/{PATHS[dialect]}", json={**BODIES[dialect], "stream": True}
        ) as answer:
            assert (answer.status, await answer.json()) == (422, {"odd": ["words"]})
            assert answer.headers["X-Own"] == "kept"
        assert (calls[0].outcome, calls[0].reason) == ("failed", 'upstream answers 422: {"odd": ["words"]}')
        assert calls[0].output_tokens == -1
        assert math.isnan(calls[0].t_first)
        assert calls[0].t_last > calls[0].t_send

    played(scenario)


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("/p/4/main/v1/chat/completions", b"{}", 400, "program 4 has no script"),
        ("/p/3/main/v1/chat/completions", b"{", 400, "not valid JSON"),
        ("/p/3/main/v1/messages", b"[1]", 400, "must be one JSON object"),
        ("/p/3/main/v1/chat/completions", b'{"n": 3}', 400, "asks for n=3"),
        ("/p/3/main/v1/messages", b'{"a": ' + b'{"a":' * 1000 + b"1" + b"}" * 1001, 400, "cannot be written"),
        ("/p/x/main/v1/messages", b"{}", 400, "must be a number"),
        ("/v2/messages", b"{}", 404, "a base URL ends in"),
    ],
)
def test_what_is_refused(path, body, status, words):
    async def scenario(relay, client, upstream, calls):
        async with client.post(relay.url + path, data=body) as answer:
            said = json.loads(await answer.read())
            assert answer.status == status
        assert words in said["error"]["message"]
        assert (said.get("type") == "error") == path.endswith("/v1/messages")
        assert upstream.asked == []
        if calls:
            assert (calls[0].outcome, calls[0].status) == ("refused", status)
            assert words in calls[0].reason
            assert math.isnan(calls[0].t_send)
            assert calls[0].t_last >= calls[0].t_arrive

    played(scenario)


def test_a_script_that_has_nothing_or_breaks_is_said_to_the_agent():
    class Broken:
        def turn(self, thread, index, asked):
            return asked["no such field"]

    async def scenario(relay, client, upstream, calls):
        url = f"{relay.url}/p/{{}}/main/v1/chat/completions"
        for _ in range(3):
            status, said = await post(client, url.format(3), BODIES["chat"])
        assert (status, b"nothing for call 2 of main" in said) == (400, True)
        status, said = await post(client, url.format(5), BODIES["chat"])
        assert (status, b"KeyError('no such field') for r.5.main.0" in said) == (400, True)
        assert [call.outcome for call in calls] == ["finished", "finished", "refused", "refused"]

    played(scenario, scripts={3: Script(), 5: Broken()})


@pytest.mark.parametrize("after", [0, 3])
def test_a_client_that_leaves_takes_the_engines_connection_along(after):
    async def scenario(relay, client, upstream, calls):
        upstream.hang = after
        url = f"{relay.url}/p/3/main/v1/chat/completions"
        asking = asyncio.create_task(post(client, url, {**BODIES["chat"], "stream": True}))
        await upstream.reached.wait()
        asking.cancel()
        await upstream.gone.wait()
        while not calls:
            await asyncio.sleep(0.001)
        assert (calls[0].outcome, calls[0].output_tokens, upstream.left) == ("cut", -1, 1)
        assert calls[0].t_last > calls[0].t_send
        assert math.isnan(calls[0].t_first) == (after == 0)
        upstream.hang = None
        _, reply = await post(client, url, {**BODIES["chat"], "stream": True})
        assert readers.chat_stream(reply).text == TURNS[0].text

    played(scenario)


@pytest.mark.parametrize("scripts", [None, {3: Script()}])
@pytest.mark.parametrize("dialect", PATHS)
def test_a_stream_that_breaks_off_breaks_for_the_agent_too(dialect, scripts):
    async def scenario(relay, client, upstream, calls):
        upstream.breaks = 4
        with pytest.raises(aiohttp.ClientPayloadError):
            await post(
                client, f"{relay.url}/p/3/main/v1/{PATHS[dialect]}", {**BODIES[dialect], "stream": True}
            )
        assert (calls[0].outcome, calls[0].reason[:9]) == ("failed", "upstream:")
        upstream.tail = ""  # the same, but it ends as if it were over
        with pytest.raises(aiohttp.ClientPayloadError):
            await post(
                client, f"{relay.url}/p/3/main/v1/{PATHS[dialect]}", {**BODIES[dialect], "stream": True}
            )
        assert (calls[1].outcome, calls[1].index) == ("failed", 0)
        assert "ended before its end" in calls[1].reason

    played(scenario, scripts=scripts)


def test_an_error_event_in_a_stream_passes_and_the_call_has_failed():
    error = 'data: {"error": {"message": "engine dead", "code": 500}}\n\ndata: [DONE]\n\n'

    async def scenario(relay, client, upstream, calls):
        upstream.breaks, upstream.tail = 4, error
        status, said = await post(
            client, f"{relay.url}/p/3/main/v1/chat/completions", {**BODIES["chat"], "stream": True}
        )
        assert status == 200
        assert said.endswith(error.encode())
        assert (calls[0].outcome, calls[0].reason) == ("failed", "upstream says in its stream: engine dead")
        assert len(calls) == 1

    played(scenario)


def test_no_upstream_is_502():
    async def scenario(relay, client, upstream, calls):
        await upstream.__aexit__()
        status, said = await post(client, f"{relay.url}/p/3/main/v1/messages", BODIES["messages"])
        assert (status, json.loads(said)["error"]["type"]) == (502, "api_error")
        assert (calls[0].outcome, calls[0].reason[:9]) == ("failed", "upstream:")
        async with client.get(f"{relay.url}/p/3/main/v1/models") as answer:
            assert answer.status == 502

    played(scenario)


def test_what_is_no_reply_of_the_dialect_is_502():
    async def scenario(relay, client, upstream, calls):
        upstream.status, upstream.said = 200, {}
        upstream._reply = lambda *_: answered()
        status, said = await post(client, f"{relay.url}/p/3/main/v1/chat/completions", BODIES["chat"])
        assert (status, b"no chat reply" in said, calls[0].outcome) == (502, True, "failed")

    async def answered():
        return aiohttp.web.json_response({"hm": 1})

    played(scenario)


def test_other_paths_pass_with_the_model_that_is_served():
    async def scenario(relay, client, upstream, calls):
        base = f"{relay.url}/p/3/main/v1"
        async with client.get(f"{base}/models?x=1", headers={"X-Session-ID": "s"}) as answer:
            assert await answer.json() == {"path": "/v1/models?x=1", "model": None}
        body = {**BODIES["messages"], "tools": [{"name": "ls"}]}
        _, said = await post(client, f"{base}/messages/count_tokens?beta=true", body)
        assert json.loads(said) == {"path": "/v1/messages/count_tokens?beta=true", "model": MODEL}
        assert upstream.asked[1].body["tool_choice"] == {"type": "none"}  # an engine without a tool parser
        assert "x-session-id" not in upstream.asked[0].headers
        async with client.post(f"{relay.url}/v1/else", data=b"no JSON") as answer:
            assert answer.status == 500  # what the engine here says to it
        _, said = await post(client, f"{base}/messages?beta=true", BODIES["messages"])
        assert readers.message_whole(said).text == TURNS[0].text
        assert upstream.asked[-1].path == "/v1/messages?beta=true"
        assert len(calls) == 1

    played(scenario)


def test_real_clients_are_programs_by_the_names_that_they_have():
    async def scenario(relay, client, upstream, calls):
        url = f"{relay.url}/v1/messages"
        async with client.get(f"{relay.url}/v1/models"):
            pass  # no call: no program
        for session, agent in (("one", ""), ("two", ""), ("one", "sub")):
            headers = {"X-Claude-Code-Session-Id": session}
            headers |= {"X-Claude-Code-Agent-Id": agent} if agent else {}
            async with client.post(url, json=BODIES["messages"], headers=headers) as answer:
                assert answer.status == 200
        assert [(c.program, c.thread, c.index) for c in calls] == [
            (0, "main", 0),
            (1, "main", 0),
            (0, "sub", 0),
        ]
        assert upstream.asked[-1].headers["x-session-id"] == "r.0"
        assert not [h for h in upstream.asked[-1].headers if h.startswith("x-claude-code")]

    played(scenario, scripts={0: Script(), 1: Script()})


def test_the_hook_numbers_programs():
    async def scenario(relay, client, upstream, calls):
        status, _ = await post(client, f"{relay.url}/v1/responses", BODIES["responses"], session_id="three")
        assert (status, calls[0].program) == (200, 3)

    played(scenario, number_of={"three": 3}.__getitem__)


def test_a_mistake_of_the_relay_is_on_record(monkeypatch):
    async def broken(*_):
        raise ZeroDivisionError("hm")

    async def scenario(relay, client, upstream, calls):
        monkeypatch.setattr(relay, "_carry", broken)
        status, _ = await post(client, f"{relay.url}/p/3/main/v1/messages", BODIES["messages"])
        assert (status, calls[0].outcome, calls[0].reason) == (500, "refused", "ZeroDivisionError: hm")

    played(scenario)


def test_many_at_once_do_not_mix():
    class Own:
        def __init__(self, number):
            self.number = number

        def turn(self, thread, index, asked):
            return Turn(f"{self.number} {thread} {index} {asked['messages'][0]['content']}", (), 3 + index)

    async def scenario(relay, client, upstream, calls):
        async def one(program, thread, call):
            messages = [{"role": "user", "content": f"{program} {thread} {call}"}]
            url = f"{relay.url}/p/{program}/{thread}/v1/chat/completions"
            _, said = await post(client, url, {**BODIES["chat"], "messages": messages, "stream": True})
            return readers.chat_stream(said).text

        for call in range(2):
            where = [(program, thread) for program in range(8) for thread in "abc"]
            texts = await asyncio.gather(*(one(program, thread, call) for program, thread in where))
            assert texts == [f"{p} {t} {call} {p} {t} {call}" for p, t in where]
        assert len({c.name for c in calls}) == len(calls) == 48
        assert all(c.output_tokens == c.scripted_tokens == 3 + c.index for c in calls)

    played(scenario, scripts={number: Own(number) for number in range(8)})


def test_the_relay_ends_with_calls_under_way():
    async def go():
        calls = []
        async with Upstream() as upstream, aiohttp.ClientSession() as client:
            upstream.hang = 2
            async with Relay(upstream.url, MODEL, run="r", told=calls.append) as relay:
                url = f"{relay.url}/p/0/main/v1/chat/completions"
                asking = asyncio.create_task(post(client, url, {**BODIES["chat"], "stream": True}))
                await upstream.reached.wait()
            with pytest.raises(aiohttp.ClientError):
                await asking
            await upstream.gone.wait()
            with pytest.raises(aiohttp.ClientConnectorError):
                await post(client, url, BODIES["chat"])
        assert [call.outcome for call in calls] == ["cut"]

    asyncio.run(asyncio.wait_for(go(), 20))


def test_a_taken_port_is_an_error_and_nothing_stays():
    async def go():
        async with Relay("http://127.0.0.1:9", "m", run="r", told=print) as relay:
            with pytest.raises(OSError, match="address"):
                async with Relay("http://127.0.0.1:9", "m", run="r", told=print, port=relay.port):
                    pass

    asyncio.run(go())
