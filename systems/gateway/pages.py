"""The gateway's pages: /metrics, /programs, /engines, /health (docs/gateway-operations.md)."""

from __future__ import annotations

import heapq
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, get_args

import orjson
from aiohttp import web
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from systems.gateway.door import Door
from systems.gateway.errors import JSON, Refused
from systems.gateway.headers import allowed
from systems.gateway.metrics import Metrics
from systems.gateway.observe import Observer
from systems.gateway.options import GatewayOptions
from systems.gateway.programs import Program, Programs, State
from systems.gateway.workers import Worker, Workers
from systems.slots import resolved
from vocabulary import INF

SHOWN = 100
"""Programs on a page where nobody says how many."""
MOST = 10_000
CALLS = ("start", "away", "end", "release")
"""Below /programs, what clients POST; as names of programs they are found only where one is called so."""
STATES: tuple[str, ...] = get_args(State)

Handler = Callable[[web.Request], Awaitable[web.Response]]


class Served(Protocol):
    """What the pages need of a gateway."""

    options: GatewayOptions
    programs: Programs
    workers: Workers
    observers: list[Observer]
    door: Door

    def now(self) -> float:
        """Seconds since it began."""


def routes(gateway: Served) -> list[web.RouteDef]:
    """The pages. All but /health need a key where keys are set; errors are JSON in OpenAI's shape.

    /metrics shows the ``Metrics`` among the gateway's observers.
    """
    pages = Pages(gateway)
    keys = gateway.options.api_keys
    return [
        web.get("/health", pages.health),
        web.get("/metrics", guarded(pages.metrics, keys)),
        web.get("/engines", guarded(pages.engines, keys)),
        web.get("/programs", guarded(pages.programs, keys)),
        web.get("/programs/{name:.+}", guarded(pages.program, keys)),
    ]


class Pages:
    """The handlers."""

    def __init__(self, gateway: Served) -> None:
        self._gateway = gateway

    async def health(self, _: web.Request) -> web.Response:
        """200 where a call could be served now, else 503; why, per engine. Its URLs are on /engines."""
        gateway = self._gateway
        now, alive = gateway.now(), sum(worker.alive for worker in gateway.workers)
        status = "ok" if alive == len(gateway.workers) else "degraded" if alive else "down"
        engines = [state_of(worker, now) for worker in gateway.workers]
        answer = {"status": status, "gate": gateway.door.gate.name, "engines": engines}
        return page(answer, 200 if alive else 503)

    async def metrics(self, _: web.Request) -> web.Response:
        """Prometheus's text format. 404 if nobody counts."""
        for observer in self._gateway.observers:
            if isinstance(observer, Metrics):
                observer.watch()  # somebody wants to know
                body = generate_latest(observer.registry)
                return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})
        raise Refused(404, "this gateway keeps no metrics")

    async def engines(self, _: web.Request) -> web.Response:
        """Every engine: its state, and what a router sees of it."""
        now = self._gateway.now()
        return page({"engines": [row_of_engine(worker, now) for worker in self._gateway.workers]})

    async def programs(self, request: web.Request) -> web.Response:
        """?state= one of idle, reasoning, held; ?limit= at most so many, those called last first."""
        programs, query = self._gateway.programs, request.query
        state, limit = query.get("state"), limit_of(query.get("limit"))
        if state is not None and state not in STATES:
            raise Refused(400, f"state is one of {', '.join(STATES)}, got {state!r:.40}", param="state")
        found = [row for row in programs if state is None or row.state == state]
        rows = [self._row(row) for row in latest(found, limit)]
        answer = {
            "gate": told_of(self._gateway.door), "programs": rows, "found": len(found),
            "total": len(programs), "states": programs.counts(),
        }  # fmt: skip
        return page(answer)

    async def program(self, request: web.Request) -> web.Response:
        """One program, by the name its client gave it."""
        name = request.match_info["name"]
        found = self._gateway.programs.named(name)
        if found is None and name in CALLS:
            raise Refused(405, f"/programs/{name} is told something: POST it, with program_id in the body")
        if found is None:
            raise Refused(404, f"no program {name!r:.80} is in the table: it never called, or is over")
        return page(self._row(found))

    def _row(self, program: Program) -> dict[str, Any]:
        paused = program.number in self._gateway.door.paused
        return {**row_of(program, self._gateway.now()), "paused": paused}


def guarded(handler: Handler, keys: Sequence[str]) -> Handler:
    """``handler`` behind the keys (none: open to all), with its errors as JSON."""

    async def answer(request: web.Request) -> web.Response:
        try:
            if keys and not allowed(request.headers, keys):
                raise Refused(401, "a valid API key is needed: Authorization: Bearer KEY, or x-api-key: KEY")
            return await handler(request)
        except Refused as error:
            return error.response()

    return answer


def limit_of(text: str | None) -> int:
    """``?limit=``: SHOWN where it is missing. Raises Refused if it is no whole number from 0 to MOST."""
    if text is None:
        return SHOWN
    if not (text.isascii() and text.isdigit()) or len(text) > 9 or int(text) > MOST:
        raise Refused(400, f"limit is a whole number from 0 to {MOST}, got {text!r:.40}", param="limit")
    return int(text)


def latest(rows: Sequence[Program], limit: int) -> list[Program]:
    """At most so many, those called last first."""
    return heapq.nlargest(limit, rows, key=lambda row: row.last)


def row_of(program: Program, now: float) -> dict[str, Any]:
    """Seconds; ``service`` in the scheduler's unit; ``engine`` null before the first call."""
    return {
        "name": program.name, "number": program.number, "state": program.state,
        "in_flight": program.calls, "held": program.held, "service": program.service,
        "exec_s": program.exec_s, "wait_s": program.wait, "engine": known(program.engine),
        "age_s": now - program.started, "idle_s": now - program.last,
    }  # fmt: skip


def told_of(door: Door) -> dict[str, Any]:
    """The gate that runs, its knobs as it has them (text for what is endless), whom it keeps waiting, and how
    many programs have a call in flight by its own books (null: it keeps none)."""
    knobs = {name: "inf" if value == INF else value for name, value in resolved(door.gate)}
    own: Callable[[], int] | None = getattr(door.gate, "reasoning", None)
    return {
        "name": door.gate.name, "knobs": knobs, "calls_held": len(door), "paused": len(door.paused),
        "reasoning": None if own is None else own(),
    }  # fmt: skip


def known(engine: int) -> int | None:
    """-1 is no engine."""
    return engine if engine >= 0 else None


def state_of(worker: Worker, now: float) -> dict[str, Any]:
    """``state``: up, slow (it lives, but did not answer in time) or down; since when (s), and why."""
    state = "down" if not worker.alive else "slow" if worker.slow else "up"
    return {"id": worker.id, "state": state, "why": worker.why, "since_s": now - worker.since}


def row_of_engine(worker: Worker, now: float) -> dict[str, Any]:
    """Calls are ours; KV (16-token blocks) and what all clients have there are as its /metrics said last."""
    view = worker.view()
    age = now - worker.load_at if worker.load_at >= 0.0 else None
    return {
        "url": worker.url, **state_of(worker, now), "in_flight": worker.calls,
        "running": worker.load.running, "waiting": worker.load.waiting,
        "kv_used": view.kv_used, "kv_total": view.kv_total, "load_age_s": age,
    }  # fmt: skip


def page(data: Mapping[str, Any], status: int = 200) -> web.Response:
    """A JSON page."""
    return web.Response(status=status, body=orjson.dumps(data), content_type=JSON)
