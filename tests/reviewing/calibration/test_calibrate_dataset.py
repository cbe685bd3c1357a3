"""The page of thresholds: its counts are a build's, in the file, in a browser and by the
command."""

from __future__ import annotations

import base64
import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from calibrated import rows_of, run
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from playwright.sync_api import expect

from counterfoil.errors import UserError
from counterfoil.recipe import load_own_recipe
from counterfoil.reviewing.calibrate_dataset import calibrate, chosen_places
from counterfoil.reviewing.screen_scores import MOST_STEPS, shortest, steps_of
from counterfoil.store.manifest import verify_files
from counterfoil.store.reading import read_rows
from support import pages

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

scores = arrays.arrays(np.float32, st.integers(1, 80), elements=st.floats(-1, 1, width=32))
OpenPage = Callable[..., "Page"]
ALL = ("base", "snow", "rain", "plain")


@given(scores, st.randoms(use_true_random=False))
@example(np.array([0.69140625, -0.79296875], np.float32), Random(0))  # 297 steps and their rounding
def test_every_step_counts_as_a_build_compares(values: np.ndarray, random) -> None:
    passes = np.array([random.random() < 0.7 for _ in values])
    kept = np.array([random.random() < 0.5 for _ in values])
    steps = steps_of(values, passes, kept)
    assert 2 <= len(steps["thresholds"]) <= MOST_STEPS
    assert list(steps["thresholds"]) == sorted(set(steps["thresholds"]))
    for at, threshold in enumerate(steps["thresholds"]):
        above = values >= np.float32(threshold)
        assert steps["atOrAbove"][at] == above.sum()
        assert steps["accepted"][at] == (above & passes).sum()
        assert steps["missing"][at] == (above & passes & ~kept).sum()
    assert (steps["atOrAbove"][0], steps["atOrAbove"][-1]) == (values.size, 0)


@given(
    scores,
    st.randoms(use_true_random=False),
    st.one_of(st.none(), st.floats(-1, 1)),
    st.integers(8, 60),
)
def test_pictures_lie_on_both_sides_of_any_line(
    values: np.ndarray, random, line: float | None, most: int
) -> None:
    """For every position of the slider, a shown image is near."""
    values = np.sort(values)
    present = np.array([random.random() < 0.7 for _ in values])
    places = chosen_places(values, present, line, most)
    kept = np.flatnonzero(present).tolist()
    assert places == sorted(set(places)) and set(places) <= set(kept)
    assert len(places) <= most
    if kept:
        assert (places[0], places[-1]) == (kept[0], kept[-1])
        gaps = np.diff([kept.index(index) for index in places])
        assert max(gaps, default=0) <= 1 + 3 * len(kept) / (most - 3), "none is far from the next"


@given(st.floats(-1, 1, width=32))
def test_the_shortest_number_is_the_same_threshold(value: float) -> None:
    assert np.float32(shortest(value)) == np.float32(value)
    assert shortest(float(np.float32(0.163))) == 0.163


@pytest.fixture
def looked_at(tmp_path: Path, open_page: OpenPage) -> Callable[..., Page]:
    """Return a function that opens the page of a dataset in the browser."""

    def look(dataset: Path, **options: Any) -> Page:
        return open_page(calibrate(dataset, tmp_path / "page.html").page, **options)

    return look


def press(page: Page, slider: str, *keys: str) -> float:
    """Press keys on a slider, unfolded, and return the threshold that it has then."""
    page.evaluate("id => unfolded(document.getElementById(id))", slider)
    page.locator(f"#{slider} input").focus()
    for key in keys:
        page.keyboard.press(key)
    return start(page, slider)


def at_a_glance(page: Page) -> dict[str, int]:
    """Return how many images the page says that each shift accepts."""
    rows = page.locator("#glance tbody tr").all()
    cells = [[cell.strip() for cell in row.locator("th, td").all_inner_texts()] for row in rows]
    return {name: int(count.split(" of ")[0]) for name, _, count, _ in cells}


def accepted(
    dataset: Path, shifts: Mapping[str, float], objects: Callable[[dict], float]
) -> dict[str, int]:
    """Return how many images of each shift the rows accept, compared as a build compares."""
    counts: dict[str, int] = dict.fromkeys(ALL, 0)
    for row in rows_of(dataset):
        object_passes = np.float32(row["object_score"]) >= np.float32(objects(row))
        least = shifts.get(row["shift"])
        counts[row["shift"]] += bool(
            object_passes and (least is None or row["shift_score"] >= np.float32(least))
        )
    return counts


def start(page: Page, slider: str) -> float:
    """Return a slider's threshold, of which the page shows three digits."""
    threshold = page.locator(f"#{slider} .threshold")
    value = float(threshold.get_attribute("data-value") or "")
    assert threshold.text_content() == (
        f"{value:.0f}" if slider.startswith("contrast") else f"{value:.3f}"
    )
    return value


def scores_in(pictures: Locator, kind: str) -> list[float]:
    return [
        float(score)
        for score in re.findall(rf"{kind} ([\d.-]+)", "\n".join(pictures.all_inner_texts()))
    ]


def test_a_shift_slider_moves_by_keyboard_and_counts_as_the_rows(
    finished: Path, looked_at: OpenPage
) -> None:
    page = looked_at(finished)
    before = start(page, "shift-snow")
    assert at_a_glance(page) == accepted(finished, {"snow": before, "rain": 0.2}, lambda row: 0.2)
    for keys in (("ArrowRight",) * 7, ("PageUp",), ("Home",), ("End",), ("ArrowLeft",) * 30):
        now = press(page, "shift-snow", *keys)
        expected = accepted(finished, {"snow": now, "rain": 0.2}, lambda row: 0.2)
        assert at_a_glance(page) == expected
        words = f"{now:.3f}: accepts {expected['snow']} of 80"
        assert words in (page.locator("#shift-snow input").get_attribute("aria-valuetext") or "")
        assert (
            f"accepts {expected['snow']} of 80" in page.locator("#shift-snow .yield").inner_text()
        )
        assert page.locator("#total").inner_text() == f"accepted: {sum(expected.values())} of 320"
    button = page.locator("#shift-snow .starts button").first
    button.focus()
    page.keyboard.press("Enter")
    assert start(page, "shift-snow") == before
    assert button.get_attribute("aria-pressed") == "true"


def test_an_object_slider_changes_every_shift_at_once(finished: Path, looked_at: OpenPage) -> None:
    page = looked_at(finished)
    snow = start(page, "shift-snow")
    first = at_a_glance(page)
    least = press(page, "object-0-01", *("ArrowRight",) * 25)
    assert least > 0.2
    expected = accepted(
        finished, {"snow": snow, "rain": 0.2}, lambda row: least if row["class_id"] == "01" else 0.2
    )
    assert at_a_glance(page) == expected
    assert all(expected[shift] < first[shift] for shift in ALL), (
        "the base and an unscreened shift too"
    )
    rows = [row for row in rows_of(finished) if row["class_id"] == "01"]
    lines = {"snow": np.float32(snow), "rain": np.float32(0.2)}
    passing = sum(
        row["object_score"] >= np.float32(least)
        and (row["shift"] not in lines or row["shift_score"] >= lines[row["shift"]])
        for row in rows
    )
    words = page.locator("#object-0-01 input").get_attribute("aria-valuetext") or ""
    assert f"{least:.3f}: accepts {passing} of {len(rows)}" in words
    assert f"accepts {expected['rain']} of 80" in page.locator("#shift-rain .yield").inner_text()
    loose = press(page, "object-0-01", "Home")
    unkept = [
        row for row in rows
        if row["reason"] not in ("accepted", "open") and row["object_score"] >= np.float32(loose)
        and (row["shift"] != "rain" or row["shift_score"] >= np.float32(0.2))
    ]  # fmt: skip
    assert (
        f"{len(unkept)} of these images were not kept"
        in page.locator("#object-0-01 .warn").inner_text()
    )


@pytest.mark.parametrize("name", [pytest.param("finished", marks=pytest.mark.whole), "styled"])
def test_the_yaml_makes_the_dataset_that_the_page_showed(
    name: str, request: pytest.FixtureRequest, looked_at: OpenPage, tmp_path: Path
) -> None:
    """Both kinds of slider, downloaded, applied by the command, verified; other captions keep their
    thresholds."""
    dataset: Path = request.getfixturevalue(name)
    page = looked_at(dataset)
    snow = press(page, "shift-snow", *("ArrowRight",) * 12)
    threshold = press(page, "object-0-01", *("ArrowRight",) * 25)
    with page.expect_download() as waited:
        page.locator("#download").focus()
        page.keyboard.press("Enter")
    assert waited.value.suggested_filename == "cut.yaml"
    waited.value.save_as(tmp_path / "cut.yaml")
    text = (tmp_path / "cut.yaml").read_text()
    assert text == page.locator("#yaml").input_value()
    assert ("screen:" in text) is (name == "finished"), (
        "one place where it holds for all, else where it was moved"
    )
    promised = at_a_glance(page)
    run(str(dataset), "--apply", str(tmp_path / "cut.yaml"), "--out", str(tmp_path / "cut"))
    assert verify_files(tmp_path / "cut") == []
    rows = list(read_rows(tmp_path / "cut", what="candidates"))
    assert promised == {
        shift: sum((row["shift"], row["reason"]) == (shift, "accepted") for row in rows)
        for shift in ALL
    }
    shifts = ("base", "snow") if name == "styled" else ALL
    for shift in load_own_recipe(tmp_path / "cut").all_shifts():
        assert shift.object_threshold.of_class("01") == (
            threshold if shift.name in shifts else None
        )
        assert shift.name != "snow" or (shift.threshold and shift.threshold.value == snow)
    again = looked_at(tmp_path / "cut")
    assert at_a_glance(again) == promised


def test_the_address_holds_the_sliders(finished: Path, looked_at: OpenPage) -> None:
    page = looked_at(finished, fragment="#snow=0.25&object.0.01=0.23")
    assert (start(page, "shift-snow"), start(page, "object-0-01")) == (0.25, 0.23)
    assert start(page, "shift-rain") == 0.2
    press(page, "shift-rain", "ArrowRight")
    assert "snow=0.25" in page.url and "object.0.01=0.23" in page.url and "rain=" in page.url


@pytest.mark.parametrize(("slider", "kind"), [("shift-rain", "shift"), ("object-0-00", "object")])
def test_pictures_lie_around_the_line_wherever_it_is(
    slider: str, kind: str, styled: Path, looked_at: OpenPage
) -> None:
    page = looked_at(styled)
    page.evaluate("id => unfolded(document.getElementById(id))", slider)
    shifts = {"rain"} if kind == "shift" else {"base", "snow"}
    rows = [
        row
        for row in rows_of(styled)
        if row["shift"] in shifts and (kind == "shift" or row["class_id"] == "00")
    ]
    scores = np.sort([row[f"{kind}_score"] for row in rows])
    low, high = (float(page.locator(f"#{slider} .{end}").inner_text()) for end in ("low", "high"))
    steps = int(page.locator(f"#{slider} input").get_attribute("max") or 0)
    page.locator(f"#{slider} .above").scroll_into_view_if_needed()
    expect(page.locator(f"#{slider} .above figure").first).to_be_visible()
    for quantile in (0.05, 0.2, 0.4, 0.6, 0.8, 0.95):
        wanted = float(np.quantile(scores, quantile))
        at = round(steps * (wanted - low) / (high - low))
        page.locator(f"#{slider} input").fill(str(at))
        line = start(page, slider)
        below = scores_in(page.locator(f"#{slider} .below figure"), kind)
        above = scores_in(page.locator(f"#{slider} .above figure"), kind)
        assert all(score < line + 5e-4 for score in below) and all(
            score >= line - 5e-4 for score in above
        )
        under = int((scores < np.float32(line)).sum())
        assert len(below) >= min(3, under) and len(above) >= min(3, scores.size - under)
        # Of some 80 candidates 40 or 60 are shown, and six on a side.
        near = scores[max(0, under - 20) : under + 20]
        assert min(below) >= near[0] - 5e-4 and max(above) <= near[-1] + 5e-4, (
            "near by rank, on both sides"
        )
    states = page.locator(f"#{slider} .below .state").all_inner_texts()
    assert set(states) == {"below"}


def test_rejected_images_are_shown_or_a_word_stands_for_them(
    finished: Path, styled: Path, looked_at: OpenPage
) -> None:
    page = looked_at(finished)
    assert "Rejected images were not kept" in page.locator("main").inner_text()
    assert "No kept image is here." in page.locator("#shift-rain .below").inner_text()
    page = looked_at(styled)
    assert "Rejected images were not kept" not in page.locator("main").inner_text()
    page.locator("#shift-rain").scroll_into_view_if_needed()
    expect(page.locator("#shift-rain .below figure.drop")).to_have_count(6)
    low = {row["key"] for row in rows_of(styled, "rain") if row["object_score"] < np.float32(0.2)}
    press(page, "shift-rain", "Home")
    shown = page.locator("#shift-rain .above figure.other", has_text="low object").locator("img")
    keys = {(alt.get_attribute("alt") or "").split(", ")[-1] for alt in shown.all()}
    assert page.locator("#shift-rain .above figure").count() == 6
    lowest = sorted(rows_of(styled, "rain"), key=lambda row: row["shift_score"])[:4]
    assert {row["key"] for row in lowest} & low <= keys <= low


def test_copied_is_announced(finished: Path, looked_at: OpenPage) -> None:
    page = looked_at(finished, permissions=["clipboard-read", "clipboard-write"])
    status = page.locator("#said")
    assert status.get_attribute("aria-live") == "polite"
    page.locator("#copy").focus()
    page.keyboard.press("Enter")
    page.wait_for_function("document.getElementById('said').textContent === 'Copied.'")
    assert page.evaluate("navigator.clipboard.readText()") == page.locator("#yaml").input_value()


# Text by text: the contrast of its colour with the first ground that is not transparent, by WCAG 2.
CONTRASTS = """() => {
  const part = value => (value /= 255) <= .04045 ? value / 12.92 : ((value + .055) / 1.055) ** 2.4;
  const parse = text => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => .2126 * part(r) + .7152 * part(g) + .0722 * part(b);
  const ground = node => {
    for (let at = node; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const node of document.querySelectorAll('body *')) {
    const own = [...node.childNodes].some(child => child.nodeType === 3 && child.textContent.trim());
    if (!own || !node.getClientRects().length || ['SCRIPT', 'STYLE', 'NOSCRIPT'].includes(node.tagName)) continue;
    const pair = [light(parse(getComputedStyle(node).color)), light(ground(node))].sort((a, b) => b - a);
    const told = node.tagName + '.' + node.className + ': ' + node.textContent.trim().slice(0, 40);
    found.push([(pair[0] + .05) / (pair[1] + .05), told]);
  }
  return found;
}"""


@pytest.mark.parametrize(("width", "dark"), [(1300, False), (400, True)])
def test_text_is_legible_dark_and_narrow(
    width: int, dark: bool, finished: Path, looked_at: OpenPage
) -> None:
    page = looked_at(finished, width=width, dark=dark)
    press(page, "object-0-00", "Home")
    page.locator(".take summary").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    contrasts = page.evaluate(CONTRASTS)
    assert len(contrasts) > 60
    assert [contrast for contrast in contrasts if contrast[0] < 4.5] == []
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", ground)[:3])) < 200) is dark


def test_every_control_has_a_name_and_is_reached_by_keyboard(
    finished: Path, looked_at: OpenPage
) -> None:
    page = looked_at(finished)
    sliders = page.locator("input[type=range]").all()
    assert len(sliders) == 2 + 2
    for slider in sliders:
        assert slider.get_attribute("aria-label") and slider.get_attribute("aria-valuetext")
    assert (
        not page.locator("#object-0-00").is_visible() and page.locator("#shift-snow").is_visible()
    )
    page.locator("#objects > summary").click()
    page.locator("h1").click()
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate(
                "document.activeElement.closest('section')?.id || document.activeElement.id"
            )
        )
    assert {"shift-snow", "shift-rain", "object-0-00", "object-0-01", "copy", "download"} <= reached
    page.locator("nav a", has_text="coot").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.closest('section').id") == "object-0-01"
    assert "#object" not in page.url, "the address holds the sliders"


def test_contrast_is_reported_by_shift_and_becomes_a_keep_rule(
    dark: Path, looked_at: OpenPage, tmp_path: Path
) -> None:
    """Measured contrast shows how many accepted images are nearly black, and a slider of the
    least."""
    page = looked_at(dark)
    snow = start(page, "shift-snow")

    def passing(least: float) -> dict[str, int]:
        counts: dict[str, int] = dict.fromkeys(ALL, 0)
        for row in rows_of(dark):
            line = {"snow": snow, "rain": 0.2}.get(row["shift"], -1)
            low = row["shift"] == "rain" and (
                row["contrast"] < 10 or row["black"] > np.float32(0.8)
            )
            low = low or (row["shift"] == "snow" and row["contrast"] < least)
            reached = row["object_score"] >= np.float32(0.2) and (
                row["shift_score"] or 1
            ) >= np.float32(line)
            counts[row["shift"]] += bool(reached and not low)
        return counts

    assert at_a_glance(page) == passing(0)
    shown = page.locator("#contrast-snow .summary").text_content() or ""
    contrasts = [r["contrast"] for r in rows_of(dark, "snow") if r["object_score"] >= np.float32(0.2)
           and r["shift_score"] >= np.float32(snow)]  # fmt: skip
    for limit in (5, 10, 20):
        assert re.search(
            rf"\b{sum(value < limit for value in contrasts)} \(\d+ %\) under {limit}\b", shown
        )
    assert (
        f"Contrast of the {len(contrasts)} images" in shown
        and f"minimum {sorted(contrasts)[0]:.0f}," in shown
    )
    assert press(page, "contrast-snow", *("ArrowRight",) * 25) == 25
    promised = at_a_glance(page)
    assert promised == passing(25) != passing(0)
    (tmp_path / "cut.yaml").write_text(page.locator("#yaml").input_value())
    run(str(dark), "--apply", str(tmp_path / "cut.yaml"), "--out", str(tmp_path / "cut"))
    assert verify_files(tmp_path / "cut") == []
    kept = [
        row["shift"]
        for row in read_rows(tmp_path / "cut", what="candidates")
        if row["reason"] == "accepted"
    ]
    assert promised == {shift: kept.count(shift) for shift in ALL}
    rain, other = (
        load_own_recipe(tmp_path / "cut").prompts.shifts[name].keep for name in ("rain", "snow")
    )
    assert rain is not None and other is not None
    assert [step.model_dump() for step in other] == [{"visible": {"contrast": 25}}, "thresholds"]
    assert [step.model_dump() for step in rain] == [
        {"visible": {"contrast": 10, "black": 0.8}},
        "thresholds",
    ]


def test_of_very_many_candidates_the_counts_are_true_too(
    finished: Path, looked_at: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("counterfoil.reviewing.calibrate_dataset.MOST_CANDIDATES", 319)
    page = looked_at(finished)
    now = press(page, "shift-snow", *("ArrowRight",) * 9)
    expected = accepted(finished, {"snow": now, "rain": 0.2}, lambda row: 0.2)
    assert at_a_glance(page) == {shift: expected[shift] for shift in ("snow", "rain")}
    assert page.locator('[data-slider="object"]').count() == 0


def data_of(page: str) -> dict:
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert match
    return json.loads(match[1])


def test_the_cut_resolves_open_shifts_by_their_percentile(finished: Path, tmp_path: Path) -> None:
    calibration = calibrate(finished, tmp_path / "page.html")
    snow, rain = calibration.shifts
    scores = np.array([row["shift_score"] for row in rows_of(finished, "snow")])
    assert snow.open
    assert snow.threshold is not None
    assert np.float32(snow.threshold) == np.float32(np.percentile(scores, 30))
    assert (rain.open, rain.threshold) == (False, 0.2)
    for cut in calibration.shifts:
        passing = [
            row for row in rows_of(finished, cut.shift)
            if row["object_score"] >= np.float32(0.2)
            and row["shift_score"] >= np.float32(cut.threshold)
        ]  # fmt: skip
        assert (cut.candidates, cut.accepted) == (80, len(passing))
        assert cut.passed == len(passing) / 80


def test_the_page_is_one_safe_file_and_its_counts_are_true(finished: Path, tmp_path: Path) -> None:
    calibration = calibrate(finished, tmp_path / "page.html")
    page = calibration.page.read_text()
    assert verify_files(finished) == []
    assert calibrate(finished, tmp_path / "again.html").page.read_text() == page
    shown = pages.Page(page)
    tags = shown.tags
    assert "b" not in tags and "i" in tags, (
        "the recipe's text is text; the template's own dots are marks"
    )
    assert tags.count("i") == 3
    sources = shown.of("src", "href")
    assert sources
    assert all(source.startswith(("data:image/webp;base64,", "#")) for source in sources), (
        "its own places or pictures"
    )
    assert len(page) < 1_000_000
    assert 'data-slider="contrast"' not in page
    data = data_of(page)
    assert data["exact"]
    assert [unit["name"] for unit in data["units"]] == ["base", "snow", "rain", "plain"]
    assert [data["units"][shift["unit"]]["name"] for shift in data["shifts"]] == ["snow", "rain"]
    for name, kind in (("shift", "<f4"), ("object", "<f4"), ("label", "<u2"), ("flags", "u1")):
        values = np.frombuffer(base64.b64decode(data["rows"][name]), kind)
        assert values.size == len(rows_of(finished)), (
            "every candidate that has scores, exactly as they are stored"
        )
    scores = np.frombuffer(base64.b64decode(data["rows"]["object"]), "<f4")
    assert sorted(scores) == sorted(np.float32(row["object_score"]) for row in rows_of(finished))
    pictures = [(picture["unit"], picture["shift"]) for picture in data["pictures"]]
    assert pictures == sorted(pictures, key=lambda picture: (picture[0], picture[1] or 0))
    assert page.count("<figure ") == len(pictures) > 100


def test_of_very_many_candidates_the_page_holds_counts(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("counterfoil.reviewing.calibrate_dataset.MOST_CANDIDATES", 319)
    calibration = calibrate(finished, tmp_path / "page.html")
    page = calibration.page.read_text()
    data = data_of(page)
    assert (data["exact"], data["rows"], data["groups"]) == (False, None, [])
    assert 'data-slider="object"' not in page
    assert "320 candidates" in page and "sliders for shifts only" in page
    snow, rain = data["shifts"]
    assert snow["starts"][0]["accepted"] == calibration.shifts[0].accepted
    assert not any(snow["missing"]), "every image of an open shift is kept"
    assert rain["missing"][0] > 0
    at = rain["thresholds"].index(0.2)
    assert rain["missing"][at] == 0
    assert rain["accepted"][at] == calibration.shifts[1].accepted


def test_the_cut_and_the_pages_say_of_which_recipe_they_are(finished: Path, tmp_path: Path) -> None:
    calibration = calibrate(finished, tmp_path / "page.html")
    sha256 = load_own_recipe(finished).recipe_hash
    head, _, rest = calibration.cut.partition("\n")
    assert head.startswith("# For ") and sha256 in head
    assert rest.startswith("prompts:\n  shifts:\n    snow:\n      threshold: ")
    assert data_of(calibration.page.read_text())["head"] == head + "\n"


def test_the_command_pipes_a_cut_that_applies(finished: Path, tmp_path: Path) -> None:
    out = Path(shutil.copytree(finished, tmp_path / "cranes"))
    done = run(str(out))
    assert str(out / ".counterfoil" / "calibrate.html") in done.stderr
    (tmp_path / "cut.yaml").write_text(done.stdout)
    document = json.loads(run(str(out), "--json", "--shift", "rain").stdout)
    assert [shift["shift"] for shift in document["shifts"]] == ["rain"]
    assert "snow" not in document["cut"]
    open_before = json.loads(run(str(out), "--json").stdout)["shifts"][0]
    applied = json.loads(
        run(str(out), "--apply", str(tmp_path / "cut.yaml"), "--in-place", "--yes", "--json").stdout
    )
    assert applied["open_shifts"] == []
    assert applied["counts"]["snow"]["accepted"] == open_before["accepted"]
    assert verify_files(out) == []
    assert "no threshold yet" not in (out / "README.md").read_text()
    refused = run(str(out), "--apply", str(tmp_path / "nowhere.yaml"), "--in-place", code=2)
    assert "nowhere.yaml" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_what_cannot_be_calibrated_is_said(finished: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'snow'"):
        calibrate(finished, tmp_path / "page.html", ["snwo"])
    with pytest.raises(UserError, match="screened shift"):
        calibrate(finished, tmp_path / "page.html", ["plain"])
    with pytest.raises(UserError, match="not a Counterfoil dataset"):
        calibrate(tmp_path)
    assert not (tmp_path / "page.html").exists()
