# The types of displacement.py for a compiled build (docs/decisions/0012).

cimport cython

from systems.engines.batch cimport Batch
from systems.engines.radix cimport RadixKV
from systems.engines.request cimport Request

cdef long long BLOCK
cdef int RUNNING

@cython.locals(mine="long long", theirs="long long")
cpdef bint outranks(Request waiting, Request running)

@cython.locals(kv=RadixKV, cap="long long", path=list, used="long long")
cpdef bint has_place(Batch batch, Request request)

cdef class Room:
    cdef public object batch
    cdef public list renewed
    cdef public long long slots, budget, chunk, promised, unkept

    @cython.locals(r=Request)
    cpdef list fresh(self, long long level)

    cpdef Request worst(self)

    cpdef bint find_tokens(self, Request request)

    cpdef displace(self, Request victim)

    @cython.locals(kv=RadixKV, cap="long long", path=list, hit="long long", used="long long",
                   need="long long", short=bint)
    cpdef bint make(self, Request request)

    cpdef reserve(self, long long tokens)

@cython.locals(looked=list)
cdef _displace(Batch batch, Request head, room)
