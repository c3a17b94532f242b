"""How far log probabilities move when a call is batched, preempted and resumed: what greedy tokens hide.

The same prompts three times on one server: alone, one after the other; together with as many others; and
as programs that a stream of short new ones displaces again and again (recompute). Of the displaced calls,
tokens before the first preemption and after it are told apart by the step log.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import orjson

from bench.drivers.completions import Completions, Request, Response
from bench.drivers.token_ids import TokenIds
from bench.fidelity.server_calls import request_name
from bench.fidelity.server_runs import SALT, explained
from bench.fidelity.server_setup import MODEL, Setup
from systems.engines.vllm_server import VllmServer

PROMPT, OUTPUT = 200, 96
SHORT_PROMPT, SHORT_OUTPUT = 160, 6
"""Bursts have prompts of their own, so that they need blocks: where KV is short, the probes' cached ones."""
GAP_S = 0.25
"""Between two bursts of short calls, which fill every slot."""
MOST_BURSTS = 40
_PROBES, _OTHERS, _SHORT = 10_000, 20_000, 30_000
"""Segment ids of the prompts: apart from each other, and those of workloads are 64-bit keys."""


@dataclass(frozen=True)
class Probed:
    """Largest difference to alone, of chosen tokens' natural log probabilities; NaN where no token was.

    ``preempted``: of preempted calls, all tokens up to the first preemption; ``resumed``: those after it.
    ``calls`` were preempted, and ``recomputed`` tokens of them computed again. ``tokens`` compared;
    ``differ``: of these, other tokens than alone. 0 means equal to the last bit."""

    batched: float
    preempted: float
    resumed: float
    calls: int
    recomputed: int
    tokens: int
    differ: int

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    @classmethod
    def parse(cls, data: Mapping[str, Any]) -> Probed:
        """From ``as_json``'s data, where JSON has null for NaN."""
        values: dict[str, Any] = {k: math.nan if v is None else v for k, v in data.items()}
        return cls(**values)


def probe(server: VllmServer, setup: Setup, vocabulary: int) -> Probed:
    """Run the probes. Raises MissingError if the server dies, InvalidRun if a call fails."""
    ids = TokenIds(vocabulary, SALT)
    with explained():
        alone, batched, displaced = asyncio.run(_probe(server, setup, ids))
    first = first_preemptions(server, "displaced")
    return compare(alone, batched, displaced, first, recomputed(server, "displaced"))


async def _probe(server: VllmServer, setup: Setup, ids: TokenIds) -> tuple[list[Response], ...]:
    count = setup.probes
    async with Completions(server.url, MODEL) as client:
        alone = [await client.complete(_request(ids, "alone", i)) for i in range(count)]
        others = [_request(ids, "others", count + i, _OTHERS) for i in range(setup.max_num_seqs - count)]
        together = [_request(ids, "batched", i) for i in range(count)] + others
        batched = await asyncio.gather(*map(client.complete, together))
        displaced = await _displaced(client, ids, setup)
    return alone, list(batched[:count]), displaced


async def _displaced(client: Completions, ids: TokenIds, setup: Setup) -> list[Response]:
    """The probes while bursts of short calls of new programs fill every slot."""
    probes = [_request(ids, "displaced", i) for i in range(setup.probes)]
    running = asyncio.gather(*map(client.complete, probes))
    for burst in range(MOST_BURSTS):
        await asyncio.wait([running], timeout=GAP_S)
        if running.done():
            break
        slots, first = setup.max_num_seqs, _SHORT + 100 * burst
        prompts = [ids.segment(first + i, SHORT_PROMPT) for i in range(slots)]
        await asyncio.gather(
            *(
                client.complete(
                    Request(f"short.{i}..{burst}", p, SHORT_OUTPUT, {"program_id": f"short.{burst}.{i}"})
                )
                for i, p in enumerate(prompts)
            )
        )
    return list(await running)


def _request(ids: TokenIds, run: str, i: int, first: int = _PROBES) -> Request:
    caller = {"program_id": f"{run}.{i}", "thread_id": ""}
    return Request(f"{run}.{i}..0", ids.segment(first + i, PROMPT), OUTPUT, caller, run, logprobs=True)


def first_preemptions(server: VllmServer, run: str) -> dict[int, int]:
    """Of each call of a run that was preempted: how many tokens it had emitted before."""
    emitted: dict[int, int] = {}
    found: dict[int, int] = {}
    for line in server.steps.read_bytes().splitlines()[1:]:
        step = orjson.loads(line)
        for request in step["preempted"]:
            name = request_name(request)
            if name[0] == run:
                found.setdefault(int(name[1]), emitted.get(int(name[1]), 0))
        for request, _, _, emits in step["calls"]:
            name = request_name(request)
            if name[0] == run and emits:
                emitted[int(name[1])] = emitted.get(int(name[1]), 0) + 1
    return found


def recomputed(server: VllmServer, run: str) -> int:
    """Tokens that preemption made the engine compute again, over the calls of a run."""
    rows = map(orjson.loads, server.calls.read_bytes().splitlines())
    return sum(int(row["reprefill_tokens"]) for row in rows if request_name(row["request_id"])[0] == run)


def compare(
    alone: Sequence[Response], batched: Sequence[Response], displaced: Sequence[Response],
    first: Mapping[int, int], again: int,
) -> Probed:  # fmt: skip
    """Alone against the other two; ``first``: tokens before the first preemption, by probe; ``again``:
    tokens computed again."""
    before, after = [], []
    for i, tokens in first.items():
        moved = _moved(alone[i], displaced[i])
        before += moved[:tokens]
        after += moved[tokens:]
    all_batched = [d for a, b in zip(alone, batched, strict=True) for d in _moved(a, b)]
    differ = sum(
        x != y
        for others in (batched, displaced)
        for a, b in zip(alone, others, strict=True)
        for x, y in zip(a.tokens, b.tokens, strict=True)
    )
    total = sum(len(a.tokens) for a in alone) * 2
    return Probed(_largest(all_batched), _largest(before), _largest(after), len(first), again, total, differ)


def _moved(a: Response, b: Response) -> list[float]:
    return [abs(x - y) for x, y in zip(a.logprobs, b.logprobs, strict=True)]


def _largest(values: Sequence[float]) -> float:
    return max(values, default=math.nan)
