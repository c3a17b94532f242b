"""Messages between the virtual engine and its worker: a pickle behind its length.

Requests are ``(method, arguments)``, answers ``(ok, result or Failure, State)``. Before it answers, a
worker may send a ``Question``, whose answer comes back as it is. The objects are ours on both sides:
pickle, because policies, latency models and calls travel as they are.
"""

from __future__ import annotations

import pickle
from typing import Any, BinaryIO, NamedTuple

from vocabulary import INF, Decision, Step

_HEADER = 8


class State(NamedTuple):
    """The engine after a request: times in s, and what was recorded since the last answer."""

    clock: float = INF
    results_at: float = 0.0
    steps: tuple[Step, ...] = ()
    decisions: tuple[Decision, ...] = ()


class Question(NamedTuple):
    """What the worker wants to know from a policy on the other side: a name, and arguments."""

    name: str
    arguments: tuple[Any, ...]


class Failure(NamedTuple):
    """An exception in the worker. ``usage``: it was the request's fault (ValueError)."""

    message: str
    traceback: str
    usage: bool


def send(stream: BinaryIO, message: Any) -> None:
    """Write one message. Raises OSError if the other side is gone."""
    data = pickle.dumps(message, protocol=5)
    stream.write(len(data).to_bytes(_HEADER, "big"))
    stream.write(data)
    stream.flush()


def receive(stream: BinaryIO) -> bytes:
    """The next message, still pickled. Raises EOFError if the other side is gone."""
    size = int.from_bytes(_exactly(stream, _HEADER), "big")
    return _exactly(stream, size)


def _exactly(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if data is None or len(data) < size:
        raise EOFError
    return data
