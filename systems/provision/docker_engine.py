"""The Docker engine: reaching it, what its refusals mean, what of ours is in it, and taking that out."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from systems.engines.vllm_virtual import EngineUnavailable
from systems.provision.owner import alive

OWNER = "agent-serving-bench.owner"
"""Label: the process that started the container (systems.provision.owner), "" if it outlives that."""
FLEET = "agent-serving-bench.fleet"
"""Label: the fleet of ``bench up`` it belongs to, "" if none."""
STOP_S = 15
_NO_GPU = (
    "could not select device driver",
    "unknown or invalid runtime name",
    "nvidia-container",
    "cdi device",
)


def connect() -> Any:
    """A client of the Docker engine. Raises EngineUnavailable saying why there is none."""
    import docker

    where = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    try:
        client = docker.from_env()
        client.ping()
    except Exception as error:  # requests' and the SDK's, one inside the other
        text = str(error)
        if "Permission denied" in text or "PermissionError" in text:
            help_ = "you may not use it: join the group docker (newgrp docker), or run as root"
        elif "No such file" in text or "Connection refused" in text or "FileNotFoundError" in text:
            help_ = "nobody answers: start it (systemctl start docker), or set DOCKER_HOST"
        else:
            help_ = text[:200]
        raise EngineUnavailable(f"Docker engine at {where}: {help_}") from None
    return client


def leftovers(client: Any, fleet: str | None = None) -> list[Any]:
    """Containers of ours, running or not: of a fleet, or (None) of no fleet, whose starter is gone."""
    found = client.containers.list(
        all=True, ignore_removed=True, filters={"label": [OWNER if fleet is None else f"{FLEET}={fleet}"]}
    )
    if fleet is not None:
        return list(found)
    return [one for one in found if not one.labels.get(FLEET) and not alive(one.labels.get(OWNER, ""))]


def remove(container: Any) -> None:
    """End a container and remove it; nothing to do if it is gone. A second Ctrl-C still removes it."""
    import docker

    with contextlib.suppress(docker.errors.NotFound):
        try:
            container.stop(timeout=STOP_S)
        except docker.errors.NotFound:
            return
        finally:
            container.remove(force=True)


def keep_output(container: Any, file: Path) -> None:
    """Write all the container has said to ``file``."""
    part = file.with_name(file.name + ".part")
    with part.open("wb") as out:
        for chunk in container.logs(stream=True, follow=False):
            out.write(chunk)
    part.replace(file)


@contextlib.contextmanager
def explained(image: str) -> Iterator[None]:
    """The Docker engine's refusals as what to do about them."""
    import docker

    try:
        yield
    except docker.errors.ImageNotFound:
        raise EngineUnavailable(f"image {image} is not here: `docker pull {image}`, or --pull") from None
    except docker.errors.APIError as error:
        raise EngineUnavailable(_refusal(str(error.explanation or error), image)) from None
    except (docker.errors.DockerException, OSError) as error:  # requests' errors are OSErrors
        raise EngineUnavailable(f"the Docker engine does not answer any more: {error}") from None


def _refusal(text: str, image: str) -> str:
    low = text.lower()
    if any(words in low for words in _NO_GPU):
        return f"Docker has no GPU to give ({text}): install nvidia-container-toolkit or leave --gpus out"
    if "is already in use by container" in low:
        return f"a container of that name is there already ({text}): `bench down`, or another --name"
    if "port is already allocated" in low or "address already in use" in low:
        return f"the port is taken ({text}): give another one, or 0 for a free one"
    if "executable file not found" in low:
        return f"image {image} has no python3: it is none of a vLLM or SGLang server"
    return f"the Docker engine refuses image {image}: {text}"
