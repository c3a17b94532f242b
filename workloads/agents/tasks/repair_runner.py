"""Runs hidden tests inside a sandbox (``repair_check``): python3 -I -S -B -c TEXT_OF_THIS_FILE.

Tests and a word that nobody else knows come on standard input as JSON; the result is one line, that word and
JSON: ``ran``, ``ok``, ``why``. All but the code under test is the interpreter's own: the workspace comes last
on the path, what it prints goes nowhere, and compiled files in it are not looked at. Python 3.8, standard
library only, and nothing of this project.
"""

import contextlib
import io
import json
import os
import signal
import sys
import time
import types
import unittest
from typing import Any, Dict, List  # noqa: UP035

HIDDEN = "hidden_check"
"""What the module of hidden tests is called; it is no file."""
TRIES, WAIT_S = 50, 0.01
_JUDGES = (unittest.TestCase, unittest.TestResult, unittest.TextTestRunner, unittest.TestSuite)


def main() -> None:
    """See above."""
    asked = json.load(sys.stdin)
    say, null = os.dup(1), os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    end_others()
    sys.pycache_prefix = os.devnull
    sys.path.append(os.getcwd())
    before = _judges()
    said = run(asked["tests"])
    if _judges() != before:
        said.update(ok=False, why="the code under test changed unittest")
    os.write(say, f"{asked['word']} {json.dumps(said)}\n".encode())
    os._exit(0)


def run(text: str) -> Dict[str, Any]:  # noqa: UP006
    """How the tests came out. A test that is skipped has not passed."""
    words = io.StringIO()
    try:
        module = sys.modules[HIDDEN] = types.ModuleType(HIDDEN)
        exec(compile(text, f"{HIDDEN}.py", "exec"), module.__dict__)
        result = unittest.TextTestRunner(words).run(unittest.defaultTestLoader.loadTestsFromModule(module))
    except BaseException as error:
        return {"ran": 0, "ok": False, "why": f"{type(error).__name__}: {error}"[:200]}
    ok = result.wasSuccessful() and not result.skipped and not result.expectedFailures
    return {"ran": result.testsRun, "ok": ok, "why": words.getvalue().split("\n\n")[-1].strip()[:200]}


def _judges() -> List[Dict[str, Any]]:  # noqa: UP006
    return [dict(vars(judge)) for judge in _JUDGES]


def end_others() -> None:
    """Kill what the agent left running in this workspace: it could change files while they are tested."""
    for _ in range(TRIES):
        found = others()
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if not found:
            break
        time.sleep(WAIT_S)


def others() -> List[int]:  # noqa: UP006
    """Processes of other commands of this sandbox whose folder is the workspace, or below it."""
    box, own, here = os.environ.get("BENCH_SANDBOX"), os.environ.get("BENCH_EXEC"), os.getcwd()
    found = []
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                pairs = [word.partition("=") for word in os.fsdecode(file.read()).split("\0")]
            marks = {name: value for name, _, value in pairs}
            where = os.readlink(f"/proc/{pid}/cwd")
        except OSError:
            continue
        of_another = marks.get("BENCH_EXEC", own) != own and marks.get("BENCH_SANDBOX") == box
        if of_another and (where + "/").startswith(here + "/"):
            found.append(pid)
    return found


if __name__ == "__main__":
    main()
