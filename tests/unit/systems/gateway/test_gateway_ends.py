"""Calls that break engines, policies that raise, names that live again: what ends, and what does not."""

import asyncio
import json
from types import SimpleNamespace

import pytest

from bench.fidelity.server_calls import request_name
from systems.gateway.call_log import names_of
from systems.gateway.errors import CHAT, Refused
from systems.gateway.options import Target
from systems.gateway.outbox import Outbox
from systems.gateway.outlet import RawOutlet
from systems.gateway.rows import Rows
from systems.gateway.workers import Workers
from systems.vllm_host.control import Channel
from tests.unit.systems.gateway.engines import Engine, either, on_loop, until, world
from tests.unit.systems.gateway.test_gateway_failures import row

STREAM = {"model": "m", "prompt": "x", "stream": True, "program_id": "p"}


@pytest.mark.parametrize("works_s", [0.0, 0.08])
def test_a_call_that_breaks_engines_breaks_two_of_them_and_no_more(works_s):
    @on_loop
    async def test():
        async def script(call):
            if call.body["prompt"] != "poison":
                call.reply()
                return
            await asyncio.sleep(works_s)
            call.engine._server.close()
            call.die()

        async with world(*[Engine(script) for _ in range(4)], router="round-robin") as w:
            for _ in range(4):
                assert (await w.ask())[0] == 200  # all connections are kept
            status, _, body = await w.ask(prompt="poison")
            assert (status, json.loads(body)["error"]["code"]) == (502, "engine_lost")
            assert [len(engine.calls) for engine in w.engines] == [2, 2, 1, 1]
            await until(lambda: sum(worker.alive for worker in w.gateway.workers) == 2)
            assert (await w.ask())[0] == 200

    test()


@on_loop
async def test_what_a_lost_engine_took_is_neither_the_gateways_nor_the_programs():
    async def script(call):
        await asyncio.sleep(0.3)
        call.die()

    async with world(Engine(script), Engine()) as w:
        assert (await w.ask(program_id="p"))[0] == 200
        assert w.last.t_send - w.last.t_arrive < 0.25
        assert w.last.t_first - w.last.t_send > 0.29
        assert w.last.exec_s < 0.25


@on_loop
async def test_a_head_of_a_lost_engine_does_not_make_the_next_ones_loss_a_service():
    async def begins(call):
        call.begin()
        await asyncio.sleep(0.03)
        call.die()

    async def dies(call):
        call.die()

    async with world(Engine(begins), Engine(dies)) as w:
        await w.ask(**STREAM)
        assert (w.last.outcome, w.last.engine, w.last.served) == ("lost", 1, 0.0)


@on_loop
async def test_a_client_gets_its_own_name_of_the_request_back_and_the_engine_a_unique_one():
    async def script(call):
        call.reply(headers=f"x-request-id: {call.headers['x-request-id']}\r\n")

    async with world(Engine(script)) as w:
        for _ in range(2):
            _, headers, _ = await w.ask(headers={"X-Request-Id": "mine"})
            assert headers["X-Request-Id"] == "mine"
        _, headers, _ = await w.ask()
        names = [call.headers["x-request-id"] for call in w.engines[0].calls]
        assert len(set(names)) == 3
        assert headers["X-Request-Id"] == names[2]
        await w.post("/v1/responses", {"input": "x", "request_id": "resp_chosen"})
        assert w.engines[0].calls[3].body["request_id"].startswith("resp_gw")


@pytest.mark.parametrize("logged", ["cmpl-{}-0-01234567", "1_cmpl-{}-3-01234567", "chatcmpl-{}", "resp_{}_0"])
def test_vllms_name_of_a_request_leads_to_ours_and_to_the_live_drivers(logged):
    rows = Rows(Workers([], lambda: 0.0), lambda: 0.0)
    name, other = rows.name_for("run.7.0-1.2", 1), rows.name_for(rows.name_for("", 2), 3)
    assert name in names_of(logged.format(name))
    assert rows.name_for("", 2) not in names_of(logged.format(other))
    assert request_name(f"cmpl-{rows.name_for('run.7..2', 1)}-0-01234567") == ("run", "7", "", "2")


@pytest.mark.parametrize("prompt", [[1, [2]], [1, {}], None])
def test_what_is_wrong_with_a_prompt_is_for_the_engine_to_say(prompt):
    @on_loop
    async def test():
        async def script(call):
            call.reply({"error": "no prompt"}, 400)

        async with world(Engine(script), router="cache-aware") as w:
            assert (await w.ask(prompt=prompt))[0] == 400
            assert len(w.gateway.programs) == 0

    test()


@pytest.mark.parametrize(("name", "engine"), [("finish", either), ("abort", None)])
def test_a_gate_that_raises_keeps_no_program(name, engine, monkeypatch):
    @on_loop
    async def test():
        async def fails(call):
            call.reply({"error": "no"}, 400)

        def raises(*_):
            raise ZeroDivisionError

        async with world(Engine(engine or fails)) as w:
            monkeypatch.setattr(w.gateway.door, name, raises)
            assert (await w.ask())[0] == 500
            assert len(w.gateway.programs) == 0

    test()


@on_loop
async def test_a_router_that_raises_when_a_program_ends_does_not_stop_leases(monkeypatch, caplog):
    def raises(_):
        raise ZeroDivisionError

    monkeypatch.setattr("systems.gateway.gateway.TICK_S", 0.01)
    async with world(Engine(), lease_s=0.03) as w:
        monkeypatch.setattr(w.gateway.door, "end", raises)
        for name in ("p", "q"):
            await w.ask(program_id=name)
            await until(lambda name=name: ("ended", name, "lease") in w.watch.told)
    assert "ZeroDivisionError" in caplog.text


def awaited(name, parts=1):
    passage = SimpleNamespace(outcome="disconnected")
    return SimpleNamespace(
        request_id=name, held_s=0.0, ask=SimpleNamespace(parts=parts), passage=passage
    )  # fmt: skip


@on_loop
async def test_awaited_rows_come_though_one_cannot_be_charged_or_is_none(tmp_path, caplog):
    path = tmp_path / "calls.jsonl"
    path.touch()
    workers = Workers([Target("http://127.0.0.1:1", calls=str(path))], lambda: 0.0)
    (worker,), charged = workers, {}
    worker.alive = True
    rows = Rows(workers, lambda: 0.0)

    def then(ticket, charge):
        if ticket.request_id == "bad":
            raise ZeroDivisionError
        charged[ticket.request_id] = charge

    for name, parts in (("bad", 1), ("good", 1), ("two", 2), ("torn", 1)):
        rows.expect(worker, name)
        rows.settle(worker, awaited(name, parts), then)
    with path.open("a") as log:
        log.write(row("bad") + row("good") + row("1_cmpl-two") + '{"request_id": "torn"}\n')
    await until(lambda: charged)
    assert list(charged) == ["good"]
    assert "ZeroDivisionError" in caplog.text
    with path.open("a") as log:
        log.write(row("0_cmpl-two"))
    await until(lambda: len(charged) == 2)
    assert charged["two"].usage.served == 16.0
    rows.close()
    assert charged["torn"] is None
    assert len(rows) == 0


@on_loop
async def test_an_engine_is_not_told_that_a_name_is_over_which_lives_again(tmp_path):
    path, heard, go = str(tmp_path / "control.sock"), [], asyncio.Event()

    async def script(call):
        await go.wait()
        call.reply()

    def handle(message):
        heard.append(message["program"])
        return {}

    def targets(engines):
        return (Target(engines[0].url, control=path),)

    channel = Channel(path)
    async with world(Engine(script), targets=targets) as w:
        old = w.ask(program_id="p")
        await until(lambda: w.engines[0].calls)
        await w.post("/programs/end", {"program_id": "p"})
        await w.post("/programs/start", {"program_id": "p"})
        go.set()
        assert (await old)[0] == 200
        assert ("ended", "p", "ended") in w.watch.told
        channel.serve(handle)
        assert heard == []
        await w.post("/programs/end", {"program_id": "p"})
        await until(lambda: channel.serve(handle) or heard)
        assert heard == ["p"]  # though the second one was never there
    channel.close()


@on_loop
async def test_a_reply_to_a_client_that_has_just_left_is_nobodys_error():
    class Closed(asyncio.Transport):
        def is_closing(self):
            return True

        def write(self, data):
            raise RuntimeError("the handler is closed")  # as uvloop's does

    outlet = RawOutlet(Closed(), speech=CHAT, keeps=True)
    await outlet.begin()
    await outlet.refuse(Refused(409, "given up"))
    RawOutlet(Closed(), speech=CHAT, keeps=True).whole(200, (), b"")


def test_an_end_that_no_engine_has_heard_of_is_taken_back(tmp_path):
    target = Target("http://127.0.0.1:1", control=str(tmp_path / "none.sock"))
    outbox = Outbox(Workers([target], lambda: 0.0))
    outbox.end("p", 0)
    outbox.end("q", 0)
    assert (outbox.recall("p"), outbox.recall("p"), outbox.recall("")) == ([0], [], [])
    assert len(outbox) == 1
    outbox.close()


@on_loop
async def test_a_stream_that_is_open_when_the_gateway_stops_ends_with_an_error_event():
    async def script(call):
        call.begin()
        call.token("one")
        await asyncio.sleep(60)

    async with world(Engine(script), leaves=False) as w:
        async with w.session.post(w.server.url + "/v1/completions", json=STREAM) as answer:
            await answer.content.readuntil(b"\n\n")
            stopping = asyncio.create_task(w.server.stop(drain_s=0.05))
            events = (await answer.read()).decode().strip().split("\n\n")
            await stopping
        error = json.loads(events[-1].removeprefix("data: "))["error"]
        assert error["code"] == "unavailable"
        assert error["message"].startswith("the gateway stops")
        assert (w.last.outcome, w.last.status, w.last.served) == ("timeout", 503, 1.0)
