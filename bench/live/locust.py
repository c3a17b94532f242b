"""A live cell driven by Locust: the same programs, in processes of its own (docs/locust.md)."""

from __future__ import annotations

import contextlib
import json
import urllib.request

from bench.drivers.live_records import LiveRun
from bench.drivers.locust.run import Recipe, drive_locust
from bench.live.deployment import Deployment
from bench.live.plan import LivePlan
from bench.plan import longest
from bench.run import Progress

HEARD_S = 5.0


def by_locust(
    plan: LivePlan, deployment: Deployment, name: str, salt: str, progress: Progress | None
) -> LiveRun:
    """As ``drive_live``; it blocks. Raises as ``drive_locust``."""
    count, done = len(plan.programs.programs), 0

    def over(program: str) -> None:
        nonlocal done
        done += 1
        deployment.over(program)
        if deployment.front is not None:
            _heard(deployment, program)
        if progress is not None:
            progress(min(done, count), count)

    theirs = deployment.third_party
    return drive_locust(
        Recipe(plan.config, plan.program_hash, longest(plan.engine)), plan.times or (), deployment.url,
        deployment.model, vocabulary=deployment.vocabulary, salt=salt, run=name, cache_salt=name,
        front="" if theirs is None else plan.spec.front,
        front_knobs={} if theirs is None else dict(plan.spec.front_knobs),
        watch=deployment.check, over=over,
    )  # fmt: skip


def _heard(deployment: Deployment, program: str) -> None:
    """Tell the front that a program is over; one that does not hear forgets it by itself, later."""
    theirs = deployment.third_party
    path = "/programs/end" if theirs is None else theirs.end(program)
    if path is None:
        return
    body = json.dumps({"program_id": program}).encode() if theirs is None else b""
    request = urllib.request.Request(
        f"{deployment.url}{path}", body, {"Content-Type": "application/json"}, method="POST"
    )
    with contextlib.suppress(OSError), urllib.request.urlopen(request, timeout=HEARD_S):
        pass
