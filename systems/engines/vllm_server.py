"""A real vLLM API server on this machine, our scheduler class mounted, as a process that never outlives us.

    with VllmServer(ServerOptions(model=folder, scheduler="atlas"), work) as server:
        ...  # server.url answers; server.calls and server.steps are the scheduler's logs

Runs under the Python of the vLLM environment (``make vllm-cpu``); this side imports nothing of vLLM.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from systems.engines.vllm_virtual import ROOT, EngineUnavailable, vllm_python

USER = "a vLLM server"
"""Who needs vLLM, in the message that it is not there."""

START_S = 300.0
"""A server that does not answer by then is given up (25 s on a quiet machine, minutes on a busy one)."""
STOP_S = 15.0
WORKER = "VLLM::Worker"
"""How vLLM names the process in which the model runs."""
_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
}
_PARENT_DIES = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG, kept by exec
if os.getppid() != int(sys.argv[1]):
    sys.exit("the process that started the server is gone")
os.execv(sys.argv[2], sys.argv[2:])
"""


@dataclass(frozen=True)
class ServerOptions:
    """What is served and how; vLLM's names. ``block_size`` in tokens: vLLM's CPU back end takes multiples
    of 32. ``kv_blocks`` are usable blocks of that size. ``knobs``: of the scheduler, without a prefix.
    ``model_cores``, ``other_cores``: where the model's process and all others may run; empty: anywhere."""

    model: Path
    name: str = "tiny-llama"
    scheduler: str = "fcfs"
    knobs: Mapping[str, Any] = field(default_factory=dict)
    preemption: str = "recompute"
    kv_blocks: int = 1024
    block_size: int = 32
    max_num_seqs: int = 32
    max_num_batched_tokens: int = 512
    max_model_len: int = 4096
    dtype: str = "float32"
    kv_cache_memory: str = "256M"
    model_cores: frozenset[int] = frozenset()
    other_cores: frozenset[int] = frozenset()
    flags: tuple[str, ...] = ()

    def command(self, port: int, log: Path, steps: Path) -> list[str]:
        """vLLM's command line behind the Python. One block more: vLLM keeps one to itself."""
        host = {"scheduler": self.scheduler, "knobs": dict(self.knobs), "preemption": self.preemption,
                "log": str(log), "steps": str(steps)}  # fmt: skip
        return [
            "-m", "vllm.entrypoints.openai.api_server", "--host", "127.0.0.1", "--port", str(port),
            "--model", str(self.model), "--served-model-name", self.name, "--dtype", self.dtype,
            "--max-model-len", str(self.max_model_len), "--max-num-seqs", str(self.max_num_seqs),
            "--max-num-batched-tokens", str(self.max_num_batched_tokens),
            "--kv-cache-memory-bytes", self.kv_cache_memory, "--block-size", str(self.block_size),
            "--num-gpu-blocks-override", str(self.kv_blocks + 1), "--enforce-eager",
            "--disable-uvicorn-access-log", "--no-async-scheduling", "--scheduling-policy", "priority",
            "--scheduler-cls", "systems.vllm_host.scheduler.PolicyScheduler",
            "--additional-config", json.dumps(host), *self.flags,
        ]  # fmt: skip


class VllmServer:
    """One server; ``start`` or ``with`` brings it up, ``stop`` (idempotent) takes it down.

    ``folder`` gets server.log, calls.jsonl and steps.jsonl (docs/vllm.md). The server dies with the
    *thread* that starts it (Linux's parent-death signal): start it from one that lives on.
    Raises EngineUnavailable if vLLM is not there, or the server ends or does not answer in time.
    """

    def __init__(self, options: ServerOptions, folder: Path, *, python: Path | None = None) -> None:
        self.options = options
        self.folder = folder
        self.calls = folder / "calls.jsonl"
        self.steps = folder / "steps.jsonl"
        self.output = folder / "server.log"
        self.url = ""
        self._python = python
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> VllmServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self, limit_s: float = START_S) -> None:
        """Start and wait until it answers."""
        self.begin()
        self.ready(limit_s)

    def begin(self) -> None:
        """Start; ``ready`` waits for it, so that several can start together. Old logs are removed."""
        python = self._python or vllm_python(USER)
        self.folder.mkdir(parents=True, exist_ok=True)
        for old in (self.calls, self.steps, self.output):
            old.unlink(missing_ok=True)
        port = free_port()
        command = self.options.command(port, self.calls.resolve(), self.steps.resolve())
        with self.output.open("wb") as output:
            self._process = _launch(python, command, output, self.folder)
        self.url = f"http://127.0.0.1:{port}"

    def ready(self, limit_s: float = START_S) -> None:
        """Wait until it answers, and give its processes their cores. If it does not, it is stopped."""
        try:
            self._await_health(time.monotonic() + limit_s, limit_s)
            self._pin()
        except BaseException:  # Ctrl-C, too
            self.stop()
            raise

    def stop(self) -> None:
        """Ask it to end, then make it: nothing of its process group is left."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=STOP_S)
        if process.poll() is not None:
            _await_end(process.pid, STOP_S / 3)  # its children end by themselves
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        _await_end(process.pid, STOP_S)

    def check(self) -> None:
        """Raises EngineUnavailable, with its last words, if the server has ended."""
        process = self._process
        if process is None:
            raise EngineUnavailable("vLLM server: it is not running")
        if process.poll() is not None:
            raise EngineUnavailable(f"vLLM server: it ended (exit code {process.returncode}); {self.words()}")

    def words(self) -> str:
        """The last lines of its output that tell something."""
        text = self.output.read_text(errors="replace") if self.output.is_file() else ""
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        errors = [line for line in lines if "Error" in line and "root cause above" not in line]
        last = (errors or lines)[-1:] or ["nothing"]
        return f"its last words: {last[0][-400:]} (all of them: {self.output})"

    def processes(self) -> dict[int, str]:
        """pid -> name of every process of the server."""
        return {} if self._process is None else dict(_group(self._process.pid))

    def _await_health(self, deadline: float, limit_s: float) -> None:
        while True:
            self.check()
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.url}/health", timeout=2):
                return
            if time.monotonic() > deadline:
                raise EngineUnavailable(f"vLLM server: no answer within {limit_s:g} s; {self.words()}")
            time.sleep(0.2)

    def _pin(self) -> None:
        """Give the model's process and the others their cores, every thread of them."""
        for pid, name in self.processes().items():
            cores = self.options.model_cores if name.startswith(WORKER) else self.options.other_cores
            for thread in Path("/proc", str(pid), "task").iterdir() if cores else ():
                with contextlib.suppress(ProcessLookupError):
                    os.sched_setaffinity(int(thread.name), cores)


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _launch(python: Path, command: list[str], output: Any, folder: Path) -> subprocess.Popen[bytes]:
    """The process, leader of a group of its own, that ends when this thread does."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    try:
        return subprocess.Popen(
            [str(python), "-c", _PARENT_DIES, str(os.getpid()), str(python), *command],
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd=folder,
            env={**os.environ, **_ENVIRONMENT, "PYTHONPATH": path}, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise EngineUnavailable(f"vLLM server: cannot run {python}: {error}") from None


def _group(leader: int) -> Iterator[tuple[int, str]]:
    """(pid, name) of the living processes of a process group."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError, IndexError, ValueError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[2]) == leader and fields[0] != "Z":
                yield int(entry.name), _title(entry)


def _title(entry: Path) -> str:
    """What the process calls itself: its command line, which vLLM sets, else its name."""
    line = (entry / "cmdline").read_bytes().partition(b"\0")[0].decode(errors="replace")
    return line.strip() or (entry / "comm").read_text().strip()


def _await_end(leader: int, limit_s: float) -> None:
    """Wait until no process of a group lives, at most so long."""
    deadline = time.monotonic() + limit_s
    while next(_group(leader), None) is not None and time.monotonic() < deadline:
        time.sleep(0.02)
