"""The rules of the house: who imports whom, how long a file may be, what the README promises."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from systems.protocols import Scheduler
from vocabulary import Call, Snapshot
from workloads.session import CallEffect

ROOT = Path(__file__).parents[2]
ROOMS = ("workloads", "systems", "bench", "reports")
LONGEST = 400
SERVER = {"vllm", "torch", "numpy"}  # only where the code runs inside a vLLM process
HOSTS = {  # not mounted into an engine's image: what they host is
    "vllm_host": SERVER,
    "gateway": {"aiohttp", "orjson", "prometheus_client", "uvloop"},
    "provision": {"docker"},
}
MACHINE_PATH = re.compile(r"(?<![\w.~-])/(work|root|home/\w+)/")


def package_files():
    return [ROOT / "vocabulary.py", *(path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py")))]


def tracked_files():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def name(path):
    return str(path.relative_to(ROOT))


def imported(path):
    """Top-level names a file imports, with their lines; imports inside functions count."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name.partition(".")[0], node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{name(path)}:{node.lineno}: write the import from the room's name"
            yield node.module.partition(".")[0], node.lineno


def foreign(path, allowed):
    return [
        f"{name(path)}:{line} imports {top}"
        for top, line in imported(path)
        if top not in sys.stdlib_module_names and top not in allowed
    ]


def test_files_are_short():
    sizes = {name(path): len(path.read_text().splitlines()) for path in package_files()}
    assert {file: lines for file, lines in sizes.items() if lines > LONGEST} == {}


def test_the_vocabulary_knows_the_standard_library_only():
    assert foreign(ROOT / "vocabulary.py", set()) == []


@pytest.mark.parametrize("path", sorted((ROOT / "systems").rglob("*.py")), ids=name)
def test_systems_run_where_only_the_standard_library_is(path):
    room = path.relative_to(ROOT / "systems").parts[0]
    assert foreign(path, {"systems", "vocabulary"} | HOSTS.get(room, set())) == []


def test_the_import_contract_holds():
    command = [Path(sys.executable).parent / "lint-imports", "--no-logo", "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_path_of_somebodys_machine_is_tracked():
    found = [
        f"{name(path)}:{number}"
        for path in tracked_files()
        if path.suffix not in {".parquet", ".gz", ".png"}
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if MACHINE_PATH.search(line)
    ]
    assert found == []


def test_live_tests_fail_rather_than_skip():
    files = [path for path in tracked_files() if path.suffix == ".py" and "live" in path.parts]
    skips = re.compile(r"\b(skip|skipif|importorskip|xfail)\b *\(")
    assert [name(path) for path in files if skips.search(path.read_text())] == []


@pytest.mark.parametrize("document", ["README.md", ".ci/run", ".github/workflows/ci.yml", "CHANGELOG.md"])
def test_every_make_command_exists(document):
    targets = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    text = (ROOT / document).read_text()
    named = set(re.findall(r"(?:`|run: |^)make ([a-z][\w-]*)", text, re.MULTILINE))
    named |= {
        word for line in re.findall(r"^for target in (.*); do", text, re.MULTILINE) for word in line.split()
    }
    assert named - targets == set()
    if document == "README.md":
        assert {"quickstart", "test"} <= named


def test_relative_links_of_the_documents_lead_somewhere():
    missing = [
        f"{name(path)}: {target}"
        for path in tracked_files()
        if path.suffix == ".md"
        for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", path.read_text())
        if not (path.parent / target).exists()
    ]
    assert missing == []


def readme_code(first_line):
    """What the README's block that starts with ``first_line`` defines."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (code,) = (block for block in blocks if block.startswith(first_line))
    scope = {"__name__": "readme"}
    exec(code, scope)
    return scope


def test_the_policy_of_the_readme_is_one():
    policy = readme_code("# systems/schedulers/")["SCHEDULER"]()
    assert isinstance(policy, Scheduler)
    slots = [
        policy.arrive(Call(seq, 0, "", seq, tokens), Snapshot(), 0.0) for seq, tokens in enumerate((9, 4))
    ]
    assert slots[1] < slots[0]


def test_the_workload_of_the_readme_is_one():
    programs = readme_code("# workloads/")["WORKLOAD"].build(2, seed=1)
    assert [spec.key for spec in programs.programs] == [
        spec.key for spec in readme_code("# workloads/")["WORKLOAD"].build(2, seed=1).programs
    ]
    assert isinstance(programs.programs[0].launch().send(None), CallEffect)
