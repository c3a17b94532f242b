"""Stands between us and a server, so that all of it ends when we do, however we end (``kill -9``, too).

    python -I -S guard.py PID SECONDS COMMAND...

It leads the session in which COMMAND runs, and gets SIGTERM from Linux when its parent (PID) dies. Handing
that on is not enough: a vLLM that is just starting does not heed it, nor do its children. So after SECONDS
whatever is left of the process group is killed. It exits as COMMAND did (128 + n for signal n). Standard
library only, and nothing of this project.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
REST = 0.3
"""What the command leaves behind gets this share of its SECONDS to end by itself."""
KILLED_S = 10.0
"""What was killed is gone by then, or hangs in the kernel (a device, a file system): it is left to it."""
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG


def main() -> None:
    """See above."""
    parent, grace, command = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]
    _when_parent_dies(signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit("the process that started the server is gone")
    signal.pthread_sigmask(signal.SIG_BLOCK, (*ENDING, signal.SIGCHLD))
    try:
        child = subprocess.Popen(command, preexec_fn=_as_child)
    except OSError as error:
        sys.exit(f"cannot run {command[0]}: {error}")
    _wait(child, grace)
    _end_rest(REST * grace)
    try:
        code = child.wait(KILLED_S)
    except subprocess.TimeoutExpired:
        code = -signal.SIGKILL  # as soon as the kernel lets go of it
    sys.exit(code if code >= 0 else 128 - code)


def _wait(child: subprocess.Popen[bytes], grace: float) -> None:
    """Until it ends, or has not ended so many seconds after it was asked to."""
    deadline = float("inf")
    while child.poll() is None and time.monotonic() < deadline:
        got = signal.sigtimedwait((*ENDING, signal.SIGCHLD), 0.2)
        if got is not None and got.si_signo in ENDING and deadline == float("inf"):
            deadline = time.monotonic() + grace
            child.send_signal(signal.SIGTERM)
    if child.poll() is None:
        child.kill()


def _end_rest(limit_s: float, killed_s: float = KILLED_S) -> None:
    """Nothing of the group but this process is left, but for what cannot be killed, or not by us."""
    deadline = time.monotonic() + limit_s
    while others := list(_others()):
        late = time.monotonic() - deadline
        if late > killed_s:
            print(f"guard: still there after SIGKILL: {others}", file=sys.stderr, flush=True)
            return
        if late > 0:
            for pid in others:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def _others() -> Iterator[int]:
    mine = os.getpid()
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
            if int(fields[2]) == mine and int(name) != mine and fields[0] not in (b"Z", b"X"):
                yield int(name)


def _as_child() -> None:
    """In the child: no signal is blocked, and it is killed if this process is."""
    _when_parent_dies(signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _when_parent_dies(number: int) -> None:
    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, number)


if __name__ == "__main__":
    main()
