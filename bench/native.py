"""A compiled build of the same sources, used where a current one is (docs/decisions/0012).

``make native`` compiles the modules that have a ``.pxd`` (their types for Cython) beside them into
``build/native/<digest>/``, outside the rooms. The digest is over those sources: after an edit there
is no build, and the edited file runs as plain Python. Nothing but speed differs, so a result's
address (decision 0007) does not know of it; its manifest does. BENCH_NATIVE=0 leaves a build alone;
BENCH_NATIVE=FOLDER looks for builds there instead.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from pathlib import Path
from types import ModuleType

# Every command imports this first: what only a build needs is imported where there is one.

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("systems", "bench")
SWITCH = "BENCH_NATIVE"
FLAGS = ("-O2", "-g0", "-ffp-contract=off", "-w")
"""No fused multiply-add: it would change last bits where the CPU has one."""
DIRECTIVES = {"language_level": 3, "annotation_typing": False, "binding": True, "embedsignature": False}
"""Types come from the .pxd files alone: an ``int`` of the sources may be longer than a machine's."""


class _Finder:
    """Finds compiled modules before the path does."""

    def __init__(self, modules: Mapping[str, Path]) -> None:
        self.modules = modules

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """The compiled module of that name; None for every other."""
        file = self.modules.get(fullname)
        if file is None:
            return None
        from importlib.util import spec_from_file_location

        return spec_from_file_location(fullname, file)


def activate() -> bool:
    """Take modules that are imported from now on from the build of these sources, if there is one."""
    place = _place()
    if place is None or not place.is_dir():
        return False
    modules = built(place / digest())
    if modules:
        sys.meta_path.insert(0, _Finder(modules))
    return bool(modules)


def is_compiled() -> bool:
    """Whether compiled modules are in use."""
    return any(isinstance(finder, _Finder) for finder in sys.meta_path)


def folder() -> Path:
    """Where the build of these sources is, or would be."""
    return (_place() or ROOT / "build" / "native") / digest()


def sources() -> list[tuple[Path, Path]]:
    """(types, module) of every module that is compiled."""
    found = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.pxd"))
    return [(types, types.with_suffix(".py")) for types in found]


def digest() -> str:
    """16 hex digits over what a build is made of, and the interpreter it is for."""
    import hashlib

    found = hashlib.sha256(f"{sys.implementation.cache_tag} {FLAGS} {DIRECTIVES}".encode())
    for source in (path for pair in sources() for path in pair):
        found.update(str(source.relative_to(ROOT)).encode() + b"\0" + source.read_bytes() + b"\0")
    return found.hexdigest()[:16]


def built(target: Path) -> dict[str, Path]:
    """The compiled modules of a finished build, by name; none if it is not finished."""
    if not (target / "done").exists():
        return {}
    suffix = EXTENSION_SUFFIXES[0]
    names = [module.relative_to(ROOT).with_suffix("") for _, module in sources()]
    return {".".join(name.parts): target / f"{name}{suffix}" for name in names}


def _place() -> Path | None:
    """The folder of builds; None if builds are switched off."""
    said = os.environ.get(SWITCH, "")
    if said == "0":
        return None
    return Path(said).absolute() if said else ROOT / "build" / "native"
