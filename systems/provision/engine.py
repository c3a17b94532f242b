"""What every live engine is to those who start it: a server that answers HTTP, whoever runs it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol


class LiveEngine(Protocol):
    """A server of one engine: a process, a container, or one that runs already (attached).

    ``name``: in messages and logs. ``url``: http://HOST:PORT without a path, once ``begin`` returned.
    ``calls``, ``steps``: the logs of our scheduler class (docs/vllm.md), None where it is not mounted;
    ``control``: path of its control socket, None if it has none. ``folder`` keeps its output.
    """

    name: str
    url: str
    folder: Path
    control: str | None

    @property
    def calls(self) -> Path | None: ...  # noqa: D102 (a property: an engine may promise a Path)
    @property
    def steps(self) -> Path | None: ...  # noqa: D102

    def begin(self) -> None:
        """Start without waiting, so that several can start together. Raises EngineUnavailable."""

    def ready(self, limit_s: float = ...) -> None:
        """Wait until it answers; it is stopped if it does not. Raises EngineUnavailable."""

    def check(self) -> None:
        """Raises EngineUnavailable, with its last words, if it has ended."""

    def words(self) -> str:
        """The last lines of its output that tell something."""

    def facts(self) -> Mapping[str, Any]:
        """For the manifest: kind, version, command line (secrets hidden), image digest, cores."""

    def stop(self) -> None:
        """Take it down, and all it started; idempotent. An attached one is left alone."""
