"""``bench version``."""

from __future__ import annotations

import typer

from bench.cli.common import verb


@verb
def version() -> None:
    """Print the version, and the commit where there is one."""
    from bench.manifest import git_state, versions

    git = git_state()
    commit = f" (commit {git['commit'][:10]}{', dirty' if git['dirty'] else ''})" if git else ""
    typer.echo(f"bench {versions().get('agent-serving-bench', 'unknown')}{commit}")
