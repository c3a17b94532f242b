"""Environments of third parties, with an interpreter that only pretends to install."""

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from systems.engines.vllm_virtual import EngineUnavailable
from systems.fronts.smg import Smg
from systems.fronts.vllm_router import VllmRouter
from systems.provision import venvs
from tests.unit.systems.provision.fakes import eventually

PRETENDS = """#!{real}
import os, shutil, sys, time
with open({log!r}, "a") as log:
    log.write(" ".join(sys.argv[1:]) + chr(10))
if sys.argv[1:3] == ["-m", "venv"]:
    shutil.rmtree(sys.argv[4], ignore_errors=True)
    os.makedirs(sys.argv[4] + "/bin")
    shutil.copy(__file__, sys.argv[4] + "/bin/python")
{more}
"""


@pytest.fixture
def routers(tmp_path, monkeypatch):
    monkeypatch.setenv("BENCH_ROUTERS", str(tmp_path / "routers"))
    return tmp_path / "routers"


def pretending(folder, more=""):
    path = folder / "python"
    path.write_text(PRETENDS.format(real=sys.executable, log=str(folder / "log"), more=more))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def commands(folder):
    return (folder / "log").read_text().splitlines()


def test_an_environment_is_built_once_and_pinned(tmp_path, routers):
    said = []
    built = venvs.build(Smg(), said.append, python=pretending(tmp_path))
    assert built == routers / "smg" / "bin" / "python" == venvs.python_of(Smg())
    install = "install --no-compile smg==1.13.0"
    assert commands(tmp_path) == [
        f"-m venv --clear {routers}/smg --without-pip",
        f"-m pip --python {built} {install}",
    ]
    assert said[0] == f"building {routers}/smg: smg==1.13.0"
    assert said[1].startswith(f"{routers}/smg is ready (")
    assert venvs.build(Smg(), said.append, python="none") == built
    assert said[2] == f"{routers}/smg has smg==1.13.0"


def test_without_a_pip_of_ours_it_gets_its_own(tmp_path, routers, monkeypatch):
    monkeypatch.setattr(venvs, "find_spec", lambda name: None)
    venvs.build(Smg(), lambda line: None, python=pretending(tmp_path))
    assert commands(tmp_path) == [
        f"-m venv --clear {routers}/smg",
        "-m pip install --no-compile smg==1.13.0",
    ]


def test_another_version_is_not_the_one_that_was_pinned(tmp_path, routers, monkeypatch):
    venvs.build(Smg(), lambda line: None, python=pretending(tmp_path))
    monkeypatch.setattr(Smg, "requirement", "smg==9.0.0")
    with pytest.raises(EngineUnavailable, match=r"front smg needs smg==9\.0\.0 in an environment of its own"):
        venvs.python_of(Smg())
    venvs.build(Smg(), lambda line: None, python=pretending(tmp_path))
    assert commands(tmp_path)[-1].endswith(" smg==9.0.0")


def test_a_failed_build_leaves_its_log_and_no_environment(tmp_path, routers):
    fails = "if 'pip' in sys.argv:\n    print('ERROR: no such version'); print('bye'); sys.exit(1)"
    with pytest.raises(EngineUnavailable, match=r"last words: ERROR: no such version \(all of them: .*log"):
        venvs.build(Smg(), lambda line: None, python=pretending(tmp_path, fails))
    assert not (routers / "smg").exists()
    assert "bye" in (routers / "smg.log").read_text()


def test_two_builders_of_one_wait_for_each_other(tmp_path, routers):
    slow = "if 'pip' in sys.argv:\n    time.sleep(0.3)"
    python, said = pretending(tmp_path, slow), [[], []]
    threads = [
        threading.Thread(target=venvs.build, args=(Smg(), one.append), kwargs={"python": python})
        for one in said
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(commands(tmp_path)) == 2, "built once"
    assert any("waiting" in line for line in said[0] + said[1])


def test_an_interrupted_build_starts_over_and_holds_the_lock_while_its_pip_lives(tmp_path, routers):
    hangs = "if 'pip' in sys.argv:\n    print('downloading', flush=True); time.sleep(0.8)"
    script = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parents[4])!r})\n"
        "from systems.fronts.smg import Smg\nfrom systems.provision import venvs\n"
        f"venvs.build(Smg(), print, python={pretending(tmp_path, hangs)!r})"
    )
    builder = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.DEVNULL)
    log = routers / "smg.log"
    eventually(lambda: log.is_file() and "downloading" in log.read_text())
    builder.kill()
    builder.wait()
    said = []
    built = venvs.build(Smg(), said.append, python=pretending(tmp_path))
    assert said[0] == "somebody else builds smg: waiting"
    assert built.is_file()
    assert len(commands(tmp_path)) == 4


def test_a_folder_that_cannot_be_made(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("BENCH_ROUTERS", str(tmp_path / "file"))
    with pytest.raises(EngineUnavailable, match="cannot be built: "):
        venvs.build(VllmRouter(), lambda line: None)


def run(*words, **environment):
    root = Path(__file__).parents[4]
    return subprocess.run(
        [sys.executable, "-m", "systems.provision.venvs", *words], cwd=root, capture_output=True, text=True,
        env={**os.environ, **environment}, timeout=60,
    )  # fmt: skip


def test_the_command_line(tmp_path, routers):
    venvs.build(Smg(), lambda line: None, python=pretending(tmp_path))
    done = run("smg")
    assert (done.returncode, done.stdout) == (0, f"{routers}/smg has smg==1.13.0\n")
    done = run("smgg")
    assert done.returncode == 2
    assert "unknown front 'smgg'. Did you mean smg?" in done.stderr
    blocked = tmp_path / "blocked"
    blocked.write_text("")
    done = run("smg", BENCH_ROUTERS=str(blocked))
    assert (done.returncode, done.stderr.count("\n")) == (6, 1)


def test_the_default_place_is_ignored_by_git(monkeypatch):
    monkeypatch.delenv("BENCH_ROUTERS", raising=False)
    assert venvs.home().name == ".venv-routers"
    done = subprocess.run(["git", "check-ignore", "-q", venvs.home() / "x"], cwd=venvs.ROOT, check=False)
    assert done.returncode == 0
