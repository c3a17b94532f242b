"""Whether a repository is repaired: hidden tests, run by a runner of ours that comes from outside."""

from __future__ import annotations

import json
import re
import secrets
import shlex
from functools import cache
from pathlib import Path

from workloads.agents.tasks import repair_runner
from workloads.agents.tasks.repair_tools import NO_PYTHON, lacks_python
from workloads.sandboxes.contract import Executed, Sandbox

CHECK_S = 60.0
_TEST = re.compile(r"^ +(?:async )?def test_", re.MULTILINE)


async def why_failed(sandbox: Sandbox, hidden: str) -> str:
    """Run ``hidden`` (text of a module of tests) on the workspace; "" if all of it ran and passed, else why
    not, in a line.

    Raises SandboxError if the sandbox is gone.
    """
    word = secrets.token_hex(16)
    asked = json.dumps({"tests": hidden, "word": word})
    done = await sandbox.exec(command(), timeout_s=CHECK_S, stdin=asked)
    return judged(done, word, len(_TEST.findall(hidden)))


@cache
def command() -> str:
    """The line of shell that starts the runner: isolated, so that no file and no variable of the agent is
    read by the interpreter before the code under test is imported."""
    text = Path(repair_runner.__file__).read_text(encoding="utf-8")
    return f"exec python3 -I -S -B -c {shlex.quote(text)}"


def judged(done: Executed, word: str, tests: int) -> str:
    """What the runner said behind ``word``; there have to be ``tests`` tests."""
    if lacks_python(done):
        return NO_PYTHON
    if done.timed_out:
        return f"the hidden tests took more than {CHECK_S:g} s"
    lines = [line for line in done.output.splitlines() if line.strip()]
    line = next((line for line in lines if line.startswith(f"{word} ")), "")
    if not line:
        last = f": {lines[-1].strip()[:200]}" if lines else ""
        return f"hidden tests: no result, exit status {done.code}{last}"
    said = json.loads(line.removeprefix(word))
    if said["ok"] and said["ran"] == tests:
        return ""
    return f"hidden tests: {said['why']} ({said['ran']} of {tests} ran)"
