"""A gateway that listens: built from its options, stopped with all it has."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import resource
import signal
import socket
from collections.abc import Callable

import uvloop
from aiohttp import web

from systems.gateway import pages, watchers
from systems.gateway.connection import IDLE_S, Listener
from systems.gateway.front import Front, nothing
from systems.gateway.gateway import Gateway
from systems.gateway.options import GatewayOptions

DRAIN_S = 5.0
"""How long calls may go on after the gateway was told to end."""
BACKLOG = 4096
GC_THRESHOLDS = (50_000, 20, 20)
"""A call makes some hundred objects and no cycles: by default they would be looked through all the time."""


class Server:
    """``url`` is known once ``start`` returned. ``listening``: a socket that is bound already.

    Raises OSError if the port is taken.
    """

    def __init__(self, gateway: Gateway, listening: socket.socket | None = None) -> None:
        self.gateway = gateway
        self.url = ""
        self._listening = listening
        self._runner: web.AppRunner | None = None
        self._front: Front | None = None
        self._listener: Listener | None = None
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Server:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen, and begin to watch the engines."""
        options = self.gateway.options
        listening = self._listening or bound(options.host, options.port)
        front = self._front = Front(self.gateway)
        app = web.Application(client_max_size=options.max_body)
        app.add_routes([*front.routes(), *pages.routes(self.gateway), *nothing()])
        self._runner = web.AppRunner(
            app, handler_cancellation=True, access_log=None, keepalive_timeout=IDLE_S,
            shutdown_timeout=DRAIN_S,
        )  # fmt: skip
        await self._runner.setup()
        await self.gateway.start()
        other = self._runner.server
        assert other is not None  # it is set up
        self._listener = Listener(front, other, options.max_body)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._listener, sock=listening, backlog=BACKLOG)
        self.url = url_of(listening)

    async def stop(self, drain_s: float = DRAIN_S) -> None:
        """Take no more calls, give those that are here some time, then let go of everything; idempotent."""
        runner, self._runner = self._runner, None
        if runner is None:
            return
        self._drain()
        until = self.gateway.now() + drain_s
        while self.gateway.in_flight and self.gateway.now() < until:
            await asyncio.sleep(0.02)
        await self.gateway.stop()
        if self._listener is not None:
            await self._listener.close()
        await runner.cleanup()

    def _drain(self) -> None:
        """From now on a call gets 503, on connections that are open, too; they end with it, idle ones now."""
        if self._server is not None:
            self._server.close()
        if self._front is not None:
            self._front.draining = True
        if self._listener is not None:
            self._listener.drain()


def run(options: GatewayOptions, told: Callable[[str], None], listening: socket.socket | None = None) -> None:
    """Serve until SIGTERM or SIGINT; ``told`` hears the URL once it answers.

    Raises CatalogError for a system that is none, ValueError for bad options, OSError if the port is taken
    or the event log cannot be opened.
    """
    _lift_descriptors()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(options, told, listening))


async def _serve(
    options: GatewayOptions, told: Callable[[str], None], listening: socket.socket | None
) -> None:
    over, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, over.set)
    gateway = Gateway(options)
    watchers.attach(gateway)
    async with Server(gateway, listening) as server:
        gc.freeze()  # what is there now stays: no need to look at it again and again
        gc.set_threshold(*GC_THRESHOLDS)
        told(server.url)
        await over.wait()


def bound(host: str, port: int) -> socket.socket:
    """A socket bound to it, 0: a free port. Raises OSError, which names both."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.setblocking(False)
    except (OSError, OverflowError) as error:
        listening.close()
        text = getattr(error, "strerror", None) or str(error)
        raise OSError(f"cannot listen on {host}:{port}: {text}") from None
    return listening


def url_of(listening: socket.socket) -> str:
    """http://HOST:PORT of a bound socket; one that is bound to all addresses is reached on this machine."""
    host, port = listening.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _lift_descriptors() -> None:
    """A stream takes two file descriptors: as many as the system lets us have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
