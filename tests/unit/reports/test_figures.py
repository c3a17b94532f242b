"""Every figure, found by scanning, held to the same contract."""

import math
import xml.etree.ElementTree as ET
from pathlib import Path

import matplotlib.colors
import numpy as np
import pandas as pd
import pytest

import reports.figures
from bench.stats import t_interval
from reports import theme
from reports.curves import curve_table, some
from reports.figure import UNMARKED, badge, figures, render
from reports.figures.pareto import front
from reports.seeds import interval, ratio_interval
from tests.unit.reports import frames

FIGURES = figures()
ALL = frames.everything()
ONE = {"chatbot:v3_split": 2.5}
SMALL = {name: frame[frame.workload.isin(ONE)].reset_index(drop=True) for name, frame in ALL.items()}
SMALL |= {
    "points": frames.points(ONE, {"llama-3.1-8b": 1.0}),
    "claims": frames.claims(ONE, {"llama-3.1-8b": 1.0}),
}
UNITS = ("programs/s", "s/token", "(s)", "%", "ratio", "/ exec", "steps", "calls of", "number of calls",
         "token-seconds", "(GB)", "blocks x seconds")  # fmt: skip


@pytest.fixture(scope="module", params=sorted(FIGURES))
def figure(request):
    return FIGURES[request.param]


@pytest.fixture(scope="module")
def drawn(figure):
    return figure.draw(SMALL)


def panels(drawn):
    return [ax for ax in drawn.axes if ax.axison]


def texts(drawn):
    return [t.get_text() for t in drawn.texts]


def test_figures_are_named_as_their_files():
    folder = Path(reports.figures.__file__).parent
    assert set(FIGURES) == {path.stem for path in folder.glob("*.py")} - {"__init__"}


def test_it_says_what_it_needs_and_how_to_read_it(figure):
    assert figure.needs
    assert set(figure.needs + figure.uses) <= set(ALL)
    assert len(figure.caption) > 100
    assert figure.title


def test_axes_have_labels_with_units(drawn):
    assert panels(drawn)
    for ax in panels(drawn):
        words = f"{ax.get_xlabel()} {ax.get_ylabel()}"
        assert ax.get_xlabel()
        assert any(unit in words for unit in UNITS), words


def test_it_is_stamped_as_simulated(drawn):
    assert any(text.startswith("SIMULATED") for text in texts(drawn))


@pytest.mark.filterwarnings("error:constrained_layout")
def test_its_bytes_are_the_same_every_time_and_it_loads_nothing(figure):
    first, again = render(figure, SMALL), render(figure, SMALL)
    assert (first.svg, first.png, first.csv) == (again.svg, again.png, again.csv)
    assert first.png.startswith(b"\x89PNG")
    root = ET.fromstring(first.svg)
    names = {"href", "{http://www.w3.org/1999/xlink}href"}
    links = [e.attrib[name] for e in root.iter() for name in names & set(e.attrib)]
    assert all(link.startswith("#") for link in links)
    assert len(first.csv.splitlines()) == len(figure.table(SMALL)) + 1


def test_without_data_it_says_why(figure):
    for data in ({}, {name: frame.iloc[:0] for name, frame in ALL.items()}):
        assert figure.missing(data)
        assert figure.table(data).empty
        assert any("nothing to draw" in text for text in texts(figure.draw(data)))


def missing(frame, name, rows):
    """The frame without its values (places stay) in some rows."""
    kept = {"workload", "model", "system", "seed", "badge", "horizon"}
    kept |= set() if name == "crossings" else {"rate"}
    found = frame.copy()
    numbers = [c for c in found.select_dtypes("number") if c not in kept]
    found[numbers] = found[numbers].astype(float)
    found.loc[found.index[rows], numbers] = math.nan
    return found


def test_one_row_and_nothing_finite_do_not_break_it(figure):
    one = {name: frame.iloc[:1] for name, frame in ALL.items()}
    gone = {name: missing(frame, name, slice(None)) for name, frame in ALL.items()}
    assert figure.draw(one).get_figwidth() > 0
    assert any("nothing to draw" in text for text in texts(figure.draw(gone)))
    figure.draw({name: missing(frame, name, slice(None, None, 7)) for name, frame in SMALL.items()})


def test_systems_of_the_catalog_differ_by_colour_marker_and_line_style():
    found = theme.marks(theme.MARKS).values()
    for part in ("color", "marker", "dash"):
        assert len({getattr(m, part) for m in found}) == len(theme.MARKS)
    sizes = [m.size for m in found]
    assert sizes == sorted(sizes, reverse=True)


def test_many_others_and_many_variants_differ_twice():
    names = [*theme.MARKS, *(f"own{k}" for k in range(12)), *(f"mlfq levels={k}" for k in range(12))]
    found = theme.marks(names).values()
    assert len({(m.marker, m.dash) for m in found}) == len(names)
    assert len({(m.marker, m.color) for m in found}) == len(names)
    variants = [m.color for name, m in theme.marks(names).items() if name.startswith("mlfq levels")]
    assert set(variants) <= {"#e69f00", *(theme._shaded("#e69f00", by) for by in theme.SHADES)}


def test_a_name_keeps_its_mark_whoever_else_is_there():
    names = [f"own{k}" for k in range(12)]
    alone = {name: theme.marks([name])[name] for name in names}
    together = theme.marks(names)
    same = [name for name in names if together[name].marker == alone[name].marker]
    assert len(same) >= 10  # two may come to the same mark


def boxes(fig):
    """Where words are, in pixels: titles, labels of axes and ticks, legends' texts, key and stamp."""
    fig.draw_without_rendering()
    legends = [text for legend in fig.legends for text in legend.get_texts()]
    axes = [ax for ax in fig.axes if ax.axison and ax.xaxis.get_visible()]
    found = [ax.title for ax in axes] + [ax.xaxis.label for ax in axes] + legends + list(fig.texts)
    found += [tick for ax in axes for tick in ax.get_yticklabels()]
    return [(t.get_text(), t.get_window_extent()) for t in found if t.get_text()]


LONG = {
    name: f"{name} latency.prefill/decode/overhead=0.94 gate.programs={k} scheduler.beta=3 router.most=12"
    for k, name in enumerate(["vllm-base", "vllm-opt", "mlfq", "autellix", "atlas", "thunderagent"])
}


def renamed(frame):
    return frame.replace({"system": LONG}) if "system" in frame else frame


@pytest.mark.parametrize(
    "name", ["kv_costs", "time_split", "engines_over_time", "kv_hits", "regrets", "holds"]
)
@pytest.mark.filterwarnings("error:constrained_layout")
def test_long_names_are_neither_cut_nor_over_each_other(name):
    figure, data = FIGURES[name], {key: renamed(frame) for key, frame in SMALL.items()}
    with theme.style(name):
        fig = figure.draw(data)
        theme.lay_out(fig)
        found = boxes(fig)
        width, height = fig.get_size_inches() * fig.dpi
    for text, box in found:
        assert box.x0 > -1, text
        assert box.y0 > -1, text
        assert box.x1 < width + 1, text
        assert box.y1 < height + 1, text
    both = [
        (one, other)
        for k, (one, a) in enumerate(found)
        for other, b in found[:k]
        if min(a.x1, b.x1) - max(a.x0, b.x0) > 1 and min(a.y1, b.y1) - max(a.y0, b.y0) > 1
    ]
    assert both == []


@pytest.mark.filterwarnings("error:constrained_layout")
def test_a_picture_too_small_for_its_words_grows():
    with theme.style("small"):
        fig, axes = theme.panels(1, 1)
        axes[0, 0].set_title("\n".join("wide" for _ in range(40)))
        before = fig.get_figheight()
        theme.lay_out(fig)
        assert fig.get_figheight() > before
        assert axes[0, 0].get_position().height > 0


def test_loads_without_a_rate_are_panels_and_lines_of_their_own():
    def both(frame):
        loads = [frame.assign(rate=np.nan, load=f"{n} at all times") for n in (24, 96)]
        return pd.concat(loads, ignore_index=True)

    rows = ALL["bins_calls"][ALL["bins_calls"].workload == "chatbot:v3_split"]
    rows = rows[rows.rate == rows.rate.iloc[0]]
    drawn = FIGURES["wait_exec_calls"].draw({"bins_calls": both(rows)})
    titles = [ax.get_title() for ax in panels(drawn)]
    assert len(titles) == 2 * rows.groupby(["workload", "model"]).ngroups
    assert sum("24 at all times" in title.replace("\n", " ") for title in titles) == len(titles) / 2
    hits = ALL["hits"][ALL["hits"].workload == "chatbot:v3_split"]
    hits = hits[hits.rate == hits.rate.iloc[0]]
    one = FIGURES["kv_hits"].draw({"hits": hits.assign(rate=np.nan, load="24 at all times")})
    assert all("24 at all times" in ax.get_xlabel() for ax in panels(one))
    two = FIGURES["kv_hits"].draw({"hits": both(hits)})
    assert {ax.get_xlabel() for ax in panels(two)} == {"programs at a time"}
    split = ALL["split"][ALL["split"].workload == "chatbot:v3_split"]
    split = split[split.rate == split.rate.iloc[0]]
    bars = FIGURES["time_split"].draw({"split": both(split)})
    words = [tick.get_text() for tick in panels(bars)[0].get_yticklabels()]
    assert sum(word.endswith("at 24") for word in words) == len(words) / 2


def test_there_is_no_panel_for_a_model_that_did_not_run_a_workload():
    hits = ALL["hits"]
    a, b = hits.workload.unique()[:2]
    crossed = pd.concat(
        [hits[hits.workload == a].assign(model="m1"), hits[hits.workload == b].assign(model="m2")]
    )
    assert len(panels(FIGURES["kv_hits"].draw({"hits": crossed}))) == 2


def test_the_papers_systems_differ_in_grey():
    greys = [
        float(np.dot(matplotlib.colors.to_rgb(theme.MARKS[s].color), (0.2126, 0.7152, 0.0722)))
        for s in ("vllm-base", "vllm-opt", "mlfq", "autellix")
    ]
    assert min(abs(a - b) for i, a in enumerate(greys) for b in greys[:i]) > 0.1


def test_a_system_looks_the_same_in_every_company():
    assert theme.marks(["mlfq"])["mlfq"].marker == theme.marks(theme.MARKS)["mlfq"].marker
    assert list(theme.marks(["zzz", "srpt", "vllm-base"])) == ["vllm-base", "srpt", "zzz"]


def test_intervals_are_those_of_the_rest_of_the_project():
    for values in ([1.0, 2.0, 4.5], [3.0], [0.1, 0.1]):
        expected = t_interval(values)
        assert interval(values) == pytest.approx((expected.value, expected.low, expected.high), nan_ok=True)
    assert math.isnan(interval([1.0, math.nan])[0])
    assert ratio_interval([2.0, 8.0])[0] == pytest.approx(4.0)
    assert math.isnan(ratio_interval([1.0, 0.0])[0])


def curve(values, sustainable=True, rates=(1.0, 2.0, 3.0), **more):
    rows = [
        {"model": "m", "workload": "w", "system": "mlfq", "rate": r, "seed": s, "multiple": r / 2,
         "sustainable": sustainable, "transient.mean_of_ratios": v, "transient.p95": v, "transient.p99": v,
         "badge": "SIMULATED"} | more
        for r, v in zip(rates, values, strict=True)
        for s in (1, 2)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def lines_of(ax, marker):
    return [line for line in ax.lines if line.get_marker() == marker and len(line.get_xdata())]


def test_points_that_are_not_sustained_are_hollow_and_those_beyond_the_axis_arrows():
    paper = pd.DataFrame([{"workload": "w", "model": "m", "low": 0.0, "high": 2.0}])
    data = {"points": pd.concat([curve([0.1, 0.3, 9.0], True), curve([0.2, 0.6, 3.0], False, system="srpt")])}
    (ax,) = panels(FIGURES["latency_curves"].draw(data | {"paper_axes": paper}))
    assert ax.get_ylim() == (0, 1.0)
    (full,) = lines_of(ax, theme.MARKS["mlfq"].marker)
    (hollow,) = lines_of(ax, theme.MARKS["srpt"].marker)
    assert list(full.get_ydata()) == [0.1, 0.3]
    assert full.get_markerfacecolor() != "white"
    assert hollow.get_markerfacecolor() == "white"
    arrows = [t for t in ax.texts if t.arrow_patch is not None]
    assert len(arrows) == 2
    table = FIGURES["latency_curves"].table(data)
    assert sorted(table["value"])[-2:] == [3.0, 9.0]


def test_stated_ratios_stand_beside_ours():
    drawn = FIGURES["latency_curves"].draw(SMALL)
    below = [t.get_text() for ax in panels(drawn) for t in ax.texts if "paper" in t.get_text()]
    assert "rate over vllm-base: paper 8, here 4.80 [4.32, 5.28]  ✗ | n/a" in below[0]


def test_a_seed_without_a_percentile_leaves_the_point_out():
    points = curve([0.1, 0.2, 0.3])
    points.loc[(points.rate == 2.0) & (points.seed == 2), "transient.p95"] = math.nan
    table = curve_table(points, {"p95": "transient.p95"}, paper=False)
    assert table.rate.tolist() == [1.0, 3.0]
    assert table.seeds.tolist() == [2, 2]


def test_the_pareto_front():
    assert front([1, 2, 3, 2], [1, 2, 3, 2.5]) == [True, True, True, False]
    assert front([1, 1], [1, 1]) == [True, True]


def test_some_of_many_rates_hold_both_ends():
    assert some([3, 1, 2, 2], 2) == [1, 3]
    assert some([1, 2], 3) == [1, 2]


def test_several_set_ups_are_named():
    assert badge({}) == UNMARKED
    mixed = pd.DataFrame({"badge": ["SIMULATED a", "measured b"]})
    assert badge({"points": mixed}).startswith("simulated and measured mixed, 2")
    measured = pd.DataFrame({"badge": ["MEASURED (a)", "MEASURED (b)"]})
    assert badge({"points": measured}).startswith("MEASURED, 2 set-ups")
