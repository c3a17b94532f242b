"""Whether containers get the GPU: the NVIDIA runtime in the docker daemon."""

from __future__ import annotations

from bench.doctor.check import MISSING, OK, Finding, Here, Simple
from bench.doctor.daemon import ask

REMEDY = "install nvidia-container-toolkit, then nvidia-ctk runtime configure --runtime=docker"


def _look(here: Here) -> Finding:
    answer = ask(here, "/info")
    tool = here.which("nvidia-ctk") or here.which("nvidia-container-runtime")
    if isinstance(answer, Finding):
        return Finding(MISSING, f"no docker daemon to ask ({answer.why})", "see docker")
    runtimes = answer.get("Runtimes") or {}
    devices = answer.get("DiscoveredDevices") or []
    if "nvidia" in runtimes or any("nvidia" in str(device) for device in devices):
        return Finding(OK, "the docker daemon has the NVIDIA runtime")
    if tool is None:
        return Finding(MISSING, "no NVIDIA container toolkit", REMEDY)
    return Finding(MISSING, f"{tool.name} is installed, but the docker daemon does not know it", REMEDY)


CHECK = Simple("gpu-containers", 22, _look)
