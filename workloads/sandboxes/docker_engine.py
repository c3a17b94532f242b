"""The Docker engine as sandboxes need it: reaching it, what it refuses, images made without a registry."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from workloads.sandboxes.contract import SandboxError
from workloads.sandboxes.processes import Process, boot

OWNER = "agent-serving-bench.sandbox.owner"
"""Label: the run (``SandboxOptions.owner``)."""
PROCESS = "agent-serving-bench.sandbox.process"
"""Label: the process that made it, as ``text_of``."""
REPOSITORY = "bench-sandbox"
IMAGES = ("usr", "busybox")
"""Of ``build_image``: one that /usr of the engine's machine is bound into, and a shell with little else."""
REQUEST_S, AT_ONCE = 120, 64
_FOLDERS = ("dev", "etc", "home", "proc", "run", "sbin", "sys", "usr", "var", "workspace")
_LINKS = ("bin", "lib", "lib32", "lib64", "libx32")  # not sbin, where the engine puts its init
_BUSYBOX = ("/bin/busybox", "/usr/bin/busybox")
_START = "nobody answers: start it (systemctl start docker), or set DOCKER_HOST"
_building = threading.RLock()


def connect() -> Any:
    """A client of the engine (DOCKER_HOST), one for all. Raises SandboxError saying why there is none."""
    where = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    if where.startswith("unix://") and not os.path.exists(where.removeprefix("unix://")):
        raise SandboxError(f"Docker engine at {where}: {_START}")  # without the SDK, whose import takes 0.3 s
    try:
        client = _client(where, os.getpid())
        client.ping()
    except ImportError as error:
        raise SandboxError(f"{sys.executable} has no Docker SDK ({error}): pip install docker") from None
    except Exception as error:  # requests' and the SDK's, one inside the other
        text = str(error)
        if "Permission" in text:
            help_ = "you may not use it: join the group docker (newgrp docker), or run as root"
        elif any(words in text for words in ("No such file", "refused", "FileNotFound")):
            help_ = _START
        else:
            help_ = text[:200]
        raise SandboxError(f"Docker engine at {where}: {help_}") from None
    return client


@cache
def _client(where: str, _: int) -> Any:
    import docker

    return docker.DockerClient(base_url=where, timeout=REQUEST_S, max_pool_size=AT_ONCE)


@contextlib.contextmanager
def explained(what: str) -> Iterator[None]:
    """The engine's refusals as SandboxError. That something is not there passes as it is."""
    import docker

    try:
        yield
    except docker.errors.NotFound:
        raise
    except docker.errors.APIError as error:
        raise SandboxError(f"{what}: the Docker engine refuses: {error.explanation or error}") from None
    except (docker.errors.DockerException, OSError) as error:  # requests' errors are OSErrors
        raise SandboxError(f"{what}: the Docker engine does not answer: {error}") from None


def text_of(process: Process) -> str:
    """As the label has it."""
    return ":".join(map(str, process))


def ours(client: Any, owner: str | None = None) -> list[Any]:
    """Containers of a run, or (None) of processes that are gone. Raises SandboxError."""
    import docker

    label = PROCESS if owner is None else f"{OWNER}={owner}"
    with explained("list of containers"):
        try:
            found = client.containers.list(all=True, filters={"label": label}, ignore_removed=True)
        except docker.errors.NotFound as error:  # that of a container is ignored already
            raise SandboxError(
                f"list of containers: the Docker engine refuses: {error.explanation}"
            ) from None
    return [one for one in found if owner is not None or _is_orphan(one)]


def image_of(client: Any, name: str) -> str:
    """The image to use for ``SandboxOptions.image``: "" is ours of kind ``usr``, which is made if need be.

    Raises SandboxError if it is not there.
    """
    import docker

    asked = name or f"{REPOSITORY}:{IMAGES[0]}"
    kind = asked.removeprefix(f"{REPOSITORY}:")
    with _building:
        try:
            client.images.get(asked)
        except docker.errors.ImageNotFound:
            if asked == kind or kind not in IMAGES:
                raise SandboxError(f"image {asked} is not here: `docker pull {asked}`") from None
            build_image(kind, client)
    return asked


def build_image(kind: str, client: Any = None) -> str:
    """Make ``bench-sandbox:KIND`` of files of this machine, in well under a second; its name.

    ``usr`` has no file of its own but what the shared libraries and users need, and is run with /usr of the
    engine's machine bound in, read-only. ``busybox`` is 2 MB. Raises SandboxError.
    """
    if kind not in IMAGES:
        raise SandboxError(f"no image {kind!r}: {', '.join(IMAGES)}")
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        _add_folders(tar)
        _add_busybox(tar) if kind == "busybox" else _add_machine(tar)
    with _building, explained(f"image {REPOSITORY}:{kind}"):
        client = client or connect()
        client.api.import_image_from_data(data.getvalue(), repository=REPOSITORY, tag=kind)
    return f"{REPOSITORY}:{kind}"


def _add_folders(tar: tarfile.TarFile) -> None:
    for name, mode in (*((name, 0o755) for name in _FOLDERS), ("tmp", 0o1777), ("var/tmp", 0o1777)):
        folder = tarfile.TarInfo(name)
        folder.type, folder.mode = tarfile.DIRTYPE, mode
        tar.addfile(folder)
    user, group = os.getuid(), os.getgid()
    _add_text(tar, "etc/passwd", f"agent:x:{user}:{group}:agent:/tmp:/bin/sh\n")
    _add_text(tar, "etc/group", f"agent:x:{group}:\n")


def _add_machine(tar: tarfile.TarFile) -> None:
    for name in _LINKS:
        if Path("/", name).is_symlink():
            _add_link(tar, name, f"usr/{name}")
        elif Path("/", name).exists():
            raise SandboxError(f"/{name} is no link to /usr/{name} here: give `image` one with its own files")
    for path in ("/etc/alternatives", "/etc/ld.so.cache"):
        if Path(path).exists():
            tar.add(path, path.lstrip("/"))


def _add_busybox(tar: tarfile.TarFile) -> None:
    found = next(filter(os.path.exists, _BUSYBOX), None)
    if found is None:
        raise SandboxError("there is no busybox here: install busybox-static")
    folder = tarfile.TarInfo("bin")
    folder.type, folder.mode = tarfile.DIRTYPE, 0o755
    tar.addfile(folder)
    tar.add(found, "bin/busybox")
    names = subprocess.run([found, "--list"], capture_output=True, text=True, check=True).stdout.split()
    for name in sorted(set(names) - {"busybox"}):
        _add_link(tar, f"bin/{name}", "busybox")


def _add_link(tar: tarfile.TarFile, name: str, target: str) -> None:
    link = tarfile.TarInfo(name)
    link.type, link.linkname = tarfile.SYMTYPE, target
    tar.addfile(link)


def _add_text(tar: tarfile.TarFile, name: str, text: str) -> None:
    file = tarfile.TarInfo(name)
    file.mode, file.size = 0o644, len(text)
    tar.addfile(file, io.BytesIO(text.encode()))


def _is_orphan(container: Any) -> bool:
    """Whether the process that made it is gone. One of another boot that runs is of another machine, which
    shares this engine: a machine that was booted again does not start it."""
    try:
        pid, start, at, space = container.labels[PROCESS].split(":")
    except ValueError:
        return False
    if at != boot() and container.status == "running":
        return False
    return Process(int(pid), int(start), at, space).gone()
