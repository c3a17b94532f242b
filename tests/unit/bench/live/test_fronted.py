"""Calls and goodbyes through a third-party front: what is sent besides."""

import asyncio
import http.server
import threading

import pytest

from bench.drivers.calls import Request
from bench.drivers.completions import Completions
from bench.drivers.stream import Streaming
from bench.errors import UsageError
from bench.live.beside import unpredictable
from bench.live.cells import run_live
from bench.live.deployment import make_front
from bench.live.fronted import Fronted
from bench.live.goodbyes import Goodbyes
from bench.live.plan import live_plan
from systems.fronts.smg import Smg
from systems.fronts.vllm_router import VllmRouter
from systems.provision.front import FrontProcess


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


BEHIND = {"live.client": "whole"}


def test_what_is_measured_is_the_third_party_in_its_version(config, stage, tmp_path):
    plan = live_plan(config(system="smg-cache-aware", knobs=BEHIND))
    assert plan.served.front == "smg==1.13.0"
    assert "behind smg==1.13.0" in plan.badge
    engine = stage.make(plan, tmp_path, [])[0]
    engine.url = "http://127.0.0.1:9"
    front = make_front(plan, [engine], tmp_path / "front")
    assert isinstance(front, FrontProcess)
    assert (front.name, front.engines) == ("smg", ("http://127.0.0.1:9",))
    with pytest.raises(UsageError, match=r"live\.front=none leaves out smg, which system smg-cache-aware"):
        live_plan(config(system="smg-cache-aware"))


def test_what_the_simulator_has_no_rule_for_is_measured_without_a_prediction(config, stage):
    swept = run_live([config(system="smg-cache-aware", knobs=BEHIND)], stage.said.append, pool=stage.pool)
    (row,), notes = swept.beside(stage.said.append)
    assert row["measured"]["response_mean"]["value"] > 0
    assert row["predicted"].get("response_mean") is None
    assert len(notes) == 1
    assert notes[0].startswith("no prediction: system smg-cache-aware cannot run on engine sim")
    assert unpredictable(live_plan(config())) == ""
