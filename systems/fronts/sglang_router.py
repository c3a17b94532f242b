"""SGLang's router (PyPI sglang-router).

It reads every body and writes it anew: on chat completions what it does not know is gone (priority, user,
vllm_xargs, cache_salt), on completions prompts of token ids are refused. Of the headers it passes on those
it knows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from systems.fronts.protocol import one_of

POLICIES = ("manual", "round_robin")
ASSIGNMENTS = ("random", "min_load", "min_group")


class SglangRouter:
    """Sessions are named by the header X-SMG-Routing-Key.

    policy: "manual" (default): a new session's engine is chosen by ``assignment``, and kept.
        "round_robin": in turn, call by call.
    assignment: "random" (its own default), "min_load" (default here: fewest calls in flight) or "min_group"
        (fewest sessions).
    """

    name = "sglang-router"
    requirement = "sglang-router==0.3.2"
    health = "/readiness"
    token_ids = False
    keeps_body = False

    def __init__(self, *, policy: str = "manual", assignment: str = "min_load") -> None:
        self.policy = one_of("policy", policy, POLICIES)
        self.assignment = one_of("assignment", assignment, ASSIGNMENTS)
        self.pins = policy == "manual"

    def command(self, port: int, engines: Sequence[str], prometheus_port: int) -> list[str]:
        """Engines are asked for their health once a second (its default: 60 s)."""
        words = [
            "-m", "sglang_router.launch_router", "--host", "127.0.0.1", "--port", str(port),
            "--worker-urls", *engines, "--policy", self.policy,
            "--worker-startup-check-interval", "1", "--health-check-interval-secs", "1",
            "--cb-timeout-duration-secs", "2", "--shutdown-grace-period-secs", "1",
            "--prometheus-host", "127.0.0.1", "--prometheus-port", str(prometheus_port),
        ]  # fmt: skip
        return [*words, "--assignment-mode", self.assignment] if self.policy == "manual" else words

    def headers(self, program: str, prompt: Sequence[int] = ()) -> Mapping[str, str]:  # noqa: ARG002
        """X-SMG-Routing-Key."""
        return {"X-SMG-Routing-Key": program}

    def end(self, program: str) -> str | None:  # noqa: ARG002
        """It forgets what is idle for four hours."""
        return None

    def counterpart(self) -> Mapping[str, Any] | None:
        """The same rules but for ties, which it breaks at random."""
        if self.policy == "round_robin":
            return {"name": "round-robin"}
        if self.assignment == "min_group":
            return None
        return {"name": "session-pinned", "by": "sticky" if self.assignment == "min_load" else "hash"}


FRONT = SglangRouter
