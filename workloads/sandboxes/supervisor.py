"""Stands beside the tools of one sandbox: starts them, reads what they say, kills what they left.

    python -I -S supervisor.py PARENT WORKSPACE SCRATCH MEMORY_MB

Requests come on standard input, replies go to standard output, each four bytes of length (big-endian) and
JSON with an ``id``. The end of its input, SIGTERM, or the death of process PARENT (0: of nobody) makes it
kill everything and leave. Whatever a tool starts ends up below this process, daemons too: it is process 1 of
its namespace (then SIGTERM is nothing to it, and its pipes are closed to tools), or a subreaper. MEMORY_MB
(0: none) is each process's address space. Standard library only, and nothing of this project: it runs inside
bwrap. Process numbers are those that it sees itself.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import selectors
import signal
import stat
import sys
import time

TYPE_CHECKING = False  # what is imported here is waited for whenever a sandbox is made
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

EXEC = "BENCH_EXEC"
"""In the environment of all that one command starts."""
KILL_S = 5.0
"""What got SIGKILL and is still there then hangs in the kernel: it is reported, not waited for."""
TICK_S = 0.003
MOST_FILE = 16 << 20
"""Bytes of the largest file that is read as text; of every kind of sandbox."""
NOT_REGULAR = "it is no regular file"
_DEATH_SIGNAL, _DUMPABLE, _SUBREAPER = 1, 4, 36
_RESET = [signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGXFSZ]


class Command:
    """One that runs, or whose output is still held open by what it left running."""

    def __init__(self, request: dict[str, Any], pid: int, out: int) -> None:
        self.id: int = request["id"]
        self.mark: str = request["mark"]
        self.most: int = request["most"]
        self.deadline: float = time.monotonic() + request["timeout"]
        self.pid, self.out = pid, out
        self.said = bytearray()
        self.code: int | None = None
        self.killed = 0.0
        self.timed_out = False


class Supervisor:
    """The loop; single-threaded, so that changing the folder and starting a command are one step."""

    def __init__(self, workspace: str, scratch: str) -> None:
        self.workspace, self.scratch = os.path.realpath(workspace), os.path.realpath(scratch)
        self.commands: list[Command] = []
        self.ending = False
        self.asked = bytearray()
        self.selector = selectors.DefaultSelector()
        self.wake, wake_up = os.pipe()
        for end in (self.wake, wake_up):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake_up, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, self._on_signal)
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        if os.getpid() == 1:  # Linux would deliver it from inside: a tool that ends its own python by name
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self.selector.register(0, selectors.EVENT_READ, self._on_request)
        self.selector.register(self.wake, selectors.EVENT_READ, self._on_wake)

    def run(self) -> None:
        """Until it is told to end."""
        reply({"id": 0, "pid": os.getpid()})
        while not self.ending:
            for key, _ in self.selector.select(self._wait_s()):
                key.data()
            self._reap()
            self._expire()
        self._end()

    def _wait_s(self) -> float | None:
        if any(command.killed for command in self.commands):
            return TICK_S
        soonest = min((command.deadline for command in self.commands), default=None)
        return None if soonest is None else max(0.0, soonest - time.monotonic())

    def _on_signal(self, number: int, _: object) -> None:
        self.ending |= number == signal.SIGTERM

    def _on_wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self.wake, 4096)

    def _on_request(self) -> None:
        got = os.read(0, 1 << 20)
        self.ending |= not got
        self.asked += got
        while len(self.asked) >= 4:
            size = 4 + int.from_bytes(self.asked[:4], "big")
            if len(self.asked) < size:
                break
            request = json.loads(self.asked[4:size])
            del self.asked[:size]
            self._serve(request)

    def _serve(self, request: dict[str, Any]) -> None:
        work: Callable[[dict[str, Any]], dict[str, Any] | None] = getattr(self, f"_{request['op']}")
        try:
            said = work(request)
        except OSError as error:
            said = {"error": error.strerror or str(error)}
        except ValueError as error:
            said = {"error": str(error)}
        except MemoryError:
            said = {"error": "it takes more memory than its limit"}
        if said is not None:
            reply({"id": request["id"], **said})

    def _exec(self, request: dict[str, Any]) -> None:
        os.chdir(self._inside(request["cwd"]))
        read_end, write_end = os.pipe()
        source = os.open("/dev/null", os.O_RDONLY) if not request["stdin"] else _held(request["stdin"])
        wires = [(os.POSIX_SPAWN_DUP2, source, 0), *((os.POSIX_SPAWN_DUP2, write_end, to) for to in (1, 2))]
        try:
            pid = os.posix_spawn(
                "/bin/sh", ["sh", "-c", request["command"]], {**os.environ, EXEC: request["mark"]},
                file_actions=wires, setsid=True, setsigmask=[], setsigdef=_RESET,
            )  # fmt: skip
        except BaseException:
            os.close(read_end)
            raise
        finally:
            os.close(source)
            os.close(write_end)
        os.set_blocking(read_end, False)
        command = Command(request, pid, read_end)
        self.commands.append(command)
        self.selector.register(read_end, selectors.EVENT_READ, lambda: self._hear(command))

    def _hear(self, command: Command) -> bool:
        """Take what is there. False when there is no more (for now, or for ever)."""
        try:
            got = os.read(command.out, 1 << 16)
        except BlockingIOError:
            return False
        if not got:
            self.selector.unregister(command.out)
            os.close(command.out)
            command.out = -1
        command.said += got[: max(0, command.most - len(command.said))]
        return bool(got)

    def _reap(self) -> bool:
        """Take in who has ended. False when there is nobody left to end: who lost its parent is ours, too."""
        try:
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                for command in self.commands:
                    if command.pid == ended[0] and command.code is None:
                        command.code = os.waitstatus_to_exitcode(ended[1])
        except ChildProcessError:
            return False
        return True

    def _expire(self) -> None:
        now = time.monotonic()
        for command in list(self.commands):
            if not command.killed and command.code is None and now >= command.deadline:
                command.killed, command.timed_out = now, True
            left = kill(self._of(command)) if command.killed else []
            given_up = command.killed and now > command.killed + KILL_S
            if given_up or (command.code is not None and not left):
                self._finish(command, left)

    def _finish(self, command: Command, left: list[int]) -> None:
        """Answer. What it left running may go on writing: that is read and dropped, or it would die of it."""
        while command.out >= 0 and self._hear(command):
            pass
        self.commands.remove(command)
        code = -int(signal.SIGKILL) if command.killed else command.code
        output = command.said.decode(errors="replace")
        command.most = 0
        reply(
            {"id": command.id, "code": code, "output": output, "timed_out": command.timed_out,
             "full": self._full(), "left": left}
        )  # fmt: skip

    def _of(self, command: Command) -> set[int]:
        """All that it started: below it, in its session, or with its mark."""
        mark = f"{EXEC}={command.mark}".encode()
        found = {
            pid for pid, _, session in processes() if session == command.pid or mark in _environment(pid)
        }
        if command.code is None:  # else the number may be another's by now
            found |= {command.pid, *below(command.pid)}
        return found - {os.getpid()}

    def _kill(self, request: dict[str, Any]) -> dict[str, Any]:
        for command in self.commands:
            if command.id == request["which"]:
                command.killed = command.killed or time.monotonic()
        return {}

    def _files(self, request: dict[str, Any]) -> dict[str, Any]:
        for path, text in request["files"].items():
            where = self._inside(path)
            os.makedirs(os.path.dirname(where), exist_ok=True)
            with regular(where, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, "wb") as file:
                file.write(text.encode())
        return {}

    def _read(self, request: dict[str, Any]) -> dict[str, Any]:
        with regular(self._inside(request["path"]), os.O_RDONLY, "rb") as file:
            data = file.read(MOST_FILE + 1)
        if len(data) > MOST_FILE:
            raise ValueError(f"more than {MOST_FILE >> 20} MiB")
        return {"text": data.decode(errors="replace")}

    def _disk(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"bytes": sum(held(folder) for folder in (self.workspace, self.scratch))}

    def _inside(self, path: str) -> str:
        where = os.path.realpath(os.path.join(self.workspace, path))
        if os.path.commonpath((where, self.workspace)) != self.workspace:
            raise ValueError(f"{path!r} is outside the workspace")
        return where

    def _full(self) -> bool:
        try:
            return any(os.statvfs(folder).f_bavail == 0 for folder in (self.workspace, self.scratch))
        except OSError:
            return False

    def _end(self) -> None:
        """Nothing but this process is left; its exit status is 1 if something would not go."""
        if os.getpid() == 1:
            sys.exit(0)  # and Linux kills all of the namespace
        until = time.monotonic() + KILL_S
        while self._reap():
            left = kill(below(os.getpid()))
            if time.monotonic() > until:
                print(f"still there after SIGKILL: {left}", file=sys.stderr, flush=True)
                sys.exit(1)
            time.sleep(TICK_S)


def regular(where: str, flags: int, mode: str) -> Any:
    """A file opened; nobody waits for a pipe's other end. Raises ValueError for what is no file of bytes."""
    try:
        number = os.open(where, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.EISDIR):
            raise ValueError(NOT_REGULAR) from None
        raise
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise ValueError(NOT_REGULAR)
    return os.fdopen(number, mode)


def processes() -> Iterator[tuple[int, int, int]]:
    """All that live: number, parent, session."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
            if fields[0] not in (b"Z", b"X"):
                yield int(name), int(fields[1]), int(fields[3])


def below(root: int) -> set[int]:
    """What descends from a process."""
    children: dict[int, list[int]] = {}
    for pid, parent, _ in processes():
        children.setdefault(parent, []).append(pid)
    found, ahead = set[int](), [root]
    while ahead:
        ahead += (new := children.pop(ahead.pop(), []))
        found |= set(new)
    return found


def kill(pids: set[int]) -> list[int]:
    """SIGKILL them; those that were still there."""
    there = []
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
            there.append(pid)
    return there


def held(folder: str) -> int:
    """Bytes on disk of a folder's files, each once."""
    seen: dict[tuple[int, int], int] = {}
    for where, folders, names in os.walk(folder):
        for name in (*folders, *names):
            with contextlib.suppress(OSError):
                found = os.lstat(os.path.join(where, name))
                seen[found.st_dev, found.st_ino] = found.st_blocks * 512
    return sum(seen.values())


def _environment(pid: int) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []


def _held(text: str) -> int:
    """A file in memory that a command reads as its input: nobody has to feed it."""
    number = os.memfd_create("stdin")
    with open(os.dup(number), "wb") as file:
        file.write(text.encode())
    os.lseek(number, 0, os.SEEK_SET)
    return number


def reply(said: dict[str, Any]) -> None:
    """To whom we serve. Who is gone gets none: the end of input is next."""
    text = json.dumps(said).encode()
    data = memoryview(len(text).to_bytes(4, "big") + text)
    with contextlib.suppress(BrokenPipeError):
        while data:
            data = data[os.write(1, data) :]


def _belong_to(parent: int) -> None:
    """Told when it dies; what loses its own parent comes to us, not to the machine's first process."""
    import ctypes

    libc = ctypes.CDLL(None)
    libc.prctl(_SUBREAPER, 1)
    libc.prctl(_DEATH_SIGNAL, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit("whoever started this sandbox is gone")


def _closed_to_tools() -> None:
    """They run as our user: else /proc/1/fd/1 would be theirs to answer in our place."""
    import ctypes

    if ctypes.CDLL(None).prctl(_DUMPABLE, 0, 0, 0, 0):
        sys.exit("cannot be closed to tools (prctl)")


def main() -> None:
    """See above."""
    parent, workspace, scratch, memory = int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
    supervisor = Supervisor(workspace, scratch)
    if parent:
        _belong_to(parent)
    if os.getpid() == 1:
        _closed_to_tools()
    if memory:
        resource.setrlimit(resource.RLIMIT_AS, (memory << 20, memory << 20))
    supervisor.run()


if __name__ == "__main__":
    main()
