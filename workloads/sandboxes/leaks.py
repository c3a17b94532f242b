"""What is left of a run's sandboxes: nothing should be."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from workloads.sandboxes import docker_engine
from workloads.sandboxes.contract import SandboxError
from workloads.sandboxes.folders import mounts_below
from workloads.sandboxes.ledger import Ledger
from workloads.sandboxes.ports import listening
from workloads.sandboxes.processes import OWNER, called, marked


def leaks(folder: Path, owner: str, ports: Iterable[int] = (), engine: bool = False) -> list[str]:
    """In words, a line each: processes with the run's mark, mounts and folders in ``folder`` (where its
    sandboxes' folders are), its containers (if an engine answers), entries, and those of ``ports`` that it
    was dealt (events tell them) which somebody still listens on. ``engine``: the run used one; then it is a
    line, too, if that does not answer.

    ``owner`` as in ``SandboxOptions``. It blocks for some milliseconds.
    """
    found = [f"process {pid}: {called(pid)}" for pid in marked(OWNER, owner)]
    found += [f"mount {where}" for where in mounts_below(folder)]
    found += [f"folder {left.name}" for left in (sorted(folder.iterdir()) if folder.is_dir() else ())]
    found += [f"port {port}: somebody listens" for port in listening(ports)]
    found += [f"entry {entry.name} ({entry.kind})" for entry in Ledger().entries() if entry.owner == owner]
    try:
        found += [f"container {one.name}" for one in docker_engine.ours(docker_engine.connect(), owner)]
    except SandboxError as error:
        found += [f"containers: nobody knows whether some are left: {error}"] if engine else []
    return found
