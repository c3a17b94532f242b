"""What BFCL's classes of tools have in common: a state, functions, and refusals that are text."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, ClassVar

Result = dict[str, Any]
"""What a function answers: an object of JSON."""


class ToolError(Exception):
    """A function will not do it: why, for the model to read."""


class Tools:
    """One class of tools of one task. Its functions are the methods that BFCL's function docs name.

    ``DEFAULTS``: the public attributes and what they are where a task's ``initial_config`` does not say.
    They are the state that is compared; attributes with an underscore are not.
    """

    DEFAULTS: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, config: Mapping[str, Any]) -> None:
        for name, value in self.DEFAULTS.items():
            setattr(self, name, deepcopy(config.get(name, value)))

    def state(self) -> dict[str, Any]:
        """A copy of the public attributes."""
        return {name: deepcopy(value) for name, value in vars(self).items() if not name.startswith("_")}


def with_numbers(table: Mapping[Any, Any]) -> dict[Any, Any]:
    """JSON has no keys that are numbers, the functions take numbers: keys of digits become some."""
    return {int(key) if str(key).isdecimal() else key: value for key, value in table.items()}
