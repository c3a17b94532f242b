"""A server that answers agents from scripts, with no engine behind it, in two dialects."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import asynccontextmanager

from aiohttp import web

from workloads.agents.contract import AgentError


class FakeChat:
    """``scripts`` by program. ``asked``: how many calls by (program, thread); ``bodies``: all of them."""

    def __init__(self, scripts):
        self.scripts = scripts
        self.url = ""
        self.asked = Counter()
        self.bodies = []

    async def answer(self, request):
        program, thread = int(request.match_info["program"]), request.match_info["thread"]
        body = await request.json()
        self.bodies.append((program, thread, body))
        index = self.asked[program, thread]
        self.asked[program, thread] += 1
        try:
            turn = self.scripts[program].turn(thread, index, body)
        except AgentError as error:
            return web.json_response({"error": {"message": str(error), "type": "script"}}, status=404)
        shown = completion if request.path.endswith("/chat/completions") else response
        return web.json_response(shown(turn, f"{program}-{thread}-{index}", body["model"]))


def completion(turn, name, model):
    message = {"role": "assistant", "content": turn.text or None}
    if turn.tool_calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": written(call)}}
            for call in turn.tool_calls
        ]
    reason = "tool_calls" if turn.tool_calls else "stop"
    tokens = turn.output_tokens
    return {
        "id": name, "object": "chat.completion", "created": 1, "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": {"prompt_tokens": 9, "completion_tokens": tokens, "total_tokens": 9 + tokens},
    }  # fmt: skip


def response(turn, name, model):
    text = {"type": "output_text", "text": turn.text, "annotations": []}
    said = {
        "type": "message", "id": f"msg-{name}", "role": "assistant", "status": "completed", "content": [text]
    }  # fmt: skip
    calls = [
        {"type": "function_call", "id": f"fc-{name}-{i}", "call_id": call.id, "name": call.name,
         "arguments": written(call), "status": "completed"}
        for i, call in enumerate(turn.tool_calls)
    ]  # fmt: skip
    return {
        "id": name, "object": "response", "created_at": 1, "model": model, "status": "completed",
        "output": [*([said] if turn.text or not calls else []), *calls], "parallel_tool_calls": True,
        "tool_choice": "auto", "tools": [], "usage": {
            "input_tokens": 9, "output_tokens": turn.output_tokens, "total_tokens": 9 + turn.output_tokens,
            "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0},
        },
    }  # fmt: skip


def written(call):
    return json.dumps(dict(call.arguments))


@asynccontextmanager
async def fake_chat(scripts):
    server = FakeChat(scripts)
    app = web.Application(client_max_size=1 << 26)
    for path in ("chat/completions", "responses"):
        app.router.add_post("/p/{program}/{thread}/v1/" + path, server.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield server
    finally:
        await runner.cleanup()
