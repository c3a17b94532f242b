"""A server as a process of this machine that never outlives us, unless it is told to (``bench up``)."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from systems.engines.vllm_virtual import ROOT, EngineUnavailable
from systems.provision.recipe import START_S, Place, Recipe, healthy, hidden, told

STOP_S = 15.0
_SOCKET_BYTES = 107
SECRETS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
"""Environment variables whose values are never shown."""
GRACE_S = 10.0
"""A server whose starter is gone gets so long to end in order."""
GUARD = Path(__file__).with_name("guard.py")


class ServerProcess:
    """One server, a LiveEngine; ``start`` or ``with`` brings it up, ``stop`` takes it down.

    ``folder`` gets server.log and the logs of our scheduler class, where that is in it (docs/vllm.md). The
    server dies with the *thread* that starts it (``guard.py``; Linux's parent-death signal): start it from
    one that lives on. With ``outlives`` it does not: who starts it so must remember it. ``port`` 0: a free
    one; another one must be free. ``extra``: more environment variables.
    Raises EngineUnavailable if its program is not there, the port is taken, or it ends or does not answer.
    """

    title = "server"

    def __init__(
        self, recipe: Recipe, folder: Path, python: Path | None = None, *, name: str = "", port: int = 0,
        outlives: bool = False, extra: Mapping[str, str] = {},
    ) -> None:  # fmt: skip
        self.recipe = recipe
        self.folder = folder
        self.name = name or folder.name
        self.url = ""
        self.output = folder / "server.log"
        self.calls: Path | None = folder / "calls.jsonl" if recipe.mounted else None
        self.steps: Path | None = folder / "steps.jsonl" if recipe.mounted else None
        self.control: str | None = None
        self.outlives = outlives
        self._port = port
        self._extra = dict(extra)
        self._python = python
        self._command: list[str] = []
        self._asked = False
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = threading.Lock()
        self._sockets: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def python(self) -> Path:
        """The Python that has the server. Raises EngineUnavailable if there is none."""
        if self._python is None:
            raise EngineUnavailable(f"{self.title}: no Python was named that has it")
        return self._python

    def start(self, limit_s: float = START_S) -> None:
        """Start and wait until it answers."""
        self.begin()
        self.ready(limit_s)

    def begin(self) -> None:
        """Start; ``ready`` waits for it, so that several can start together. Old logs are removed."""
        python = Path(
            os.path.abspath(self.python())
        )  # it runs in a folder of its own; no symlink is resolved
        if not os.access(python, os.X_OK) or python.is_dir():
            raise EngineUnavailable(f"{self.title}: cannot run {python}: it is not there, or no program")
        port = self._port or free_port()
        if self._port:
            refuse_taken(self._port)
        self.folder.mkdir(parents=True, exist_ok=True)
        for old in ("calls.jsonl", "steps.jsonl", "server.log"):
            (self.folder / old).unlink(missing_ok=True)
        self.control = self._socket_path() if self.recipe.controlled else None
        model = self.recipe.model
        model = str(model.resolve()) if isinstance(model, Path) else model
        place = Place(port, self.folder.resolve(), model, control=self.control)
        self._command = self.recipe.command(place)
        self._asked = False
        with self.output.open("wb") as output:
            self._process = self._launch(python, output)
        self.url = f"http://127.0.0.1:{port}"

    def ready(self, limit_s: float = START_S) -> None:
        """Wait until it answers, and settle it. If it does not, it is stopped."""
        try:
            self._await_health(time.monotonic() + limit_s, limit_s)
            self.settle()
        except BaseException:  # Ctrl-C, too
            self.stop()
            raise

    def settle(self) -> None:
        """What is to be done once it answers."""

    def ask(self) -> None:
        """Ask it to end, without waiting: so several can end together. ``stop`` is still to be called."""
        process = self._process
        if process is not None and not self._asked:
            self._asked = True
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)

    def stop(self) -> None:
        """Ask it to end, then make it: nothing of its process group is left."""
        with self._stopping:
            process, self._process = self._process, None
        if process is not None:
            end_group(process.pid, process, asked=self._asked)
        if self._sockets is not None:
            self._sockets.cleanup()
            self._sockets = None

    @property
    def pid(self) -> int | None:
        """Of the process (its guard) that leads its session and group; None if it does not run."""
        return None if self._process is None else self._process.pid

    def check(self) -> None:
        """Raises EngineUnavailable, with its last words, if the server has ended."""
        process = self._process
        if process is None:
            raise EngineUnavailable(f"{self.title}: it is not running")
        if process.poll() is not None:
            raise EngineUnavailable(
                f"{self.title}: it ended (exit code {process.returncode}); {self.words()}"
            )

    def words(self) -> str:
        """The last lines of its output that tell something."""
        text = self.output.read_text(errors="replace") if self.output.is_file() else ""
        return told(text, self.output)

    def facts(self) -> dict[str, Any]:
        """For the manifest; the values of SECRETS and of options named like them are hidden."""
        words = [str(self.python()), *self._command]
        secrets = [os.environ.get(name, "") for name in SECRETS]
        return {"kind": self.recipe.kind, "how": "process", "command": hidden(words, secrets)}

    def processes(self) -> dict[int, str]:
        """pid -> name of every process of the server."""
        return {} if self._process is None else dict(group(self._process.pid))

    def _await_health(self, deadline: float, limit_s: float) -> None:
        while True:
            self.check()
            if healthy(self.url):
                self.check()  # one that has just ended leaves its port to others
                self._refuse_stranger()
                return
            if time.monotonic() > deadline:
                raise EngineUnavailable(f"{self.title}: no answer within {limit_s:g} s; {self.words()}")
            time.sleep(0.2)

    def _refuse_stranger(self) -> None:
        """Between the look for a free port and its use, another process may have taken it.

        Raises EngineUnavailable if those that listen there can be told, and none is of this server.
        """
        port = int(self.url.rpartition(":")[2])
        found = listeners(port)
        if found and not found.keys() & self.processes().keys():
            who = ", ".join(f"pid {pid} ({name})" for pid, name in found.items())
            raise EngineUnavailable(f"{self.title}: port {port} was taken by {who} while it started")

    def _socket_path(self) -> str:
        """In the folder, unless that is too long for a socket's name."""
        path = str(self.folder.resolve() / "control.sock")
        if len(os.fsencode(path)) <= _SOCKET_BYTES:
            return path
        if self.outlives:
            raise EngineUnavailable(f"{self.title}: {path} is too long for a socket: name a shorter folder")
        self._sockets = tempfile.TemporaryDirectory(prefix="bench-")
        return f"{self._sockets.name}/control.sock"

    def _launch(self, python: Path, output: Any) -> subprocess.Popen[bytes]:
        """The process, leader of a session of its own; it ends when this thread does, or outlives us."""
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        guard = [sys.executable, "-I", "-S", str(GUARD), str(os.getpid()), str(GRACE_S)]
        try:
            return subprocess.Popen(
                [*([] if self.outlives else guard), str(python), *self._command],
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd=self.folder,
                env={**os.environ, **self.recipe.environment(), "PYTHONPATH": path, **self._extra},
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise EngineUnavailable(f"{self.title}: cannot run {python}: {error}") from None


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def refuse_taken(port: int) -> None:
    """Raises EngineUnavailable, with who has it where that can be told, if ``port`` of 127.0.0.1 is taken."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # one that is only closing is free
        try:
            probe.bind(("127.0.0.1", port))
        except PermissionError:
            raise EngineUnavailable(
                f"port {port} needs root: take one from 1024 on, or 0 for a free one"
            ) from None
        except (OSError, OverflowError) as error:
            owner = listener(port)
            by = f" by {owner}" if owner else ""
            reason = "is taken" + by if isinstance(error, OSError) else f"is none: {error}"
            raise EngineUnavailable(f"port {port} {reason}: give another one, or 0 for a free one") from None


def listener(port: int) -> str:
    """A process that listens on a TCP port here, as "pid 7 (name)"; "" where that cannot be told."""
    return next((f"pid {pid} ({name})" for pid, name in listeners(port).items()), "")


def listeners(port: int) -> dict[int, str]:
    """pid -> name of those that have a socket which listens on a TCP port here; those of other users are
    not seen."""
    inodes, found = set(), {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                    inodes.add(f"socket:[{fields[9]}]")
    for entry in Path("/proc").iterdir() if inodes else ():
        if entry.name.isdigit() and inodes.intersection(_open_files(entry)):
            with contextlib.suppress(OSError):
                found[int(entry.name)] = _title(entry)
    return found


def _open_files(process: Path) -> Iterator[str]:
    """What a process has open; files that it closes meanwhile are left out, not the process."""
    with contextlib.suppress(OSError):
        for file in (process / "fd").iterdir():
            with contextlib.suppress(OSError):
                yield os.readlink(file)


def group(leader: int) -> Iterator[tuple[int, str]]:
    """(pid, name) of the living processes of a process group."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError, IndexError, ValueError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[2]) == leader and fields[0] != "Z":
                yield int(entry.name), _title(entry)


def end_group(leader: int, process: subprocess.Popen[bytes] | None = None, *, asked: bool = False) -> None:
    """Ask the leader of a process group to end, then make all of it; ``process`` where it is our child.

    ``asked``: it has been.
    """
    try:
        if not _ended(leader, process):
            if not asked:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(leader, signal.SIGTERM)
            wait_until(lambda: _ended(leader, process), STOP_S)
        if _ended(leader, process):
            await_end(leader, STOP_S / 3)  # its children end by themselves
    finally:  # a second Ctrl-C, too
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, signal.SIGKILL)
    if process is not None:
        process.wait()
    await_end(leader, STOP_S)


def await_end(leader: int, limit_s: float) -> None:
    """Wait until no process of a group lives, at most so long."""
    wait_until(lambda: next(group(leader), None) is None, limit_s)


def _ended(leader: int, process: subprocess.Popen[bytes] | None) -> bool:
    return process.poll() is not None if process is not None else leader not in dict(group(leader))


def wait_until(condition: Callable[[], bool], limit_s: float) -> None:
    """Wait for a condition, at most so long."""
    deadline = time.monotonic() + limit_s
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)


def _title(entry: Path) -> str:
    """What the process calls itself: its command line, which vLLM sets, else its name."""
    line = (entry / "cmdline").read_bytes().partition(b"\0")[0].decode(errors="replace")
    return line.strip() or (entry / "comm").read_text().strip()
