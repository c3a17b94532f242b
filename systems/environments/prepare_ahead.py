"""A sandbox is prepared before its program needs it (ThunderAgent's tool manager, the other half).

While a gate holds the program, as soon as few are before it in line; at the latest when it is let in, so
that preparing overlaps with the first call.
"""

from __future__ import annotations

from systems.environments.costs import Costs
from vocabulary import INF


class PrepareAhead(Costs):
    """``ahead``: a held program with at most so many before it is prepared; other knobs as ``Costs``.

    ``keep_s`` 0 is the paper's whole tool manager: prepared ahead and torn down at the end.
    """

    name = "prepare-ahead"

    def __init__(
        self, *, ahead: int = 4, init_s: float = 30.0, cores: float = 64.0, disk_gb: float = 7.0,
        shared_gb: float = 100.0, ports: int = 1, most_ports: int = 10_000, teardown_s: float = 1.0,
        keep_s: float = INF,
    ) -> None:  # fmt: skip
        super().__init__(
            init_s=init_s, cores=cores, disk_gb=disk_gb, shared_gb=shared_gb, ports=ports,
            most_ports=most_ports, teardown_s=teardown_s, keep_s=keep_s,
        )  # fmt: skip
        if isinstance(ahead, bool) or not isinstance(ahead, int) or ahead < 0:
            raise ValueError(f"ahead must be a whole number, not negative, got {ahead!r}")
        self.ahead = ahead

    def arrive(self, program: int, now: float) -> bool:  # noqa: ARG002
        """False: the gate speaks first, at the same time."""
        return False

    def held(self, program: int, ahead: int, now: float) -> bool:  # noqa: ARG002
        """Whether it is near the head of the line."""
        return ahead <= self.ahead

    def resume(self, program: int, now: float) -> bool:  # noqa: ARG002
        """True."""
        return True


ENVIRONMENT = PrepareAhead
