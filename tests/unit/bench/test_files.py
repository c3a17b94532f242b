import errno
import fcntl
import json
import math
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from bench.errors import MissingError
from bench.files import WRITER, explain, locked, plain, ready, write_atomic, write_json


def test_json_is_strict_and_atomic(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"x": math.inf, "y": np.float64(2.5), "z": (1, np.int64(2)), 3: math.nan})
    assert json.loads(path.read_text()) == {"x": None, "y": 2.5, "z": [1, 2], "3": None}
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]
    assert plain({"p": tmp_path}) == {"p": str(tmp_path)}


@pytest.mark.parametrize("content", ["text", b"bytes"])
def test_a_full_disk_leaves_the_old_file_and_no_part(tmp_path, monkeypatch, content):
    path = tmp_path / "a"
    write_atomic(path, "old")

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomic(path, content)
    assert ([p.name for p in tmp_path.iterdir()], path.read_text()) == (["a"], "old")


def test_a_folder_below_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(MissingError, match="--out"):
        ready(tmp_path / "file" / "results", 0)


def test_a_full_disk_is_refused_at_the_start(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=10**6))
    with pytest.raises(MissingError, match="1 MB free and this run needs about 5 MB"):
        ready(tmp_path / "r", 5 * 10**6)
    assert list((tmp_path / "r").iterdir()) == []


def test_no_space_is_named(tmp_path):
    line = str(explain(OSError(errno.ENOSPC, "No space left on device"), tmp_path))
    assert "no space left" in line
    assert "finished results are kept" in line


@pytest.fixture(params=["kernel", "no locks"])
def locks(request, monkeypatch):
    """Both kinds of file system; the holder's child process does the same."""
    if request.param == "no locks":
        monkeypatch.setattr(fcntl, "flock", no_locks)
    return request.param


def no_locks(*_):
    raise OSError(errno.ENOLCK, "No locks available")


def holder(folder, locks):
    """A process that holds ``folder`` until it is killed."""
    patch = "from tests.unit.bench.test_files import no_locks; import fcntl; fcntl.flock = no_locks\n"
    code = (
        "import sys, time; from pathlib import Path; from bench.files import locked\n"
        f"{patch if locks == 'no locks' else ''}"
        "with locked(Path(sys.argv[1])):\n    print('held', flush=True)\n    time.sleep(60)\n"
    )
    env = os.environ | {"PYTHONPATH": os.getcwd()}
    made = subprocess.Popen([sys.executable, "-c", code, str(folder)], env=env, stdout=subprocess.PIPE)
    assert made.stdout.readline() == b"held\n"
    return made


def test_one_writer_per_folder(tmp_path, locks):
    for _ in range(2):
        with locked(tmp_path):
            line = rf"another bench run \(pid {os.getpid()}\) is writing this cell"
            with pytest.raises(MissingError, match=line), locked(tmp_path):
                pass
            assert (tmp_path / WRITER).exists(), "the refused one must not take the name away"
        assert list(tmp_path.iterdir()) == []


def test_another_process_is_named_and_one_that_was_killed_does_not_block(tmp_path, locks):
    other = holder(tmp_path, locks)
    try:
        with pytest.raises(MissingError, match=rf"pid {other.pid}\) is writing"), locked(tmp_path):
            pass
        other.kill()
        other.wait()
        assert (tmp_path / WRITER).exists()
        with locked(tmp_path):
            assert (tmp_path / WRITER).read_text().startswith(f"{os.getpid()} ")
    finally:
        other.kill()
        other.wait()
        other.stdout.close()


def test_without_locks_a_writer_on_another_machine_counts_as_alive(tmp_path, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", no_locks)
    (tmp_path / WRITER).write_text("7 elsewhere")
    with pytest.raises(MissingError, match=r"pid 7 on elsewhere\)"), locked(tmp_path):
        pass
    (tmp_path / WRITER).write_text("")
    with locked(tmp_path):
        pass
