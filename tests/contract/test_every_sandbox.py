"""Every kind of sandbox that this machine can have, held to the same behaviours; a new file needs no edit.

Docker's are run by tests/live/test_sandboxes_docker.py, which starts an engine.
"""

import pytest

from tests.sandbox_behaviours import BEHAVIOURS, check
from workloads.sandboxes.catalog import sandbox_kinds

ELSEWHERE = {"docker"}


@pytest.mark.parametrize("kind", sorted(sandbox_kinds().keys() - ELSEWHERE))
@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_every_sandbox(kind, behaviour, tmp_path, monkeypatch):
    check(behaviour, kind, tmp_path, monkeypatch)
