"""GPUs and their driver, as nvidia-smi sees them."""

from __future__ import annotations

from bench.doctor.check import BROKEN, MISSING, OK, Finding, Here, Simple, last_line

QUERY = ("--query-gpu=name,memory.total,driver_version", "--format=csv,noheader")


def _look(here: Here) -> Finding:
    tool = here.which("nvidia-smi")
    if tool is None:
        return Finding(MISSING, "there is no nvidia-smi", "a machine with an NVIDIA GPU and its driver")
    code, said = here.run([str(tool), *QUERY])
    if code:
        return Finding(
            BROKEN, f"nvidia-smi: {last_line(said)} (exit code {code})", "repair the NVIDIA driver"
        )
    rows = [[cell.strip() for cell in line.split(",")] for line in said.splitlines() if line.strip()]
    if not rows or any(len(row) != 3 for row in rows):
        return Finding(BROKEN, f"nvidia-smi names no GPU: {last_line(said)}", "repair the NVIDIA driver")
    names = ", ".join(f"{name} ({memory})" for name, memory, _ in rows)
    return Finding(OK, f"{names}; driver {rows[0][2]}")


CHECK = Simple("gpu", 21, _look)
