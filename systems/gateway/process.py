"""A gateway as a process of its own that never outlives us, with the surface of a live engine."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from systems.engines.vllm_virtual import ROOT, EngineUnavailable
from systems.gateway.options import GatewayOptions
from systems.gateway.server import bound, url_of
from systems.provision.process import end_group, group
from systems.provision.recipe import told

START_S = 30.0
_HIDDEN = "***"


class GatewayProcess:
    """``begin`` and ``ready``, or ``with``, bring it up; ``stop`` takes it down.

    ``folder`` gets gateway.log and, until it answers, options.json, which has the keys and only its user
    may read. ``pid``: of the process, 0 if it does not run. It dies with the *thread* that started it
    (Linux's parent-death signal). Raises EngineUnavailable if the port is taken, or it ends or does not
    answer.
    """

    def __init__(self, options: GatewayOptions, folder: Path) -> None:
        self.options = options
        self.folder = folder
        self.name = "gateway"
        self.url = ""
        self.output = folder / "gateway.log"
        self.calls: Path | None = None
        self.steps: Path | None = None
        self.control: str | None = None
        self._told = folder / "options.json"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.begin()
        self.ready()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """0 if it does not run."""
        return self._process.pid if self._process is not None else 0

    def begin(self) -> None:
        """Start it; its URL is known at once. Raises EngineUnavailable."""
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            listening = bound(self.options.host, self.options.port)
        except OSError as error:
            raise EngineUnavailable(f"gateway: {error}") from None
        path = self._told
        self._write_options(path)
        with listening, self.output.open("wb") as output:
            fd = listening.fileno()
            words = [str(path.resolve()), "--fd", str(fd), "--parent", str(os.getpid())]
            self._process = subprocess.Popen(
                [sys.executable, "-m", "systems.gateway", *words], pass_fds=(fd,), cwd=self.folder,
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": _search_path()}, start_new_session=True,
            )  # fmt: skip
            self.url = url_of(listening)

    def ready(self, limit_s: float = START_S) -> None:
        """Wait until it answers, whether its engines do or not. If it does not, it is stopped."""
        try:
            deadline = time.monotonic() + limit_s
            while not _answers(self.url):
                self.check()
                if time.monotonic() > deadline:
                    raise EngineUnavailable(f"gateway: no answer within {limit_s:g} s; {self.words()}")
                time.sleep(0.02)
            self._told.unlink(missing_ok=True)  # it was read: no key stays behind
        except BaseException:  # Ctrl-C, too
            self.stop()
            raise

    def check(self) -> None:
        """Raises EngineUnavailable, with its last words, if it has ended."""
        process = self._process
        if process is None:
            raise EngineUnavailable("gateway: it is not running")
        if process.poll() is not None:
            raise EngineUnavailable(f"gateway: it ended (exit code {process.returncode}); {self.words()}")

    def words(self) -> str:
        """The last line of its output that tells something."""
        text = self.output.read_text(errors="replace") if self.output.is_file() else ""
        return told(text, self.output)

    def facts(self) -> dict[str, Any]:
        """For the manifest: its options without the keys."""
        options = dataclasses.asdict(self.options)
        options["api_keys"] = [_HIDDEN for _ in self.options.api_keys]
        for target in options["targets"]:
            target["key"] = _HIDDEN if target["key"] else ""
        return {"kind": "gateway", "how": "process", "options": options}

    def processes(self) -> dict[int, str]:
        """pid -> name of every process of it."""
        return {} if self._process is None else dict(group(self._process.pid))

    def stop(self) -> None:
        """Ask it to end, which it does within some seconds, then make it; idempotent."""
        process, self._process = self._process, None
        try:
            if process is not None:
                end_group(process.pid, process)
        finally:
            self._told.unlink(missing_ok=True)

    def _write_options(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(self.options.as_json())


def _search_path() -> str:
    return os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2.0):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
