# The types of request.py for a compiled build (docs/decisions/0012).

cdef class Request:
    cdef public object call, row, slot
    cdef public tuple order
    cdef public list ids, ends, chain
    cdef public long long tokens, total, computed, hit, tree, decoded, copy, number, g_in, g0, finish_at
    cdef public double limit, expire_at, t_in, paused, swapped
    cdef public int state
    cdef public bint decoding, renewed, again, decodes
