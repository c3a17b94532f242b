"""A real vLLM API server with our scheduler class: programs over HTTP, replies, logs, a clean end."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from bench.arriving import arriving, program_hash
from bench.calibration.steps import read_steps
from bench.config import RunConfig
from bench.drivers.completions import CallFailed, Completions, Request
from bench.drivers.live import drive_live
from bench.drivers.locust.run import Recipe, drive_locust
from bench.drivers.stream import Streaming
from bench.drivers.token_ids import TokenIds
from bench.fidelity.server_calls import logged, numbers
from systems.engines.vllm_server import ServerOptions, VllmServer
from systems.vllm_host.tiny import TinyLlama, write
from workloads.base import ProgramSpec

pytestmark = pytest.mark.live

VOCABULARY = TinyLlama().vocabulary - 1
KNOBS = {"unit": "step", "bounds": [4, 16, 64]}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Three slots and 20 blocks of 32 tokens: programs displace each other, and KV runs short."""
    folder = tmp_path_factory.mktemp("server")
    options = ServerOptions(
        write(folder / "model"), scheduler="atlas", knobs=KNOBS, kv_blocks=20, max_num_seqs=3,
        max_num_batched_tokens=64, max_model_len=600,
    )  # fmt: skip
    with VllmServer(options, folder) as server:
        yield server
    assert server.processes() == {}
    assert not list(running(folder))
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"{server.url}/health", timeout=2)


def running(folder):
    """Processes that name the folder in their command line."""
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and str(folder).encode() in (entry / "cmdline").read_bytes():
                yield entry.name
        except OSError:
            continue


async def agent(s):
    async def branch(fork, output):
        return await fork.call(new=20, output=output)

    await s.call(new=70, output=12)
    await s.tool("search", 0.02)
    replies = await s.join(*(branch(s.fork(), 6 + i) for i in range(3)))
    for reply in replies:
        s.add((reply.output_id, reply.output_tokens))
    await s.call(new=5, output=40)


async def short(s):
    await s.call(new=30, output=4)


PROGRAMS = [ProgramSpec(i, "test", 1000 + i, agent if i % 2 == 0 else short) for i in range(6)]


def drive(server, programs, run, client=Completions):
    async def go():
        async with client(server.url, server.options.name) as calls:
            ids = TokenIds(VOCABULARY, "test")
            times = [0.0] * len(programs)
            return await drive_live(programs, times, calls, ids, run=run, cache_salt=run, watch=server.check)

    return asyncio.run(go())


def test_replies_are_the_same_alone_and_when_programs_displace_each_other(server):
    together = drive(server, PROGRAMS, "together")
    alone = {}
    for program in PROGRAMS:
        alone |= drive(server, [program], f"alone{program.index}").said()
    assert together.said() == alone
    assert len(alone) == 18
    assert len(set(alone.values())) > 9
    rows = logged(server.calls, "together")
    found = numbers(rows)
    assert (found.calls, found.programs) == (18, 6)
    assert found.preempted > 0
    assert {row.key: row.output_tokens for row in rows} == {
        call.name.removeprefix("together."): len(call.tokens) for call in together.calls
    }
    for row in rows:
        assert row.t_arrive < row.t_first_token <= row.t_end
        assert row.exec_s + row.wait_s == pytest.approx(row.t_end - row.t_arrive)
    steps = read_steps(server.steps)
    assert steps.head["scheduler"] == "atlas"
    assert steps.head["kv_blocks"] == 20
    own = steps.only(lambda name: name.startswith("cmpl-together."))
    assert max(row.units[2] for row in own.rows) == 3
    assert max(row.units[1] for row in own.rows) <= 64


def test_a_call_that_the_server_refuses_is_an_error_and_the_server_goes_on(server):
    async def refused():
        async with Completions(server.url, server.options.name) as client:
            await client.complete(Request("long.0..0", [1] * 700, 4))

    with pytest.raises(CallFailed, match=r"call long\.0\.\.0: the server answers 400"):
        asyncio.run(refused())
    server.check()
    assert len(drive(server, [PROGRAMS[1]], "after").calls) == 1


def test_the_streaming_client_is_told_the_same_and_when_each_token_came(server):
    whole = drive(server, PROGRAMS, "whole")
    live = drive(server, PROGRAMS, "streamed", client=Streaming)
    assert live.said() == whole.said()
    rows = {row.key: row for row in logged(server.calls, "streamed")}
    assert len(rows) == len(live.calls) == 18
    for call in live.calls:
        row = rows[call.name.removeprefix("streamed.")]
        assert sum(n for _, n in call.chunks) == len(call.tokens) == row.output_tokens
        assert (call.t_first, call.t_last) == (call.chunks[0][0], call.chunks[-1][0])
        assert call.t_first - call.t_send >= row.t_first_token - row.t_arrive
        assert call.t_last - call.t_send >= row.t_end - row.t_arrive


def test_a_stream_that_the_server_refuses_is_said_in_its_own_words(server):
    async def refused():
        async with Streaming(server.url, server.options.name) as client:
            await client.complete(Request("long.0..1", [1] * 700, 4))

    with pytest.raises(CallFailed, match=r"call long\.0\.\.1: the server answers 400: .*maximum"):
        asyncio.run(refused())


@pytest.mark.slow
def test_locust_is_told_the_same(server):
    """Streamed, by the second driver's processes: the same programs, the same greedy replies."""
    config = RunConfig("vllm-opt", "tests.live.test_server:agent", rate=20.0, n=4, seed=1)
    programs, times = arriving(config, server.options.max_model_len, "")
    twin = drive(server, programs.programs, "twin")
    recipe = Recipe(config, program_hash(programs, times), server.options.max_model_len)
    live = drive_locust(
        recipe, times, server.url, server.options.name, vocabulary=VOCABULARY, salt="test", run="locust",
        cache_salt="locust", workers=2, watch=server.check,
    )  # fmt: skip
    assert live.said() == twin.said()
    assert len(live.said()) == 20
    rows = {row.key: row for row in logged(server.calls, "locust")}
    assert set(rows) == set(live.said())
    for call in live.calls:
        assert call.t_send <= call.t_first <= call.t_last
        assert sum(n for _, n in call.chunks) == len(call.tokens)
