"""The README's commands that need a vLLM server, as written."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.live, pytest.mark.slow]

README = (Path(__file__).parents[2] / "README.md").read_text()
COMMANDS = [
    line.split("#")[0].split() for line in re.findall(r"^    bench (.*--engine vllm .*)$", README, re.M)
]


def test_there_are_some():
    assert COMMANDS


@pytest.mark.parametrize("words", COMMANDS, ids=shlex.join)
def test_a_live_command_of_the_readme_works(words, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "bench.cli.main", *words, "--out", str(tmp_path)],
        capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "MEASURED" in done.stdout
