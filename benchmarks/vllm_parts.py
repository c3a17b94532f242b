"""vLLM's side of ``vllm_scheduler.py``: requests, what a model runner would answer, and the schedulers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request

from benchmarks.vllm_replay import Kind, Played
from systems.protocols import Away, Kept
from systems.victims import by_deadline
from systems.vllm_host.options import HostOptions
from systems.vllm_host.scheduler import PolicyMixin
from systems.vllm_host.worker import build_scheduler
from vocabulary import BLOCK, INF, EngineConfig


class Parts:
    """Makes requests and answers."""

    def __init__(self) -> None:
        hash_fn = get_hash_fn_by_name("sha256")
        init_none_hash(hash_fn)
        self.hasher = get_request_block_hasher(BLOCK, hash_fn)
        self.arrivals = 0
        self.inside = Inside()

    def request(self, name: str, prompt: list[int], output: int, program: str) -> Any:
        """A call as the front end of a server passes it on."""
        self.arrivals += 1
        parameters = SamplingParams(
            max_tokens=output, ignore_eos=True, extra_args={"program_id": program, "thread_id": ""}
        )
        return Request(
            name, prompt, parameters, None, arrival_time=float(self.arrivals), block_hasher=self.hasher
        )

    def result(self, scheduler: Any, output: Any) -> Any:
        """A token for every call whose prompt is computed."""
        names = list(output.num_scheduled_tokens)
        requests = scheduler.requests
        sampled = [[] if (r := requests[n]).is_prefill_chunk else [r.num_output_tokens] for n in names]
        return ModelRunnerOutput(names, {name: i for i, name in enumerate(names)}, sampled)

    def build(self, kind: Kind, config: EngineConfig, clock: Callable[[], float]) -> Any:
        """The scheduler of ``kind``; all measure how long they are inside vLLM's methods."""
        if kind.plays is not None:
            return build_scheduler(config, cls=timed(self.inside, Played), recording=kind.plays)
        if kind.policy is None:
            return build_scheduler(config, cls=timed(self.inside), order=kind.order)
        host: dict[str, Any] = {"scheduler": kind.policy, "record_decisions": kind.records is not None}
        cls = timed(self.inside, PolicyMixin)
        if not kind.kept:
            return build_scheduler(config, cls=cls, clock=clock, options=HostOptions(**host))
        retention = UpTo(kind.kept)
        made = build_scheduler(config, cls=cls, clock=clock, options=Keeping(retention, **host))
        retention.blocks = made.keeper.pinned_blocks
        return made


class UpTo:
    """Keeps for its program's next call what a call leaves, while fewer than ``most`` blocks are kept."""

    name = "up to"

    def __init__(self, most: int) -> None:
        self.most = most
        self.blocks: Callable[[], int] = lambda: 0

    def idle(self, away: Away, now: float) -> float:  # noqa: ARG002
        """For ever, or not at all."""
        return INF if self.blocks() < self.most else now

    def victims(self, candidates: Sequence[Kept], now: float) -> Sequence[Kept]:  # noqa: ARG002
        """The default order."""
        return by_deadline(candidates)


class Keeping(HostOptions):
    """Options with a retention policy that is there already."""

    def __init__(self, retention: UpTo, **options: Any) -> None:
        super().__init__(retention=f"{__name__}:UpTo", **options)
        object.__setattr__(self, "made", retention)

    def build_retention(self) -> Any:
        """The one that was given."""
        return self.made  # type: ignore[attr-defined]


class Inside:
    """CPU time in vLLM's own methods, what they call of ours not included (ns)."""

    def __init__(self) -> None:
        self.ns = 0
        self._began: list[int] = []

    def enter(self) -> None:
        """vLLM's code begins."""
        self._began.append(time.thread_time_ns())

    def leave(self) -> None:
        """It ends."""
        self.ns += time.thread_time_ns() - self._began.pop()

    def suspend(self) -> None:
        """It calls ours."""
        if self._began:
            self.ns += time.thread_time_ns() - self._began[-1]

    def proceed(self) -> None:
        """Ours returns."""
        if self._began:
            self._began[-1] = time.thread_time_ns()


METHODS = ("schedule", "update_from_output", "_free_request", "_preempt_request")


def timed(inside: Inside, *mixins: type) -> Any:
    """vLLM's scheduler, which measures four of its methods, under the classes that override them."""
    measured = {n: _around(getattr(Scheduler, n), inside.enter, inside.leave) for n in METHODS}
    base = type("Measured", (Scheduler,), measured)
    ours = type("Ours", (*mixins, base), {})
    inner = {
        n: _around(getattr(ours, n), inside.suspend, inside.proceed)
        for n in METHODS[2:]
        if getattr(ours, n) is not getattr(base, n)
    }
    return type("Timed", (ours,), inner)


def _around(method: Callable[..., Any], before: Callable[[], None], after: Callable[[], None]) -> Any:
    def around(self: Any, *args: Any, **kwargs: Any) -> Any:
        before()
        try:
            return method(self, *args, **kwargs)
        finally:
            after()

    return around
