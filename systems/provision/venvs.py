"""Environments of third-party routers: a venv each, built when asked for, in nobody's default install.

    python -m systems.provision.venvs [NAME ...]      # default: every front of systems/fronts

They lie in .venv-routers of the repository, or where BENCH_ROUTERS says. Two builders of one wait for each
other; a build that was interrupted or failed leaves no stamp, and the next one starts over.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from systems.engines.vllm_virtual import ROOT, EngineUnavailable
from systems.fronts.protocol import Front
from systems.slots import CatalogError, front_names, policy_class

MISSING = 6
USAGE = 2
INTERRUPTED = 130
"""Exit codes, as those of ``bench``."""
_ENVIRONMENT = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}


def home() -> Path:
    """The folder of all environments: BENCH_ROUTERS, else .venv-routers of the repository."""
    return Path(os.environ.get("BENCH_ROUTERS") or ROOT / ".venv-routers").absolute()


def python_of(front: Front) -> Path:
    """The Python of a front's environment. Raises EngineUnavailable, with what to do, if it is not built."""
    if not _stamp(front).is_file():
        raise EngineUnavailable(
            f"front {front.name} needs {front.requirement} in an environment of its own, and there is none "
            f"in {home() / front.name}: run `python -m systems.provision.venvs {front.name}`"
        )
    return _python(front)


def build(front: Front, say: Callable[[str], None] = print, *, python: str = sys.executable) -> Path:
    """Make the environment with ``python`` if it is not there; the Python in it.

    Raises EngineUnavailable if it cannot be made: pip's last words, and where all of them are.
    """
    if _stamp(front).is_file():
        say(f"{home() / front.name} has {front.requirement}")
        return _python(front)
    try:
        home().mkdir(parents=True, exist_ok=True)
        with _alone(home() / f"{front.name}.lock", say) as lock:
            if not _stamp(front).is_file():
                _make(front, say, python, lock)
    except OSError as error:
        raise EngineUnavailable(f"{home() / front.name} cannot be built: {error}") from None
    return _python(front)


def _make(front: Front, say: Callable[[str], None], python: str, lock: IO[str]) -> None:
    began = time.monotonic()
    say(f"building {home() / front.name}: {front.requirement}")
    log = home() / f"{front.name}.log"
    with log.open("w", encoding="utf-8") as output:
        for words in _commands(front, python):
            # The children have the lock, too: while one of them lives on without us, nobody else builds.
            done = subprocess.run(
                words, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False,
                env={**os.environ, **_ENVIRONMENT}, pass_fds=[lock.fileno()],
            )  # fmt: skip
            if done.returncode != 0:
                raise EngineUnavailable(_failed(front, log))
    _stamp(front).touch()
    say(f"{home() / front.name} is ready ({time.monotonic() - began:.0f} s)")


def _commands(front: Front, python: str) -> list[list[str]]:
    """Our own pip installs into it, where we have one: to make a pip of its own takes as long as the rest."""
    venv = [python, "-m", "venv", "--clear", str(home() / front.name)]
    install = ["install", "--no-compile", front.requirement]
    if find_spec("pip") is None:
        return [venv, [str(_python(front)), "-m", "pip", *install]]
    return [[*venv, "--without-pip"], [python, "-m", "pip", "--python", str(_python(front)), *install]]


def _failed(front: Front, log: Path) -> str:
    shutil.rmtree(home() / front.name, ignore_errors=True)  # half an environment would look like one
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    last = (errors or lines or ["nothing"])[-1]
    return f"{front.requirement} does not install here; its last words: {last[-300:]} (all of them: {log})"


@contextlib.contextmanager
def _alone(path: Path, say: Callable[[str], None]) -> Iterator[IO[str]]:
    with path.open("w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"somebody else builds {path.stem}: waiting")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock


def _stamp(front: Front) -> Path:
    return home() / front.name / f".{front.requirement}"


def _python(front: Front) -> Path:
    return home() / front.name / "bin" / "python"


def main(words: Sequence[str] | None = None) -> int:
    """The command line; the exit code."""
    parser = argparse.ArgumentParser("python -m systems.provision.venvs", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a front; default: all of them")
    names = parser.parse_args(words).names or front_names()
    try:
        for front in [policy_class("front", name, "command line")() for name in names]:
            build(front, lambda line: print(line, flush=True))
    except CatalogError as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE
    except EngineUnavailable as error:
        print(f"error: {error}", file=sys.stderr)
        return MISSING
    except KeyboardInterrupt:
        print("interrupted; the same command starts it over", file=sys.stderr)
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main())
