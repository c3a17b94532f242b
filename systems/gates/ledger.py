"""Who is here, what each has in flight, and what is booked for it: the books of every gate by capacity.

A program is reasoning while a call of its is in flight, else acting. Calls are counted, not flagged, so that
concurrent turns close one by one, and every way a turn can end closes it: ``close`` is the only door out.
Tokens are whole numbers; what is booked on an engine is what its programs weigh, to the token.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from vocabulary import INF, Call, Segment

NEW, ACTIVE, MARKED, PAUSED = "new", "active", "marked", "paused"
"""Never let in; runs; runs, and pauses when its turn ends; must ask again."""
_LEAST_RATIO, _MOST_RATIO = 0.25, 4.0
"""What a host's estimate of a prompt's length can be off by: true tokens per token of the estimate."""


@dataclass(slots=True, eq=False)
class Program:
    """One program. ``engine``: where it runs, or ran last; -1: nowhere yet.

    ``tokens``: the context its last finished call left; ``open`` and ``held``: its calls in flight and at the
    door, with the tokens each is expected to need. ``since``: when it last began to act (s); ``waits``: since
    when it has waited (s), and no call of its has gone on: one that gave up and asks again waits on; INF: it
    does not wait;
    ``heard``: its last sign of life (s). ``booked``: what it weighs on its engine now, ``lead``: the tokens
    of its prompt that others there share. ``served``: service attained, in the host's unit. ``ratio``: true
    prompt tokens per token of the host's count; ``replies``: tokens of all ``answered`` replies.
    """

    id: int
    heard: float
    since: float
    state: str = NEW
    engine: int = -1
    tokens: int = 0
    open: dict[int, int] = field(default_factory=dict)
    open_tokens: int = 0
    held: dict[int, int] = field(default_factory=dict)
    held_tokens: int = 0
    waits: float = INF
    ratio: float = 1.0
    measured: bool = False
    replies: int = 0
    answered: int = 0
    counted: int = -1
    booked: int = 0
    lead: int = 0
    served: float = 0.0
    prompt: tuple[Segment, ...] = ()

    @property
    def acting(self) -> bool:
        """No call of its is in flight."""
        return not self.open

    @property
    def size(self) -> int:
        """Its context in tokens: what its last call left, or its calls in flight if they are more."""
        return max(self.tokens, self.open_tokens)

    @property
    def need(self) -> int:
        """``size`` with the calls at the door let in."""
        return max(self.tokens, self.open_tokens + self.held_tokens)

    @property
    def idle_since(self) -> float:
        """Since when it waits, or, if it does not, last acted."""
        return self.waits if self.waits < INF else self.since

    def estimate(self, prompt_tokens: int, least_reply: int = 0) -> int:
        """What a call will need: its prompt by the host's count, corrected by what that was off so far, and
        a reply as long as the program's were on average, at least ``least_reply``."""
        reply = round(self.replies / self.answered) if self.answered else 0
        return max(1, round(prompt_tokens * self.ratio)) + max(least_reply, reply)

    def learn(self, said: int, prompt: int | None, tokens: int) -> None:
        """A call's context came to ``tokens``, ``prompt`` of them prompt, which the host had said were
        ``said``; None: it knew."""
        if prompt is not None and prompt > 0:
            seen = min(_MOST_RATIO, max(_LEAST_RATIO, prompt / max(1, said)))
            self.ratio = (self.ratio + seen) / 2 if self.measured else seen
            self.measured = True
        self.replies += max(0, tokens - (prompt or said))
        self.answered += 1


class Ledger:
    """Programs by id, and the books of the engines.

    ``load[engine]``: tokens booked there; ``leaving[engine]``: those of marked programs, which are no longer
    counted as load but are there until their turn ends; ``inside[engine]``: programs that run there.
    """

    def __init__(self) -> None:
        self.programs: dict[int, Program] = {}
        self.load: dict[int, int] = {}
        self.leaving: dict[int, int] = {}
        self.inside: dict[int, int] = {}
        self.in_flight = 0

    def reasoning(self) -> int:
        """Programs with a call in flight."""
        return sum(1 for program in self.programs.values() if program.open)

    def known(self, call: Call, now: float) -> Program:
        """The call's program; a new one if it has not been seen."""
        program = self.programs.get(call.program)
        if program is None:
            program = self.programs[call.program] = Program(call.program, now, now)
        program.heard = now
        return program

    def open(self, program: Program, seq: int, tokens: int) -> None:
        """A call goes on: its program does not wait any more."""
        program.waits = INF
        program.open[seq] = tokens
        program.open_tokens += tokens
        self.in_flight += 1

    def close(self, program: Program, seq: int) -> int | None:
        """A call in flight ended, one way or another; what was expected of it. None: it was not in flight."""
        tokens = program.open.pop(seq, None)
        if tokens is not None:
            program.open_tokens -= tokens
            self.in_flight -= 1
        return tokens

    def hold(self, program: Program, seq: int, tokens: int) -> None:
        """A call waits at the door."""
        program.held[seq] = tokens
        program.held_tokens += tokens

    def unhold(self, program: Program, seq: int) -> bool:
        """A call left the door; False: it was not there."""
        tokens = program.held.pop(seq, None)
        if tokens is None:
            return False
        program.held_tokens -= tokens
        return True

    def let_in(self, program: Program) -> None:
        """All its calls at the door go on."""
        for seq, tokens in program.held.items():
            self.open(program, seq, tokens)
        program.held.clear()
        program.held_tokens = 0

    def enter(self, program: Program, engine: int, weight: int) -> None:
        """It runs on ``engine`` from now on and weighs so much there."""
        program.state, program.engine, program.booked = ACTIVE, engine, weight
        _add(self.inside, engine, 1)
        _add(self.load, engine, weight)

    def book(self, program: Program, weight: int) -> None:
        """It weighs ``weight`` now, on the books on which it stands."""
        if program.state in (ACTIVE, MARKED):
            _add(self._books(program), program.engine, weight - program.booked)
            program.booked = weight

    def mark(self, program: Program) -> None:
        """It leaves when its turn ends: no longer load, but still there."""
        self._move(program, MARKED)

    def unmark(self, program: Program) -> None:
        """It stays after all, with nothing to wait for."""
        program.waits = INF
        self._move(program, ACTIVE)

    def leave(self, program: Program) -> None:
        """It runs on no engine any more."""
        if program.state in (ACTIVE, MARKED):
            _add(self._books(program), program.engine, -program.booked)
            _add(self.inside, program.engine, -1)
            program.booked = 0
        program.state = PAUSED

    def forget(self, program: Program) -> None:
        """It is gone, with all it had."""
        self.leave(program)
        self.in_flight -= len(program.open)
        del self.programs[program.id]

    def _books(self, program: Program) -> dict[int, int]:
        return self.load if program.state == ACTIVE else self.leaving

    def _move(self, program: Program, state: str) -> None:
        _add(self._books(program), program.engine, -program.booked)
        program.state = state
        _add(self._books(program), program.engine, program.booked)


def _add(books: dict[int, int], engine: int, amount: int) -> None:
    """An engine with nothing booked has no entry."""
    total = books.get(engine, 0) + amount
    if total:
        books[engine] = total
    else:
        books.pop(engine, None)
