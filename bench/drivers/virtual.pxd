# The types of virtual.py for a compiled build (docs/decisions/0012).

cimport cython

from bench.drivers.effects cimport Effects
from bench.drivers.tasks cimport Run, Task

cdef double INF, GRID

cdef class VirtualDriver(Effects):
    cdef public object table, sink
    cdef public bint plain_tools, reads_prompt, shared_table
    cdef public double sample_s, next_sample, ended
    cdef public dict runs
    cdef public long long seq, programs, calls

    @cython.locals(events=list, done=double)
    cdef _one_engine(self, engine)
    cdef _results(self, engine, double now)

    @cython.locals(event=tuple, now=double, kind=int)
    cdef _event(self)

    @cython.locals(run=Run)
    cpdef arrive(self, spec)

    cpdef resume(self, Task task, value)

    cpdef call(self, Task task, effect)

    @cython.locals(run=Run)
    cpdef make(self, Task task, effect)

    @cython.locals(run=Run)
    cpdef submit(self, Task task, effect)

    @cython.locals(run=Run, task=Task)
    cpdef left(self, row)

    cpdef settle(self, Run run)
