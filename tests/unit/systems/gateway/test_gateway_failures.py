"""Engines that die, hang or come late; clients that leave, cancel and come again; gates that hold."""

import asyncio
import errno
import json
import time

import pytest

from systems.gateway import rows
from systems.gateway.options import Target
from systems.gateway.workers import DEAD_S
from systems.http1 import CannotConnect
from tests.unit.systems.gateway.engines import Engine, on_loop, until, world

STREAM = {"model": "m", "prompt": "x", "stream": True, "program_id": "p"}


async def silence(call):
    await asyncio.sleep(60)


async def dies(call):
    call.die()


async def dies_in_mid_stream(call):
    call.begin()
    call.token("one")
    await asyncio.sleep(0.05)
    call.die()


@on_loop
async def test_an_engine_that_dies_in_mid_stream_ends_it_with_an_error_event():
    async with world(Engine(dies_in_mid_stream), Engine()) as w:
        async with w.session.post(w.server.url + "/v1/completions", json=STREAM) as answer:
            events = (await answer.read()).decode().strip().split("\n\n")
        assert answer.status == 200
        assert "one" in events[0]
        assert json.loads(events[-1].removeprefix("data: "))["error"]["code"] == "engine_lost"
        assert (w.last.outcome, w.last.status) == ("lost", 502)
        assert w.last.served == 1.0  # the one piece that came
        assert len(w.engines[1].calls) == 0


@pytest.mark.parametrize("stream", [False, True])
def test_an_engine_that_dies_before_the_first_byte_is_made_up_for_once(stream):
    @on_loop
    async def test():
        async with world(Engine(dies), Engine()) as w:
            status, _, _ = await w.ask(program_id="p", stream=stream)
            assert status == 200
            assert (w.last.outcome, w.last.engine) == ("finished", 1)
            assert [one for one in w.watch.told if one[0] == "sent"] == [("sent", 0), ("sent", 0)]
            assert (
                w.engines[1].calls[0].headers["x-request-id"] == w.engines[0].calls[0].headers["x-request-id"]
            )
            w.engines[1].script = dies
            status, _, body = await w.ask(program_id="p", stream=stream)
            assert (status, json.loads(body)["error"]["code"]) == (502, "engine_lost")
            w.in_step()

    test()


@on_loop
async def test_without_another_engine_it_is_a_502():
    async with world(Engine(dies)) as w:
        assert (await w.ask())[0] == 502
        assert w.last.reason.startswith("the engine broke off")


@on_loop
async def test_a_whole_reply_that_breaks_off_is_made_up_for_too():
    async def script(call):
        call.writer.write(b'HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"half":')
        await asyncio.sleep(0.02)
        call.die()

    async with world(Engine(script), Engine()) as w:
        status, _, body = await w.ask()
        assert (status, json.loads(body)["id"]) == (200, "x")
        assert w.last.chunks == 1


@on_loop
async def test_an_engine_that_is_gone_is_down_at_once_and_comes_back_by_itself():
    async with world(Engine(), Engine(), router="session-pinned", poll_s=0.2) as w:
        await w.ask(program_id="p")
        one, other = w.engines
        await one.stop()
        status, _, _ = await w.ask(program_id="p")
        assert (status, w.last.engine) == (200, 1)  # the pin has moved
        assert w.gateway.workers[0].alive is False
        assert ("engine", 0, "down") in w.watch.told
        await one.start()
        await until(lambda: w.gateway.workers[0].alive)
        await w.ask(program_id="q")
        assert [len(engine.calls) for engine in (one, other)] == [2, 1]


@on_loop
async def test_calls_wait_for_engines_that_start_late():
    engine = Engine()
    await engine.start()
    await engine.stop()  # its port is known now
    targets = (Target(engine.url),)
    async with world(targets=lambda _: targets, up=False) as w:
        task = w.ask(program_id="p")
        await until(lambda: w.gateway.programs.counts()["held"] == 1)
        await asyncio.sleep(0.1)
        await engine.start()
        assert (await task)[0] == 200
        assert w.last.wait_s > 0.1
        assert w.gateway.programs.named("p").wait == w.last.wait_s
        await engine.stop()


@on_loop
async def test_engines_that_never_come_fail_their_calls_after_a_while():
    async with world(targets=lambda _: (Target("http://127.0.0.1:9"),), up=False, late_s=0.15) as w:
        status, headers, body = await w.ask()
        assert (status, headers["Retry-After"]) == (503, "5")
        assert "http://127.0.0.1:9: it has not answered yet" in json.loads(body)["error"]["message"]
        assert (w.last.outcome, w.last.engine) == ("timeout", -1)


@on_loop
async def test_calls_that_find_no_live_engine_wait_until_one_is_back():
    async with world(Engine()) as w:
        (engine,) = w.engines
        await engine.stop()
        await until(lambda: not w.gateway.workers[0].alive)
        task = w.ask()
        await asyncio.sleep(0.1)
        assert not task.done()
        await engine.start()
        assert (await task)[0] == 200


@on_loop
async def test_hung_metrics_delay_nothing_and_a_hung_health_is_slow_and_then_down(monkeypatch):
    monkeypatch.setattr("systems.gateway.workers.DEAD_S", 0.3)
    async with world(Engine(), poll_limit_s=0.1) as w:
        (engine,), (worker,) = w.engines, w.gateway.workers
        await until(lambda: worker.load_at >= 0.0)
        engine.metrics = None
        begin = time.monotonic()
        assert (await w.ask())[0] == 200
        assert time.monotonic() - begin < 0.25
        assert worker.alive
        engine.health = None
        await until(lambda: worker.slow)
        assert worker.alive
        assert (await w.ask())[0] == 200
        await until(lambda: not worker.alive)
        assert [one[2] for one in w.watch.told if one[0] == "engine"] == ["up", "slow", "down"]
        engine.health = 200
        await until(lambda: worker.alive)
    assert DEAD_S > 0.3


@on_loop
async def test_an_engine_that_says_it_is_dead_is():
    async with world(Engine()) as w:
        w.engines[0].health = 503
        await until(lambda: not w.gateway.workers[0].alive)
        assert w.gateway.workers[0].why == "/health answers 503"


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_is_cut_off_at_the_engine_at_once(stream):
    @on_loop
    async def test():
        async def script(call):
            if stream:
                call.begin()
                call.token("one")
            await call.left.wait()

        async with world(Engine(script)) as w:
            task = w.ask(program_id="p", stream=stream)
            await until(lambda: w.engines[0].calls)
            await asyncio.sleep(0.05)
            w.in_step()
            task.cancel()
            await until(lambda: w.engines[0].calls[0].left.is_set(), 0.5)
            await until(lambda: w.watch.passages)
            assert (w.last.outcome, w.last.status) == ("disconnected", 200 if stream else 0)
            assert w.last.exec_s > 0.04
            assert w.gateway.programs.named("p").state == "idle"
            assert w.gateway.programs.named("p").exec_s == w.last.exec_s

    test()


@on_loop
async def test_a_call_with_the_same_key_replaces_the_one_that_is_open():
    go = asyncio.Event()

    async def script(call):
        if len(call.engine.calls) == 1:
            await call.left.wait()
        else:
            await go.wait()
            call.reply()

    async with world(Engine(script)) as w:
        headers = {"Idempotency-Key": "k"}
        old = w.ask(program_id="p", headers=headers)
        await until(lambda: w.engines[0].calls)
        new = w.ask(program_id="p", prompt="again", headers=headers)
        status, _, body = await old
        assert (status, json.loads(body)["error"]["code"]) == (409, "superseded")
        await until(lambda: w.engines[0].calls[0].left.is_set())
        go.set()
        assert (await new)[0] == 200
        gone, done = w.watch.passages
        assert (gone.outcome, gone.attempt, gone.index) == ("disconnected", 1, 0)
        assert (done.outcome, done.attempt, done.index) == ("finished", 2, 0)
        await w.ask(program_id="p", prompt="next", headers=headers)
        assert (w.last.attempt, w.last.index) == (1, 1)


@on_loop
async def test_the_same_body_after_a_disconnect_is_the_same_turn_and_in_parallel_it_is_not():
    go = asyncio.Event()

    async def script(call):
        await go.wait()
        call.reply()

    async with world(Engine(script)) as w:
        task = w.ask(program_id="p")
        await until(lambda: w.engines[0].calls)
        task.cancel()
        await until(lambda: w.watch.passages)
        both = [w.ask(program_id="p"), w.ask(program_id="p")]
        await until(lambda: len(w.engines[0].calls) == 3)
        go.set()
        assert [(await one)[0] for one in both] == [200, 200]
        assert sorted((one.index, one.attempt) for one in w.watch.passages) == [(0, 1), (0, 2), (1, 1)]


@on_loop
async def test_a_retry_of_a_call_that_is_nobodys_replaces_it_too():
    async def script(call):
        if len(call.engine.calls) == 1:
            await call.left.wait()
        else:
            call.reply()

    async with world(Engine(script)) as w:
        headers = {"Idempotency-Key": "k", "X-Request-Id": "r"}
        old = w.ask(headers=headers)
        await until(lambda: w.engines[0].calls)
        assert (await w.ask(headers=headers))[0] == 200
        assert (await old)[0] == 409
        assert w.last.attempt == 2
        names = [call.headers["x-request-id"] for call in w.engines[0].calls]
        assert all(name.startswith("r-gw") for name in names)
        assert len(set(names)) == 2  # the engine may still have the first one


@on_loop
async def test_no_client_of_a_single_call_cuts_off_anothers():
    go = asyncio.Event()

    async def script(call):
        await go.wait()
        call.reply()

    async with world(Engine(script)) as w:
        key, other = {"Idempotency-Key": "k"}, {"Idempotency-Key": "k", "Authorization": "Bearer other"}
        calls = [w.ask(headers={"X-Request-Id": "r"}) for _ in range(2)]
        calls += [w.ask(headers=key), w.ask(headers=other), w.ask(prompt="another", headers=key)]
        await until(lambda: len(w.engines[0].calls) == 5)
        go.set()
        assert [(await call)[0] for call in calls] == [200] * 5


@on_loop
async def test_heartbeats_reach_a_streaming_client_that_waits_and_errors_then_are_events():
    go = asyncio.Event()

    async def script(call):
        await go.wait()
        call.reply({"error": {"message": "no"}}, 400)

    async with world(Engine(script), heartbeat_s=0.08) as w:
        async with w.session.post(w.server.url + "/v1/completions", json=STREAM) as answer:
            assert await answer.content.readuntil(b"\n\n") == b": waiting\n\n"
            go.set()
            rest = await answer.read()
        assert answer.status == 200
        assert rest.endswith(b'data: {"error": {"message": "no"}}\n\n')
        assert (w.last.outcome, w.last.status) == ("error", 400)


@on_loop
async def test_a_heartbeat_never_falls_into_an_event():
    async def script(call):
        call.begin()
        call.chunk('data: {"half":')
        await asyncio.sleep(0.3)
        call.chunk(" 1}\n\n")
        call.end()

    async with world(Engine(script), heartbeat_s=0.04) as w:
        _, _, body = await w.ask(**STREAM | {"stream_options": {"include_usage": True}})
        assert b'data: {"half": 1}\n\n' in body


@on_loop
async def test_an_event_is_passed_on_whole_where_usage_is_hidden():
    async def script(call):
        call.begin()
        call.chunk('data: {"choices":[],"usa')
        await asyncio.sleep(0.02)
        call.chunk('ge":{"prompt_tokens":9,"completion_tokens":3}}\n\ndata: [DO')
        await asyncio.sleep(0.02)
        call.chunk("NE]\n\n")
        call.writer.write(b"0\r\n\r\n")

    async with world(Engine(script)) as w:
        _, _, body = await w.ask(stream=True)
        assert body == b"data: [DONE]\n\n"
        assert w.last.output_tokens == 3


@on_loop
async def test_held_calls_wait_in_order_and_too_long_is_a_503():
    go = asyncio.Event()

    async def script(call):
        await go.wait()
        call.reply()

    async with world(Engine(script), gate="program-cap", knobs={"gate.programs": "1"}, max_hold_s=0.5) as w:
        first = w.ask(program_id="a")
        await until(lambda: w.engines[0].calls)
        held = [w.ask(program_id="b", prompt=word) for word in ("one", "two")]
        await until(lambda: w.gateway.programs.named("b") and w.gateway.programs.named("b").held == 2)
        assert w.gateway.programs.counts() == {"idle": 0, "reasoning": 1, "held": 1}
        go.set()
        await first
        await w.post("/programs/end", {"program_id": "a"})
        assert [(await one)[0] for one in held] == [200, 200]
        assert [call.body["prompt"] for call in w.engines[0].calls[1:]] == ["one", "two"]
        assert w.watch.passages[1].wait_s > 0.0
        status, headers, _ = await w.ask(program_id="c")
        assert (status, headers["Retry-After"]) == (503, "5")
        assert (w.last.outcome, w.last.served) == ("timeout", 0.0)
        assert w.last.wait_s == pytest.approx(0.5, abs=0.1)


@on_loop
async def test_a_held_call_can_be_cancelled_and_its_stream_gets_heartbeats():
    async with world(Engine(), gate="program-cap", knobs={"gate.programs": "1"}, heartbeat_s=0.05) as w:
        await w.ask(program_id="a")
        body = STREAM | {"program_id": "b"}
        async with w.session.post(w.server.url + "/v1/completions", json=body) as answer:
            assert await answer.content.readuntil(b"\n\n") == b": waiting\n\n"
            assert len(w.gateway.door) == 1
        await until(lambda: not w.gateway.in_flight)
        assert (w.last.outcome, w.last.engine) == ("disconnected", -1)
        assert len(w.gateway.door) == 0


def row(name, **numbers):
    """A line of the scheduler's call log."""
    fields = {
        "request_id": name, "t_arrive": 1.0, "t_end": 3.0, "prefill_s": 0.25, "reprefill_s": 0.0,
        "decode_s": 0.5, "swap_s": 0.0, "wait_s": 1.25, "served": 8.0, "cached_tokens": 16,
        "prefill_tokens": 84, "output_tokens": 5, "aborted": False,
    } | numbers  # fmt: skip
    return json.dumps(fields) + "\n"


def logging_engine(path, script=None):
    """It writes its scheduler's row before its reply ends, among those of others."""

    async def logs(call):
        with path.open("a") as log:
            log.write(
                row("cmpl-somebody-else-0-01234567") + row(f"cmpl-{call.headers['x-request-id']}-0-89abcdef")
            )
        await (script(call) if script else call.stream() if call.body.get("stream") else asyncio.sleep(0))
        if not call.body.get("stream"):
            call.reply()

    return Engine(logs)


@on_loop
async def test_service_comes_from_the_schedulers_own_row_where_it_can_be_read(tmp_path):
    path = tmp_path / "calls.jsonl"
    path.write_text(row("cmpl-old-0-01234567"))

    def targets(engines):
        return (Target(engines[0].url, calls=str(path)),)

    async with world(logging_engine(path), targets=targets) as w:
        for stream in (False, True):
            await w.ask(program_id="p", stream=stream, headers={"X-Request-Id": f"run.0..{stream}"})
            one = w.last
            assert (one.source, one.served, one.exec_s, one.wait_s) == ("log", 8.0, 0.75, 1.25)
        assert (one.prompt_tokens, one.output_tokens, one.cached_tokens) == (100, 5, 16)
        assert w.gateway.programs.named("p").service == 16.0
        assert "stream_options" not in w.engines[0].calls[1].body


@on_loop
async def test_the_row_of_a_cut_call_is_awaited_and_it_is_in_flight_until_then(tmp_path, monkeypatch):
    path = tmp_path / "calls.jsonl"
    path.touch()

    async def script(call):
        call.begin()
        call.token()
        await call.left.wait()
        await asyncio.sleep(0.1)
        with path.open("a") as log:
            log.write(row(f"cmpl-{call.headers['x-request-id']}-0-89abcdef", served=3.0, aborted=True))

    def targets(engines):
        return (Target(engines[0].url, calls=str(path)),)

    async with world(Engine(script), targets=targets) as w:
        for patience, served, source in ((5.0, 3.0, "log"), (0.05, 1.0, "usage")):
            monkeypatch.setattr(rows, "ABORT_S", patience)
            task = w.ask(program_id="p", stream=True)
            await until(lambda: w.engines[0].open)
            await asyncio.sleep(0.05)
            task.cancel()
            await until(lambda: w.engines[0].calls[-1].left.is_set())
            assert len(w.gateway.rows) == 1
            assert w.gateway.programs.named("p").state == "reasoning"
            w.in_step()
            await until(lambda: not w.gateway.in_flight)
            assert (w.last.served, w.last.source, w.last.outcome) == (served, source, "disconnected")
            await until(lambda: not w.engines[0].open)


@on_loop
async def test_calls_that_are_open_when_the_gateway_stops_are_cut_and_charged():
    async with world(Engine(silence), leaves=False) as w:
        task = w.ask(program_id="p")
        await until(lambda: w.engines[0].calls)
        await w.server.stop(drain_s=0.05)
        assert (w.last.outcome, w.last.status) == ("timeout", 503)
        assert w.last.reason.startswith("the gateway stops")
        assert ("ended", "p", "ended") in w.watch.told
        await asyncio.gather(task, return_exceptions=True)
        w.nothing_left()


@on_loop
async def test_a_slow_client_does_not_make_the_gateway_hoard():
    size = 1 << 16

    async def script(call):
        call.begin()
        for _ in range(600):
            call.chunk("data: " + "x" * size + "\n\n")
            await call.writer.drain()
        call.writer.write(b"0\r\n\r\n")

    async with world(Engine(script)) as w:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", int(w.server.url.rpartition(":")[2]), limit=1 << 14
        )
        body = json.dumps(STREAM | {"stream_options": {"include_usage": True}}).encode()
        writer.write(
            b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        )
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(0.3)
        (ticket,) = w.gateway.books.open
        before = ticket.passage.bytes_out
        assert before < 20 << 20
        await asyncio.sleep(0.1)
        assert ticket.passage.bytes_out == before  # it stands
        while len(await reader.read(1 << 20)) > 0 and ticket.passage.outcome == "":
            pass
        await until(lambda: w.last.outcome == "finished")
        assert w.last.bytes_out > 600 * size
        writer.close()


@on_loop
async def test_being_out_of_descriptors_is_not_the_engines_fault(monkeypatch):
    async def post(*_):
        raise CannotConnect("cannot connect: Too many open files") from OSError(
            errno.EMFILE, "Too many open files"
        )

    async with world(Engine()) as w:
        monkeypatch.setattr(w.gateway.wires, "post", post)
        status, _, body = await w.ask()
        assert (status, "out of connections" in body.decode()) == (503, True)
        assert w.gateway.workers[0].alive


@on_loop
async def test_a_router_that_raises_is_a_500_and_leaves_nothing(monkeypatch, caplog):
    def route(*_):
        raise ZeroDivisionError

    async with world(Engine()) as w:
        monkeypatch.setattr(w.gateway.door, "route", route)
        for headers in ({}, {"Expect": "100-continue"}):
            status, _, body = await w.ask(program_id="p", headers=headers)
            assert status == 500
            assert json.loads(body)["error"]["message"] == "internal error of the gateway: ZeroDivisionError"
        assert (w.last.outcome, w.last.status) == ("error", 500)
    assert "ZeroDivisionError" in caplog.text
