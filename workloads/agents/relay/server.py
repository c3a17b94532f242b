"""The relay: an HTTP server between agents and an engine or a gateway (docs/relay.md).

async with Relay(upstream, "tiny-llama", run="r1", scripts=scripts, told=calls.append) as relay:
    ...  # agents call relay.url/p/PROGRAM/THREAD/v1
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

import aiohttp
from aiohttp import web

from workloads.agents.contract import AgentError, Script, Turn
from workloads.agents.relay.bodies import BadBody, parsed, written
from workloads.agents.relay.contract import RelayCall
from workloads.agents.relay.dialect import Dialect, Refused, dialects, openai_error
from workloads.agents.relay.passage import BrokenOff, ClientLeft, Passage, tokens
from workloads.agents.relay.passing import back, named, onward
from workloads.agents.relay.turns import Turns
from workloads.agents.relay.whose import Numbers, Place, place_of, whose

KEEP_ALIVE_S = 2.0
"""Connections idle for longer are not used again: vLLM closes its own after 5 s."""
CONNECT_S = 10.0
LARGEST = 256 << 20
"""Bytes of a request."""
_LOST = (aiohttp.ClientError, BrokenOff, OSError, TimeoutError)


class Relay:
    """Serves while the ``async with`` block runs; ``url`` and ``port`` are known then.

    ``upstream``: base URL of an engine or a gateway, without /v1; ``model``: the name it serves. ``run``: the
    first part of every id, printable ASCII without spaces. ``scripts``: what programs are answered, by
    number; None: the engine's replies are the answers. ``told`` hears each call once, when it is over.
    ``key`` is what upstream wants, in place of the agents' own. ``number_of``: the number of a program that
    has only a name; by default they are numbered as they appear.
    """

    def __init__(
        self, upstream: str, model: str, *, run: str, scripts: Mapping[int, Script] | None = None,
        told: Callable[[RelayCall], None], key: str = "", cache_salt: str = "", host: str = "127.0.0.1",
        port: int = 0, number_of: Callable[[str], int] | None = None,
    ) -> None:  # fmt: skip
        self.port = port
        self._upstream, self._model, self._run = upstream.rstrip("/"), model, run
        self._scripts, self._told, self._key, self._salt = scripts, told, key, cache_salt
        self._host = host
        self._number_of = number_of or Numbers()
        self._turns = Turns()

    @property
    def url(self) -> str:
        """Base of all that it serves."""
        return f"http://{self._host}:{self.port}"

    async def __aenter__(self) -> Self:
        """Raises OSError if the port is taken."""
        dialects()  # read the files now, not in the first call
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S)
        limits = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S)
        self._session = aiohttp.ClientSession(
            connector=connector, timeout=limits, cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("User-Agent", "Accept"), headers={"Accept-Encoding": "identity"},
        )  # fmt: skip
        app = web.Application(client_max_size=LARGEST)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
        try:
            await self._runner.setup()
            site = web.TCPSite(self._runner, self._host, self.port)
            await site.start()
        except BaseException:
            await self._close()
            raise
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    async def _close(self) -> None:
        """Calls that are under way are cut off."""
        await self._runner.cleanup()
        await self._session.close()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        t_arrive = time.monotonic()
        try:
            place = place_of(request.rel_url.raw_path)
        except Refused as refused:
            return web.json_response(openai_error(refused.status, str(refused)), status=refused.status)
        dialect = dialects().get(place.rest) if request.method == "POST" else None
        raw = await request.read()
        if dialect is None:
            return await self._pass(request, place.rest, raw)
        return await self._call(request, dialect, place, raw, t_arrive)

    # -- calls -------------------------------------------------------------------------

    async def _call(
        self, request: web.Request, dialect: Dialect, place: Place, raw: bytes, t_arrive: float
    ) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        try:
            program, thread = whose(place, headers, self._number_of)
        except Refused as refused:  # nobody's call: there is no row to write
            return web.json_response(dialect.error(refused.status, str(refused)), status=refused.status)
        index = self._turns.take(program, thread, raw, headers)
        name = f"{self._run}.{program}.{thread}.{index}"
        call = RelayCall(program, thread, index, name, dialect.name, False, t_arrive)

        def over(call: RelayCall) -> None:
            if call.outcome != "finished":
                self._turns.failed(program, thread, raw, index)
            self._told(call)

        passage = Passage(request, dialect, call, {}, None, over)
        try:
            self._ask(passage, raw)
            return await self._carry(passage)
        except Refused as refused:
            return passage.refuse(refused)
        except ClientLeft:
            passage.settle("cut", "the client left")
            return web.Response()  # nobody reads it
        except _LOST as error:
            return passage.lost(error)
        except asyncio.CancelledError:
            passage.settle("cut", "the client left, or the relay ended")
            raise
        except Exception as error:  # our mistake, 500 for the agent: the call is on record all the same
            passage.settle("refused", f"{type(error).__name__}: {error}")
            raise

    def _ask(self, passage: Passage, raw: bytes) -> None:
        """What is asked, and what the script says to it. Raises Refused."""
        call = passage.call
        try:
            passage.asked = parsed(raw)
        except BadBody as bad:
            raise Refused(str(bad)) from None
        call.stream = passage.asked.get("stream") is True
        if self._scripts is None:
            return
        script = self._scripts.get(call.program)
        if script is None:
            raise Refused(f"program {call.program} has no script")
        passage.turn = _turn(script, call, passage.asked)
        call.scripted_tokens = tokens(passage.turn)

    async def _carry(self, passage: Passage) -> web.StreamResponse:
        call, request = passage.call, passage.request
        program = f"{self._run}.{call.program}"
        caller = {"program_id": program, "thread_id": call.thread}
        body = passage.body(self._model, caller, self._salt)
        headers = onward(request.headers.items(), self._key) + named(call.name, program, call.thread)
        path = passage.dialect.path + (f"?{request.rel_url.raw_query_string}" if request.query_string else "")
        call.t_send = time.monotonic()
        async with self._session.post(f"{self._upstream}{path}", data=body, headers=headers) as answer:
            return await passage.reply(answer)  # if that is not whole, its connection is closed at once

    # -- all else ----------------------------------------------------------------------

    async def _pass(self, request: web.Request, rest: str, raw: bytes) -> web.StreamResponse:
        """Another path below /v1/: as it is, but for the model's name."""
        query = request.rel_url.raw_query_string
        url = f"{self._upstream}{rest}{'?' if query else ''}{query}"
        headers, body = onward(request.headers.items(), self._key), self._adapted(rest, raw)
        response: web.StreamResponse | None = None
        try:
            async with self._session.request(request.method, url, data=body, headers=headers) as answer:
                response = web.StreamResponse(status=answer.status, headers=back(answer.headers.items()))
                await response.prepare(request)
                async for piece in answer.content.iter_any():
                    await response.write(piece)
                return response
        except _LOST as error:
            if response is not None and request.transport is not None:
                request.transport.abort()
            message = f"upstream: {str(error) or type(error).__name__}"
            return web.json_response(openai_error(502, message), status=502)

    def _adapted(self, rest: str, raw: bytes) -> bytes | None:
        """With the model's name; with a script the engine parses no tool calls, which count_tokens minds."""
        try:
            asked: dict[str, Any] = parsed(raw)
        except BadBody:
            return raw or None
        if "model" not in asked:
            return raw
        asked["model"] = self._model
        if self._scripts is not None and asked.get("tools"):
            for dialect in dialects().values():
                asked |= dict(dialect.unparsed) if rest.startswith(f"{dialect.path}/") else {}
        return written(asked)


def _turn(script: Script, call: RelayCall, asked: Mapping[str, Any]) -> Turn:
    try:
        return script.turn(call.thread, call.index, asked)
    except AgentError as error:
        raise Refused(str(error)) from None
    except Exception as error:  # somebody's script: the agent and the record say what it did
        raise Refused(f"the script of program {call.program} raised {error!r} for {call.name}") from error
