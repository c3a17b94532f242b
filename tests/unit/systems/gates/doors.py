"""Doors with ThunderAgent's gate, as its tests begin with them: no decay, no buffer."""

from systems.gates.thunderagent import ThunderAgent
from tests.gate_host import Host


def host(*kv, **knobs):
    return Host(ThunderAgent(**{"decay": "none", "buffer": 0, **knobs}), *(kv or (16_000,)))


def running(*sizes, **knobs):
    """Programs 0, 1, ... of so many tokens each, which act now, on KV they outgrow by nothing yet."""
    door = host(sum(sizes) // 16 * 16, **knobs)
    for program in range(len(sizes)):
        door.turn(program, 16)
    for program, tokens in enumerate(sizes):
        door.turn(program, tokens)
    return door
