"""A sandbox is prepared when a tool needs it, and stays: what agent frameworks do by themselves."""

from __future__ import annotations

from systems.environments.costs import Costs


class OnDemand(Costs):
    """Nothing is prepared before the first tool, which waits for it; knobs as ``Costs``."""

    name = "on-demand"

    def arrive(self, program: int, now: float) -> bool:  # noqa: ARG002
        """False."""
        return False

    def held(self, program: int, ahead: int, now: float) -> bool:  # noqa: ARG002
        """False."""
        return False

    def resume(self, program: int, now: float) -> bool:  # noqa: ARG002
        """False."""
        return False


ENVIRONMENT = OnDemand
