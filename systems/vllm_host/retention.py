"""A retention policy inside vLLM: what it is told of the threads of a server, and what is kept for it.

Imports nothing of vLLM. Who is away, and with which tool, comes with the calls (docs/vllm.md).
"""

from __future__ import annotations

import json
from math import isfinite
from typing import Any, TextIO

from systems.protocols import Away
from systems.victims import Key
from systems.vllm_host.callers import seconds_of
from systems.vllm_host.keeper import Keeper
from vocabulary import Call, EngineView


class Retained:
    """Asks the policy of ``host``, our scheduler class, and tells its keeper.

    ``policy``: None where only clients decide. What it thinks goes to the file ``kept``, if there is one.
    """

    def __init__(self, host: Any) -> None:
        options = host.options
        self.policy: Any = options.build_retention()
        self.keeper = Keeper(
            host.kv_cache_manager,
            host.now,
            lambda request: int(host.blocks_needed(request)[0]),
            host.growth,
            None if self.policy is None else self.policy.victims,
            options.control is not None,
            options.firm or bool(getattr(self.policy, "firm", False)),
            self._waits,
            lambda: bool(host.running),
            self._admissible,
        )
        self._host = host
        self._watches = bool(getattr(self.policy, "watches", False))
        self._away: dict[int, set[str]] = {}  # threads, by program
        self._log: TextIO | None = options.open_kept()

    def asked(self, call: Call) -> None:
        """A call came: its thread is no longer away."""
        if self._watches and call.thread in self._away.get(call.program, ()):
            self.policy.called(call.program, call.thread, self._host.now())

    def admitted(self, call: Call, request: Any, cached: int) -> None:
        """A call entered the batch with so many tokens of its prompt in the cache."""
        self.keeper.admitted(call, request, cached)
        threads = self._away.get(call.program, set())
        if call.thread in threads:
            threads.remove(call.thread)
            if self._watches:
                self.policy.back(call.program, call.thread, cached, call.prompt_tokens, self._host.now())
                self._write()

    def _waits(self, request: Any) -> Call | None:
        """Whose call it is, if it waits for admission and has no KV."""
        account = self._host.accounts[request.request_id]
        waits = not account.in_batch and request.request_id not in self._host.held
        return account.call if waits else None

    @property
    def firm(self) -> bool:
        """Whether newcomers wait for what is kept."""
        return self.keeper.firm

    def barred(self, request: Any, promised: int) -> bool:
        """Whether what is kept stops a waiting call; ``promised``: blocks, not kept, that others take."""
        if not self.keeper.barred(self._host.accounts[request.request_id].call):
            return False
        free: int = self._host.kv_cache_manager.block_pool.get_num_free_blocks()
        return self.lacking(request) > free - promised

    def lacking(self, request: Any) -> int:
        """Blocks of a waiting call that it shares neither with calls nor with what is kept."""
        found = self._host.kv_cache_manager.get_computed_blocks(request)[0].blocks[0]
        whole: int = -(-request.num_tokens // self._host.block_size)
        return whole - len([True for block in found if block.ref_cnt])

    def left(self, call: Call, request: Any) -> None:
        """A call is over, its blocks are free. It named its ``tool``, and ``retain_s``, which counts, too."""
        if not self.keeper.left(call):  # its program is over, too
            return
        extra = getattr(request.sampling_params, "extra_args", None) or {}
        now, reply = self._host.now(), request.num_output_tokens
        until = now + (seconds_of(extra, "retain_s") or 0.0)
        if self.policy is not None:
            if self._watches:
                self.policy.look(self._view(), self.waiting_tokens(), now)
            tool, tokens = str(extra.get("tool", "")), call.prompt_tokens + reply
            away = Away(call.program, call.thread, tokens, tool, reply, self._host.options.engine)
            until = max(until, self.policy.idle(away, now))
            self._write()
            self._away.setdefault(call.program, set()).add(call.thread)
        self.keeper.settle(call, until)

    def end(self, program: int) -> None:
        """The program is over."""
        self.keeper.end(program)
        self._away.pop(program, None)
        if self._watches:
            self.policy.end(program, self._host.now())
            self._write()

    def close(self) -> None:
        """Complete the file; idempotent."""
        if self._log is not None:
            self._log.close()

    def waiting_tokens(self) -> int:
        """Prompt tokens of the calls that wait for admission."""
        host = self._host
        waiting = (a for name, a in host.accounts.items() if not a.in_batch and name not in host.held)
        return sum(account.call.prompt_tokens for account in waiting)

    def _admissible(self) -> list[tuple[Any, Key]]:
        """Order and thread of the calls that wait, but for those that vLLM itself blocks and passes over."""
        host = self._host
        calls = [host.accounts[r.request_id] for r in host.queues if host.may_be_admitted(r)]
        return [(account.order, (account.call.program, account.call.thread)) for account in calls]

    def _view(self) -> EngineView:
        """``kv_cached`` stays 0: vLLM does not count free blocks that hold content."""
        host = self._host
        total = host.kv_cache_manager.block_pool.num_gpu_blocks - 1
        used, running = total - host.free_blocks(), len(host.running) - len(host.held)
        return EngineView(host.options.engine, True, len(host.accounts), used, total, running)

    def _write(self) -> None:
        """Empty the policy's events into the file, or away; endless and unknown numbers are null."""
        events = getattr(self.policy, "events", None)
        if not events:
            return
        if self._log is not None:
            self._log.writelines(f"{json.dumps(_plain(event._asdict()))}\n" for event in events)
        events.clear()


def _plain(fields: dict[str, Any]) -> dict[str, Any]:
    return {k: None if isinstance(v, float) and not isfinite(v) else v for k, v in fields.items()}
