"""Removing a folder that tools wrote in, whatever they did to it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from pathlib import Path

_ESCAPED = re.compile(r"\\([0-7]{3})")
"""A blank in /proc/self/mounts, say."""


def remove_folder(folder: Path) -> None:
    """Mounts below it and all its files; nothing to do if it is not there.

    Links are removed, never followed. Folders that were made read-only are made writable first. Raises
    OSError naming the first path that stays (a file of another user, in a folder that is not ours).
    """
    for mount in reversed(mounts_below(folder)):
        subprocess.run(["umount", "--lazy", mount], capture_output=True, check=False)
    if not os.path.lexists(folder):
        return
    if folder.is_symlink() or not folder.is_dir():
        folder.unlink()
        return
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        _make_writable(folder)
        shutil.rmtree(folder)


def mounts_below(folder: Path) -> list[str]:
    """Where something is mounted at or below a folder, outermost first."""
    root = str(folder.resolve())
    found = []
    for line in Path("/proc/self/mounts").read_text(errors="replace").splitlines():
        where = _ESCAPED.sub(lambda found: chr(int(found[1], 8)), line.split()[1])
        if where == root or where.startswith(root + "/"):
            found.append(where)
    return found


def _make_writable(folder: Path) -> None:
    for where, _, _ in os.walk(folder):
        with contextlib.suppress(OSError):
            os.chmod(where, 0o700)
