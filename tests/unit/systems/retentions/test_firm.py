"""Who is firm, how long that lasts at the most, and what survival charges for it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from systems.protocols import Away
from systems.retentions.continuum_fixed import ContinuumFixed
from systems.retentions.continuum_ttl import ContinuumTtl
from systems.retentions.infercept import InferCept
from systems.retentions.lru import Lru
from systems.retentions.pin import Pin
from systems.retentions.survival import Survival
from tests.unit.systems.retentions.test_survival import TOTAL, crowd, durations, leave, looks, others, taught
from vocabulary import BLOCK, INF, EngineView


def test_who_is_firm_unless_told_otherwise():
    made = [ContinuumFixed(), ContinuumTtl(), Pin(), Survival(), InferCept()]
    assert [policy.firm for policy in made] == [True, True, True, True, False]
    assert not hasattr(Lru(), "firm")
    soft = (policy(firm=False) for policy in (ContinuumFixed, ContinuumTtl, Pin, Survival))
    assert not any(policy.firm for policy in soft)
    assert InferCept(firm=True).firm


@pytest.mark.parametrize(
    ("policy", "knob"), [(Pin, "seconds"), (ContinuumFixed, "seconds"), (ContinuumTtl, "cold_s")]
)
def test_firm_and_for_ever_is_refused(policy, knob):
    with pytest.raises(ValueError, match=f"{knob} must be finite .*firm=false"):
        policy(**{knob: INF})
    policy(**{knob: INF, "firm": False})


def test_infercept_by_the_mean_keeps_until_it_has_wasted_the_alternative():
    """100 blocks beside 400 others, 1.6 s to compute them: 800 block-seconds are 8 s of keeping."""
    for firm, until in ((False, INF), (True, 18.0)):
        policy = InferCept(estimate="mean", firm=firm, token_s=1e-3, token2_s=0.0)
        policy.learn(policy_absence(policy), 2.0, True)
        policy.look(EngineView(0, True, 8, 400, TOTAL), 0, 10.0)
        assert policy.idle(Away(1, "", 1600, "bash"), 10.0) == pytest.approx(until)


def policy_absence(policy):
    """One that has just left."""
    policy.idle(Away(9, "", 16, "bash"), 0.0)
    return policy.absences.get(9, "")


def test_with_room_survival_keeps_as_long_as_anybody_was_seen_to_stay_away():
    policy = taught([1.0, 2.0, 7.0, 3.0], firm=True)
    assert leave(policy, 1, 1600, 10.0, used=400) == 17.0


@pytest.mark.parametrize(("seconds", "kept"), [(15.0, 15.0), (17.0, 0.0)])
def test_who_waits_bids_a_working_block_second(seconds, kept):
    """Half of 1000 blocks are in use, and 600 are wanted. Computing 100 blocks again takes 1.6 s of the
    engine, 16 s of their share: worth keeping for 15 s, not for 17 s."""
    policy = taught([seconds] * 8, firm=True)
    waiting = 600 * BLOCK
    assert leave(policy, 1, 1600, 20.0, used=500, waiting=waiting) == 20.0 + kept
    assert leave(policy, 2, 1600, 20.0, used=500, waiting=300 * BLOCK) == 20.0 + seconds


@given(durations, others, looks, st.integers(1, 6000), st.integers(0, TOTAL))
@settings(max_examples=60, deadline=None)
def test_it_never_ends_never_and_less_room_never_keeps_longer(seen, away, look, tokens, more):
    used, waiting = look
    roomy, tight = crowd(seen, away, firm=True), crowd(seen, away, firm=True)
    with_room = leave(roomy, 99, tokens, 60.0, used=used, waiting=waiting)
    without = leave(tight, 99, tokens, 60.0, used=min(used + more, TOTAL), waiting=waiting)
    assert without <= with_room < INF
