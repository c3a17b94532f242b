"""What made a result: written before the run, so that any result can be made again.

No host names, no user names; command-line values that look like secrets are
redacted.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from bench.native import is_compiled

PACKAGES = ("agent-serving-bench", "numpy", "pandas", "pyarrow", "scipy", "typer")

_SECRET = re.compile(r"(key|token|secret|password|passwd|credential|auth|bearer)s?$", re.IGNORECASE)
_TOKENISH = re.compile(r"\b(sk-|hf_|ghp_|gho_|github_pat_|AKIA|xox[bap]-)[A-Za-z0-9_\-]{8,}")
_URL_LOGIN = re.compile(r"(\w+://)[^/\s:@]+:[^/\s@]+@")
_NUMBER = re.compile(r"[-+0-9.eE/]+")

HIDDEN = "***"


def redact(words: Sequence[str]) -> list[str]:
    """Command-line words with the values of ``--api-key X``, ``--x.token=X``, ``-p secret=X``
    and well-known token shapes hidden. Numbers are no secrets (``max_tokens=16``)."""
    out: list[str] = []
    hide_next = False
    for word in words:
        if hide_next and not word.startswith("-"):
            out.append(HIDDEN)
            hide_next = False
            continue
        name, equals, value = word.partition("=")
        secret = _SECRET.search(name.strip("-")) is not None and not _NUMBER.fullmatch(value)
        hide_next = secret and not equals and word.startswith("-")
        out.append(f"{name}={HIDDEN}" if secret and equals else _hide_shapes(word))
    return out


def _hide_shapes(word: str) -> str:
    return _URL_LOGIN.sub(rf"\1{HIDDEN}@", _TOKENISH.sub(HIDDEN, word))


def command_line(words: Sequence[str]) -> str:
    """The words as a shell would take them, secrets hidden."""
    return shlex.join(redact(words))


def git_state(folder: Path | None = None, written: Sequence[str] = ()) -> dict[str, Any]:
    """Commit and dirty flag of the code that runs; empty when it is no checkout.

    ``written``: paths from the checkout's root that the program itself writes, which make nothing dirty.
    """
    where = folder or Path(__file__).parent
    commit = _git(where, "rev-parse", "HEAD")
    if commit is None:
        return {}
    paths = [":(top)", *(f":(top,exclude){path}" for path in written)]
    changed = _git(where, "status", "--porcelain", "--untracked-files=no", "--", *paths)
    return {"commit": commit, "dirty": bool(changed)}


def _git(folder: Path, *words: str) -> str | None:
    command = ["git", "-C", str(folder), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def versions() -> dict[str, str]:
    """Python and the packages whose behaviour can reach a number."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def hardware() -> dict[str, Any]:
    """CPU model and cores of the machine that ran it (not of the simulated GPU)."""
    return {"cpu": _cpu_model(), "machine": platform.machine(), "cores": os.cpu_count()}


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def manifest(identity: Mapping[str, Any], details: Mapping[str, Any], command: str) -> dict[str, Any]:
    """The manifest of a cell.

    ``identity`` is what the cell's address is made of, ``details`` everything
    else known before the run (program hash, skipped records, provenance). ``compiled``: whether the
    simulator ran from its compiled build (``bench.native``), which gives the same numbers.
    """
    return {
        "identity": dict(identity),
        **details,
        "command": command,
        "git": git_state(),
        "versions": versions(),
        "compiled": is_compiled(),
        "hardware": hardware(),
    }
