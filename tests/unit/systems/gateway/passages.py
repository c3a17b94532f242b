"""Passages as a gateway would tell of them."""

from systems.gateway.observe import Passage

SECRET = "the words of the prompt"


def passage(seq=0, program=0, **changes):
    """A streaming call that has just arrived at second 1."""
    fields = {"name": f"p{program}", "thread": "t", "index": 0, "endpoint": "/v1/completions", "stream": True}
    fields |= {"t_arrive": 1.0} | changes
    return Passage(seq, program, **fields)


def finished(call, **changes):
    """It went through: sent after 1 ms, first bytes after 0.2 s, over after 2 s."""
    done = {"engine": 0, "t_admit": call.t_arrive, "t_send": call.t_arrive + 0.001}
    done |= {"t_first": call.t_arrive + 0.2, "t_last": call.t_arrive + 2.0, "t_end": call.t_arrive + 2.0}
    done |= {
        "status": 200,
        "outcome": "finished",
        "prompt_tokens": 100,
        "output_tokens": 7,
        "cached_tokens": 64,
    }
    done |= {"served": 7.0, "exec_s": 1.5, "wait_s": 0.25, "source": "log", "chunks": 8, "bytes_in": 400}
    for name, value in (done | changes).items():
        setattr(call, name, value)
    return call


def through(observer, call, **changes):
    """Tell an observer of all of it."""
    observer.arrived(call)
    finished(call, **changes)
    observer.sent(call)
    observer.first(call)
    observer.left(call)
