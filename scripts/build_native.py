"""Compile the simulator's hot modules from the sources as they are (docs/decisions/0012).

    .venv/bin/python scripts/build_native.py          # what ``make native`` runs

One to two minutes of a core; does nothing if the build is there. Exit code 6, in one line,
without Cython, setuptools or a C compiler: everything goes on as plain Python.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.native import DIRECTIVES, FLAGS, ROOT, built, folder, sources


def build() -> Path:
    """Compile copies of the sources, in the folder of builds, unless it is done.

    Older builds there go. Raises ImportError without Cython or setuptools, OSError if compiling fails.
    """
    target = folder()
    if not built(target):
        shutil.rmtree(target.parent, ignore_errors=True)
        pairs = sources()
        for source in (path for pair in pairs for path in pair):
            copy = target / source.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, copy)
        _compile(target, [str(types.relative_to(ROOT).with_suffix("")) for types, _ in pairs])
        (target / "done").touch()
    return target


def _compile(target: Path, names: Sequence[str]) -> None:
    """Compile the copies in ``target``; ``names`` are paths from there, without a suffix."""
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension
    from setuptools.command.build_ext import build_ext
    from setuptools.errors import BaseError, CCompilerError

    here = Path.cwd()
    os.chdir(target)  # modules are named after their paths from here
    try:
        modules = [Extension(n.replace("/", "."), [f"{n}.py"], extra_compile_args=list(FLAGS)) for n in names]
        made = cythonize(modules, compiler_directives=DIRECTIVES, quiet=True)
        command = build_ext(Distribution({"ext_modules": made}))
        command.inplace, command.parallel = True, os.cpu_count()
        command.ensure_finalized()
        command.run()
    except (BaseError, CCompilerError) as error:
        raise OSError(str(error).splitlines()[0]) from error
    finally:
        os.chdir(here)


def main() -> None:
    """Build, or say in one line why not."""
    try:
        target = build()
    except (ImportError, OSError) as error:
        print(f"not compiled ({error}); everything runs as plain Python", file=sys.stderr)
        sys.exit(6)
    print(f"{len(built(target))} modules compiled in {os.path.relpath(target)}")


if __name__ == "__main__":
    main()
