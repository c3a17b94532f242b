# The types of starvation.py for a compiled build (docs/decisions/0012).

cimport cython

from systems.process_table cimport ProcessTable, Row

cdef double INF

cdef class Waiter:
    cdef public object call, usage
    cdef public double since, exec_base, wait_base, term
    cdef public long long promotions

    cpdef bint ran(self)

cdef class Group:
    cdef public Starvation owner
    cdef public Row row
    cdef public object number
    cdef public list calls
    cdef public double due, queued
    cdef public bint stale

    cpdef row_changed(self)
    cpdef double offset(self)

    @cython.locals(calls=list, ran=list, w=Waiter, term=double)
    cpdef double earliest(self)

    @cython.locals(offset=double, known=bint, starving=list, term=double, waiter=Waiter)
    cpdef list take(self, double now)

cdef class Starvation:
    cdef public double beta
    cdef public long long promotions
    cdef public ProcessTable _table
    cdef public str _reset
    cdef public double _limit
    cdef public dict waiters, _groups
    cdef public long long _made
    cdef public list _heap

    @cython.locals(waiter=Waiter, exec_s=double, wait_s=double, group=Group)
    cpdef wait(self, call, usage, double now)

    @cython.locals(waiter=Waiter)
    cpdef run(self, call)

    @cython.locals(waiter=Waiter)
    cpdef leave(self, call)

    @cython.locals(due=double)
    cpdef refresh(self, Group group)

    @cython.locals(heap=list, due=double, group=Group)
    cpdef double next_due(self)

    @cython.locals(starving=list, group=Group, waiter=Waiter)
    cpdef list pop(self, double now)

    @cython.locals(group=Group)
    cpdef forget(self, program)

    @cython.locals(group=Group)
    cdef _unwait(self, Waiter waiter)

    @cython.locals(row=Row, group=Group)
    cdef Group _group(self, program, double now)

    cdef _promote(self, Waiter waiter, double now)
