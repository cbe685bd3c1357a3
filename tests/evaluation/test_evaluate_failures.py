"""The failure browser: which images it shows, their pictures in sheets, and the page in a real
browser."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus, urlencode

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from colour_world import COLOURS, FIRST, NAMES
from counterfoil.data.labelled_images import LabelledImages
from counterfoil.evaluation.dataset import labelled_subject
from counterfoil.evaluation.failures import (
    COLUMNS,
    IMAGES_A_SHEET,
    SIDE,
    base_partners,
    browser_html,
    choose_failures,
    failures_data,
    sheet_file,
    sheet_rows,
    sprite_sheets,
)
from counterfoil.evaluation.results import Evaluation
from counterfoil.regular_files import visible_text
from support.images import encoded

if TYPE_CHECKING:
    from playwright.sync_api import Page


def world(n_shifts: int = 3, n_classes: int = 4, n: int = 25) -> tuple[NDArray, NDArray, NDArray]:
    """Return groups, labels and indices of a whole dataset, the base first."""
    groups, labels, indices = (axis.ravel() for axis in np.indices((n_shifts, n_classes, n)))
    return groups, labels, indices


def test_every_readable_wrong_image_is_there_with_its_base_image() -> None:
    groups, labels, indices = world()
    rng = np.random.default_rng(0)
    correct = rng.random((len(groups), 3)) < 0.8
    readable = rng.random(len(groups)) < 0.9
    partners = base_partners(labels, groups, indices, readable, [1])
    chosen = choose_failures(correct | ~readable[:, None], labels, groups, partners, 10_000)
    assert set(chosen.rows) == {
        row for row in range(len(groups)) if readable[row] and not correct[row].all()
    }
    assert chosen.count == len(chosen.rows)
    for row, partner in zip(chosen.rows, chosen.partners, strict=True):
        # row of the base's image of this class and index
        whole = int(labels[row] * 25 + indices[row])
        assert partner == (whole if groups[row] == 1 and readable[whole] else -1)
    assert set(chosen.images) == set(chosen.rows) | {row for row in chosen.partners if row >= 0}


def test_of_too_many_every_cell_gives_its_share_and_the_most_telling_first() -> None:
    groups, labels, indices = world()
    correct = np.ones((len(groups), 4), dtype=bool)
    correct[groups == 2] = False
    # five images of a class that all models get wrong
    correct[(groups == 2) & (indices >= 5), 1:] = True
    lonely = (groups == 1) & (labels == 0) & (indices < 2)
    correct[lonely, 0] = False
    readable = np.ones(len(groups), dtype=bool)
    partners = base_partners(labels, groups, indices, readable, [1, 2])
    chosen = choose_failures(correct, labels, groups, partners, 22)
    assert chosen.count == 4 * 25 + 2 and len(chosen.rows) == 22
    cells, counts = np.unique(
        np.stack([groups, labels])[:, chosen.rows], axis=1, return_counts=True
    )
    assert dict(zip(map(tuple, cells.T.tolist()), counts.tolist(), strict=True)) == {
        (1, 0): 2, (2, 0): 5, (2, 1): 5, (2, 2): 5, (2, 3): 5,
    }  # fmt: skip
    assert not correct[[row for row in chosen.rows if groups[row] == 2]].any()
    assert np.all(np.diff(chosen.rows) > 0)


def test_a_flipped_image_comes_before_one_that_was_wrong_already() -> None:
    groups, labels, indices = world(2, 1, 10)
    correct = np.ones((20, 3), dtype=bool)
    correct[:10, :2] = False
    correct[0] = True
    correct[10] = [False, True, True]  # one model flips
    correct[11:, :2] = False  # two are wrong, and were wrong on the base
    partners = base_partners(labels, groups, indices, np.ones(20, dtype=bool), [1])
    chosen = choose_failures(correct, labels, groups, partners, 2)
    assert 10 in chosen.rows


def test_nothing_wrong_is_nothing_chosen() -> None:
    groups, labels, indices = world()
    right = np.ones((len(groups), 2), dtype=bool)
    readable = np.ones(len(groups), dtype=bool)
    partners = base_partners(labels, groups, indices, readable, [])
    chosen = choose_failures(right, labels, groups, partners, 5)
    assert chosen.count == 0 and len(chosen.images) == 0


SHEET_COLOURS = [(at * 37 % 256, at * 91 % 256, at * 151 % 256) for at in range(IMAGES_A_SHEET + 5)]


def near(first: tuple[int, ...], second: tuple[int, ...]) -> bool:
    return all(abs(a - b) <= 14 for a, b in zip(first, second, strict=True))


def test_every_picture_is_in_its_square() -> None:
    contents = list(sprite_sheets(Image.new("RGB", (40, 40), colour) for colour in SHEET_COLOURS))
    assert len(contents) == 2
    assert sheet_rows(len(SHEET_COLOURS)) == [COLUMNS, 1]
    sheets = [Image.open(io.BytesIO(sheet)).convert("RGB") for sheet in contents]
    assert [sheet.size for sheet in sheets] == [(40 * COLUMNS, 40 * COLUMNS), (40 * COLUMNS, 40)]
    for index, colour in enumerate(SHEET_COLOURS):
        at = index % IMAGES_A_SHEET
        pixel = sheets[index // IMAGES_A_SHEET].getpixel(
            (at % COLUMNS * 40 + 20, at // COLUMNS * 40 + 20)
        )
        assert isinstance(pixel, tuple) and near(pixel, colour), index


@pytest.mark.parametrize("size", [(1000, 500), (300, 900)])
def test_a_large_picture_is_reduced_in_its_proportions(size: tuple[int, int]) -> None:
    [sheet] = sprite_sheets([Image.new("RGB", size, (250, 10, 10))])
    picture = Image.open(io.BytesIO(sheet)).convert("RGBA").crop((0, 0, SIDE, SIDE))
    box = picture.getchannel("A").point([255 * (alpha > 128) for alpha in range(256)]).getbbox()
    assert box is not None
    width = box[2] - box[0]
    height = box[3] - box[1]
    assert max(width, height) == SIDE
    assert abs(width / height - size[0] / size[1]) < 0.05 * size[0] / size[1]


def test_a_picture_that_cannot_be_decoded_leaves_its_square_empty() -> None:
    [sheet] = sprite_sheets(
        [Image.new("RGB", (20, 20), (1, 200, 3)), None, Image.new("RGB", (20, 20), (1, 2, 200))]
    )
    alpha = Image.open(io.BytesIO(sheet)).convert("RGBA").getchannel("A")
    assert [alpha.getpixel((20 * index + 10, 10)) for index in range(4)] == [255, 0, 255, 0]


Opened = Callable[..., "Page"]
THOUSANDS = 5_000


@pytest.fixture(scope="module")
def failures(evaluation: Evaluation) -> Path:
    return evaluation.files["failures"]


def number_shown(page: Page) -> int:
    return int(page.locator("#count").inner_text().split(" of ")[0].replace(",", ""))


def by_predictions(
    evaluation: Evaluation,
    model: str | None,
    shift: str | None,
    label: str | None,
    flips: bool,
    reply: str | None = None,
) -> int:
    """Count the images that a filter shows, from the table of predictions."""
    import pyarrow.parquet as pq

    rows = pq.read_table(evaluation.files["predictions"]).to_pylist()
    correct = {row["key"]: right_by_model(row, evaluation) for row in rows}
    answered = {
        (row["key"], facts.name): row[f"answered.{facts.name}"]
        for row in rows
        for facts in evaluation.models
    }
    count = 0
    for key, right in correct.items():
        name, class_id, index = key.rsplit("_", 2)
        base = correct[f"base_{class_id}_{index}"]
        failing = [
            scored
            for scored, is_right in right.items()
            if not is_right
            and (not flips or (name != "base" and base[scored]))
            and reply in (None, answered[key, scored])
        ]
        wanted = (shift in (None, name)) and (label in (None, class_id))
        count += wanted and (bool(failing) if model is None else model in failing)
    return count


def right_by_model(row: dict[str, Any], evaluation: Evaluation) -> dict[str, bool]:
    return {model.name: bool(row[f"right.{model.name}"]) for model in evaluation.models}


def test_every_filter_shows_what_the_predictions_say(
    failures: Path, evaluation: Evaluation, open_page: Opened
) -> None:
    page = open_page(failures)
    models = [None, evaluation.models[0].name, evaluation.models[3].name]
    seen = set()
    sides = (models, (None, "base", "swap"), (None, "01"), (False, True), (None, "blue"))
    for model, shift, label, flips, reply in product(*sides):
        filters = {
            "model": model,
            "shift": shift,
            "class": label,
            "flipped": "1" if flips else None,
            "answered": reply,
        }
        fragment = urlencode({name: value for name, value in filters.items() if value})
        page.evaluate("hash => { location.hash = hash }", fragment)
        page.wait_for_function(
            "name => document.querySelector('#shift').value >= 0 === (name !== null)", arg=shift
        )
        expected = by_predictions(evaluation, model, shift, label, flips, reply)
        assert number_shown(page) == expected, fragment
        assert min(60, expected) <= page.locator(".tile").count() <= expected
        seen.add(expected)
    assert len(seen) > 5 and 0 in seen


def test_choosing_keeps_the_filter_in_the_address_and_counts_each_choice(
    failures: Path, evaluation: Evaluation, open_page: Opened
) -> None:
    page = open_page(failures)
    model = evaluation.models[1].name
    page.select_option(
        "#model", label=f"{model} ({by_predictions(evaluation, model, None, None, False)})"
    )
    page.select_option(
        "#shift", label=f"swap ({by_predictions(evaluation, model, 'swap', None, False)})"
    )
    page.get_by_label("base right, shifted wrong").check()
    assert number_shown(page) == by_predictions(evaluation, model, "swap", None, True)
    again = open_page(failures, fragment="#" + page.url.partition("#")[2])
    assert again.locator("#count").inner_text() == page.locator("#count").inner_text()
    assert (
        model in again.locator("#count").inner_text()
        and "swap" in again.locator("#count").inner_text()
    )
    assert again.get_by_label("base right, shifted wrong").is_checked()
    page.get_by_role("button", name="Show all").click()
    assert number_shown(page) == by_predictions(evaluation, None, None, None, False)
    assert page.url.partition("#")[2] == ""


def test_answers_are_chosen_and_confidence_orders(
    failures: Path, evaluation: Evaluation, open_page: Opened
) -> None:
    page = open_page(
        failures, fragment="#shift=swap&model=" + quote_plus(evaluation.models[1].name)
    )

    sure = page.locator(".tile .line:nth-of-type(3)")

    def shares() -> list[int]:
        return [int(text.removesuffix("\u00a0%")) for text in sure.all_inner_texts()]

    by_class = shares()
    page.select_option("#order", "surest")
    assert shares() == sorted(by_class, reverse=True) and len(set(by_class)) > 1
    page.select_option("#order", "unsurest")
    assert shares() == sorted(by_class) and "order=unsurest" in page.url
    page.select_option("#answered", label="blue (4)")
    assert (
        set(page.locator(".tile .wrong").all_inner_texts()) == {"blue"} and number_shown(page) == 4
    )
    assert "answered blue" in page.locator("#count").inner_text()
    again = open_page(failures, fragment="#" + page.url.partition("#")[2])
    assert again.locator(".tile").all_inner_texts() == page.locator(".tile").all_inner_texts()


def test_a_folder_shows_paths_and_no_filter_that_has_nothing_to_choose(
    photographed: Evaluation, open_page: Opened
) -> None:
    page = open_page(
        photographed.files["failures"], fragment="#image=" + photographed.failures()["key"][0]
    )
    dialog = page.get_by_role("dialog")
    shown = {dialog.locator(".path").inner_text()}
    page.keyboard.press("ArrowRight" if dialog.locator("#next").is_enabled() else "ArrowLeft")
    shown.add(dialog.locator(".path").inner_text())
    assert shown == {f"green/{visible_text(FIRST)}", "green/1.png"}
    assert "Class id 0001." in dialog.inner_text() and "shift" not in dialog.inner_text()
    page.keyboard.press("Escape")
    assert [
        page.locator(f"#{field}").is_visible() for field in ("model", "shift", "class", "answered")
    ] == [False] * 4
    assert not page.get_by_label("base right, shifted wrong").is_visible()
    assert page.locator(".tile .where").all_inner_texts()[1] in (visible_text(FIRST), "1.png")
    assert page.title().endswith("failures") and page.locator("img").count() == 0


def test_a_tile_and_its_zoom_show_the_pair_the_key_and_every_answer(
    failures: Path, evaluation: Evaluation, open_page: Opened
) -> None:
    sharp = evaluation.models[0].name
    page = open_page(failures, fragment=f"#shift=swap&class=00&flipped=1&model={quote_plus(sharp)}")
    tile = page.locator(".tile").first
    assert tile.inner_text().split("\n")[0] == "red → green"
    tile.click()
    dialog = page.get_by_role("dialog")
    assert dialog.get_by_role("heading").inner_text() == "red"
    keys = dialog.locator(".zoom-pair code").all_inner_texts()
    assert keys == ["base_00_000000", "swap_00_000000"]
    figures = dialog.locator("figcaption").all_inner_texts()
    assert "answered red" in figures[0] and "answered green" in figures[1]
    rows = {
        row.locator("th").inner_text().split("\n")[0]: row.locator("td").all_inner_texts()
        for row in dialog.locator("tbody tr").all()
    }
    assert set(rows) == {model.name for model in evaluation.models}
    assert [model.name for model in evaluation.models if model.near_chance] == [
        row.split("\n")[0]
        for row in dialog.locator("tbody th").all_inner_texts()
        if "near chance" in row
    ]
    base, shifted = rows[sharp]
    assert base.startswith("red") and base.endswith("right") and "%" in base
    assert shifted.startswith("green") and shifted.endswith("wrong") and "%" in shifted
    assert colours_of_pair(page) == [
        pytest.approx(COLOURS[0], abs=16),
        pytest.approx(COLOURS[1], abs=16),
    ]


def colours_of_pair(page: Page) -> list[tuple[int, ...]]:
    """Return the middle pixel of each picture in the zoom, from a screenshot."""
    middles = []
    for sprite in page.locator("dialog .sprite").all():
        picture = Image.open(io.BytesIO(sprite.screenshot())).convert("RGB")
        pixel = picture.getpixel((picture.width // 2, picture.height // 2))
        assert isinstance(pixel, tuple)
        middles.append(pixel)
    return middles


def test_the_zoom_goes_by_keyboard_and_gives_the_focus_back(
    failures: Path, open_page: Opened
) -> None:
    page = open_page(failures, fragment="#shift=swap&flipped=1")
    shown = number_shown(page)
    page.locator(".tile").nth(1).focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    assert dialog.locator("#position").inner_text() == f"2 of {shown}"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert dialog.locator("#position").inner_text() == f"4 of {shown}"
    page.keyboard.press("ArrowLeft")
    assert "image=" in page.url
    page.keyboard.press("Escape")
    page.wait_for_function("!location.hash.includes('image=')")
    assert not dialog.is_visible()
    assert page.evaluate("document.activeElement.dataset.place") == "2"
    page.keyboard.press(" ")
    assert dialog.is_visible()
    for _ in range(shown + 2):
        page.keyboard.press("ArrowRight")
    assert dialog.locator("#position").inner_text() == f"{shown} of {shown}"


@pytest.mark.parametrize("width", [400, 1300])
def test_no_page_scrolls_sideways(failures: Path, open_page: Opened, width: int) -> None:
    page = open_page(failures, width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.locator(".tile").first.click()
    assert page.evaluate(
        "document.querySelector('dialog').scrollWidth <="
        " document.querySelector('dialog').clientWidth"
    )
    box = page.get_by_role("dialog").bounding_box()
    assert box and box["x"] >= 0 and box["x"] + box["width"] <= width


def many_failures(folder: Path) -> int:
    """Write a page of thousands of failures of two models on images without a folder; return their
    count."""
    classes = len(NAMES)
    groups = ("base", "night")
    n = THOUSANDS * 6 // 5
    labels = np.arange(n) % classes
    shifts = (np.arange(n) >= n // 6).astype(np.int64)

    def read(wanted: frozenset[str] | None) -> Any:
        for index, key in enumerate(keys):
            if wanted is None or key in wanted:
                yield key, encoded(COLOURS[labels[index]])

    keys = tuple(f"image-{index:05d}" for index in range(n))
    images = LabelledImages("many", "0" * 64, keys, labels, shifts, groups, read, class_names=NAMES)
    subject = labelled_subject("many", images, None, "base")
    prediction = np.stack([(labels + shifts) % classes, (labels + 1) % classes], axis=1).astype(
        np.int32
    )
    correct = prediction == labels[:, None]
    readable = np.ones(n, dtype=bool)
    partners = base_partners(labels, shifts, subject.indices, readable, [1])
    chosen = choose_failures(correct, labels, shifts, partners, THOUSANDS)
    models = [(name, lambda output: NAMES[output], "") for name in ("one", "other")]
    sure = np.full((n, 2), 0.5, dtype=np.float32)
    order = ["night", "base"]
    data = failures_data(subject, prediction, correct, sure, chosen, models, order)
    wanted = frozenset(keys[row] for row in chosen.images)
    for number, sheet in enumerate(
        sprite_sheets(images.decoded(image) for _, image in images.images(wanted))
    ):
        file = folder / sheet_file(number)
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(sheet)
    shown = {
        "found": chosen.count,
        "shown": len(chosen.rows),
        "images": n,
        "paired": False,
        "changed": False,
    }
    (folder / "failures.html").write_text(
        browser_html("failures-of-classes.html.j2", "many", "", data, **shown)
    )
    return chosen.count


def test_thousands_of_failures_are_drawn_as_they_are_seen(
    tmp_path: Path, open_page: Opened
) -> None:
    count = many_failures(tmp_path)
    requests: list[str] = []
    page = open_page(tmp_path / "failures.html")
    page.on("request", lambda request: requests.append(request.url))
    assert number_shown(page) == THOUSANDS < count
    assert f"This page shows {THOUSANDS:,} of them" in page.locator(".warning").inner_text()
    most = 0
    height = page.evaluate("document.documentElement.scrollHeight")
    for share in (0.0, 0.2, 0.5, 0.51, 0.9, 1.0):
        page.evaluate("share => scrollTo(0, share * document.documentElement.scrollHeight)", share)
        page.wait_for_function(
            "[...document.querySelectorAll('.tile')].some(one => { const box ="
            " one.getBoundingClientRect();"
            " return box.top >= 0 && box.bottom <= innerHeight })"
        )
        most = max(most, page.evaluate("document.querySelectorAll('*').length"))
    assert most < 5_000, "the page holds more than what is near the eye"
    assert page.locator(f".tile[data-place='{THOUSANDS - 1}']").is_visible()
    assert page.evaluate("document.documentElement.scrollHeight") == height
    assert 0 < len(requests) < THOUSANDS // 144, "not every sheet is needed"
    page.locator(f".tile[data-place='{THOUSANDS - 1}']").click()
    assert (
        page.get_by_role("dialog").locator("#position").inner_text()
        == f"{THOUSANDS:,} of {THOUSANDS:,}"
    )


def test_a_name_is_no_markup(failures: Path, open_page: Opened, tmp_path: Path) -> None:
    text = failures.read_text()
    start = text.index('id="data">') + len('id="data">')
    end = text.index("</script>", start)
    document = json.loads(text[start:end])
    document["names"] = [
        "<img src=x onerror='document.title=\"broken\"'>" for _ in document["names"]
    ]
    (tmp_path / "failures.html").write_text(
        text[:start] + json.dumps(document).replace("<", "\\u003c") + text[end:]
    )
    page = open_page(tmp_path / "failures.html", fragment="#image=swap_01_000002")
    assert "onerror" in page.get_by_role("dialog").inner_text()
    assert page.title().endswith("failures") and page.locator("dialog img").count() == 0
