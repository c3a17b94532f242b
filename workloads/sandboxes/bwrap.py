"""``bwrap``: namespaces by bubblewrap. Tools see /usr, their workspace, and a network if it is asked for.

One bwrap lives as long as the sandbox, with the supervisor as process 1 in it: a command costs a fork, and
when that process ends Linux ends all others. Works without root where user namespaces are allowed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

from workloads.sandboxes.contract import Sandbox, SandboxEvent, SandboxOptions
from workloads.sandboxes.ledger import Ledger
from workloads.sandboxes.local import SUPERVISOR, LocalSandbox, sweep_entries

WORKSPACE, SCRATCH, INSIDE = "/workspace", "/tmp", "/run/supervisor.py"
SHM_MB = 64
TRIAL_S = 20
_PYTHONS = "/usr/local/bin:/usr/bin"
_OF_THE_MACHINE = ("/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d")
_FOR_THE_NETWORK = ("/etc/resolv.conf", "/etc/ssl", "/etc/ca-certificates", "/etc/nsswitch.conf")


class BwrapSandbox(LocalSandbox):
    """With ``disk_mb``, workspace and /tmp are in memory, each of that size; else in its folder."""

    kind = "bwrap"

    @property
    def _scratch(self) -> str:
        return SCRATCH

    def _command(self) -> list[str]:
        folder = self.options.folder.resolve()
        write_accounts(folder / "etc")
        words = [*_base(self.options.network), "--ro-bind", str(SUPERVISOR), INSIDE]
        for file in sorted((folder / "etc").iterdir()):
            words += ["--ro-bind", str(file), f"/etc/{file.name}"]
        size = None if self.options.disk_mb is None else str(self.options.disk_mb << 20)
        for source, place in (("workspace", WORKSPACE), ("tmp", SCRATCH)):
            words += (
                ["--bind", str(folder / source), place]
                if size is None
                else ["--size", size, "--tmpfs", place]
            )
        words += ["--symlink", SCRATCH, "/var/tmp", "--remount-ro", "/", "--remount-ro", "/dev"]
        words += ["--size", str(SHM_MB << 20), "--tmpfs", "/dev/shm", "--chdir", WORKSPACE]
        python = [_python(), "-I", "-S", INSIDE, "0", WORKSPACE, SCRATCH, str(self.options.memory_mb or 0)]
        return [*words, "--", *python]


class BwrapKind:
    """See SandboxKind."""

    name = "bwrap"

    def missing(self) -> str:
        """See SandboxKind. A bwrap is tried once."""
        return _why_not()

    def make(self, options: SandboxOptions, told: Callable[[SandboxEvent], None]) -> Sandbox:
        """See SandboxKind."""
        return BwrapSandbox(options, told)

    def sweep(self, owner: str | None = None) -> list[str]:
        """See SandboxKind."""
        ledger = Ledger()
        return sweep_entries(ledger.left(self.name, owner), ledger)


def write_accounts(folder: Path) -> None:
    """What programs look up who they are in, for a user called ``agent``."""
    user, group = os.getuid(), os.getgid()
    folder.mkdir()
    (folder / "passwd").write_text(f"agent:x:{user}:{group}:agent:{SCRATCH}:/bin/sh\n")
    (folder / "group").write_text(f"agent:x:{group}:\n")
    (folder / "hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")


def _base(network: bool) -> list[str]:
    words = [
        "bwrap",
        "--unshare-all",
        "--die-with-parent",
        "--new-session",
        "--as-pid-1",
        "--hostname",
        "sandbox",
    ]
    words += ["--cap-drop", "ALL", "--ro-bind", "/usr", "/usr", "--proc", "/proc", "--dev", "/dev"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        if Path("/", name).is_symlink():
            words += ["--symlink", f"usr/{name}", f"/{name}"]
        elif Path("/", name).exists():
            words += ["--ro-bind", f"/{name}", f"/{name}"]
    for path in (*_OF_THE_MACHINE, *(_FOR_THE_NETWORK if network else ())):
        words += ["--ro-bind-try", path, path]
    return [*words, "--share-net"] if network else words


def _python() -> str:
    return shutil.which("python3", path=_PYTHONS) or "/usr/bin/python3"


@cache
def _why_not() -> str:
    if shutil.which("bwrap") is None:
        return "there is no bwrap here: install bubblewrap (apt-get install bubblewrap)"
    if shutil.which("python3", path=_PYTHONS) is None:
        return (
            f"there is no python3 in {_PYTHONS}, which is what bwrap shows of this machine: install python3"
        )
    try:
        command = [*_base(network=False), "--", _python(), "-I", "-S", "-c", ""]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TRIAL_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bwrap does not work here: {error}"
    if done.returncode:
        why = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        return (
            f"bwrap does not work here: {why[0]}: allow user namespaces (kernel.unprivileged_userns_clone=1, "
            "kernel.apparmor_restrict_unprivileged_userns=0; in a container: --privileged)"
        )
    return ""


SANDBOX = BwrapKind()
