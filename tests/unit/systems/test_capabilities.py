"""Which engine serves which system: the rules, the errors, and the page that prints them."""

import re
from pathlib import Path

import pytest

from systems.capabilities import (
    ENGINES,
    EXACT,
    FALLBACK,
    IMPOSSIBLE,
    MissingCapability,
    capabilities,
    check,
    engine_options,
    status,
    summary,
)
from systems.catalog import (
    build_front,
    environment_names,
    front_names,
    gate_names,
    load_system,
    retention_names,
    router_names,
    scheduler_names,
    system_names,
)
from vocabulary import INF, EngineConfig

PAGE = Path(__file__).parents[3] / "docs" / "systems.md"


def system(name="vllm-opt", **options):
    return load_system(name, knobs={f"engine.{option}": value for option, value in options.items()})


OURS = [name for name in system_names() if load_system(name).front == "gateway"]
THIRD_PARTY = sorted(set(system_names()) - set(OURS))


@pytest.mark.parametrize("engine", ["sim", "reference"])
@pytest.mark.parametrize("name", OURS)
def test_our_engines_do_everything(name, engine):
    spec = load_system(name)
    assert check(spec, engine) == []
    assert summary(spec, engine) == EXACT


RULES = [
    ({"prefix_cache": False}, EXACT, ""),
    ({"chunked_prefill": False}, IMPOSSIBLE, "chunked_prefill false"),
    ({"schedule_every": 1}, EXACT, ""),
    ({"schedule_every": 2}, IMPOSSIBLE, "schedule_every 2"),
    ({"preemption": "recompute"}, EXACT, ""),
    ({"preemption": "hold"}, EXACT, ""),
    ({"preemption": "swap"}, FALLBACK, "preemption swap -> recompute"),
    ({"preemption": "batched-swap"}, FALLBACK, "preemption batched-swap -> recompute"),
    ({"preemption": "free"}, FALLBACK, "preemption free -> recompute"),
    ({"host_tier": True}, IMPOSSIBLE, "host_tier true"),
]


@pytest.mark.parametrize("engine", ["vllm-virtual", "vllm"])
@pytest.mark.parametrize(("options", "wanted", "text"), RULES)
def test_vllm_v1_by_option(engine, options, wanted, text):
    spec = system(**options)
    assert status(capabilities(spec, engine)) == wanted
    if wanted == IMPOSSIBLE:
        with pytest.raises(
            MissingCapability, match=rf"{engine}: {text}: .*\(engines that can: sim, reference\)"
        ):
            check(spec, engine)
    else:
        assert [str(fallback).partition(" (")[0] for fallback in check(spec, engine)] == (
            [text] if text else []
        )
    for ours in ("sim", "reference"):
        assert check(spec, ours) == []


@pytest.mark.parametrize(
    ("name", "engine", "possible"),
    [
        ("lpm", "vllm-virtual", True),
        ("lpm", "vllm", False),
        ("dfs-weight", "vllm", False),
        ("srpt", "vllm-virtual", True),
        ("srpt", "vllm", False),
        ("atlas-dag", "vllm-virtual", True),
    ],
)
def test_what_a_scheduler_asks_for(name, engine, possible):
    spec = load_system("vllm-opt", scheduler=name)
    if possible:
        assert check(spec, engine) == []
    else:
        with pytest.raises(MissingCapability, match=f"scheduler {name}: needs"):
            check(spec, engine)


def test_errors_are_one_line_and_name_everything_that_is_missing():
    with pytest.raises(MissingCapability) as caught:
        check(system("vllm-base", schedule_every=4), "vllm-virtual")
    text = str(caught.value)
    assert "\n" not in text
    assert "chunked_prefill false: " in text
    assert "; schedule_every 4: " in text
    with pytest.raises(ValueError, match="unknown engine 'sglang'"):
        check(system(), "sglang")


@pytest.mark.parametrize(
    ("preemption", "used", "batched", "free", "host_gb"),
    [
        ("recompute", "recompute", False, False, 64.0),
        ("swap", "swap", False, False, 64.0),
        ("batched-swap", "swap", True, False, 64.0),
        ("hold", "hold", False, False, 64.0),
        ("free", "swap", False, True, INF),
    ],
)
def test_engine_options(preemption, used, batched, free, host_gb):
    spec = system(preemption=preemption, host_gb=64, schedule_every=8, chunked_prefill=False, swap_scale=2)
    assert engine_options(spec, "sim") == {
        "chunked_prefill": False, "schedule_every": 8, "preemption": used, "host_tier": False,
        "batched": batched, "free": free, "swap_scale": 2.0, "host_gb": host_gb,
    }  # fmt: skip
    after = engine_options(system(preemption=preemption), "vllm-virtual")
    assert (after["preemption"], after["batched"], after["free"]) == (
        "hold" if preemption == "hold" else "recompute", False, False,
    )  # fmt: skip


@pytest.mark.parametrize("name", OURS)
def test_an_engine_can_be_configured_so(name):
    options = dict(engine_options(load_system(name), "sim"))
    fields = ("chunked_prefill", "schedule_every", "preemption", "host_tier")
    assert EngineConfig(kv_blocks=100, **{field: options[field] for field in fields})


# Gates and third-party fronts


def test_a_gate_acts_wherever_the_front_is_ours():
    spec = load_system("atlas", gate="program-cap", knobs={"gate.programs": 4})
    for engine in ENGINES[2:]:
        assert [str(one).partition(" (")[0] for one in check(spec, engine)] == [
            "preemption swap -> recompute"
        ]
    with pytest.raises(
        MissingCapability, match=r"gate program-cap: .* whose place a third-party front takes"
    ):
        check(load_system("vllm-router-hash", gate="program-cap"), "vllm")


def test_what_the_second_papers_policies_need():
    with pytest.raises(MissingCapability, match="retention survival: needs to know how long tools will take"):
        check(load_system("survival", knobs={"retention.by": "oracle"}), "vllm")
    assert check(load_system("survival", knobs={"retention.by": "oracle"}), "vllm-virtual") == []
    with pytest.raises(MissingCapability, match="retention pin: is decided in our gateway"):
        check(load_system("vllm-router-hash", retention="pin"), "vllm")
    with pytest.raises(
        MissingCapability, match="retention pin: keeps what is in the prefix cache, which is off"
    ):
        check(system("pinned", prefix_cache=False), "sim")


@pytest.mark.parametrize("name", THIRD_PARTY)
def test_a_third_party_front_is_exact_on_a_live_engine_or_refused(name):
    spec = load_system(name)
    front = build_front(spec)
    if front.token_ids:
        assert check(spec, "vllm") == []
    else:
        with pytest.raises(MissingCapability, match=f"front {spec.front}: it refuses prompts of token ids"):
            check(spec, "vllm")
    for engine in ("sim", "reference", "vllm-virtual"):
        if front.counterpart() is None:
            with pytest.raises(MissingCapability, match="and no router of ours does the same"):
                check(spec, engine)
        else:
            (fallback,) = check(spec, engine)
            assert (fallback.option, fallback.wanted) == ("front", spec.front)
            assert fallback.used.split()[0] == spec.router


@pytest.mark.parametrize(
    ("knobs", "found"),
    [
        ({"front.policy": "consistent_hash"}, ["preemption swap -> recompute"]),
        ({"front.policy": "round_robin"},
         ["process table shared -> one per engine", "preemption swap -> recompute"]),
    ],
)  # fmt: skip
def test_a_scheduler_behind_a_front_without_a_process_table(knobs, found):
    spec = load_system("plas", front="vllm-router", knobs=knobs)
    assert [str(fallback).partition(" (")[0] for fallback in check(spec, "vllm")] == found
    assert load_system("vllm-opt", front="vllm-router", knobs=knobs).scheduler == "fcfs"
    assert check(load_system("vllm-opt", front="vllm-router", knobs=knobs), "vllm") == []


def test_a_front_that_drops_what_schedulers_go_by(monkeypatch):
    monkeypatch.setattr("systems.fronts.sglang_router.SglangRouter.token_ids", True)
    assert check(load_system("sglang-router-manual"), "vllm") == []
    with pytest.raises(MissingCapability, match="front sglang-router: it drops what scheduler plas goes by"):
        check(load_system("plas", front="sglang-router"), "vllm")


# docs/systems.md


def table_under(heading):
    """The rows of the first table below a heading, cells without markup."""
    text = PAGE.read_text().partition(f"\n## {heading}\n")[2]
    lines = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE).group().splitlines()
    rows = [[cell.strip().replace("`", "") for cell in line.strip("|").split("|")] for line in lines]
    return rows[0], rows[2:]


def test_the_page_prints_the_matrix_as_it_is():
    header, rows = table_under("Capability matrix")
    assert header == ["system", *ENGINES]
    assert rows == [
        [name, *(summary(load_system(name), engine) for engine in ENGINES)] for name in system_names()
    ]


def test_the_page_prints_the_catalog_as_it_is():
    _, rows = table_under("Catalog")
    words = {True: "on", False: "off"}
    expected = []
    for name in system_names():
        s = load_system(name)
        cache, chunked = (words[s.engine_option(option)] for option in ("prefix_cache", "chunked_prefill"))
        expected.append(
            [
                name,
                s.scheduler,
                s.router,
                s.gate,
                s.retention,
                s.environment,
                s.front,
                cache,
                chunked,
                s.engine_option("preemption"),
            ]
        )
    assert rows == expected


@pytest.mark.parametrize(
    ("heading", "names"),
    [
        ("Schedulers", scheduler_names()),
        ("Routers", router_names()),
        ("Gates", gate_names()),
        ("Retention", retention_names()),
        ("Environments", environment_names()),
        ("Fronts", front_names()),
    ],
)
def test_the_page_explains_every_policy(heading, names):
    _, rows = table_under(heading)
    assert sorted(row[0] for row in rows) == names
    assert all(cell for row in rows for cell in row)


@pytest.mark.parametrize(
    ("heading", "slot"),
    [
        ("Schedulers", "scheduler"),
        ("Routers", "router"),
        ("Gates", "gate"),
        ("Retention", "retention"),
        ("Environments", "environment"),
        ("Fronts", "front"),
    ],
)
def test_the_page_names_every_knob(heading, slot):
    header, rows = table_under(heading)
    for name, *cells in rows:
        knobs = cells[header.index("knobs") - 1]
        spec = load_system("vllm-opt", **{slot: name})
        own = {knob for knob, _ in getattr(spec, f"{slot}_knobs")}
        named = set(re.findall(r"\w+", re.sub(r"those of ([\w-]+)", lambda m: knobs_of(slot, m[1]), knobs)))
        assert own <= named, name


def knobs_of(slot, name):
    """The names of a policy's knobs, as the page refers to them."""
    return " ".join(knob for knob, _ in getattr(load_system("vllm-opt", **{slot: name}), f"{slot}_knobs"))
