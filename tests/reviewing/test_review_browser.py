"""The page in a real browser: by keyboard, on a phone, over a reload, in the dark, and down to
answers that count."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from page_answers import data_of, is_own, known_of

from counterfoil.reviewing.review_dataset import ReviewPage, review
from counterfoil.store.manifest import verify_files
from support.refusals import succeed

if TYPE_CHECKING:
    from playwright.sync_api import Page

Open = Callable[..., "Page"]

# Colours as WCAG 2 counts their contrast: of every element with text of its own, and what is
# painted below it.
CONTRASTS = """
() => {
  const channel = value => { value /= 255; return value <= .04045 ? value / 12.92 : ((value + .055) / 1.055) ** 2.4; };
  const parts = colour => colour.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => .2126 * channel(r) + .7152 * channel(g) + .0722 * channel(b);
  const below = element => {
    for (let at = element; at; at = at.parentElement) {
      const colour = parts(getComputedStyle(at).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const element of document.querySelectorAll("main *")) {
    const own = [...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
    if (!own || !element.checkVisibility()) continue;
    const [one, other] = [light(parts(getComputedStyle(element).color)), light(below(element))].sort((a, b) => b - a);
    found.push([(one + .05) / (other + .05), element.outerHTML.slice(0, 80)]);
  }
  return found;
}
"""


def checked(page: Page) -> list[str]:
    return page.eval_on_selector_all(
        '.cell[aria-checked="true"]', "cells => cells.map(cell => cell.dataset.id)"
    )


def focused(page: Page) -> Any:
    return page.evaluate("document.activeElement.dataset.id ?? document.activeElement.id")


def state_of(page: Page) -> dict[str, Any]:
    return page.evaluate("state")


def download(page: Page, path: Path) -> dict[str, Any]:
    with page.expect_download() as waited:
        page.get_by_role("button", name="Download answers.json").click()
    assert waited.value.suggested_filename == "answers.json"
    waited.value.save_as(path)
    return json.loads(path.read_text())


def test_a_grid_is_answered_by_keyboard_alone(
    made: ReviewPage, open_page: Open, tmp_path: Path
) -> None:
    page = open_page(made.page)
    grids = data_of(made.page)["grids"]
    assert page.get_by_role("heading", level=2).inner_text() == grids[0]["asked"]
    shown = grids[0]["shown"]
    page.keyboard.press("ArrowRight")
    assert focused(page) == shown[0], "the first arrow enters the grid"
    page.keyboard.press("Space")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert focused(page) == shown[1 + 8], "eight images a row at this width"
    page.keyboard.press("Space")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert focused(page) == shown[0], "an arrow leaves the grid nowhere"
    page.keyboard.press("End")
    page.keyboard.press("Space")
    page.keyboard.press("Space")
    assert checked(page) == [shown[0], shown[9]]
    page.keyboard.press("0")
    assert page.evaluate("finished()") == 0, "where something is selected, there is not nothing"
    page.keyboard.press("f")
    assert page.evaluate("finished()") == 1
    assert page.get_by_role("heading", level=2).inner_text() == grids[1]["asked"]
    assert focused(page) == grids[1]["shown"][0], "and the next grid has the focus"
    page.keyboard.press("f")
    assert page.evaluate("finished()") == 1, "an untouched grid is no answer"
    page.keyboard.press("0")
    assert page.evaluate("finished()") == 2
    page.keyboard.press("p")
    page.keyboard.press("p")
    assert page.locator("#go").input_value() == "0"
    page.keyboard.press("p")
    page.keyboard.press("n")
    assert page.locator("#go").input_value() == "1"
    assert "finished with nothing selected" in page.locator("#mark").inner_text()
    assert page.get_by_role("status").first.inner_text() == "0 selected. 2 of 5 grids finished."
    answers = download(page, tmp_path / "answers.json")
    assert [(grid["label"], grid["selected"]) for grid in answers["grids"]] == [
        (grids[0]["label"], [shown[0], shown[9]]),
        (grids[1]["label"], []),
    ]


def test_keys_in_the_name_are_text(made: ReviewPage, open_page: Open) -> None:
    page = open_page(made.page)
    page.get_by_label("Your name or initials").fill("")
    page.get_by_label("Your name or initials").press_sequentially("n p f0")
    assert page.get_by_label("Your name or initials").input_value() == "n p f0"
    assert page.locator("#go").input_value() == "0"
    assert page.evaluate("finished()") == 0


def test_everything_has_a_role_and_a_name(made: ReviewPage, open_page: Open) -> None:
    page = open_page(made.page)
    grid = data_of(made.page)["grids"][0]
    boxes = page.get_by_role("checkbox")
    assert boxes.count() == len(grid["shown"])
    names = [boxes.nth(index).get_attribute("aria-label") for index in (0, 1)]
    assert names == [f"Image {number} of {len(grid['shown'])}" for number in (1, 2)]
    assert page.get_by_role("group", name=grid["asked"]).count() == 1
    assert page.locator('.cell[tabindex="0"]').count() == 1, "one stop for the tab key"
    boxes.nth(3).click()
    assert boxes.nth(3).is_checked() and focused(page) == grid["shown"][3]
    assert page.locator('.cell[tabindex="0"]').get_attribute("data-id") == grid["shown"][3]
    unnamed = (
        "els => els.filter(el => !(el.innerText || el.getAttribute('aria-label') ||"
        " el.labels?.length)).length"
    )
    assert page.eval_on_selector_all("button, input, select, progress", unnamed) == 0
    live = page.locator('[aria-live="polite"]')
    assert live.count() == 2


def test_on_a_phone_images_reflow_and_are_touched(made: ReviewPage, open_page: Open) -> None:
    page = open_page(made.page, width=400, has_touch=True, is_mobile=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert page.evaluate("columns()") == 3
    sizes = page.eval_on_selector_all(
        "button, select, input, summary",
        "els => els.filter(el => el.checkVisibility()).map(el => [el.offsetWidth, el.offsetHeight])",
    )
    assert len(sizes) > 40
    assert min(min(size) for size in sizes) >= 44
    first = page.locator(".cell").nth(4)
    first.tap()
    assert checked(page) == [data_of(made.page)["grids"][0]["shown"][4]]
    page.locator("#finish").tap()
    assert page.evaluate("[finished(), state.current]") == [1, 1]
    page.locator("#nothing").tap()
    assert page.evaluate("[finished(), state.current]") == [2, 2]
    # The button that finishes a grid is visible at every scroll position.
    page.evaluate("scrollTo(0, 0)")
    box = page.locator("#finish").bounding_box()
    assert box is not None and box["y"] + box["height"] <= 900


def test_what_was_done_outlives_a_reload(made: ReviewPage, open_page: Open, tmp_path: Path) -> None:
    page = open_page(made.page)
    shown = data_of(made.page)["grids"][0]["shown"]
    page.locator(".cell").nth(2).click()
    page.locator("#finish").click()
    page.locator(".cell").nth(5).click()
    page.get_by_label("Your name or initials").fill("A. N.")
    before = state_of(page)
    page.reload()
    assert state_of(page) == before
    assert page.get_by_label("Your name or initials").input_value() == "A. N."
    assert page.locator("#go").input_value() == "1"
    assert checked(page) == [data_of(made.page)["grids"][1]["shown"][5]]
    answers = download(page, tmp_path / "answers.json")
    assert (answers["rater"], answers["token"]) == ("A. N.", before["token"])
    assert [grid["selected"] for grid in answers["grids"]] == [[shown[2]]]
    # A selection that is taken back is no "nothing".
    page.locator("#previous").click()
    page.locator(".cell").nth(2).click()
    assert page.evaluate("finished()") == 0
    page.evaluate(
        "localStorage.setItem(place, JSON.stringify({ token: 'x', grids: [{ selected: ['evil'] }]"
        " }))"
    )
    page.reload()
    assert state_of(page)["grids"][0] == {"selected": [], "finished": False}, (
        "what is not of the page is not believed"
    )


def test_another_page_of_the_dataset_has_a_state_of_its_own(
    made: ReviewPage, colours: Path, open_page: Open
) -> None:
    other = review(colours, made.page.parent / "other.html", seed=7)
    page = open_page(made.page)
    token = state_of(page)["token"]
    page.locator(".cell").nth(2).click()
    assert len(checked(page)) == 1
    page.goto(other.page.as_uri())
    assert checked(page) == []
    assert state_of(page)["token"] == token, "the same person, who is counted once"
    page.goto(made.page.as_uri())
    assert len(checked(page)) == 1


def test_a_browser_that_keeps_nothing_says_so_and_still_answers(
    made: ReviewPage, open_page: Open, tmp_path: Path
) -> None:
    page = open_page(made.page)
    page.add_init_script(
        "Object.defineProperty(window, 'localStorage', { get() { throw new Error('forbidden'); } })"
    )
    page.reload()
    assert "does not store your answers" in page.locator("#said").inner_text()
    page.locator(".cell").nth(2).click()
    page.locator("#finish").click()
    assert len(download(page, tmp_path / "answers.json")["grids"]) == 1


def test_without_a_finished_grid_there_is_nothing_to_download(
    made: ReviewPage, open_page: Open
) -> None:
    page = open_page(made.page)
    page.locator(".cell").nth(2).click()
    page.get_by_role("button", name="Download answers.json").click()
    assert "No grid is finished yet" in page.locator("#said").inner_text()


def test_what_a_page_gives_is_what_the_command_takes(
    copied: Callable[..., Path], open_page: Open, tmp_path: Path
) -> None:
    directory = copied()
    made = review(directory)
    data = data_of(made.page)
    known = known_of(directory)
    files = []
    for person in ("one", "two"):
        page = open_page(made.page)
        page.get_by_label("Your name or initials").fill(person)
        for grid in data["grids"]:
            # The second person finds no image at dusk.
            indices = [
                index
                for index, id in enumerate(grid["shown"])
                if is_own(grid["task"], grid["label"], known[id]) or not hasattr(known[id], "key")
            ] if person == "one" or grid["label"] != "dusk" else []  # fmt: skip
            page.evaluate(
                "places => places.forEach(at => document.querySelectorAll('.cell')[at].click())",
                indices,
            )
            page.locator("#finish:enabled, #nothing:enabled").click()
        assert "All grids are finished" in page.locator("#said").inner_text()
        files.append(tmp_path / f"{person}.json")
        assert len(download(page, files[-1])["grids"]) == len(data["grids"])
    counted = succeed("review", str(directory), "--answers", *map(str, files), "--json")
    document = json.loads(counted.stdout)
    values = {shift["name"]: shift for shift in document["shifts"]}
    assert values["dusk"]["shift"]["selected"]["value"] == 0.5
    assert (
        values["swap"]["shift"]["selected"]["value"]
        == values["dusk"]["class"]["selected"]["value"]
        == 1
    )
    assert (
        document["controls"]["real_share"]["value"]
        == document["controls"]["without_share"]["value"]
        == 1
    )
    assert verify_files(directory) == []


@pytest.mark.parametrize(("width", "dark"), [(1300, True), (400, False)])
def test_text_is_legible_by_day_and_by_night(
    made: ReviewPage, open_page: Open, dark: bool, width: int
) -> None:
    page = open_page(made.page, width=width, dark=dark)
    page.locator("summary").click()
    page.locator(".cell").nth(2).click()
    contrasts = page.evaluate(CONTRASTS)
    assert len(contrasts) > 15
    assert [what for ratio, what in contrasts if ratio < 4.5] == []
    red = int(
        page.evaluate("getComputedStyle(document.body).backgroundColor")
        .partition("(")[2]
        .partition(",")[0]
    )
    assert (red < 60) == dark
