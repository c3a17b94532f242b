"""One call on its way: to the engine, and its reply back, with a script's turn in it or as it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web

from workloads.agents.contract import Turn
from workloads.agents.relay.bodies import BadBody, parsed, written
from workloads.agents.relay.contract import RelayCall
from workloads.agents.relay.dialect import Counted, Dialect, Refused, Seen
from workloads.agents.relay.passing import back
from workloads.agents.relay.sse import Event, Splitter

SSE = "text/event-stream"


class ClientLeft(Exception):
    """The agent's connection is gone."""


class BrokenOff(Exception):
    """Upstream ended a reply before its end, or answered what is no reply: which."""


@dataclass
class Passage:
    """A call. ``asked``: its body; ``turn``: what the script says, None without one; ``over`` hears how it
    came out, once, before the agent can know that it is over."""

    request: web.Request
    dialect: Dialect
    call: RelayCall
    asked: Mapping[str, Any]
    turn: Turn | None
    over: Callable[[RelayCall], None]
    counted: Counted = field(default_factory=Counted)
    settled: bool = False
    begun: bool = False
    _splitter: Splitter = field(default_factory=Splitter)

    def body(self, model: str, caller: Mapping[str, str], cache_salt: str) -> bytes:
        """For the engine. Raises Refused."""
        asked = self.asked
        body = dict(asked) if self.turn is None else self.dialect.forced(asked, tokens(self.turn))
        body |= self.dialect.observed(asked, self.call.name)
        extra = asked.get("vllm_xargs")
        body["vllm_xargs"] = {**(extra if isinstance(extra, Mapping) else {}), **caller}
        body["model"] = model
        if cache_salt:
            body["cache_salt"] = cache_salt
        try:
            return written(body)
        except (TypeError, ValueError, RecursionError) as error:
            raise Refused(f"the body cannot be written: {error}") from None

    def settle(self, outcome: str, reason: str = "") -> None:
        """How it came out; what comes later is not heard."""
        if self.settled:
            return
        self.settled = True
        call = self.call
        if outcome != "finished":
            call.t_last = time.monotonic()
        call.outcome, call.reason = outcome, reason
        call.prompt_tokens, call.output_tokens, call.cached_tokens = self.counted
        self.over(call)

    async def reply(self, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        """Pass the engine's answer on. Raises ClientLeft, BrokenOff, and aiohttp's ClientError."""
        self.call.status = answer.status
        if answer.status == 200 and answer.content_type == SSE:
            return await self._stream(answer)
        return await self._whole(answer)

    # -- in one piece ------------------------------------------------------------------

    async def _whole(self, answer: aiohttp.ClientResponse) -> web.Response:
        pieces = []
        async for piece in answer.content.iter_any():
            if answer.status == 200:  # an error has no token
                self._came()
            pieces.append(piece)
        body = b"".join(pieces)
        if answer.status != 200:
            self.settle("failed", f"upstream answers {answer.status}: {one_line(body)}")
        else:
            body = self._played(body)
            self.settle("finished")
        return web.Response(status=answer.status, body=body, headers=back(answer.headers.items()))

    def _played(self, body: bytes) -> bytes:
        """The reply with the turn in it."""
        try:
            reply = parsed(body)
            self.counted = self.dialect.counted(reply)
            if self.turn is None:
                return body
            return written(self.dialect.whole(reply, self.turn, self.asked))
        except (BadBody, LookupError, TypeError, ValueError) as error:
            if self.turn is None:  # whatever it is, it is the agent's
                return body
            raise BrokenOff(f"no {self.dialect.name} reply ({error!r}): {one_line(body)}") from None

    # -- event by event ----------------------------------------------------------------

    async def _stream(self, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        response = web.StreamResponse(status=answer.status, headers=back(answer.headers.items()))
        await self._sent(response.prepare(self.request))
        self.begun = True
        play: Callable[[Event, Seen], bytes] = self._as_it_is
        if self.turn is not None:
            play = self.dialect.player(self.turn, self.asked).play
        async for piece in answer.content.iter_any():
            out = b"".join(play(event, self._heard(event)) for event in self._splitter.feed(piece))
            if out:
                await self._sent(response.write(out))
        if not self.settled:
            raise BrokenOff("its stream ended before its end")
        return response

    def _as_it_is(self, event: Event, _: Seen) -> bytes:
        return b"" if self.dialect.hidden(self.asked, event) else event.raw

    def _heard(self, event: Event) -> Seen:
        """Take down what an event says."""
        seen = self.dialect.seen(event)
        if seen.counted is not None:
            self.counted = self.counted.and_then(seen.counted)
        if seen.token or seen.over:
            self._came()
        if seen.failed:
            self.settle("failed", f"upstream says in its stream: {seen.failed[:300]}")
        elif seen.over:
            self.settle("finished")
        return seen

    def _came(self) -> None:
        now = time.monotonic()
        if self.call.t_first != self.call.t_first:
            self.call.t_first = now
        self.call.t_last = now

    async def _sent(self, sending: Any) -> None:
        try:
            await sending
        except ConnectionError:
            raise ClientLeft from None

    # -- other ends --------------------------------------------------------------------

    def refuse(self, refused: Refused) -> web.Response:
        """The relay's own words."""
        self.call.status = refused.status
        self.settle("refused", str(refused))
        return self._error(refused.status, str(refused))

    def lost(self, error: Exception) -> web.Response:
        """Upstream is not there or broke off: 502, or an agent's stream that breaks, too."""
        reason = f"upstream: {str(error) or type(error).__name__}"
        self.settle("failed", reason)
        if self.begun and self.request.transport is not None:
            self.request.transport.abort()
        return self._error(502, reason)

    def _error(self, status: int, message: str) -> web.Response:
        return web.Response(
            status=status, body=written(self.dialect.error(status, message)), content_type="application/json"
        )


def tokens(turn: Turn) -> int:
    """What the engine decodes for a turn: at least one token."""
    return max(1, turn.output_tokens)


def one_line(body: bytes) -> str:
    """The beginning of what somebody said, for a message."""
    return " ".join(body.decode(errors="replace").split())[:300]
