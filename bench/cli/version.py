"""``bench version``."""

from __future__ import annotations

import typer

from bench.cli.common import fresh_verb


@fresh_verb
def version() -> None:
    """Print the version, the commit where there is one, and whether the simulator is compiled."""
    from bench.manifest import git_state, versions
    from bench.native import is_compiled

    git = git_state()
    commit = f" (commit {git['commit'][:10]}{', dirty' if git['dirty'] else ''})" if git else ""
    how = "compiled" if is_compiled() else "plain Python"
    typer.echo(f"bench {versions().get('agent-serving-bench', 'unknown')}{commit}, simulator: {how}")
