"""From a finished result back to the configuration that made it: the inverse of ``RunConfig.words``."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.code import code_digest
from bench.config import LIVE_ENGINE, RunConfig, pairs, programs_or_horizon, rate_and_arrivals
from bench.errors import UsageError
from bench.manifest import HIDDEN

WHOLE = ("concurrency", "seed", "replicas")
TEXT = ("system", "model", "gpu", "engine", "scheduler", "router", "on_overflow")


def split_format(workload: str) -> tuple[str | None, str]:
    """``FORMAT@PATH`` -> (format, path); anything else has no format."""
    name, at, path = workload.partition("@")
    if at and path and name.replace("-", "_").isidentifier():
        return name, path
    return None, workload


def config_of(made: Mapping[str, Any], folder: Path) -> RunConfig:
    """The configuration of the result in ``folder``, whose manifest is ``made``; results go beside it.

    Raises UsageError where the command in the manifest cannot be repeated.
    """
    if (made.get("identity") or {}).get("engine") == LIVE_ENGINE:
        raise UsageError(
            f"{folder} was measured on real engines: no part of it is simulated and can be varied"
        )
    words = shlex.split(str(made.get("command", "")))
    if words[:2] != ["bench", "run"]:
        raise UsageError(f"{folder}: its manifest has no `bench run` command, so it cannot be run again")
    if any(HIDDEN in word for word in words):
        raise UsageError(
            f"{folder}: a value of its command was hidden as a secret, so it cannot be run again"
        )
    return _config(words[2:], folder)


def _config(words: list[str], folder: Path) -> RunConfig:
    given: dict[str, list[str]] = {}
    for option, value in zip(words[::2], words[1::2], strict=True):
        given.setdefault(option.lstrip("-").replace("-", "_"), []).append(value)
    one = {name: values[-1] for name, values in given.items()}
    form, workload = split_format(one.pop("workload", ""))
    rate, arrivals = rate_and_arrivals(one.get("rate"))
    programs, horizon = programs_or_horizon(one.get("n"))
    fields: dict[str, Any] = {name: one[name] for name in TEXT if name in one}
    fields |= {name: int(one[name]) for name in WHOLE if name in one}
    return RunConfig(
        workload=workload, format=form, rate=rate, arrivals=arrivals, n=programs, horizon=horizon,
        knobs=pairs(given.get("knob", []), "--knob"), parameters=pairs(given.get("p", []), "-p"),
        out=folder.parent, **fields,
    )  # fmt: skip


def check_code(made: Mapping[str, Any], folder: Path) -> None:
    """Raises UsageError if other code than this made the result: what runs now cannot be held against it."""
    before, now = str((made.get("identity") or {}).get("code")), code_digest()
    if before != now:
        raise UsageError(
            f"{folder} was made by code {before}, this is {now}: varied by this code it would differ in the "
            f"code, too; run it again first:\n  {made.get('command')}"
        )
