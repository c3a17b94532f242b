"""Firm retention: newcomers wait for what is kept (systems.protocols.Keeping), so it must end some time."""

from __future__ import annotations

from systems.knobs import at_least
from vocabulary import INF


def finite(name: str, value: object, firm: bool) -> float:
    """``value`` as seconds of at least 0; where ``firm``, below infinity. Raises ValueError."""
    seconds = at_least(name, value, 0.0)
    if firm and seconds == INF:
        raise ValueError(f"{name} must be finite where others wait for what is kept; firm=false is without")
    return seconds
