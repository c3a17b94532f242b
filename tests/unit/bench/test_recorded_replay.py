"""A simulated run, recorded as a gateway would have and replayed, is that run again."""

import json

import pytest

from systems.engines.sim import SimEngine
from systems.gateway.bodies import ENDPOINTS, parse
from systems.gateway.observe import Passage
from systems.gateway.record.recorder import Recorder
from systems.gateway.record.replies import Heard
from tests.driven import chain, forked, serve
from vocabulary import BLOCK, EngineConfig
from workloads.base import ProgramSpec
from workloads.dryrun import dry_run
from workloads.keys import mix
from workloads.load import load

SYSTEM = (99, 100)
"""A segment that programs share."""


def agent(number):
    async def start(s):
        s.add(SYSTEM)
        for turn in range(4):
            await s.call(40 + 7 * number + turn, output=20 + 3 * turn)
            await s.tool("t", 1.5 + number / 8)

    return start


STARTS = [
    agent(0),
    agent(1),
    forked((50, 12), [(20, 30), (9, 5)], [(30, 8)], last=(16, 9)),
    chain((33, 4), (20, 6)),
]
TIMES = [0.0, 3.0, 4.0, 9.0]
CONFIG = EngineConfig(kv_blocks=400, max_num_seqs=3, record_steps=True)


def tokens(segments):
    """Token ids: equal segments have equal ones."""
    return [mix(name, k) % (1 << 31) for name, length in segments for k in range(length)]


def recorded(served, prompts, folder):
    """What a gateway in front of that engine would have recorded."""
    recorder = Recorder(folder, {"wall": 0.0}, flush_s=0)
    for row in sorted(served.log.calls, key=lambda row: row.t_end):
        who = row.call
        call = prompts[who.program, who.thread, who.index]
        ids = tokens(call.prompt)
        heard = Heard(parse(ENDPOINTS[1], json.dumps({"model": "m", "prompt": ids}).encode()))
        said = tokens([(call.output_id, call.output_tokens)])
        reply = {"choices": [{"text": "", "token_ids": said}]}
        heard.through(lambda stamp, piece: None)(0.0, json.dumps(reply).encode())
        passage = Passage(
            who.seq, who.program, f"p{who.program}", who.thread, who.index, "/v1/completions", False,
            row.t_arrive, t_end=row.t_end, outcome="finished", prompt_tokens=len(ids),
            output_tokens=call.output_tokens, cached_tokens=row.cached_tokens,
        )  # fmt: skip
        recorder._call(passage, heard)
    recorder.close()


def rows_of(served):
    """What each call had, by its program and end; threads have other names in a replay."""
    return sorted(
        (
            row.call.program,
            row.t_end,
            row.t_arrive,
            row.call.prompt_tokens,
            row.output_tokens,
            row.cached_tokens,
        )
        for row in served.log.calls
    )


def test_a_replay_under_the_same_step_times_is_the_same_run(tmp_path):
    first = serve(STARTS, times=TIMES, config=CONFIG, engine=SimEngine)
    programs = [dry_run(spec) for spec in specs(STARTS)]
    prompts = {
        (number, call.thread, call.index): call for number, dag in enumerate(programs) for call in dag.calls
    }
    recorded(first, prompts, tmp_path)
    found = load(str(tmp_path), max_model_len=1 << 20)
    assert (found.skipped, found.repaired) == ({}, {})
    times = [spec.arrival for spec in found.programs]
    again = serve([spec.start for spec in found.programs], times=times, config=CONFIG, engine=SimEngine)
    rows, replayed = rows_of(first), rows_of(again)
    assert len(rows) == len(replayed) == 15
    for mine, theirs in zip(rows, replayed, strict=True):
        assert mine == pytest.approx(theirs, abs=1e-5)
    hits = sum(row.cached_tokens for row in first.log.calls)
    assert hits > 5 * BLOCK


def specs(starts):
    """As ``serve`` makes them."""
    return [ProgramSpec(i, "test", mix(7, i), start) for i, start in enumerate(starts)]
