import errno
import json
import math
import shutil

import numpy as np
import pytest

from bench.errors import MissingError
from bench.files import explain, locked, plain, ready, write_json


def test_json_is_strict_and_atomic(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"x": math.inf, "y": np.float64(2.5), "z": (1, np.int64(2)), 3: math.nan})
    assert json.loads(path.read_text()) == {"x": None, "y": 2.5, "z": [1, 2], "3": None}
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]
    assert plain({"p": tmp_path}) == {"p": str(tmp_path)}


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


def test_one_writer_per_folder(tmp_path):
    with locked(tmp_path), pytest.raises(MissingError, match="another bench process"), locked(tmp_path):
        pass
    with locked(tmp_path):
        pass
