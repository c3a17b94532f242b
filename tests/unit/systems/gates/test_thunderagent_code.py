"""The gate that is faithful to the published code, where it differs from ours; more in tests/golden."""

from systems.gates.thunderagent_code import ThunderAgentCode
from tests.gate_host import Host


def host(*kv, **knobs):
    """Five characters per token, so that a program is taken for what it is from the first call on."""
    return Host(ThunderAgentCode(**{"chars_per_token": 5.0, **knobs}), *(kv or (16_000,)))


def grown(*sizes, kv=0):
    """Programs of so many tokens, with their buffers of 100 on KV that they fill, which act now."""
    full = sum(sizes) + 100 * len(sizes)
    door = host(kv or full // 16 * 16)
    for program in range(len(sizes)):
        door.turn(program, 16)
    for program, tokens in enumerate(sizes):
        door.turn(program, tokens)
    return door


def test_a_new_program_goes_to_the_backend_with_least_tokens_if_nobody_waits():
    door = host(1600, 1600)
    for program, tokens in ((0, 500), (1, 400), (2, 700)):
        door.ask(program, tokens)
    assert [engine for *_, engine in door.placed] == [0, 1, 1]
    assert door.ask(3, 1600).seq not in door.inside
    assert door.ask(4, 16).seq not in door.inside, "the queue is not empty"


def test_acting_programs_pause_smallest_first_and_reasoning_ones_only_by_mark():
    door = grown(700, 500, 800)
    door.ask(2, 1400)
    door.until(5.0)
    assert (door.pauses, door.what("mark")) == ([1, 0], []), "500 and its buffer were not enough"


def test_the_mark_is_paid_at_the_end_of_the_turn():
    door = grown(700, 800)
    calls = [door.ask(program, 900) for program in (0, 1)]
    door.until(5.0)
    assert [program for _, program in door.what("mark")] == [0, 1]
    for call in calls:
        door.done(call, 950)
    assert door.pauses == [0, 1]
    assert door.ask(0, 950).seq not in door.inside
    door.until(10.0)
    assert door.held == {}, "both are resumed at the next tick: they fit"


def test_of_concurrent_turns_the_first_end_counts_for_all():
    door = host()
    calls = [door.ask(0, 500), door.ask(0, 500)]
    door.done(calls[0], 550)
    assert (door.gate.reasoning(), len(door.inside)) == (0, 1)


def test_what_fits_in_all_rooms_together_may_fit_in_none():
    """Chosen by size against the sum of rooms, placed largest first where most room is: the rest waits on."""
    door = host(3200, 3200)
    for program in (0, 1):
        door.ask(program, 2000)
    for program, tokens in ((2, 1500), (3, 500)):
        door.ask(program, tokens)
    door.until(5.0)
    assert door.placed[-1] == (5.0, 3, 0), "1 100 of room on each"
    assert list(door.held) == [2], "1 600 with its buffer, of 2 200"


def test_decay_counts_at_resuming_only():
    def resumed(decay):
        door = host(3200, decay=decay)
        door.turn(0, 3000)
        waiting = door.ask(1, 2000)
        door.until(5.0)
        return waiting.seq in door.inside, door.pauses

    assert resumed("none") == (False, [])
    assert resumed("exponential") == (True, [0]), "let in beside it, and then it pauses by its whole size"


def test_a_paused_program_that_acts_is_resumed_without_a_request():
    door = grown(700, 800)
    door.turn(1, 1200)
    door.until(5.0)
    assert door.pauses == [0]
    door.end(1)
    door.until(10.0)
    assert door.what("resume") == [(10.0, 0)]
    assert door.ask(0, 700).seq in door.inside


def test_the_size_of_the_kv_is_that_of_the_first_look():
    door = host(1600)
    door.ask(0, 700)
    door.kv[0] = 160_000
    assert door.ask(1, 1000).seq not in door.inside
    fresh = host(0)
    fresh.ask(0, 700)
    fresh.kv[0] = 160
    assert fresh.ask(1, 90_000).seq in fresh.inside, "unknown then, unlimited ever since"


def test_a_request_whose_client_left_is_let_in_all_the_same():
    door = host(1600)
    busy = door.ask(0, 1500)
    door.fail(door.ask(1, 1000))
    door.done(busy, 1500)
    door.end(0)
    door.until(5.0)
    assert door.what("admit") == [(0.0, 0), (5.0, 1)]
    assert (door.gate.reasoning(), door.inside) == (1, {}), "a phantom"


def test_the_longest_hold_is_half_an_hour():
    door = host(1600)
    door.ask(0, 1500)
    door.until(3.0)
    late = door.ask(1, 1000)
    door.until(1802.0)
    assert late.seq not in door.inside
    door.until(1803.0)
    assert late.seq in door.inside
    assert door.what("force") == [(1803.0, 1)]
