"""Runs experiments and measures; takes modules from a compiled build where there is one."""

from bench.native import activate

activate()
