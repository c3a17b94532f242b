# The types of process_table.py for a compiled build (docs/decisions/0012).

cimport cython

cdef class Row:
    cdef public double service, exec_s, wait, started, last_arrival, last_completion
    cdef public long long active
    cdef public bint ended
    cdef public list watchers
    cdef public dict paths

    cpdef changed(self)

cdef class ProcessTable:
    cdef public object rule
    cdef bint _max
    cdef dict _rows

    cpdef Row row(self, program)
    @cython.locals(row=Row)
    cpdef Row start(self, program, double now)
    @cython.locals(row=Row)
    cpdef snapshot(self, program)
    @cython.locals(row=Row)
    cpdef Row arrive(self, program, snap, double now)
    @cython.locals(row=Row, served=double, exec_s=double, wait_s=double)
    cpdef charge(self, program, double snapshot_service, usage, double now=*)
    @cython.locals(row=Row)
    cpdef forgive(self, program)
    @cython.locals(row=Row)
    cpdef end(self, program)
