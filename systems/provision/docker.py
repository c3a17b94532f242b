"""A server in a container: vLLM's and SGLang's own images, or any other with the same inside.

The Docker engine is spoken to through its Python SDK, with DOCKER_HOST and the like as the ``docker``
command has them (``docker_engine``). What a crash leaves behind is found by its labels.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from threading import Event, Thread
from types import TracebackType
from typing import Any, Self

from systems.engines.vllm_virtual import ROOT, EngineUnavailable
from systems.provision.docker_engine import FLEET, OWNER, connect, explained, keep_output, remove
from systems.provision.owner import myself
from systems.provision.process import SECRETS, free_port, refuse_taken
from systems.provision.recipe import START_S, Place, Recipe, asked, healthy, hidden, told

NETWORKS = ("auto", "bridge", "host")
INSIDE = 8000
"""Port in a container with a network of its own."""
CREATE_S = 30.0
"""Interrupted, we wait so long for a container that is being created, to remove it."""
CODE = PurePosixPath("/bench/code")
LOGS = PurePosixPath("/bench/logs")
MODEL = PurePosixPath("/bench/model")
HUB = PurePosixPath("/bench/hub")


@dataclass(frozen=True)
class ContainerOptions:
    """``image``: "" is what the server's makers publish. ``gpus``: "", "all", or ids like "0,1".

    ``shm``: of /dev/shm (PyTorch's workers need it). ``network``: bridge publishes the port on 127.0.0.1
    only; host shares the machine's network; auto is bridge, or host where the engine has no bridge.
    ``port`` 0: a free one. ``pull``: fetch the image first. ``fleet``: of ``bench up``; such a container
    outlives who starts it. ``user``: uid:gid; "": the image's.
    """

    image: str = ""
    gpus: str = ""
    shm: str = "8g"
    network: str = "auto"
    port: int = 0
    pull: bool = False
    fleet: str = ""
    user: str = ""

    def __post_init__(self) -> None:
        if self.network not in NETWORKS:
            raise ValueError(f"network must be one of {', '.join(NETWORKS)}, got {self.network!r}")


class ContainerServer:
    """One server in a container (systems.provision.engine.LiveEngine).

    Our packages and ``folder`` are mounted; so are the model's folder and ``hf_cache``. HF_TOKEN of our
    environment is handed in and never shown. ``output`` is brought up to date when the server is asked
    for its last words and when it is stopped. Raises EngineUnavailable with what to do.
    """

    def __init__(
        self, recipe: Recipe, folder: Path, container: ContainerOptions | None = None, *, name: str = "",
        client: Any = None,
    ) -> None:  # fmt: skip
        self.recipe = recipe
        self.container = container or ContainerOptions(gpus="all" if recipe.gpu else "")
        self.folder = folder
        self.name = name or folder.name
        self.url = ""
        self.output = folder / "server.log"
        self.calls: Path | None = folder / "calls.jsonl" if recipe.mounted else None
        self.steps: Path | None = folder / "steps.jsonl" if recipe.mounted else None
        self.control: str | None = None
        self._client = client
        self._running: Any = None
        self._facts: dict[str, Any] = {}

    def __enter__(self) -> Self:
        self.begin()
        self.ready()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def title(self) -> str:
        """What it is, for messages."""
        return f"container {self.name} ({self._image})"

    @property
    def id(self) -> str:
        """Of the container, "" if there is none."""
        return str(self._running.id) if self._running is not None else ""

    def begin(self) -> None:
        """Start the container. Old logs are removed."""
        self._client = self._client or connect()
        if self.container.network == "auto":
            self.container = replace(self.container, network=_network(self._client))
        if self.container.port:
            refuse_taken(self.container.port)
        self.folder.mkdir(parents=True, exist_ok=True)
        for old in ("calls.jsonl", "steps.jsonl", "server.log"):
            (self.folder / old).unlink(missing_ok=True)
        try:
            with explained(self._image):
                self._run()
        except BaseException:
            self.stop()
            raise
        self.control = str(self.folder / "control.sock") if self.recipe.controlled else None

    def _run(self) -> None:
        if self.container.pull:
            self._client.images.pull(self._image)
        host = self.container.network == "host"
        port = (self.container.port or free_port()) if host else self.container.port
        self._create(self._settings(port))
        self._running.start()
        self.url = f"http://127.0.0.1:{port if host else self._published()}"

    def _create(self, settings: Mapping[str, Any]) -> None:
        """In a thread: on Ctrl-C the answer is still awaited, or nobody would know of the container."""
        done, errors = Event(), []

        def create() -> None:
            try:
                self._running = self._client.containers.create(self._image, **settings)
            except Exception as error:
                errors.append(error)
            finally:
                done.set()

        try:
            Thread(target=create, daemon=True).start()
            done.wait()
        except KeyboardInterrupt:
            done.wait(CREATE_S)
            raise
        if errors:
            raise errors[0]

    def ready(self, limit_s: float = START_S) -> None:
        """Wait until it answers. If it does not, it is removed."""
        deadline = time.monotonic() + limit_s
        try:
            while not healthy(self.url):
                self.check()
                if time.monotonic() > deadline:
                    raise EngineUnavailable(f"{self.title}: no answer within {limit_s:g} s; {self.words()}")
                time.sleep(0.2)
            self._facts = self._ask()
        except BaseException:
            self.stop()
            raise

    def check(self) -> None:
        """Raises EngineUnavailable, with its last words, if the container has ended."""
        if self._running is None:
            raise EngineUnavailable(f"{self.title}: it is not running")
        with explained(self._image):
            self._running.reload()
            state = self._running.attrs["State"]
        if state["Running"]:
            return
        why = " for want of memory" if state.get("OOMKilled") else ""
        raise EngineUnavailable(
            f"{self.title}: it ended{why} (exit code {state['ExitCode']}); {self.words()}"
        )

    def words(self) -> str:
        """The last lines of its output that tell something."""
        self._keep_output()
        text = self.output.read_bytes()[-65_536:].decode(errors="replace") if self.output.is_file() else ""
        return told(text, self.output)

    def facts(self) -> dict[str, Any]:
        """For the manifest: image and digest, version, command line (secrets hidden), GPUs."""
        words = hidden(self.recipe.command(self._place(INSIDE)), _secrets())
        return {
            "kind": self.recipe.kind, "how": "docker", "image": self._image, "command": words,
            "gpus": self.container.gpus, "network": self.container.network, **self._facts,
        }  # fmt: skip

    def ask(self) -> None:
        """Ask it to end, without waiting: so several can end together. ``stop`` is still to be called."""
        if self._running is not None:
            with contextlib.suppress(Exception):  # it has ended, or ``stop`` will say what is wrong
                self._running.kill(signal="SIGTERM")

    def stop(self) -> None:
        """Keep its output, end and remove it; idempotent."""
        running = self._running
        if running is None:
            return
        with contextlib.suppress(Exception):  # the log is no reason to leave the container
            self._keep_output()
        remove(running)
        self._running = None

    @property
    def _image(self) -> str:
        return self.container.image or self.recipe.image

    def _place(self, port: int) -> Place:
        host = self.container.network == "host"
        model = str(MODEL) if isinstance(self.recipe.model, Path) else self.recipe.model
        control = str(LOGS / "control.sock") if self.recipe.controlled else None
        return Place(port, Path(LOGS), model, "127.0.0.1" if host else "0.0.0.0", control)

    def _settings(self, port: int) -> dict[str, Any]:
        """Of the container, for the SDK."""
        host = self.container.network == "host"
        place = self._place(port if host else INSIDE)
        found: dict[str, Any] = {
            "entrypoint": ["python3"], "command": self.recipe.command(place),
            "environment": self._environment(),
            "volumes": self._mounts(), "labels": self._labels(), "shm_size": self.container.shm,
            "name": self._name(), "working_dir": str(LOGS), "detach": True,
        }  # fmt: skip
        if self.container.user:
            found["user"] = self.container.user
        if self.container.gpus:
            found["device_requests"] = [_gpus(self.container.gpus)]
        if host:
            return found | {"network_mode": "host"}
        return found | {"ports": {f"{INSIDE}/tcp": ("127.0.0.1", port or None)}}

    def _environment(self) -> dict[str, str]:
        found = {**self.recipe.environment(), "PYTHONPATH": str(CODE), "PYTHONDONTWRITEBYTECODE": "1"}
        if self.recipe.hf_cache is not None:
            found["HF_HOME"] = str(HUB)
        return found | {name: os.environ[name] for name in SECRETS if os.environ.get(name)}

    def _mounts(self) -> dict[str, Mapping[str, str]]:
        mounts: dict[str, Mapping[str, str]] = {
            str(ROOT / "vocabulary.py"): {"bind": str(CODE / "vocabulary.py"), "mode": "ro"},
            str(ROOT / "systems"): {"bind": str(CODE / "systems"), "mode": "ro"},
            str(self.folder.resolve()): {"bind": str(LOGS), "mode": "rw"},
        }
        if isinstance(self.recipe.model, Path):
            mounts[str(self.recipe.model.resolve())] = {"bind": str(MODEL), "mode": "ro"}
        if self.recipe.hf_cache is not None:
            mounts[str(self.recipe.hf_cache.resolve())] = {"bind": str(HUB), "mode": "rw"}
        return mounts

    def _labels(self) -> dict[str, str]:
        owner = "" if self.container.fleet else str(myself())
        return {OWNER: owner, FLEET: self.container.fleet, "agent-serving-bench.engine": self.name}

    def _name(self) -> str:
        """Unique per fleet and engine; one of a run has its process in it."""
        return f"bench-{self.container.fleet or os.getpid()}-{self.name}"

    def _published(self) -> int:
        """The port of this machine that leads to the server. Raises EngineUnavailable if there is none."""
        self._running.reload()
        bound = (self._running.attrs["NetworkSettings"].get("Ports") or {}).get(f"{INSIDE}/tcp")
        if not bound:
            self.check()
            raise EngineUnavailable(
                f"{self.title}: its port is not published: does the Docker engine run without a bridge? "
                "Then take the network host"
            )
        return int(bound[0]["HostPort"])

    def _keep_output(self) -> None:
        if self._running is not None:
            keep_output(self._running, self.output)

    def _ask(self) -> dict[str, Any]:
        image = self._running.image
        digests = image.attrs.get("RepoDigests") or []
        found = {"digest": digests[0].partition("@")[2] if digests else image.id, "container": self.id[:12]}
        path = "/version" if self.recipe.kind == "vllm" else "/server_info"
        with contextlib.suppress(EngineUnavailable):
            found["version"] = str(asked(self.url, path).get("version", ""))
        return found


def _network(client: Any) -> str:
    with explained("of any"):
        there = [one.name for one in client.networks.list(names=["bridge"])]  # of names that have it in them
    return "bridge" if "bridge" in there else "host"


def _gpus(words: str) -> Any:
    from docker.types import DeviceRequest

    if words == "all":
        return DeviceRequest(count=-1, capabilities=[["gpu"]])
    return DeviceRequest(device_ids=words.split(","), capabilities=[["gpu"]])


def _secrets() -> list[str]:
    return [os.environ.get(name, "") for name in SECRETS]


def split_gpus(gpus: str, replicas: int, each: int) -> list[str]:
    """GPU ids per replica. Raises ValueError if ``all`` or too few are given for several replicas."""
    if not gpus or replicas == 1:
        return [gpus] * replicas
    ids = gpus.split(",")
    if gpus == "all" or len(ids) < replicas * each:
        raise ValueError(
            f"{replicas} replicas of {each} GPU(s) need {replicas * each} ids, like 0,1,2; got {gpus!r}"
        )
    return [",".join(ids[i * each : (i + 1) * each]) for i in range(replicas)]
