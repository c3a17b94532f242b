"""Rows of small, consistent runs, made without a driver."""

import random

from bench.records import EngineSample, EngineTotals, MemorySink, ProgramRow
from vocabulary import Call, Decision, Finished, on_grid

PARTS = ("wait", "prefill", "reprefill", "decode", "swap")


def call_row(seq, program, index, start, rng):
    """A call whose parts sum to its time."""
    seconds = {p: on_grid(rng.random()) for p in PARTS}
    preempted = rng.random() < 0.3
    if not preempted:
        seconds["reprefill"] = seconds["swap"] = 0.0
    end = start + sum(seconds.values())
    prompt, output = rng.randint(20, 900), rng.randint(1, 40)
    call = Call(seq, program, "", index, prompt, parents=(("", index - 1),) if index else ())
    return Finished(
        call, 0, start, start + seconds["wait"], start + seconds["wait"] + seconds["prefill"], end,
        output, cached_tokens=prompt // 32 * 16, prefill_tokens=prompt - prompt // 32 * 16,
        reprefill_tokens=prompt if preempted else 0, prefill_s=seconds["prefill"],
        reprefill_s=seconds["reprefill"], decode_s=seconds["decode"], swap_s=seconds["swap"],
        wait_s=seconds["wait"], served=float(output), steps=output, preemptions=int(preempted),
        level=rng.randint(0, 2),
    )  # fmt: skip


def program_row(program, calls, tool_s):
    """The program that made ``calls`` one after the other, with a tool after each."""
    row = ProgramRow(program, "toy", calls[0].t_arrive, outcome="finished", calls=len(calls))
    row.t_end = calls[-1].t_end + tool_s
    for c in calls:
        row.prompt_tokens += c.call.prompt_tokens
        row.output_tokens += c.output_tokens
        row.cached_tokens += c.cached_tokens
        row.preemptions += c.preemptions
        for part in PARTS:
            seconds = getattr(c, f"{part}_s")
            setattr(row, f"cp_{part}_s", getattr(row, f"cp_{part}_s") + seconds)
    row.wait_s = row.cp_wait_s
    row.swap_s = row.cp_swap_s
    row.exec_s = row.cp_prefill_s + row.cp_reprefill_s + row.cp_decode_s + row.cp_swap_s
    row.tool_s = row.cp_tool_s = tool_s * len(calls)
    return row


def fill(sink, programs=200, seed=1, rate=1.0):
    """The rows of ``programs`` sequential toy programs, to a sink; returns the engine's totals."""
    rng = random.Random(seed)
    arrival, seq = 0.0, 0
    total = dict.fromkeys(EngineTotals._fields[1:], 0)
    for program in range(programs):
        arrival += on_grid(rng.expovariate(rate))
        start, rows, tool = arrival, [], on_grid(rng.random())
        for index in range(rng.randint(1, 6)):
            row = call_row(seq, program, index, start, rng)
            rows.append(row)
            sink.call(row)
            seq, start = seq + 1, row.t_end + tool
            total["busy_s"] += row.t_end - row.t_arrive
            total["hit_tokens"] += row.cached_tokens
            total["query_tokens"] += row.call.prompt_tokens
            total["computed_prefill_tokens"] += row.prefill_tokens + row.reprefill_tokens
            total["displaced"] += row.preemptions
            total["preemptions"] += row.preemptions
            total["calls_finished"] += 1
            rules = ["arrive", "admit"] + ["displace"] * row.preemptions + ["finish"]
            sink.decisions([Decision(row.t_arrive, 0, row.call.seq, r, row.level, 0.0) for r in rules])
        sink.program(program_row(program, rows, tool))
        sink.sample(EngineSample(arrival, 0, 1, 0, 10, 20))
    return EngineTotals.of(0, total)


def memory(programs=200, seed=1, rate=1.0):
    """The sink of a toy run, engine totals included."""
    sink = MemorySink()
    sink.totals.append(fill(sink, programs, seed, rate))
    return sink
