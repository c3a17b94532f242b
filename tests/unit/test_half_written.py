"""A half-written file of somebody's stops nothing but the run that asks for it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BROKEN = {
    "systems/schedulers/half_done.py": "def arrive(:\n",
    "systems/routers/half_done.py": "raise RuntimeError('not\\nyet')\n",
    "workloads/half_done.py": "import sys\n\nsys.exit('no')\n",
    "systems/catalog/half-done.toml": "[scheduler\n",
}
ASKED = {
    "systems/schedulers/half_done.py": ["--scheduler", "half-done"],
    "systems/routers/half_done.py": ["--router", "half-done"],
    "workloads/half_done.py": ["--workload", "half-done"],
    "systems/catalog/half-done.toml": ["--system", "half-done"],
}


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("broken")
    for room in ("workloads", "systems", "bench", "reports"):
        shutil.copytree(ROOT / room, folder / room, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "vocabulary.py", folder)
    for name, text in BROKEN.items():
        (folder / name).write_text(text)
    return folder


def bench(folder, *words):
    code = "import sys; sys.path.insert(0, '.'); from bench.cli.main import main; main()"
    command = [sys.executable, "-c", code, *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)


def test_a_run_that_needs_none_of_them_warns_in_a_line_each(copy):
    done = bench(copy, "run", "--system", "atlas", "--workload", "chatbot", "-n", "12")
    assert done.returncode == 0, done.stderr
    for name in BROKEN:
        if name.endswith(".py"):
            assert done.stderr.count(f"warning: skipped {name}: ") == 1
    assert "systems/routers/half_done.py: RuntimeError: not yet\n" in done.stderr


def test_the_lists_leave_them_out(copy):
    done = bench(copy, "ls")
    assert done.returncode == 0, done.stderr
    assert [done.stderr.count(f"warning: skipped {name}: ") for name in BROKEN] == [1] * len(BROKEN)
    assert "half-done" not in done.stdout
    assert "half_done" not in done.stdout


@pytest.mark.parametrize("name", ASKED)
def test_the_one_asked_for_is_an_error_in_a_line(copy, name):
    words = {"--system": "vllm-opt", "--workload": "chatbot", ASKED[name][0]: ASKED[name][1]}
    done = bench(copy, "run", "-n", "12", *(word for pair in words.items() for word in pair))
    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines()[-1].startswith(f"error: {name}")
