"""The least a gateway can be with aiohttp and uvloop: the yardstick that the bars for ours were taken from.

    python benchmarks/gateway_parts/naive.py --port N --engine URL

It parses each body, as anybody must who reads a program's name in it, passes it on and streams the reply
back. It has no table, no policy, no log, no metrics, no limits, and no plan for anything that goes wrong.
"""

from __future__ import annotations

import argparse
import json

import uvloop
from aiohttp import ClientSession, TCPConnector, web

CALL = "/v1/chat/completions"


def application(engine: str) -> web.Application:
    """Routes for calls and for /health."""
    app = web.Application(client_max_size=2**27)

    async def session(app: web.Application) -> object:
        async with ClientSession(connector=TCPConnector(limit=0)) as app["session"]:
            yield

    async def health(_: web.Request) -> web.Response:
        return web.Response()

    async def call(request: web.Request) -> web.StreamResponse:
        body = await request.read()
        json.loads(body)
        headers = {"Content-Type": "application/json"}
        async with request.app["session"].post(engine + CALL, data=body, headers=headers) as got:
            reply = web.StreamResponse(status=got.status, headers={"Content-Type": got.content_type})
            await reply.prepare(request)
            async for piece in got.content.iter_any():
                await reply.write(piece)
            await reply.write_eof()
            return reply

    app.cleanup_ctx.append(session)
    app.router.add_get("/health", health)
    app.router.add_post(CALL, call)
    return app


def main() -> None:
    """Serve until it is stopped."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--engine", required=True)
    given = parser.parse_args()
    uvloop.install()
    web.run_app(application(given.engine), host="127.0.0.1", port=given.port, print=None, access_log=None)


if __name__ == "__main__":
    main()
