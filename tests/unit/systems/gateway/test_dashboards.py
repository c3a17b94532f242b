"""docs/dashboards: what the dashboard asks for exists, ports agree, the image has all it needs."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from systems.gateway.metrics import Metrics
from systems.gateway.options import GatewayOptions
from tests.unit.systems.gateway.passages import passage, through
from tests.unit.test_house import HOSTS
from vocabulary import EngineView

ROOT = Path(__file__).parents[4]
FOLDER = ROOT / "docs" / "dashboards"
DASHBOARD = json.loads((FOLDER / "gateway-dashboard.json").read_text())


def text(name):
    return (FOLDER / name).read_text()


def compose():
    return yaml.safe_load(text("compose.yml"))["services"]


def exposed():
    """Sample -> label names, of a gateway that has seen a call, a program and an engine."""
    metrics = Metrics(lambda: [EngineView(0, True, 1, 1, 2, 1)])
    metrics.started(0, "p", 0.0)
    metrics.engine(0, "up", "", 0.0)
    through(metrics, passage(attempt=2))
    metrics.ended(0, "p", "ended", 5.0)
    found = {}
    for family in metrics.registry.collect():
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def queries():
    return [target for panel in DASHBOARD["panels"] for target in panel["targets"]]


def test_every_metric_and_label_of_the_dashboard_exists():
    known = exposed()
    assert len(queries()) > 30
    for query in queries():
        expression = query["expr"]
        names = re.findall(r"\b(?:gateway|process)_\w+", expression)
        assert names, expression
        assert [name for name in names if name not in known] == []
        labels = set().union(*(known[name] for name in names)) | {"le"}
        by = {label for group in re.findall(r"by \(([^)]*)\)", expression) for label in group.split(", ")}
        matched = set(re.findall(r"(\w+)=\"", expression))
        shown = set(re.findall(r"\{\{(\w+)\}\}", query["legendFormat"]))
        assert by | matched | shown <= labels, expression


def test_every_metric_of_ours_is_documented_and_the_others_are_not():
    page = (ROOT / "docs" / "gateway-operations.md").read_text()
    metrics = Metrics(list)
    ours = {family.name for family in metrics.collect()}
    documented = {
        name.removesuffix("_total") for name in re.findall(r"^\| `(gateway_\w+)", page, re.MULTILINE)
    }
    assert documented == ours


def test_panels_do_not_overlap_and_their_ids_differ():
    taken = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)


def test_ports_and_names_agree():
    services = compose()
    options = GatewayOptions.parse(text("gateway.json"))
    (target,) = yaml.safe_load(text("prometheus.yml"))["scrape_configs"][0]["static_configs"][0]["targets"]
    assert target == f"gateway:{options.port}"
    assert services["gateway"]["ports"] == [f"127.0.0.1:{options.port}:{options.port}"]
    assert f"EXPOSE {options.port}\n" in text("Dockerfile")
    assert f":{options.port}/health" in text("Dockerfile")
    source = yaml.safe_load(text("grafana-datasource.yml"))["datasources"][0]
    assert source["url"] == "http://prometheus:9090"
    assert services["prometheus"]["ports"] == ["127.0.0.1:9090:9090"]
    used = {query["datasource"]["uid"] for query in queries()}
    assert used == {source["uid"]}
    provider = yaml.safe_load(text("grafana-dashboards.yml"))["providers"][0]["options"]["path"]
    assert any(provider in volume for volume in services["grafana"]["volumes"])
    assert Path(options.log).parent == Path("/var/log/gateway")


def test_the_system_of_the_options_is_one_and_every_mounted_file_is_there():
    from systems.catalog import load_system

    options = GatewayOptions.parse(text("gateway.json"))
    assert load_system(options.system).name == options.system
    mounted = [
        volume.split(":")[0]
        for service in compose().values()
        for volume in service["volumes"]
        if volume.startswith("./")
    ]
    assert mounted
    assert [name for name in mounted if not (FOLDER / name).is_file()] == []


@pytest.mark.parametrize("name", ["prometheus", "grafana"])
def test_images_are_pinned(name):
    assert re.fullmatch(rf"{'prom' if name == 'prometheus' else name}/{name}:v?\d+\.\d+\.\d+",
                        compose()[name]["image"])  # fmt: skip


def numbers(text):
    return tuple(map(int, text.split(".")))


def test_the_image_pins_what_the_gateway_needs_within_what_the_project_allows():
    """Exactly the third parties that systems/gateway may import (tests/unit/test_house.py)."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    least = dict(
        re.match(r"([\w-]+)>=([\d.]+)", line).groups()
        for line in project["dependencies"]
        if re.match(r"[\w-]+>=", line)
    )
    pinned = dict(
        re.fullmatch(r"([\w-]+)==([\d.]+)", line).groups() for line in text("requirements.txt").split()
    )
    assert {name.replace("-", "_") for name in pinned} == HOSTS["gateway"]
    assert [name for name in pinned if numbers(pinned[name]) < numbers(least[name])] == []
    assert re.search(r"^FROM python:3\.11\.\d+-\w", text("Dockerfile"), re.MULTILINE)


def test_what_the_image_copies_is_enough_to_run(tmp_path):
    """The gateway starts from the copied files alone, and says what is wrong with its options."""
    for source, target in re.findall(r"^COPY (\S+) (/app\S*)$", text("Dockerfile"), re.MULTILINE):
        place = tmp_path / target.lstrip("/")
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, place, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            place.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / source, place)
        assert f"!{source}" in text("Dockerfile.dockerignore").split()
    words = json.loads(re.search(r"^CMD (\[.*\])$", text("Dockerfile"), re.MULTILINE)[1])
    options = json.loads(text("gateway.json")) | {"system": "none-such", "log": None}
    (tmp_path / "gateway.json").write_text(json.dumps(options))
    command = [sys.executable, *words[1:-1], str(tmp_path / "gateway.json")]
    done = subprocess.run(
        command, cwd=tmp_path / "app", env={"PATH": "/usr/bin"}, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert "none-such" in done.stderr
    assert "Traceback" not in done.stderr
