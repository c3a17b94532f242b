"""A third-party router as a process in front of engines (systems.provision.engine.LiveEngine).

    with FrontProcess(build_front(spec), [engine.url for engine in engines], folder) as front:
        ...  # front.url answers; each call carries build_front(spec).headers(program, prompt)

Its output is server.log in the folder. It dies with the thread that starts it, as engines do.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from systems.engines.vllm_virtual import EngineUnavailable
from systems.fronts.protocol import Front
from systems.provision.process import ServerProcess, free_port
from systems.provision.recipe import Place, asked
from systems.provision.venvs import python_of

READY_S = 60.0
"""A front that does not serve by then is given up (0.1 to 2 s on a quiet machine)."""


@dataclass(frozen=True)
class FrontRecipe:
    """A front and the base URLs of the engines behind it, as ``ServerProcess`` wants to be told."""

    front: Front
    engines: tuple[str, ...]
    image: str = ""
    model: str = ""
    mounted: bool = False
    controlled: bool = False
    hf_cache: Path | None = None
    gpu: bool = False

    @property
    def kind(self) -> str:
        """The front's name."""
        return self.front.name

    @property
    def name(self) -> str:
        """The front's name."""
        return self.front.name

    def command(self, place: Place) -> list[str]:
        """Its metrics have a free port of their own: all fronts want the same one by default."""
        metrics = free_port()
        while metrics == place.port:
            metrics = free_port()
        return self.front.command(place.port, self.engines, metrics)

    def environment(self) -> Mapping[str, str]:
        """Calls to engines go there, whatever proxy there is for the rest of the world."""
        hosts = sorted({urlsplit(url).hostname or "" for url in self.engines} | {"127.0.0.1"})
        return {"NO_PROXY": ",".join(hosts), "no_proxy": ",".join(hosts), "HF_HUB_OFFLINE": "1"}


class FrontProcess(ServerProcess):
    """One front; its surface and its errors are ``ServerProcess``'s.

    ``engines``: base URLs, at least one; they need not answer before ``ready``. ``python``: of its
    environment, None: the one that ``systems.provision.venvs`` builds.
    """

    def __init__(
        self, front: Front, engines: Sequence[str], folder: Path, python: Path | None = None, *, port: int = 0
    ) -> None:
        if not engines:
            raise ValueError(f"front {front.name} needs the URL of at least one engine")
        recipe = FrontRecipe(front, tuple(engines))
        super().__init__(recipe, folder, python, name=front.name, port=port, extra={"PYTHONPATH": ""})
        self.front = front
        self.engines = tuple(engines)
        self.title = f"front {front.name}"
        self._given = python
        self._limit_s = READY_S

    def python(self) -> Path:
        """The Python of its environment. Raises EngineUnavailable if that is not built."""
        return self._given or python_of(self.front)

    def ready(self, limit_s: float = READY_S) -> None:
        """Wait until it answers and has found every engine to be healthy."""
        self._limit_s = limit_s
        super().ready(limit_s)

    def settle(self) -> None:
        """Wait until it sends calls to every engine: before, those of a hash would go elsewhere."""
        deadline, want = time.monotonic() + self._limit_s, len(set(self.engines))
        while (found := self.healthy()) < want:
            self.check()
            if time.monotonic() > deadline:
                raise EngineUnavailable(
                    f"{self.title}: it finds {found} of {want} engines healthy after {self._limit_s:g} s; "
                    f"{self.words()}"
                )
            time.sleep(0.05)

    def healthy(self) -> int:
        """How many engines it finds healthy now; 0 if it does not tell."""
        with contextlib.suppress(EngineUnavailable):
            told = asked(self.url, self.front.health)
            count = told.get("healthy_workers", 0) if isinstance(told, dict) else 0
            return count if isinstance(count, int) else 0
        return 0

    def facts(self) -> dict[str, Any]:
        """For the manifest: kind, package and version, command line, engines behind it."""
        return {
            **super().facts(),
            "package": self.front.requirement,
            "engines": list(self.engines),
        }
