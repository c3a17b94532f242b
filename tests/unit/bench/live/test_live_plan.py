"""What a live plan makes of what was asked."""

import http.server
import json
import threading
import time

import pytest

from bench.errors import MissingError, UsageError
from bench.live import options, served
from bench.live.options import LiveOptions, with_defaults
from bench.live.plan import live_plan
from bench.manifest import hardware
from bench.run import kept
from systems.schedulers.levels import DEFAULT_BOUNDS
from tests.unit.bench.live.conftest import SERVED


def test_every_limit_is_said(stage, config):
    plan = live_plan(config())
    assert (plan.engine.kv_blocks, plan.engine.max_num_seqs) == (256, 4)
    assert (plan.engine.max_num_batched_tokens, plan.engine.max_model_len) == (512, 4096)
    words = plan.config.words()
    assert "engine.kv_blocks=256" in words
    assert "--gpu" not in words
    assert kept(plan) is None


def test_constants_follow_the_token_scale(stage, config):
    plan = live_plan(config(system="mlfq", parameters={"token_scale": "1/16"}))
    assert dict(plan.spec.scheduler_knobs)["bounds"] == tuple(b / 16 for b in DEFAULT_BOUNDS["step"])
    router = live_plan(config(system="autellix", parameters={"token_scale": "1/16"}))
    assert dict(router.spec.router_knobs)["most_short"] == 128
    given = live_plan(config(system="mlfq", knobs={"scheduler.bounds": "3,9"}))
    assert dict(given.spec.scheduler_knobs)["bounds"] == (3, 9)
    whole = live_plan(config(system="mlfq", parameters={"token_scale": "1", "max_context": "4000"}))
    assert dict(whole.spec.scheduler_knobs)["bounds"] == DEFAULT_BOUNDS["step"]


def test_a_cell_is_of_its_machine_engine_and_front(stage, config, monkeypatch):
    first = live_plan(config()).cell
    assert live_plan(config()).cell == first
    for change in (
        {"version": "0.1"},
        {"machine": "another CPU"},
        {"front": "gateway"},
        {"client": "stream"},
    ):
        other = served.Served(**{**SERVED.as_json(), **change})
        monkeypatch.setattr("bench.live.plan.served", lambda config, options, other=other: other)
        assert (live_plan(config()).cell == first) == (other == SERVED)


def test_engines_that_run_already_decide_how_many_there_are(stage, config):
    own = {"live.attach": "http://a:1/, http://b:2"}
    plan = live_plan(config(knobs=own))
    assert plan.options.attach == ("http://a:1", "http://b:2")
    assert plan.config.replicas == 2
    with pytest.raises(UsageError, match="names 2 engines, --replicas says 3"):
        live_plan(config(knobs=own, replicas=3))


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"live.how": "dockr"}, "did you mean docker"),
        ({"live.frnt": "none"}, "did you mean live.front"),
        ({"live.load": "much"}, "between 0.05 and 10, got 'much'"),
    ],
)
def test_wrong_knobs_are_named(config, knobs, message):
    with pytest.raises(UsageError, match=message):
        LiveOptions.of(config(knobs=knobs))


def test_live_knobs_are_for_live_engines(config):
    with pytest.raises(UsageError, match=r"live\.how is for live engines"):
        config(engine="sim", knobs={"live.how": "docker"})


def test_on_a_gpu_kv_must_be_said(config):
    with pytest.raises(UsageError, match=r"--knob engine\.kv_blocks=N"):
        with_defaults(config(), "gpu")
    limits = with_defaults(config(knobs={"engine.kv_blocks": "1001"}), "gpu").limits()
    assert limits == {
        "kv_blocks": 1001,
        "max_num_seqs": 256,
        "max_num_batched_tokens": 2048,
        "max_model_len": 16384,
    }


class Attaching(http.server.BaseHTTPRequestHandler):
    """An engine that runs already; ``says``: what it answers, by path."""

    def do_GET(self):
        found = self.server.says.get(self.path)
        body = b"" if found is None else json.dumps(found).encode()
        self.send_response(404 if found is None else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        pass


@pytest.fixture
def engine():
    servers = []

    def make(version, path="/version", model="theirs"):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Attaching)
        models = {"data": [{"id": model, "created": time.time(), "max_model_len": 777}]}
        server.says = {"/health": {}, "/v1/models": models, path: {"version": version}}
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    yield make
    for server in servers:
        server.shutdown()
        server.server_close()


def attaching(config, *urls, **changes):
    own = {"live.attach": ",".join(urls), "live.front": "gateway"}
    return live_plan(config(knobs=own, model="theirs", **changes))


def test_of_attached_engines_only_what_they_say_is_known(config, engine):
    url = engine("9.9")
    plan = attaching(config, url)
    assert plan.badge == (
        f"MEASURED (vLLM 9.9, machine and limits not known (attached: {url})), 1 x theirs, behind our gateway"
    )
    live = plan.identity["live"]
    assert (live["kind"], live["cores"], live["block_size"]) == ("unknown", 0, 0)
    assert hardware()["cpu"] not in json.dumps(live)
    (said,) = live["engines"]
    assert (said["url"], said["models"], said["max_model_len"]) == (url, ["theirs"], 777)
    assert attaching(config, url).cell == plan.cell
    assert attaching(config, engine("9.9")).cell != plan.cell
    assert "engines" not in SERVED.as_json()


def test_attached_engines_that_cannot_be_driven(config, engine, monkeypatch):
    monkeypatch.setattr(served, "ASK_S", 0.0)
    vllm = engine("9.9")
    for urls, kind, message in [
        (("http://127.0.0.1:9",), MissingError, "127.0.0.1:9/health does not answer"),
        ((engine("0.5", "/server_info"),), MissingError, "is SGLang 0.5, and a live run drives vLLM only"),
        ((engine("0.5", "/other"),), MissingError, "does not answer GET /version"),
        ((engine("9.9", model="another"),), MissingError, "serves another, not theirs"),
        ((vllm, engine("9.8")), MissingError, r"several versions: 9\.8, 9\.9"),
        (("http://a:1/v2",), UsageError, "no engine's address"),
    ]:
        with pytest.raises(kind, match=message) as told:
            attaching(config, *urls)
        assert "\n" not in str(told.value)


def test_nothing_is_computed_beside_a_measured_run(stage, config, monkeypatch):
    monkeypatch.setattr("bench.plan.in_background", lambda _: pytest.fail("a process beside the run"))
    plan = live_plan(config(n=40))
    plan.begin_offline()
    assert plan.offline.programs == 40


def test_a_python_without_vllm(tmp_path):
    with pytest.raises(MissingError, match=r"live\.python: there is no"):
        served.python_of(LiveOptions(python=tmp_path / "python"))


def test_the_device_is_told_from_the_driver(monkeypatch):
    monkeypatch.setattr(options.shutil, "which", lambda name: None)
    assert options.device() == "cpu"


def test_cells_behind_other_fronts_are_comparable(stage, config):
    behind = served.Served(**{**SERVED.as_json(), "front": "vllm-router==0.1.17"})
    assert behind.digest == SERVED.digest
    assert served.Served(**{**SERVED.as_json(), "version": "0.1"}).digest != SERVED.digest
