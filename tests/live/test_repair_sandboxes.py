"""All repair tasks in bwrap and docker: the bug fails the hidden tests, the solution passes them.

The Docker engine is started for this file by scripts/with_dockerd.sh (BENCH_WITHOUT_DOCKER=1 leaves it out).
"""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

from workloads.agents.tasks.repair import names, read_task
from workloads.agents.tasks.repair_tools import NO_PYTHON
from workloads.sandboxes.catalog import sandbox_kind
from workloads.sandboxes.contract import SandboxOptions
from workloads.sandboxes.leaks import leaks

pytestmark = [pytest.mark.live, pytest.mark.slow]
ROOT = Path(__file__).parents[2]
OWNER = "repair-live"
AT_ONCE = 4


@pytest.fixture(scope="module")
def engine():
    """A Docker engine for this file."""
    script = ROOT / "scripts" / "with_dockerd.sh"
    engine = subprocess.Popen(
        [str(script), "300", "sh", "-c", "echo $DOCKER_HOST; cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    where = engine.stdout.readline().strip()
    if not where:
        pytest.fail(f"no Docker engine here: {engine.communicate()[1]}")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("DOCKER_HOST", where)
        yield
    engine.communicate("", timeout=60)


def verdicts(kind, tmp_path, chosen, image=""):
    """(before, after) the solution of each task, and what is left of the sandboxes."""
    at_once = asyncio.Semaphore(AT_ONCE)

    async def one(name):
        task = read_task(name)
        options = SandboxOptions(
            f"{kind}-{name}", tmp_path / name, files=task.files, owner=OWNER, image=image
        )
        async with at_once:
            sandbox = sandbox_kind(kind).make(options, lambda event: None)
            await sandbox.init()
            try:
                box = task.toolbox(sandbox)
                before = await task.check(box, ["fixed"])
                said = [await box.call(*call) for action in task.solution[0] for call in action.calls]
                return before, said, await task.check(box, ["fixed"])
            finally:
                await sandbox.teardown()

    async def go():
        return dict(zip(chosen, await asyncio.gather(*map(one, chosen)), strict=True))

    return asyncio.run(go()), leaks(tmp_path, OWNER)


def solved(kind, tmp_path):
    found, left = verdicts(kind, tmp_path, names())
    assert {name: after for name, (_, _, after) in found.items() if not after.success} == {}
    assert [name for name, (before, _, _) in found.items() if before.success] == []
    assert all("Error" not in text.splitlines()[0] for _, said, _ in found.values() for text in said)
    assert left == []


def test_all_tasks_in_bwrap(tmp_path):
    assert sandbox_kind("bwrap").missing() == ""
    solved("bwrap", tmp_path)


@pytest.mark.docker
def test_all_tasks_in_docker(engine, tmp_path):
    solved("docker", tmp_path)


@pytest.mark.docker
def test_a_container_without_python_says_so(engine, tmp_path):
    found, left = verdicts("docker", tmp_path, ["miss"], image="bench-sandbox:busybox")
    before, said, after = found["miss"]
    assert before == after == (False, NO_PYTHON)
    assert said[0] == f"Error: {NO_PYTHON}."
    assert left == []
