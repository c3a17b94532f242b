# The types of radix.py for a compiled build (docs/decisions/0012).

cimport cython

cdef long long BLOCK

@cython.trashcan(True)
cdef class Run:
    cdef public list ids, ends, twins
    cdef public long long start, n, refs
    cdef public bint dead
    cdef public dict children, home
    cdef public tuple key
    cdef public Run above, prev, next

@cython.locals(begin="long long", last="long long", parts=list)
cpdef tuple block_key(list ids, list ends, Py_ssize_t i, long long token)

cpdef Py_ssize_t segment_at(list ends, long long token)

@cython.locals(limit="long long", end="long long", other="long long", rids=list, rends=list)
cdef long long _agree(Run run, list ids, list ends, Py_ssize_t i, long long token, long long n)

cdef class RadixKV:
    cdef public long long total, plain, idle, evicted
    cdef public bint caching
    cdef public dict root
    cdef public Run queue

    cpdef long long free(self)

    @cython.locals(path=list, pos="long long", used="long long", i="Py_ssize_t", home=dict,
                   token="long long", end="long long", run=Run, n="long long", m="long long")
    cpdef tuple match(self, list ids, list ends, long long cap)

    @cython.locals(chain=list, run=Run, m="long long")
    cpdef list hold(self, list path)

    @cython.locals(plain="long long", head=Run, run=Run, following=Run)
    cpdef take(self, long long blocks)

    @cython.locals(last=Run, above=Run, home=dict, token="long long", key=tuple, there=Run, run=Run)
    cpdef cache(self, list chain, list ids, list ends, long long have, long long end)

    @cython.locals(tail=Run, run=Run, start="long long", before=Run)
    cpdef release(self, list chain)

    cdef dict _beside(self, Run there, Run run)

    @cython.locals(upper=Run, token="long long", after=Run)
    cpdef Run split(self, Run run, long long m)

cpdef unlink(Run run)

@cython.locals(twins=list)
cdef _forget(Run run)
