"""Which sandboxes there are: a file for each, written before anything of it is made, gone when it is.

So that a later run finds what a crash left, and no two processes of this machine give a sandbox the same
name or port. The files lie in ``state_folder()``, which is of this user only.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from workloads.sandboxes.contract import SandboxError
from workloads.sandboxes.ports import free_ports
from workloads.sandboxes.processes import Process


@dataclass(frozen=True)
class Entry:
    """A sandbox that is, or may be, there. ``process``: which made it; ``container``: its name, "" none."""

    name: str
    kind: str
    owner: str
    folder: str
    process: Process
    container: str = ""
    ports: tuple[int, ...] = ()

    @classmethod
    def of(cls, text: str) -> Entry:
        """Raises ValueError, KeyError or TypeError for what is none."""
        said: dict[str, Any] = json.loads(text)
        return cls(**{**said, "process": Process(*said["process"]), "ports": tuple(said["ports"])})

    @property
    def orphan(self) -> bool:
        """Whether the process that made it is gone."""
        return self.process.gone()


class Ledger:
    """The entries in a folder (default ``state_folder()``)."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or state_folder()

    def enter(self, entry: Entry, ports: int = 0) -> Entry:
        """Write it, with so many ports. Raises SandboxError: the name is taken, or no ports are left."""
        with self._locked():
            others = self.entries()
            if any(other.name == entry.name for other in others):
                raise SandboxError(
                    f"sandbox {entry.name}: there is one of that name: take another, or sweep what was left"
                )
            taken = {port for other in others for port in other.ports}
            try:
                entry = replace(entry, ports=free_ports(ports, taken))
                part = self.folder / f".{entry.name}.part"
                part.write_text(json.dumps(asdict(entry)))
                part.replace(self._file(entry.name))
            except OSError as error:
                raise SandboxError(f"sandbox {entry.name}: cannot be entered: {error}") from None
        return entry

    def leave(self, name: str) -> None:
        """It is gone; again is no error."""
        self._file(name).unlink(missing_ok=True)

    def entries(self) -> list[Entry]:
        """All, by name. A file that is none (of another version, say) is not counted."""
        found = []
        for file in sorted(self.folder.glob("*.json")):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                found.append(Entry.of(file.read_text()))
        return found

    def left(self, kind: str, owner: str | None = None) -> list[Entry]:
        """Of that kind, whose process is gone; or all of a run."""
        return [
            entry
            for entry in self.entries()
            if entry.kind == kind and (entry.orphan if owner is None else entry.owner == owner)
        ]

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.json"

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with (self.folder / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def state_folder() -> Path:
    """Made if it is not there. Raises SandboxError if it is somebody else's."""
    base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    folder = Path(base) / f"agent-serving-bench-{os.getuid()}" / "sandboxes"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        found = folder.parent.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            raise SandboxError(f"{folder.parent} is not ours: remove it, or set XDG_RUNTIME_DIR")
        folder.parent.chmod(0o700)
    except OSError as error:
        raise SandboxError(f"{folder}: no place to note sandboxes: {error.strerror}") from None
    return folder
