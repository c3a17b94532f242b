"""A golden server: /v1/completions with known delays, exact tokens and a log of when each chunk was sent.

    with GoldenServer(ttft=0.05, itl=0.01) as golden:
        ...  # golden.url; golden.log() -> {call name: Sent}, times of time.monotonic, the same clock for all

It runs in a process of its own, on a raw asyncio.Protocol (uvloop), and writes to the socket itself: what it
logs is when the kernel got the bytes, not when a loop came to it. 256 streams of 64 tokens 10 ms apart are
half a core. Token i of a reply is (tokens of the prompt + i) % VOCABULARY. Chunk k of a stream is due
``ttft + k * itl`` after its request, whatever happened to the ones before.

A call may ask for something else in ``vllm_xargs``: ``ttft``, ``itl`` (seconds), ``batch`` (tokens per
chunk) or ``fault``: one of FAULTS, with ":N" where it comes after N tokens.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, cast

VOCABULARY = 1000
FAULTS = {
    "status": "answers 503 with an error in OpenAI's shape",
    "text": "answers 500 with HTML",
    "drop": "closes without an answer",
    "close": "closes after N tokens",
    "hang": "says nothing more after N tokens",
    "error": "an error event after N tokens, as vLLM's, then [DONE]",
    "short": "ends one token early",
    "usage": "counts one token too many",
    "nousage": "leaves usage out",
    "noids": "leaves token_ids out",
    "nodone": "ends without a finish_reason and [DONE]",
    "garbage": "an event that is no JSON after N tokens",
    "split": "cuts every event in two",
    "crlf": "ends lines with CRLF, and sends comments in between",
    "silent": "tokens without text, as those of a model that only reasons",
    "whole": "does not stream at all",
}


class Sent(NamedTuple):
    """What the server did with a call: when its request was whole, each chunk's (time, tokens), whether the
    client left before the end."""

    received: float
    chunks: list[tuple[float, int]]
    left: bool


class GoldenServer:
    """The server as a process; ends with the ``with`` block, and with the process that started it."""

    def __init__(self, ttft: float = 0.0, itl: float = 0.0, *, cores: set[int] | None = None) -> None:
        self._command = [sys.executable, str(Path(__file__)), "--ttft", str(ttft), "--itl", str(itl)]
        self._cores = cores
        self.url = ""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        port = self._process.stdout.readline().decode().strip()
        if not port:
            raise RuntimeError("the golden server did not start")
        if self._cores:
            os.sched_setaffinity(self._process.pid, self._cores)
        self.url = f"http://127.0.0.1:{port}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=10)
        self._process.stdout.close()

    @property
    def pid(self) -> int:
        """Of the server's process."""
        return self._process.pid

    def cpu_s(self) -> float:
        """CPU time that the server's process has used (Linux)."""
        fields = Path("/proc", str(self.pid), "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def log(self) -> dict[str, Sent]:
        """All calls since the last time it was asked, by X-Request-Id."""
        with urllib.request.urlopen(f"{self.url}/log", timeout=30) as answer:
            rows = json.load(answer)
        return {
            name: Sent(received, [(at, n) for at, n in chunks], left) for name, received, chunks, left in rows
        }

    def open_streams(self) -> int:
        """Streams that are not over."""
        with urllib.request.urlopen(f"{self.url}/health", timeout=30) as answer:
            return int(json.load(answer)["open"])


# -- the process -----------------------------------------------------------------------


class Settings(NamedTuple):
    """How a call is answered."""

    ttft: float
    itl: float
    batch: int = 1
    fault: str = ""
    after: int = 0

    def of(self, body: dict[str, Any]) -> Settings:
        """With what the call asks for."""
        asked = body.get("vllm_xargs") or {}
        fault, _, after = asked.get("fault", "").partition(":")
        return Settings(
            float(asked.get("ttft", self.ttft)), float(asked.get("itl", self.itl)),
            int(asked.get("batch", 1)), fault, int(after or 0),
        )  # fmt: skip


class Streams:
    """All calls, and their log."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.rows: list[tuple[str, float, list[tuple[float, int]], list[bool]]] = []
        self.open = 0

    def take(self) -> bytes:
        """The log as JSON; forgets it."""
        rows, self.rows = self.rows, []
        return json.dumps(
            [(name, received, chunks, left[0]) for name, received, chunks, left in rows]
        ).encode()


class Stream:
    """One streamed reply."""

    def __init__(self, line: Line, name: str, body: dict[str, Any], settings: Settings, now: float) -> None:
        self.line, self.body, self.settings, self.received = line, body, settings, now
        self.n = body["max_tokens"] - (settings.fault == "short")
        self.first_token = len(body["prompt"])
        self.sent = 0
        self.chunks: list[tuple[float, int]] = []
        self.left = [False]
        line.streams.rows.append((name, now, self.chunks, self.left))
        line.streams.open += 1
        self.loop = asyncio.get_running_loop()
        self.zero = self.loop.time() + settings.ttft - (time.monotonic() - now)
        self.timer = self.loop.call_at(self.zero, self.go_on)

    def go_on(self) -> None:
        """The next chunk is due."""
        if not self.chunks:
            self.line.head("200 OK", "text/event-stream; charset=utf-8", None)
        fault = self.settings.fault
        if fault in ("close", "hang", "error", "garbage") and self.sent >= self.settings.after:
            self.fail(fault)
            return
        tokens = min(self.settings.batch, self.n - self.sent)
        event = self.event(tokens, self.sent + tokens == self.n)
        self.chunks.append((time.monotonic(), tokens))
        self.write(event)
        self.sent += tokens
        if self.sent == self.n:
            self.finish()
        else:
            self.timer = self.loop.call_at(self.zero + len(self.chunks) * self.settings.itl, self.go_on)

    def event(self, tokens: int, last: bool) -> bytes:
        """A chunk as vLLM 0.32 sends it."""
        start = self.first_token + self.sent
        ids = ",".join([str((start + i) % VOCABULARY) for i in range(tokens)])
        prompt = "null" if self.sent else str(self.body["prompt"])
        reason = '"length"' if last and self.settings.fault != "nodone" else "null"
        word = "" if self.settings.fault == "silent" else " word"
        given = "" if self.settings.fault == "noids" else f',"prompt_token_ids":{prompt},"token_ids":[{ids}]'
        return (
            '{"id":"cmpl-golden","object":"text_completion","created":1764000000,"model":"golden",'
            f'"choices":[{{"index":0,"text":"{word}","logprobs":null,'
            f'"finish_reason":{reason},"stop_reason":null{given}}}]'
            ',"usage":null,"system_fingerprint":null}'
        ).encode()

    def write(self, data: bytes) -> None:
        """One event, in the way the call asked for."""
        if self.settings.fault == "crlf":
            self.line.chunk(b": still here\r\n\r\ndata: " + data + b"\r\n\r\n")
        elif self.settings.fault == "split":
            self.line.chunk(b"data: " + data[:37])
            self.line.chunk(data[37:] + b"\n\n")
        else:
            self.line.chunk(b"data: " + data + b"\n\n")

    def finish(self) -> None:
        """Usage, and the end."""
        fault = self.settings.fault
        if fault not in ("nousage", "nodone") and self.body.get("stream_options", {}).get("include_usage"):
            prompt, n = self.first_token, self.n + (fault == "usage")
            usage = {"prompt_tokens": prompt, "completion_tokens": n, "total_tokens": prompt + n}
            self.write(json.dumps({"id": "cmpl-golden", "choices": [], "usage": usage}).encode())
        if fault != "nodone":
            self.write(b"[DONE]")
        self.line.send(b"0\r\n\r\n")
        self.over()

    def fail(self, fault: str) -> None:
        """Do what was asked for."""
        if fault == "close":
            self.over()
            self.line.transport.close()
        elif fault == "garbage":
            self.write(b'{"choices": [')
            self.line.send(b"0\r\n\r\n")
            self.over()
        elif fault == "error":
            told = {"error": {"message": "the engine is dead", "type": "InternalServerError", "code": 500}}
            self.write(json.dumps(told).encode())
            self.write(b"[DONE]")
            self.line.send(b"0\r\n\r\n")
            self.over()

    def over(self) -> None:
        """It has ended, or its client has left."""
        self.timer.cancel()
        self.line.stream = None
        self.line.streams.open -= 1


class Line(asyncio.Protocol):
    """A connection."""

    def __init__(self, streams: Streams) -> None:
        self.streams = streams
        self.buffer = b""
        self.stream: Stream | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.fd = transport.get_extra_info("socket").fileno()
        self.blocked = False

    def connection_lost(self, error: Exception | None) -> None:
        if self.stream is not None:
            self.stream.left[0] = True
            self.stream.over()

    def data_received(self, data: bytes) -> None:
        now = time.monotonic()
        self.buffer += data
        head, mark, rest = self.buffer.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        fields = {key.lower(): value for key, _, value in (line.partition(": ") for line in lines[1:])}
        size = int(fields.get("content-length", 0))
        if mark and len(rest) >= size:
            self.buffer = rest[size:]
            method, path = lines[0].split()[:2]
            self.answer(method, path, fields, rest[:size], now)

    def answer(self, method: str, path: str, fields: dict[str, str], body: bytes, now: float) -> None:
        """A request is here."""
        if path == "/log":
            self.whole("200 OK", self.streams.take())
        elif (method, path) != ("POST", "/v1/completions"):
            self.whole("200 OK", json.dumps({"open": self.streams.open}).encode())
        else:
            asked = json.loads(body)
            settings = self.streams.settings.of(asked)
            self.complete(fields.get("x-request-id", ""), asked, settings, now)

    def complete(self, name: str, asked: dict[str, Any], settings: Settings, now: float) -> None:
        """A call."""
        if settings.fault == "status":
            told = {"error": {"message": "no room for this call", "type": "ServiceUnavailable", "code": 503}}
            self.whole("503 Service Unavailable", json.dumps(told).encode())
        elif settings.fault == "text":
            self.whole("500 Internal Server Error", b"<html><h1>oops</h1></html>", "text/html")
        elif settings.fault == "drop":
            self.transport.close()
        elif settings.fault == "whole" or not asked.get("stream"):
            n = asked["max_tokens"]
            choice = {"token_ids": [(len(asked["prompt"]) + i) % VOCABULARY for i in range(n)]}
            usage = {"prompt_tokens": len(asked["prompt"]), "completion_tokens": n}
            answer = json.dumps({"choices": [choice], "usage": usage}).encode()
            after = settings.ttft + (n - 1) * settings.itl
            asyncio.get_running_loop().call_later(after, self.whole, "200 OK", answer)
        else:
            self.stream = Stream(self, name, asked, settings, now)

    def whole(self, status: str, body: bytes, kind: str = "application/json") -> None:
        """A reply that is no stream."""
        self.head(status, kind, len(body))
        self.send(body)

    def head(self, status: str, kind: str, size: int | None) -> None:
        """``size`` None: chunked."""
        length = "Transfer-Encoding: chunked" if size is None else f"Content-Length: {size}"
        self.send(f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n{length}\r\n\r\n".encode())

    def chunk(self, data: bytes) -> None:
        """One chunk of a chunked body."""
        self.send(b"%x\r\n%b\r\n" % (len(data), data))

    def send(self, data: bytes) -> None:
        """Into the socket, now; through the loop once the socket is full."""
        if self.transport.is_closing():
            return
        if not self.blocked:
            try:
                data = data[os.write(self.fd, data) :]
            except BlockingIOError:
                pass
            except OSError:
                self.transport.abort()
                return
            self.blocked = bool(data)
        if data:
            self.transport.write(data)


async def serve(settings: Settings) -> None:
    """Until the process that started this one closes our standard input, or a signal comes."""
    loop = asyncio.get_running_loop()
    done = asyncio.Event()
    streams = Streams(settings)
    server = await loop.create_server(lambda: Line(streams), "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    loop.add_reader(sys.stdin.fileno(), done.set)
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, done.set)
    await done.wait()
    server.close()


def main() -> None:
    """As a process."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ttft", type=float, default=0.0, help="seconds from a request to its first token")
    parser.add_argument("--itl", type=float, default=0.0, help="seconds between two chunks")
    given = parser.parse_args()
    import uvloop

    uvloop.run(serve(Settings(given.ttft, given.itl)))


if __name__ == "__main__":
    main()
