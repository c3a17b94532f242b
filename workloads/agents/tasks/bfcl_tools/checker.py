"""Whether calls did what a ground truth does, turn by turn (docs/agent-tasks.md, What success means).

A turn is right as BFCL has it: after it the public state of all classes is that of the ground truth; its
calls' results are among those the agent was given so far, as often; and it made a call, if the ground truth
did. Which calls belong to which turn is not told to a toolbox, so calls are right if there is a way to cut
them into turns that are all right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

State = Mapping[str, Mapping[str, Any]]
"""Public attributes by class."""


class Step(NamedTuple):
    """A call: what it answered, and the state after it."""

    name: str
    result: Mapping[str, Any]
    state: State


def why_wrong(start: State, steps: Sequence[Step], truth: Sequence[Sequence[Step]]) -> str:
    """What the calls lack of ``truth`` (by turn), "" if nothing. ``start``: the state before all calls.

    A turn is cut off as late as its state allows, from the last to the first: a later end has more results
    before it and leaves more calls to the turns before, so no other cut does better.
    """
    end = len(steps)
    for number, turn in reversed(list(enumerate(truth, 1))):
        if not turn:
            continue
        wanted = turn[-1].state
        cut = next((at for at in range(end, 0, -1) if steps[at - 1].state == wanted), 0)
        if not cut or (number == len(truth) and cut < end):
            return f"turn {number}: {_differing(start, steps[:end], wanted)}"
        if lacking := _lacking(turn, steps[:cut]):
            return f"turn {number}: no call had the result of the ground truth's {lacking}"
        end = cut - 1
    return ""


def _differing(start: State, steps: Sequence[Step], wanted: State) -> str:
    if not steps:
        return "no call of its own"
    state = steps[-1].state
    differing = [
        f"{name}.{attribute}"
        for name, attributes in wanted.items()
        for attribute in attributes
        if state[name][attribute] != wanted[name][attribute]
    ]
    untouched = " (nothing was changed)" if state == start else ""
    return f"not the state of the ground truth: {', '.join(differing)}{untouched}"


def _lacking(turn: Sequence[Step], steps: Sequence[Step]) -> str:
    given = [step.result for step in steps]
    for step in turn:
        if step.result not in given:
            return step.name
        given.remove(step.result)
    return ""
