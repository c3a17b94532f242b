"""An engine that already runs, started by somebody else: asked for its facts, never stopped."""

from __future__ import annotations

import os
import time
import urllib.parse
from pathlib import Path
from typing import Any

from systems.engines.vllm_virtual import EngineUnavailable
from systems.provision.recipe import START_S, asked, healthy


class Attached:
    """A server behind ``url`` (http://HOST:PORT; a trailing /v1 is dropped), as a LiveEngine.

    ``key``: sent as Bearer where it asks for one. ``calls``, ``steps``, ``control``: the logs and the socket
    of our scheduler class, where its owner mounted it and they can be read here.
    Raises EngineUnavailable for a URL that is none, or if it does not answer.
    """

    def __init__(
        self, url: str, name: str = "", *, folder: Path = Path("."), key: str = "",
        calls: Path | None = None, steps: Path | None = None, control: str | None = None,
    ) -> None:  # fmt: skip
        self.url = _base(url)
        self.name = name or self.url.partition("://")[2]
        self.folder = folder
        self.calls = calls
        self.steps = steps
        self.control = control
        self._key = key
        self._facts: dict[str, Any] = {}

    def begin(self) -> None:
        """Nothing is started. Raises EngineUnavailable if a log that was named is not there."""
        for log in filter(None, (self.calls, self.steps)):
            if not os.access(log, os.R_OK):
                raise EngineUnavailable(f"{self.name}: cannot read {log}, which is to be its log")

    def ready(self, limit_s: float = START_S) -> None:
        """Wait until it answers, and ask what it is."""
        deadline = time.monotonic() + limit_s
        while not healthy(self.url):
            if time.monotonic() > deadline:
                raise EngineUnavailable(
                    f"{self.url}/health does not answer within {limit_s:g} s: does it run?"
                )
            time.sleep(0.2)
        self._facts = self._ask()

    def check(self) -> None:
        """Raises EngineUnavailable if it does not answer now, after it had been ready."""
        if self._facts and not healthy(self.url):
            raise EngineUnavailable(f"{self.url}/health does not answer any more")

    def words(self) -> str:
        """Where its output would be."""
        return "its output is where it was started"

    def facts(self) -> dict[str, Any]:
        """kind, version, models; no key."""
        return {"kind": "attached", "how": "attached", "url": self.url, **self._facts}

    def stop(self) -> None:
        """It is left alone."""

    def _ask(self) -> dict[str, Any]:
        """What it says of itself. Raises EngineUnavailable if it has no /v1/models."""
        models = asked(self.url, "/v1/models", self._key)
        listed = models.get("data") if isinstance(models, dict) else None
        if not isinstance(listed, list) or not listed or not all(isinstance(one, dict) for one in listed):
            raise EngineUnavailable(
                f"{self.url}/v1/models lists no model: is this an OpenAI-compatible engine?"
            )
        found: dict[str, Any] = {
            "models": [str(one.get("id")) for one in listed],
            "max_model_len": listed[0].get("max_model_len"),
        }
        for kind, path in (("vllm", "/version"), ("sglang", "/server_info"), ("sglang", "/get_server_info")):
            try:
                said = asked(self.url, path, self._key)
            except EngineUnavailable:
                continue
            if isinstance(said, dict) and "version" in said:
                return found | {"kind": kind, "version": str(said["version"])}
        return found


def _base(url: str) -> str:
    parts = urllib.parse.urlsplit(url if "://" in url else f"http://{url}")
    try:
        sound = parts.scheme in ("http", "https") and parts.hostname is not None and (parts.port or 1) > 0
    except ValueError:
        sound = False
    if not sound or parts.path.rstrip("/") not in ("", "/v1") or parts.query or parts.username:
        raise EngineUnavailable(f"{url!r} is no engine's address: write http://HOST:PORT")
    return f"{parts.scheme}://{parts.netloc}"
