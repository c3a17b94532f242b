"""Several servers that start together and end together, whatever happens."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Self

from systems.engines.vllm_virtual import EngineUnavailable
from systems.provision.engine import LiveEngine
from systems.provision.recipe import START_S, healthy

EVERY_S = 10.0
"""Who is still awaited is said so often."""
POLL_S = 0.2
SETTLE_S = 10.0
"""One that answered already gets so long to answer once more."""


class Fleet:
    """All of ``engines`` are up inside the ``with``; afterwards none is (attached ones are left alone).

    ``say`` is told who is up and after how many seconds. ``begun`` is told of each engine as soon as it has
    been started, to remember it. Raises EngineUnavailable naming the engine that did not start, with its
    last words; then, and on Ctrl-C, those that had started are stopped.
    """

    def __init__(
        self,
        engines: Sequence[LiveEngine],
        say: Callable[[str], None],
        *,
        limit_s: float = START_S,
        begun: Callable[[LiveEngine], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.engines = tuple(engines)
        self._say = say
        self._limit_s = limit_s
        self._begun = begun
        self._clock = clock
        self._sleep = sleep
        self._started: list[LiveEngine] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Begin all, await all. On any error, and on Ctrl-C, all are stopped."""
        began = self._clock()
        try:
            for engine in self.engines:
                self._started.append(engine)  # before begin: what it did before it failed is undone, too
                with _named(engine):
                    engine.begin()
                self._begun(engine)
            self._await(began)
        except BaseException:
            self.stop()
            raise

    def check(self) -> None:
        """Raises EngineUnavailable, with its last words, if one has ended."""
        for engine in self.engines:
            with _named(engine):
                engine.check()

    def stop(self) -> None:
        """Take all down, the last first; idempotent. Ctrl-C meanwhile is passed on when all are down."""
        errors: list[BaseException] = []
        again: LiveEngine | None = None
        try:
            for engine in self._started:  # all at once: each takes seconds
                getattr(engine, "ask", _nothing)()
        except BaseException as error:
            errors.append(error)
        while self._started:
            engine = self._started[-1]
            try:
                engine.stop()
            except BaseException as error:
                errors.append(error)
                if isinstance(error, KeyboardInterrupt) and engine is not again:
                    again = engine  # once more for the one that was interrupted
                    continue
            self._started.pop()
        if errors:
            raise errors[0]

    def _await(self, began: float) -> None:
        waiting, said = list(self.engines), began
        while waiting:
            self.check()  # those that are up, too
            for engine in tuple(waiting):
                with _named(engine):
                    if not healthy(engine.url):
                        continue
                    engine.ready(SETTLE_S)
                waiting.remove(engine)
                self._say(f"{engine.name} is up at {engine.url} after {self._clock() - began:.1f} s")
            now = self._clock()
            if waiting and now - began > self._limit_s:
                first = waiting[0]
                raise EngineUnavailable(
                    f"{first.name}: no answer within {self._limit_s:g} s; {first.words()}"
                )
            if waiting and now - said >= EVERY_S:
                said = now
                names = ", ".join(engine.name for engine in waiting)
                self._say(f"waiting for {names}: {now - began:.0f} s of at most {self._limit_s:g} s")
            if waiting:
                self._sleep(POLL_S)


def _nothing() -> None:
    pass


@contextlib.contextmanager
def _named(engine: LiveEngine) -> Iterator[None]:
    """Its errors begin with its name."""
    try:
        yield
    except EngineUnavailable as error:
        raise EngineUnavailable(f"{engine.name}: {error}") from error
