"""``docker``: a container per sandbox, commands by ``docker exec``. The engine is one of this machine.

The workspace is a folder of ours bound in; tools run as our user, without capabilities, below an init that
reaps what they leave. The SDK blocks, so every request to the engine has a thread of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import posixpath
import time
from collections.abc import Callable
from typing import Any

from workloads.sandboxes import docker_engine as engine
from workloads.sandboxes.base import BaseSandbox
from workloads.sandboxes.contract import Executed, Sandbox, SandboxError, SandboxEvent, SandboxOptions
from workloads.sandboxes.folders import remove_folder
from workloads.sandboxes.ledger import Ledger
from workloads.sandboxes.local import sweep_entries
from workloads.sandboxes.processes import Process
from workloads.sandboxes.supervisor import EXEC, MOST_FILE, NOT_REGULAR, held
from workloads.sandboxes.threads import in_thread

WORKSPACE, SCRATCH, INPUTS = "/workspace", "/tmp", "/run/bench-inputs"
PROCESSES = 512
"""At most so many in a container: a fork bomb is the container's matter."""
KILL_S, KILLS, FILE_S = 10.0, 20, 30.0
_IDLE = ("sh", "-c", "trap '' TERM; while :; do sleep 3600 & wait $!; done")
"""A tool that ends its own shells by name does not end the container; it is removed by force anyway."""
_REGULAR = f'[ ! -e "$1" ] || [ -f "$1" ] || {{ echo ": {NOT_REGULAR}"; exit 1; }}; '
"""Nobody waits for a pipe's other end."""
_NOT_RUN = b"OCI runtime exec failed: "
"""How the engine begins where a command would have said something, had it been started."""
_KILL = """
for tries in 1 2 3 4 5 6 7 8 9 10; do
  found=
  for process in /proc/[0-9]*; do
    { tr '\\0' '\\n' < "$process/environ" | grep -qxF "$0"; } 2>/dev/null && found="$found ${process#/proc/}"
  done
  [ -z "$found" ] && exit 0
  kill -9 $found 2>/dev/null
done
exit 1
"""


class DockerSandbox(BaseSandbox):
    """With ``disk_mb``, workspace and /tmp are in memory, each of that size, and all else is read-only; else
    the workspace is in its folder and what else is written in the container's layer."""

    kind = "docker"
    _client: Any = None
    _creating: asyncio.Task[Any] | None = None

    def _container(self) -> str:
        return f"bench-sandbox-{self.name}"

    async def _make(self) -> None:
        for part in ("workspace", "inputs"):
            (self.options.folder / part).mkdir()
        self._client = await in_thread(engine.connect)
        self._creating = asyncio.create_task(in_thread(self._create))
        await asyncio.shield(self._creating)  # cancelled or not: who removes it must know that it is there
        if self.options.files:
            await self._fill()

    async def _fill(self) -> None:
        """Its files, by one command: the workspace may be nothing that this machine sees."""
        inputs = self.options.folder / "inputs"
        for path, text in self.options.files.items():
            file = inputs / posixpath.relpath(_inside(path, self.name), WORKSPACE)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8", newline="")
        words = ["cp", "-R", "--", f"{INPUTS}/.", f"{WORKSPACE}/"]
        await self._small(words, f"{self.name}.0", "its files cannot be written")
        for left in inputs.iterdir():
            remove_folder(left)

    def _create(self) -> None:
        import docker

        what = f"sandbox {self.name} (docker)"
        with engine.explained(what):
            try:
                image = engine.image_of(self._client, self.options.image)
                container = self._client.containers.create(image, **self._settings(image))
                container.start()
            except docker.errors.NotFound as error:
                raise SandboxError(f"{what}: {error.explanation}") from None

    def _settings(self, image: str) -> dict[str, Any]:
        o, folder = self.options, self.options.folder.resolve()
        found: dict[str, Any] = {
            "entrypoint": list(_IDLE), "command": [], "name": self._container(), "init": True, "detach": True,
            "labels": {engine.OWNER: o.owner, engine.PROCESS: engine.text_of(Process.this())},
            "environment": self._environment(SCRATCH), "working_dir": WORKSPACE,
            "user": f"{os.getuid()}:{os.getgid()}", "cap_drop": ["ALL"], "pids_limit": PROCESSES,
            "security_opt": ["no-new-privileges"], "volumes": [f"{folder / 'inputs'}:{INPUTS}:ro"],
            **self._network(),
        }  # fmt: skip
        if image == f"{engine.REPOSITORY}:usr":
            found["volumes"].append("/usr:/usr:ro")
        if o.memory_mb is not None:
            found |= {"mem_limit": f"{o.memory_mb}m", "memswap_limit": f"{o.memory_mb}m"}
        if o.disk_mb is None:
            found["volumes"].append(f"{folder / 'workspace'}:{WORKSPACE}")
        else:
            size = f"size={o.disk_mb}m,uid={os.getuid()},gid={os.getgid()},exec"
            found |= {
                "read_only": True,
                "tmpfs": {WORKSPACE: f"{size},mode=755", SCRATCH: f"{size},mode=1777"},
            }
        return found

    def _network(self) -> dict[str, Any]:
        """None, or a bridge with the ports dealt; the machine's own where the engine has no bridge."""
        if not self.options.network:
            return {"network_mode": "none"}
        if any(one.name == "bridge" for one in self._client.networks.list()):
            return {"network_mode": "bridge", "ports": {f"{p}/tcp": ("127.0.0.1", p) for p in self.ports}}
        return {"network_mode": "host"}

    async def _run(
        self, command: str, timeout_s: float, stdin: str, cwd: str, mark: str
    ) -> tuple[Executed, bool]:
        begin = time.monotonic()
        words = ["sh", "-c", command]
        if stdin:
            words = ["sh", "-c", 'exec sh -c "$1" < "$0"', self._input(mark, stdin), command]
        where = _inside(cwd, self.name)
        try:
            code, output, hung = await self._exec(words, where, mark, timeout_s, self.options.most_output)
        finally:
            self._forget(mark)
        return Executed(code, output.decode(errors="replace"), time.monotonic() - begin, hung), False

    async def write(self, path: str, text: str) -> None:
        """See Sandbox."""
        mark, where = self._next(), _inside(path, self.name)
        source = self._input(mark, text)
        script = f'{_REGULAR}mkdir -p -- "${{1%/*}}" && exec cat -- "$2" > "$1"'
        try:
            await self._small(["sh", "-c", script, "sh", where, source], mark, f"cannot write {path}")
        finally:
            self._forget(mark)

    async def read(self, path: str) -> str:
        """See Sandbox."""
        words = ["sh", "-c", f'{_REGULAR}exec cat -- "$1"', "sh", _inside(path, self.name)]
        return (await self._small(words, self._next(), f"cannot read {path}")).decode(errors="replace")

    def _next(self) -> str:
        self._must_be_ready()
        self._execs += 1
        return f"{self.name}.{self._execs}"

    async def _small(self, words: list[str], mark: str, failed: str) -> bytes:
        """Output of a command that has to go well."""
        code, output, _ = await self._exec(words, WORKSPACE, mark, FILE_S, MOST_FILE + 1)
        if len(output) > MOST_FILE:
            raise SandboxError(f"sandbox {self.name} (docker): {failed}: more than {MOST_FILE >> 20} MiB")
        if code:
            why = output.decode(errors="replace").strip().rpartition(": ")[2][:200]
            raise SandboxError(f"sandbox {self.name} (docker): {failed}: {why or f'exit status {code}'}")
        return output

    def _input(self, mark: str, text: str) -> str:
        """A file that a command reads as its input; its path inside."""
        (self.options.folder / "inputs" / mark).write_text(text, encoding="utf-8", newline="")
        return f"{INPUTS}/{mark}"

    def _forget(self, mark: str) -> None:
        (self.options.folder / "inputs" / mark).unlink(missing_ok=True)

    async def _exec(
        self, words: list[str], where: str, mark: str, timeout_s: float, most: int
    ) -> tuple[int, bytes, bool]:
        """Exit status, output, whether it was killed. Raises SandboxError if the container is gone."""
        work = asyncio.create_task(in_thread(self._exec_blocking, words, where, mark, most))
        try:
            done, _ = await asyncio.wait({work}, timeout=timeout_s)
            if done:
                code, output = work.result()
                return code, output, False
            for _ in range(KILLS):  # again: it may have started only now
                await self._kill(mark)
                if (await asyncio.wait({work}, timeout=KILL_S / KILLS))[0]:
                    break
            else:
                raise SandboxError(f"sandbox {self.name} (docker): what hung does not end")
            return -9, work.result()[1], True
        except asyncio.CancelledError:
            await asyncio.shield(self._kill(mark))
            raise
        finally:
            work.cancel()

    def _exec_blocking(self, words: list[str], where: str, mark: str, most: int) -> tuple[int, bytes]:
        import docker

        what = f"sandbox {self.name} (docker)"
        with engine.explained(what):
            try:
                code, output = self._exec_once(words, where, mark, most)
                if code in (None, 137) and self._exec_once(["true"], "/", "", 0)[0] != 0:
                    raise SandboxError(f"{what}: its container ended")
            except docker.errors.NotFound:
                raise SandboxError(f"{what}: its container is gone") from None
        if code in (126, 127) and output.startswith(_NOT_RUN):
            raise SandboxError(f"{what}: cannot run it: {output.decode(errors='replace').strip()[:300]}")
        return -1 if code is None else code, output

    def _exec_once(self, words: list[str], where: str, mark: str, most: int) -> tuple[int | None, bytes]:
        """Exit status (None: the engine does not know it) and output, as the engine tells them."""
        api, output = self._client.api, bytearray()
        made = api.exec_create(self._container(), words, workdir=where, environment=_marked(mark))
        for chunk in api.exec_start(made["Id"], stream=True):
            output += chunk[: max(0, most - len(output))]
        return api.exec_inspect(made["Id"])["ExitCode"], bytes(output)

    async def _kill(self, mark: str) -> None:
        """End what a command started. It does not matter if the container is gone."""
        begin = time.monotonic()
        words = ["sh", "-c", _KILL, f"{EXEC}={mark}"]
        try:
            code, _ = await in_thread(self._exec_blocking, words, "/", "", 0)
        except SandboxError:
            return
        if code:
            self._say(begin, "kill", ok=False, detail="some processes do not end")

    async def _disk(self) -> int:
        return await in_thread(self._disk_blocking)

    def _disk_blocking(self) -> int:
        """What its layer holds (SizeRw), and its workspace."""
        what = f"sandbox {self.name} (docker)"
        with engine.explained(what):
            filters = {"name": f"^/{self._container()}$"}
            found = self._client.api.containers(all=True, size=True, filters=filters)
            if not found:
                raise SandboxError(f"{what}: its container is gone")
            size = int(found[0].get("SizeRw") or 0)
        if self.options.disk_mb is None:
            return size + held(str(self.options.folder / "workspace"))
        _, said = self._exec_blocking(["du", "-skx", WORKSPACE, SCRATCH], "/", "", 4096)
        lines = [line.split() for line in said.decode(errors="replace").splitlines()]
        return size + sum(int(line[0]) << 10 for line in lines if line and line[0].isdigit())

    async def _remove(self) -> None:
        if self._creating is not None:
            await asyncio.wait({self._creating})
        if self._client is not None:
            await in_thread(remove, self._client, self._container())


def _marked(mark: str) -> dict[str, str]:
    """In the environment of all that a command starts."""
    return {EXEC: mark} if mark else {}


def _inside(path: str, name: str) -> str:
    """Where it is in the container. Raises SandboxError if that is not in the workspace."""
    where = posixpath.normpath(posixpath.join(WORKSPACE, path))
    if posixpath.commonpath((where, WORKSPACE)) != WORKSPACE:
        raise SandboxError(f"sandbox {name} (docker): {path!r} is outside the workspace")
    return where


class DockerKind:
    """See SandboxKind."""

    name = "docker"
    uses_engine = True

    def missing(self) -> str:
        """See SandboxKind."""
        try:
            engine.connect()
        except SandboxError as error:
            return str(error)
        return ""

    def make(self, options: SandboxOptions, told: Callable[[SandboxEvent], None]) -> Sandbox:
        """See SandboxKind."""
        return DockerSandbox(options, told)

    def sweep(self, owner: str | None = None) -> list[str]:
        """See SandboxKind. Containers without an entry here are found by their labels."""
        ledger = Ledger()
        entries = ledger.left(self.name, owner)
        try:
            client = engine.connect()
        except SandboxError as error:
            return [f"sandbox {entry.name} (docker): cannot be removed: {error}" for entry in entries]
        said = sweep_entries(entries, ledger, lambda entry: remove(client, entry.container))
        return said + _sweep_unknown(client, owner, {entry.container for entry in ledger.entries()})


def _sweep_unknown(client: Any, owner: str | None, known: set[str]) -> list[str]:
    """Containers that have no entry here, found by their labels; in words."""
    said, what = [], "containers that a run left"
    try:
        for container in engine.ours(client, owner):
            if container.name not in known:
                what = f"container {container.name}"
                remove(client, container.name)
                said.append(f"{what}: removed")
    except SandboxError as error:
        said.append(f"{what}: cannot be removed: {error}")
    return said


def remove(client: Any, name: str) -> None:
    """End a container and remove it; nothing to do if it is gone. Raises SandboxError."""
    import docker

    with engine.explained(f"container {name}"), contextlib.suppress(docker.errors.NotFound):
        client.api.remove_container(name, force=True, v=True)


SANDBOX = DockerKind()
