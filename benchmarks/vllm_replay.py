"""The controls of ``vllm_scheduler.py``: vLLM's scheduler made to take the very steps that our class took.

What our class decided is written down: the order a call came in with, waiting calls that moved, running
ones that were displaced or got another order. A control does just that to vLLM's own scheduler, by number,
and lets it schedule: no policy, no books, no plan, no look into the prefix cache but vLLM's. Waiting calls
stand in our queue, as in our class: to move one in vLLM's makes a heap of all again. Its steps are compared
with ours, token by token.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from systems.vllm_host.queues import Queues
from vocabulary import Decision

Order = tuple[int, float, int]
"""(level, key, number of the call)."""


@dataclass
class Moves:
    """A step: waiting calls' new orders, numbers of the displaced, the tokens it scheduled by request id, and
    running calls' new orders after it."""

    moved: list[Order]
    displaced: list[int]
    tokens: dict[str, int]
    renewed: list[Order] = field(default_factory=list)


class Watch:
    """Looks at the steps of a scheduler."""

    displaced = 0

    def arrived(self, scheduler: Any) -> None:
        """A call was added."""

    def scheduled(self, scheduler: Any, output: Any) -> int:  # noqa: ARG002
        """A step begins; how many calls a policy displaced for it."""
        before, self.displaced = self.displaced, getattr(scheduler, "tally", {}).get("displace", 0)
        return self.displaced - before

    def updated(self, scheduler: Any) -> None:
        """It is over."""


class Recording(Watch):
    """What a scheduler of ours decided (it records decisions), until a control has done it, too."""

    def __init__(self) -> None:
        self.orders: deque[Order] = deque()
        self.steps: deque[Moves] = deque()

    def arrived(self, scheduler: Any) -> None:
        """Write down its order."""
        self.orders.extend(_orders(_taken(scheduler), "arrive"))

    def scheduled(self, scheduler: Any, output: Any) -> int:
        """Write down what came before it."""
        found = _taken(scheduler)
        displaced = [one.call for one in found if one.rule == "displace"]
        self.steps.append(Moves(_orders(found, "promote"), displaced, output.num_scheduled_tokens))
        return len(displaced)

    def updated(self, scheduler: Any) -> None:
        """Write down what came after it."""
        self.steps[-1].renewed += _orders(_taken(scheduler), "expire")


class Control(Watch):
    """Compares the steps of a ``Played`` with those that were written down."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording

    def scheduled(self, scheduler: Any, output: Any) -> int:  # noqa: ARG002
        """Raises RuntimeError if it is another step."""
        moves = self.recording.steps[0]
        if list(moves.tokens.items()) != list(output.num_scheduled_tokens.items()):
            raise RuntimeError("the control took another step than our class: its figures mean nothing")
        return len(moves.displaced)


class Played:
    """A mixin over vLLM's ``Scheduler``: it does what was written down."""

    def __init__(self, *args: Any, recording: Recording, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.recording = recording
        self.names: dict[int, str] = {}
        self.queues = Queues(self)

    def add_request(self, request: Any) -> None:
        """A call, with the order it had there."""
        request.priority = order = self.recording.orders.popleft()
        self.names[order[2]] = request.request_id
        super().add_request(request)

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """What was done before the step, and vLLM's step."""
        moves = self.recording.steps[0]
        for order in moves.moved:
            request = self._of(order[2])
            self.queues.remove((request,))
            request.priority = order
            self.queues.add(request)
        for number in moves.displaced:
            self._displace(self._of(number))
        return super().schedule(*args, **kwargs)

    def update_from_output(self, *args: Any, **kwargs: Any) -> Any:
        """vLLM's end of the step, and what was done after it."""
        outputs = super().update_from_output(*args, **kwargs)
        for order in self.recording.steps.popleft().renewed:
            self._of(order[2]).priority = order
        return outputs

    def _of(self, number: int) -> Any:
        return self.requests[self.names[number]]

    def _displace(self, request: Any) -> None:
        self.running.remove(request)
        self._preempt_request(request, 0.0)
        self.prev_step_scheduled_req_ids.discard(request.request_id)


class Kind(NamedTuple):
    """A scheduler that is measured: vLLM's own in an ``order``, or ours with a ``policy`` of the catalog,
    keeping what calls leave up to ``kept`` blocks.

    ``records``: where ours writes down what it decides; ``plays``: what vLLM's does instead of its own.
    """

    name: str
    policy: str | None = None
    order: str = "priority"
    kept: int = 0
    records: Recording | None = None
    plays: Recording | None = None

    def watch(self) -> Watch:
        """Who looks at its steps."""
        if self.plays is not None:
            return Control(self.plays)
        return self.records or Watch()


def _taken(scheduler: Any) -> list[Decision]:
    found, scheduler.decisions = scheduler.decisions, []
    return list(found)


def _orders(found: list[Decision], rule: str) -> list[Order]:
    return [(one.level, one.value, one.call) for one in found if one.rule == rule]
