"""Retention at the gateway: who is asked when, with what, and what engines are told of it."""

import asyncio
import json
import math
from types import SimpleNamespace as Namespace

import pytest

from systems.catalog import CatalogError
from systems.gateway import gateway as module
from systems.gateway.events import EventLog
from systems.gateway.events_reader import read_events
from systems.gateway.gateway import Gateway
from systems.gateway.keeping import Keeping
from systems.gateway.metrics import Metrics
from systems.gateway.options import GatewayOptions, Target
from systems.gateway.tools import Tools
from systems.gateway.usage import Counted
from systems.vllm_host.control import Channel
from tests.unit.systems.gateway.engines import Engine, on_loop, until, whole, world
from vocabulary import INF, KeepEvent


class Policy:
    """Keeps for ``keep_s``; ``heard`` is all that it was told."""

    name = "told"
    watches = True

    def __init__(self, keep_s=5.0):
        self.keep_s, self.heard, self.events, self.looks = keep_s, [], [], []

    def look(self, view, waiting_tokens, now):
        self.looks.append((view.id, waiting_tokens))

    def idle(self, away, now):
        self.heard.append(("idle", away.thread, away.tool, away.tokens, away.output_tokens, away.engine))
        return now + self.keep_s

    def called(self, program, thread, now):
        self.heard.append(("called", thread))

    def back(self, program, thread, cached_tokens, prompt_tokens, now):
        self.heard.append(("back", thread, cached_tokens, prompt_tokens))

    def end(self, program, now):
        self.heard.append(("end",))

    def victims(self, candidates, now):
        return candidates


class Told:
    """An engine's control socket that writes down what it is told."""

    def __init__(self, path):
        self.path, self.heard, self.channel = str(path), [], Channel(str(path))

    def read(self):
        self.channel.serve(lambda message: self.heard.append(dict(message)) or {})
        return [message["op"] for message in self.heard]

    def close(self):
        self.channel.close()


@pytest.fixture
def policy(monkeypatch):
    told = Policy()
    monkeypatch.setattr(module, "build_retention", lambda _: told)
    return told


@pytest.fixture
def control(tmp_path):
    told = Told(tmp_path / "control.sock")
    yield told
    told.close()


def kept(control, engine=None, **options):
    """A gateway whose policy keeps, before one engine of ours."""

    def targets(engines):
        return (Target(engines[0].url, control=control.path),)

    return world(engine or Engine(), targets=targets, retention="pin", **options)


TOOLS = {
    "usage": {"prompt_tokens": 100, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 64}}
}
TOOLS["choices"] = [
    {"message": {"tool_calls": [{"id": "1", "function": {"name": "bash", "arguments": "{}"}}]}}
]


async def asks_for_bash(call):
    call.reply(TOOLS)


@on_loop
async def test_a_replys_tool_is_named_and_the_engine_told_to_keep_what_the_call_left(policy, control):
    async with kept(control, Engine(asks_for_bash)) as w:
        await w.ask("/v1/chat/completions", program_id="p", thread_id="t")
        assert policy.heard == [("idle", "t", "bash", 105, 5, 0)]
        assert policy.looks == [(0, 0)]
        assert control.read() == ["retain"]
        assert control.heard[0]["program"] == "p"
        assert 4.5 < control.heard[0]["for_s"] <= 5.0
        await w.ask("/v1/chat/completions", program_id="p", thread_id="t")
        assert policy.heard[1:3] == [("called", "t"), ("back", "t", 64, 100)]
        await w.post("/programs/end", {"program_id": "p"})
        assert policy.heard[-1] == ("end",)
        assert control.read() == ["retain", "retain", "end"]


@on_loop
async def test_the_clients_own_word_on_the_tool_comes_first(policy, control):
    async with kept(control, Engine(asks_for_bash)) as w:
        await w.ask(vllm_xargs={"program_id": "p", "tool": "grep"})
        assert policy.heard[0][2] == "grep"
        assert w.engines[0].calls[0].xargs["tool"] == "grep"


@on_loop
async def test_what_is_not_kept_any_more_is_released_once(policy, control):
    async with kept(control) as w:
        await w.ask(program_id="p")
        policy.keep_s = 0.0
        for _ in range(2):
            await w.ask(program_id="p")
        assert control.read() == ["retain", "release"]
        policy.keep_s = INF
        await w.ask(program_id="p")
        control.read()
        assert control.heard[-1]["for_s"] is None


@on_loop
async def test_a_client_that_says_when_a_tool_begins_is_waited_for(policy, control):
    async with kept(control, tools="told") as w:
        await w.ask(program_id="p", thread_id="7")
        assert policy.heard == []
        _, _, body = await w.post("/programs/away", {"program_id": "p", "thread_id": 7, "tool": "build"})
        answer = json.loads(body)
        assert (answer["known"], 4.5 < answer["kept_s"] <= 5.0) == (True, True)
        assert policy.heard == [("idle", "7", "build", 105, 5, 0)]
        _, _, body = await w.post("/programs/away", {"program_id": "p", "thread_id": "7", "tool": "again"})
        assert json.loads(body)["kept_s"] == 0.0  # it is away
        policy.keep_s = INF
        await w.ask(program_id="p", thread_id="7")
        _, _, body = await w.post("/programs/away", {"program_id": "p", "thread_id": "7", "tool": "human"})
        assert json.loads(body)["kept_s"] == 1e9
        _, _, body = await w.post("/programs/away", {"program_id": "nobody", "tool": "x"})
        assert json.loads(body) == {"program_id": "nobody", "known": False, "kept_s": 0.0}
        await w.ask(program_id="p", thread_id="7")
        for after in (1, 3, 2):  # the second and fourth call are not its last one
            heard = len(policy.heard)
            await w.post("/programs/away", {"program_id": "p", "thread_id": "7", "after": after, "tool": "x"})
            assert (len(policy.heard) > heard) == (after == 2)
        assert (await w.post("/programs/away", {"program_id": "p", "after": "x"}))[0] == 400
        assert (await w.post("/programs/away", {"tool": "x"}))[0] == 400
        assert (await w.post("/programs/away", {"program_id": "p", "tool": 3}))[0] == 400


@on_loop
async def test_a_tool_that_begins_before_its_call_is_settled_here_counts_from_then(policy, control, tmp_path):
    calls = tmp_path / "calls.jsonl"
    calls.touch()

    def targets(engines):
        return (Target(engines[0].url, calls=str(calls), control=control.path),)

    async with world(Engine(whole), targets=targets, retention="pin", tools="told") as w:
        await w.ask(program_id="p")  # its row is late: the books are open
        assert len(w.gateway.rows) == 1
        await w.post("/programs/away", {"program_id": "p", "tool": "build"})
        assert policy.heard == []
        await until(lambda: policy.heard)
        assert policy.heard[0][:3] == ("idle", "", "build")


@on_loop
async def test_calls_that_fail_or_never_come_to_an_engine_leave_nothing_new(policy, control):
    async def script(call):
        call.reply(status=500 if call.body["prompt"] == "fails" else 200)

    async with kept(control, Engine(script), gate="program-cap", knobs={"gate.programs": "1"}) as w:
        await w.ask(program_id="p")
        await w.ask(program_id="p", prompt="fails")
        assert [one[0] for one in policy.heard] == ["idle", "called"]
        task = w.ask(program_id="q")
        await until(lambda: len(w.gateway.door) == 1)
        assert w.gateway.keeping._waiting(w.gateway.workers[0].view()) > 0
        task.cancel()
        await until(lambda: not w.gateway.in_flight)
        assert [one[0] for one in policy.heard] == ["idle", "called"]
        for name in ("p", "q"):
            await w.post("/programs/end", {"program_id": name})
        await w.ask()  # nobody's: over with its call
        assert [one[0] for one in policy.heard] == ["idle", "called", "end", "end"]


@on_loop
async def test_hits_that_the_engine_does_not_tell_teach_nothing_and_the_next_absence_counts(policy, control):
    async def script(call):
        call.reply({"usage": {"prompt_tokens": 50, "completion_tokens": 5}})

    async with kept(control, Engine(script)) as w:
        for _ in range(2):
            await w.ask(program_id="p")
        assert [one[0] for one in policy.heard] == ["idle", "called", "idle"]


@on_loop
async def test_a_call_knows_how_much_is_kept_for_it(policy, control):
    seen = []
    async with kept(control, gate="program-cap") as w:
        gate = w.gateway.door.gate
        request = gate.request
        gate.request = lambda call, views, now: seen.append(call.kept) or request(call, views, now)
        for _ in range(2):
            await w.ask(program_id="p")
        policy.keep_s = 0.0
        for _ in range(2):
            await w.ask(program_id="p")
        assert seen == [0, 96, 96, 0]


@on_loop
async def test_an_engine_without_a_control_socket_keeps_nothing_and_the_policy_is_not_asked(policy, control):
    def targets(engines):
        return (Target(engines[0].url), Target(engines[1].url, control=control.path))

    async with world(Engine(), Engine(), targets=targets, retention="pin", router="round-robin") as w:
        for _ in range(2):
            await w.ask(program_id="p")
        assert [one[-1] for one in policy.heard if one[0] == "idle"] == [1]


@pytest.mark.parametrize(
    ("options", "message"),
    [({"retention": "pin"}, "control sockets"), ({"retention": "none"}, "unknown retention 'none'"),
     ({"retention": "survival", "knobs": {"retention.by": "oracle"}}, "how long tools will take")],
)  # fmt: skip
def test_retention_that_cannot_act_here_is_refused_at_once(options, message):
    with pytest.raises(CatalogError, match=message):
        Gateway(GatewayOptions((Target("http://127.0.0.1:1"),), **options))


@on_loop
async def test_a_policy_that_raises_keeps_no_program_and_no_gate_waiting(policy, control, caplog):
    policy.idle = lambda *_: 1 / 0
    policy.called = lambda *_: 1 / 0
    async with kept(control, gate="program-cap", knobs={"gate.programs": "1"}) as w:
        for _ in range(2):
            assert (await w.ask(program_id="p"))[0] == 200
        assert "ZeroDivisionError" in caplog.text


@on_loop
async def test_what_the_policy_thought_is_in_the_log_and_counted(policy, control, tmp_path):
    async with kept(control) as w:
        log = EventLog(tmp_path / "log", system="plas", unit="step", wall=0.0, flush_s=0.0)
        metrics = Metrics(w.gateway.workers.views)
        w.gateway.observers += [log, metrics]
        nan = math.nan
        policy.events += [KeepEvent(1.0, 0, "t", "keep", "bash", 105, INF, 3.0, 4.0, nan)]
        policy.events += [KeepEvent(2.0, 0, "t", "back", "bash", 16, 1.5, 3.0, 4.0, 0.5)]
        await w.ask(program_id="p")
        log.flush()
        (run,) = read_events(tmp_path / "log")
        first, second = run.kept
        assert (first.until, first.keep_price, math.isnan(first.regret)) == (INF, 3.0, True)
        assert second == KeepEvent(2.0, 0, "t", "back", "bash", 16, 1.5, 3.0, 4.0, 0.5)
        assert b'"event":"kept","t":1.0,"name":"p"' in (tmp_path / "log").read_bytes()
        counts = {
            (sample.name, sample.labels["what"]): sample.value
            for family in metrics.registry.collect()
            for sample in family.samples
            if "keep" in sample.name
        }
        assert counts["gateway_keep_events_total", "back"] == 1
        assert counts["gateway_keep_tokens_total", "keep"] == 105


def test_what_waits_at_an_engine_is_what_is_there_beyond_its_batch_and_a_share_of_the_door(policy, control):
    @on_loop
    async def test():
        stop = asyncio.Event()

        async def script(call):
            await stop.wait()
            call.reply()

        async with kept(control, Engine(script)) as w:
            w.engines[0].metrics = 'vllm:num_requests_running{{engine="0"}} 1\n'
            tasks = []
            for i, size in enumerate((100, 200, 300)):
                tasks.append(w.ask(program_id=f"p{i}", prompt=[1] * size))
                await until(lambda i=i: len(w.engines[0].calls) == i + 1)
            await until(lambda: w.gateway.workers[0].view().running == 1)
            assert w.gateway.keeping._waiting(w.gateway.workers[0].view()) == 500
            stop.set()
            await asyncio.gather(*tasks)

    test()


@pytest.mark.parametrize(
    ("pieces", "tool"),
    [
        ([b'{"tool_calls":[{"function":{"name":"bash","arguments":"{}"}}]}'], "bash"),
        ([b'{"type": "function", "function": {"arguments": "{}", "na', b'me": "bash"}}'], "bash"),
        ([b'data: {"tool_calls":[{"function":{"name":"b"}}]}\n\n' * 2, b'"function":{"name":"a"}'], "a+b"),
        ([b'{"type":"tool_use","id":"x","name":"grep","input":{}}'], "grep"),
        ([b'{"type":"function_call","call_id":"x","name":"grep"}'], "grep"),
        ([b'{"tools":[{"type":"function","name":"grep"}],"output":[]}'], ""),
        ([rb'{"content":"say {\"function\":{\"name\":\"bash\"}}"}'], ""),
        ([b"\xff\xfe", b""], ""),
    ],
)  # fmt: skip
def test_tools_are_read_from_replies_as_they_pass(pieces, tool):
    tools, passed = Tools(), []
    receive = tools.through(lambda stamp, piece: passed.append(piece))
    for piece in pieces:
        receive(0.0, piece)
    assert (str(tools), passed) == (tool, pieces)


def test_nobody_who_says_tools_is_a_bad_option():
    with pytest.raises(ValueError, match="tools must be one of reply, told, got 'guess'"):
        GatewayOptions((Target("http://127.0.0.1:1"),), tools="guess")


@pytest.mark.parametrize(("late", "tokens"), [(-0.5, 96), (0.0, 96), (0.5, 0)])
def test_a_thread_that_is_back_exactly_at_its_deadline_has_what_is_kept(late, tokens):
    clock = [0.0]
    outbox = Namespace(reaches=lambda engine: True, retain=lambda *_: None)
    workers = {0: Namespace(view=lambda: Namespace(id=0))}
    keeping = Keeping(Policy(5.0), workers, outbox, lambda: clock[0], lambda _: 0, lambda _: None)
    program = Namespace(number=0, name="p", engines=[0])

    def ticket(index):
        call = Namespace(program=0, thread="t", index=index, seq=index, prompt=(), prompt_tokens=90, kept=-1)
        passage = Namespace(outcome="finished")
        return Namespace(call=call, program=program, worker=Namespace(id=0), passage=passage)

    first, second = ticket(0), ticket(1)
    keeping.asked(first)
    keeping.ended(first, Counted(95, 5, 0))
    assert keeping.away(program, "t", "bash") == 5.0
    clock[0] = 5.0 + late
    keeping.asked(second)
    assert second.call.kept == tokens  # whole blocks of the 100 tokens that the first call left
