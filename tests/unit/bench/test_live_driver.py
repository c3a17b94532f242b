"""The live driver against a server on the loopback whose delays are known."""

import asyncio
import json
import math
import os
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from aiohttp import web

from bench.affinity import ahead
from bench.drivers.audit import Audit
from bench.drivers.completions import CallFailed, Completions, Request
from bench.drivers.effects import ProgramError
from bench.drivers.live import drive_live
from bench.drivers.token_ids import TokenIds
from workloads.base import ProgramSpec
from workloads.session import TimedOut

VOCABULARY = 1000


class Golden:
    """Answers a call of n tokens after ``delay`` + n * ``per_token`` seconds; remembers what it was asked.

    Token i of a reply is the number of the prompt's tokens plus i."""

    def __init__(self, delay=0.0, per_token=0.0):
        self.delay = delay
        self.per_token = per_token
        self.asked = []
        self.headers = []
        self.gone = 0
        self.change = lambda answer: answer

    async def complete(self, request):
        body = await request.json()
        self.asked.append(body)
        self.headers.append(request.headers["X-Request-Id"])
        n, prompt = body["max_tokens"], body["prompt"]
        try:
            await asyncio.sleep(self.delay + n * self.per_token)
        except asyncio.CancelledError:
            self.gone += 1
            raise
        choice = {"token_ids": [(len(prompt) + i) % VOCABULARY for i in range(n)]}
        if "logprobs" in body:
            choice["logprobs"] = {"token_logprobs": [-1.0] * n}
        usage = {"prompt_tokens": len(prompt), "completion_tokens": n}
        answer = self.change({"choices": [choice], "usage": usage})
        return answer if isinstance(answer, web.Response) else web.json_response(answer)

    @asynccontextmanager
    async def serve(self):
        app = web.Application()
        app.router.add_post("/v1/completions", self.complete)
        runner = web.AppRunner(app, handler_cancellation=True)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = site._server.sockets[0].getsockname()[1]
        try:
            async with Completions(f"http://127.0.0.1:{port}", "tiny") as client:
                yield client
        finally:
            await runner.cleanup()


def spec(program, index=0):
    return ProgramSpec(index, "test", 1000 + index, program)


def run(golden, *programs, times=None, **options):
    specs = [spec(program, i) for i, program in enumerate(programs)]

    async def go():
        async with golden.serve() as client:
            ids = TokenIds(VOCABULARY, "salt")
            return await drive_live(specs, times or [0.0] * len(specs), client, ids, **options)

    return asyncio.run(go())


async def two_turns(s):
    await s.call(new=10, output=4)
    await s.tool("search", 0.05)
    await s.call(new=3, output=2)


def test_two_turns_send_what_was_said_and_take_what_they_must():
    golden = Golden(delay=0.02)
    live = run(golden, two_turns, run="r", cache_salt="c")
    first, second = golden.asked
    assert len(first["prompt"]) == 10
    assert second["prompt"][:10] == first["prompt"]
    assert second["prompt"][10:14] == [10, 11, 12, 13]
    assert len(second["prompt"]) == 17
    for body, n in ((first, 4), (second, 2)):
        assert body["max_tokens"] == body["min_tokens"] == n
        assert body["ignore_eos"]
        assert body["temperature"] == 0
        assert body["cache_salt"] == "c"
        assert body["vllm_xargs"] == {"program_id": "r.0", "thread_id": ""}
    assert golden.headers == ["r.0..0", "r.0..1"]
    row, calls = live.programs[0], live.calls
    assert row.outcome == "finished"
    assert row.calls == 2
    assert row.t_end - row.t_sched >= 0.09
    assert calls[1].t_ready - calls[0].t_last >= 0.05
    for call in calls:
        assert call.t_last - call.t_send >= 0.02
        assert call.t_sched <= call.t_send <= call.t_first <= call.t_last


def test_latency_counts_from_the_scheduled_time():
    live = run(Golden(), two_turns, two_turns, times=[0.0, 0.1])
    late = live.programs[1]
    assert late.t_sched == 0.1
    assert late.t_start >= 0.1
    first = next(call for call in live.calls if call.program == 1 and call.index == 0)
    assert first.t_sched == 0.1


def test_open_loop_a_slow_server_holds_nobody_back():
    async def one(s):
        await s.call(new=5, output=1)

    golden = Golden(delay=0.15)
    live = run(golden, *[one] * 8, times=[0.01 * i for i in range(8)])
    assert live.audit.most_open == 8


def test_the_audit_says_whether_the_client_ran_ahead_of_others(monkeypatch):
    async def one(s):
        await s.call(new=5, output=1)

    with ahead() as permitted:
        pass
    assert run(Golden(), one).audit.ahead == permitted

    def refused(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refused)
    live = run(Golden(), one)
    assert not live.audit.ahead
    assert "priority" not in str(live.audit)
    assert "priority" in str(replace(live.audit, ahead=True))


def test_forks_share_their_prefix_and_a_join_waits_for_all():
    async def branch(s):
        return await s.call(new=2, output=3)

    async def fork(s):
        await s.call(new=10, output=4)
        replies = await s.join(*(branch(s.fork()) for _ in range(3)))
        for reply in replies:
            s.add((reply.output_id, reply.output_tokens))
        await s.call(new=1, output=1)

    golden = Golden(delay=0.01)
    live = run(golden, fork)
    assert live.audit.most_open == 3
    root, *branches, last = golden.asked
    assert all(b["prompt"][:14] == root["prompt"] + [10, 11, 12, 13] for b in branches)
    assert sorted(b["vllm_xargs"]["thread_id"] for b in branches) == ["0", "1", "2"]
    assert last["prompt"][14:23] == [16, 17, 18] * 3
    assert {call.name.split(".")[2] for call in live.calls} == {"", "0", "1", "2"}


def test_spawned_tasks_are_waited_for_and_can_be_cancelled():
    ends = []

    async def side(s, output):
        await s.call(new=5, output=output)
        ends.append(output)

    async def root(s):
        await s.spawn(side(s.fork(detached=True), 1))
        doomed = await s.spawn(side(s.fork(detached=True), 200))
        await s.tool("wait", 0.3)  # the call is there by then, on a busy machine, too
        await s.cancel(doomed)
        await s.think(0.01)
        assert doomed.done

    golden = Golden(per_token=0.01)
    live = run(golden, root)
    assert ends == [1]
    assert live.programs[0].outcome == "finished"
    assert golden.gone == 1
    assert [call.outcome for call in live.calls] == ["finished", "cut"]


def test_a_timeout_is_raised_in_the_program_and_its_call_is_given_up():
    seen = []

    async def slow(s):
        await s.call(new=5, output=100)

    async def root(s):
        try:
            await s.timeout(0.03, slow(s.fork()))
        except TimedOut as late:
            seen.append(str(late))
        await s.call(new=1, output=1)

    golden = Golden(per_token=0.01)
    live = run(golden, root)
    cut, done = live.calls
    assert (cut.outcome, cut.answered, cut.tokens, done.outcome) == ("cut", False, (), "finished")
    assert math.isnan(cut.t_first)
    assert cut.t_sched <= cut.t_send < 0.03 <= cut.t_last
    assert list(live.said()) == [done.name.removeprefix("run.")]
    assert live.programs[0].calls == 2
    assert seen == ["no result within 0.03 s"]
    assert golden.gone == 1
    assert len(golden.asked) == 2


def test_who_leaves_ends_all_its_tasks():
    async def side(s):
        await s.call(new=5, output=100)

    async def root(s):
        await s.spawn(side(s.fork(detached=True)))
        await s.tool("wait", 0.3)
        await s.abandon()

    golden = Golden(per_token=0.01)
    live = run(golden, root, two_turns)
    assert [(row.outcome, row.calls) for row in live.programs] == [("abandoned", 1), ("finished", 2)]
    assert [call.outcome for call in live.calls if call.program == 0] == ["cut"]
    assert golden.gone == 1


def test_a_program_that_raises_ends_the_run_by_name():
    async def bad(s):
        await s.call(new=5, output=1)
        raise KeyError("lost")

    with pytest.raises(ProgramError, match=r"program 1 \(test\) raised KeyError: 'lost'"):
        run(Golden(), two_turns, bad)


def test_a_wait_that_is_no_time():
    async def bad(s):
        await s.think(float("nan"))

    with pytest.raises(ProgramError, match=r"program 0 \(test\) waits for nan s"):
        run(Golden(), bad)


def refused(_):
    return web.Response(status=400, text='{"message": "prompt is too long"}')


def short(answer):
    answer["choices"][0]["token_ids"].pop()
    return answer


def miscounted(answer):
    answer["usage"]["prompt_tokens"] += 1
    return answer


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (refused, "the server answers 400: .*prompt is too long"),
        (short, "returns 3"),
        (miscounted, r"asked for \(prompt, output\) of \(10, 4\) tokens, the server counts \(11, 4\)"),
        (lambda _: {"choices": []}, "no completion with token_ids and usage"),
        (lambda _: web.Response(text="<html>"), "no completion"),
    ],
)
def test_an_answer_that_is_not_what_was_asked_for(change, message):
    golden = Golden()
    golden.change = change
    asked = []
    with pytest.raises(CallFailed, match=message) as failed:
        run(golden, two_turns, run="r", watch=lambda: asked.append(1))
    assert "call r.0..0" in str(failed.value)
    assert asked == [1]


def test_a_server_that_is_not_there():
    async def go():
        async with Completions("http://127.0.0.1:9", "tiny") as client:
            await client.complete(Request("r.0..0", [1], 1))

    with pytest.raises(CallFailed, match=r"call r\.0\.\.0: ClientConnector"):
        asyncio.run(go())


def test_log_probabilities_are_asked_for_and_returned():
    golden = Golden()

    async def go():
        async with golden.serve() as client:
            return await client.complete(Request("a", [1, 2], 3, logprobs=True))

    answer = asyncio.run(go())
    assert answer.logprobs == (-1.0, -1.0, -1.0)
    assert json.loads(json.dumps(golden.asked))[0]["logprobs"] == 1
    assert "cache_salt" not in golden.asked[0]


def test_replies_are_hashed_by_call():
    live = run(Golden(), two_turns, two_turns, run="r")
    said = live.said()
    assert set(said) == {"0..0", "0..1", "1..0", "1..1"}
    assert said["0..0"] == said["1..0"]
    assert said["0..0"] != said["0..1"]


@pytest.mark.parametrize(
    ("lags", "loop", "cpu", "verdict"),
    [
        ([0.001] * 99, [0.001], 0.1, "ok"),
        ([0.03] * 10, [0.001], 0.1, "suspect"),
        ([0.001], [0.001], 0.8, "suspect"),
        ([0.001], [0.3] * 10, 0.1, "invalid"),
        ([0.001], [0.001], 0.99, "invalid"),
        ([], [], 0.0, "ok"),
    ],
)
def test_the_client_judges_itself(lags, loop, cpu, verdict):
    assert Audit.of(lags, loop, cpu, 1).verdict == verdict


@pytest.mark.parametrize(("cpu", "verdict"), [(0.1, "ok"), (0.3, "suspect"), (0.99, "invalid")])
def test_a_client_ahead_of_its_server_may_compute_less(cpu, verdict):
    assert Audit.of([0.001], [0.001], cpu, 1, ahead=True).verdict == verdict
