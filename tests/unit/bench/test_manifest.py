import subprocess
import sys

import pytest

from bench import native
from bench.manifest import command_line, git_state, hardware, manifest, redact, versions


def test_secrets_are_redacted():
    words = ["bench", "--api-key", "abc123", "--hub-token=xyz", "-p", "password=p", "-p", "max_tokens=16"]
    hidden = ["bench", "--api-key", "***", "--hub-token=***", "-p", "password=***", "-p", "max_tokens=16"]
    assert redact(words) == hidden
    assert redact(["https://me:pw@host/x", "hf_abcdefghijkl"]) == ["https://***@host/x", "***"]


def test_the_command_can_be_pasted():
    assert command_line(["bench", "run", "--out", "a b"]) == "bench run --out 'a b'"


def test_git_commit_and_dirty_flag(tmp_path):
    def git(*words):
        subprocess.run(["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b", *words],
                       check=True, capture_output=True)  # fmt: skip

    assert git_state(tmp_path) == {}
    git("init")
    (tmp_path / "f").write_text("1")
    git("add", "f")
    git("commit", "-m", "x")
    assert git_state(tmp_path)["dirty"] is False
    (tmp_path / "f").write_text("2")
    assert git_state(tmp_path)["dirty"] is True


def test_manifest_names_versions_and_hardware():
    got = manifest({"seed": 1}, {"programs": {"read": 3}}, "bench run")
    assert got["identity"] == {"seed": 1}
    assert got["programs"] == {"read": 3}
    assert {"python", "numpy"} <= set(versions())
    assert hardware()["cores"] >= 1


@pytest.mark.parametrize("compiled", [False, True])
def test_manifest_says_whether_the_simulator_was_compiled(monkeypatch, compiled):
    others = [finder for finder in sys.meta_path if not isinstance(finder, native._Finder)]
    monkeypatch.setattr(sys, "meta_path", [*([native._Finder({})] if compiled else []), *others])
    assert manifest({}, {}, "")["compiled"] is compiled
