"""The engine that is none, with the API that agents speak."""

import asyncio
import json

from aiohttp import web

from tests.unit.bench.live.engines import Asked, FakeEngine
from tests.unit.workloads.agents.relay.upstream import chat_events, chat_whole, wants_usage


class ChatEngine(FakeEngine):
    """A prompt's tokens are the bytes of its messages. ``more``: tokens that it decodes beyond what it is
    asked for."""

    more = 0

    def _more_routes(self):
        return [web.post("/v1/chat/completions", self._chat)]

    async def _chat(self, request):
        if self.answers is not None and len(self.bodies) >= self.answers:
            self.dead = "Killed"
            request.transport.abort()
            raise web.HTTPServiceUnavailable
        said = await request.json()
        tokens = said["max_tokens"] + self.more
        prompt = list(json.dumps(said["messages"]).encode())
        body = {**said, "prompt": prompt, "max_tokens": tokens}
        self.bodies.append(said)
        self._count += 1
        call = Asked(self._count, request.headers["X-Request-Id"], body, self.now())
        self._waiting.append(call)
        try:
            for _ in range(tokens):
                await call.tokens.get()
        except asyncio.CancelledError:
            self._leave(call, aborted=True)
            raise
        if not said.get("stream"):
            return web.json_response(_counted(chat_whole(call.name, tokens), len(prompt)))
        reply = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await reply.prepare(request)
        for event in chat_events(call.name, tokens, wants_usage(said)):
            await reply.write(event.encode())
        return reply


def _counted(reply, prompt):
    return {**reply, "usage": {**reply["usage"], "prompt_tokens": prompt}}
