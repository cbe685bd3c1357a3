"""The report is one file that needs nothing else, shows the numbers, and escapes what it shows."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from colour_world import build_colours

from counterfoil.evaluation import evaluate
from counterfoil.evaluation.report import between, heat, points
from counterfoil.evaluation.results import Evaluation
from counterfoil.evaluation.statistics import Estimate

VOID = {"meta", "img", "br", "wbr", "link", "input", "hr"}


class Page(HTMLParser):
    """Collects what a page refers to, its text, and whether its tags close in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.references: list[str] = []
        self.text: list[str] = []
        self.ids: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.references += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href")]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-1:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.fixture(scope="module")
def html(evaluation: Evaluation) -> str:
    return evaluation.files["report"].read_text(encoding="utf-8")


def test_the_page_is_well_formed_and_needs_no_other_resource(html: str) -> None:
    page = Page(html)
    assert page.open == []
    assert all(one.startswith(("data:image/", "#")) for one in page.references)
    assert any(one.startswith("data:image/") for one in page.references)
    assert "url(http" not in html and "@import" not in html
    assert len(page.ids) == len(set(page.ids))


def test_the_page_shows_each_models_drops(html: str, evaluation: Evaluation) -> None:
    text = " ".join(Page(html).text)
    for model in evaluation.models:
        assert model.short_name.replace("_", "") in text.replace("_", "").replace(" ", "")
    assert "33.3" in text and "Wilson" in text and "bootstrap" in text
    assert html.count("<svg") == 3


def test_figures_follow_the_theme(html: str) -> None:
    assert "var(--kind-colour)" in html
    assert not re.search(r"#010a[0-9a-f]{2}", html)


def test_names_are_escaped(tmp_path: Path, models: dict[str, str]) -> None:
    classes = '[{id: "00", name: "<b>red</b> & $co$", source_label: 0}, {id: "01", name: green, source_label: 2}]'
    dataset = build_colours(tmp_path / "d", f"source.classes={classes}")
    page = evaluate(dataset, [models["sharp"]], device="cpu").files["report"].read_text()
    assert "<b>red</b>" not in page
    assert "&lt;b&gt;red&lt;/b&gt; &amp; $co$" in page


def test_numbers_are_written_for_reading() -> None:
    assert [points(one) for one in (None, 0.1234, -0.05, -0.0001)] == ["–", "12.3", "−5.0", "0.0"]
    assert between(Estimate(0.1, -0.02, 0.3)) == "−2.0 to 30.0"
    assert between(Estimate(0.1)) == ""
    assert heat(None) == ""
    assert "--drop" in heat(Estimate(0.2)) and "--gain" in heat(Estimate(-0.2))
