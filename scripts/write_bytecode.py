"""Import every module of some packages, and keep the byte code of all that this imports.

    PYTHON scripts/write_bytecode.py PACKAGE...

uv compiles nothing that it installs, and to compile all of it takes longer than to install it. Byte code is
written even where PYTHONDONTWRITEBYTECODE is set: there, every later start would compile again.
"""

import contextlib
import importlib
import pkgutil
import sys
from collections.abc import Iterator


def modules(package: str) -> Iterator[str]:
    """The package's own name and those of all modules below it, whether they can be imported or not."""
    yield package
    with contextlib.suppress(Exception):
        places = getattr(importlib.import_module(package), "__path__", [])
        for found in pkgutil.iter_modules(places, package + "."):
            yield from modules(found.name) if found.ispkg else [found.name]


def main(packages: list[str]) -> None:
    """Import all that can be imported; the rest (what needs vLLM, say) is of no use here either."""
    sys.dont_write_bytecode = False
    sys.path.insert(0, "")
    for package in packages:
        for name in modules(package):
            with contextlib.suppress(Exception):
                importlib.import_module(name)


if __name__ == "__main__":
    main(sys.argv[1:])
