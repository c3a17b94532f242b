"""What the vLLM of some Python is and which options it has, told from its files: an import takes seconds."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

_LOOK = """
import importlib.util, json, pathlib, re, sys
found = importlib.util.find_spec("vllm")
version, text = "", ""
if found and found.origin:
    root = pathlib.Path(found.origin).parent
    for file in (root / "entrypoints").rglob("cli_args.py"):
        text += file.read_text()
    stated = root / "_version.py"
    match = re.search(r"version = '([^']+)'", stated.read_text()) if stated.is_file() else None
    version = match[1] if match else "?"
has = [flag for flag in sys.argv[1:] if flag[2:].replace("-", "_") + ":" in text]
print(json.dumps([version, has]))
"""
LIMIT_S = 30.0


class Installed(NamedTuple):
    """``version`` of vLLM ("" if there is none), and which of the flags asked for it has."""

    version: str = ""
    flags: tuple[str, ...] = ()


def installed(python: Path, flags: Sequence[str]) -> Installed:
    """Look, in about 50 ms. Whatever goes wrong, nothing is known: starting the server will say what."""
    command = [str(python), "-c", _LOOK, *flags]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=True)
        version, has = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return Installed()
    return Installed(version, tuple(has))
