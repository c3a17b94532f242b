"""Which build is taken: the one of exactly these sources, or none."""

import os
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES

import pytest

from bench import native


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A room with one module that has types, and a place for builds."""
    room = tmp_path / "systems"
    room.mkdir()
    (room / "hot.py").write_text("x = 1\n")
    (room / "hot.pxd").write_text("cdef int x\n")
    (room / "cold.py").write_text("y = 2\n")
    monkeypatch.setattr(native, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setenv(native.SWITCH, str(tmp_path / "builds"))
    return tmp_path


def finished_build():
    target = native.folder()
    (target / "systems").mkdir(parents=True)
    (target / "done").touch()
    return target


def test_the_modules_with_types_are_compiled(project):
    assert [module.name for _, module in native.sources()] == ["hot.py"]


def test_an_edit_of_source_or_types_leaves_the_build_behind(project):
    before = native.folder()
    for name in ("hot.py", "hot.pxd"):
        (project / "systems" / name).write_text("x = 3\n")
        assert native.folder() != before
        before = native.folder()
    (project / "systems/cold.py").write_text("y = 3\n")
    assert native.folder() == before


def test_a_finished_build_is_taken_and_no_other(project):
    assert not native.activate()
    target = native.folder()
    target.mkdir(parents=True)
    assert not native.activate(), "not finished"
    (target / "done").touch()
    assert native.activate()
    assert native.is_compiled()
    finder = sys.meta_path[0]
    spec = finder.find_spec("systems.hot", None)
    assert spec.origin == str(target / f"systems/hot{EXTENSION_SUFFIXES[0]}")
    assert finder.find_spec("systems.cold", None) is None


def test_a_build_can_be_left_alone(project, monkeypatch):
    finished_build()
    monkeypatch.setenv(native.SWITCH, "0")
    assert not native.activate()


def test_the_default_place_is_outside_the_rooms(monkeypatch):
    monkeypatch.delenv(native.SWITCH, raising=False)
    place = native.folder().relative_to(native.ROOT)
    assert place.parts[:2] == ("build", "native")


def test_a_build_does_not_reach_the_code_digest():
    """The address of a result is the same with and without a build (decision 0007)."""
    from bench import code

    assert not {".so", ".pyd", ".c"} & code._KINDS


def test_without_cython_one_line_says_that_python_goes_on(tmp_path):
    blocked = tmp_path / "Cython"
    blocked.mkdir()
    (blocked / "__init__.py").write_text("raise ImportError('no Cython here')")
    done = subprocess.run(
        [sys.executable, str(native.ROOT / "scripts/build_native.py")],
        env=os.environ | {native.SWITCH: str(tmp_path / "builds"), "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 6
    assert done.stderr == "not compiled (no Cython here); everything runs as plain Python\n"
