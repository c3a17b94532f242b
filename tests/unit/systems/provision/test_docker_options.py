"""What is asked of the Docker SDK, and what its refusals become; tests/live/test_docker.py has a real one."""

import os
import signal
import time
from types import SimpleNamespace

import docker as sdk
import pytest

from systems.engines.vllm_server import ServerOptions
from systems.engines.vllm_virtual import ROOT, EngineUnavailable
from systems.provision import docker_engine
from systems.provision.docker import ContainerOptions, ContainerServer, split_gpus
from systems.provision.owner import myself
from systems.provision.sglang import SglangOptions

GPU = ServerOptions.on_gpu("org/model", "m", scheduler="atlas", control=True)


class Container:
    id, name = "0123456789abcdef", "bench-x"

    def __init__(self, ports=None, start=None):
        self.attrs = {"State": {"Running": True}, "NetworkSettings": {"Ports": ports}}
        self.done = []
        self._start = start

    def start(self):
        self.done.append("start")
        if self._start:
            raise self._start

    def reload(self):
        pass

    def logs(self, **_):
        return [b"hello\n"]

    def stop(self, timeout):
        self.done.append("stop")

    def remove(self, force):
        self.done.append("remove")


class Client:
    """Remembers what it is asked to create."""

    def __init__(self, container):
        self.containers = self.images = self.networks = self
        self.container, self.asked, self.pulled, self.there = container, None, [], ["bridge"]

    def create(self, image, **settings):
        self.asked = {"image": image, **settings}
        return self.container

    def list(self, names):
        return [SimpleNamespace(name=name) for name in self.there]

    def pull(self, image):
        self.pulled.append(image)


def begun(recipe, options, tmp_path, container=None):
    client = Client(container or Container({"8000/tcp": [{"HostPort": "40001"}]}))
    server = ContainerServer(recipe, tmp_path / "e0", options, client=client)
    server.begin()
    return server, client.asked


def test_a_gpu_server_with_a_port_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    hub = tmp_path / "hub"
    recipe = ServerOptions.on_gpu("org/model", "m", scheduler="atlas", control=True, hf_cache=hub)
    server, asked = begun(recipe, ContainerOptions(gpus="0,2", pull=True), tmp_path)
    assert server.url == "http://127.0.0.1:40001"
    assert asked["image"] == "vllm/vllm-openai:latest"
    assert server._client.pulled == ["vllm/vllm-openai:latest"]
    assert asked["ports"] == {"8000/tcp": ("127.0.0.1", None)}
    assert asked["device_requests"][0]["DeviceIDs"] == ["0", "2"]
    assert asked["device_requests"][0]["Capabilities"] == [["gpu"]]
    assert (asked["shm_size"], asked["entrypoint"]) == ("8g", ["python3"])
    words = asked["command"]
    after = lambda flag: words[words.index(flag) + 1]  # noqa: E731
    assert (after("--host"), after("--port"), after("--model")) == ("0.0.0.0", "8000", "org/model")
    assert '"log": "/bench/logs/calls.jsonl"' in after("--additional-config")
    assert '"control": "/bench/logs/control.sock"' in after("--additional-config")
    assert asked["environment"]["HF_TOKEN"] == "hf_secret"
    assert asked["environment"]["HF_HOME"] == "/bench/hub"
    assert asked["environment"]["PYTHONPATH"] == "/bench/code"
    mounts = {path: (one["bind"], one["mode"]) for path, one in asked["volumes"].items()}
    assert mounts == {
        str(ROOT / "vocabulary.py"): ("/bench/code/vocabulary.py", "ro"),
        str(ROOT / "systems"): ("/bench/code/systems", "ro"),
        str((tmp_path / "e0").resolve()): ("/bench/logs", "rw"),
        str(hub.resolve()): ("/bench/hub", "rw"),
    }
    assert asked["labels"][docker_engine.OWNER] == str(myself())
    assert server.control == str(tmp_path / "e0" / "control.sock")
    assert "hf_secret" not in str(server.facts())
    server.stop()
    assert server._client.container.done == ["start", "stop", "remove"]
    assert server.output.read_bytes() == b"hello\n"


def test_all_gpus_a_network_of_the_host_a_local_model_and_a_fleet(tmp_path):
    model = tmp_path / "model"
    options = ContainerOptions("x:1", "all", network="host", fleet="a.1", user="7:7")
    server, asked = begun(ServerOptions(model), options, tmp_path)
    assert asked["network_mode"] == "host"
    assert "ports" not in asked
    assert asked["device_requests"][0]["Count"] == -1
    words = asked["command"]
    assert words[words.index("--port") + 1] == server.url.rpartition(":")[2]
    assert words[words.index("--host") + 1] == "127.0.0.1"
    assert words[words.index("--model") + 1] == "/bench/model"
    assert asked["volumes"][str(model.resolve())] == {"bind": "/bench/model", "mode": "ro"}
    assert (asked["labels"][docker_engine.OWNER], asked["labels"][docker_engine.FLEET]) == ("", "a.1")
    assert (asked["name"], asked["user"]) == ("bench-a.1-e0", "7:7")


def test_the_network_and_the_gpus_that_nobody_named(tmp_path, monkeypatch):
    monkeypatch.setenv("BENCH_VLLM_IMAGE", "mine:2")
    client = Client(Container())
    client.there = ["my-bridge"]
    server = ContainerServer(GPU, tmp_path / "e0", client=client)
    server.begin()
    assert (client.asked["network_mode"], client.asked["image"]) == ("host", "mine:2")
    assert client.asked["device_requests"][0]["Count"] == -1
    assert server.facts()["network"] == "host"
    assert ContainerServer(ServerOptions("x/y"), tmp_path).container.gpus == ""


def test_sglang_has_nothing_of_ours_to_log(tmp_path):
    server, asked = begun(SglangOptions("org/model"), ContainerOptions(), tmp_path)
    assert asked["image"] == "lmsysorg/sglang:latest"
    assert asked["command"][:2] == ["-m", "sglang.launch_server"]
    assert (server.calls, server.control) == (None, None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('could not select device driver "" with capabilities: [[gpu]]', "nvidia-container-toolkit"),
        ("driver failed programming external connectivity: port is already allocated", "the port is taken"),
        ('exec: "python3": executable file not found in $PATH', "no python3"),
        ("no space left on device", "refuses image .*no space left"),
    ],
)
def test_a_refusal_is_explained_and_the_container_removed(tmp_path, text, said):
    container = Container(start=sdk.errors.APIError("500", explanation=text))
    with pytest.raises(EngineUnavailable, match=said):
        begun(GPU, ContainerOptions(), tmp_path, container)
    assert container.done[-1] == "remove"


def test_ctrl_c_while_it_is_created_removes_it(tmp_path):
    """The engine makes the container whether we wait for its answer or not."""

    class Slow(Client):
        def create(self, image, **settings):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.2)  # the main thread is interrupted meanwhile
            return super().create(image, **settings)

    client = Slow(Container())
    with pytest.raises(KeyboardInterrupt):
        ContainerServer(GPU, tmp_path / "e0", client=client).begin()
    assert client.container.done == ["stop", "remove"]


def test_a_port_that_docker_did_not_publish(tmp_path):
    container = Container({})
    with pytest.raises(EngineUnavailable, match="take the network host"):
        begun(GPU, ContainerOptions(), tmp_path, container)
    assert container.done[-1] == "remove"


def test_who_may_not_use_docker_is_told_so(monkeypatch):
    def refuse():
        raise sdk.errors.DockerException("Connection aborted. PermissionError(13, 'Permission denied')")

    monkeypatch.setattr(sdk, "from_env", refuse)
    with pytest.raises(EngineUnavailable, match="you may not use it: join the group docker"):
        docker_engine.connect()


def test_gpus_are_dealt_out():
    assert split_gpus("0,1,2,3", 2, 2) == ["0,1", "2,3"]
    assert split_gpus("all", 1, 1) == ["all"]
    assert split_gpus("", 3, 1) == ["", "", ""]
    for gpus, replicas, each in (("all", 2, 1), ("0,1", 3, 1), ("0,1", 2, 2)):
        with pytest.raises(ValueError, match="replicas of"):
            split_gpus(gpus, replicas, each)
    with pytest.raises(ValueError, match="network must be one of auto, bridge, host"):
        ContainerOptions(network="none")
