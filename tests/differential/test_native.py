"""A compiled build (``make native``) and plain Python: the same to the last bit, and the same addresses.

The build is made in a temporary folder, so that nobody else runs on it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.native import ROOT, SWITCH

pytestmark = pytest.mark.slow
RUN = ["run", "--system", "atlas", "--workload", "mcts", "--n", "5", "--rate", "0.3", "--json"]


def python(place: str | Path, *words: str) -> str:
    """What this Python prints with builds from ``place`` ("0": none)."""
    environment = os.environ | {SWITCH: str(place)}
    done = subprocess.run([sys.executable, *words], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("Cython") is None or not shutil.which(os.environ.get("CC", "cc")):
        pytest.skip("needs Cython (pip install '.[native]') and a C compiler")
    place = tmp_path_factory.mktemp("native")
    python(place, "scripts/build_native.py")
    return place


def test_every_scheduler_and_option_gives_the_same_rows_and_decisions(builds: Path) -> None:
    found: list[dict[str, Any]] = [
        json.loads(python(place, "-m", "tests.differential.native_cases")) for place in ("0", builds)
    ]
    assert [case.pop("compiled") for case in found] == [False, True]
    assert len(found[0]) > 80
    assert found[0] == found[1]


def test_a_run_has_the_same_result_and_the_same_address(builds: Path, tmp_path: Path) -> None:
    hashes, names = [], []
    for place, out in (("0", tmp_path / "plain"), (builds, tmp_path / "compiled")):
        hashes.append(
            json.loads(python(place, "-m", "bench.cli.main", *RUN, "--out", str(out)))["result_hash"]
        )
        names.append([folder.name for folder in out.iterdir()])
    assert hashes[0] == hashes[1]
    assert names[0] == names[1]


def test_version_says_so(builds: Path) -> None:
    assert "simulator: compiled" in python(builds, "-m", "bench.cli.main", "version")
    assert "simulator: plain Python" in python("0", "-m", "bench.cli.main", "version")
