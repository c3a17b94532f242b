"""What Locust's processes are told, and what they tell: JSON on both sides, nothing of Locust here.

A program is a coroutine and cannot be sent. What is sent is how to make all of them again (the
configuration), and the hash they must have then.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import orjson

from bench.arriving import CONTEXT, arriving, program_hash
from bench.config import RunConfig
from bench.drivers.calls import CallFailed, Chunks
from bench.drivers.effects import ProgramError
from bench.drivers.live_records import Leg, LiveCall, LiveProgram
from bench.errors import InvalidRun, MissingError, UsageError
from workloads.base import ProgramSpec

ENDED, ROWS, OVER, FAILED, ALIVE, READY, WEB = "ended", "rows", "over", "failed", "alive", "ready", "web"
"""Kinds of what is told (the key "t" of a line): a program is over; rows of some, once all are; a worker is
done; why it is not; every second; all workers have their programs; where Locust's page is."""

ERRORS = {kind.__name__: kind for kind in (CallFailed, ProgramError, InvalidRun, UsageError, MissingError)}
"""What a failure may be, by its name: the parent raises it again."""


@dataclass(frozen=True)
class Recipe:
    """How the programs of a run are made: its configuration, the longest call (tokens), and their hash.

    ``program_hash``: ``bench.arriving.program_hash`` of them and their times, which is ``Plan.program_hash``;
    ``room`` is ``bench.plan.longest(plan.engine)``.
    """

    config: RunConfig
    program_hash: str
    room: int = CONTEXT

    def programs(self, times: Sequence[float]) -> Sequence[ProgramSpec]:
        """Make them again. Raises InvalidRun if they are others, BenchError as a plan does."""
        made, _ = arriving(self.config, self.room, "")
        if len(made.programs) != len(times):
            raise InvalidRun(
                f"Locust's process makes {len(made.programs)} programs of the configuration, and "
                f"{len(times)} are to arrive"
            )
        found = program_hash(made, times)
        if found != self.program_hash:
            raise InvalidRun(
                f"Locust's process makes other programs of the configuration: program hash {found[:16]}, "
                f"and the run has {self.program_hash[:16]}; its code or its trace is not the same"
            )
        return made.programs


@dataclass(frozen=True)
class Job:
    """One run, the same for all its workers; worker i of n has the programs i, i + n, ...

    ``vocabulary`` and ``salt`` are those of ``TokenIds``. ``limit_s``: a call may not last longer.
    ``web``: port of Locust's page on the loopback, None: no page. ``host``, ``port``: where the
    master listens for workers, if there are several. ``front``, ``front_knobs``: the front
    (systems/fronts) that is called, whose headers go with each call; empty: none.
    """

    recipe: Recipe
    times: tuple[float, ...]
    url: str
    model: str
    vocabulary: int
    salt: str
    run: str
    cache_salt: str
    workers: int
    web: int | None
    limit_s: float
    host: str
    port: int
    front: str = ""
    front_knobs: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> str:
        """One line; ``parse`` reads it."""
        return json.dumps(asdict(self), default=str)

    @classmethod
    def parse(cls, text: str) -> Self:
        """From ``as_json``'s line. Raises ValueError or TypeError for anything else."""
        data = json.loads(text)
        recipe = data.pop("recipe")
        config = recipe.pop("config")
        made = Recipe(RunConfig(**config | {"out": Path(config["out"])}), **recipe)
        return cls(made, tuple(data.pop("times")), **data)


def rows(programs: Sequence[LiveProgram], calls: Sequence[LiveCall]) -> bytes:
    """A line of ROWS. JSON has no NaN: a cut call's ``t_first`` is null."""
    return orjson.dumps({"t": ROWS, "programs": list(programs), "calls": list(calls)}, default=list)


def call_of(data: Mapping[str, Any]) -> LiveCall:
    """A call of such a line: lists are tuples again."""
    first = math.nan if data["t_first"] is None else data["t_first"]
    made = {name: _tuple(value) for name, value in data.items()}
    return LiveCall(**made | {"t_first": first, "chunks": Chunks(map(tuple, data["chunks"]))})


def program_of(data: Mapping[str, Any]) -> LiveProgram:
    """A program of such a line."""
    return LiveProgram(**dict(data) | {"path": tuple(Leg(*leg) for leg in data["path"])})


def _tuple(value: Any) -> Any:
    return tuple(_tuple(one) for one in value) if isinstance(value, list | tuple) else value
