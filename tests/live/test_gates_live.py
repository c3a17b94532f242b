"""Gates and retention at our gateway before a real vLLM server with 768 tokens of KV."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from itertools import count

import aiohttp
import pytest

from systems.engines.vllm_server import ServerOptions, VllmServer
from systems.gateway import gateway as module
from systems.gateway.gateway import Gateway
from systems.gateway.options import GatewayOptions, Target
from systems.gateway.server import Server
from systems.protocols import Pause
from systems.vllm_host.tiny import write
from tests.unit.systems.gateway.engines import Watch, on_loop, until
from tests.unit.systems.gateway.gates import Told
from vocabulary import INF

pytestmark = pytest.mark.live

MODEL = "tiny-llama"
BLOCKS, BLOCK = 24, 32
RUNS = count()
"""An idle engine hears that a program is over when the next call comes: no two tests share a name."""
LENGTH = 8 * BLOCK
"""Tokens of a prompt: a third of the KV."""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("server")
    options = ServerOptions(
        write(folder / "model"), kv_blocks=BLOCKS, block_size=BLOCK, max_num_seqs=4,
        max_model_len=BLOCKS * BLOCK, control=True,
    )  # fmt: skip
    with VllmServer(options, folder) as server:
        yield server


@asynccontextmanager
async def behind(server, **options):
    """A gateway before the server, whose cache is empty: (gateway, ask, release)."""
    target = Target(server.url, str(server.calls), server.control, max_num_batched_tokens=512)
    run = f"r{next(RUNS)}"
    gateway, watch = Gateway(GatewayOptions((target,), system="vllm-opt", **options)), Watch()
    gateway.observers.append(watch)
    async with Server(gateway) as front, aiohttp.ClientSession() as session:
        async with session.post(f"{server.url}/reset_prefix_cache") as flushed:
            assert flushed.status == 200
        await until(lambda: gateway.workers[0].view().kv_total > 0, 10.0)

        async def post(path, body):
            async with session.post(front.url + path, json=body) as answer:
                return answer.status, json.loads(await answer.read())

        async def release(name):
            assert (await post("/programs/release", {"program_id": f"{run}.{name}"}))[1]["ended"]

        async def ask(name, first, tool=""):
            """A prompt of ``LENGTH`` ids from ``first`` on; tokens of it that were cached."""
            extra = {"program_id": f"{run}.{name}", **({"tool": tool} if tool else {})}
            prompt = [1 + (first + i * i) % 1000 for i in range(LENGTH)]
            body = {"model": MODEL, "prompt": prompt, "max_tokens": 2, "ignore_eos": True}
            status, answer = await post("/v1/completions", {**body, "vllm_xargs": extra})
            assert status == 200, answer
            return answer["usage"]["prompt_tokens_details"]["cached_tokens"]

        yield gateway, ask, release


class Keep:
    """Keeps for ever what is left by who goes into the tool ``keep``."""

    name = "keep"

    def idle(self, away, now):
        return INF if away.tool == "keep" else now

    def victims(self, candidates, now):
        return candidates


@pytest.mark.parametrize("kept", [False, True])
def test_what_the_gateways_policy_keeps_is_found_again_and_the_rest_is_not(server, kept, monkeypatch):
    monkeypatch.setattr(module, "build_retention", lambda _: Keep())

    @on_loop
    async def test():
        async with behind(server, retention="pin" if kept else None) as (gateway, ask, _):
            assert gateway.workers[0].view().kv_total == BLOCKS * BLOCK // 16
            assert await ask("p", 0, tool="keep") == 0
            for number in range(1, 4):  # they need all of the KV
                assert await ask(f"q{number}", 100 * number) == 0
            cached = await ask("p", 0)
            assert cached == (LENGTH - BLOCK if kept else 0)  # the last block's logits are computed anew

    test()


@pytest.mark.parametrize("frees", [False, True])
def test_a_pause_that_frees_kv_makes_the_engine_give_that_up_first(server, frees, monkeypatch):
    gate = Told()
    monkeypatch.setattr(module, "build_gate", lambda _: gate)

    @on_loop
    async def test():
        async with behind(server, gate="program-cap") as (gateway, ask, _):
            await ask("a", 0)
            await ask("b", 500)
            paused = next(row.number for row in gateway.programs if row.name.endswith("b"))
            gate.verdicts = [Pause(paused, 0, frees_kv=frees)]
            gateway.door.turned()
            for number in (1, 2):  # the free third, and one that somebody must give up
                await ask(f"c{number}", 100 * number)
            # without it the one that was used longest ago goes
            stays, went = (("a", 0), ("b", 500)) if frees else (("b", 500), ("a", 0))
            assert await ask(*stays) > 0
            assert await ask(*went) == 0
            assert [event.reason for event, _ in gateway.observers[0].gate_events] == ["engine told"] * frees
            assert gate.in_flight == 0

    test()


@on_loop
async def test_a_held_call_whose_client_leaves_never_comes_to_the_engine(server):
    async with behind(server, gate="program-cap", knobs={"gate.programs": "1"}) as (gateway, ask, release):
        await ask("first", 0)
        held = [asyncio.create_task(ask(name, 300)) for name in ("leaves", "stays")]
        await until(lambda: len(gateway.door) == 2)
        before = len(server.calls.read_text().splitlines())
        held[0].cancel()
        await until(lambda: len(gateway.door) == 1)
        await release("first")
        # the place goes to who is still here
        await held[1]
        await asyncio.gather(*held, return_exceptions=True)
        assert len(server.calls.read_text().splitlines()) == before + 1
        assert gateway.programs.counts()["reasoning"] == 0
