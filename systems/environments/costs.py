"""What a sandbox costs: knobs that every environment policy has."""

from __future__ import annotations

from vocabulary import INF


class Costs:
    """``init_s``: preparing a sandbox is so much work of one core (s); teardown is ``teardown_s``.

    ``cores``: of the node that prepares them. ``disk_gb`` (1e9 bytes) and ``ports``: of each sandbox;
    ``most_ports``: there are so many. ``shared_gb``: images that all share, there once from the first
    sandbox on. Defaults are ours: 30 s and 64 cores so that 24 to 96 sandboxes at once take 30 to 45 s (the
    paper measured 29.9 to 47.2), 7 GB so that an hour of its Fig. 4 leaves 3 TB where nothing is removed.
    ``keep_s``: how long a sandbox stays when its program is over (s); "inf": as long as there is room.
    """

    def __init__(
        self, *, init_s: float = 30.0, cores: float = 64.0, disk_gb: float = 7.0, shared_gb: float = 100.0,
        ports: int = 1, most_ports: int = 10_000, teardown_s: float = 1.0, keep_s: float = INF,
    ) -> None:  # fmt: skip
        self.init_s = _amount("init_s", init_s)
        self.cores = _amount("cores", cores, most=INF)
        if not self.cores:
            raise ValueError("cores must be above 0")
        self.disk_gb = _amount("disk_gb", disk_gb)
        self.shared_gb = _amount("shared_gb", shared_gb)
        self.ports = _whole("ports", ports, 0)
        self.most_ports = _whole("most_ports", most_ports, 1)
        if self.ports > self.most_ports:
            raise ValueError(f"a sandbox of {ports} ports never fits most_ports {most_ports}")
        self.teardown_s = _amount("teardown_s", teardown_s)
        self.keep_s = INF if keep_s == INF else _amount("keep_s", keep_s)

    def keep(self, program: int, now: float) -> float:  # noqa: ARG002
        """Until ``keep_s`` from now."""
        return now + self.keep_s


def _amount(name: str, value: float, most: float = 1e6) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise ValueError(f"{name} must be a number from 0 to {most:g}, got {value!r}")
    return float(value)


def _whole(name: str, value: int, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")
    return value
