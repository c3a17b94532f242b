"""Shepherd Model Gateway (PyPI smg), successor of SGLang's router.

Where nothing has to read a body it goes to the engine byte for byte, which we ask for (no buffering for
retries): its own reading of completions refuses prompts of token ids. The price is that a call to an engine
that just died is not sent again. Of the headers it passes on those it knows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from systems.fronts.protocol import one_of

PINS = ("manual", "consistent_hashing")
POLICIES = (*PINS, "cache_aware", "round_robin")
ASSIGNMENTS = ("random", "min_load", "min_group")
HINT_TOKENS = 512
"""So many ids of a prompt its X-SMG-Routing-Tokens may tell; a longer header is ignored as a whole."""


class Smg:
    """Sessions are named by the header X-SMG-Routing-Key.

    policy: "manual" (default): a new session's engine is chosen by ``assignment``, and kept.
        "consistent_hashing": it follows from the session's name. "round_robin": in turn, call by call.
        "cache_aware": the engine that was sent most of the prompt, of which it sees the first 512 tokens
        (a header of ours tells them; without one it would read the body, and refuse it).
    assignment: "min_load" (default; fewest calls in flight), "min_group" (fewest sessions with calls in
        flight) or "random".
    overload: an engine with 8 waiting calls or 80 % of its KV in use gets none as long as another one does
        not, pins or no pins. Its own default is true; ours is false, under which pins hold.
    """

    name = "smg"
    requirement = "smg==1.13.0"
    health = "/readiness"
    token_ids = True
    keeps_body = True

    def __init__(
        self, *, policy: str = "manual", assignment: str = "min_load", overload: bool = False
    ) -> None:
        self.policy = one_of("policy", policy, POLICIES)
        self.assignment = one_of("assignment", assignment, ASSIGNMENTS)
        if not isinstance(overload, bool):
            raise ValueError(f"overload must be true or false, got {overload!r}")
        self.overload = overload
        self.pins = policy in PINS and not overload

    def command(self, port: int, engines: Sequence[str], prometheus_port: int) -> list[str]:
        """Engines are asked for their health once a second (its default: 60 s)."""
        words = [
            "-m", "smg.launch_router", "--host", "127.0.0.1", "--port", str(port),
            "--worker-urls", *engines, "--policy", self.policy,
            "--worker-startup-check-interval", "1", "--health-check-interval-secs", "1",
            "--cb-timeout-duration-secs", "2", "--shutdown-grace-period-secs", "1",
            "--disable-tokenizer-autoload", "--max-buffered-request-bytes", "0",
            "--prometheus-host", "127.0.0.1", "--prometheus-port", str(prometheus_port),
        ]  # fmt: skip
        words += ["--assignment-mode", self.assignment] if self.policy == "manual" else []
        return words if self.overload else [*words, "--disable-worker-overload-protection"]

    def headers(self, program: str, prompt: Sequence[int] = ()) -> Mapping[str, str]:
        """X-SMG-Routing-Key, and for cache_aware the head of the prompt."""
        if self.policy != "cache_aware":
            return {"X-SMG-Routing-Key": program}
        return {"X-SMG-Routing-Tokens": ",".join(map(str, prompt[:HINT_TOKENS]))}

    def end(self, program: str) -> str | None:  # noqa: ARG002
        """It forgets what is idle for four hours."""
        return None

    def counterpart(self) -> Mapping[str, Any] | None:
        """The same rules but for ties, which it breaks at random."""
        if self.overload:
            return None
        if self.policy == "round_robin":
            return {"name": "round-robin"}
        if self.policy == "consistent_hashing" or (self.policy, self.assignment) == ("manual", "random"):
            return {"name": "session-pinned", "by": "hash"}
        if (self.policy, self.assignment) == ("manual", "min_load"):
            return {"name": "session-pinned", "by": "sticky"}
        return None


FRONT = Smg
