import pytest

from workloads.sandboxes.catalog import UnknownName, sandbox_kind, sandbox_kinds


def test_kinds_are_found_by_their_files():
    assert {"bwrap", "docker", "process"} <= set(sandbox_kinds())
    assert all(kind.name == name for name, kind in sandbox_kinds().items())
    assert sandbox_kind("process").missing() == ""


def test_an_unknown_name_is_told_the_nearest():
    with pytest.raises(UnknownName, match="no sandbox kind 'bwarp': did you mean 'bwrap'"):
        sandbox_kind("bwarp")
    with pytest.raises(UnknownName, match="known: bwrap, docker, process"):
        sandbox_kind("virtualbox")


def test_who_has_no_bwrap_is_told_what_to_install(monkeypatch, tmp_path):
    from workloads.sandboxes import bwrap

    bwrap._why_not.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "install bubblewrap" in sandbox_kind("bwrap").missing()
    bwrap._why_not.cache_clear()
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    fake.chmod(0o755)
    assert "No permissions to create new namespace: allow user namespaces" in sandbox_kind("bwrap").missing()
    bwrap._why_not.cache_clear()


def test_who_has_no_docker_is_told_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    assert "nobody answers: start it" in sandbox_kind("docker").missing()
    assert sandbox_kind("docker").sweep("nobody") == []
