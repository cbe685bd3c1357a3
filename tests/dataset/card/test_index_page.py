"""The index page lists exactly what exists, is no part of a dataset, and never replaces a page of
your own."""

from __future__ import annotations

import html
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from colour_world import build_colours, save_colour_models
from contrast import faint_texts
from counterfoil.data.folders import folder_content
from counterfoil.dataset.card.index_page import index_entries, write_index
from counterfoil.dataset.closing import close_again
from counterfoil.evaluation import evaluate
from counterfoil.reviewing.calibrate_dataset import calibrate
from counterfoil.reviewing.review_dataset import review
from counterfoil.store.manifest import published_paths, verify_files


def links(directory: Path) -> list[str]:
    return [
        html.unescape(link)
        for link in re.findall(r'href="([^"]+)"', (directory / "index.html").read_text())
    ]


def test_a_datasets_index_lists_what_is_there(screened: Path, tmp_path: Path) -> None:
    dataset = Path(
        shutil.copytree(
            screened, tmp_path / "tiny", ignore=shutil.ignore_patterns("lock", "lock.pid")
        )
    )
    sheets = [f"figures/{path.name}" for path in sorted((dataset / "figures").glob("shift-*"))]
    card = [".counterfoil/card.html", "figures/contact-sheet.webp"]
    first = links(dataset)
    assert first[:2] == card and sorted(first[2:]) == sheets, "a build writes it"
    manifest = (dataset / "manifest.json").read_bytes()
    content = folder_content(dataset).sha256
    calibrate(dataset)
    assert links(dataset) == [*first, ".counterfoil/calibrate.html"]
    review(dataset, controls=False)
    assert links(dataset) == [*first, ".counterfoil/calibrate.html", ".counterfoil/review.html"]
    review(dataset, tmp_path / "elsewhere.html", controls=False)
    assert all((dataset / link).is_file() for link in links(dataset))
    (dataset / ".counterfoil" / "calibrate.html").unlink()
    write_index(dataset)
    assert links(dataset) == [*first, ".counterfoil/review.html"]
    shown = (dataset / ".counterfoil" / "card.html").read_text()
    assert (
        "<h1>Wardrobe mini" in shown
        and "---\n" not in shown[:2000]
        and 'src="../figures/contact-sheet.webp"' in shown
    )
    local = [
        link
        for link in re.findall(r'(?:src|href)="([^"#]+)"', shown)
        if not re.match("[a-z]+:", link)
    ]
    assert local and all((dataset / ".counterfoil" / link).exists() for link in local)
    text = (dataset / "index.html").read_text()
    assert "wardrobe-mini: " in text and " accepted" in text
    # The page is no part of the dataset.
    assert not verify_files(dataset) and "index.html" not in published_paths(dataset)
    assert (dataset / "manifest.json").read_bytes() == manifest and folder_content(
        dataset
    ).sha256 == content
    close_again(dataset)
    assert (dataset / "manifest.json").read_bytes() == manifest


def test_an_evaluations_index(tmp_path: Path) -> None:
    dataset = build_colours(tmp_path / "colours")
    models = [save_colour_models(tmp_path)[name] for name in ("sharp", "no_red")]
    evaluate(dataset, models, device="cpu")
    assert links(dataset)[-2:] == [
        ".counterfoil/evaluation/report.html",
        ".counterfoil/evaluation/failures.html",
    ]
    page = (dataset / "index.html").read_text()
    assert (
        "sharp has an accuracy of 100.0 % on the base. It loses most under swap: 33.3 points of"
        " accuracy" in page
    )
    # Results without a model have a page too.
    results = dataset / ".counterfoil" / "evaluation" / "results.json"
    document = json.loads(results.read_text())
    for name, value in document.items():
        document[name] = [] if isinstance(value, list) else value
    results.write_text(json.dumps(document))
    write_index(dataset)
    assert ".counterfoil/evaluation/report.html" in links(dataset)


def test_a_report_is_what_its_document_says(tmp_path: Path) -> None:
    (tmp_path / "report.html").touch()
    write_index(tmp_path)
    assert "Evaluation" in (tmp_path / "index.html").read_text()
    finding = {"confirmed": True, "words": "</h2><script>alert(1)</script>"}
    document = {
        "findings": [finding, {**finding, "confirmed": False}],
        "tested": 7,
        "target": {"name": "lab:one"},
    }
    (tmp_path / "findings.json").write_text(json.dumps(document))
    (tmp_path / "rounds" / "01" / "dataset").mkdir(parents=True)
    (tmp_path / "rounds" / "01" / "dataset" / "index.html").touch()
    (tmp_path / "rounds" / "02").symlink_to(tmp_path / "rounds" / "01")
    write_index(tmp_path)
    text = (tmp_path / "index.html").read_text()
    assert links(tmp_path) == ["report.html", "rounds/01/dataset/index.html"]
    assert "lab:one: 1 of 7 hypotheses confirmed" in text and "<script" not in text
    document["findings"] = [
        {**finding, "words": "dotted", "words_untrusted": True},
        {**finding, "words": "red"},
    ]
    (tmp_path / "findings.json").write_text(json.dumps(document))
    write_index(tmp_path)
    text = (tmp_path / "index.html").read_text()
    assert "confirmed: “red”; 1 with words untrusted." in text and "dotted" not in text
    (tmp_path / "mend.json").write_text(json.dumps({"headline": "Helps & <b>more</b>"}))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "README.md").touch()
    write_index(tmp_path)
    assert links(tmp_path)[:2] == ["report.html", "model/README.md"]
    assert "Helps &amp; &lt;b&gt;more&lt;/b&gt;" in (tmp_path / "index.html").read_text()


@pytest.mark.parametrize(
    "content", ["no json", "[]", '{"findings": 3}', '{"findings": [[]], "tested": "x"}', "[" * 9999]
)
def test_an_odd_document_has_a_page_and_no_line(tmp_path: Path, content: str) -> None:
    (tmp_path / "report.html").touch()
    (tmp_path / "findings.json").write_text(content)
    write_index(tmp_path)
    assert links(tmp_path) == ["report.html"]


def test_somebodys_own_page_stays(tmp_path: Path) -> None:
    (tmp_path / "report.html").touch()
    (tmp_path / "index.html").write_text("<h1>My pages</h1>")
    write_index(tmp_path)
    assert (tmp_path / "index.html").read_text() == "<h1>My pages</h1>"
    (tmp_path / "index.html").unlink()
    (tmp_path / "other.html").write_text("mine")
    (tmp_path / "index.html").symlink_to(tmp_path / "other.html")
    write_index(tmp_path)
    assert (tmp_path / "other.html").read_text() == "mine"


@pytest.mark.parametrize("dark", [False, True])
def test_it_is_read_on_a_phone(
    screened: Path, tmp_path: Path, open_page: Callable, dark: bool
) -> None:
    dataset = Path(shutil.copytree(screened, tmp_path / ("a_long_name_of_a_folder_" * 5)))
    for name in ("calibrate", "review"):
        (dataset / ".counterfoil" / f"{name}.html").touch()
    write_index(dataset)
    page = open_page(dataset / "index.html", width=400, dark=dark)
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert faint_texts(page) == []


def test_a_long_line_ends_with_a_whole_sentence(tmp_path: Path) -> None:
    """Cut a headline that is longer than a line of the index between words."""
    headline = (
        "This helps. But cat loses 12.3 points. " + "On 100 held-out failures it gains more, " * 10
    )
    for text, shown in (
        (headline, "This helps. But cat loses 12.3 points. …"),
        ("word " * 100, f"{'word ' * 59}…"),
        ("x" * 400, f"{'x' * 298} …"),
    ):
        (tmp_path / "mend.json").write_text(json.dumps({"headline": text}))
        (tmp_path / "report.html").write_text("")
        assert [entry.line for entry in index_entries(tmp_path)] == [shown]
