"""Phases of a tree search: calls that run concurrently and are all waited for."""

from __future__ import annotations

from collections.abc import Sequence

from workloads.session import Program, Session


async def together(root: Session, forks: Sequence[Session], programs: Sequence[Program]) -> None:
    """Run one phase after the last one: every fork waits for all of its calls.

    ``root`` holds the last phase's calls as its parents, and then this one's.
    """
    if not forks:
        return
    for fork in forks:
        fork.parents = root.parents
    await root.join(*programs)
    root.parents = tuple(parent for fork in forks for parent in fork.parents)
