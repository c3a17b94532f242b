"""The gateway's pages: truthful health, no more programs than asked, keys."""

import asyncio

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client.parser import text_string_to_metric_families

from systems.gates.program_cap import ProgramCap
from systems.gateway.door import Door
from systems.gateway.metrics import Metrics
from systems.gateway.options import GatewayOptions, Target
from systems.gateway.pages import routes
from systems.gateway.programs import Programs
from systems.gateway.workers import Load, Workers
from systems.process_table import ProcessTable
from systems.routers.round_robin import RoundRobin
from systems.slots import resolved

KEYS = ("sk-one", "sk-two")


class Gateway:
    """What the pages need of one; its clock stands at ``time``."""

    def __init__(self, **options):
        self.time = 100.0
        targets = (Target("http://127.0.0.1:1", kv_blocks=64), Target("http://127.0.0.1:2"))
        self.options = GatewayOptions(targets, **options)
        self.programs = Programs(ProcessTable())
        self.workers = Workers(targets, self.now)
        self.observers = [Metrics(self.workers.views)]
        self.door = Door(ProgramCap(programs=3), RoundRobin(), self.workers, self.now)

    def now(self):
        return self.time

    def begin(self, name, at):
        program = self.programs.start(name, at)
        self.programs.hold(program, at)
        return program

    def send(self, name, at):
        program = self.begin(name, at)
        self.programs.send(program, 1)
        return program


def asked(gateway, *paths, **headers):
    """(status, JSON or text) per path."""

    async def ask():
        app = web.Application()
        app.add_routes(routes(gateway))
        async with TestClient(TestServer(app)) as client:
            found = []
            for path in paths:
                async with client.get(path, headers=headers) as reply:
                    is_json = reply.content_type == "application/json"
                    found.append((reply.status, await (reply.json() if is_json else reply.text())))
            return found

    return asyncio.run(ask())


def test_health_is_200_only_while_an_engine_lives():
    gateway = Gateway()
    one, two = gateway.workers
    ((status, body),) = asked(gateway, "/health")
    assert (status, body["status"]) == (503, "down")
    assert body["engines"][0] == {
        "id": 0, "state": "down", "why": "it has not answered yet", "since_s": 100.0,
    }  # fmt: skip
    gateway.workers.up(one)
    gateway.time = 130.0
    gateway.workers.silent(one, "no answer in 1 s")
    gateway.time = 140.0
    ((status, body),) = asked(gateway, "/health")
    assert (status, body["status"]) == (200, "degraded")
    assert [engine["state"] for engine in body["engines"]] == ["slow", "down"]
    assert body["engines"][0]["since_s"] == 10.0
    assert body["engines"][0]["why"] == "no answer in 1 s"
    gateway.workers.up(one)
    gateway.workers.up(two)
    assert asked(gateway, "/health")[0][1]["status"] == "ok"
    gateway.workers.down(one, "connection refused")
    gateway.workers.down(two, "connection refused")
    ((status, body),) = asked(gateway, "/health")
    assert (status, body["status"]) == (503, "down")
    assert {engine["why"] for engine in body["engines"]} == {"connection refused"}


def test_engines_tell_what_a_router_sees_and_their_own_word_on_their_size_counts():
    gateway = Gateway()
    one, _ = gateway.workers
    gateway.workers.up(one)
    assert one.view().kv_total == 64  # what we were told, until it says something
    one.calls, one.load, one.load_at = 3, Load(5, 2, 0.25, 128), 99.0
    ((_, body),) = asked(gateway, "/engines")
    first, second = body["engines"]
    assert first["url"] == "http://127.0.0.1:1"
    assert {name: first[name] for name in ("in_flight", "running", "waiting", "kv_used", "kv_total")} == {
        "in_flight": 3, "running": 5, "waiting": 2, "kv_used": 32, "kv_total": 128,
    }  # fmt: skip
    assert (first["load_age_s"], second["load_age_s"]) == (1.0, None)


def test_programs_by_state_those_called_last_first():
    gateway = Gateway()
    gateway.programs.start("idle", 10.0)
    gateway.begin("held", 20.0)
    for number in range(5):
        gateway.send(f"p{number}", 30.0 + number)
    (_, whole), (_, few), (_, none) = asked(
        gateway, "/programs", "/programs?state=reasoning&limit=2", "/programs?limit=0"
    )
    assert [row["name"] for row in whole["programs"]] == ["p4", "p3", "p2", "p1", "p0", "held", "idle"]
    assert [row["state"] for row in whole["programs"][4:]] == ["reasoning", "held", "idle"]
    assert whole["states"] == {"reasoning": 5, "held": 1, "idle": 1}
    assert [row["name"] for row in few["programs"]] == ["p4", "p3"]
    assert (few["found"], few["total"]) == (5, 7)
    assert (none["programs"], none["total"]) == ([], 7)


def test_never_more_programs_than_asked_for():
    gateway = Gateway()
    for number in range(150):
        gateway.programs.start(f"p{number}", float(number))
    (_, whole), (_, more) = asked(gateway, "/programs", "/programs?limit=120")
    assert (len(whole["programs"]), len(more["programs"])) == (100, 120)
    assert whole["total"] == 150


def test_a_row_has_what_the_program_received():
    gateway = Gateway()
    program = gateway.send("a/b c", 90.0)
    program.row.service, program.row.exec_s, program.row.wait = 7.0, 1.5, 0.5
    ((_, row),) = asked(gateway, "/programs/a%2Fb%20c")
    assert row == {
        "name": "a/b c", "number": program.number, "state": "reasoning", "in_flight": 1, "held": 0,
        "service": 7.0, "exec_s": 1.5, "wait_s": 0.5, "engine": 1, "age_s": 10.0, "idle_s": 10.0,
        "paused": False,
    }  # fmt: skip
    gateway.programs.start("new", 100.0)
    assert asked(gateway, "/programs/new")[0][1]["engine"] is None


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/programs?limit=-1", 400, "limit is a whole number from 0 to 10000"),
        ("/programs?limit=1e3", 400, "limit is"),
        ("/programs?limit=99999", 400, "limit is"),
        ("/programs?limit=²", 400, "limit is"),
        ("/programs?state=busy", 400, "state is one of idle, reasoning, held, got 'busy'"),
        ("/programs/nobody", 404, "no program 'nobody'"),
        ("/programs/release", 405, "POST it"),
    ],
)
def test_what_cannot_be_shown_is_an_error_of_openais_shape(path, status, words):
    ((found, body),) = asked(Gateway(), path)
    assert found == status
    assert words in body["error"]["message"]


def test_metrics_are_prometheus_text():
    ((status, text),) = asked(Gateway(), "/metrics")
    assert status == 200
    names = {family.name for family in text_string_to_metric_families(text)}
    assert {"gateway_programs", "gateway_calls", "gateway_added_seconds", "process_open_fds"} <= names


def test_without_metrics_it_says_so():
    gateway = Gateway()
    gateway.observers.clear()
    ((status, body),) = asked(gateway, "/metrics")
    assert status == 404
    assert "keeps no metrics" in body["error"]["message"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer sk-two"}, 200),
        ({"Authorization": "bearer sk-one"}, 200),
        ({"x-api-key": "sk-one"}, 200),
        ({"Authorization": "Bearer sk-on"}, 401),
        ({"Authorization": "Basic sk-one"}, 401),
        ({"x-api-key": "schlüssel"}, 401),
        ({"Authorization": ""}, 401),
    ],
)
def test_pages_but_health_need_a_key_where_keys_are_set(headers, status):
    pages = ("/metrics", "/programs", "/programs/x", "/engines")
    gateway = Gateway(api_keys=KEYS)
    gateway.programs.start("x", 0.0)
    gateway.workers.up(gateway.workers[0])
    found = [code for code, _ in asked(gateway, *pages, "/health", **headers)]
    assert found == [status] * len(pages) + [200]


def test_the_running_gate_is_told_with_the_knobs_it_has():
    gateway = Gateway()
    program = gateway.begin("p", 1.0)
    gateway.door.paused.add(program.number)
    (_, health), (_, body), (_, one) = asked(gateway, "/health", "/programs", "/programs/p")
    assert health["gate"] == "program-cap"
    knobs = body["gate"].pop("knobs")
    assert knobs == dict(resolved(gateway.door.gate))
    assert knobs["programs"] == 3
    assert body["gate"] == {"name": "program-cap", "calls_held": 0, "paused": 1, "reasoning": None}
    gateway.door.gate.programs = 7  # the object that decides, not what it was asked to be
    assert asked(gateway, "/programs")[0][1]["gate"]["knobs"]["programs"] == 7
    assert (one["paused"], body["programs"][0]["paused"]) == (True, True)
