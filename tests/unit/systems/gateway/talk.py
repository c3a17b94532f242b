"""Agents with random conversations, an engine that counts their tokens by a known rule, and what was true.

The engine takes 4 bytes of our rendering (role, line break, content) for a token, but a reply that is quoted
for what it generated. Contents are as long as makes every message whole blocks of 128 bytes, so tokens at the
ends of messages are exact.
"""

import asyncio
import json
import random
from dataclasses import dataclass, field

from systems.gateway.record.hashes import TEXT_BLOCK
from tests.unit.systems.gateway.engines import Engine, world

PER_TOKEN = 4
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def content(role, blocks, draw):
    """Text with which a message of this role is so many blocks."""
    return "".join(draw.choices(LETTERS, k=blocks * TEXT_BLOCK - len(role) - 1))


def message(role, blocks, draw):
    return {"role": role, "content": content(role, blocks, draw)}


def rendered(one):
    return one["role"] + "\n" + one["content"]


@dataclass(eq=False)
class Asked:
    """A call as it was: ``output`` identifies it, no two are as long."""

    who: str
    thread: str
    messages: list
    prompt_tokens: int
    output: int
    reply: dict


@dataclass
class Truth:
    """What the engine did: calls by the length of their reply; ``generated``: replies' texts -> tokens."""

    draw: random.Random
    calls: dict = field(default_factory=dict)
    generated: dict = field(default_factory=dict)

    def tokens(self, one):
        return self.generated.get(one["content"]) or len(rendered(one)) // PER_TOKEN

    async def answer(self, call):
        messages = call.body["messages"]
        output = 10 + len(self.calls)
        reply = message("assistant", self.draw.randint(1, 3), self.draw)
        tokens = sum(map(self.tokens, messages))
        self.calls[output] = Asked(
            call.headers.get("x-session-id", ""), call.headers.get("x-thread-id", ""), messages, tokens,
            output, reply,
        )  # fmt: skip
        await asyncio.sleep(self.draw.uniform(0.001, 0.008))
        usage = {"prompt_tokens": tokens, "completion_tokens": output}
        self.generated[reply["content"]] = output
        if call.body.get("stream"):
            await self.stream(call, reply["content"], usage)
        else:
            call.reply({"choices": [{"message": reply}], "usage": usage})

    async def stream(self, call, text, usage):
        call.begin()
        while text:
            piece, text = text[:50], text[50:]
            call.chunk(
                "data: " + json.dumps({"choices": [{"index": 0, "delta": {"content": piece}}]}) + "\n\n"
            )
        call.end(usage)


class Agent:
    """One conversation; ``who`` "" names no session."""

    def __init__(self, w, who, messages, draw, thread=""):
        self.w, self.who, self.messages, self.draw, self.thread = w, who, list(messages), draw, thread

    async def ask(self):
        headers = {"X-Session-ID": self.who} if self.who else {}
        headers |= {"X-Thread-ID": self.thread} if self.thread else {}
        stream = self.draw.random() < 0.5
        body = {"model": "m", "messages": list(self.messages), "stream": stream}
        status, _, raw = await self.w.post("/v1/chat/completions", body, headers)
        assert status == 200
        self.messages.append({"role": "assistant", "content": said(raw, stream)})

    async def turns(self, n):
        """``n`` calls, with a tool, and at times a change in the middle of what came before, between two."""
        for number in range(n):
            if number:
                await asyncio.sleep(self.draw.uniform(0, 0.006))
                self.messages.append(
                    message(self.draw.choice(["tool", "user"]), self.draw.randint(1, 3), self.draw)
                )
                if self.draw.random() < 0.2:
                    self.edit()
            await self.ask()

    def edit(self):
        """A message in the middle is another one from its second block on, or gone."""
        place = self.draw.randrange(len(self.messages))
        one = self.messages[place]
        if self.draw.random() < 0.3 and len(self.messages) > 1:
            del self.messages[place]
        elif len(one["content"]) > TEXT_BLOCK:
            rest = "".join(self.draw.choices(LETTERS, k=len(one["content"]) - TEXT_BLOCK))
            self.messages[place] = one | {"content": one["content"][:TEXT_BLOCK] + rest}

    def fork(self, thread):
        return Agent(self.w, self.who, self.messages, self.draw, thread)


def said(raw, stream):
    if not stream:
        return json.loads(raw)["choices"][0]["message"]["content"]
    events = [line[6:] for line in raw.decode().splitlines() if line.startswith("data: {")]
    choices = [choice for event in events for choice in json.loads(event)["choices"]]
    return "".join(choice["delta"]["content"] for choice in choices)


async def program(w, who, systems, draw):
    """A program: a line of calls, perhaps threads beside it, perhaps calls at once under one thread."""
    agent = Agent(w, who, [draw.choice(systems), message("user", draw.randint(1, 3), draw)], draw)
    await agent.turns(draw.randint(1, 3))
    if who and draw.random() < 0.6:
        named = draw.random() < 0.6
        forks = [agent.fork(f"t{k}" if named else "") for k in range(draw.randint(1, 3))]
        for fork in forks:
            fork.messages.append(message("user", 1, draw))
        mine = [fork.turns(draw.randint(1, 3)) for fork in forks]
        if draw.random() < 0.5:
            agent.messages.append(message("tool", 1, draw))
            mine.append(agent.turns(draw.randint(1, 2)))
        await asyncio.gather(*mine)
        if draw.random() < 0.7:
            agent.messages.append(message("tool", 2, draw))
            await agent.turns(1)


async def talk(folder, seed, attach):
    """(truth, passages) of some programs that a gateway recorded in ``folder``."""
    draw = random.Random(seed)
    truth = Truth(random.Random(seed + 1))
    systems = [message("system", draw.randint(1, 4), draw) for _ in range(2)]
    async with world(Engine(truth.answer), system="session-pinned", observe=True, record=str(folder)) as w:
        attach(w.gateway)
        names = [f"p{k}" if draw.random() < 0.8 else "" for k in range(draw.randint(1, 4))]
        await asyncio.gather(
            *(program(w, name, systems, random.Random(f"{seed}/{k}")) for k, name in enumerate(names))
        )
    return truth, w.watch.passages
