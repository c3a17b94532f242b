# The types of tasks.py for a compiled build (docs/decisions/0012).

cimport cython

cdef class Run:
    cdef public object spec, row, left
    cdef public long long tasks
    cdef public dict open
    cdef public list tops
    cdef public tuple path

    cpdef over(self, double now, outcome, tuple path)
    cpdef close(self)

cdef class Task:
    cdef public Run run
    cdef public object coroutine, place, tool, call, snap, handle, engine, thread
    cdef public Task parent
    cdef public tuple path
    cdef public list children, results
    cdef public long long pending, ticket
    cdef public bint single

    cpdef end(self)
    cpdef cancel(self)

    @cython.locals(run=Run, wait_s=double, prefill_s=double, again_s=double, decode_s=double,
                   wait=double, prefill=double, again=double, decode=double, tool=double, think=double)
    cpdef spent(self, done)

    @cython.locals(wait=double, prefill=double, again=double, decode=double, tool_s=double, think_s=double)
    cpdef waited(self, double seconds, bint tool)
