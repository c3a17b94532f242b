import pytest

from systems.routers.least_used import LeastUsed
from systems.routers.round_robin import RoundRobin
from vocabulary import Call, EngineView

CALL = Call(9, 0, "", 0, 1)


def views(*calls, dead=()):
    return [EngineView(i, i not in dead, n, 0, 100) for i, n in enumerate(calls)]


def test_round_robin_takes_turns():
    router = RoundRobin()
    assert [router.route(CALL, views(9, 0, 5), 0.0) for _ in range(5)] == [0, 1, 2, 0, 1]


def test_round_robin_skips_the_dead_and_keeps_its_place():
    router = RoundRobin()
    chosen = [router.route(CALL, views(0, 0, 0, dead=dead), 0.0) for dead in [(), (1,), (1,), (), (2,)]]
    assert chosen == [0, 2, 0, 1, 0]


@pytest.mark.parametrize(
    ("calls", "dead", "engine"),
    [((3, 1, 2), (), 1), ((2, 2, 2), (), 0), ((0, 1, 1), (0,), 1), ((5, 4, 0), (2,), 1), ((7,), (), 0)],
)
def test_least_used(calls, dead, engine):
    assert LeastUsed().route(CALL, views(*calls, dead=dead), 0.0) == engine


@pytest.mark.parametrize("cls", [RoundRobin, LeastUsed])
@pytest.mark.parametrize("engines", [[], views(0, 0, dead=(0, 1))])
def test_nobody_alive(cls, engines):
    with pytest.raises(LookupError, match="no engine is alive to take call 9"):
        cls().route(CALL, engines, 0.0)
