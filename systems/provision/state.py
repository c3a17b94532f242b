"""Fleets that outlive the command that started them: who is in them is written down, so all can be ended.

A file per fleet, ``up/NAME.json`` under the folder of results, written before the first engine starts and
after each. A process counts as ours only if it started when the file says (a recycled number does not).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import signal
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from systems.engines.vllm_virtual import EngineUnavailable
from systems.provision import docker_engine, process
from systems.provision.engine import LiveEngine
from systems.provision.owner import alive, boot, myself, owner, started

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,40}")


@dataclass(frozen=True)
class Standing:
    """One engine: ``owner`` of its process (systems.provision.owner) or its ``container``, else ""."""

    name: str
    url: str
    folder: str
    owner: str = ""
    container: str = ""
    calls: str | None = None
    steps: str | None = None
    control: str | None = None


@dataclass
class Record:
    """A fleet. ``id`` is unique and in the labels of its containers; ``about``: for people; ``starter``: the
    process that starts it, until it is ``ready``."""

    name: str
    id: str
    how: str
    starter: str = ""
    about: dict[str, Any] = field(default_factory=dict)
    ready: bool = False
    engines: list[Standing] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    @property
    def starting(self) -> bool:
        """Whether somebody is just starting it."""
        return not self.ready and alive(self.starter)

    def standing(self) -> list[Standing]:
        """The engines of which something is still there. Raises EngineUnavailable if only Docker knows."""
        there = set()
        if any(one.container for one in self.engines):
            there = {container.id for container in docker_engine.leftovers(docker_engine.connect(), self.id)}
        return [one for one in self.engines if one.container in there or alive(one.owner) or strays(one)]


class States:
    """The files of ``folder``. Raises EngineUnavailable for one that is damaged, and OSError."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, name: str) -> Path:
        """Of a fleet's file. Raises ValueError for a name that is none."""
        if not _NAME.fullmatch(name):
            raise ValueError(f"a fleet's name has letters, digits, - _ and ., at most 41; got {name!r}")
        return self.folder / f"{name}.json"

    def names(self) -> list[str]:
        """Of all fleets, sorted."""
        return sorted(file.stem for file in self.folder.glob("*.json"))

    def read(self, name: str) -> Record | None:
        """None if there is no such fleet."""
        file = self.path(name)
        try:
            data = json.loads(file.read_text())
            return Record(**{**data, "engines": [Standing(**one) for one in data["engines"]]})
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError) as error:
            raise EngineUnavailable(
                f"{file} is damaged ({error}): end what it names by hand and remove it"
            ) from None

    def claim(self, name: str, how: str, about: dict[str, Any]) -> Record:
        """A new record, written. Raises FileExistsError if somebody has the name."""
        self.folder.mkdir(parents=True, exist_ok=True)
        record = Record(name, f"{name}.{secrets.token_hex(4)}", how, str(myself()), about)
        part = self._part(record)
        try:
            os.link(part, self.path(name))  # whole or not at all, and only if it is not there
        finally:
            part.unlink()
        return record

    def write(self, record: Record) -> None:
        """Atomically."""
        self._part(record).replace(self.path(record.name))

    def _part(self, record: Record) -> Path:
        file = self.path(record.name)
        part = file.with_name(f"{file.stem}.{os.getpid()}.part")
        part.write_text(json.dumps(record.as_json(), indent=1) + "\n")
        return part

    def forget(self, record: Record) -> None:
        """Remove its file; nothing to do if it is gone."""
        self.path(record.name).unlink(missing_ok=True)


def standing(engine: LiveEngine) -> Standing:
    """What is to be remembered of an engine that was begun."""
    pid, container = getattr(engine, "pid", None), str(getattr(engine, "id", ""))
    mine = str(owner(pid) or "") if pid else ""
    logs = {name: str(path.resolve()) if path else None for name, path in _logs(engine)}
    return Standing(
        engine.name, engine.url, str(engine.folder.resolve()), mine, container,
        control=engine.control, **logs,
    )  # fmt: skip


def end(record: Record, say: Callable[[str], None]) -> int:
    """End all that still runs of a fleet, the last first; how many that were. Idempotent.

    Raises EngineUnavailable if it has containers and Docker does not answer: they may still run.
    """
    ended = _end_containers(record, say) if record.how == "docker" else 0
    ours = [one for one in record.engines if alive(one.owner) or strays(one)]
    for one in ours:  # all at once: each takes seconds
        if alive(one.owner):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(_pid(one), signal.SIGTERM)
    for one in reversed(ours):
        if alive(one.owner):
            process.end_group(_pid(one), asked=True)
        _end_strays(one)
        say(f"{one.name} at {one.url} is down")
    return ended + len(ours)


def strays(one: Standing) -> list[int]:
    """Processes of an engine whose first one is gone: of its session, in its folder, not older than it."""
    if not one.owner or alive(one.owner):
        return []
    _, begin, when = one.owner.split(":")
    if when != boot():
        return []
    return [
        pid for pid in _session(_pid(one)) if (started(pid) or 0) >= int(begin) and _cwd(pid) == one.folder
    ]


def _end_strays(one: Standing) -> None:
    """Those whose first process is gone end by themselves, or are made to."""
    process.wait_until(lambda: not strays(one), process.STOP_S / 3)
    for pid in strays(one):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    process.wait_until(lambda: not strays(one), process.STOP_S)


def _end_containers(record: Record, say: Callable[[str], None]) -> int:
    """By label, so that one which was made but not yet written down goes, too."""
    found = docker_engine.leftovers(docker_engine.connect(), record.id)
    folders = {one.container: one for one in record.engines}
    for container in found:
        one = folders.get(container.id)
        if one is not None:
            with contextlib.suppress(Exception):  # the log is no reason to leave the container
                docker_engine.keep_output(container, Path(one.folder) / "server.log")
        docker_engine.remove(container)
        say(f"{container.name} is down")
    return len(found)


def _logs(engine: LiveEngine) -> tuple[tuple[str, Path | None], ...]:
    return ("calls", engine.calls), ("steps", engine.steps)


def _pid(one: Standing) -> int:
    return int(one.owner.partition(":")[0])


def _session(leader: int) -> list[int]:
    """Living processes of a session."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError, IndexError, ValueError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == leader and fields[0] not in "ZX":
                found.append(int(entry.name))
    return found


def _cwd(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return ""
