"""Runs of agents by hand: what relay, host and engine would have said, from 100 s on."""

from bench.agents.rows import AgentRun
from bench.drivers.audit import Audit
from bench.live.logs import EngineLog
from workloads.agents.relay.contract import RelayCall

ORIGIN = 100.0
RUN = "run1x0"
QUIET = Audit((0.0, 0.0), (0.0, 0.0), 0.1, 1)


def call(
    program, thread, index, begin, end, *, outcome="finished", out=4, scripted=None, prompt=64, send=0.0
):
    """One that the relay passed on ``send`` seconds after it came."""
    return RelayCall(
        program, thread, index, f"{RUN}.{program}.{thread}.{index}", "chat", False, ORIGIN + begin,
        t_send=ORIGIN + begin + send, t_first=ORIGIN + end if outcome == "finished" else float("nan"),
        t_last=ORIGIN + end, status=200, outcome=outcome, prompt_tokens=prompt, output_tokens=out,
        cached_tokens=0, scripted_tokens=out if scripted is None else scripted,
    )  # fmt: skip


def event(kind, t, **fields):
    return {"event": kind, "t": ORIGIN + t, **fields}


def began(program, t, task=None):
    return event("began", t, program=program, task=task or f"task-{program}")


def ended(program, t, outcome="finished", success=True, why=""):
    return event("ended", t, program=program, outcome=outcome, success=success, why=why, notes={})


def tool(program, begin, end, thread="main", name="ls"):
    return event("tool", begin, program=program, thread=thread, name=name, t_end=ORIGIN + end, ok=True)


def sandbox(program, t, what, seconds, *, ok=True, disk=-1, phase="run"):
    own = {
        "phase": phase,
        "time": ORIGIN + t,
        "sandbox": f"s-{program}",
        "what": what,
        "seconds": seconds,
        "ok": ok,
        "disk": disk,
    }
    return event("sandbox", t, program=program, **own)


def run_of(calls, events, took=100.0):
    return AgentRun(RUN, "react", 0.0, ORIGIN, took, calls, events, QUIET)


def row(wait, prefill, decode, begin, *, out=4, prompt=64, aborted=False):
    """A row of the call log on the engine's clock, which began when ours did."""
    end = begin + wait + prefill + decode
    return {
        "t_arrive": begin, "t_first_sched": begin + wait, "t_first_token": begin + wait + prefill,
        "t_end": end,
        "output_tokens": out, "cached_tokens": 0, "prefill_tokens": prompt, "reprefill_tokens": 0,
        "prefill_s": prefill, "reprefill_s": 0.0, "decode_s": decode, "swap_s": 0.0, "wait_s": wait,
        "served": 1.0, "steps": 1, "preemptions": 0, "demotions": 0, "promotions": 0, "level": 0,
        "aborted": aborted,
    }  # fmt: skip


def log_of(rows, steps=(), engine=0):
    head = {"origin_monotonic": ORIGIN, "block_size": 32, "vllm": "0", "scheduler": "fcfs"}
    return EngineLog(engine, rows, list(steps), head)


def step(start, end, calls):
    """``calls``: (PROGRAM.THREAD.INDEX, tokens computed)."""
    named = [(f"chatcmpl-{RUN}.{key}-0123abcd", 0, tokens, 1) for key, tokens in calls]
    return {"start": start, "end": end, "running": len(calls), "waiting": 0, "kv_used": 1, "evicted": 0,
            "calls": named, "preempted": []}  # fmt: skip
