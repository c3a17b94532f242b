"""Where agents' tools run: what a sandbox offers, and what it says of itself (docs/sandboxes.md).

One file per kind in this folder with a module-level ``SANDBOX``, found by scanning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol


class SandboxError(RuntimeError):
    """A sandbox could not be made, used or torn down: which one, why, and what would help."""


class SandboxEvent(NamedTuple):
    """Something happened to a sandbox. ``time``: CLOCK_MONOTONIC (s) at its begin, ``seconds`` it took.

    ``what``: init, exec, teardown, retry (of a teardown), share, unshare, leak, kill (a tool that hung).
    ``ok``: whether it came out well; ``disk``: bytes it holds then (-1 unknown); ``ports``: that it has now;
    ``detail``: a word or two, never what a tool printed.
    """

    time: float
    sandbox: str
    what: str
    seconds: float
    ok: bool
    disk: int = -1
    ports: tuple[int, ...] = ()
    detail: str = ""


class Executed(NamedTuple):
    """A command that was run. ``code``: its exit status, negative for a signal; ``timed_out``: it was killed;
    ``seconds``. ``output``: stdout and stderr as they came (from docker in no order between the two), at most
    ``SandboxOptions.most_output`` bytes."""

    code: int
    output: str
    seconds: float
    timed_out: bool = False


@dataclass(frozen=True)
class SandboxOptions:
    """What every kind is given. ``name``: unique on this machine, of letters, digits and hyphens.

    ``folder``: an empty folder of its own on the host, for what the sandbox keeps (its workspace among it).
    ``files``: text by path, in the workspace from the start. ``ports``: how many TCP ports of the host it is
    dealt (their numbers are in BENCH_PORTS in its environment). ``network``: whether tools may use it.
    ``memory_mb`` and ``disk_mb`` are limits where the kind can set them. ``image``: of a container, or "".
    ``owner``: of the run, so that what a crash leaves is found (``workloads.sandboxes.ledger``).
    """

    name: str
    folder: Path
    files: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    ports: int = 0
    network: bool = False
    memory_mb: int | None = None
    disk_mb: int | None = None
    most_output: int = 65_536
    image: str = ""
    owner: str = ""


class Sandbox(Protocol):
    """One sandbox, of one event loop; several ``exec`` may run in it at once."""

    name: str
    ports: tuple[int, ...]

    async def init(self) -> None:
        """Make it ready. Raises SandboxError, and then nothing of it is left."""

    async def exec(
        self, command: str, *, timeout_s: float = 60.0, stdin: str = "", cwd: str = ""
    ) -> Executed:
        """Run a line of ``sh`` in the workspace (or ``cwd`` in it). Raises SandboxError if that is gone.

        A command that takes longer than ``timeout_s`` is killed with all that it started.
        """

    async def write(self, path: str, text: str) -> None:
        """A file of the workspace. Raises SandboxError (a full disk, a path outside)."""

    async def read(self, path: str) -> str:
        """A file of the workspace as text. Raises SandboxError."""

    async def disk(self) -> int:
        """Bytes that it holds now: its workspace and whatever else its tools wrote."""

    async def teardown(self) -> None:
        """Nothing of it is left. Idempotent, retried; raises SandboxError if something stays all the same."""


class SandboxKind(Protocol):
    """A back end: ``process``, ``bwrap``, ``docker``. It may have ``uses_engine`` (True: it has containers,
    so that an engine which does not answer may hide some)."""

    name: str

    def missing(self) -> str:
        """Why this machine cannot have it, and what would help; "" if it can."""

    def make(self, options: SandboxOptions, told: Callable[[SandboxEvent], None]) -> Sandbox:
        """A sandbox that is not there yet; ``told`` hears what happens to it."""

    def sweep(self, owner: str | None = None) -> list[str]:
        """Remove what runs that are gone left (``owner``: that one, alive or not); in words, a line each."""
