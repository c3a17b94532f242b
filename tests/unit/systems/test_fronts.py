"""Third-party fronts without a third party: commands, headers, stand-ins, knobs."""

import json

import pytest

from systems.catalog import CatalogError, build_front, build_router, front_names, load_system
from systems.fronts.protocol import Front
from systems.fronts.smg import HINT_TOKENS, Smg
from systems.fronts.vllm_router import VllmRouter

ENGINES = ["http://127.0.0.1:8001", "http://127.0.0.1:8002"]


def front_of(name, **knobs):
    spec = load_system(
        "vllm-opt", front=name, knobs={f"front.{knob}": value for knob, value in knobs.items()}
    )
    return build_front(spec)


def after(words, flag):
    return words[words.index(flag) + 1]


@pytest.mark.parametrize("name", front_names())
def test_front_follows_the_protocol(name):
    front = front_of(name)
    assert isinstance(front, Front)
    assert front.name == name
    assert type(front).__doc__
    package, equals, version = front.requirement.partition("==")
    assert (package, equals) == (name, "==")
    assert version.count(".") == 2


@pytest.mark.parametrize("name", front_names())
def test_it_listens_here_only_and_finds_every_engine_quickly(name):
    words = front_of(name).command(8000, ENGINES, 9000)
    assert words[0] == "-m"
    assert (after(words, "--host"), after(words, "--port")) == ("127.0.0.1", "8000")
    assert (after(words, "--prometheus-host"), after(words, "--prometheus-port")) == ("127.0.0.1", "9000")
    at = words.index("--worker-urls")
    assert words[at + 1 : at + 3] == ENGINES
    assert words[at + 3].startswith("--")
    assert after(words, "--health-check-interval-secs") == "1"
    assert after(words, "--worker-startup-check-interval") == "1"


@pytest.mark.parametrize("name", front_names())
def test_a_program_is_named_by_headers_that_are_text(name):
    front = front_of(name)
    headers = front.headers("p 7", [1, 2])
    assert headers == front.headers("p 7", [1, 2])
    assert headers != front.headers("p 8", [1, 2])
    assert all(value.isascii() and value.isprintable() for pair in headers.items() for value in pair)


def test_vllm_router():
    assert after(front_of("vllm-router").command(1, ENGINES, 2), "--policy") == "consistent_hash"
    assert "--enable-program-scheduling" not in front_of("vllm-router").command(1, ENGINES, 2)
    words = front_of("vllm-router", programs="scheduling", max_active=5).command(1, ENGINES, 2)
    assert "--enable-program-scheduling" in words
    assert json.loads(after(words, "--program-scheduling-config-json")) == {
        "program_scheduling_enable_key": "auto",
        "binding_only": False,
        "max_active_programs_per_target": 5,
    }
    binding = front_of("vllm-router", policy="round_robin", programs="binding")
    assert '"binding_only": true' in " ".join(binding.command(1, ENGINES, 2))
    assert binding.pins
    assert not front_of("vllm-router", policy="round_robin").pins
    assert front_of("vllm-router").headers("p1") == {"X-Session-ID": "p1"}


def test_only_a_policy_that_counts_sessions_is_told_their_end():
    sticky = front_of("vllm-router", policy="sticky_least_loaded")
    assert sticky.end("a b/1&c") == "/finish_session?session_id=a%20b%2F1%26c"
    assert [front_of(name).end("a") for name in front_names()] == [None, None, None]


def test_smg_reads_no_body():
    words = front_of("smg").command(1, ENGINES, 2)
    assert after(words, "--max-buffered-request-bytes") == "0"
    assert (after(words, "--policy"), after(words, "--assignment-mode")) == ("manual", "min_load")
    assert "--disable-worker-overload-protection" in words
    aware = front_of("smg", policy="cache_aware", overload="true")
    words = aware.command(1, ENGINES, 2)
    assert "--assignment-mode" not in words
    assert "--disable-worker-overload-protection" not in words
    assert aware.headers("p", [5, 60, 7]) == {"X-SMG-Routing-Tokens": "5,60,7"}
    assert aware.headers("p", [9] * 2000)["X-SMG-Routing-Tokens"].count("9") == HINT_TOKENS == 512
    assert not front_of("smg", overload="true").pins


STAND_INS = [
    (VllmRouter(), ("session-pinned", "hash")),
    (VllmRouter(policy="sticky_least_loaded"), ("session-pinned", "programs")),
    (VllmRouter(policy="round_robin"), ("round-robin", None)),
    (VllmRouter(programs="binding"), None),
    (VllmRouter(programs="scheduling"), None),
    (Smg(), ("session-pinned", "sticky")),
    (Smg(assignment="random"), ("session-pinned", "hash")),
    (Smg(assignment="min_group"), None),
    (Smg(policy="consistent_hashing"), ("session-pinned", "hash")),
    (Smg(policy="round_robin"), ("round-robin", None)),
    (Smg(policy="cache_aware"), None),
    (Smg(overload=True), None),
]


@pytest.mark.parametrize(("front", "wanted"), STAND_INS)
def test_what_stands_in_for_it(front, wanted):
    found = front.counterpart()
    assert (None if found is None else (found["name"], found.get("by"))) == wanted


def test_a_system_behind_a_third_party_has_the_router_that_stands_in():
    spec = load_system("vllm-router-sticky")
    assert (spec.router, spec.router_knobs) == ("session-pinned", (("by", "programs"),))
    assert build_router(spec).by == "programs"
    routed = load_system("smg-cache-aware")
    assert (routed.router, routed.reads_prompt) == ("front", False)
    assert build_front(load_system("atlas")) is None
    assert load_system("atlas").front == "gateway"


def test_the_front_is_part_of_what_a_system_is():
    ours = load_system("session-pinned", knobs={"router.by": "hash"})
    assert load_system("vllm-router-hash").digest != ours.digest
    assert load_system("vllm-opt", front="vllm-router").digest == load_system("vllm-router-hash").digest
    assert load_system("vllm-opt", front="gateway").digest == load_system("vllm-opt").digest
    others = {load_system("vllm-router-hash", knobs={"front.max_active": 9}).digest,
              load_system("smg-sticky").digest, load_system("sglang-router-manual").digest}  # fmt: skip
    assert len(others) == 3


WRONG = [
    (
        {"front": "smgg"},
        r"unknown front 'smgg'\. Did you mean smg\?.*gateway, sglang-router, smg, vllm",
    ),
    ({"front": "vllm-router", "router": "least-used"}, "chooses engines itself: leave the router out"),
    ({"front": "smg", "knobs": {"router.by": "hash"}}, "chooses engines itself: leave the router out"),
    ({"knobs": {"front.policy": "hash"}}, "unknown gateway knob 'policy'"),
    ({"front": "vllm-router", "knobs": {"front.policy": "hash"}}, "policy must be one of consistent_hash"),
    ({"front": "vllm-router", "knobs": {"front.programs": "true"}}, "programs must be one of off"),
    ({"front": "vllm-router", "knobs": {"front.max_active": 0}}, "max_active must be a whole number"),
    ({"front": "smg", "knobs": {"front.overload": 1}}, "overload must be true or false, got 1"),
    ({"front": "smg", "knobs": {"front.polcy": 1}}, "unknown smg knob 'polcy'. Did you mean policy"),
    ({"name": "vllm-router-hash", "front": "gateway"}, "router is missing"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG)
def test_errors_say_what_would_be_right(arguments, message):
    with pytest.raises(CatalogError, match=message):
        load_system(**{"name": "vllm-opt", **arguments})


def test_a_front_from_outside():
    spec = load_system("systems.fronts.smg:Smg", knobs={"front.policy": "round_robin"})
    assert (spec.scheduler, spec.router) == ("fcfs", "round-robin")
    assert build_front(spec).policy == "round_robin"
