"""One call to a server, as every client of the live driver is asked for it and answers it.

Times are of ``time.monotonic`` in seconds. No HTTP here: importing it costs nothing.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Protocol, overload

Chunk = tuple[float, int]
"""When it was received (s), and how many tokens it had: an engine may send several at once."""


@dataclass(frozen=True)
class Request:
    """One call: exactly ``output_tokens`` tokens are asked for, greedily.

    ``name`` is what the server's logs call it; ``caller`` becomes ``vllm_xargs``; prompts share cached
    prefixes within one ``cache_salt`` only ("" : all do). ``headers`` are sent besides the client's own.
    """

    name: str
    prompt: Sequence[int]
    output_tokens: int
    caller: Mapping[str, str] = field(default_factory=dict)
    cache_salt: str = ""
    logprobs: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)


class Chunks(Sequence[Chunk]):
    """The chunks of a reply that had tokens, in 12 bytes each: a run keeps millions of them."""

    __slots__ = ("_counts", "_times")

    def __init__(self, chunks: Iterable[Chunk] = ()) -> None:
        self._times, self._counts = array("d"), array("i")
        for time, tokens in chunks:
            self.add(time, tokens)

    def add(self, time: float, tokens: int) -> None:
        """One more was received."""
        self._times.append(time)
        self._counts.append(tokens)

    def __len__(self) -> int:
        return len(self._times)

    def __iter__(self) -> Iterator[Chunk]:
        return zip(self._times, self._counts, strict=True)

    @overload
    def __getitem__(self, at: int) -> Chunk: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Chunk]: ...

    def __getitem__(self, at: int | slice) -> Chunk | Sequence[Chunk]:
        if isinstance(at, slice):
            return list(zip(self._times[at], self._counts[at], strict=True))
        return self._times[at], self._counts[at]


@dataclass(frozen=True)
class Response:
    """Token truth is the server's: ``prompt_tokens`` and ``output_tokens`` are its usage; ``logprobs``
    of the chosen tokens (natural logarithm), empty unless asked for.

    ``t_first``, ``t_last``: when the first and last chunk with tokens was received; of a client that takes
    replies whole, the body's first and last bytes. ``chunks`` is empty where replies
    come whole.
    """

    tokens: tuple[int, ...]
    prompt_tokens: int
    output_tokens: int
    t_send: float
    t_first: float
    t_last: float
    logprobs: tuple[float, ...] = ()
    chunks: Sequence[Chunk] = ()
    finish_reason: str = ""


class CallFailed(RuntimeError):
    """The server refused a call, broke off, or sent what is no reply; names the call."""


class Client(Protocol):
    """What the live driver needs of a client."""

    async def complete(self, request: Request) -> Response:
        """Raises CallFailed."""


def gaps(chunks: Sequence[Chunk]) -> list[Chunk]:
    """(seconds since the chunk before, tokens) of each chunk but the first, whose time is TTFT and no gap."""
    return [(at - before, n) for (before, _), (at, n) in pairwise(chunks)]


def tpot(chunks: Sequence[Chunk]) -> float | None:
    """Seconds per token after the first chunk; None where none came, as in a reply of one token."""
    later = sum(n for _, n in chunks[1:])
    return (chunks[-1][0] - chunks[0][0]) / later if later else None


def request_body(model: str, request: Request) -> dict[str, Any]:
    """What /v1/completions is asked, but for how the reply is to come."""
    body: dict[str, Any] = {
        "model": model,
        "prompt": list(request.prompt),
        "max_tokens": request.output_tokens,
        "min_tokens": request.output_tokens,
        "ignore_eos": True,
        "temperature": 0,
        "return_token_ids": True,
        "vllm_xargs": dict(request.caller),
    }
    if request.cache_salt:
        body["cache_salt"] = request.cache_salt
    if request.logprobs:
        body["logprobs"] = 1
    return body


def verify_lengths(request: Request, found: Response) -> None:
    """Lengths are forced: what comes back must be what was asked for. Raises CallFailed."""
    asked, got = (len(request.prompt), request.output_tokens), (found.prompt_tokens, found.output_tokens)
    if asked != got or len(found.tokens) != request.output_tokens:
        raise CallFailed(
            f"call {request.name}: asked for (prompt, output) of {asked} tokens, the server counts {got} "
            f"and returns {len(found.tokens)}"
        )


def one_line(body: bytes) -> str:
    """The beginning of what a server said, for a message."""
    return " ".join(body.decode(errors="replace").split())[:300]
