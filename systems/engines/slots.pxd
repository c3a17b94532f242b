# The types of slots.py for a compiled build (docs/decisions/0012).

cimport cython

from systems.engines.radix cimport RadixKV
from systems.engines.request cimport Request

cdef long long BLOCK, NOBODY
cdef double INF
cdef int WAITING, RUNNING

cdef class Slots:
    cdef public object id, config, scheduler, latency, unit, next_due, step_s, transfer
    cdef public RadixKV kv
    cdef public list steps, decisions, waiting, completing, phase, finishing, expiring, renewed, preempted
    cdef public dict calls, running, levels
    cdef public Request partial
    cdef public double t, idle_s, block_s
    cdef public bint tracks, record, record_steps, firm
    cdef public long long n_waiting, worst_level, g, n, ctx, pushed, admitted, most_tokens, max_model_len
    cdef public long long seqs, budget
    cdef public long long hit_tokens, query_tokens, prefill_tokens, decode_tokens, displaced, evicted, finished, aborted

    @cython.locals(levels=dict)
    cdef _uncount(self, long long level)

    cdef _count(self, long long level)

    @cython.locals(running=bint, booked=double, total="long long")
    cpdef served(self, Request request)

    cpdef service_clock(self)

    @cython.locals(left=double, at=double)
    cpdef arm(self, Request request)

    @cython.locals(now=double, due=list, expiring=list, at=double, request=Request)
    cpdef expire(self)

    @cython.locals(old="long long", level="long long", t=double, quantum=double, at=double)
    cdef _expired(self, Request request)

    @cython.locals(request=Request)
    cpdef promote(self)

    cpdef take_slot(self, Request request, slot, served)

    cpdef enqueue(self, Request request)

    cpdef requeue(self, Request request)

    @cython.locals(waiting=list, order=tuple, request=Request)
    cpdef Request head(self)

    @cython.locals(order=tuple, request=Request)
    cpdef Request first(self)

    cpdef tuple pop_head(self)

    cpdef Request worst(self)

    cpdef note(self, double time, Request request, str rule, value)
