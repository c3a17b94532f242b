"""Calls through a gateway: what engines get, what clients get back, and what programs are charged."""

import asyncio
import json

import pytest

from systems.gateway.options import Target
from tests.unit.systems.gateway.engines import Engine, on_loop, until, world


@on_loop
async def test_a_call_carries_its_programs_numbers_and_is_charged_from_usage():
    async with world(Engine()) as w:
        status, _, body = await w.ask(vllm_xargs={"program_id": "p", "thread_id": "t", "tool": "x"})
        assert (status, json.loads(body)["id"]) == (200, "x")
        await w.ask(vllm_xargs={"program_id": "p", "thread_id": "t"})
        first, second = (call.xargs for call in w.engines[0].calls)
        assert first == {
            "program_id": "p",
            "thread_id": "t",
            "tool": "x",
            "service": 0.0,
            "wait": 0.0,
            "exec_s": 0.0,
        }
        assert (
            second["service"] == 5.0
        )  # a prompt of one step, which brings the first of 5 tokens, and 4 more
        assert second["exec_s"] > 0.0
        row = w.gateway.programs.named("p")
        assert (row.service, row.state, row.calls, row.engine) == (10.0, "idle", 0, 0)
        one = w.last
        assert (one.outcome, one.status, one.index, one.source) == ("finished", 200, 1, "usage")
        assert (one.prompt_tokens, one.output_tokens, one.cached_tokens) == (100, 5, 64)
        assert one.t_arrive <= one.t_admit <= one.t_send <= one.t_first <= one.t_last <= one.t_end


@on_loop
async def test_the_clients_bytes_go_on_as_they_are_behind_what_is_new():
    raw = b'{"model": "m", "prompt": "caf\\u00e9", "seed": 123456789012345678901, "x": 1.0}'
    async with world(Engine()) as w:
        await w.post("/v1/completions", raw, {"X-Session-ID": "s"})
        got = w.engines[0].calls[0]
        assert got.raw.endswith(raw[1:])
        assert got.xargs["program_id"] == "s"
        assert got.body["seed"] == 123456789012345678901


@on_loop
async def test_without_an_id_a_call_is_a_program_of_its_own_and_its_body_is_untouched():
    async with world(Engine()) as w:
        raw = b'{"model":"m","prompt":"hello"}'
        await w.post("/v1/completions", raw)
        assert w.engines[0].calls[0].raw == raw
        assert len(w.gateway.programs) == 0
        assert ("ended", "", "one-shot") in w.watch.told


@on_loop
async def test_a_stream_goes_through_event_by_event_and_hides_the_usage_nobody_asked_for():
    go = asyncio.Event()

    async def script(call):
        call.begin()
        call.token("one")
        await go.wait()
        call.token("two")
        call.end()

    async with world(Engine(script)) as w:
        body = {"prompt": "x", "stream": True, "session_id": "s"}
        async with w.session.post(w.server.url + "/v1/completions", json=body) as answer:
            first = await answer.content.readany()
            assert b'"one"' in first
            w.in_step()
            assert w.gateway.programs.named("s").state == "reasoning"
            go.set()
            rest = await answer.read()
        assert answer.headers["Content-Type"] == "text/event-stream"
        assert rest.endswith(b'"two"}]}\n\ndata: [DONE]\n\n')
        assert b"usage" not in rest
        assert w.engines[0].calls[0].body["stream_options"] == {"include_usage": True}
        assert (w.last.output_tokens, w.last.served, w.last.stream) == (5, 5.0, True)


@on_loop
async def test_a_usage_that_was_asked_for_is_not_hidden():
    async with world(Engine()) as w:
        _, _, body = await w.ask(stream=True, stream_options={"include_usage": True})
        assert b'"completion_tokens": 5' in body
        assert w.last.output_tokens == 5


@on_loop
async def test_errors_of_the_engine_pass_untouched_and_cost_nothing():
    async def script(call):
        call.reply({"error": {"message": "too long", "code": 400}}, 400, "x-why: length\r\n")

    async with world(Engine(script)) as w:
        for stream in (False, True):
            status, headers, body = await w.ask(stream=stream, program_id="p")
            assert (status, headers["X-Why"]) == (400, "length")
            assert json.loads(body) == {"error": {"message": "too long", "code": 400}}
        assert (w.last.outcome, w.last.served) == ("error", 0.0)
        assert w.gateway.programs.named("p").service == 0.0


@on_loop
async def test_models_and_other_paths_pass_without_a_policy():
    async def script(call):
        call.reply({"path": call.path, "method": call.method, "body": call.body})

    async with world(Engine(script)) as w:
        _, _, body = await w.get("/v1/models?x=1")
        assert json.loads(body) == {"path": "/v1/models?x=1", "method": "GET", "body": {}}
        status, _, body = await w.post("/v1/messages/count_tokens", {"a": 1})
        assert (status, json.loads(body)["body"]) == (200, {"a": 1})
        assert w.watch.passages == []


@on_loop
async def test_messages_and_responses_get_ids_too_and_their_usage_counts():
    async def script(call):
        if call.path == "/v1/messages":
            call.reply({"usage": {"input_tokens": 30, "output_tokens": 7, "cache_read_input_tokens": 70}})
        else:
            call.reply(
                {
                    "usage": {
                        "input_tokens": 100,
                        "output_tokens": 7,
                        "input_tokens_details": {"cached_tokens": 70},
                    }
                }
            )

    async with world(Engine(script)) as w:
        headers = {"X-Claude-Code-Session-ID": "c", "X-Claude-Code-Agent-ID": "a"}
        await w.post("/v1/messages", {"messages": []}, headers)
        await w.post("/v1/responses", {"input": "x"}, {"Session-ID": "c", "Thread-ID": "a"})
        for call, one in zip(w.engines[0].calls, w.watch.passages, strict=True):
            assert (call.xargs["program_id"], call.xargs["thread_id"]) == ("c", "a")
            assert (one.prompt_tokens, one.output_tokens, one.cached_tokens) == (100, 7, 70)
        assert w.engines[0].calls[1].body["request_id"].startswith("resp_")


@pytest.mark.parametrize(
    ("body", "headers", "status", "words"),
    [
        (b"{", {}, 400, "not valid JSON"),
        (b"[1]", {}, 400, "one JSON object"),
        (b'{"prompt": "' + b"x" * 3000 + b'"}', {}, 413, "larger than 2000 bytes"),
        (b'{"program_id": true}', {}, 400, "program_id must be text"),
        (b'{"vllm_xargs": {"program_id": [1]}}', {}, 400, "vllm_xargs.program_id must be text"),
        (b"{}", {"X-Program-ID": "x" * 600}, 400, "at most 512"),
    ],
)
def test_bad_requests_are_refused_in_openais_shape(body, headers, status, words):
    @on_loop
    async def test():
        async with world(Engine(), max_body=2000) as w:
            got, _, text = await w.post("/v1/completions", body, headers)
            assert got == status
            error = json.loads(text)["error"]
            assert words in error["message"]
            assert set(error) == {"message", "type", "param", "code"}
            assert w.engines[0].calls == []
            assert w.last.outcome == "refused"
            got, _, text = await w.post("/v1/messages", body, headers)
            assert json.loads(text)["type"] == "error"

    test()


@on_loop
async def test_unknown_paths_are_404_in_json():
    async with world(Engine()) as w:
        status, headers, body = await w.get("/nope")
        assert (status, headers["Content-Type"]) == (404, "application/json")
        assert "there is nothing here" in json.loads(body)["error"]["message"]


@on_loop
async def test_keys_of_the_gateways_own_are_checked_and_stay_here():
    async with world(Engine(), api_keys=("secret", "other")) as w:
        assert (await w.ask())[0] == 401
        assert (await w.ask(headers={"Authorization": "Bearer wrong"}))[0] == 401
        assert (await w.get("/v1/models"))[0] == 401
        assert (await w.post("/programs/start", {"program_id": "p"}))[0] == 401
        for headers in ({"Authorization": "Bearer secret"}, {"x-api-key": "other"}):
            assert (await w.ask(headers=headers))[0] == 200
        assert not {"authorization", "x-api-key"} & {h for call in w.engines[0].calls for h in call.headers}


@on_loop
async def test_the_clients_authorization_is_forwarded_unless_the_engine_has_a_key():
    def targets(engines):
        return Target(engines[0].url), Target(engines[1].url, key="theirs")

    async with world(Engine(), Engine(), targets=targets, router="round-robin") as w:
        for _ in range(2):
            await w.ask(headers={"Authorization": "Bearer mine", "X-Other": "1"})
        first, second = (engine.calls[0].headers for engine in w.engines)
        assert (first["authorization"], second["authorization"]) == ("Bearer mine", "Bearer theirs")
        assert first["x-other"] == "1"


@on_loop
async def test_programs_begin_and_end_explicitly_and_calls_of_an_ended_one_begin_it_anew():
    async with world(Engine()) as w:
        _, _, body = await w.post("/programs/start", {"program_id": "p"})
        assert json.loads(body) == {"program_id": "p", "number": 0, "started": True}
        await w.ask(program_id="p")
        _, _, body = await w.post("/programs/end", {"program_id": "p"})
        assert json.loads(body) == {"program_id": "p", "ended": True, "calls": 0}
        _, _, body = await w.post("/programs/end", {"program_id": "p"})
        assert json.loads(body)["ended"] is False
        await w.ask(program_id="p")
        assert w.engines[0].calls[1].xargs["service"] == 0.0
        assert w.gateway.programs.named("p").number == 1
        assert (await w.post("/programs/end", {}))[0] == 400


@on_loop
async def test_a_program_that_ends_during_a_call_goes_with_it():
    go = asyncio.Event()

    async def script(call):
        await go.wait()
        call.reply()

    async with world(Engine(script)) as w:
        task = w.ask(program_id="p")
        await until(lambda: w.engines[0].calls)
        await w.post("/programs/end", {"program_id": "p"})
        assert len(w.gateway.programs) == 1
        w.in_step()
        go.set()
        await task
        assert len(w.gateway.programs) == 0
        assert w.watch.told[-1] == ("ended", "p", "ended")


@on_loop
async def test_a_program_nobody_calls_is_over_after_its_lease(monkeypatch):
    monkeypatch.setattr("systems.gateway.gateway.TICK_S", 0.02)
    async with world(Engine(), lease_s=0.1) as w:
        await w.ask(program_id="p")
        await until(lambda: ("ended", "p", "lease") in w.watch.told)
        assert len(w.gateway.programs) == 0


@on_loop
async def test_service_of_one_program_adds_up_over_engines():
    async with world(Engine(), Engine(), router="round-robin") as w:
        for _ in range(4):
            await w.ask(program_id="p")
        assert [len(engine.calls) for engine in w.engines] == [2, 2]
        assert w.engines[1].calls[1].xargs["service"] == 15.0
        assert w.gateway.programs.named("p").engines == {0, 1}


@on_loop
async def test_a_router_that_reads_prompts_finds_them():
    async with world(Engine(), Engine(), router="cache-aware") as w:
        prompt = "a long shared beginning " * 40
        for tail in ("one", "two", "three"):
            await w.ask(prompt=prompt + tail)
        assert sorted(len(engine.calls) for engine in w.engines) == [0, 3]
