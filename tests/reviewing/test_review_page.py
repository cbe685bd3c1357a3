"""The page asks about images of the dataset evenly, mixes in controls, and does not give them away
in its text."""

from __future__ import annotations

import base64
import errno
import io
import json
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from page_answers import data_of, is_own, known_of
from PIL import Image

from colour_world import build_colours
from counterfoil.errors import RunFailure, UserError
from counterfoil.plan.layout import Sample, make_plan
from counterfoil.recipe import load_own_recipe, load_recipe
from counterfoil.reviewing.calibrate_dataset import calibrate
from counterfoil.reviewing.grids import (
    MOST_IMAGES,
    CandidateImage,
    RealControl,
    choose_images,
    class_grids,
    shift_grids,
)
from counterfoil.reviewing.review_dataset import (
    ReviewPage,
    asked_of_class,
    asked_of_shift,
    page_picture,
    review,
)
from counterfoil.store.manifest import verify_files
from support.pages import Page


def test_every_grid_has_one_label_and_its_own_images_with_controls_among_them(
    made: ReviewPage, colours: Path
) -> None:
    data = data_of(made.page)
    known = known_of(colours)
    grids = data["grids"]
    assert (made.grids, made.images, made.accepted, made.each) == (len(grids), 108, 108, 40)
    assert Counter(grid["task"] for grid in grids) == {"class": 3, "shift": 2}
    seen: Counter[tuple[str, str]] = Counter()
    for grid in grids:
        shown = [known[id] for id in grid["shown"]]
        assert len(shown) == len(set(shown)) <= 48
        of_label = {picture for picture in shown if is_own(grid["task"], grid["label"], picture)}
        real = {picture for picture in shown if isinstance(picture, RealControl)}
        without = set(shown) - of_label - real
        assert without, "selecting everything is noticed"
        seen.update(
            (grid["task"], picture.key)
            for picture in of_label
            if isinstance(picture, CandidateImage)
        )
        if grid["task"] == "class":
            assert {f"{picture.label:02d}" for picture in real} == {grid["label"]}
            assert len(real) == len(without) == 4
        else:
            assert not real
            assert {
                picture.shift for picture in without if isinstance(picture, CandidateImage)
            } == {"base"}
    # Every image once under its class, and every one that has a shift once under that.
    assert set(seen.values()) == {1}
    assert Counter(task for task, _ in seen) == {"class": 108, "shift": 72}
    assert set(data["pictures"]) == {id for grid in grids for id in grid["shown"]}


def test_controls_are_not_reported_by_their_place(made: ReviewPage, colours: Path) -> None:
    known = known_of(colours)
    places = [
        index
        for grid in data_of(made.page)["grids"]
        for index, id in enumerate(grid["shown"])
        if not is_own(grid["task"], grid["label"], known[id])
    ]
    assert min(places) < 12 and max(places) > 24


def test_the_page_is_one_file_that_names_no_image(made: ReviewPage, colours: Path) -> None:
    page = made.page.read_text()
    known = known_of(colours)
    keys = {image.key for image in known.values() if isinstance(image, CandidateImage)}
    assert len(keys) == 108
    assert not [key for key in keys if key in page], "neither in its text nor in its script"
    shown = Page(page)
    text = shown.spaced
    assert not [id for id in known if id in text]
    assert not re.search(r"control|real|generated|base\b", text)
    assert not shown.of("src", "href")
    assert "http" not in re.sub(r"http-equiv", "", page)
    sizes = [len(uri) for uri in data_of(made.page)["pictures"].values()]
    assert max(sizes) < 8_000 * 4 / 3 + 100


def test_equal_settings_give_equal_bytes_and_a_seed_gives_others(
    made: ReviewPage, colours: Path, tmp_path: Path
) -> None:
    again = review(colours, tmp_path / "again.html")
    assert again.page.read_bytes() == made.page.read_bytes()
    other = review(colours, tmp_path / "other.html", seed=1)
    assert data_of(other.page)["sheet"] != data_of(made.page)["sheet"]
    assert verify_files(colours) == [], "a page is no part of the dataset"


def test_a_task_and_shifts_can_be_named(colours: Path, tmp_path: Path) -> None:
    known = known_of(colours)
    dusk_page = review(colours, tmp_path / "one.html", images=5, tasks=["shift"], shifts=["dusk"])
    (grid,) = data_of(dusk_page.page)["grids"]
    assert (dusk_page.images, dusk_page.shifts, dusk_page.controls) == (5, ("dusk",), 0)
    assert Counter(getattr(known[id], "shift", "") for id in grid["shown"]) == {
        "dusk": 5,
        "base": 2,
    }
    # Five of three classes, in turn one of each.
    images = [known[id] for id in grid["shown"] if is_own("shift", "dusk", known[id])]
    assert sorted(Counter(image.label for image in images).values()) == [1, 2, 2]
    classes = review(colours, tmp_path / "classes.html", tasks=["class"], shifts=["swap"])
    assert {grid["task"] for grid in data_of(classes.page)["grids"]} == {"class"}
    shown = [known[id] for grid in data_of(classes.page)["grids"] for id in grid["shown"]]
    assert {image.shift for image in shown if isinstance(image, CandidateImage)} == {"swap"}


def test_a_source_that_is_not_at_hand_leaves_no_real_images_and_a_word(tmp_path: Path) -> None:
    directory = build_colours(tmp_path / "colours", "source.dataset=./photographs")
    made = review(directory)
    assert made.page == directory / ".counterfoil" / "review.html"
    assert made.controls == 0
    assert made.without_controls is not None and "photographs" in made.without_controls
    known = known_of(directory)
    for grid in data_of(made.page)["grids"]:
        with_label = [is_own(grid["task"], grid["label"], known[id]) for id in grid["shown"]]
        assert not all(with_label), "images without the label are there all the same"
    with pytest.raises(UserError):
        review(directory, source=str(tmp_path / "nothing"))


def test_a_source_that_fails_in_a_librarys_words_leaves_a_word(
    colours: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise OSError(errno.ESTALE, "Stale file handle", "/photographs/1.png")

    monkeypatch.setattr("counterfoil.reviewing.review_dataset.labelled_split", fails)
    made = review(colours, tmp_path / "review.html", tasks=["class"], shifts=["swap"])
    assert made.controls == 0 and made.without_controls is not None
    assert "Stale file handle" in made.without_controls


def test_an_error_of_the_program_is_no_source_that_cannot_be_read(
    colours: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise KeyError("labels")

    monkeypatch.setattr("counterfoil.reviewing.review_dataset.labelled_split", fails)
    with pytest.raises(KeyError, match="labels"):
        review(colours, tmp_path / "review.html", tasks=["class"], shifts=["swap"])


@pytest.mark.parametrize("write", [review, calibrate])
def test_no_page_lies_in_the_dataset(
    write: Callable[[Path, Path], Any],
    undisturbed: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Pages would be missing from the manifest; `.counterfoil` is no part of the dataset and takes
    any name."""
    built = Path(shutil.copytree(undisturbed, tmp_path / "built"))
    (tmp_path / "link").symlink_to(built)
    monkeypatch.chdir(built)
    for path in (built / "page.html", built / "data" / "new" / "page.html", Path("page.html"),
                  tmp_path / "link" / "page.html"):  # fmt: skip
        with pytest.raises(UserError, match="lies inside the dataset"):
            write(built, path)
    assert not (built / "data" / "new").exists()
    write(built, built / ".counterfoil" / "mine.html")
    assert verify_files(built) == []


def test_a_source_that_lies_elsewhere_can_be_named(tmp_path: Path) -> None:
    for label in range(3):
        folder = tmp_path / "photographs" / "validation" / str(label)
        folder.mkdir(parents=True)
        for number in range(5):
            Image.new("RGB", (400, 300), (60 * label, 10 * number, 9)).save(
                folder / f"{number}.png"
            )
    directory = build_colours(tmp_path / "colours", "source.dataset=./photographs")
    made = review(directory, source=str(tmp_path / "photographs"))
    assert (made.controls, made.without_controls) == (12, None)
    assert review(directory, source=str(tmp_path / "photographs"), controls=False).controls == 0


def test_what_cannot_be_reviewed_is_said(colours: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    with pytest.raises(UserError, match="did you mean 'dusk'"):
        review(colours, page, shifts=["dsk"])
    with pytest.raises(UserError, match="images is 0"):
        review(colours, page, images=0)
    with pytest.raises(UserError, match="the base has none"):
        review(colours, page, tasks=["shift"], shifts=["base"])
    with pytest.raises(UserError, match="not a Counterfoil dataset"):
        review(tmp_path)
    unfinished = Path(
        shutil.copytree(
            colours, tmp_path / "unfinished", ignore=shutil.ignore_patterns(".counterfoil")
        )
    )
    (unfinished / "receipts" / "swap-00000.json").unlink()
    with pytest.raises(UserError, match="not finished"):
        review(unfinished)
    nothing = build_colours(tmp_path / "nothing", keep=lambda sample: sample.shift != "dusk")
    with pytest.raises(UserError, match="no image of these shifts was accepted"):
        review(nothing, page, shifts=["dusk"])
    waits = build_colours(tmp_path / "waits", "prompts.shifts.dusk.threshold={percentile: 25}")
    with pytest.raises(UserError, match=r"is not cut yet.*threshold: dusk") as refused:
        review(waits, page, shifts=["base", "dusk"])
    assert refused.value.hint == f"Cut first: counterfoil calibrate {waits}"
    assert not page.exists()
    assert any("threshold: dusk; cut first" in note for note in review(waits, page).notes)


def test_a_strangers_names_are_text(tmp_path: Path) -> None:
    name = "</script><img src=x onerror=alert(1)>"
    classes = [
        {"id": "00", "name": name, "source_label": 0},
        {"id": "01", "name": "green", "source_label": 1},
    ]
    classes += [{"id": "02", "name": "blue", "source_label": 2}]
    caption = f"prompts.shifts.dusk.caption={json.dumps(f'at {name}')}"
    directory = build_colours(
        tmp_path / "colours", f"source.classes={json.dumps(classes)}", caption
    )
    page = review(directory).page.read_text()
    assert "<img" not in page.replace('"img"', "")
    assert (
        sum(
            name in grid["asked"]
            for grid in data_of(directory / ".counterfoil" / "review.html")["grids"]
        )
        == 2
    )


def made_up(shifts: int, classes: int, per_cell: int) -> list[CandidateImage]:
    return [
        CandidateImage(f"{shift}_{label}_{number}", f"s{shift}", label, 0)
        for shift in range(shifts)
        for label in range(classes)
        for number in range(per_cell)
    ]


def test_images_are_taken_evenly_and_more_of_them_hold_the_fewer() -> None:
    images = made_up(4, 10, 30)
    shifts = [f"s{number}" for number in range(4)]
    few = choose_images(images, shifts, 20, 0, whole_classes=False)
    many = choose_images(images, shifts, 50, 0, whole_classes=False)
    assert set(few.images) < set(many.images)
    assert set(Counter((image.shift, image.label) for image in few.images).values()) == {2}
    assert choose_images(images, shifts, 20, 1, whole_classes=False).images != few.images


def test_of_a_thousand_classes_some_are_taken_so_that_grids_are_full() -> None:
    images = made_up(5, 1000, 2)
    shifts = [f"s{number}" for number in range(5)]
    chosen = choose_images(images, shifts, None, 0, whole_classes=True)
    assert len(chosen.images) < MOST_IMAGES
    # At most two images of a class and shift are there, so ten of a class.
    assert len(chosen.classes) == 200 // 24
    assert {image.label for image in chosen.images} == set(chosen.classes)


def test_a_page_that_would_be_too_large_is_refused() -> None:
    images = made_up(50, 2, 50)
    shifts = [f"s{number}" for number in range(50)]
    with pytest.raises(UserError, match="a page holds at most 850 images") as refused:
        choose_images(images, shifts, 100, 0, whole_classes=True)
    assert refused.value.hint is not None and "Use at most 17 per shift" in refused.value.hint
    assert len(choose_images(images, shifts, None, 0, whole_classes=True).images) == 850


def test_many_images_of_a_label_are_dealt_to_grids_of_one_size() -> None:
    recipe = load_recipe("wardrobe-mini")
    names = [shift.name for shift in recipe.all_shifts()]
    images = [CandidateImage(f"{name}_{n}", name, n % 10, 0) for name in names for n in range(130)]
    controls = {label: [RealControl(label, number) for number in range(6)] for label in range(10)}
    by_class = class_grids(recipe, images, controls, 0)
    # 78 images of a class are two grids of 39, with 8 controls each; the second has only the 2 real
    # images left.
    assert {len(grid.pictures) for grid in by_class} == {47, 45}
    for cls in recipe.classes:
        grids = [grid for grid in by_class if grid.label == cls.id]
        shown = [picture for grid in grids for picture in grid.pictures]
        assert len(shown) == len(set(shown)), "no picture is asked about twice"
        assert len({picture for picture in shown if isinstance(picture, RealControl)}) == 6, (
            "and no more than there are"
        )
        assert len(
            [p for p in shown if isinstance(p, CandidateImage) and p.label == cls.label]
        ) == 13 * len(names)
    by_shift = shift_grids(recipe, images, [image for image in images if image.shift == "base"], 0)
    assert Counter(grid.label for grid in by_shift) == dict.fromkeys(names[1:], 4)


def test_noise_fits_too() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (600, 400, 3), dtype=np.uint8)
    uri = page_picture(Image.fromarray(noise))
    assert len(uri) < 8_000 * 4 / 3 + 100
    plain = page_picture(Image.new("RGB", (600, 400), (9, 90, 200)))
    with Image.open(io.BytesIO(base64.b64decode(plain.partition(",")[2]))) as image:
        assert (image.format, image.size) == ("WEBP", (160, 107))


def test_labels_are_asked_for_in_words(tmp_path: Path) -> None:
    recipe = load_recipe("wardrobe-mini")
    questions = [asked_of_class(cls) for cls in recipe.classes]
    assert questions[4] == "Select every image that shows a coat"
    assert questions[9] == "Select every image that shows an ankle boot"
    assert questions[3] == "Select every image that shows a dress"
    words = [asked_of_shift(shift).partition(": ")[2] for shift in recipe.all_shifts()]
    assert words[1:] == [
        "in the grass",
        "in the snow",
        "at night",
        "red",
        "a black and white pencil sketch",
    ]
    plain = make_plan(
        load_own_recipe(build_colours(tmp_path / "c", "prompts.shifts.dusk.caption=null"))
    ).shift("dusk")
    assert asked_of_shift(plain) == "Select every image that shows this: dusk"


def test_an_image_that_does_not_open_is_named(tmp_path: Path) -> None:
    def broken(sample: Sample) -> bytes:
        return b"no image"

    directory = build_colours(tmp_path / "colours", image=broken)
    with pytest.raises(RunFailure, match="cannot be opened as an image"):
        review(directory)
