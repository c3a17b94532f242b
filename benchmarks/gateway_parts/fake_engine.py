"""A fake engine for gateways: an OpenAI-like server that streams, in a process of its own.

    python -m benchmarks.gateway_parts.fake_engine --port N [--first S] [--gap S] [--calls FILE]

A reply is ``max_tokens`` SSE chunks: the first after ``first_s`` seconds, then one each ``gap_s``, each
a write of its own, then usage (where asked for) and [DONE]. ``GET /fake`` says what is in flight (the
truth the fault script compares with); ``POST /fake`` sets ``first_s``, ``gap_s``, ``hold`` (nobody gets
a chunk) and ``hang_metrics``. With ``--calls`` it appends a row per call to FILE before the reply ends, as
our scheduler class does in vLLM. Dies with its parent.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import os
import re
import signal
import sys
from collections.abc import Mapping
from typing import Any, cast

import orjson
import uvloop

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_TOKENS = re.compile(rb'"max_tokens": *(\d+)')
_STREAM = re.compile(rb'"stream": *true')
_USAGE = re.compile(rb'"include_usage": *true')
_ID = re.compile(rb"\r\nx-request-id: *(\S+)", re.IGNORECASE)
_PROGRAM = re.compile(rb'"program_id": *"([^"]*)"')
_CHUNK = (
    b'data: {"id":"cmpl-fake","object":"chat.completion.chunk","created":1700000000,"model":"fake",'
    b'"choices":[{"index":0,"delta":{"content":" token"},"logprobs":null,"finish_reason":null}]}\n\n'
)
_PIECE = b"%x\r\n%s\r\n" % (len(_CHUNK), _CHUNK)
_SSE_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
)
BLOCKS = 1024


class State:
    """What the server was told, and who is in flight: connection -> program ("" if it named none)."""

    def __init__(self, first_s: float, gap_s: float, calls: str = "") -> None:
        self.log = open(calls, "ab", buffering=0) if calls else None  # noqa: SIM115
        self.first_s = first_s
        self.gap_s = gap_s
        self.hold = False
        self.hang_metrics = False
        self.flying: dict[Server, str] = {}
        self.waiting: list[Server] = []  # a chunk was due while everything is held
        self.finished = self.aborted = self.connections = self.pieces = 0

    def set(self, values: Mapping[str, Any]) -> None:
        """Take new values; those held back go on."""
        for name in ("first_s", "gap_s", "hold", "hang_metrics"):
            if name in values:
                setattr(self, name, values[name])
        if not self.hold:
            waiting, self.waiting = self.waiting, []
            for server in waiting:
                server.chunk()

    def facts(self) -> dict[str, Any]:
        """The answer to ``GET /fake``."""
        return {
            "in_flight": sorted(self.flying.values()), "finished": self.finished, "aborted": self.aborted,
            "connections": self.connections, "pieces": self.pieces,
        }  # fmt: skip


class Server(asyncio.Protocol):
    """One connection: requests one after the other."""

    def __init__(self, state: State, loop: asyncio.AbstractEventLoop) -> None:
        self._state = state
        self._loop = loop
        self._in = bytearray()
        self._left = self._asked = self._prompt = 0
        self._usage = False
        self._id = b""
        self._began = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._out: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client."""
        self._out = cast(asyncio.Transport, transport)
        self._state.connections += 1

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """It left: like vLLM, what it had asked for is aborted."""
        self._state.connections -= 1
        if self._timer is not None:
            self._timer.cancel()
        if self._state.flying.pop(self, None) is not None:
            self._state.aborted += 1
            self._log_row()
        with contextlib.suppress(ValueError):
            self._state.waiting.remove(self)

    def data_received(self, data: bytes) -> None:
        """Collect a request."""
        self._in += data
        end = self._in.find(b"\r\n\r\n")
        if end < 0:
            return
        found = _LENGTH.search(self._in, 0, end)
        whole = end + 4 + (int(found[1]) if found else 0)
        if len(self._in) < whole:
            return
        named = _ID.search(self._in, 0, end) if self._state.log is not None else None
        self._id = named[1] if named else b""
        line, body = bytes(self._in[: self._in.index(b"\r\n")]), bytes(self._in[end + 4 : whole])
        del self._in[:whole]
        method, path, _ = line.split(b" ", 2)
        self._answer(method, path, body)

    def _answer(self, method: bytes, path: bytes, body: bytes) -> None:
        if path.endswith(b"completions"):
            self._complete(body)
        elif path == b"/fake":
            if method == b"POST":
                self._state.set(orjson.loads(body))
            self._reply(orjson.dumps(self._state.facts()))
        elif path == b"/metrics":
            if not self._state.hang_metrics:
                self._reply(self._metrics(), b"text/plain")
        elif path in (b"/health", b"/v1/models"):
            self._reply(b'{"object":"list","data":[{"id":"fake","object":"model"}]}')
        else:
            self._reply(b'{"error":{"message":"unknown path","type":"NotFoundError","code":404}}', status=404)

    def _metrics(self) -> bytes:
        share = min(1.0, len(self._state.flying) / 256)
        return (
            f"vllm:num_requests_running {len(self._state.flying)}\nvllm:num_requests_waiting 0\n"
            f"vllm:kv_cache_usage_perc {share}\n"
            f'vllm:cache_config_info{{block_size="16",num_gpu_blocks="{BLOCKS + 1}"}} 1\n'
        ).encode()

    def _reply(self, body: bytes, kind: bytes = b"application/json", status: int = 200) -> None:
        head = b"HTTP/1.1 %d OK\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n" % (status, kind, len(body))
        self._out.write(head + body)

    def _complete(self, body: bytes) -> None:
        tail = (
            body[:2048] + body[-4096:] if len(body) > 8192 else body
        )  # what is asked stands around the prompt
        tokens, program = _TOKENS.search(tail), _PROGRAM.search(tail)
        self._asked = self._left = int(tokens[1]) if tokens else 16
        self._prompt = len(body) // 4
        self._usage = bool(_USAGE.search(tail))
        self._state.flying[self] = program[1].decode() if program else ""
        self._began = self._loop.time()
        self._due = self._began + self._state.first_s
        if _STREAM.search(tail):
            self._timer = self._loop.call_at(self._due, self._begin)
        else:
            whole = self._due + self._state.gap_s * self._left
            self._timer = self._loop.call_at(whole, self._whole)

    def _begin(self) -> None:
        self._out.write(_SSE_HEAD)
        self.chunk()

    def chunk(self) -> None:
        """The next one, unless all are held back; the last is followed by the end."""
        if self._state.hold:
            self._state.waiting.append(self)
            return
        self._out.write(_PIECE)
        self._state.pieces += 1
        self._left -= 1
        if self._left <= 0:
            self._end()
            return
        self._due += self._state.gap_s
        self._timer = self._loop.call_at(self._due, self.chunk)

    def _log_row(self) -> None:
        """What our scheduler class writes of a call, as far as a gateway reads it."""
        if self._state.log is None or not self._id:
            return
        now = self._loop.time()
        row = {
            "request_id": f"chatcmpl-{self._id.decode()}", "t_arrive": self._began, "t_end": now,
            "prefill_s": 0.0, "reprefill_s": 0.0, "swap_s": 0.0, "decode_s": now - self._began, "wait_s": 0.0,
            "served": float(self._asked - self._left), "cached_tokens": 0, "prefill_tokens": self._prompt,
            "output_tokens": self._asked - self._left,
        }  # fmt: skip
        self._state.log.write(orjson.dumps(row) + b"\n")

    def _end(self) -> None:
        self._log_row()
        last = b"data: [DONE]\n\n"
        if self._usage:
            last = b'data: {"id":"cmpl-fake","choices":[],"usage":%s}\n\n' % self._usage_text() + last
        self._out.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(last), last))
        self._done()

    def _whole(self) -> None:
        if self._state.hold:
            self._timer = self._loop.call_later(0.05, self._whole)
            return
        self._left = 0
        self._log_row()
        self._done()
        text = b" token" * self._asked
        self._reply(
            b'{"id":"cmpl-fake","object":"chat.completion","model":"fake","choices":[{"index":0,"message":'
            b'{"role":"assistant","content":"%s"},"finish_reason":"length"}],"usage":%s}'
            % (text, self._usage_text())
        )

    def _usage_text(self) -> bytes:
        return orjson.dumps({
            "prompt_tokens": self._prompt, "completion_tokens": self._asked,
            "total_tokens": self._prompt + self._asked, "prompt_tokens_details": {"cached_tokens": 0},
        })  # fmt: skip

    def _done(self) -> None:
        self._state.finished += 1
        self._state.flying.pop(self, None)


async def serve(port: int, first_s: float, gap_s: float, calls: str = "") -> None:
    """Until SIGTERM."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, over.set)
    state = State(first_s, gap_s, calls)
    server = await loop.create_server(lambda: Server(state, loop), "127.0.0.1", port, backlog=4096)
    print(f"ready {server.sockets[0].getsockname()[1]}", flush=True)
    await over.wait()
    server.close()


def main() -> None:
    """See the module's text."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--first", type=float, default=0.05)
    parser.add_argument("--gap", type=float, default=0.01)
    parser.add_argument("--calls", default="")
    parser.add_argument("--parent", type=int, default=0)
    given = parser.parse_args()
    if given.parent:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        if os.getppid() != given.parent:
            sys.exit("the process that started the fake engine is gone")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(given.port, given.first, given.gap, given.calls))


if __name__ == "__main__":
    main()
