"""The HTML page: complete in one file, escaped, verdicts first."""

import base64
import re
from html.parser import HTMLParser

import pandas as pd
import pytest

from reports.figure import figures, render
from reports.page import Section, blocks, table_of, text, verdicts
from reports.page import render as page
from tests.unit.reports import frames

VOID = {"meta", "img", "br"}


class Checker(HTMLParser):
    """Collects tags and complains about those that do not close."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.ids, self.links = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        found = dict(attrs)
        self.ids += [found["id"]] if "id" in found else []
        self.links += [found[k] for k in ("src", "href") if k in found]
        if tag == "img":
            assert len(found["alt"]) > 20
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def picture():
    return render(figures()["kv_hits"], frames.everything())


@pytest.fixture(scope="module")
def html(picture):
    claims = frames.claims({"mixed": 1.0}, {"<m>": 1.0})
    sections = [
        verdicts(claims),
        Section("Figures", pictures=[picture]),
        Section("Found & <said>", "* <i>x</i>"),
    ]
    provenance = {
        "badge": "SIMULATED <x>",
        "Commands": ["bench run --system 'a<b'"],
        "Versions": {"numpy": "2"},
        "Cells": [{"cell": "ab", "rate": 1.5, "seed": None}],
        "Free": "text",
    }
    return page("A <script>alert(1)</script>", "One.\n\nTwo & three.", sections, provenance)


def test_it_is_well_formed_and_opens_offline(html):
    checker = Checker()
    checker.feed(html)
    assert checker.open == []
    assert "script" not in checker.tags
    assert all(link.startswith(("data:", "#")) for link in checker.links)
    assert "url(" not in html
    assert "@import" not in html
    anchors = {link[1:] for link in checker.links if link.startswith("#")}
    assert anchors == set(checker.ids)
    assert len(checker.ids) == len(set(checker.ids))


def test_everything_is_escaped(html):
    for raw in ("<script", "<m>", "<i>x", "a<b", "<said>", "<b>why"):
        assert raw not in html
    assert "A &lt;script&gt;" in html
    assert "&lt;b&gt;why&lt;/b&gt;" in html


def test_the_badge_is_on_top_and_at_the_figure_and_verdicts_come_first(html):
    body = html[html.index("<body>") :]
    assert body.index("SIMULATED &lt;x&gt;") < body.index("<h1>")
    assert body.index("Verdicts</h2>") < body.index("<figure>") < body.index("Provenance</h2>")
    assert frames.BADGE in html or "not given" in html
    assert 'class="verdict not-reproduced">not reproduced' in html
    assert "transient: 1 reproduced, 1 partly, 1 not reproduced" in html
    assert "4.80 [4.32, 5.28]" in html


def test_picture_and_table_are_in_it(html, picture):
    (svg,) = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', html)
    (csv,) = re.findall(r'href="data:text/csv;charset=utf-8;base64,([^"]+)"', html)
    assert base64.b64decode(svg) == picture.svg
    assert base64.b64decode(csv).decode() == picture.csv
    assert 'download="kv_hits.csv"' in html


def test_numbers_that_were_not_given_a_badge_say_so():
    assert "was not given" in page("t", "", [], {})


def test_text_becomes_paragraphs_and_lists():
    assert blocks("a\nb\n\n* c\n* d\ne") == [("p", ["a b"]), ("ul", ["c", "d"]), ("p", ["e"])]
    assert blocks("") == []


def test_cells_are_text():
    assert [text(v) for v in (None, float("nan"), float("inf"), True, 1.23456, 7, (1, 2.5), "x")] == [
        "-", "-", "inf", "yes", "1.23", "7", "1, 2.50", "x",
    ]  # fmt: skip
    table = table_of(pd.DataFrame({"n": [1.5], "s": ["a"]}))
    assert table.numeric == {"n"}
