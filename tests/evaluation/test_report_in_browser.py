"""The report in a real browser: sorting, contents, the choice of a model, links, contrast, narrow
pages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote_plus

import pytest

from contrast import faint_texts
from counterfoil.evaluation.results import Evaluation
from counterfoil.report.labels import (
    CheckedShare,
    JudgedLabels,
    LabelChecks,
    SelectedByPeople,
    ShiftChecks,
)
from counterfoil.report.reference import ReferenceResult
from counterfoil.report.results import LeftOut, ResultRow, ResultRows, classes_of
from support.reports import evaluation_html

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

Opened = Callable[..., "Page"]


@pytest.fixture(scope="module")
def report(evaluation: Evaluation) -> Path:
    return evaluation.files["report"]


@pytest.fixture(scope="module")
def full_report(evaluation: Evaluation, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a report with every statement on its base and its labels, and a class near chance."""
    share = CheckedShare(0.12, 0.08, 0.17)
    judge = JudgedLabels(100, 12, share, None)
    people = SelectedByPeople(40, share, 0.61, 40, share, -0.02)
    results = evaluation.results
    low = LeftOut("01", "green", 12, 12, "near chance", 0.1)
    rows = [row for row in results.rows if (row.measure, row.class_id) != ("impact", "01")]
    for model in results.models:
        for name, value in (("validation", 0.7), ("validation_base", 0.2), ("validation_gap", 0.5)):
            rows.append(
                ResultRow(name, model=model.name, value=value, low=value - 0.1, high=value + 0.1)
            )
    shown = replace(
        results,
        groups=(
            replace(results.groups[0], left_out=(low,)),
            *(replace(shift, left_out=(low,)) for shift in results.shifts),
        ),
        rows=ResultRows(rows),
        reference=ReferenceResult("lab:wardrobe:validation", 150, 3),
        label_checks=LabelChecks(
            "lab:clip", 150, (ShiftChecks("base", judge), ShiftChecks("swap", judge, people)), 3
        ),
    )
    path = tmp_path_factory.mktemp("full") / "report.html"
    path.write_text(evaluation_html(shown))
    return path


def table_of(page: Page, caption: str) -> Locator:
    return page.locator("table", has=page.locator("caption", has_text=caption)).first


def column(table: Locator, index: int) -> list[str]:
    return [
        row.locator("th, td").nth(index).inner_text() for row in table.locator("tbody tr").all()
    ]


@pytest.mark.parametrize("press", ["click", "Enter", pytest.param(" ", marks=pytest.mark.whole)])
def test_headings_sort_by_pointer_and_key_and_say_how(
    report: Path, open_page: Opened, press: str
) -> None:
    page = open_page(report)
    # which unfolds the section
    page.get_by_role("navigation").get_by_role("link", name="Models", exact=True).click()
    table = table_of(page, "The models")
    button = table.get_by_role("button", name="base accuracy")
    heading = table.locator("th", has=page.get_by_role("button", name="base accuracy"))

    def sort() -> None:
        if press == "click":
            button.click()
        else:
            button.focus()
            page.keyboard.press(press)

    def values() -> list[float]:
        return [float(text.split("\n")[0]) for text in column(table, 1)]

    sort()
    assert heading.get_attribute("aria-sort") == "descending"
    assert values() == sorted(values(), reverse=True) and len(set(values())) > 1
    sort()
    assert heading.get_attribute("aria-sort") == "ascending"
    assert values() == sorted(values())
    table.get_by_role("button", name="model").click()
    assert table.locator("th[aria-sort]").count() == 1
    assert table.locator("th[aria-sort]").get_attribute("aria-sort") == "ascending"
    assert column(table, 0) == sorted(column(table, 0))


def test_a_fixed_row_stays_on_top(report: Path, open_page: Opened) -> None:
    page = open_page(report)
    table = table_of(page, "Drop of each model under each shift")
    for _ in range(2):
        table.get_by_role("button", name="impact").click()
        assert column(table, 0)[0].startswith("base accuracy")


def test_every_table_has_a_caption_and_every_heading_a_scope(
    full_report: Path, open_page: Opened
) -> None:
    page = open_page(full_report)
    assert page.locator("table").count() > 6
    for table in page.locator("table").all():
        assert table.locator("caption").text_content()
        assert table.locator("th:not([scope])").count() == 0
        assert table.locator("tbody tr:not(:has(th[scope=row]))").count() == 0
    sortable = page.locator("th[data-sort]")
    assert sortable.count() > 20
    assert page.locator("th[data-sort] > button").count() == sortable.count()


@pytest.mark.parametrize("width", [400, pytest.param(1300, marks=pytest.mark.whole)])
def test_the_contents_lead_to_every_section(
    full_report: Path, open_page: Opened, width: int
) -> None:
    page = open_page(full_report, width=width)
    contents = page.get_by_role("navigation", name="Contents")
    links = contents.locator("a[href^='#']")
    headings = page.locator("h2").all()
    assert [link.get_attribute("href") for link in links.all()] == [
        f"#{h2.get_attribute('id')}" for h2 in headings
    ]
    assert len(headings) > 6
    for link, heading in zip(links.all(), headings, strict=True):
        link.click()
        page.wait_for_function(
            "id => { const { top } = document.getElementById(id).getBoundingClientRect();"
            " return top >= 0 && top < innerHeight }",
            arg=heading.get_attribute("id"),
        )
        bar = contents.bounding_box()
        title = heading.bounding_box()
        # On a narrow screen the contents take several lines and scroll away with the page.
        assert (
            bar
            and title
            and (bar["y"] >= 0) is (width > 576)
            and title["y"] >= bar["y"] + bar["height"] - 1
        ), "a heading lies under the bar"


def test_the_chosen_model_is_reported_everywhere_in_the_table_of_classes(
    report: Path, evaluation: Evaluation, open_page: Opened
) -> None:
    page = open_page(report)
    chooser = page.locator("#heat-model")
    table = page.locator("table.classes")
    assert "models not near chance, averaged" in table.locator("caption").inner_text()
    index = next(at for at, model in enumerate(evaluation.models) if model.name.endswith("no_red"))
    name = evaluation.models[index].name
    chooser.select_option(str(index))
    assert table.locator("caption").inner_text() == f"Points lost, {name}"
    assert "averaged" not in page.locator("p", has=page.locator(".whose")).inner_text()
    assert name in page.locator("#class-numbers caption").inner_text()
    for score in [
        score for shift in evaluation.shifts for score in classes_of(evaluation.results, shift.name)
    ]:
        cell = table.locator(
            f"a[href='failures.html#model={quote_plus(name)}&shift={score.shift}&class={score.class_id}']"
        )
        words = cell.get_attribute("aria-label") or ""
        assert name in words and "averaged" not in words
        assert f"base {100 * score.base_accuracy[index]:.1f} %" in words
        assert f"drop {100 * score.drops[index]:.1f} points" in words
        assert ("near chance" in words) == score.near_chance[index]
        assert int(cell.inner_text().replace("−", "-")) == round(100 * score.drops[index])
    chooser.select_option("")
    assert "averaged over models" in (table.locator("td a").first.get_attribute("aria-label") or "")
    assert "model=" not in (table.locator("td a").first.get_attribute("href") or "")


def test_a_row_near_a_models_chance_has_no_average(
    report: Path, evaluation: Evaluation, open_page: Opened
) -> None:
    page = open_page(report)
    index = next(at for at, model in enumerate(evaluation.models) if model.name.endswith("no_red"))
    red, blue = (
        page.locator(f"table.classes tr[data-class='{class_id}'] td.impact")
        for class_id in ("00", "02")
    )
    before = red.inner_text()
    page.locator("#heat-model").select_option(str(index))
    assert (red.inner_text(), red.get_attribute("data-value")) == ("·", "")
    assert "floor" in (red.get_attribute("class") or "") and "floor" not in (
        blue.get_attribute("class") or ""
    )
    assert blue.inner_text() != "·"
    page.locator("#heat-model").select_option("")
    assert red.inner_text() == before != "·" and "floor" not in (red.get_attribute("class") or "")


def test_every_number_of_a_class_is_shown_without_a_pointer(
    report: Path, evaluation: Evaluation, open_page: Opened
) -> None:
    page = open_page(report)
    page.locator("#heat-class").select_option("02")
    table = page.locator("#class-numbers")
    assert "blue" in table.locator("caption").inner_text()
    rows = {
        row[0]: row
        for row in (line.split("\t") for line in table.locator("tbody").inner_text().split("\n"))
    }
    for score in [
        score for shift in evaluation.shifts for score in classes_of(evaluation.results, shift.name)
    ]:
        if score.class_id == "02":
            base, shifted = map(
                evaluation.results.mean_of_sound, (score.base_accuracy, score.accuracy)
            )
            assert base is not None and shifted is not None and score.impact is not None
            numbers = [float(text.replace("−", "-")) for text in rows[score.shift][1:4]]
            assert numbers == pytest.approx(
                [100 * base, 100 * shifted, 100 * score.impact.value], abs=0.06
            )
            assert rows[score.shift][5:7] == [str(score.shift_images), str(score.base_images)]


def test_nothing_is_reported_by_hovering_alone(full_report: Path, open_page: Opened) -> None:
    page = open_page(full_report)
    assert page.locator("[title]").count() == 0
    # Tables have the numbers of points and bars of figures too.
    page.locator("details.numbers summary").first.click()
    numbers = " ".join(page.locator("table").all_inner_texts())
    for tip in page.locator("svg title").all_text_contents():
        for number in (
            word for word in tip.replace("(", " ").split() if word.replace(".", "").isdigit()
        ):
            assert number in numbers, tip


def test_a_cell_leads_to_its_failures(
    report: Path, evaluation: Evaluation, open_page: Opened
) -> None:
    page = open_page(report)
    page.locator("#heat-model").select_option("0")
    page.locator("table.classes tr[data-class='00'] a[href*='shift=swap']").click()
    page.wait_for_url("**/failures.html#**")
    shown = page.locator("#count").inner_text()
    assert evaluation.models[0].name in shown and "red" in shown and "swap" in shown
    assert page.locator(".tile").count() == int(shown.split(" ")[0]) > 0
    page.go_back()
    page.locator("table.drops tbody a[href*='shift=swap']").first.click()
    page.wait_for_url("**/failures.html#**")
    assert "swap" in page.locator("#count").inner_text()
    page.go_back()
    key = page.locator("figure.pair a").first.get_attribute("href") or ""
    page.locator("figure.pair a").first.click()
    page.wait_for_url("**/failures.html#**")
    assert key.split("=")[1] in page.get_by_role("dialog").inner_text()


@pytest.mark.parametrize("dark", [pytest.param(False, marks=pytest.mark.whole), True])
def test_every_text_can_be_read(
    full_report: Path,
    report: Path,
    evaluation: Evaluation,
    graded: Evaluation,
    open_page: Opened,
    dark: bool,
) -> None:
    for path in (full_report, report, graded.files["report"]):
        page = open_page(path, dark=dark)
        page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        assert faint_texts(page) == []
    page = open_page(evaluation.files["failures"], dark=dark)
    assert faint_texts(page) == []
    page.locator(".tile").first.click()
    assert faint_texts(page) == []


def test_a_narrow_page_does_not_scroll_sideways_and_its_figures_can_be_read(
    full_report: Path, graded: Evaluation, open_page: Opened
) -> None:
    page = open_page(graded.files["report"], width=400)
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    page = open_page(full_report, width=400)
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    heights = page.evaluate(
        "[...document.querySelectorAll('svg.figure text')].map(one =>"
        " parseFloat(getComputedStyle(one).fontSize)"
        " * Math.hypot(one.getScreenCTM().a, one.getScreenCTM().b))"
    )
    assert len(heights) > 10 and min(heights) >= 9.9
    # Scrolling parts are reachable by keyboard and have a label.
    for sheet in page.locator(".sheet:has(> svg), .sheet:has(> table)").all():
        assert sheet.get_attribute("tabindex") == "0" and sheet.get_attribute("aria-label")


def test_no_unchecked_shift_is_a_headline_and_the_gap_stands_below(
    full_report: Path, report: Path, open_page: Opened
) -> None:
    page = open_page(full_report)
    warning = page.locator(".warning").first
    tiles = page.locator("dl.headlines")
    assert "70.0 % → 20.0 %" in warning.inner_text()
    table = table_of(page, "Accuracy on 150 images")
    above = warning.bounding_box()
    between = table.bounding_box()
    below = tiles.bounding_box()
    assert above and between and below and below["y"] < above["y"] < between["y"]
    message = page.locator(".message").inner_text()
    assert "swap" in message and "dusk" not in message
    # Spaces part the numbers without a style too, as in copied text or speech.
    cell = table.locator("tbody td").first
    assert cell.text_content() == "70.0 60.0 to 80.0"
    assert "smallest average drop" not in page.inner_text("body")
    assert "only_blue, near chance" in tiles.inner_text()
    labels = table_of(page, "Checks of the labels by shift")
    rows = {
        row.locator("th").inner_text().split("\n")[0]: row.inner_text()
        for row in labels.locator("tbody tr").all()
    }
    assert (
        "12.0 (8.0 to 17.0)" in rows["swap"]
        and "−0.02" in rows["swap"]
        and "unknown" in rows["swap"]
    )
    assert rows["dusk"].count("unchecked") == 4
    plain = open_page(report)
    assert "unchecked" in plain.locator(".message").inner_text()
    assert plain.locator("table.drops .unchecked").count() == 2


_GROUND = """one => {
  const context = document.createElement("canvas").getContext("2d");
  context.fillStyle = getComputedStyle(one).backgroundColor;
  context.fillRect(0, 0, 1, 1);
  return [...context.getImageData(0, 0, 1, 1).data];
}"""


def test_near_chance_is_grey_named_and_not_heated(full_report: Path, open_page: Opened) -> None:
    page = open_page(full_report)
    near, other = (
        page.locator(f"table.classes tr[data-class='{class_id}']") for class_id in ("01", "00")
    )
    assert (
        "near chance" in near.locator("th").inner_text()
        and "near chance" not in other.locator("th").inner_text()
    )
    bare = other.locator("th").evaluate(_GROUND)
    assert all(cell.evaluate(_GROUND) == bare for cell in near.locator("td.cell").all())
    assert any(cell.evaluate(_GROUND) != bare for cell in other.locator("td.cell").all())
    heading = page.locator("table.drops thead th", has_text="only")
    assert "near chance" in heading.inner_text()
    index = page.locator("table.drops thead th").all_inner_texts().index(heading.inner_text())
    cells = [
        row.locator("th, td").nth(index)
        for row in page.locator("table.drops tbody tr:not([data-fixed])").all()
    ]
    assert all(cell.evaluate(_GROUND) == bare for cell in cells)
