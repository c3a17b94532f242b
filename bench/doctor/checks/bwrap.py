"""bubblewrap: environments for tools, and the kernel's leave to make them."""

from __future__ import annotations

from bench.doctor.check import BROKEN, MISSING, OK, Finding, Here, Simple, last_line


def _look(here: Here) -> Finding:
    tool = here.which("bwrap")
    if tool is None:
        return Finding(MISSING, "there is no bwrap", "install bubblewrap (tools then run as plain processes)")
    code, said = here.run([str(tool), "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "true"])
    if code:
        return Finding(
            BROKEN, f"bwrap: {last_line(said)}", "allow user namespaces (kernel.unprivileged_userns_clone=1)"
        )
    return Finding(OK, f"{tool} makes environments")


CHECK = Simple("bwrap", 32, _look)
