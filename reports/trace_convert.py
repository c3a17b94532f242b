"""What ``bench trace convert`` wrote, and what it could not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def lines(facts: Mapping[str, Any]) -> list[str]:
    """One line on the file, one for each kind of loss."""
    first = f"{facts['file']}: {facts['programs']:,} programs of {facts['source']}, {facts['lines']:,} lines"
    form = facts["format"]
    if not facts["lost"]:
        return [first, f"lossless: {form} holds everything these programs do"]
    ordered = sorted(facts["lost"].items(), key=lambda item: -item[1])
    return [first, f"{form} could not say:"] + [
        f"  {count:,} x {kind} (first: {facts['where'][kind].partition(', ')[0]})" for kind, count in ordered
    ]
