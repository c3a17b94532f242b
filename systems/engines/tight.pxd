# The types of tight.py for a compiled build (docs/decisions/0012).

cimport cython

from systems.engines.radix cimport RadixKV
from systems.engines.request cimport Request
from systems.engines.lazy cimport LazyEngine

cdef long long BLOCK
cdef double INF
cdef int RUNNING

@cython.locals(prefills=list, given=dict, n="long long", ctx="long long", request=Request, stalled=list,
               before=double, r=Request)
cpdef tight_step(LazyEngine engine)

@cython.locals(budget="long long", g="long long", kv=RadixKV, order=list, given=dict, i="Py_ssize_t",
               request=Request, tokens="long long", want="long long", need="long long",
               computed="long long", victim=Request, at="Py_ssize_t")
cdef dict _schedule_running(LazyEngine engine, list prefills)
