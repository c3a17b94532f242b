"""Gates that do as a test tells them, and keep books of their own about what the gateway tells them."""

from collections import Counter

from vocabulary import INF


class Told:
    """Lets everybody pass but programs in ``closed``; ``verdicts`` is what the next tick says.

    Its own count: ``reasoning`` calls by program are those that went on and have not left.
    """

    name = "told"
    places = counts = True

    def __init__(self):
        self.closed, self.verdicts, self.due, self.place_at = set(), [], INF, None
        self.reasoning, self.held = Counter(), Counter()
        self.counted, self.prompts, self.heard, self.seen, self.ticks, self.events = [], [], [], [], [], []

    def request(self, call, engines, now):
        if call.program in self.closed or "*" in self.closed:
            self.held[call.program] += 1
            return False
        self.reasoning[call.program] += 1
        return True

    def place(self, call, engines, now):
        self.seen.append(list(engines))
        return self.place_at(engines) if callable(self.place_at) else self.place_at

    def count(self, call, tokens, now, prompt=None):
        self.counted.append((call.program, tokens))
        self.prompts.append(prompt)

    def finish(self, call, usage, now):
        self.heard.append(("finish", call.seq))
        self.reasoning[call.program] -= 1

    def abort(self, call, usage, now):
        self.heard.append(("abort", call.seq))
        books = self.held if self.held[call.program] else self.reasoning
        books[call.program] -= 1

    def end(self, program, now):
        self.heard.append(("end", program))

    def next_tick(self):
        return self.due

    def tick(self, engines, now):
        self.ticks.append((now, list(engines)))
        self.due = INF if now >= self.due else self.due
        found, self.verdicts = self.verdicts, []
        for verdict in found:
            self.reasoning[verdict.program] += self.held.pop(verdict.program, 0)
        return found

    @property
    def in_flight(self):
        """Calls that it let go and that have not left, by its own count."""
        return sum(self.reasoning.values())
