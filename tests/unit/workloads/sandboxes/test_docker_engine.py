import io
import tarfile
from types import SimpleNamespace

import docker
import pytest

from workloads.sandboxes import catalog, docker_engine
from workloads.sandboxes.catalog import sandbox_kind
from workloads.sandboxes.contract import SandboxError
from workloads.sandboxes.docker_engine import OWNER, PROCESS, build_image, ours, text_of
from workloads.sandboxes.leaks import leaks
from workloads.sandboxes.processes import Process

THIS = Process.this()
GONE = THIS._replace(start=THIS.start + 1)
ELSEWHERE = THIS._replace(boot="another")


class Engine:
    """As much of a client as is used; it keeps what it is given."""

    def __init__(self, *containers):
        self.containers = SimpleNamespace(list=self.list)
        self.api = SimpleNamespace(import_image_from_data=self.keep)
        self.found = containers

    def list(self, *, filters, **_):
        key, _, value = filters["label"].partition("=")
        return [one for one in self.found if key in one.labels and value in ("", one.labels[key])]

    def keep(self, data, repository, tag):
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            self.kept = ({member.name: member for member in tar.getmembers()}, repository, tag)


def container(name, process, status="running", owner="run"):
    said = process if isinstance(process, str) else text_of(process)
    return SimpleNamespace(name=name, status=status, labels={PROCESS: said, OWNER: owner})


def test_whose_containers_are_left():
    engine = Engine(
        container("living", THIS), container("gone", GONE),
        container("in another container", GONE._replace(space="9")),
        container("of another machine", ELSEWHERE), container("before a boot", ELSEWHERE, "exited"),
        container("of another version", "12"), container("a run's", THIS, owner="mine"),
    )  # fmt: skip
    assert [one.name for one in ours(engine)] == ["gone", "before a boot"]
    assert [one.name for one in ours(engine, "mine")] == ["a run's"]


@pytest.mark.parametrize(
    ("error", "words"),
    [(docker.errors.APIError("500 boom"), "refuses: 500 boom"), (OSError("reset"), "does not answer: reset"),
     (docker.errors.NotFound("404", explanation="no such route"), "refuses: no such route")],
)  # fmt: skip
def test_an_engine_that_hiccups_loses_no_run(monkeypatch, tmp_path, error, words):
    """It is said in words: by who sweeps, and by who looks for leaks if the run used an engine."""

    def fail(**_):
        raise error

    client = SimpleNamespace(containers=SimpleNamespace(list=fail))
    monkeypatch.setattr(docker_engine, "connect", lambda: client)
    with pytest.raises(SandboxError, match=words):
        ours(client)
    assert leaks(tmp_path / "none", "nobody") == []
    (line,) = leaks(tmp_path / "none", "nobody", engine=True)
    assert line.startswith("containers: nobody knows whether some are left: list of containers: ")
    (line,) = sandbox_kind("docker").sweep("nobody")
    assert line.startswith("containers that a run left: cannot be removed: list of containers: ")
    assert words in line


def test_an_engine_that_is_gone_is_a_line_if_the_run_used_it(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    assert leaks(tmp_path, "nobody") == []
    assert "nobody answers" in leaks(tmp_path, "nobody", engine=True)[0]


def test_a_kind_that_cannot_be_swept_does_not_keep_others_from_it(monkeypatch):
    def fail(_):
        raise SandboxError("no place to note sandboxes")

    kinds = {
        "bad": SimpleNamespace(name="bad", sweep=fail),
        "good": SimpleNamespace(sweep=lambda _: ["done"]),
    }
    monkeypatch.setattr(catalog, "sandbox_kinds", lambda: kinds)
    assert catalog.sweep() == [
        "sandboxes of kind bad that a run left: cannot be looked for: no place to note sandboxes", "done"
    ]  # fmt: skip


def test_an_image_of_this_machine():
    engine = Engine()
    assert build_image("usr", engine) == "bench-sandbox:usr"
    members, repository, tag = engine.kept
    assert (repository, tag) == ("bench-sandbox", "usr")
    assert {"bin", "usr", "workspace", "tmp", "etc/passwd"} <= members.keys()
    assert members["bin"].linkname == "usr/bin"
    assert members["tmp"].mode == 0o1777
    assert members["sbin"].isdir(), "the engine puts its init there, where /usr does not hide it"
    with pytest.raises(SandboxError, match="no image 'debian': usr, busybox"):
        build_image("debian", engine)


def test_a_machine_without_busybox_is_told_what_to_install(monkeypatch):
    monkeypatch.setattr(docker_engine, "_BUSYBOX", ())
    with pytest.raises(SandboxError, match="install busybox-static"):
        build_image("busybox", Engine())


def test_a_python_without_the_sdk_is_told(monkeypatch, tmp_path):
    (tmp_path / "socket").touch()
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/socket")
    monkeypatch.setitem(docker_engine.sys.modules, "docker", None)
    with pytest.raises(SandboxError, match=r"has no Docker SDK .*pip install docker"):
        docker_engine.connect()
