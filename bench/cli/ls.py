"""``bench ls``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from bench.cli.common import Json, Out, emit_json, fresh_verb, page

Row = dict[str, Any]


@fresh_verb
def ls(
    what: Annotated[
        str | None,
        typer.Argument(
            help="systems, capabilities, workloads, agents, tasks, sandboxes, schedulers, routers, gates, "
            "retentions, environments, fronts, engines, models, gpus, formats, experiments or results; "
            "default: all of them."
        ),
    ] = None,
    out: Out = Path("results"),
    as_json: Json = False,
) -> None:
    """List what there is."""
    from bench.errors import unknown

    if what is not None and what not in LISTS:
        raise unknown("list", what, LISTS)
    found = {name: make(out) for name, make in LISTS.items() if what in (None, name)}
    if as_json:
        emit_json(found if what is None else found[what])
        return
    from reports.listing import render

    for name, rows in found.items():
        page(render(name, rows))


def _systems(_: Path) -> list[Row]:
    from bench.config import ENGINES
    from systems.capabilities import EXACT, summary
    from systems.catalog import load_system, system_names

    def where(spec: Any) -> str:
        cells = {engine: summary(spec, engine) for engine in ENGINES}
        marked = [
            name if cell == EXACT else f"{name} ({cell})"
            for name, cell in cells.items()
            if not cell.startswith("no: ")
        ]
        return "all" if marked == list(ENGINES) else ", ".join(marked) or f"none yet ({cells['sim']})"

    return [
        {
            "name": s.name,
            "scheduler": s.scheduler,
            "router": s.router,
            "engines": where(s),
            "what": s.description,
        }
        for s in map(load_system, system_names())
    ]


def _capabilities(_: Path) -> list[Row]:
    from systems.capabilities import ENGINES, summary
    from systems.catalog import load_system, system_names

    specs = [load_system(name) for name in system_names()]
    return [{"name": s.name, **{engine: summary(s, engine) for engine in ENGINES}} for s in specs]


def _short(value: object) -> str:
    return ",".join(f"{v:g}" for v in value) if isinstance(value, tuple) else str(value)


def _policies(slot: str) -> Callable[[Path], list[Row]]:
    """The policies of a slot, with their knobs."""

    def rows(_: Path) -> list[Row]:
        from systems import catalog

        names: list[str] = getattr(catalog, f"{slot}_names")()
        specs = [catalog.load_system("vllm-opt", knobs={slot: name}) for name in names]
        return [{"name": getattr(s, slot), "knobs": _knobs(getattr(s, f"{slot}_knobs"))} for s in specs]

    return rows


def _fronts(_: Path) -> list[Row]:
    from systems.catalog import build_front, front_names, load_system

    rows = []
    for name in front_names():
        spec = load_system("vllm-opt", front=name)
        front = build_front(spec)
        package = front.requirement if front is not None else ""
        rows.append({"name": name, "package": package, "knobs": _knobs(spec.front_knobs)})
    return rows


def _knobs(knobs: Any) -> str:
    return ", ".join(f"{name}={_short(value)}" for name, value in knobs)


def _workloads(_: Path) -> list[Row]:
    from workloads.load import workload, workload_names

    found = {name: workload(name) for name in workload_names()}
    return [
        {"name": n, "presets": ", ".join(w.presets()), "default": w.default_preset} for n, w in found.items()
    ]


def _agents(_: Path) -> list[Row]:
    from workloads.agents.catalog import agent, agent_names, suites_of

    found = map(agent, agent_names())
    return [
        {
            "name": a.name,
            "tasks": ", ".join(suites_of(a)),
            "needs": ", ".join(a.needs),
            "what": _first_line(a),
        }
        for a in found
    ]


def _tasks(_: Path) -> list[Row]:
    from workloads.agents.catalog import suite, suite_names

    found = map(suite, suite_names())
    return [
        {"name": s.name, "sandbox": "yes" if s.needs_sandbox else "no", "what": _first_line(s)} for s in found
    ]


def _sandboxes(_: Path) -> list[Row]:
    from workloads.sandboxes.catalog import sandbox_kinds

    return [
        {"name": kind.name, "state": kind.missing() or "ready", "what": _first_line(kind)}
        for kind in sandbox_kinds().values()
    ]


def _first_line(thing: object) -> str:
    """Of its file."""
    return (sys.modules[type(thing).__module__].__doc__ or "").partition("\n")[0]


def _formats(_: Path) -> list[Row]:
    from workloads.load import reader_names

    return [{"name": name} for name in reader_names()]


def _engines(_: Path) -> list[Row]:
    from bench.run import engine_class
    from systems.engines.vllm_virtual import EngineUnavailable, vllm_python

    try:
        vllm_python()
        vllm = "ready"
    except EngineUnavailable as error:
        vllm = str(error)
    states = {"sim": "ready", "reference": "ready", "vllm-virtual": vllm}
    return [
        {"name": n, "state": s, "what": (engine_class(n).__doc__ or "").partition("\n")[0]}
        for n, s in states.items()
    ]


def _models(_: Path) -> list[Row]:
    from systems.latency.listing import model_rows

    return [dict(row) for row in model_rows()]


def _gpus(_: Path) -> list[Row]:
    from systems.latency.listing import gpu_rows

    return [dict(row) for row in gpu_rows()]


def _experiments(_: Path) -> list[Row]:
    from bench.reproduce import experiments, load

    return [{"name": name, "what": load(name)[0]["title"]} for name in experiments()]


def _results(out: Path) -> list[Row]:
    from bench.errors import MissingError
    from bench.results import cells, summary_of

    rows = []
    for folder in cells(out):
        try:
            rows.append(_result(summary_of(folder), folder))
        except MissingError as error:
            typer.echo(f"left out: {error}", err=True)
    return rows


def _result(summary: dict[str, Any], folder: Path) -> Row:
    mean = summary["metrics"]["program.response.mean"]["value"]
    return {
        "cell": folder.name,
        "system": summary["system"],
        "workload": summary["workload"],
        "load": summary["load"],
        "seed": summary["seed"],
        "mean response, s": mean,
    }


LISTS: dict[str, Callable[[Path], list[Row]]] = {
    "systems": _systems,
    "capabilities": _capabilities,
    "workloads": _workloads,
    "agents": _agents,
    "tasks": _tasks,
    "sandboxes": _sandboxes,
    "schedulers": _policies("scheduler"),
    "routers": _policies("router"),
    "gates": _policies("gate"),
    "retentions": _policies("retention"),
    "environments": _policies("environment"),
    "fronts": _fronts,
    "engines": _engines,
    "models": _models,
    "gpus": _gpus,
    "formats": _formats,
    "experiments": _experiments,
    "results": _results,
}
