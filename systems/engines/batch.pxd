# The types of batch.py for a compiled build (docs/decisions/0012).

cimport cython

from systems.engines.radix cimport RadixKV
from systems.engines.request cimport Request
from systems.engines.slots cimport Slots

cdef long long BLOCK, NEVER
cdef double INF
cdef int RUNNING, GONE

cdef class Batch(Slots):
    @cython.locals(longest="long long", request=Request, calls=dict, order=tuple, pushed="long long")
    cpdef submit(self, call, body, snap, double now)

    cpdef abort(self, call, double now)

    @cython.locals(t=double, level="long long", levels=dict, at=double)
    cpdef enter(self, Request request)

    @cython.locals(computed="long long", end="long long", full="long long")
    cpdef schedule_chunk(self, Request request, long long chunk, list prefills)

    @cython.locals(t=double, g="long long", kv=RadixKV, before="long long", after="long long",
                   level="long long", steps="long long", prefilled="long long", chain=list,
                   full="long long", total="long long", decode_s=double, exec_s=double, wait_s=double,
                   place="long long")
    cpdef finish(self, Request request)

    @cython.locals(exec_s=double, wait_s=double)
    cdef _close(self, Request request, double now)

    @cython.locals(g="long long", tokens="long long", again=bint, prefilled="long long", steps="long long")
    cpdef unbook(self, Request request, double now)

    @cython.locals(kv=RadixKV, full="long long", chain=list)
    cpdef give_back(self, Request request, long long computed)

    cpdef count_preemption(self, Request request, str rule)

    @cython.locals(t=double, exec_s=double)
    cpdef tell_stop(self, Request request)

    cpdef stall(self, Request request, double seconds)

    cpdef wants(self, Request request, hit)

    cpdef long long lacking(self, list path, long long blocks)

    cpdef bint barred(self, Request request, list path, long long blocks, long long promised)
