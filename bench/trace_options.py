"""Options that only traces have, given like parameters: ``-p strict=true -p cap_idle=60 -p scale_rate=2``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bench.errors import UsageError
from workloads.files import exists
from workloads.load import workload_names


def _flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(text)
    return text == "true"


OPTIONS: Mapping[str, tuple[Callable[[str], Any], str]] = {
    "strict": (_flag, "true or false"),
    "cap_idle": (float, "a number of seconds"),
    "scale_rate": (float, "a factor"),
}
"""How each is read, and what it must be."""


def split(workload: str, parameters: Mapping[str, str]) -> tuple[dict[str, str], dict[str, Any]]:
    """(parameters that are the reader's or the generator's, options for ``workloads.load.load``).

    Only a file or folder has options: for generators all are parameters. Raises UsageError.
    """
    rest = dict(parameters)
    if workload.partition(":")[0] in workload_names() or not exists(workload):
        return rest, {}
    found: dict[str, Any] = {}
    for name, (read, wanted) in OPTIONS.items():
        if name in rest:
            text = rest.pop(name)
            try:
                found[name] = read(text)
            except ValueError:
                raise UsageError(f"{name} must be {wanted}, got {text!r}") from None
    return rest, found
