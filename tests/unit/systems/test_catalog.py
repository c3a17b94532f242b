import sys
from types import ModuleType

import pytest

from systems import catalog
from systems.catalog import (
    CatalogError,
    build_router,
    build_scheduler,
    build_table,
    load_system,
    router_names,
    scheduler_names,
    system_names,
)
from systems.process_table import ProcessTable
from systems.schedulers.fcfs import Fcfs
from vocabulary import INF

GOOD = """
description = "d"
source = "s"
[scheduler]
name = "plas"
beta = 3
[router]
name = "least-used"
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(catalog, "FOLDER", tmp_path / "catalog")
    (tmp_path / "catalog").mkdir()
    return tmp_path / "catalog"


@pytest.fixture
def guest(monkeypatch):
    module = ModuleType("guest_policies")
    monkeypatch.setitem(sys.modules, "guest_policies", module)
    return module


ROWS = {  # the catalog table of the design: scheduler, router, gate, retention, cache, chunked, preemption
    "vllm-base": ("fcfs", "round-robin", "open", "lru", False, False, "recompute"),
    "vllm-opt": ("fcfs", "round-robin", "open", "lru", True, True, "recompute"),
    "mlfq": ("mlfq", "round-robin", "open", "lru", True, True, "swap"),
    "plas": ("plas", "least-used", "open", "lru", True, True, "swap"),
    "atlas": ("atlas", "least-used", "open", "lru", True, True, "swap"),
    "autellix": ("atlas", "autellix", "open", "lru", True, True, "batched-swap"),
    "session-pinned": ("fcfs", "session-pinned", "open", "lru", True, True, "recompute"),
    "thunderagent": ("fcfs", "least-used", "thunderagent", "lru", True, True, "recompute"),
    "continuum-fixed": ("job-fcfs", "session-pinned", "open", "continuum-fixed", True, True, "recompute"),
    "continuum-ttl": ("job-fcfs", "session-pinned", "open", "continuum-ttl", True, True, "recompute"),
    "thunderagent-code": ("fcfs", "least-used", "thunderagent-code", "lru", True, True, "recompute"),
    "thunderagent-dynamo": ("fcfs", "least-used", "thunderagent-dynamo", "lru", True, True, "recompute"),
    "progress-ttl": ("fcfs", "least-used", "progress-ttl", "lru", True, True, "recompute"),
    "las-fairness": ("fcfs", "least-used", "las-fairness", "lru", True, True, "recompute"),
    "program-cap": ("fcfs", "session-pinned", "program-cap", "lru", True, True, "recompute"),
    "pinned": ("fcfs", "session-pinned", "open", "pin", True, True, "recompute"),
    "infercept": ("fcfs", "session-pinned", "open", "infercept", True, True, "recompute"),
    "survival": ("job-fcfs", "session-pinned", "open", "survival", True, True, "recompute"),
    "srpt": ("srpt", "least-used", "open", "lru", True, True, "free"),
    "lpm": ("lpm", "round-robin", "open", "lru", True, True, "recompute"),
    "dfs-weight": ("dfs-weight", "round-robin", "open", "lru", True, True, "recompute"),
    "round-robin": ("round-robin", "round-robin", "open", "lru", True, True, "recompute"),
    "mlfq-skipjoin": ("mlfq-skipjoin", "round-robin", "open", "lru", True, True, "swap"),
    "atlas-dag": ("atlas-dag", "least-used", "open", "lru", True, True, "swap"),
    "atlas-cp": ("atlas-cp", "least-used", "open", "lru", True, True, "swap"),
}


def test_names():
    assert set(ROWS) <= set(system_names())
    assert {row[0] for row in ROWS.values()} <= set(scheduler_names())
    assert {"random", "cache-aware", *(row[1] for row in ROWS.values())} <= set(router_names())


@pytest.mark.parametrize("name", ROWS)
def test_the_catalogs_rows(name):
    spec = load_system(name)
    options = ("prefix_cache", "chunked_prefill", "preemption")
    row = (spec.scheduler, spec.router, spec.gate, spec.retention, *map(spec.engine_option, options))
    assert (spec.name, row) == (name, ROWS[name])
    assert spec.clairvoyant == (name == "srpt")
    assert spec.reads_cache == (name in ("lpm", "dfs-weight"))
    assert spec.engine_option("schedule_every") == 1
    assert spec.engine_option("host_tier") is False
    assert spec.engine_option("host_gb") == 1200.0


def test_building():
    spec = load_system("atlas", knobs={"scheduler.beta": 3})
    table = build_table(spec)
    assert table.rule == spec.rule == "max"
    scheduler = build_scheduler(spec, table)
    assert scheduler.table is table
    assert scheduler.beta == 3.0
    assert build_scheduler(spec).table is not table
    assert build_scheduler(spec, table) is not scheduler
    assert build_router(spec).name == "least-used"


def test_replaced_slots_take_their_knobs_along(folder):
    (folder / "mine.toml").write_text(GOOD)
    assert dict(load_system("mine").scheduler_knobs)["beta"] == 3.0
    assert dict(load_system("mine", scheduler="plas").scheduler_knobs)["beta"] == 3.0
    replaced = load_system("mine", scheduler="atlas", router="round-robin")
    assert dict(replaced.scheduler_knobs)["beta"] == 8.0
    assert replaced.router == "round-robin"


@pytest.mark.parametrize(
    ("knob", "text", "value"),
    [
        ("scheduler.beta", "inf", INF),
        ("scheduler.beta", "0.5", 0.5),
        ("scheduler.bounds", "10,20", (10.0, 20.0)),
        ("scheduler.bounds", "[10, inf]", (10.0, INF)),
        ("scheduler.bounds", "[]", ()),
        ("scheduler.unit", "token", "token"),
        ("scheduler.promote_refill", "false", False),
        ("scheduler.promote_reset", "none", "none"),
    ],
)
def test_knobs_as_text(knob, text, value):
    spec = load_system("plas", knobs={knob: text})
    assert dict(spec.scheduler_knobs)[knob.split(".")[1]] == value


@pytest.mark.parametrize(
    ("option", "text", "value"),
    [
        ("prefix_cache", "false", False),
        ("chunked_prefill", "false", False),
        ("schedule_every", "8", 8),
        ("preemption", "hold", "hold"),
        ("preemption", "batched-swap", "batched-swap"),
        ("host_tier", "true", True),
        ("host_gb", "64", 64.0),
        ("host_gb", "inf", INF),
        ("swap_scale", "0.5", 0.5),
        ("swap_scale", "0", 0.0),
    ],
)
def test_engine_options_as_text(option, text, value):
    spec = load_system("plas", knobs={f"engine.{option}": text})
    assert spec.engine_option(option) == value
    assert type(spec.engine_option(option)) is type(value)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("prefix_cache", 3, "engine.prefix_cache must be true or false, got 3"),
        ("chunked_prefill", "off", "engine.chunked_prefill must be true or false, got 'off'"),
        ("schedule_every", 0, "engine.schedule_every must be a whole number of at least 1, got 0"),
        ("schedule_every", 2.5, "whole number of at least 1, got 2.5"),
        ("schedule_every", "inf", "whole number of at least 1, got inf"),
        ("schedule_every", True, "engine.schedule_every must be a number, got True"),
        ("preemption", "swapp", "unknown engine.preemption 'swapp'. Did you mean swap"),
        ("host_gb", -1, "engine.host_gb must be a number of at least 0, got -1"),
        ("host_gb", "nan", "engine.host_gb must be a number of at least 0, got nan"),
        ("swap_scale", "fast", "engine.swap_scale must be a number, got 'fast'"),
        ("shedule_every", 2, "unknown engine option 'shedule_every'. Did you mean schedule_every"),
    ],
)
def test_engine_options_that_are_none(option, value, message):
    with pytest.raises(CatalogError, match=message):
        load_system("plas", knobs={f"engine.{option}": value})


def test_a_tier_of_nothing_is_refused():
    with pytest.raises(CatalogError, match="host_tier keeps what leaves the prefix cache"):
        load_system("plas", knobs={"engine.host_tier": True, "engine.prefix_cache": False})


def test_gates_and_retention_by_name():
    spec = load_system("vllm-opt", gate="program-cap", knobs={"gate.programs": "8"}, retention="infercept")
    assert (spec.gate, dict(spec.gate_knobs)["programs"], spec.retention) == ("program-cap", 8, "infercept")
    by_knob = load_system(
        "vllm-opt", knobs={"gate": "program-cap", "gate.programs": 8, "retention": "infercept"}
    )
    assert by_knob.digest == spec.digest
    for slot, wanted in (
        ("gate", "open, program-cap"),
        ("retention", "infercept, lru"),
        ("environment", "gc-on-release"),
    ):
        with pytest.raises(CatalogError, match=f"unknown {slot} 'x'.*{wanted}"):
            load_system("vllm-opt", **{slot: "x"})
    with pytest.raises(CatalogError, match="unknown open knob 'programs'"):
        load_system("vllm-opt", knobs={"gate.programs": 3})
    with pytest.raises(CatalogError, match=r"unknown gate 'thunderagnt'\. Did you mean thunderagent"):
        load_system("vllm-opt", gate="thunderagnt")


OTHER = {
    "chunked_prefill": False,
    "schedule_every": 8,
    "preemption": "free",
    "host_tier": True,
    "host_gb": 64,
    "swap_scale": 2,
}


def test_the_digest_is_over_resolved_knobs():
    digest = load_system("atlas").digest
    assert len(digest) == 16
    assert load_system("atlas", knobs={"scheduler.beta": 8}).digest == digest
    assert load_system("plas", scheduler="atlas").digest == digest
    others = [
        load_system("atlas", knobs={"scheduler.beta": 7}),
        load_system("atlas", router="round-robin"),
        load_system("atlas", knobs={"engine.prefix_cache": False}),
        load_system("plas"),
        load_system("atlas", gate="thunderagent"),
        load_system("atlas", gate="thunderagent", knobs={"gate.dt": 2}),
        load_system("atlas", knobs={"environment": "on-demand"}),
        load_system("atlas", retention="survival"),
        *(load_system("atlas", knobs={f"engine.{option}": value}) for option, value in OTHER.items()),
    ]
    assert len({digest, *(spec.digest for spec in others)}) == len(others) + 1
    assert set(OTHER) | {"prefix_cache"} == set(catalog.ENGINE_OPTIONS)


def test_the_digest_is_not_over_names(folder):
    (folder / "mine.toml").write_text(GOOD)
    (folder / "yours.toml").write_text(GOOD.replace('"d"', '"other"').replace('"s"', '"t"'))
    assert load_system("mine").digest == load_system("yours").digest


UNKNOWN = [
    ({"name": "atlsa"}, "unknown system 'atlsa'. Did you mean atlas"),
    ({"name": "../atlas"}, "unknown system"),
    ({"scheduler": "mflq"}, "unknown scheduler 'mflq'. Did you mean mlfq"),
    ({"router": "leastused"}, "unknown router 'leastused'. Did you mean least-used"),
    ({"knobs": {"scheduler.betta": 1}}, "unknown atlas knob 'betta'. Did you mean beta. Known: beta, bounds"),
    ({"knobs": {"scheduler.table": 1}}, "unknown atlas knob 'table'"),
    ({"knobs": {"router.x": 1}}, "unknown least-used knob 'x'. Known: none"),
    (
        {"knobs": {"engine.prefixcache": True}},
        "option 'prefixcache'. Did you mean prefix_cache",
    ),
    ({"knobs": {"beta": 1}}, "such as scheduler.beta; got 'beta'"),
    ({"knobs": {"scheduler.name": "plas"}}, "got 'scheduler.name'"),
    ({"knobs": {"scheduler.beta": "-2"}}, "system atlas:.*beta must be at least 0, got -2"),
    ({"name": "no_such_module:X"}, "cannot import 'no_such_module'"),
    ({"name": "vocabulary:Nothing"}, "vocabulary has no 'Nothing'"),
    ({"name": "vocabulary:Call"}, "vocabulary:Call is no policy"),
    ({"name": "vocabulary:GRID"}, "must be a class"),
    ({"scheduler": "systems.routers.least_used:LeastUsed"}, "is a router, not a scheduler"),
]


@pytest.mark.parametrize(("arguments", "message"), UNKNOWN)
def test_errors_name_the_nearest(arguments, message):
    with pytest.raises(CatalogError, match=message):
        load_system(**{"name": "atlas", **arguments})


BROKEN = [
    (
        GOOD + "[engine]\nprefixcache = true\n",
        "option 'prefixcache'. Did you mean prefix_cache",
    ),
    (GOOD + "[schedular]\n", "unknown key 'schedular'. Did you mean scheduler"),
    (GOOD + "[gate]\n", r"\[gate\] needs a name"),
    (GOOD + '[gate]\nname = "opne"\n', "unknown gate 'opne'. Did you mean open"),
    (GOOD + '[retention]\nname = "survival"\nages = [1]\n', "unknown survival knob 'ages'"),
    (GOOD + "[engine]\nschedule_every = 0\n", "schedule_every must be a whole number of at least 1"),
    (GOOD.replace("beta", "bteta"), "unknown plas knob 'bteta'. Did you mean beta"),
    (GOOD.replace("beta = 3", "beta = -3"), "beta must be at least 0, got -3"),
    (GOOD.replace('source = "s"', ""), "source is missing"),
    (GOOD.replace('source = "s"', "source = 1"), "source must be text, got 1"),
    (GOOD.replace('name = "plas"', ""), r"\[scheduler\] needs a name"),
    (GOOD.replace("[router]", "[router"), "not valid TOML"),
]


@pytest.mark.parametrize(("text", "message"), BROKEN)
def test_broken_files_are_named(folder, text, message):
    (folder / "broken.toml").write_text(text)
    with pytest.raises(CatalogError, match=r"^systems/catalog/broken\.toml: .*" + message):
        load_system("broken")


def test_a_policy_from_outside(guest, folder):
    (folder / "vllm-opt.toml").write_text(GOOD)

    class Mine(Fcfs):
        name = "mine"

        def __init__(self, *, window=5, table=None):
            super().__init__(table)
            self.window = window

    guest.Mine = Mine
    spec = load_system("guest_policies:Mine", knobs={"scheduler.window": "7"})
    assert (spec.scheduler_knobs, spec.router) == ((("window", 7),), "least-used")
    assert build_scheduler(spec, ProcessTable()).window == 7
    assert load_system("guest_policies:Mine").digest != spec.digest


def test_what_a_policy_from_outside_reads(guest):
    class Reads(Fcfs):
        name = "reads"
        reads_cache = True

    guest.Reads = Reads
    with pytest.raises(CatalogError, match="scheduler guest_policies:Reads lacks attach"):
        load_system("guest_policies:Reads")
    Reads.attach = lambda self, cache: None
    assert load_system("guest_policies:Reads").reads_cache
    assert load_system("vllm-opt", router="cache-aware").reads_prompt
    assert not load_system("vllm-opt").reads_prompt


def test_a_policy_from_outside_that_is_incomplete(guest):
    class Half:
        name = "half"

        def arrive(self): ...

        expire = due = finish = abort = arrive

    guest.Half = Half
    with pytest.raises(CatalogError, match="lacks unit, clairvoyant, tracks_wait, start, stop"):
        load_system("guest_policies:Half")
