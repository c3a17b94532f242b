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
    found = {kind: catalog._found(kind) for kind in ("scheduler", "router")}
    monkeypatch.setattr(catalog, "_found", found.__getitem__)
    (tmp_path / "catalog").mkdir()
    return tmp_path / "catalog"


@pytest.fixture
def guest(monkeypatch):
    module = ModuleType("guest_policies")
    monkeypatch.setitem(sys.modules, "guest_policies", module)
    return module


def test_names():
    assert {"vllm-opt", "mlfq", "plas", "atlas", "srpt"} <= set(system_names())
    assert {"fcfs", "mlfq", "plas", "atlas", "srpt"} <= set(scheduler_names())
    assert {"round-robin", "least-used"} <= set(router_names())


@pytest.mark.parametrize(
    ("name", "scheduler", "router"),
    [
        ("vllm-opt", "fcfs", "round-robin"),
        ("mlfq", "mlfq", "round-robin"),
        ("plas", "plas", "least-used"),
        ("atlas", "atlas", "least-used"),
        ("srpt", "srpt", "least-used"),
    ],
)
def test_the_papers_systems(name, scheduler, router):
    spec = load_system(name)
    assert (spec.name, spec.scheduler, spec.router) == (name, scheduler, router)
    assert spec.engine_option("prefix_cache") is True
    assert "Autellix" in spec.source
    assert spec.clairvoyant == (name == "srpt")


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


def test_engine_options():
    assert load_system("plas", knobs={"engine.prefix_cache": "false"}).engine_option("prefix_cache") is False
    with pytest.raises(CatalogError, match="prefix_cache must be true or false, got 3"):
        load_system("plas", knobs={"engine.prefix_cache": 3})


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
    ]
    assert len({digest, *(spec.digest for spec in others)}) == 5


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


def test_a_policy_from_outside_that_is_incomplete(guest):
    class Half:
        name = "half"

        def arrive(self): ...

        expire = due = finish = abort = arrive

    guest.Half = Half
    with pytest.raises(CatalogError, match="lacks unit, clairvoyant, tracks_wait, start, stop"):
        load_system("guest_policies:Half")
