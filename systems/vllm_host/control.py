"""The control channel of a live engine: a Unix datagram socket, one JSON object per message (docs/vllm.md).

    from systems.vllm_host.control import Client
    with Client("/run/engine0.sock") as engine:
        engine.send("retain", program="p1", for_s=5.0)
        print(engine.ask("stats"))

Standard library only: the engine's side (``Channel``) and a client.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

MOST = 65_536
"""Bytes of a message."""
LIMIT = 32
"""Messages handled at one step boundary."""
_PATH_BYTES = 107

Handler = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class Channel:
    """The engine's socket at ``path``, which only its user may write to (mode 0600).

    A socket that nobody listens on any more is replaced. Raises ValueError if
    ``path`` is too long for a socket, or something else is there.
    """

    def __init__(self, path: str) -> None:
        if len(os.fsencode(path)) > _PATH_BYTES:
            raise ValueError(
                f"control: {path} is longer than the {_PATH_BYTES} bytes a socket's path may have"
            )
        self.path = path
        _make_way(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        os.fchmod(self._socket.fileno(), 0o600)  # Linux gives the file this mode from the first moment on
        try:
            self._socket.bind(path)
        except OSError as error:
            self._socket.close()
            raise ValueError(f"control: cannot make a socket at {path}: {error.strerror}") from None
        self._socket.setblocking(False)

    def serve(self, handle: Handler) -> None:
        """Handle what has come, at most LIMIT messages; never raises for what a client sent."""
        for _ in range(LIMIT):
            try:
                data, sender = self._socket.recvfrom(MOST)
            except OSError:  # nothing there
                return
            answer = _answer(data, handle)
            if sender and answer is not None:
                with contextlib.suppress(OSError):  # it may be gone, or not read
                    self._socket.sendto(json.dumps(answer).encode(), sender)

    def close(self) -> None:
        """Close and remove the socket; idempotent."""
        if self._socket.fileno() >= 0:
            self._socket.close()
            Path(self.path).unlink(missing_ok=True)


class Client:
    """Talks to the engine behind ``path``. Raises OSError if nobody listens there.

    ``timeout``: seconds ``ask`` waits. An engine reads its messages at a step
    boundary: one without calls answers when the next call comes.
    """

    def __init__(self, path: str, timeout: float = 5.0) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(timeout)
        try:
            self._socket.bind(f"{self._folder.name}/client.sock")
            self._socket.connect(path)
        except OSError:
            self.close()
            raise

    def send(self, op: str, **fields: Any) -> None:
        """One message, answered or not. Raises OSError if the engine is gone or does not keep up."""
        self._socket.send(json.dumps({"op": op, **fields, "quiet": True}).encode())

    def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        """One message and its answer. Raises TimeoutError, OSError, ValueError with the engine's reason."""
        self._socket.send(json.dumps({"op": op, **fields}).encode())
        answer: dict[str, Any] = json.loads(self._socket.recv(MOST))
        if "error" in answer:
            raise ValueError(answer["error"])
        return answer

    def close(self) -> None:
        """Done; idempotent."""
        self._socket.close()
        self._folder.cleanup()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _answer(data: bytes, handle: Handler) -> Mapping[str, Any] | None:
    try:
        message = json.loads(data)
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict):
        return {"error": f"a message is one JSON object, got {data[:60]!r}"}
    try:
        answer = handle(message)
    except (ValueError, OverflowError) as error:
        answer = {"error": str(error)}
    return None if message.get("quiet") is True and "error" not in answer else answer


def _make_way(path: str) -> None:
    """Remove a socket without a listener. Raises ValueError for anything else."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return
    if not stat.S_ISSOCK(mode):
        raise ValueError(f"control: {path} exists and is no socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(path)
        except OSError:
            Path(path).unlink()
            return
    raise ValueError(f"control: another engine listens on {path}")
