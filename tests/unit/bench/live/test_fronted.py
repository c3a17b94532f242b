"""Calls and goodbyes through a third-party front: what is sent besides."""

import asyncio
import http.server
import threading

import pytest

from bench.drivers.calls import Request
from bench.drivers.completions import Completions
from bench.drivers.stream import Streaming
from bench.live.fronted import Fronted
from bench.live.goodbyes import Goodbyes
from systems.fronts.smg import Smg
from systems.fronts.vllm_router import VllmRouter


@pytest.fixture
def posted():
    """A server that answers 200 and an error to every POST: (URL, what came as (path, headers))."""
    seen = []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            seen.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", seen
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("kind", [Streaming, Completions])
def test_each_call_says_whose_it_is(posted, kind):
    url, seen = posted

    async def go():
        async with Fronted(kind(url, "m"), Smg(policy="cache_aware")) as client:
            caller = {"program_id": "run.7", "thread_id": ""}
            with pytest.raises(RuntimeError, match=r"call run\.7\.\.0: "):
                await client.complete(Request("run.7..0", [5, 6], 1, caller))

    asyncio.run(go())
    ((path, headers),) = seen
    assert path == "/v1/completions"
    assert headers["x-request-id"] == "run.7..0"
    assert headers["x-smg-routing-tokens"] == "5,6"


@pytest.mark.parametrize(
    ("front", "paths"),
    [
        (None, ["/programs/end", "/programs/end"]),
        (VllmRouter(), []),
        (VllmRouter(policy="sticky_least_loaded"),
         ["/finish_session?session_id=r.1", "/finish_session?session_id=r.2"]),
    ],
)  # fmt: skip
def test_ends_are_told_in_the_fronts_own_way(posted, front, paths):
    url, seen = posted

    async def go():
        async with Goodbyes(url, front) as goodbyes:
            goodbyes.say("r.1")
            goodbyes.say("r.2")
        return goodbyes.failed

    assert asyncio.run(go()) == 0
    assert sorted(path for path, _ in seen) == paths
