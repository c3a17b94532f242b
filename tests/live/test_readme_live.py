"""The README's commands that need a vLLM server, as written."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.live, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
COMMANDS = [line.split("#")[0].split() for line in re.findall(r"^    bench (.*)$", README, re.M)]
RUNS = [words for words in COMMANDS if "--engine vllm" in " ".join(words)]
AFTER = [words for words in COMMANDS if "agents" in words and words[0] == "compare"]
"""What looks at the folder of the sweep of agents."""


def bench(words, folder, seconds):
    return subprocess.run(
        [sys.executable, "-m", "bench.cli.main", *words], cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=seconds,
        check=False,
    )  # fmt: skip


def test_there_are_some():
    assert RUNS
    assert AFTER


@pytest.mark.parametrize("words", RUNS, ids=shlex.join)
def test_a_live_command_of_the_readme_works(words, tmp_path):
    done = bench(words, tmp_path, 900)
    assert done.returncode == 0, done.stderr
    assert "MEASURED" in done.stdout
    for then in AFTER if "agents" in words else ():
        done = bench(then, tmp_path, 60)
        assert done.returncode in (0, 3, 5), done.stderr  # one seed decides nothing
        assert "by construction" in " ".join(done.stdout.split())  # scripted on both sides
