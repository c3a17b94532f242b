# The types of lazy.py for a compiled build (docs/decisions/0012).

cimport cython

from systems.engines.batch cimport Batch
from systems.engines.radix cimport RadixKV
from systems.engines.request cimport Request

cdef long long BLOCK
cdef double INF, _ROUND

cdef class LazyEngine(Batch):
    cpdef double clock(self)

    cpdef double results_at(self)

    @cython.locals(k="long long", a=double, b=double)
    cpdef double horizon(self)

    @cython.locals(calls=dict, finishing=list, expiring=list, seconds=bint)
    cpdef bint advance(self, double until)

    @cython.locals(g="long long", finishing=list, expiring=list, done=list, at="long long",
                   number="long long", request=Request)
    cpdef list collect(self)

    @cython.locals(g="long long", finishing=list)
    cdef bint _somebody_finishes(self)

    @cython.locals(kv=RadixKV, partial=Request, need="long long", budget="long long", computed="long long",
                   chunk="long long", prefills=list, n="long long", ctx="long long", dt=double)
    cpdef boundary(self, double until, long long waiting=*)

    @cython.locals(kv=RadixKV, running=dict, seqs="long long", request=Request, tokens="long long",
                   cap="long long", path=list, hit="long long", used="long long", computed="long long",
                   chunk="long long")
    cpdef admit(self, long long budget, list prefills)

    @cython.locals(dt=double, kv=RadixKV)
    cpdef run_mixed(self, list prefills, long long n, long long ctx, given)

    @cython.locals(g="long long", t=double, finishing=list, request=Request, tokens="long long",
                   at="long long", place="long long")
    cpdef start_decoding(self)

    @cython.locals(g="long long", n="long long", t=double, ctx="long long", kv=RadixKV, free="long long",
                   k="long long", stop=double, start=double, left="long long", a=double, b=double,
                   limit=double, more="long long")
    cpdef decode(self, double until, long long need)

    @cython.locals(g="long long", finishing=list, expiring=list, k="long long", stop=double)
    cpdef tuple steps_ahead(self, double until, long long free)

    @cython.locals(expiring=list)
    cpdef tuple until_asked(self, long long k, double stop)

    cpdef bint outranked(self)

    @cython.locals(whole="long long", rest="long long", blocks="long long", g="long long", phase=list,
                   i="long long")
    cdef long long _blocks_ahead(self, long long k)

    @cython.locals(k="long long")
    cdef long long _last_fitting(self, long long free)
