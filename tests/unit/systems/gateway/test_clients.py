"""What real clients sent (tests/data/clients, by benchmarks/clients.py), sent again through the gateway:
whose calls they are, that a retry is one, and what keeps a client that waits."""

import asyncio
import json
import re
from pathlib import Path

import pytest

from benchmarks.client_parts.engine import ScriptedEngine
from systems.gateway.options import Target
from tests.unit.systems.gateway.engines import Engine, on_loop, until, world
from tests.unit.systems.gateway.test_gateway_failures import row

RECORDED = Path(__file__).parents[3] / "data" / "clients"
STREAMS = ("/v1/chat/completions", "/v1/responses", "/v1/messages")
BEATS = {
    "/v1/completions": b": waiting\n\n",
    "/v1/chat/completions": b": waiting\n\n",
    "/v1/responses": b": waiting\n\n",
    "/v1/messages": b'event: ping\ndata: {"type": "ping"}\n\n',
}


def recorded(name):
    return json.loads((RECORDED / f"{name}.json").read_text())["calls"]


def calls_of(name):
    return [call for call in recorded(name) if call["method"] == "POST"]


async def whole(call):
    call.reply({"id": "x"})


async def sent(w, calls):
    for call in calls:
        status, *_ = await w.post(call["path"], json.dumps(call["body"]).encode(), call["headers"])
        assert status == 200
    return [(one.name, one.thread, one.index, one.attempt) for one in w.watch.passages]


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("claude-tool", [("1", "", 0), ("1", "", 1)]),
        ("claude-sub-agent", [("1", "", 0), ("1", "2", 0), ("1", "", 1)]),
        ("codex-tool", [("1", "1", 0), ("1", "1", 1)]),
        ("codex-sub-agent", [("1", "1", 0), ("1", "1", 1), ("1", "2", 0), ("1", "1", 2)]),
        ("opencode-tool", [("1", "", 0), ("1", "", 1), ("1", "", 2)]),
        ("opencode-sub-agent", [("1", "", 0), ("1", "", 1), ("1", "2", 0), ("1", "", 2)]),
    ],
)
@on_loop
async def test_a_session_is_a_program_and_a_sub_agent_a_thread_of_it(name, rows):
    """Ids by their first appearance: programs and threads from 1; "" is a thread without a name."""
    async with world(Engine(whole)) as w:
        found = await sent(w, calls_of(name))
        numbers = {}
        ids = [numbers.setdefault(one, str(len(numbers) + 1)) for row in found for one in row[:2] if one]
        assert ids
        named = [(numbers[who], numbers.get(thread, ""), index) for who, thread, index, _ in found]
        assert sorted(named) == sorted(rows)
        assert [attempt for *_, attempt in found] == [1] * len(found)
        assert len(w.gateway.programs) == 1
        assert [call.xargs["program_id"] for call in w.engines[0].calls] == [row[0] for row in found]


@pytest.mark.parametrize("name", ["claude-tool", "codex-tool", "opencode-tool"])
@on_loop
async def test_what_they_ask_again_after_a_failure_is_the_same_turn(name):
    """As they do it: Codex writes its metadata in another order, Claude Code may ask without a stream."""
    first = calls_of(name)[-1]
    body = dict(reversed(first["body"].items()))
    if name == "claude-tool":
        del body["stream"]
    broken = []

    async def script(call):
        call.reply({"error": {"message": "no"}}, 200 if broken else 500)
        broken.append(call)

    async with world(Engine(script)) as w:
        await w.post(first["path"], json.dumps(first["body"]).encode(), first["headers"])
        await w.post(first["path"], json.dumps(body).encode(), first["headers"])
        await w.post(first["path"], json.dumps(body).encode(), first["headers"])
        turns = [(one.index, one.attempt) for one in w.watch.passages]
        assert turns == [(0, 1), (0, 2), (1, 1)]


def numberless(stream):
    """Without the counted ids: the engine has answered another call in between."""
    return re.sub(rb"_\d{8}|-\d{8}", b"", stream)


@on_loop
async def test_a_retry_that_comes_before_the_scheduler_has_told_of_the_first_attempt_is_one(tmp_path):
    """A client that gave up asks again at once; the row of a call that was cut off is a step later."""
    log, first = tmp_path / "calls.jsonl", calls_of("codex-tool")[0]
    log.touch()
    raw = json.dumps(first["body"]).encode()
    again = json.dumps(dict(reversed(first["body"].items()))).encode()
    asked_again = asyncio.Event()

    async def script(call):
        if len(w.engines[0].calls) > 1:
            asked_again.set()
            await call.stream()
        else:
            call.begin()
            call.chunk("event: x\ndata: {}\n\n")
            await call.left.wait()
            await asked_again.wait()

    async with world(Engine(script), targets=lambda them: (Target(them[0].url, calls=str(log)),)) as w:
        async with w.session.post(w.server.url + first["path"], data=raw, headers=first["headers"]) as answer:
            await answer.content.readany()
        retry = asyncio.create_task(w.post(first["path"], again, first["headers"]))
        await asked_again.wait()
        assert len(w.gateway.books.open) == 2
        with log.open("a") as rows:
            rows.writelines(
                row(f"resp_{call.headers['x-request-id']}-0-89abcdef") for call in w.engines[0].calls
            )
        assert (await retry)[0] == 200
        await until(lambda: len(w.watch.passages) == 2)
        found = sorted((one.index, one.attempt, one.outcome) for one in w.watch.passages)
        assert found == [(0, 1, "disconnected"), (0, 2, "finished")]


@pytest.mark.parametrize("name", ["claude-tool", "codex-tool", "opencode-tool"])
@on_loop
async def test_their_streams_come_back_byte_by_byte(name):
    with ScriptedEngine() as scripted:
        async with world(targets=lambda _: (Target(scripted.url),)) as w:
            for call in calls_of(name):
                raw = json.dumps(call["body"]).encode()
                async with w.session.post(scripted.url + call["path"], data=raw) as answer:
                    direct = await answer.read()
                _, _, through = await w.post(call["path"], raw, call["headers"])
                assert numberless(through) == numberless(direct)
                assert len(through) > 300


async def beats_of(w, path, body):
    """The first two heartbeats of a stream, and all that comes then."""
    async with w.session.post(w.server.url + path, json=body) as answer:
        first = [await answer.content.readuntil(b"\n\n") for _ in range(2)]
        return first, await answer.read()


@pytest.mark.parametrize("path", BEATS)
@on_loop
async def test_a_held_program_hears_heartbeats_its_client_counts_then_an_error_it_asks_again_after(path):
    body = {"program_id": "b", "stream": True, "messages": [], "input": "x", "prompt": "x"}
    options = {"gate": "program-cap", "knobs": {"gate.programs": "1"}}
    async with world(Engine(), heartbeat_s=0.05, max_hold_s=0.4, **options) as w:
        await w.ask(program_id="a")
        beats, rest = await beats_of(w, path, body)
        assert beats == [BEATS[path]] * 2
        assert rest.count(BEATS[path]) >= 2
        *_, last = rest.decode().strip().split("\n\n")
        assert last.startswith("data: " if "completions" in path else "event: error\n")
        error = json.loads(last.partition("data: ")[2])
        assert error["error"]["message"] == "held by the gate for 0.4 s"
        if path == "/v1/messages":
            assert (error["type"], error["error"]["type"]) == ("error", "overloaded_error")
        elif path == "/v1/responses":
            assert (error["type"], error["code"]) == ("error", "unavailable")
        await w.post("/programs/end", {"program_id": "a"})
        status, _, _ = await w.post(path, json.dumps(body).encode())
        assert status == 200
        rows = [(one.name, one.index, one.attempt, one.outcome) for one in w.watch.passages]
        assert rows[1:] == [("b", 0, 1, "timeout"), ("b", 0, 2, "finished")]


@pytest.mark.parametrize("chunked", [False, True])
@on_loop
async def test_codex_hears_events_since_its_clock_does_not_see_comments(chunked):
    """On a raw connection, and on one that is aiohttp's because of how the body comes."""
    call = calls_of("codex-tool")[0]
    raw = json.dumps(call["body"]).encode()

    async def pieces():
        yield raw

    async with world(Engine(), gate="program-cap", knobs={"gate.programs": "1"}, heartbeat_s=0.05) as w:
        await w.ask(program_id="a")
        data = pieces() if chunked else raw
        async with w.session.post(w.server.url + call["path"], data=data, headers=call["headers"]) as answer:
            beat = await answer.content.readuntil(b"\n\n")
        assert beat == b'event: keepalive\ndata: {"type": "keepalive", "sequence_number": 0}\n\n'


@on_loop
async def test_an_engine_that_dies_tells_each_dialect_to_ask_again():
    async def script(call):
        call.begin()
        call.chunk("event: x\ndata: {}\n\n")
        await asyncio.sleep(0.02)
        call.die()

    async with world(Engine(script)) as w:
        for path in STREAMS:
            _, _, body = await w.post(path, {"stream": True, "messages": [], "input": "x"})
            assert (b"overloaded_error" in body) == (path == "/v1/messages")
            assert (b'"type":"error"' in body) == (path != "/v1/chat/completions")
