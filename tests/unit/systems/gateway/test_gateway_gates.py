"""What a gate may do in the gateway, and what it can rely on, with engines that do what a test says.

Several of these are failures of a published gateway, in our own words (the issue's behaviours 2 to 7 and 10).
"""

import asyncio
import json

import pytest

from systems.gateway import gateway as module
from systems.gateway.events import EventLog
from systems.gateway.events_reader import read_events
from systems.gateway.metrics import Metrics
from systems.gateway.options import Target
from systems.gateway.outbox import NO_CONTROL
from systems.protocols import Pause, Resume
from systems.vllm_host.control import Channel
from tests.unit.systems.gateway.engines import USAGE, Engine, on_loop, until, whole, world
from tests.unit.systems.gateway.gates import Told
from vocabulary import GateEvent

ASK = {"model": "m", "prompt": "x"}


@pytest.fixture
def gate(monkeypatch):
    """The gate of the gateway that a test makes."""
    told = Told()
    monkeypatch.setattr(module, "build_gate", lambda _: told)
    return told


def number(w, name):
    return w.gateway.programs.named(name).number


async def close(w, gate, *names):
    """Programs that are known, and held from now on."""
    for name in names:
        await w.post("/programs/start", {"program_id": name})
        gate.closed.add(number(w, name))


def on_hold(stop):
    """An engine's script: calls wait until ``stop`` is set."""

    async def script(call):
        await stop.wait()
        call.reply()

    return script


# -- 2: the end of a turn always closes the ledger ---------------------------------------


async def says_usage(call):
    call.reply()


async def says_none(call):
    call.reply({"id": "x"})


async def refuses(call):
    call.reply({"error": "no"}, 500)


async def breaks_off(call):
    call.die()


async def ends_in_an_error(call):
    call.begin()
    call.token()
    call.chunk('data: {"error": {"message": "oom"}}\n\n')
    call.writer.write(b"0\r\n\r\n")


@pytest.mark.parametrize(
    ("script", "heard", "tokens"),
    [(says_usage, "finish", 105), (says_none, "finish", None), (refuses, "abort", None),
     (breaks_off, "abort", None), (ends_in_an_error, "abort", None)],
)  # fmt: skip
def test_every_end_of_a_turn_closes_the_gates_ledger_once(script, heard, tokens, gate):
    @on_loop
    async def test():
        async with world(Engine(script)) as w:
            await w.ask(program_id="p", stream=script is ends_in_an_error)
            await until(lambda: not w.gateway.in_flight)
            assert [one[0] for one in gate.heard] == [heard]
            assert gate.counted == [(number(w, "p"), tokens)]
            assert gate.prompts == [tokens and 100]
            assert gate.in_flight == 0

    test()


@pytest.mark.parametrize("begun", [False, True])
def test_a_client_that_leaves_closes_it_too(begun, gate):
    @on_loop
    async def test():
        stop = asyncio.Event()

        async def script(call):
            if begun:
                call.begin()
                call.token()
            await stop.wait()

        async with world(Engine(script)) as w:
            task = w.ask(program_id="p", stream=True)
            await until(lambda: w.engines[0].calls)
            assert gate.in_flight == 1
            task.cancel()
            await until(lambda: not gate.in_flight)
            assert [one[0] for one in gate.heard] == ["abort"]
            stop.set()

    test()


@on_loop
async def test_programs_that_reason_by_the_gates_own_count_are_those_in_flight():
    """Through the real cap: its places come back after replies, errors, losses, and clients that leave."""
    stop = asyncio.Event()

    async def script(call):
        await stop.wait()
        if call.body["prompt"] == "dies":
            call.die()
        else:
            call.reply(status=500 if call.body["prompt"] == "fails" else 200)

    async with world(Engine(script), Engine(script), gate="program-cap", knobs={"gate.programs": "3"}) as w:
        tasks = {}
        for i, prompt in enumerate(("fine", "dies", "fails", "fine", "leaves", "fine")):
            tasks[i] = w.ask(program_id=f"p{i}", prompt=prompt)
            await until(lambda i=i: w.gateway.in_flight == i + 1)
        cap = w.gateway.door.gate
        await until(lambda: sum(len(engine.open) for engine in w.engines) == 3)
        assert (cap.programs, len(w.gateway.door), w.gateway.programs.counts()["reasoning"]) == (3, 3, 3)
        tasks[4].cancel()
        await until(lambda: len(w.gateway.door) == 2)
        stop.set()
        for i in range(4):
            await asyncio.wait([tasks[i]])
            await w.post("/programs/end", {"program_id": f"p{i}"})
        await asyncio.wait([tasks[5]])
        assert (await tasks[5])[0] == 200
        assert [call.body["prompt"] for engine in w.engines for call in engine.calls].count("leaves") == 0
        w.in_step()


# -- 3: a held call that is cancelled is never forwarded ----------------------------------


@on_loop
async def test_a_held_call_whose_client_left_is_rolled_back_and_never_forwarded(gate):
    async with world(Engine()) as w:
        await close(w, gate, "p")
        leaves, stays = w.ask(program_id="p", prompt="leaves"), w.ask(program_id="p", prompt="stays")
        await until(lambda: len(w.gateway.door) == 2)
        leaves.cancel()
        await until(lambda: len(w.gateway.door) == 1)
        assert (gate.held[number(w, "p")], w.last.outcome) == (1, "disconnected")
        gate.verdicts = [Resume(number(w, "p"))]
        w.gateway.door.turned()
        assert (await stays)[0] == 200
        assert [call.body["prompt"] for call in w.engines[0].calls] == ["stays"]
        assert gate.in_flight == 0


@on_loop
async def test_a_client_that_leaves_in_the_moment_of_its_resume_closes_the_ledger(gate):
    async with world(Engine()) as w:
        await close(w, gate, "p")
        task = w.ask(program_id="p")
        await until(lambda: len(w.gateway.door) == 1)
        (ticket,) = w.gateway.books.open
        gate.verdicts = [Resume(number(w, "p"))]
        w.gateway.door.turned()  # it may go ..
        ticket.task.cancel()  # .. and is gone before it did
        await until(lambda: not w.gateway.in_flight)
        assert (gate.in_flight, w.engines[0].calls) == (0, [])
        task.cancel()


# -- 4: identity --------------------------------------------------------------------------


@on_loop
async def test_calls_without_an_id_are_programs_of_their_own_and_turns_of_one_are_counted(gate):
    stop = asyncio.Event()
    async with world(Engine(on_hold(stop))) as w:
        tasks = [w.ask(), w.ask(), w.ask(program_id="p"), w.ask(program_id="p", thread_id="2")]
        await until(lambda: len(w.engines[0].calls) == 4)
        assert sorted(gate.reasoning.values()) == [1, 1, 2]
        await close(w, gate, "p")  # one of p ends and p pauses: what is in flight goes on
        stop.set()
        assert [(await task)[0] for task in tasks] == [200] * 4
        assert gate.in_flight == 0


# -- 5: dead engines, hung metrics, capacity ----------------------------------------------


@on_loop
async def test_a_gates_place_counts_and_a_dead_one_is_not_taken(gate):
    async with world(Engine(), Engine(), router="round-robin") as w:
        gate.place_at = 1
        for _ in range(3):
            await w.ask(program_id="p")
        assert [len(engine.calls) for engine in w.engines] == [0, 3]
        await w.engines[1].stop()
        assert (await w.ask(program_id="p"))[0] == 200  # it says 1 all the same: the router decides
        assert len(w.engines[0].calls) == 1
        assert [view.alive for view in gate.seen[-1]] == [True, False]
        gate.place_at = lambda views: next(view.id for view in views if view.alive)
        assert (await w.ask(program_id="p"))[0] == 200


@on_loop
async def test_a_call_that_its_engine_lost_is_placed_again_by_the_gate_without_that_engine(gate):
    gate.place_at = lambda views: next(view.id for view in views if view.alive)
    async with world(Engine(breaks_off), Engine(), Engine()) as w:
        assert (await w.ask(program_id="p"))[0] == 200
        assert [len(engine.calls) for engine in w.engines] == [1, 1, 0]
        assert [[view.alive for view in views] for views in gate.seen] == [[True] * 3, [False, True, True]]
        assert [one[0] for one in gate.heard] == ["finish"]  # one turn, whatever engines did


@on_loop
async def test_a_gate_hears_at_once_that_an_engine_died_and_may_resume_elsewhere(gate):
    async with world(Engine(), Engine()) as w:
        await close(w, gate, "p")
        task = w.ask(program_id="p")
        await until(lambda: len(w.gateway.door) == 1)
        gate.verdicts = [Resume(number(w, "p"), 0)]  # it was about to go on where it was
        await w.engines[0].stop()
        assert (await task)[0] == 200
        assert [view.alive for view in gate.ticks[-2][1]] == [False, True]
        assert len(w.engines[1].calls) == 1


@on_loop
async def test_a_hung_metrics_page_delays_no_tick_and_the_other_engines_size_is_fresh(gate):
    page = 'vllm:num_requests_running 0\nvllm:cache_config_info{{block_size="32",num_gpu_blocks="%d"}} 1.0\n'
    one, other = Engine(), Engine()
    one.metrics, other.metrics = page % 11, page % 21
    async with world(one, other, poll_s=0.03, poll_limit_s=0.2) as w:
        await until(lambda: all(worker.load_at >= 0.0 for worker in w.gateway.workers))
        one.metrics = None  # hangs; the other one was started anew with half the memory
        other.metrics = page % 11
        await until(lambda: w.gateway.workers[1].load.kv_blocks == 20)
        due = w.gateway.now() + 0.05
        gate.due = due
        await w.ask(program_id="p")
        await until(lambda: gate.ticks and gate.ticks[-1][0] >= due)
        late, views = gate.ticks[-1]
        assert late - due < 0.15
        assert [view.kv_total for view in views] == [20, 20]


@on_loop
async def test_a_gate_that_raises_in_its_tick_is_asked_again(gate, monkeypatch, caplog):
    monkeypatch.setattr("systems.gateway.door.AGAIN_S", 0.02)
    async with world(Engine()) as w:
        await close(w, gate, "p")
        task = w.ask(program_id="p")
        await until(lambda: len(w.gateway.door) == 1)
        gate.verdicts = [Resume(number(w, "p"))]
        tick, gate.tick = gate.tick, None  # it is broken, and then not
        w.gateway.door.turned()
        gate.tick = tick
        assert (await task)[0] == 200
        assert "gate told" in caplog.text


# -- 6, 7: no unbounded wait; release and lease --------------------------------------------


@on_loop
async def test_a_hold_has_an_end_and_is_told_to_the_gate(gate):
    async with world(Engine(), max_hold_s=0.05) as w:
        await close(w, gate, "p")
        status, headers, _ = await w.ask(program_id="p")
        assert (status, headers["Retry-After"], w.last.outcome) == (503, "5", "timeout")
        assert [one[0] for one in gate.heard] == ["abort"]
        assert w.last.wait_s >= 0.05


@on_loop
async def test_release_is_another_word_for_end_and_a_program_nobody_releases_has_a_lease(gate, monkeypatch):
    monkeypatch.setattr("systems.gateway.gateway.TICK_S", 0.01)
    async with world(Engine(), lease_s=0.1) as w:
        await w.ask(program_id="p")
        first = number(w, "p")
        _, _, body = await w.post("/programs/release", {"program_id": "p"})
        assert json.loads(body) == {"program_id": "p", "ended": True, "calls": 0}
        assert gate.heard[-1] == ("end", first)
        assert (await w.post("/programs/release", {}))[0] == 400
        await w.ask(program_id="q")
        second = number(w, "q")
        await until(lambda: gate.heard[-1] == ("end", second))


# -- 10: what it did, in log, counters and pages; pauses -----------------------------------


@on_loop
async def test_a_gates_events_are_in_the_log_and_in_the_counters(gate, tmp_path):
    async with world(Engine()) as w:
        metrics = Metrics(w.gateway.workers.views)
        log = EventLog(tmp_path / "log", system="plas", unit="step", wall=0.0, flush_s=0.0)
        w.gateway.observers += [metrics, log]
        gate.events = [GateEvent(1.5, 0, 0, "admit", "room", 40)]
        await w.ask(program_id="p")
        assert gate.events == []
        gate.events += [GateEvent(2.0, 0, 0, "mark", "full", 40), GateEvent(2.0, 0, -1, "hold", "full", 40)]
        await w.ask(program_id="p")
        log.flush()
        (run,) = read_events(tmp_path / "log")
        assert [(event.time, event.what, event.engine) for event in run.gate] == [
            (1.5, "admit", 0), (2.0, "mark", 0), (2.0, "hold", -1),
        ]  # fmt: skip
        assert b'"event":"gate","t":1.5,"name":"p"' in (tmp_path / "log").read_bytes()
        found = {
            (sample.name, *sample.labels.values()): sample.value
            for family in metrics.registry.collect()
            for sample in family.samples
        }
        assert found["gateway_gate_events_total", "mark", "full"] == 1
        assert found["gateway_gate_tokens_total", "hold"] == 40


def test_a_gate_with_ever_new_reasons_makes_no_endless_labels():
    metrics = Metrics(list)
    for i in range(1000):
        metrics.gate(GateEvent(0.0, 0, 0, "hold", f"{i} tokens", 1), "p")
    samples = [sample for family in metrics.registry.collect() for sample in family.samples]
    assert len([sample for sample in samples if sample.name == "gateway_gate_events_total"]) <= 65
    assert sum(s.value for s in samples if s.name == "gateway_gate_events_total") == 1000


@on_loop
async def test_cached_tokens_that_nobody_told_are_not_none(gate):
    replies = [USAGE, {"prompt_tokens": 50, "completion_tokens": 5}]
    replies.append({**USAGE, "prompt_tokens_details": {"cached_tokens": 0}})

    async def script(call):
        call.reply({"usage": replies[len(call.engine.calls) - 1]})

    async with world(Engine(script)) as w:
        metrics = Metrics(w.gateway.workers.views)
        w.gateway.observers.append(metrics)
        for _ in replies:
            await w.ask(program_id="p")
        assert [passage.cached_tokens for passage in w.watch.passages] == [64, -1, 0]
        tokens = {
            sample.name: sample.value
            for family in metrics.registry.collect()
            for sample in family.samples
            if "tokens_total" in sample.name and "engine" in sample.labels
        }
        assert tokens["gateway_prompt_tokens_total"] == 250
        assert tokens["gateway_cached_tokens_total"] == 64
        assert tokens["gateway_cache_unknown_tokens_total"] == 50


@pytest.mark.parametrize("controlled", [False, True])
def test_a_pause_that_frees_kv_tells_the_engine_where_it_can_and_says_which(controlled, gate, tmp_path):
    @on_loop
    async def test():
        path, heard = str(tmp_path / "control.sock"), []
        channel = Channel(path) if controlled else None
        target = {"control": path} if controlled else {}
        async with world(Engine(), targets=lambda engines: (Target(engines[0].url, **target),)) as w:
            await w.ask(program_id="p")
            gate.closed.add(number(w, "p"))
            gate.verdicts = [Pause(number(w, "p"), 0, frees_kv=True)]
            w.gateway.door.turned()
            assert w.gateway.door.paused == {number(w, "p")}
            ((event, name),) = w.watch.gate_events
            assert (event.what, event.reason, name) == (
                "drop", "engine told" if controlled else NO_CONTROL, "p",
            )  # fmt: skip
            if channel is not None:
                channel.serve(lambda message: heard.append((message["op"], message["program"])) or {})
                assert heard == [("drop", "p")]
            task = w.ask(program_id="p")
            await until(lambda: len(w.gateway.door) == 1)
            gate.verdicts = [Resume(number(w, "p"), 0)]
            w.gateway.door.turned()
            assert (await task)[0] == 200
            assert w.gateway.door.paused == set()
        if channel is not None:
            channel.close()

    test()


@on_loop
async def test_a_drop_that_no_engine_has_heard_of_is_taken_back_by_a_resume(gate, tmp_path):
    path, heard = str(tmp_path / "control.sock"), []  # the engine listens later
    async with world(Engine(), targets=lambda engines: (Target(engines[0].url, control=path),)) as w:
        await w.ask(program_id="p")
        gate.verdicts = [Pause(number(w, "p"), 0, frees_kv=True)]
        w.gateway.door.turned()
        assert w.gateway.unsaid == 1
        gate.verdicts = [Resume(number(w, "p"), 0)]
        w.gateway.door.turned()
        assert w.gateway.unsaid == 0
        channel = Channel(path)
        await w.post("/programs/end", {"program_id": "p"})
        await until(lambda: channel.serve(lambda m: heard.append(m["op"]) or {}) or heard)
        assert heard == ["end"]
        channel.close()


@on_loop
async def test_a_gate_that_reads_prompts_finds_them(gate):
    gate.reads_prompt, found = True, []
    gate.request = lambda call, engines, now: found.append(call.prompt) or True
    async with world(Engine(whole)) as w:
        await w.ask(prompt=list(range(40)))
        assert [length for _, length in found[0]] == [16, 16, 8]
        gate.reasoning.clear()
