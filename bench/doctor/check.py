"""What a check of ``bench doctor`` is: one thing that this machine may have, its state, and what to do.

A check is a module of ``bench.doctor.checks`` with an object ``CHECK``; the suite finds it there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

OK, MISSING, BROKEN = "ok", "missing", "broken"
"""It can be used; it is not there; it is there and cannot be used."""
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Finding:
    """``why``: what was found, in a line; ``todo``: what would make it ok, empty if it is."""

    state: str
    why: str
    todo: str = ""


@dataclass(frozen=True)
class Here:
    """This machine, as a check may look at it. ``deep``: what takes longer than a second may be tried.

    ``limit_s``: what is started must be over by then (s); ``results``: where results would go.
    """

    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    deep: bool = False
    limit_s: float = 2.0
    root: Path = ROOT
    results: Path = Path("results")

    def which(self, name: str) -> Path | None:
        """A program on the PATH."""
        found = shutil.which(name, path=self.environ.get("PATH", os.defpath))
        return None if found is None else Path(found)

    def run(self, words: Sequence[str]) -> tuple[int, str]:
        """(exit code, output) of a program that was ended if it took longer than ``limit_s``.

        Code 124 and what is wrong, if it did; 127, if it does not start.
        """
        try:
            done = subprocess.run(
                words, env=dict(self.environ), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, timeout=self.limit_s, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return 124, f"no answer within {self.limit_s:g} s"
        except OSError as error:
            return 127, error.strerror or str(error)
        return done.returncode, done.stdout.decode(errors="replace").strip()

    def python(self, variable: str, folder: str) -> Path:
        """Of an environment: what ``variable`` names, else ``folder`` of the repository."""
        named = self.environ.get(variable)
        return Path(named) if named else self.root / folder / "bin" / "python"


class Check(Protocol):
    """``name`` is what ``--need`` and the JSON call it; ``order`` sorts the page.

    ``work_s``: seconds that it may take beside ``Here.limit_s`` on a busy machine, for one that computes.
    """

    name: str
    order: int
    work_s: float

    def look(self, here: Here) -> Finding:
        """Look, within ``here.limit_s``. What it raises is shown as broken."""


class Simple:
    """A check that is one function."""

    def __init__(self, name: str, order: int, look: Callable[[Here], Finding], work_s: float = 0.0) -> None:
        self.work_s = work_s
        self.name = name
        self.order = order
        self._look = look

    def look(self, here: Here) -> Finding:
        """Calls the function."""
        return self._look(here)


def last_line(text: str) -> str:
    """The last line that says something, at most 160 characters of it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:160] if lines else "it said nothing"


def distribution(python: Path, *names: str) -> tuple[str, str] | None:
    """(name, version) of the first of ``names`` installed beside a Python, without starting it."""
    for packages in sorted((python.parent.parent / "lib").glob("python*/site-packages")):
        for name in names:
            for info in packages.glob(f"{name.replace('-', '_')}-*.dist-info"):
                return name, info.name.removesuffix(".dist-info").rpartition("-")[2]
    return None
