"""Room for results."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from bench.doctor.check import BROKEN, MISSING, OK, Finding, Here, Simple

LEAST_GB = 1.0


def _look(here: Here) -> Finding:
    place = _existing(here.results)
    free = shutil.disk_usage(place).free / 1e9
    text = f"{free:.1f} GB free for {here.results}"
    if not os.access(place, os.W_OK):
        return Finding(BROKEN, f"{place} is not writable", "bench run --out FOLDER")
    if free < LEAST_GB:
        return Finding(MISSING, text, "make room, or bench run --out FOLDER")
    return Finding(OK, text)


def _existing(path: Path) -> Path:
    return next(one for one in (path.absolute(), *path.absolute().parents) if one.is_dir())


CHECK = Simple("disk", 12, _look)
