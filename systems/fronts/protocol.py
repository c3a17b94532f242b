"""The contract of a third-party router that stands between clients and engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Front(Protocol):
    """A router of somebody else, run as a process of its own in our gateway's place (docs/third-party.md).

    ``requirement``: what pip installs into its environment, pinned ("vllm-router==0.1.17").
    ``health``: path whose JSON tells ``healthy_workers``, how many engines it has found to answer.
    ``token_ids``: it takes prompts of token ids, which our drivers send.
    ``keeps_body``: bodies reach the engine with every field they were sent with. If not, an engine that
    schedules by what bodies say (priority, vllm_xargs) must not stand behind it.
    ``pins``: all calls of a program go to one engine, as long as that lives.
    Its knobs are keyword arguments, kept in attributes of their names, as those of a policy.
    """

    name: str
    requirement: str
    health: str
    token_ids: bool
    keeps_body: bool
    pins: bool

    def command(self, port: int, engines: Sequence[str], prometheus_port: int) -> list[str]:
        """Words behind its environment's Python; ``engines``: base URLs; both ports on 127.0.0.1."""

    def headers(self, program: str, prompt: Sequence[int] = ()) -> Mapping[str, str]:
        """What a call of ``program`` carries for this router; ``prompt``: its token ids.

        Values are ASCII: names of programs that are not, and long ones, are the caller's to avoid.
        """

    def end(self, program: str) -> str | None:
        """Path to POST to, without a body, when the program is over; None: it need not be told."""

    def counterpart(self) -> Mapping[str, Any] | None:
        """The router of ours, as a slot ({"name": .., knob: ..}), that sends calls by the same rule.

        None: there is none, and the system cannot run on virtual time.
        """


def one_of(knob: str, value: object, known: Sequence[str]) -> str:
    """``value``, if it is one of ``known``. Raises ValueError naming the knob."""
    if value not in known:
        raise ValueError(f"{knob} must be one of {', '.join(known)}; got {value!r}")
    return str(value)
