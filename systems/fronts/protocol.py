"""The contract of a third-party router that stands between clients and engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Front(Protocol):
    """A router of somebody else, run as a process of its own in our gateway's place (docs/third-party.md).

    ``requirement``: what pip installs into its environment, pinned ("vllm-router==0.1.17").
    ``keeps_body``: bodies reach the engine with every field they were sent with; if not, an engine that
    schedules by what bodies say (priority, vllm_xargs) must not stand behind it.
    ``pins``: all calls of a program go to one engine, as long as that lives.
    ``health``: path that answers 200 once it serves. ``start_s``: it is given up if that takes longer.
    Its knobs are keyword arguments, kept in attributes of their names, as those of a policy.
    """

    name: str
    requirement: str
    keeps_body: bool
    pins: bool
    health: str
    start_s: float

    def command(self, port: int, engines: Sequence[str], prometheus_port: int) -> list[str]:
        """Words behind its environment's Python; ``engines``: base URLs; both ports on 127.0.0.1."""

    def headers(self, program: str, thread: str) -> Mapping[str, str]:
        """What each call of ``program`` carries so that this router knows whose it is."""

    def body(self, program: str, thread: str) -> Mapping[str, Any]:
        """Fields that each call's body carries besides, for the same reason."""

    def counterpart(self) -> Mapping[str, Any] | None:
        """The router of ours, as a slot ({"name": .., knob: ..}), that sends calls by the same rule.

        None: there is none, and the system cannot run on virtual time.
        """
