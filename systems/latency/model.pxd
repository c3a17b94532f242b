# The types of model.py for a compiled build (docs/decisions/0012).

cimport cython

cdef double INF, _ROUND, _TOP

cdef class TableLatency:
    cdef dict __dict__  # attributes not named here
    cdef double _overhead
    cdef public object _shared, _logits
    cdef public list _batch, _context, _decode_s, _new, _cached, _cells
    cdef public dict _attention, _decode

    @cython.locals(a=double, b=double, tokens="long long", seconds=double, cells=list, news=list,
                   knots=list, new="long long", cached="long long", part=double, bounds=list, lines=list,
                   k=double, kx=double, ky=double, kxy=double)
    cpdef double step(self, prefills, long long n_decode, long long sum_ctx)

    @cython.locals(bounds=list, lines=list)
    cpdef tuple decode_line(self, long long n_decode, long long sum_ctx)
