"""The clock that times are taken from, and how late a sleeper wakes."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from bench.doctor.check import BROKEN, MISSING, OK, Finding, Here, Simple, last_line

SOURCE = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
LATE_S = 0.005
COARSE_S = 1e-5
_NAPS = """
import time
late = []
for _ in range(20):
    began = time.perf_counter()
    time.sleep(0.002)
    late.append(time.perf_counter() - began - 0.002)
print(sorted(late)[10])
"""
"""In a process of its own: here, other checks run at the same time."""


def _look(here: Here) -> Finding:
    step = time.get_clock_info("monotonic").resolution
    code, said = here.run([sys.executable, "-I", "-S", "-c", _NAPS])
    if code:
        return Finding(BROKEN, f"a sleeper did not wake: {last_line(said)}", "use a quieter machine")
    late = float(said)
    source = SOURCE.read_text().strip() if SOURCE.is_file() else "unknown"
    text = f"source {source}, steps of {step * 1e9:g} ns, a sleeper wakes {late * 1e3:.2f} ms late (median)"
    if step > COARSE_S:
        return Finding(BROKEN, text, "times of calls are off by such a step: choose another clock source")
    if late > LATE_S:
        return Finding(MISSING, text, "measured runs would be suspect: wait until the machine is quiet")
    return Finding(OK, text)


CHECK = Simple("clock", 15, _look)
