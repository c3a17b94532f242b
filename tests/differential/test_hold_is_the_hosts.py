"""Hold in ``reference`` is hold in vLLM: the plan that runs inside vLLM's scheduler makes the same moves.

``systems.vllm_host.plan.HoldPlan`` knows nothing of vLLM; here it works on the reference engine's calls.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import HealthCheck, given, settings

from systems.engines import reference
from systems.engines.reference import ReferenceEngine
from systems.engines.reference_job import Batch, Job, order_of
from systems.engines.reference_state import EngineState
from systems.vllm_host.plan import HoldPlan, growth
from tests.scenarios import Scenario, play
from tests.strategies import LadderKnobs, ladder, ladders, optional_scenarios


@dataclass(frozen=True)
class Request:
    """A call as vLLM's scheduler would show it."""

    job: Job

    @property
    def request_id(self) -> str:
        return str(self.job.call.seq)

    @property
    def priority(self) -> tuple[int, float, int]:
        return self.job.order

    @property
    def num_tokens(self) -> int:
        return self.job.tokens

    @property
    def num_computed_tokens(self) -> int:
        return self.job.computed

    @property
    def is_prefill_chunk(self) -> bool:
        return self.job.prefilling


class HostsPlan:
    """In place of ``Holding``: ``HoldPlan`` decides, the reference engine moves (vllm_host.plan.Host)."""

    def __init__(self, state: EngineState, batch: Batch) -> None:
        self.state = state
        self.batch = batch
        self.max_num_running_reqs = state.config.max_num_seqs
        self.retained = None
        self.max_num_scheduled_tokens = state.config.max_num_batched_tokens

    def protect(self) -> None:
        """Part of the plan."""

    def run(self) -> None:
        HoldPlan(self).run()

    @property
    def running(self) -> list[Request]:
        return [Request(job) for job in self.state.running]

    @property
    def queues(self) -> list[Request]:
        return [Request(job) for job in sorted(self.state.waiting, key=order_of) if not job.held]

    @property
    def held(self) -> dict[str, Request]:
        return {str(job.call.seq): Request(job) for job in self.state.waiting if job.held}

    def free_blocks(self) -> int:
        return self.state.kv.free

    def worst(self) -> Request | None:
        return max(self.running, key=self.rank, default=None)

    def rank(self, request: Request) -> tuple[int, bool, float, int]:
        level, key, seq = request.priority
        return level, self.renewed(request), key, seq

    def wants_more(self) -> list[Request]:
        return self.running

    def tokens_left(self, request: Request) -> int:
        return request.job.tokens - request.job.computed

    def blocks_needed(self, request: Request) -> tuple[int, int]:
        prefix = self.state.look_up(request.job)
        return self.state.need(request.job, prefix.hits), prefix.tokens

    def growth(self, request: Request, tokens: int) -> int:
        return growth(request.job.computed, tokens, len(request.job.blocks))

    def renewed(self, request: Request) -> bool:
        return request.job.renewed

    def may_be_admitted(self, request: Request) -> bool:
        return True

    def displace(self, request: Request) -> None:
        raise AssertionError("with hold nobody is displaced")

    def hold(self, request: Request) -> None:
        self.state.hold(request.job, self.batch)

    def resume(self, request: Request) -> None:
        self.state.resume(request.job, self.batch.now)

    def evict(self, request: Request) -> None:
        self.state.evict_held(request.job, self.batch)


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(optional_scenarios("hold"), ladders(min_levels=2))
def test_the_same_moves(case: Scenario, knobs: LadderKnobs) -> None:
    case = replace(case, transfer=None)
    ours = play(ReferenceEngine, case, ladder(knobs))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reference, "Holding", HostsPlan)
        theirs = play(ReferenceEngine, case, ladder(knobs))
    assert ours.decisions == theirs.decisions
    assert ours.same(theirs)
