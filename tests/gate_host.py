"""A host for gates, by hand: calls come, end and leave at times the test says."""

from systems.protocols import Pause
from vocabulary import Call, EngineView, GateEvent, Usage

NOTHING = Usage(0.0, 0.0, 0.0)
LEFT = "left"
"""What the host adds to the events: the last call of a program at the door was given up."""


class Host:
    """Engines of ``kv`` tokens each (multiples of 16); what the gate did is in ``placed`` and ``pauses``.

    ``placed``: (time, program, engine) of every call that went on; ``held``: calls at the door by program.
    """

    def __init__(self, gate, *kv):
        assert all(tokens % 16 == 0 for tokens in kv)
        self.gate = gate
        self.kv = list(kv)
        self.dead = set()
        self.now = 0.0
        self.seq = 0
        self.calls, self.held, self.inside = {}, {}, {}
        self.placed, self.pauses, self.events = [], [], []

    def views(self):
        return [EngineView(i, i not in self.dead, 0, 0, kv // 16) for i, kv in enumerate(self.kv)]

    def ask(self, program, tokens, prompt=()):
        """A call of ``program`` with a prompt of so many tokens arrives; the call."""
        self.seq += 1
        call = self.calls[self.seq] = Call(self.seq, program, "", 0, tokens, prompt=prompt)
        if self.gate.request(call, self.views(), self.now):
            self._goes_on(call, self.gate.place(call, self.views(), self.now))
        else:
            self.held.setdefault(program, []).append(call)
        self._listen()
        return call

    def done(self, call, tokens=None, prompt=None):
        """Its reply is there; ``tokens`` of context by its usage, ``prompt`` of them its prompt if the host
        had only guessed that; None: it has none."""
        self._close(call, tokens, self.gate.finish, prompt)

    def fail(self, call):
        """It ends without a reply: an error, an abort, a client that left."""
        self._close(call, None, self.gate.abort)

    def turn(self, program, tokens):
        """A whole call at once."""
        call = self.ask(program, tokens)
        assert call.program not in self.held
        self.done(call, tokens)

    def again(self, call):
        """A call that went on asks where to, once more; the engine."""
        self.inside[call.seq] = self.gate.place(call, self.views(), self.now)
        self.tick()
        return self.inside[call.seq]

    def end(self, program):
        self.gate.end(program, self.now)
        self.tick()

    def until(self, time):
        """The clock goes on, with every tick that the gate wants."""
        while (due := self.gate.next_tick()) <= time:
            self.now = max(self.now, due)
            self.tick()
            assert self.gate.next_tick() > due, "it asks for the same time again"
        self.now = time

    def tick(self):
        for action in self.gate.tick(self.views(), self.now):
            if isinstance(action, Pause):
                self.pauses.append(action.program)
                continue
            for call in self.held.pop(action.program):
                self._goes_on(call, action.engine)
        self._listen()

    def what(self, *kinds):
        """(time, program) of events of those kinds."""
        return [(event.time, event.program) for event in self.events if event.what in kinds]

    def _goes_on(self, call, engine):
        self.inside[call.seq] = engine
        self.placed.append((self.now, call.program, engine))

    def _close(self, call, tokens, way, prompt=None):
        was_held = call.seq not in self.inside
        if was_held:
            self.held[call.program].remove(call)
        else:
            del self.inside[call.seq]
            self.gate.count(call, tokens, self.now, prompt)
        if was_held and not self.held[call.program]:
            del self.held[call.program]
            self.events.append(GateEvent(self.now, call.program, -1, LEFT, "the host's word", 0))
        way(call, NOTHING, self.now)
        self.tick()

    def _listen(self):
        self.events += self.gate.events
        self.gate.events.clear()


def kept(thing):
    """How much a gate remembers: everything in its containers, and in what it is made of."""
    if isinstance(thing, dict):
        return len(thing) + sum(kept(value) for value in thing.values())
    if isinstance(thing, list | set | tuple):
        return len(thing)
    inside = getattr(thing, "__dict__", {}) if type(thing).__module__.startswith("systems.") else {}
    return sum(kept(value) for value in inside.values())
