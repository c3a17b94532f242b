"""A sandbox is torn down when its program is over (ThunderAgent's tool manager, one half of it)."""

from __future__ import annotations

from systems.environments.costs import Costs
from systems.environments.on_demand import OnDemand


class GcOnRelease(OnDemand):
    """As on-demand, but ``keep_s`` is 0: disk and ports come back when the program ends.

    Knobs as ``Costs``.
    """

    name = "gc-on-release"

    def __init__(
        self, *, init_s: float = 30.0, cores: float = 64.0, disk_gb: float = 7.0, shared_gb: float = 100.0,
        ports: int = 1, most_ports: int = 10_000, teardown_s: float = 1.0, keep_s: float = 0.0,
    ) -> None:  # fmt: skip
        Costs.__init__(
            self, init_s=init_s, cores=cores, disk_gb=disk_gb, shared_gb=shared_gb, ports=ports,
            most_ports=most_ports, teardown_s=teardown_s, keep_s=keep_s,
        )  # fmt: skip


ENVIRONMENT = GcOnRelease
