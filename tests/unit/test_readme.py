"""Every `bench` command of the README is run, in a copy of the project with the README's new files in it."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.fake_engine import FakeEngine

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
COMMANDS = [line.split("#")[0].split() for line in re.findall(r"^    (bench .*)$", README, re.MULTILINE)]
PASTED = {
    block[2 : block.index("\n")]: block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL)
}
"""What the README says to write into a file, by the file's name (the first line's comment)."""
SMALL = {"run": ["-n", "12"], "sweep": ["-n", "12"]}
EXITS = {"compare": 5}
"""Exit codes that are not 0: the README says that its sweep has too few seeds for a verdict."""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The four rooms with the README's policy and workload as one new file each, and a folder of sessions."""
    folder = tmp_path_factory.mktemp("readme")
    for room in ("workloads", "systems", "bench", "reports"):
        shutil.copytree(ROOT / room, folder / room, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "docs" / "fidelity", folder / "docs" / "fidelity")
    for name in ("vocabulary.py", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    for name, block in PASTED.items():
        (folder / name).write_text(block)
    (folder / "sessions").mkdir()
    for i in range(3):
        request = {"t": 0.0, "type": "n", "in": 130, "out": 20, "hash_ids": [1, 2], "api_time": 1.0,
                   "think_time": 0.0, "stop": "end_turn"}  # fmt: skip
        later = request | {"t": 9.0, "in": 200, "hash_ids": [1, 2, 3], "think_time": 5.0}
        session = {"id": f"s{i}", "block_size": 64, "requests": [request, later]}
        (folder / "sessions" / f"{i}.json").write_text(json.dumps(session))
    return folder


def bench(folder: Path, words: list[str]) -> subprocess.CompletedProcess[str]:
    code = "import sys; sys.path.insert(0, '.'); from bench.cli.main import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_readme_has_commands_to_run() -> None:
    assert {words[1] for words in COMMANDS} >= {"run", "reproduce", "ls", "show"}


def needs_vllm(words: list[str]) -> bool:
    """Those are run by tests/live; so is what looks at their folder."""
    return any(word in ("vllm", "vllm-virtual", "agents") for word in words)


def needs_clients(words: list[str]) -> bool:
    """A gateway, and what is run of its recording, have a test of their own."""
    return words[1] == "gateway" or "DIR" in words


@pytest.mark.parametrize(
    "words", [w for w in COMMANDS if not needs_vllm(w) and not needs_clients(w)], ids=shlex.join
)
def test_a_command_of_the_readme_works(words: list[str], copy: Path) -> None:
    verb, *rest = words[1:]
    if "RESULT" in rest:
        assert bench(copy, ["run", "--system", "plas", "--workload", "chatbot", "-n", "12"]).returncode == 0
        rest = [next((copy / "results").iterdir()).name if word == "RESULT" else word for word in rest]
    if "sweep" in rest and verb in ("compare", "report"):
        (swept,) = (words[1:] for words in COMMANDS if words[1] == "sweep" and not needs_vllm(words))
        assert bench(copy, [*swept, *SMALL["sweep"]]).returncode == 0
    small = SMALL.get(verb, [])
    if "--concurrency" in rest:
        small = ["-n", rest[rest.index("--concurrency") + 1]]
    done = bench(copy, [verb, *rest, *small])
    assert done.returncode == EXITS.get(verb, 0), done.stderr
    assert done.stdout.strip()


def test_what_the_readme_records_is_a_workload(copy: Path) -> None:
    door, replay = (words[1:] for words in COMMANDS if needs_clients(words))
    with FakeEngine("m") as engine:
        own = [engine.url if word.startswith("http://") else word for word in door]
        code = "import sys; sys.path.insert(0, '.'); from bench.cli.main import main; main()"
        gateway = subprocess.Popen(
            [sys.executable, "-c", code, *own, "--port", "0"], cwd=copy, stdout=subprocess.PIPE, text=True
        )
        try:
            assert gateway.stdout is not None
            url = gateway.stdout.readline().split()[1]
            for turn in range(1, 4):
                body = json.dumps({"model": "m", "prompt": [7] * 40 * turn, "max_tokens": 4}).encode()
                headers = {"Content-Type": "application/json", "X-Session-ID": "one"}
                ask = urllib.request.Request(f"{url}/v1/completions", body, headers)
                with urllib.request.urlopen(ask, timeout=20) as answer:
                    assert answer.status == 200
            gateway.send_signal(signal.SIGINT)
            assert gateway.wait(20) == 0
        finally:
            gateway.kill()
            gateway.wait()
    done = bench(copy, replay)
    assert done.returncode == 0, done.stderr
    assert "1 programs" in done.stdout


def test_the_files_of_the_readme_are_a_policy_and_a_workload() -> None:
    assert [Path(name).parent.as_posix() for name in PASTED] == ["systems/schedulers", "workloads"]


def test_the_files_of_the_readme_pass_what_a_change_must_pass(copy: Path) -> None:
    ruff = Path(sys.executable).with_name("ruff")
    typed = [sys.executable, "-m", "mypy", *PASTED]
    for command in (
        [ruff, "check", "--no-cache", *PASTED],
        [ruff, "format", "--check", "--no-cache", *PASTED],
        typed,
    ):
        done = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_files_of_the_readme_keep_the_contracts(copy: Path) -> None:
    shutil.copytree(ROOT / "tests" / "contract", copy / "tests" / "contract", dirs_exist_ok=True)
    for helper in (ROOT / "tests").glob("*.py"):
        shutil.copy(helper, copy / "tests")
    contracts = [f"tests/contract/test_{name}_contract.py" for name in ("policies", "workloads")]
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *contracts]
    done = subprocess.run(
        [*command, "-k", "plan-then-act or shortest-prompt"],
        cwd=copy,
        env=os.environ | {"PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(f"{name}] PASSED" in done.stdout for name in ("plan-then-act", "shortest-prompt"))


def test_the_readme_quotes_what_trace_stats_says_of_the_default_workload(copy: Path) -> None:
    said = bench(copy, ["trace", "stats", "mcts"]).stdout
    quotes = re.findall(
        r'"([^"]+)"', README.partition("`bench trace stats mcts` says")[2].partition("\n\n")[0]
    )
    assert len(quotes) == 2
    assert [quote for quote in quotes if " ".join(quote.split()) not in said] == []


def test_docs_metrics_explains_every_number(copy: Path) -> None:
    done = bench(copy, ["run", "--system", "plas", "--workload", "chatbot", "-n", "12", "--json"])
    measured = set(json.loads(done.stdout)["metrics"])
    groups = {name.partition(".")[0] for name in measured}
    words = re.findall(r"`(\w+\.[\w.*]+)`", (ROOT / "docs" / "metrics.md").read_text())
    named = {word: fnmatch.filter(measured, word) for word in words if word.partition(".")[0] in groups}
    assert [word for word, found in named.items() if not found] == []
    assert measured - {name for found in named.values() for name in found} == set()


def test_a_policy_and_a_workload_in_the_current_folder_are_found(copy: Path, tmp_path: Path) -> None:
    (policy,) = (block for block in PASTED.values() if "SCHEDULER" in block)
    (tmp_path / "mine.py").write_text(
        policy + "\n\nasync def agent(s):\n    await s.call(new=100, output=20)\n    await s.tool('x', 1.0)\n"
    )
    words = ["run", "--system", "mine:ShortestPrompt", "--workload", "mine:agent", "-n", "9", "--rate", "2"]
    path = f"import sys; sys.path.insert(0, {str(copy)!r}); sys.path.remove('')"
    code = f"{path}; from bench.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
