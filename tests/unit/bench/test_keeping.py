"""What the front knows of kept KV: what it tells a scheduler that a call finds."""

from __future__ import annotations

from typing import Any

import pytest

from bench.drivers.keeping import Keeper
from systems.retentions.pin import Pin
from vocabulary import Call, Finished


class Engine:
    """Keeps whatever it is told to."""

    victims: Any = None
    firm = False

    def retain(self, program: int, thread: str, until: float, priority: int, now: float) -> int:
        return 4 * (until > now)


@pytest.fixture
def keeper() -> Keeper:
    """Program 1 left 65 tokens on engine 0 at 1 s, which are kept until 11 s."""
    keeper = Keeper(Pin(seconds=10.0), [Engine(), Engine()], lambda: 0)
    row = Finished(Call(0, 1, "", 0, 64), 0, 0.0)
    row.output_tokens = 1
    keeper.ended(row)
    keeper.away(1, "", "bash", 5.0, 1.0)
    return keeper


@pytest.mark.parametrize(("at", "kept"), [(4.0, 64), (11.0, 64), (11.25, 0)])
def test_who_is_back_at_the_deadline_is_back_in_time(keeper: Keeper, at: float, kept: int) -> None:
    assert keeper.asked(Call(1, 1, "", 1, 80), at) == kept


def test_what_was_dropped_or_is_on_another_engine_is_not_kept_from_that_moment_on(keeper: Keeper) -> None:
    keeper.dropped(1, 1)
    again = Call(1, 1, "", 1, 80)
    assert keeper.asked(again, 4.0) == 64
    keeper.sent(again, 1, 4.0)
    assert keeper.asked(again, 4.0) == 0


def test_what_was_dropped_is_not_kept_at_that_moment(keeper: Keeper) -> None:
    keeper.dropped(1, 0)
    assert keeper.asked(Call(1, 1, "", 1, 80), 4.0) == 0
