"""The chat client against a server on loopback that plays one answer after the other."""

import asyncio
import json
import socket

import pytest
from aiohttp import web

from workloads.agents.chat import HttpChat
from workloads.agents.contract import AgentError, Reply, ToolCall, ToolSpec
from workloads.agents.work import UNREADABLE

USAGE = {"prompt_tokens": 12, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 8}}
TOOL = ToolSpec("look", "Look.", {"type": "object", "properties": {}})
ASK = [{"role": "user", "content": "hello"}]


def completion(content="hi", calls=None, usage=USAGE):
    message = {"role": "assistant", "content": content, "tool_calls": calls}
    return 200, {"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}, {}


def tool_call(arguments, name="look", call_id="c1"):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


class Server:
    """Answers (status, body, headers), the last of them for ever; keeps what it was asked."""

    def __init__(self, *answers):
        self.answers, self.seen, self.pauses = list(answers), [], []

    async def handle(self, request):
        self.seen.append((request.path, dict(request.headers), await request.json()))
        status, body, headers = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        text = body if isinstance(body, str) else json.dumps(body)
        return web.Response(status=status, text=text, headers=headers)

    def use(self, doing, key=""):
        """What ``doing(chat)`` returns; pauses between attempts are noted and take no time."""

        async def pause(seconds):
            self.pauses.append(seconds)

        async def run():
            app = web.Application()
            app.router.add_post("/{path:.*}", self.handle)
            runner = web.AppRunner(app)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            port = site._server.sockets[0].getsockname()[1]
            try:
                async with HttpChat(f"http://127.0.0.1:{port}", 7, "tiny", key, pause=pause) as chat:
                    return await doing(chat)
            finally:
                await runner.cleanup()

        return asyncio.run(run())


def test_a_call_is_of_its_program_and_thread():
    server = Server(completion())
    reply = server.use(
        lambda chat: chat.ask(ASK, [TOOL], thread="n3", max_tokens=9, temperature=1.0, seed=4), "k"
    )
    path, headers, body = server.seen[0]
    assert path == "/p/7/n3/v1/chat/completions"
    assert headers["Authorization"] == "Bearer k"
    assert body == {
        "model": "tiny", "messages": ASK, "max_tokens": 9, "temperature": 1.0, "seed": 4,
        "tools": [TOOL.openai()],
    }  # fmt: skip
    assert reply == Reply("hi", (), 12, 5, 8)


def test_what_is_not_asked_for_is_not_sent():
    server = Server(completion(usage=None))
    reply = server.use(lambda chat: chat.ask(ASK))
    _, headers, body = server.seen[0]
    assert set(body) == {"model", "messages", "max_tokens", "temperature"}
    assert "Authorization" not in headers
    assert (reply.prompt_tokens, reply.output_tokens, reply.cached_tokens) == (0, 0, -1)


def test_tool_calls_are_read():
    calls = [
        tool_call('{"x": 1}'),
        tool_call("", call_id="c2"),
        tool_call("{x", call_id="c3"),
        tool_call("[1]"),
    ]
    reply = Server(completion(None, calls)).use(lambda chat: chat.ask(ASK))
    assert reply.text == ""
    assert reply.tool_calls == (
        ToolCall("c1", "look", {"x": 1}),
        ToolCall("c2", "look", {}),
        ToolCall("c3", "look", {UNREADABLE: "{x"}),
        ToolCall("c1", "look", {UNREADABLE: "[1]"}),
    )


def test_it_comes_back_when_it_is_told_to():
    busy = 503, {"error": {"message": "full"}}, {"Retry-After": "3"}
    server = Server(busy, busy, completion())
    assert server.use(lambda chat: chat.ask(ASK)).text == "hi"
    assert server.pauses == [3.0, 3.0]
    assert [headers.get("x-stainless-retry-count") for _, headers, _ in server.seen] == [None, "1", "2"]
    bodies = [body for _, _, body in server.seen]
    assert bodies[0] == bodies[1] == bodies[2]


def test_it_comes_back_twice_at_most():
    server = Server((503, {"error": {"message": "full"}}, {"Retry-After": "1"}))
    with pytest.raises(AgentError, match="call 0 of thread main of program 7: refused with 503: full"):
        server.use(lambda chat: chat.ask(ASK))
    assert len(server.seen) == 3


@pytest.mark.parametrize(
    "answer",
    [
        (503, {"error": {"message": "no"}}, {}),
        (400, {"error": {"message": "no"}}, {"Retry-After": "1"}),
        (500, "no", {}),
        (503, {"error": "no"}, {"Retry-After": "soon"}),
    ],
)
def test_other_refusals_are_final(answer):
    server = Server(answer)
    with pytest.raises(AgentError, match=f"refused with {answer[0]}: no"):
        server.use(lambda chat: chat.ask(ASK))
    assert (len(server.seen), server.pauses) == (1, [])


@pytest.mark.parametrize("body", ["hello", "{}", '{"choices": []}', '{"choices": [{"message": 3}]}', "[]"])
def test_an_answer_that_is_none_is_an_error(body):
    with pytest.raises(AgentError, match="the answer is no chat completion"):
        Server((200, body, {})).use(lambda chat: chat.ask(ASK))


def test_an_error_names_the_call():
    server = Server(completion(), (400, {"error": {"message": "too long"}}, {}))

    async def twice(chat):
        await chat.ask(ASK, thread="map-1")
        await chat.ask(ASK, thread="map-1")

    with pytest.raises(AgentError, match="call 1 of thread map-1 of program 7: refused with 400: too long"):
        server.use(twice)


def test_nobody_there_is_tried_again_then_said():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port, pauses = held.getsockname()[1], []

        async def run():
            async def pause(seconds):
                pauses.append(seconds)

            async with HttpChat(f"http://127.0.0.1:{port}", 0, "tiny", pause=pause) as chat:
                await chat.ask(ASK)

        with pytest.raises(AgentError, match=f"nobody listens at http://127.0.0.1:{port}/p/0/main/v1"):
            asyncio.run(run())
    assert pauses == [0.5, 1.0]


def test_a_connection_that_breaks_is_lost():
    async def run():
        async def drop(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.close()

        server = await asyncio.start_server(drop, "127.0.0.1", 0)
        async with server, HttpChat(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", 1, "t") as chat:
            await chat.ask(ASK, thread="n1")

    with pytest.raises(AgentError, match="call 0 of thread n1 of program 1: lost"):
        asyncio.run(run())


def test_an_attempt_ends_in_time():
    async def run():
        silent = await asyncio.start_server(lambda reader, writer: asyncio.sleep(5), "127.0.0.1", 0)
        port = silent.sockets[0].getsockname()[1]
        async with HttpChat(f"http://127.0.0.1:{port}", 1, "t", timeout_s=0.05) as chat:
            try:
                await chat.ask(ASK)
            finally:
                silent.close()

    with pytest.raises(AgentError, match=r"call 0 of thread main of program 1: no answer within 0\.05 s"):
        asyncio.run(run())


def test_threads_ask_at_once():
    """The server answers nobody before all are there."""

    async def ask_all(chat):
        return await asyncio.gather(*(chat.ask(ASK, thread=f"n{i}") for i in range(150)))

    class Gathering(Server):
        gate = None

        async def handle(self, request):
            self.gate = self.gate or asyncio.Event()
            answer = await super().handle(request)
            if len(self.seen) == 150:
                self.gate.set()
            await asyncio.wait_for(self.gate.wait(), 10)
            return answer

    assert len(Gathering(completion()).use(ask_all)) == 150
