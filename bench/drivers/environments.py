"""Sandboxes on virtual time: what a policy decides, on cores, a disk and ports of one node.

A sandbox takes its ports and its disk when its preparation starts, and gives them back when its teardown
is done. Both are work of one core each, on ``cores`` that all share. A disk image that all share counts
once. Who finds no port waits in line; room is made first by sandboxes of programs that are over, then by
those that were prepared ahead and never used, so that nobody waits for a port of somebody at the door.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bench.drivers.cores import CorePool
from systems.protocols import Environment
from vocabulary import INF, Decision, on_grid

ABSENT, QUEUED, PREPARING, READY, LEAVING = "absent", "queued", "preparing", "ready", "leaving"
At = Callable[[float, Callable[[], None]], None]


@dataclass(slots=True, eq=False)
class _Sandbox:
    """One program's. ``began``: when it was asked for; ``waiting``: (since, go) of tools that need it."""

    program: int
    state: str = ABSENT
    began: float = 0.0
    ticket: int = 0
    used: bool = False
    over: bool = False
    waiting: list[tuple[float, Callable[[], None]]] = field(default_factory=list)


class Environments:
    """The sandboxes of one run under ``policy``; ``at(time, act)`` schedules. Times in seconds.

    ``events`` are rows "env:WHAT" with the program in ``call``; ``value`` is seconds for ready and wait,
    sandboxes in line for queue, else GB of disk in use. Raises ValueError for costs that make no sense.
    """

    def __init__(self, policy: Environment, at: At) -> None:
        self.policy = policy
        self.events: list[Decision] = []
        costs: Any = policy
        self._free = not hasattr(policy, "init_s")  # none: tools run where the agent is
        self._init_s, self._teardown_s, self._disk_gb, self._shared_gb = (
            float(getattr(costs, name, 0.0)) for name in ("init_s", "teardown_s", "disk_gb", "shared_gb")
        )
        self._ports, self._most_ports = int(getattr(costs, "ports", 0)), int(getattr(costs, "most_ports", 1))
        if self._ports > self._most_ports:
            raise ValueError(f"a sandbox of {self._ports} ports never fits {self._most_ports}")
        self._pool = CorePool(getattr(costs, "cores", INF))
        self._at = at
        self._boxes: dict[int, _Sandbox] = {}
        self._line: deque[_Sandbox] = deque()
        self._there = 0
        """Sandboxes that hold disk and ports."""
        self._shared = 0.0
        self._since = 0.0
        self._counts = dict.fromkeys(
            ("prepared", "prepare_s", "init_wait_s", "peak_disk_gb", "disk_gb_seconds", "peak_ports",
             "port_waits", "torn_down", "forced_out", "left"), 0.0)  # fmt: skip

    # -- what the driver tells ---------------------------------------------------------

    def arrive(self, program: int, now: float) -> None:
        """A program is here."""
        if not self._free:
            self._boxes[program] = _Sandbox(program)
            if self.policy.arrive(program, now):
                self._prepare(self._boxes[program], now)

    def held(self, program: int, ahead: int, now: float) -> None:
        """A gate holds it, with ``ahead`` programs before it."""
        self._ahead(program, now, lambda: self.policy.held(program, ahead, now))

    def resumed(self, program: int, now: float) -> None:
        """The gate let it in, after a hold or at once."""
        self._ahead(program, now, lambda: self.policy.resume(program, now))

    def use(self, program: int, now: float, go: Callable[[], None]) -> bool:
        """A tool starts: True if its sandbox is ready, else ``go`` is called when it is."""
        box = self._boxes.get(program)
        if box is None:
            return True
        box.used = True
        if box.state == READY:
            return True
        box.waiting.append((now, go))
        self._prepare(box, now)
        return False

    def end(self, program: int, now: float) -> None:
        """A program is over: tools that still wait for its sandbox are forgotten."""
        box = self._boxes.get(program)
        if box is None:
            return
        box.over = True
        box.waiting.clear()
        if box.state in (ABSENT, QUEUED):
            if box.state == QUEUED:
                self._line.remove(box)
            del self._boxes[program]
        elif box.state == PREPARING or (until := self.policy.keep(program, now)) <= now:
            self._remove(box, now)
        elif until < INF:
            self._at(on_grid(until), lambda: self._remove(box, on_grid(until)))
        self._serve(now)

    def close(self, now: float) -> None:
        """The run was over at ``now``: what is there is ``left``; teardowns after it count to their end."""
        self._settle(max(now, self._since))
        self._counts["left"] = float(self._there)

    def totals(self) -> dict[str, float]:
        """Counts; seconds of tools that waited; GB and GB seconds of disk.

        ``prepare_s``: all preparations, waiting for a port included, from asking to ready; ``port_waits``:
        how many found no port; ``forced_out``: torn down to make room.
        """
        return dict(self._counts)

    # -- disk and ports ------------------------------------------------------------------

    @property
    def disk_gb(self) -> float:
        """Disk in use now."""
        return self._shared + self._there * self._disk_gb

    @property
    def ports(self) -> int:
        """Ports in use now."""
        return self._there * self._ports

    def _settle(self, now: float) -> None:
        self._counts["disk_gb_seconds"] += self.disk_gb * (now - self._since)
        self._since = now

    def _take(self, now: float) -> None:
        self._settle(now)
        self._there += 1
        self._shared = self._shared_gb
        self._counts["peak_disk_gb"] = max(self._counts["peak_disk_gb"], self.disk_gb)
        self._counts["peak_ports"] = max(self._counts["peak_ports"], float(self.ports))

    def _fits(self) -> bool:
        return (self._there + 1) * self._ports <= self._most_ports

    # -- from asking to ready --------------------------------------------------------------

    def _ahead(self, program: int, now: float, asked: Callable[[], bool]) -> None:
        box = self._boxes.get(program)
        if box is not None and box.state == ABSENT and asked():
            self._prepare(box, now)

    def _prepare(self, box: _Sandbox, now: float) -> None:
        """Ask for it; whom a tool waits for may have been asked for before, and comes first now."""
        asked = box.state == ABSENT
        if asked:
            box.state, box.began = QUEUED, now
            self._line.append(box)
        self._serve(now)
        if asked and box.state == QUEUED:
            self._counts["port_waits"] += 1
            self._note(now, box, "queue", float(len(self._line)))

    def _serve(self, now: float) -> None:
        """Start what is in line as far as there are ports: what tools wait for, then the rest."""
        while self._line:
            box = next((box for box in self._line if box.waiting), self._line[0])
            if not self._fits():
                self._make_room(box, now)
                return
            self._line.remove(box)
            self._start(box, now)

    def _make_room(self, wanted: _Sandbox, now: float) -> None:
        """Tear down sandboxes of programs that are over, or, for a tool, those that were never used."""
        leaving = sum(box.state == LEAVING for box in self._boxes.values())
        need = sum(bool(box.waiting) for box in self._line) if wanted.waiting else 1
        over = [box for box in self._boxes.values() if box.over and box.state == READY]
        idle = [box for box in reversed(self._boxes.values())
                if not box.over and not box.used and box.state in (PREPARING, READY)]  # fmt: skip
        for victim in (over + idle if wanted.waiting else over)[: max(0, need - leaving)]:
            self._counts["forced_out"] += 1
            self._remove(victim, now)

    def _start(self, box: _Sandbox, now: float) -> None:
        self._take(now)
        box.state = PREPARING
        box.ticket = self._work(self._init_s, now, lambda done: self._ready(box, done))
        self._note(now, box, "prepare", self.disk_gb)

    def _ready(self, box: _Sandbox, now: float) -> None:
        box.state = READY
        self._counts["prepared"] += 1
        self._counts["prepare_s"] += now - box.began
        self._note(now, box, "ready", now - box.began)
        waiting, box.waiting = box.waiting, []
        for since, go in waiting:
            self._counts["init_wait_s"] += now - since
            self._note(now, box, "wait", now - since)
            go()

    # -- teardown ----------------------------------------------------------------------------

    def _remove(self, box: _Sandbox, now: float) -> None:
        """Tear it down, if it is there."""
        if box.state == PREPARING:
            self._pool.cancel(box.ticket, now)
        elif box.state != READY:
            return
        box.state = LEAVING
        self._work(self._teardown_s, now, lambda done: self._gone(box, done))
        self._note(now, box, "teardown", self.disk_gb)

    def _gone(self, box: _Sandbox, now: float) -> None:
        self._settle(now)
        self._there -= 1
        self._counts["torn_down"] += 1
        box.state = ABSENT
        self._note(now, box, "gone", self.disk_gb)
        if box.over:
            del self._boxes[box.program]
        elif box.waiting:
            self._prepare(box, now)
        self._serve(now)

    # -- the node's cores ----------------------------------------------------------------------

    def _work(self, seconds: float, now: float, done: Callable[[float], None]) -> int:
        ticket = self._pool.start(on_grid(seconds), now, done)
        self._watch()
        return ticket

    def _watch(self) -> None:
        """Look at the cores again when the next job is done, unless that changes before."""
        done = self._pool.next_done()

        def look() -> None:
            if self._pool.next_done() == done:
                self._pool.pop_done(done)(done)
                self._watch()

        if done != INF:
            self._at(done, look)

    def _note(self, now: float, box: _Sandbox, what: str, value: float) -> None:
        self.events.append(Decision(now, -1, box.program, f"env:{what}", 0, value))
