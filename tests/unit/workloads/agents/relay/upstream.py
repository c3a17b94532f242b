"""An engine that is none: answers three APIs as vLLM 0.32 does, and keeps what it was asked."""

import asyncio
import json
from types import SimpleNamespace

from aiohttp import web

PROMPT, CACHED = 20, 16
MODEL = "served"


def dump(data, kind=""):
    return (f"event: {kind}\n" if kind else "") + f"data: {json.dumps(data)}\n\n"


def word(token):
    """What the engine says with a token; every third one is no text yet."""
    return "" if token % 3 == 2 else f"w{token} "


# -- /v1/chat/completions --------------------------------------------------------------


def chat_whole(name, tokens):
    message = {"role": "assistant", "content": "".join(map(word, range(tokens))), "refusal": None,
               "tool_calls": [], "reasoning": None}  # fmt: skip
    choice = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": "length",
        "stop_reason": None,
    }
    return {"id": f"chatcmpl-{name}", "object": "chat.completion", "created": 1, "model": MODEL,
            "choices": [choice], "usage": chat_usage(tokens)}  # fmt: skip


def chat_usage(tokens):
    return {"prompt_tokens": PROMPT, "completion_tokens": tokens, "total_tokens": PROMPT + tokens,
            "prompt_tokens_details": {"cached_tokens": CACHED}}  # fmt: skip


def chat_events(name, tokens, usage=True):
    head = {"id": f"chatcmpl-{name}", "object": "chat.completion.chunk", "created": 1, "model": MODEL}

    def chunk(delta, reason=None):
        return dump(
            {**head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}]}
        )

    yield chunk({"role": "assistant", "content": ""})
    for token in range(tokens - 1):
        yield chunk({"content": word(token)})
    yield chunk({"content": word(tokens - 1)}, "length")
    if usage:
        yield dump({**head, "choices": [], "usage": chat_usage(tokens)})
    yield "data: [DONE]\n\n"


# -- /v1/responses ---------------------------------------------------------------------


def response(name, tokens, status="incomplete"):
    text = "".join(map(word, range(tokens)))
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": None}
    output = [
        {"id": "msg_x", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    ]
    over = status == "incomplete"
    usage = {"input_tokens": PROMPT, "output_tokens": tokens, "total_tokens": PROMPT + tokens,
             "input_tokens_details": {"cached_tokens": CACHED}}  # fmt: skip
    return {
        "id": name, "object": "response", "created_at": 1, "model": MODEL, "status": status,
        "incomplete_details": {"reason": "max_output_tokens"} if over else None,
        "output": output if over else [],
        "tools": [], "tool_choice": "none", "temperature": 0.0, "max_output_tokens": tokens, "text": None,
        "usage": usage if over else None,
    }  # fmt: skip


def response_events(name, tokens):
    number = iter(range(10_000))

    def say(kind, **data):
        return dump({"type": kind, "sequence_number": next(number), **data}, kind)

    where = {"item_id": "msg_x", "output_index": 0, "content_index": 0}
    yield say("response.created", response=response(name, tokens, "in_progress"))
    yield say("response.in_progress", response=response(name, tokens, "in_progress"))
    yield say("response.output_item.added", output_index=0, item={"id": "msg_x", "type": "message"})
    yield say("response.content_part.added", **where, part={"type": "output_text", "text": ""})
    for token in range(tokens):
        if word(token):  # vLLM says nothing where there is no text
            yield say("response.output_text.delta", **where, delta=word(token), logprobs=[])
    yield say("response.output_text.done", **where, text="all")
    yield say("response.content_part.done", **where, part={"type": "output_text", "text": "all"})
    yield say("response.output_item.done", output_index=0, item={"id": "msg_x", "type": "message"})
    yield say("response.completed", response=response(name, tokens))


# -- /v1/messages ----------------------------------------------------------------------


def message(name, tokens):
    return {"id": f"chatcmpl-{name}", "type": "message", "role": "assistant", "model": MODEL,
            "content": [{"type": "text", "text": "".join(map(word, range(tokens)))}],
            "stop_reason": "max_tokens", "usage": message_usage(tokens)}  # fmt: skip


def message_usage(tokens):
    return {"input_tokens": PROMPT - CACHED, "output_tokens": tokens, "cache_read_input_tokens": CACHED,
            "cache_creation_input_tokens": 0}  # fmt: skip


def message_events(name, tokens):
    def say(kind, **data):
        return dump({"type": kind, **data}, kind)

    start = {**message(name, tokens), "content": [], "stop_reason": None,
             "usage": {"input_tokens": PROMPT, "output_tokens": 0}}  # fmt: skip
    yield say("message_start", message=start)
    yield say("content_block_start", index=0, content_block={"type": "text", "text": ""})
    for token in range(tokens):
        if word(token):
            yield say("content_block_delta", index=0, delta={"type": "text_delta", "text": word(token)})
            yield say("ping")
    yield say("content_block_stop", index=0)
    over = {"stop_reason": "max_tokens", "stop_sequence": None}
    yield say("message_delta", delta=over, usage=message_usage(tokens))
    yield say("message_stop")


# -- the server ------------------------------------------------------------------------

LENGTHS = ("max_output_tokens", "max_completion_tokens", "max_tokens")


class Upstream:
    """``async with``; ``asked``: what came. ``status``: of replies, with ``said``; ``hang``: 0, before a
    reply, else after so many events; ``breaks``: after so many the connection is closed, or ``tail`` is
    sent and the reply ends."""

    def __init__(self):
        self.asked, self.left = [], 0
        self.status, self.said = 200, {"error": {"message": "no", "type": "x", "code": 400}}
        self.hang = self.breaks = None
        self.tail = None
        self.reached = asyncio.Event()
        self.gone = asyncio.Event()

    async def __aenter__(self):
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_):
        await self._runner.cleanup()

    async def _answer(self, request):
        raw = await request.read()
        body = json.loads(raw) if raw else {}
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.asked.append(
            SimpleNamespace(path=request.path_qs, method=request.method, headers=headers, body=body, raw=raw)
        )
        try:
            return await self._reply(request, body, headers.get("x-request-id", "none"))
        except asyncio.CancelledError:
            self.left += 1
            self.gone.set()
            raise

    async def _reply(self, request, body, name):
        if self.status != 200:
            return web.json_response(self.said, status=self.status, headers={"X-Own": "kept"})
        tokens = next((body[field] for field in LENGTHS if body.get(field)), 5)
        replies = {
            "/v1/chat/completions": (chat_whole, chat_events, name),
            "/v1/responses": (response, response_events, body.get("request_id", name)),
            "/v1/messages": (message, message_events, name),
        }
        if request.path not in replies:
            return web.json_response({"path": request.path_qs, "model": body.get("model")})
        whole, events, known_as = replies[request.path]
        if self.hang == 0:
            self.reached.set()
            await asyncio.sleep(60)
        if not body.get("stream"):
            return web.json_response(whole(known_as, tokens))
        wants = {} if events is not chat_events else {"usage": wants_usage(body)}
        return await self._stream(request, list(events(known_as, tokens, **wants)))

    async def _stream(self, request, events):
        reply = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await reply.prepare(request)
        for number, event in enumerate(events):
            if number == self.hang:
                self.reached.set()
                await asyncio.sleep(60)
            if number == self.breaks:
                if self.tail is None:
                    request.transport.abort()
                else:
                    await reply.write(self.tail.encode())
                return reply
            await reply.write(event.encode())
        return reply


def wants_usage(body):
    return bool((body.get("stream_options") or {}).get("include_usage"))
