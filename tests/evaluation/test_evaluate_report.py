"""The report needs nothing else, leads to the failures beside it, shows the numbers, and escapes
what it shows."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg

from colour_world import SWAPPED, build_colours
from counterfoil.evaluation import evaluate
from counterfoil.evaluation.figures import KINDS, _with_tips, new_figure, place_labels
from counterfoil.evaluation.page import drop_tint, whole_points
from counterfoil.evaluation.results import Evaluation
from counterfoil.evaluation.tasks.classes.measures.label_checks import label_rows
from counterfoil.recipe import Recipe
from counterfoil.report.labels import CheckedShare, JudgedLabels, LabelChecks, ShiftChecks
from counterfoil.report.results import ClassFacts, ResultRows, Results, classes_of, estimate_row
from counterfoil.report.templates import templates_folder
from counterfoil.report.words import format_interval, format_points
from counterfoil.stats import Estimate
from support.pages import Page
from support.reports import evaluation_html


@pytest.fixture(scope="module")
def html(evaluation: Evaluation) -> str:
    return evaluation.files["report"].read_text(encoding="utf-8")


def test_the_page_is_well_formed_and_needs_no_other_resource(html: str) -> None:
    page = Page(html)
    assert all(
        link.startswith(("data:image/", "#", "failures.html"))
        for link in page.of("src", "href", "xlink:href")
    )
    assert any(link.startswith("data:image/") for link in page.of("src", "href", "xlink:href"))
    assert "url(http" not in html and "@import" not in html
    assert len(page.of("id")) == len(set(page.of("id")))


def test_the_page_shows_each_models_drops(html: str, evaluation: Evaluation) -> None:
    text = Page(html).spaced
    for model in evaluation.models:
        assert model.short_name.replace("_", "") in text.replace("_", "").replace(" ", "")
    assert "33.3" in text and "Wilson" in text and "bootstrap" in text
    assert html.count("<svg") == 2
    for shift in evaluation.results.by_impact:
        impact = evaluation.number("impact", group=shift.name)
        assert (
            impact is not None
            and f"{shift.name} {format_points(impact.value)} points ({format_interval(impact)})"
            in text
        )


def test_points_of_the_figures_name_their_model_and_numbers(
    html: str, evaluation: Evaluation
) -> None:
    for score in evaluation.scores:
        assert score.drop_base is not None and score.accuracy is not None
        numbers = f"base {100 * score.drop_base:.1f} %, {score.shift} {100 * score.accuracy:.1f} %"
        assert f"<title>{score.model}: {numbers}</title>" in html
    assert html.count("<title>local-dir:") == len(evaluation.scores)


def test_the_page_shows_each_classs_drop_and_lets_one_choose_a_model(
    html: str, evaluation: Evaluation
) -> None:
    for score in (
        score for shift in evaluation.shifts for score in classes_of(evaluation.results, shift.name)
    ):
        assert score.impact is not None
        drops = " ".join(f"{drop:.4f}" for drop in score.drops)
        link = f"failures.html#shift={score.shift}&amp;class={score.class_id}"
        cell = html[html.index(f'<a href="{link}"') - 400 : html.index(f'<a href="{link}"') + 400]
        assert f'data-value="{score.impact.value:.4f}" data-drops="{drops}">' in cell
        assert (
            f">{whole_points(score.impact.value)}</a>" in cell
            and f"drop {format_points(score.impact.value)} points" in cell
        )
    chooser = html[html.index('<select id="heat-model">') : html.index("</select>")]
    assert [
        f'value="{index}">{model.name}' in chooser for index, model in enumerate(evaluation.models)
    ] == [True for _ in evaluation.models]


def test_a_flipped_pair_shows_what_the_models_answer(html: str) -> None:
    pictures = html[html.index(">Pictures that flipped</h2>") : html.index(">Models</h2>")]
    # A red image is painted green: `sharp`, `small` and `no_blue` answer green, `no_green` answers
    # another colour, and the two models that never answer red were wrong before.
    assert '<span class="said">red</span><span class="said wrong">green</span>' in pictures
    assert "4 of 6 flipped, 3 to this" in pictures
    key = r"(swap|base)_(\d\d)_(\d{6})"
    matches = re.findall(rf'failures.html#image=({key})" aria-label="{key} and {key} among', html)
    pairs = [(match[4:7], match[7:10]) for match in matches if match[0] == "_".join(match[7:10])]
    assert pairs
    for base, shifted in pairs:
        assert (base[0], shifted[0]) == ("base", "swap")
        assert base[1:] == shifted[1:]
        assert int(shifted[2]) < SWAPPED


def test_a_page_of_many_models_shifts_classes_and_long_names_holds(evaluation: Evaluation) -> None:
    long = "a_shift_with_a_name_that_nobody_would_read_to_its_end"
    results = evaluation.results
    models = [
        replace(results.models[0], name=f"hf-hub:timm/{'very_' * 12}long.model-{i}")
        for i in range(41)
    ]
    shifts = [replace(results.shifts[1], name=f"{long}_{i}", kind=None) for i in range(41)]
    rows = [
        estimate_row(measure, value, model=model.name, group=shift.name)
        for model in models
        for shift in shifts
        for measure, value in (
            ("accuracy", 0.5),
            ("drop_base", 1.0),
            ("drop", Estimate(0.5, 0.4, 0.6)),
        )
    ]
    rows += [estimate_row("impact", Estimate(0.5, 0.4, 0.6), group=shift.name) for shift in shifts]
    rows += [
        estimate_row(measure, value, model=model, group=shift.name, class_id=f"c{i}")
        for shift in shifts
        for i in range(42)
        for measure, value, scored in (
            ("accuracy", i / 100, models), ("base_accuracy", 1.0, models), ("drop", 1 - i / 100, models),
            ("impact", Estimate(1 - i / 100, 0.0, 1.0), [None]),
        )
        for model in (facts.name if facts else "" for facts in scored)
    ]  # fmt: skip
    classes = tuple(ClassFacts(f"c{i}", f"class {i // 2}") for i in range(42))
    groups = (results.groups[0], *shifts)
    many = replace(
        results, models=tuple(models), groups=groups, classes=classes, rows=ResultRows(rows)
    )
    html = evaluation_html(many)
    page = Page(html)
    text = page.spaced
    assert "The table shows the 40 of 42 classes with the largest average drop" in text
    assert "class 0 (c0)" in text and "class 20 (c41)" not in text
    assert 'id="heat-model"' not in html
    assert max(len(drops.split()) for drops in re.findall(r'data-drops="([^"]*)"', html)) == 1
    assert "robustness.csv" in text and "behind each drop</summary>" not in html
    assert (
        "the figure shows the 40 largest" in text
        and "The figure shows the 36 shifts with the largest impact" in text
    )


def test_impact_against_slope_is_drawn_from_ten_shifts_on(evaluation: Evaluation) -> None:
    results = evaluation.results
    base, _, swap = results.groups
    for count in (9, 10):
        shifts = tuple(replace(swap, name=f"swap{i}") for i in range(count))
        swap_rows = [
            entry for entry in results.rows if entry.group == "swap" and not entry.class_id
        ]
        rows = ResultRows(
            replace(entry, group=shift.name) for shift in shifts for entry in swap_rows
        )
        html = evaluation_html(replace(results, groups=(base, *shifts), rows=rows))
        assert ("Impact against slope" in html) == (count == 10)
        assert "mean slope" not in html  # one kind needs no table of kinds


def test_a_kind_of_one_shift_has_no_range(html: str) -> None:
    table = html[html.index("<caption>Means over the shifts of a kind") :]
    rows = re.findall(
        r"<tr><th scope=\"row\">.*?</tr>", table[: table.index("</table>")], re.DOTALL
    )
    assert len(rows) == 2 and not any(" to " in row for row in rows)


def test_people_read_points_and_one_base_number(html: str, evaluation: Evaluation) -> None:
    text = Page(html).spaced
    assert "percentage points" not in text and "pp" not in text.split()
    models = html[html.index(">Models</h2>") : html.index(">How each number is computed</h2>")]
    for model in evaluation.models:
        base = evaluation.results.base_number(model.name)
        assert base is not None
        assert f">{format_points(base.value)} <" in models
    assert "top-1 (%)" not in models
    # Not every model is timm's, so the page does not name timm's preprocessing.
    assert (
        "preprocessing from timm" not in text
        and "a model of timm as timm does, at its test size" in text
    )


def test_labels_of_a_figure_stay_inside_it_and_apart() -> None:
    figure, axes = new_figure(8.0, 5.0)
    rng = np.random.default_rng(0)
    places = [
        (float(x), float(y), f"label number {i}") for i, (x, y) in enumerate(rng.random((23, 2)))
    ]
    for x, y, _ in places:
        axes.scatter(x, y)
    axes.margins(x=0.12, y=0.1)
    place_labels(axes, places)
    renderer = FigureCanvasAgg(figure).get_renderer()
    boxes = [text.get_window_extent(renderer) for text in axes.texts]
    frame = axes.get_window_extent(renderer)
    assert [text.get_text() for text in axes.texts] == [label for _, _, label in places]
    assert all(frame.x0 <= box.x0 and box.x1 <= frame.x1 for box in boxes)
    covered = sum(box.overlaps(other) for i, box in enumerate(boxes) for other in boxes[:i])
    naive = _all_to_the_right(axes, places, renderer)
    assert (
        covered
        <= 2
        < sum(box.overlaps(other) for i, box in enumerate(naive) for other in naive[:i])
    )


def _all_to_the_right(
    axes: Axes, places: list[tuple[float, float, str]], renderer: Any
) -> list[Any]:
    """Return the boxes of labels that are each at the right of their point."""
    texts = [
        axes.annotate(
            label, (x, y), xytext=(6, 0), textcoords="offset points", fontsize=8.5, va="center"
        )
        for x, y, label in places
    ]
    return [text.get_window_extent(renderer) for text in texts]


def test_figures_follow_the_theme(html: str) -> None:
    assert "var(--kind-colour)" in html
    assert not re.search(r"#010a[0-9a-f]{2}", html)


def test_names_are_escaped(tmp_path: Path, models: dict[str, str]) -> None:
    classes = (
        '[{id: "00", name: "<b>red</b> & $co$", source_label: 0}, {id: "01", name: green,'
        " source_label: 2}]"
    )
    dataset = build_colours(tmp_path / "d", f"source.classes={classes}")
    order = tmp_path / "order.txt"
    order.write_text("<b>red</b> & $co$\nanother\ngreen\n")
    page = (
        evaluate(dataset, [models["sharp"]], device="cpu", class_order=str(order))
        .files["report"]
        .read_text()
    )
    assert "<b>red</b>" not in page
    assert "&lt;b&gt;red&lt;/b&gt; &amp; $co$" in page


def test_numbers_are_written_for_reading() -> None:
    assert [format_points(value) for value in (None, 0.1234, -0.05, -0.0001)] == [
        "–",
        "12.3",
        "−5.0",
        "0.0",
    ]
    assert format_interval(Estimate(0.1, -0.02, 0.3)) == "−2.0 to 30.0"
    assert format_interval(Estimate(0.1)) == ""
    assert [whole_points(value) for value in (0.126, -0.126, 0.004, -0.004, 1.0)] == [
        "13",
        "−13",
        "0",
        "0",
        "100",
    ]
    assert drop_tint(None) == ""
    assert "--drop" in drop_tint(Estimate(0.2)) and "--gain" in drop_tint(Estimate(-0.2))


def test_every_kind_of_shift_has_its_colour_on_a_light_and_on_a_dark_page() -> None:
    template = (templates_folder("report-style.html.j2") / "report-style.html.j2").read_text(
        encoding="utf-8"
    )
    kinds = Recipe.model_json_schema()["$defs"]["ShiftSpec"]["properties"]["kind"]["anyOf"][0][
        "enum"
    ]
    assert {"background", "mined"} <= set(kinds) < set(KINDS)
    for kind in KINDS:
        colours = re.findall(rf"--kind-{kind}: (#[0-9a-f]{{6}});", template)
        assert len(set(colours)) == 2, kind


def with_checks(evaluation: Evaluation, checks: LabelChecks) -> Results:
    rows = ResultRows([*evaluation.results.rows, *label_rows(checks)])
    return replace(evaluation.results, label_checks=checks, rows=rows)


def test_an_estimate_of_label_error_stands_with_what_it_takes_for_granted(
    evaluation: Evaluation,
) -> None:
    share = CheckedShare(0.12, 0.08, 0.17)
    judge = JudgedLabels(100, 12, share, share)
    shifts = (
        ShiftChecks("base", judge),
        ShiftChecks("swap", JudgedLabels(100, 99, share, None), picked=True),
    )
    checks = LabelChecks("lab:clip", 150, shifts)
    shown = Page(evaluation_html(with_checks(evaluation, checks))).spaced
    assert "The correction assumes the same error rate here" in shown and "an upper" not in shown
    assert (
        "a shift whose keep rule chose images that this judge gets wrong" in shown
        and "99 of 100, picked" in shown
    )
    assert "its own drop" not in shown
    both = evaluation_html(with_checks(evaluation, replace(checks, also_scored=("lab:clip",))))
    assert (
        "This judge is also one of the models here: its own drop is part of this estimate." in both
    )


def test_a_name_from_elsewhere_is_no_markup_in_a_figure() -> None:
    tipped = _with_tips(
        '<svg><g id="bar"></g></svg>', "bar", ["</title><script>alert(1)</script> & more"]
    )
    assert "<script" not in tipped
    assert "<title>&lt;/title&gt;&lt;script&gt;alert(1)&lt;/script&gt; &amp; more</title>" in tipped
