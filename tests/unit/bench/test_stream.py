"""The streaming client against the golden server: its stamps against the server's own send log."""

import asyncio
import re
import statistics
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.drivers.calls import CallFailed, Chunks, Request, gaps, tpot
from bench.drivers.loop import run
from bench.drivers.stream import Streaming, sse_events
from tests.golden_server import VOCABULARY, GoldenServer

ROOT = Path(__file__).parents[3]
SLACK = 0.15
"""Seconds by which stamps may be late on a shared machine; benchmarks/client.py has the bars."""


@pytest.fixture(scope="module")
def golden():
    with GoldenServer(ttft=0.02, itl=0.004) as server:
        yield server
        assert server.open_streams() == 0


def call(name, n=8, prompt=(1, 2, 3), **caller):
    return Request(name, list(prompt), n, {key: str(value) for key, value in caller.items()})


def ask(golden, *requests, loop=run, **options):
    """Replies to these calls, made at once, and the server's log of them."""

    async def go():
        async with Streaming(golden.url, "golden", **options) as client:
            return await asyncio.gather(*[client.complete(one) for one in requests])

    golden.log()
    return loop(go()), golden.log()


def fails(golden, request, **options):
    with pytest.raises(CallFailed, match=f"^call {request.name}: ") as failed:
        ask(golden, request, **options)
    return str(failed.value)


def tokens_of(request):
    return tuple((len(request.prompt) + i) % VOCABULARY for i in range(request.output_tokens))


@pytest.mark.parametrize("loop", [run, asyncio.run], ids=["uvloop", "asyncio"])
@pytest.mark.parametrize("streams", [1, 8, 64])
def test_tokens_are_exact_and_times_are_the_servers(golden, streams, loop):
    requests = [call(f"a.{i}", 16, [1] * (i + 1)) for i in range(streams)]
    replies, log = ask(golden, *requests, loop=loop)
    late = []
    for request, reply in zip(requests, replies, strict=True):
        sent = log[request.name]
        assert reply.tokens == tokens_of(request)
        assert (reply.prompt_tokens, reply.output_tokens) == (len(request.prompt), 16)
        assert [n for _, n in reply.chunks] == [n for _, n in sent.chunks] == [1] * 16
        assert reply.finish_reason == "length"
        assert reply.t_send <= sent.received
        assert reply.t_first == reply.chunks[0][0]
        assert reply.t_last == reply.chunks[-1][0]
        late += [at - out for (at, _), (out, _) in zip(reply.chunks, sent.chunks, strict=True)]
    assert min(late) >= 0, "received before it was sent"
    assert statistics.median(late) < SLACK
    assert min(reply.t_first - reply.t_send for reply in replies) >= 0.02


def test_a_chunk_is_not_a_token(golden):
    request = call("b", 10, batch=4)
    (reply,), _ = ask(golden, request)
    assert [n for _, n in reply.chunks] == [4, 4, 2]
    assert reply.tokens == tokens_of(request)
    assert [n for _, n in gaps(reply.chunks)] == [4, 2]
    assert tpot(reply.chunks) == pytest.approx((reply.t_last - reply.t_first) / 6)


def test_chunks_are_a_sequence_of_pairs():
    pairs = [(1.5, 1), (2.25, 3), (3.0, 2)]
    chunks = Chunks(pairs)
    assert list(chunks) == pairs == list(chunks[:])
    assert (len(chunks), chunks[-1], chunks[1:]) == (3, (3.0, 2), pairs[1:])
    assert not Chunks()


def test_the_time_to_the_first_token_is_no_gap_between_tokens(golden):
    (reply,), _ = ask(golden, call("c", 5, ttft=0.2, itl=0.001))
    assert len(gaps(reply.chunks)) == 4
    assert max(seconds for seconds, _ in gaps(reply.chunks)) < 0.2


def test_a_reply_of_one_token_has_no_gaps_and_divides_by_nothing(golden):
    (reply,), _ = ask(golden, call("d", 1))
    assert reply.t_first == reply.t_last
    assert gaps(reply.chunks) == []
    assert tpot(reply.chunks) is None


def test_tokens_without_text_are_tokens(golden):
    """A reply that only reasons has a time per token like any other."""
    request = call("k", 6, itl=0.01, fault="silent")
    (reply,), _ = ask(golden, request)
    assert reply.tokens == tokens_of(request)
    assert tpot(reply.chunks) > 0.005


@pytest.mark.parametrize("fault", ["split", "crlf"])
def test_events_may_be_cut_and_written_in_other_ways(golden, fault):
    request = call("e", 6, fault=fault)
    (reply,), _ = ask(golden, request)
    assert reply.tokens == tokens_of(request)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("status", "the server answers 503: .*no room for this call"),
        ("text", "the server answers 500: <html>"),
        ("drop", "closed before a reply came"),
        ("close:3", r"closed after \d+ bytes of the body"),
        ("error:3", "after 3 tokens: an error in the stream: the engine is dead"),
        ("error:0", "after 0 tokens: an error in the stream: the engine is dead"),
        ("garbage:2", "after 2 tokens: no chunk of a completion"),
        (
            "short",
            r"asked for \(prompt, output\) of \(3, 8\) tokens, the server counts \(3, 7\) and returns 7",
        ),
        ("usage", r"the server counts \(3, 9\) and returns 8"),
        ("nousage", "no usage in the stream"),
        ("noids", "no token_ids in the stream"),
        ("nodone", "after 8 tokens: the stream ends without a finish_reason"),
        ("whole", "the stream ends without"),
    ],
)
def test_what_goes_wrong_is_said(golden, fault, says):
    assert re.search(says, fails(golden, call("f.0.1", fault=fault)))


def test_a_call_that_takes_too_long_is_given_up_and_the_server_notices(golden):
    text = fails(golden, call("g", fault="hang:2"), limit_s=0.15)
    assert re.search(r"not over after 0\.15 s, \d+ bytes of it came", text)
    assert golden.open_streams() == 0


def test_a_cancelled_call_leaves_nothing(golden):
    async def go():
        async with Streaming(golden.url, "golden") as client:
            calls = [asyncio.create_task(client.complete(call(f"h.{i}", 400))) for i in range(8)]
            await asyncio.sleep(0.1)
            for one in calls:
                one.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
            assert client.open == 0

    golden.log()
    run(go())
    log = golden.log()
    assert len(log) == 8
    assert all(sent.left and len(sent.chunks) < 400 for sent in log.values())
    assert golden.open_streams() == 0


def test_connections_are_kept_but_not_into_the_servers_limit(golden):
    async def go():
        async with Streaming(golden.url, "golden") as client:
            for i in range(3):
                await client.complete(call(f"i.{i}", 1))
            return client.open

    assert run(go()) == 1


def test_the_golden_server_ends_with_the_process_that_started_it():
    starts = "print(golden_server.GoldenServer().__enter__().pid, flush=True)"
    code = f"import os; from tests import golden_server; {starts}; os._exit(9)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=20)
    stat = Path("/proc", done.stdout.strip(), "stat")
    deadline = time.monotonic() + 10.0
    while stat.exists() and stat.read_text().split()[2] != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_server_that_is_not_there():
    async def go():
        async with Streaming("http://127.0.0.1:9", "golden") as client:
            await client.complete(call("j"))

    with pytest.raises(CallFailed, match=r"call j: 127\.0\.0\.1:9: cannot connect: ."):
        run(go())


@given(
    st.lists(st.sampled_from([b"{}", b'{"a": "\\n"}', b"[DONE]", "é".encode()]), max_size=8),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
    st.sampled_from([b"", b": ping", b"event: x", b"id: 3"]),
    st.lists(st.integers(0, 200), max_size=20),
)
def test_events_are_the_same_wherever_they_are_cut(events, line, extra, cuts):
    more = extra + line if extra else b""
    text = b"".join(more + b"data: " + event + line + line for event in events) + b"\n"
    ends = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    pieces = [(float(b), text[a:b]) for a, b in pairwise(ends)]
    found = list(sse_events(pieces))
    assert [data for _, data in found] == events
    stamps = [stamp for stamp, _ in found]
    assert stamps == sorted(stamps)


def test_an_event_is_stamped_with_its_last_byte():
    pieces = [(1.0, b"data: a\n"), (2.0, b"\ndata: b"), (3.0, b"\n\ndata: c\n")]
    assert list(sse_events(pieces)) == [(2.0, b"a"), (3.0, b"b")]


def test_data_of_several_lines_and_comments():
    assert list(sse_events([(1.0, b"data: a\ndata:b\n\n: ping\n\ndata:\n\n")])) == [(1.0, b"a\nb")]


def test_the_client_needs_neither_pandas_nor_aiohttp():
    heavy = ("aiohttp", "numpy", "pandas", "scipy")
    code = f"import sys, bench.drivers.stream; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
