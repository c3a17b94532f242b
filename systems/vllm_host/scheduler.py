"""Our scheduling policies inside vLLM's V1 Scheduler (docs/engine.md, docs/vllm.md).

    python -m vllm.entrypoints.openai.api_server --scheduling-policy priority
        --scheduler-cls systems.vllm_host.scheduler.PolicyScheduler --no-async-scheduling
        --additional-config '{"scheduler": "atlas", "knobs": {}, "preemption": "recompute"}'

vLLM has no stable scheduler API: this is run against 0.28, 0.31 and 0.32, and
overrides ``__init__``, ``add_request``, ``schedule``, ``update_from_output``,
``reset_prefix_cache``, ``shutdown``, ``_preempt_request`` and ``_free_request`` only.
"""

from __future__ import annotations

import json
import time
from collections import Counter, deque
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from vllm import __version__ as vllm_version
from vllm.v1.core.sched.async_scheduler import AsyncScheduler as VllmAsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler as VllmScheduler
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus

from systems.protocols import Scheduler
from systems.vllm_host.accounts import Account, Scheduled
from systems.vllm_host.callers import Callers
from systems.vllm_host.control import Channel
from systems.vllm_host.desk import Desk
from systems.vllm_host.keeper import Keeper
from systems.vllm_host.ledger import InFlight, Ledger
from systems.vllm_host.options import HostOptions
from systems.vllm_host.plan import HoldPlan, Plan, growth
from systems.vllm_host.queues import Queues
from systems.vllm_host.retention import Retained
from systems.vllm_host.step_log import StepLog, head_of
from vocabulary import Call, Decision, Finished, Snapshot, on_grid

__all__ = ["InFlight", "PolicyAsyncScheduler", "PolicyMixin", "PolicyScheduler", "Scheduled"]

Clock = Callable[[], float]


def _since(origin: float) -> Clock:
    """Seconds since ``origin`` of ``time.monotonic``, on the time grid."""
    return lambda: on_grid(time.monotonic() - origin)


class PolicyMixin:
    """Carries a ``systems.protocols.Scheduler`` in a V1 scheduler class.

    ``policy``, ``clock`` (seconds on the time grid) and ``options`` are given
    by tests and by the virtual engine; in a server they come from
    ``--additional-config`` and from ``time.monotonic``. ``whole_batches``: every
    step's ``InFlight.batch`` names all its calls, as the step log needs it.
    Raises ValueError if vLLM does not run with ``--scheduling-policy priority``.
    """

    def __init__(
        self,
        *args: Any,
        policy: Scheduler | None = None,
        clock: Clock | None = None,
        options: HostOptions | None = None,
        whole_batches: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        if self.scheduler_config.policy != "priority":
            raise ValueError("this scheduler class needs vLLM's --scheduling-policy priority")
        self.options = options or HostOptions.parse(self.vllm_config.additional_config)
        self.carried: Scheduler = policy or self.options.build_scheduler()
        self.now: Clock = clock or _since(time.monotonic())
        self.accounts: dict[str, Account] = {}
        self.held: dict[str, Request] = {}
        self.in_flight: deque[InFlight] = deque()
        self.by_seq: dict[int, Request] = {}
        self.decisions: list[Decision] = []
        self.tally: Counter[str] = Counter()  # decisions by rule, recorded or not
        self.on_close: Callable[[Account], None] = lambda _: None
        self.queues = Queues(self)
        self._ledger = Ledger(self.carried.unit)
        self._callers = Callers()
        self._preempted: list[int] = []
        self._wavering: list[Scheduled] = []  # the last step's parts that are not steady
        self._displacing = False
        self._last_end = 0.0
        self._log = self.options.open_log()
        self._steps: StepLog | None = None
        if self.options.steps is not None:
            self._steps = StepLog(self.options.steps, head_of(self, vllm_version, real=clock is None))
        self._whole = whole_batches or self._steps is not None
        self.retained: Retained | None = Retained(self) if self.options.keeps else None
        self.keeper: Keeper | None = self.retained.keeper if self.retained is not None else None
        self._channel: Channel | None = None
        if self.options.control is not None:
            self.desk = Desk(self._callers, self.keeper, self.now, self._program_over)
            self._channel = Channel(self.options.control)

    # Calls in and out

    def add_request(self, request: Request) -> None:
        """vLLM's entry: who calls is in ``sampling_params.extra_args``; without it, a one-shot program."""
        if request.request_id in self.accounts:  # a further chunk of a streaming request
            super().add_request(request)
            return
        extra = getattr(request.sampling_params, "extra_args", None) or {}
        call, snap, one_shot = self._callers.identify(extra, request.num_prompt_tokens)
        self.submit(request, call, snap, self.now(), one_shot)

    def submit(
        self, request: Request, call: Call, snap: Snapshot, now: float, one_shot: bool = False
    ) -> None:
        """Take ``request`` in as ``call``, which arrived at ``now``."""
        slot = self.carried.arrive(call, snap, now)
        row = Finished(call, self.options.engine, now, level=slot.level)
        account = Account(row, slot, self._ledger, one_shot)
        account.waits.append((now, "arrive"))
        self.accounts[request.request_id] = account
        self.by_seq[call.seq] = request
        request.priority = account.order
        super().add_request(request)
        self._decide(now, account, "arrive", slot.key)
        if self.retained is not None:
            self.retained.asked(call)

    def _free_request(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        account = self.accounts.pop(request.request_id, None)
        aborted = request.status in (RequestStatus.FINISHED_ABORTED, RequestStatus.FINISHED_ERROR)
        leaves = account is not None and not aborted and not account.one_shot
        if leaves and self.keeper is not None:
            self.keeper.leave(account.call, request)
        result = super()._free_request(request, *args, **kwargs)
        self.held.pop(request.request_id, None)
        if account is not None:
            self._ledger.exit(request.request_id, account)
            self._close(request, account, aborted)
        if leaves and self.retained is not None:
            self.retained.left(account.call, request)
        return result

    def _close(self, request: Request, account: Account, aborted: bool) -> None:
        now, call = self.now(), account.call
        del self.by_seq[call.seq]
        usage = account.close(request.num_output_tokens, aborted, now)
        self._decide(now, account, "abort" if aborted else "finish", usage.served)
        (self.carried.abort if aborted else self.carried.finish)(call, usage, now)
        if account.one_shot or self._callers.left(call.program):
            self._program_over(call.program)
        self.on_close(account)
        if self._log is not None:
            self._log.write(json.dumps(account.as_dict(request.request_id)) + "\n")

    def _program_over(self, program: int) -> None:
        self.carried.end(program, self.now())
        if self.retained is not None:
            self.retained.end(program)

    # A step

    def schedule(self, *args: Any, **kwargs: Any) -> SchedulerOutput:
        """One boundary: promotions, displacement, then vLLM's own step over the visible calls."""
        now = self.now()
        if self._channel is not None:
            self._channel.serve(self.desk.handle)
        if self.keeper is not None:
            self.keeper.expire()
        self._preempted = []
        self._promote(now)
        if self.held:
            self.running = [r for r in self.running if r.request_id not in self.held]
        first = self.queues.first()
        if self.held or (first is not None and self._ledger.outranked(first.priority)):
            self._displacing = True
            (HoldPlan if self.options.preemption == "hold" else Plan)(self).run()
            self._displacing = False
        self._ledger.forget_renewals()
        output = super().schedule(*args, **kwargs)
        self.in_flight.append(self._begun(output, now))
        return output

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> Any:
        """The end of a step: charge its batch, let vLLM finish calls, then expire quanta."""
        step = self.in_flight.popleft()
        now = self.now()
        seconds = now - max(step.start, self._last_end)  # steps overlap under async scheduling
        self._ledger.charge(step, seconds, now)
        outputs = super().update_from_output(scheduler_output, model_runner_output)
        self._last_end = now
        if step.computes:
            self._expire(step, now)
        if self._steps is not None:
            self._steps.step(step, now, idle=not self.requests)
        return outputs

    def _begun(self, output: SchedulerOutput, now: float) -> InFlight:
        tokens = output.num_scheduled_tokens
        step, others = self._ledger.begin(now, tokens, output.total_num_scheduled_tokens)
        for name in others:
            account = self.accounts[name]
            enters = not account.in_batch
            part = self._part(name, account, tokens[name], now)
            self._ledger.add(step, part._replace(first=True) if enters and account.admissions == 1 else part)
        self._wavering = step.parts
        running = len(self.running)
        self.running.extend(self.held.values())
        step.load = (running, len(self.accounts) - running)
        step.preempted = tuple(self._preempted)
        if self._steps is not None:
            total = self.kv_cache_manager.block_pool.num_gpu_blocks - 1
            step.kv_used, step.evicted = total - self.free_blocks(), self.tally["evict"]
            step.preempted_ids = tuple(self.by_seq[seq].request_id for seq in step.preempted)
        step.batch = self._whole_batch(step, tokens, now) if self._whole else step.parts
        return step

    def _part(self, name: str, account: Account, tokens: int, now: float) -> Scheduled:
        request = self.requests[name]
        computed = request.num_computed_tokens - tokens
        if not account.in_batch:
            account.admit(computed, now)
            self._started(account, computed, now)
            if self.retained is not None:
                self.retained.admitted(account.call, request, computed)
        admission = account.admissions if account.fresh else 0
        return Scheduled(request, account, computed, tokens, not request.is_prefill_chunk, admission)

    def _whole_batch(self, step: InFlight, tokens: dict[str, int], now: float) -> list[Scheduled]:
        parts = {part.request.request_id: part for part in step.parts}
        return [parts.get(n) or self._part(n, self.accounts[n], tokens[n], now) for n in tokens]

    def _started(self, account: Account, value: int, now: float) -> None:
        self._ledger.enter(account)
        self._decide(now, account, "admit", value)
        if self.carried.tracks_wait:
            self.carried.start(account.call, now)

    def _expire(self, step: InFlight, now: float) -> None:
        for account in self._ledger.expired(step):
            slot = self.carried.expire(account.call, account.row.served, now)
            self._ledger.renew(account, slot)
            self.by_seq[account.call.seq].priority = account.order
            self._decide(now, account, "expire", slot.key)

    def _promote(self, now: float) -> None:
        if not self.carried.tracks_wait or self.carried.next_due() > now:
            return
        due = [(self.by_seq[call.seq], slot) for call, slot in self.carried.due(now)]
        queued = {r for r, _ in due if r.request_id not in self.held}
        self.queues.remove(queued)  # before its order changes: it is a heap
        for request, slot in due:
            account = self.accounts[request.request_id]
            account.promote(slot)
            request.priority = account.order
            self._decide(now, account, "promote", slot.key)
            if request in queued:
                self.queues.add(request)

    # The end

    def shutdown(self, *args: Any, **kwargs: Any) -> None:
        """vLLM ends the scheduler: complete the logs."""
        super().shutdown(*args, **kwargs)
        if self._steps is not None:
            self._steps.close()
        if self._log is not None:
            self._log.close()
        if self.retained is not None:
            self.retained.close()
        if self._channel is not None:
            self._channel.close()

    # Retention

    def reset_prefix_cache(self, *args: Any, **kwargs: Any) -> Any:
        """vLLM's, which cannot while a block is in use: let go what is kept."""
        if self.keeper is not None:
            self.keeper.clear()
        return super().reset_prefix_cache(*args, **kwargs)

    # Leaving the batch

    def _preempt_request(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super()._preempt_request(request, *args, **kwargs)
        if self.accounts[request.request_id].in_batch:
            self._left(request, "displace" if self._displacing else "evict", "preempt")

    def displace(self, request: Request) -> None:
        """Preempt a running call before the step: its KV is given up (the cache may keep it)."""
        self.running.remove(request)
        self._preempt_request(request, time.monotonic())
        self.prev_step_scheduled_req_ids.discard(request.request_id)

    def hold(self, request: Request) -> None:
        """Take a running call out of the batch with its KV."""
        self.running.remove(request)
        self.held[request.request_id] = request
        self._left(request, "hold", "hold")

    def resume(self, request: Request) -> None:
        """Put a held call back, as the last of the running."""
        del self.held[request.request_id]
        self.running.append(request)
        account, now = self.accounts[request.request_id], self.now()
        account.resume(now)
        self._started(account, request.num_computed_tokens, now)

    def evict(self, request: Request) -> None:
        """Take a held call's KV: it waits for a new admission."""
        del self.held[request.request_id]
        self._preempt_request(request, time.monotonic())
        self.prev_step_scheduled_req_ids.discard(request.request_id)
        account, now = self.accounts[request.request_id], self.now()
        account.waits.append((now, "preempt"))
        account.row.preemptions += 1
        self._preempted.append(account.call.seq)
        self._decide(now, account, "evict", 0)

    def _left(self, request: Request, rule: str, how: str) -> None:
        account, now = self.accounts[request.request_id], self.now()
        self._ledger.exit(request.request_id, account)
        account.leave(how, now)
        self._preempted.append(account.call.seq)
        self._decide(now, account, rule, 0)
        if self.carried.tracks_wait:
            self.carried.stop(account.call, account.usage(now), now)

    # What a plan asks

    def free_blocks(self) -> int:
        """Blocks nobody uses: cached ones included, and those that are only kept."""
        kept = self.keeper.reclaimable() if self.keeper is not None else 0
        return self.kv_cache_manager.block_pool.get_num_free_blocks() + kept

    def worst(self) -> Request | None:
        """The running call that is displaced first."""
        account = self._ledger.worst()
        return None if account is None else self.by_seq[account.call.seq]

    def wants_more(self) -> list[Request]:
        """The running calls that may want more than one token in the next step: not in steady decode."""
        steady = self._ledger.steady
        found = [part.request for part in self._wavering if part.account.in_batch]
        if len(found) + len(steady) == len(self.running):
            return found
        return [r for r in self.running if r.request_id not in steady]  # some were not in the last step

    def tokens_left(self, request: Request) -> int:
        """Tokens a running call wants in its next step; 0 where the steps in flight bring its last token."""
        placeholders = request.num_output_placeholders
        computed = request.num_computed_tokens
        if placeholders and computed + 2 - placeholders >= request.num_prompt_tokens + request.max_tokens:
            return 0
        return request.num_tokens_with_spec + placeholders - computed

    def blocks_needed(self, request: Request) -> tuple[int, int]:
        """(free blocks that admitting it whole takes, tokens the prefix cache has of it)."""
        blocks, hit_tokens, *_ = self.kv_cache_manager.get_computed_blocks(request)
        used = self.keeper.held_by_calls if self.keeper is not None else attrgetter("ref_cnt")
        in_use = len([True for block in blocks.blocks[0] if used(block)])
        return -(-request.num_tokens // self.block_size) - in_use, hit_tokens

    def growth(self, request: Request, tokens: int) -> int:
        """New blocks a call that has KV needs for ``tokens`` more tokens."""
        held = len(self.kv_cache_manager.get_blocks(request.request_id).blocks[0])
        return growth(request.num_computed_tokens, tokens, held, self.block_size)

    def renewed(self, request: Request) -> bool:
        """Whether its quantum was used up at this very boundary."""
        return self.accounts[request.request_id].renewed

    def may_be_admitted(self, request: Request) -> bool:
        """Not blocked by vLLM itself: by a grammar that compiles, a KV transfer, a token still in flight."""
        if self._is_blocked_waiting_status(request.status):
            return False
        return not request.num_stale_output_tokens or request.drop_stale_output

    def _decide(self, now: float, account: Account, rule: str, value: float) -> None:
        self.tally[rule] += 1
        if self.options.record_decisions:
            seq, level = account.call.seq, account.slot.level
            self.decisions.append(Decision(now, self.options.engine, seq, rule, level, value))


class PolicyScheduler(PolicyMixin, VllmScheduler):
    """vLLM's synchronous V1 scheduler with our policy inside."""


class PolicyAsyncScheduler(PolicyMixin, VllmAsyncScheduler):
    """vLLM's V1 scheduler with a step in flight while the next one is scheduled, and our policy inside."""
