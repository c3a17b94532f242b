"""Install packages, by uv where it can be had, else by pip.

    PYTHON scripts/install.py [--python OTHER] [--without NAME]... [--second-index URL] REQUIREMENT...

Into the environment of OTHER, else of PYTHON, which has pip. uv is the one beside PYTHON or on the path, else
it is put beside PYTHON. It needs a tenth of pip's CPU time, which is most of what a clean checkout waits for.
It does not read pip's settings, so they are handed to it; where there is one that it has no word for, and
whenever it fails, pip does the work, and what is said is what pip says. The exit code is the last attempt's.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

UV = "uv>=0.5"
_OPTIONS = {"index-url": "--default-index", "extra-index-url": "--index", "find-links": "--find-links",
            "constraint": "--constraints"}  # fmt: skip
_VARIABLES = {"cert": "SSL_CERT_FILE", "timeout": "UV_HTTP_TIMEOUT", "default-timeout": "UV_HTTP_TIMEOUT"}
_NO_MATTER = {"disable-pip-version-check", "no-input", "no-cache-dir", "progress-bar", "quiet", "no-compile",
              "root-user-action", "require-virtualenv", "no-python-version-warning", "retries"}  # fmt: skip
_PIP = [sys.executable, "-m", "pip"]
"""Of this interpreter, whose environment need not be the one that is filled."""


def read_settings(listing: str) -> list[tuple[str, list[str]]]:
    """Names and values of what ``pip config list`` prints: ``SECTION.NAME='VALUE VALUE'`` a line.

    ``:env:`` and ``global`` hold for every command, ``install`` for ours; other sections are left out.
    """
    found = []
    for line in listing.splitlines():
        place, _, quoted = line.partition("=")
        value = quoted.strip().strip("'\"").replace("\\n", " ")
        section, _, name = place.strip().rpartition(".")
        if section in (":env:", "global", "install"):
            found.append((name.replace("_", "-"), shlex.split(value)))
    return found


def translate(settings: Sequence[tuple[str, list[str]]]) -> tuple[list[str], dict[str, str]] | None:
    """Options and variables by which uv does what pip is set to do; None if it cannot be told one of them."""
    options, variables = (
        ["--index-strategy", "unsafe-best-match"],
        {},
    )  # pip, too, takes the best of all indexes
    for name, values in settings:
        if name in _OPTIONS:
            pairs = [word for value in values for word in (_OPTIONS[name], value)]
            options += pairs if pairs[:2] not in _pairs(options) else []
        elif name in _VARIABLES:
            variables[_VARIABLES[name]] = " ".join(values)
        elif name not in _NO_MATTER:
            return None
    return options, variables


def _pairs(words: Sequence[str]) -> list[list[str]]:
    return [list(pair) for pair in zip(words[::2], words[1::2], strict=True)]


def find_uv() -> str | None:
    """uv of this environment or of the path, else installed here; None if it cannot be."""
    beside = Path(sys.executable).parent / "uv"
    found = str(beside) if beside.is_file() else shutil.which("uv")
    if found is None and _quiet([*_PIP, "install", "--quiet", UV]) == 0:
        return str(beside)
    return found


def by_uv(uv: str, python: str, words: Sequence[str], without: Sequence[str]) -> int:
    """uv's exit code; its own words are left out, since pip is asked next."""
    asked = subprocess.run([*_PIP, "config", "list"], capture_output=True, text=True, check=False)
    known = translate(read_settings(asked.stdout))
    if known is None:
        return 1
    options, variables = known
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as overrides:
        overrides.writelines(f"{name} ; sys_platform == 'never'\n" for name in without)
        overrides.flush()
        command = [uv, "pip", "install", "--python", python, *options]
        command += ["--overrides", overrides.name] if without else []
        return _quiet([*command, *words], {**os.environ, **variables})


def by_pip(python: str, words: Sequence[str], without: Sequence[str]) -> int:
    """pip's exit code; what is not wanted is taken out again afterwards."""
    pip = [*_PIP, "--python", python]
    code = subprocess.run([*pip, "install", "--quiet", *words], check=False).returncode
    if code == 0 and without:
        _quiet([*pip, "uninstall", "--yes", *without])
    return code


def _quiet(command: Sequence[str], variables: dict[str, str] | None = None) -> int:
    return subprocess.run(command, env=variables, capture_output=True, check=False).returncode


def main(words: Sequence[str] | None = None) -> int:
    """The command line; the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", default=sys.executable, help="of the environment to fill")
    parser.add_argument("--without", action="append", default=[], metavar="NAME", help="not this dependency")
    parser.add_argument("--second-index", metavar="URL", help="one to try with when all else has failed")
    given, requirements = parser.parse_known_args(words)
    ways: list[list[str]] = [[]] + ([["--extra-index-url", given.second_index]] if given.second_index else [])
    uv = find_uv()
    for index in ways if uv else []:
        if by_uv(str(uv), given.python, [*index, *requirements], given.without) == 0:
            return 0
    for index in ways:
        code = by_pip(given.python, [*index, *requirements], given.without)
        if code == 0:
            return 0
    return code


if __name__ == "__main__":
    sys.exit(main())
