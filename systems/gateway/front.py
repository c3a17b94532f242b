"""The gateway's HTTP side: who may, which endpoint, and what becomes of everything else below /v1/."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

import orjson
from aiohttp import web

from systems.gateway.bodies import ENDPOINTS, Endpoint, parse
from systems.gateway.connection import RECEIVE_S
from systems.gateway.errors import JSON, Refused, speech_for
from systems.gateway.gateway import Gateway
from systems.gateway.headers import KEYS, allowed, forwarded, returned
from systems.gateway.identity import LONGEST, caller_of, program_id
from systems.gateway.metrics import Metrics
from systems.gateway.observe import Passage
from systems.gateway.outlet import AppOutlet, Outlet, Sent
from systems.gateway.rows import repeatable
from systems.gateway.wires import Onward
from systems.http1 import Exchange, HttpFailed

_LOG = logging.getLogger("gateway")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
MOST_KEPT_S = 1e9
"""Seconds that a reply says for what is kept without an end."""
MOST_REPLY = 64 << 20
"""Bytes of a reply that is passed through: it is kept whole."""


class Front:
    """The routes of ``gateway``. ``draining``: it is about to end and takes no more calls."""

    def __init__(self, gateway: Gateway) -> None:
        self.draining = False
        self._gateway = gateway
        self._keys = gateway.options.api_keys
        self._stays = KEYS if self._keys else frozenset[str]()

    def routes(self) -> list[web.RouteDef]:
        """All that clients of engines use."""
        calls = [web.post(one.path, self._call(one)) for one in ENDPOINTS]
        return [
            *calls,
            web.post("/programs/start", self._guarded(self._start)),
            web.post("/programs/away", self._guarded(self._away)),
            web.post("/programs/end", self._guarded(self._end)),
            web.post("/programs/release", self._guarded(self._end)),  # what ThunderAgent's clients say
            web.route("OPTIONS", "/v1/{rest:.*}", self._guarded(self._pass, asks=False)),
            web.route("*", "/v1/{rest:.*}", self._guarded(self._pass)),
        ]

    # -- calls -------------------------------------------------------------------------

    async def call(
        self, endpoint: Endpoint, path: str, headers: Mapping[str, str], raw: bytes, outlet: Outlet
    ) -> Sent:
        """A call that came to ``path``; ``headers`` are found by names in lower case."""
        gateway, arrived = self._gateway, self._gateway.now()
        try:
            self.check(headers)
            ask = parse(endpoint, raw)
            caller = caller_of(ask.data, headers)
        except Refused as refused:
            return await self.refuse(endpoint, refused, len(raw), outlet)
        try:
            ticket = gateway.books.arrive(ask, caller, arrived)
            onward = Onward("POST", path, forwarded(headers.items(), self._stays))
            return await gateway.carrier.carry(outlet, ticket, onward)
        except Exception as error:
            return await outlet.refuse(broken(path, error), gateway.now())

    def _call(self, endpoint: Endpoint) -> Handler:
        async def call(request: web.Request) -> web.StreamResponse:
            outlet = AppOutlet(request, speech_for(endpoint.speech, request.headers))
            try:
                self.check(request.headers)
                raw = await self._read(request)
            except Refused as refused:
                return self._last(_replied(await self.refuse(endpoint, refused, 0, outlet)))
            sent = await self.call(endpoint, request.path_qs, request.headers, raw, outlet)
            return self._last(_replied(sent))

        return call

    async def refuse(self, endpoint: Endpoint, refused: Refused, size: int, outlet: Outlet) -> Sent:
        """A call that does not come in; ``size``: bytes of its body that were here."""
        books, now = self._gateway.books, self._gateway.now()
        passage = Passage(books.number(), -1, "", "", 0, endpoint.path, False, now, t_end=now)
        passage.status, passage.bytes_in = refused.status, size
        passage.outcome, passage.reason = refused.outcome, refused.message
        books.refuse(passage)
        return await outlet.refuse(refused)

    def check(self, headers: Mapping[str, str], asks: bool = True) -> None:
        """Raises Refused without a key that is needed (401), or when no call is taken any more (503)."""
        if asks and self._keys and not allowed(headers, self._keys):
            raise Refused(401, "an API key of this gateway is needed, as Bearer or in x-api-key")
        if self.draining:
            raise Refused(503, "the gateway is about to end", retry_s=1)

    def _last(self, reply: web.StreamResponse) -> web.StreamResponse:
        """No other request follows once the gateway is about to end."""
        if self.draining:
            reply.force_close()
        return reply

    async def _read(self, request: web.Request) -> bytes:
        try:
            async with asyncio.timeout(RECEIVE_S):
                return await request.read()
        except TimeoutError:
            raise Refused(408, f"the request did not come whole within {RECEIVE_S:g} s") from None
        except web.HTTPRequestEntityTooLarge:
            most = self._gateway.options.max_body
            raise Refused(413, f"the request's body is larger than {most} bytes") from None

    # -- programs ----------------------------------------------------------------------

    async def _start(self, request: web.Request) -> web.StreamResponse:
        gateway = self._gateway
        name = program_id(await self._object(request))
        known = gateway.programs.named(name) is not None
        program = gateway.programs.start(name, gateway.now())
        return _json({"program_id": name, "number": program.number, "started": not known})

    async def _end(self, request: web.Request) -> web.StreamResponse:
        name = program_id(await self._object(request))
        program = self._gateway.programs.named(name)
        if program is None:
            return _json({"program_id": name, "ended": False, "calls": 0})
        self._gateway.programs.end(program, "ended")
        return _json({"program_id": name, "ended": True, "calls": program.calls + program.held})

    async def _away(self, request: web.Request) -> web.StreamResponse:
        """A thread of a program goes into a tool: until when what it left is kept."""
        gateway, body = self._gateway, await self._object(request)
        name, thread, tool = program_id(body), caller_of(body, {}).thread, body.get("tool", "")
        if not isinstance(tool, str) or len(tool) > LONGEST:
            raise Refused(400, f"tool must be text of at most {LONGEST} characters", param="tool")
        after = body.get("after")
        if after is not None and (not isinstance(after, int) or isinstance(after, bool)):
            raise Refused(400, f"after must be the index of a call, got {after!r:.60}", param="after")
        program, until = gateway.programs.named(name), 0.0
        if program is not None and gateway.keeping is not None and gateway.options.tools == "told":
            until = gateway.keeping.away(program, thread, tool, after)
        kept = min(until - gateway.now(), MOST_KEPT_S) if until else 0.0
        return _json({"program_id": name, "known": program is not None, "kept_s": kept})

    async def _object(self, request: web.Request) -> dict[str, object]:
        return parse(ENDPOINTS[0], await self._read(request)).data

    # -- everything else ---------------------------------------------------------------

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        """To any live engine, without a policy; the reply comes whole. Counted by status, nothing more."""
        try:
            response = await self._passed(request)
        except Refused as refused:
            self._count_passed(refused.status)
            raise
        self._count_passed(response.status)
        return response

    def _count_passed(self, status: int) -> None:
        for observer in self._gateway.observers:
            if isinstance(observer, Metrics):
                observer.passed(status)

    async def _passed(self, request: web.Request) -> web.Response:
        body = await self._read(request)
        gateway = self._gateway
        alive = [worker for worker in gateway.workers if worker.alive]
        if not alive:
            raise Refused(503, "no engine lives", retry_s=1)
        worker = min(alive, key=lambda one: (one.calls, one.id))
        try:
            sent = body if request.body_exists else None
            async with await gateway.wires.post(
                worker,
                Onward(request.method, request.path_qs, forwarded(request.headers.items(), self._stays)),
                _named(request),
                sent,
                None,
            ) as exchange:
                reply = await _whole(exchange)
        except HttpFailed as error:
            worker.doubt.set()
            raise Refused(502, f"the engine broke off: {error}") from None
        return web.Response(status=exchange.status, body=reply, headers=returned(exchange.headers))

    def _guarded(self, handler: Handler, asks: bool = True) -> Handler:
        """``asks``: whoever may call needs a key. A browser's preflight has none, and engines want none."""

        async def guarded(request: web.Request) -> web.StreamResponse:
            try:
                self.check(request.headers, asks)
                return self._last(await handler(request))
            except Refused as refused:
                return self._last(refused.response(_anthropic(request)))
            except Exception as error:
                return self._last(broken(request.path, error).response(_anthropic(request)))

        return guarded


def nothing() -> list[web.RouteDef]:
    """What answers where nothing else does, as the last route."""

    async def missing(request: web.Request) -> web.StreamResponse:
        text = f"{request.method} {request.path}: there is nothing here"
        return Refused(404, text).response(_anthropic(request))

    return [web.route("*", "/{rest:.*}", missing)]


def broken(path: str, error: Exception) -> Refused:
    """A mistake of ours, or of a policy: the trace goes to the log, the client gets a plain error."""
    if isinstance(error, ConnectionError):
        raise error  # the client has just left
    _LOG.error("%s", path, exc_info=error)
    return Refused(500, f"internal error of the gateway: {type(error).__name__}", outcome="error")


async def _whole(exchange: Exchange) -> bytes:
    """The body of a reply. Raises Refused if it is too large to be kept."""
    pieces: list[bytes] = []
    size = 0
    async for _, piece in exchange:
        size += len(piece)
        if size > MOST_REPLY:
            raise Refused(502, f"the engine's reply is larger than {MOST_REPLY} bytes")
        pieces.append(piece)
    return b"".join(pieces)


def _named(request: web.Request) -> str:
    """The client's name of a request that is passed through, for the engine; "" if it is none to repeat."""
    name = request.headers.get("X-Request-Id", "")
    return name if repeatable(name) else ""


def _replied(sent: Sent) -> web.StreamResponse:
    assert sent is not None  # it is aiohttp's request
    return sent


def _anthropic(request: web.Request) -> bool:
    return request.path.startswith("/v1/messages")


def _json(data: dict[str, object]) -> web.Response:
    return web.Response(body=orjson.dumps(data), content_type=JSON)
