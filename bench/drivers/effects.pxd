# The types of effects.py for a compiled build (docs/decisions/0012).

cimport cython

from bench.drivers.tasks cimport Run, Task

cdef double INF

cdef class Effects:
    cdef dict __dict__  # attributes not named here
    cdef public list engines, events
    cdef public object pool
    cdef public long long asked
    cdef public double now

    cpdef resume(self, Task task, value)
    cpdef left(self, row)
    cpdef settle(self, Run run)
    cpdef at(self, double time, int kind, what, first=*)

    @cython.locals(now=double, time=double)
    cpdef wake_after(self, seconds, Task task, bint tool)
    cpdef woken(self, Task task, long long ticket, double started, bint tool)

    @cython.locals(parent=Task, results=list, single=bint)
    cpdef returned(self, Task task, value)
    cpdef failed(self, Task task, error)

    @cython.locals(child=Task)
    cpdef kill(self, Task task)
