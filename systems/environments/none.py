"""No sandboxes: tools run where the agent is, at no cost."""

from __future__ import annotations

from vocabulary import INF


class Nothing:
    """Nothing is prepared and nothing torn down. No knobs."""

    name = "none"

    def arrive(self, program: int, now: float) -> bool:  # noqa: ARG002
        """False."""
        return False

    def held(self, program: int, ahead: int, now: float) -> bool:  # noqa: ARG002
        """False."""
        return False

    def resume(self, program: int, now: float) -> bool:  # noqa: ARG002
        """False."""
        return False

    def keep(self, program: int, now: float) -> float:  # noqa: ARG002
        """INF: there is nothing to tear down."""
        return INF


ENVIRONMENT = Nothing
