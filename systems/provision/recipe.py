"""What is common to servers of any kind: how they are told where they run, and what of it may be shown."""

from __future__ import annotations

import http.client
import json
import re
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from systems.engines.vllm_virtual import EngineUnavailable

START_S = 300.0
"""A server that does not answer by then is given up (25 s on a quiet CPU, minutes on a busy one or for a
large model: pass more)."""
HEALTH_S = 2.0
"""A question to a server may take so long."""
WORDS = 400
"""Characters of what a server said last: its beginning and its end."""
HIDDEN = "***"
_RAISED = re.compile(r"[\w.]*(?:Error|Exception|Interrupt): \S")
"""The last line of a traceback."""
_NO_ANSWER = (OSError, ValueError, http.client.HTTPException)
"""ValueError: what answers is no JSON, or no HTTP at all."""
_SECRET = re.compile(r"[-_.](?:token|keys?|secret|password)$", re.IGNORECASE)


class Place(NamedTuple):
    """Where a server runs, as it sees it itself: in a container, ``folder`` and ``model`` are mounts.

    ``folder`` takes its logs; ``model``: a folder or a name of the model hub; ``control``: path of the
    socket it shall make, None: none.
    """

    port: int
    folder: Path
    model: str
    host: str = "127.0.0.1"
    control: str | None = None


class Recipe(Protocol):
    """A kind of server and how it is configured: what a process and a container have in common.

    ``kind``: vllm or sglang. ``image``: what its makers publish. ``mounted``: our scheduler class is in
    it, so it writes calls.jsonl and steps.jsonl. ``controlled``: it makes a control socket.
    ``gpu``: it needs one. ``name``: what requests name as ``model``.
    """

    @property
    def kind(self) -> str: ...  # noqa: D102
    @property
    def image(self) -> str: ...  # noqa: D102
    @property
    def model(self) -> Path | str: ...  # noqa: D102
    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def mounted(self) -> bool: ...  # noqa: D102
    @property
    def controlled(self) -> bool: ...  # noqa: D102
    @property
    def gpu(self) -> bool: ...  # noqa: D102
    @property
    def hf_cache(self) -> Path | None: ...  # noqa: D102

    def command(self, place: Place) -> list[str]:
        """The words behind the Python."""

    def environment(self) -> Mapping[str, str]:
        """What it needs in its environment, without secrets."""


def hidden(words: Sequence[str], secrets: Sequence[str] = ()) -> list[str]:
    """A command line whose values of ``--api-key`` and the like, and ``secrets`` anywhere, are hidden."""
    shown: list[str] = []
    follows = False
    for word in words:
        name, equals, _ = word.partition("=")
        option = word.startswith("--")
        if option:
            follows = not equals and _SECRET.search(name) is not None
        if option and equals and _SECRET.search(name):
            word = f"{name}={HIDDEN}"
        elif follows and not option:  # --api-key takes several
            word = HIDDEN
        for secret in filter(None, secrets):
            word = word.replace(secret, HIDDEN)
        shown.append(word)
    return shown


def told(text: str, where: Path) -> str:
    """The last line of a server's output that tells something, as a sentence."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if "root cause above" not in line]
    raised = [line for line in causes if _RAISED.match(line)]
    errors = [line for line in causes if "Error" in line and not line.startswith("raise ")]
    last = ((raised or errors or lines)[-1:] or ["nothing"])[0]
    words = last if len(last) <= WORDS else f"{last[: WORDS // 2]} .. {last[-WORDS // 2 :]}"
    return f"its last words: {words} (all of them: {where})"


def healthy(url: str, limit_s: float = HEALTH_S) -> bool:
    """Whether the server answers ``/health`` with 200."""
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=limit_s) as reply:
            return bool(reply.status == 200)
    except _NO_ANSWER:
        return False


def asked(url: str, path: str, key: str = "", limit_s: float = HEALTH_S) -> Any:
    """The JSON that GET ``path`` answers. Raises EngineUnavailable saying what came instead."""
    request = urllib.request.Request(f"{url}{path}")
    if key:
        request.add_header("Authorization", f"Bearer {key}")
    try:
        with urllib.request.urlopen(request, timeout=limit_s) as reply:
            return json.load(reply)
    except urllib.error.HTTPError as error:
        raise EngineUnavailable(f"{url}{path} answers {error.code} {error.reason}") from None
    except _NO_ANSWER as error:
        raise EngineUnavailable(f"{url}{path} does not answer with JSON: {error}") from None
