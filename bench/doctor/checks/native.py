"""The compiled simulator: the same results in about half the time."""

from __future__ import annotations

from bench import native
from bench.doctor.check import MISSING, OK, Finding, Here, Simple


def _look(here: Here) -> Finding:
    if native.is_compiled():
        return Finding(OK, "compiled modules are in use")
    if here.environ.get(native.SWITCH) == "0":
        return Finding(MISSING, f"switched off by {native.SWITCH}=0", f"unset {native.SWITCH}")
    compiler = here.which("cc") or here.which("gcc")
    what = "make native" if compiler else "install a C compiler, then make native"
    return Finding(MISSING, "no build of these sources; everything runs, in about twice the time", what)


CHECK = Simple("native", 2, _look)
