"""The Python that runs this, and the packages the harness cannot do without."""

from __future__ import annotations

import platform
import sys
from importlib.util import find_spec

from bench.doctor.check import BROKEN, OK, Finding, Here, Simple

OLDEST = (3, 11)
PACKAGES = ("aiohttp", "docker", "jinja2", "matplotlib", "numpy", "orjson", "pandas", "prometheus_client",
            "pyarrow", "rich", "scipy", "typer", "uvloop", "zstandard")  # fmt: skip


def _look(here: Here) -> Finding:  # noqa: ARG001
    version = platform.python_version()
    if sys.version_info < OLDEST:
        return Finding(BROKEN, f"Python {version}", "install Python 3.11 or newer")
    if gone := [name for name in PACKAGES if find_spec(name) is None]:
        return Finding(BROKEN, f"Python {version} without {', '.join(gone)}", "make setup")
    return Finding(OK, f"{platform.python_implementation()} {version}, every package there")


CHECK = Simple("python", 0, _look)
