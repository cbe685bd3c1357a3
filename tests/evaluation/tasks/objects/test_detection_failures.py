"""The page of detections: what it chooses, and what a browser shows of it."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from itertools import repeat
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from contrast import faint_texts
from counterfoil.detection_stats import (
    Detections,
    Objects,
    best_f1_score,
    image_f1,
    match_detections,
)
from counterfoil.evaluation.tasks.objects.detections import ModelDetections
from counterfoil.evaluation.tasks.objects.error_kinds import KINDS, error_kinds
from counterfoil.evaluation.tasks.objects.failures import (
    detection_failures,
    write_detection_failures,
)
from counterfoil.evaluation.tasks.objects.measures import MeasuredModel

if TYPE_CHECKING:
    from playwright.sync_api import Page

CATEGORIES = ("cup", "<b>lamp</b>", "traffic light")
COLOURS = ("#c1440e", "#2f6f9f", "#5b8c2a")
GROUPS = ("base", "dense_fog", "blur")
IMAGES = 24
SIDES = (320, 240)


def scenes(seed: int = 0) -> tuple[Objects, list[MeasuredModel]]:
    """Make the answers of two detectors: they lose boxes under fog, fewer under blur, and invent
    some."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 5, IMAGES)
    image = np.repeat(np.arange(IMAGES), counts)
    corner = np.stack([rng.integers(0, 220, len(image)), rng.integers(0, 150, len(image))], axis=1)
    box = np.concatenate([corner, rng.integers(20, 90, (len(image), 2))], axis=1).astype(float)
    category = rng.integers(len(CATEGORIES), size=len(image))
    objects = Objects.of(image, box, category, crowd=rng.random(len(image)) < 0.08)
    detectors = []
    for name, skill in (("careful", 0.95), ("hasty & <i>bold</i>", 0.8)):
        answers = []
        matches = []
        for loss in (0.0, 0.5, 0.15):
            kept = rng.random(len(image)) < skill - loss
            more = rng.integers(IMAGES, size=int(6 + 20 * loss))
            invented = np.concatenate(
                [rng.integers(0, 150, (len(more), 2)), rng.integers(20, 60, (len(more), 2))], axis=1
            )
            boxes = np.concatenate(
                [objects.box[kept] + rng.integers(-2, 3, (int(kept.sum()), 4)), invented]
            )
            labels = np.concatenate(
                [objects.category[kept], rng.integers(len(CATEGORIES), size=len(more))]
            )
            images = np.concatenate([objects.image[kept], more])
            score = np.concatenate(
                [rng.uniform(0.5, 0.99, int(kept.sum())), rng.uniform(0.3, 0.7, len(more))]
            )
            detections = Detections.of(images, boxes, labels, score)
            answers.append(detections)
            matches.append(match_detections(objects, detections, IMAGES, len(CATEGORIES)))
        least = best_f1_score(matches[0])
        detectors.append(
            MeasuredModel(
                name=name,
                detections=ModelDetections(name, images, detections.box, labels, score),
                answers=tuple(answers),
                matches=tuple(matches),
                score=least,
                scores=(),
                f1=np.stack([image_f1(each, least) for each in matches]),
                errors=tuple(map(error_kinds, repeat(objects), answers, matches, repeat(least))),
            )
        )
    return objects, detectors


def subject_of(objects: Objects) -> Any:
    """Make what the page reads of a dataset with these objects in every group."""
    keys = [f"{group}/{image:06d}" for group in GROUPS for image in range(IMAGES)]

    def images(wanted: frozenset[str]) -> Iterator[tuple[str, bytes]]:
        for row, key in enumerate(keys):
            if key in wanted:
                buffer = io.BytesIO()
                drawn(objects, *divmod(row, IMAGES)).save(buffer, "png")
                yield key, buffer.getvalue()

    groups = [SimpleNamespace(name=name) for name in GROUPS]
    return SimpleNamespace(
        truth=objects,
        rows=np.arange(len(keys)).reshape(len(GROUPS), IMAGES),
        images=IMAGES,
        categories=CATEGORIES,
        sides=np.tile(SIDES, (IMAGES, 1)),
        dataset=SimpleNamespace(name="cups", keys=keys, groups=groups, images=images),
    )


def shown(
    objects: Objects, detectors: list[MeasuredModel], most: int = 1000
) -> tuple[dict[str, Any], int]:
    return detection_failures(subject_of(objects), detectors, most)


def drawn(objects: Objects, group: int, scene: int) -> Image.Image:
    picture = Image.new("RGB", SIDES, "#d8d2c4")
    draw = ImageDraw.Draw(picture)
    for row in np.flatnonzero(objects.image == scene):
        x, y, width, height = objects.box[row]
        draw.ellipse([x, y, x + width - 1, y + height - 1], fill=COLOURS[objects.category[row]])
    if group == 1:
        return Image.blend(picture, Image.new("RGB", SIDES, "white"), 0.6)
    return picture.filter(ImageFilter.GaussianBlur(4)) if group == 2 else picture


def test_rows_come_by_the_f1_that_they_lose() -> None:
    objects, detectors = scenes()
    data, all_failing = shown(objects, detectors)
    lost = [row["lost"] for row in data["rows"]]
    assert lost == sorted(lost, reverse=True) and lost[0] > 0.4
    failing = 0
    for number, detector in enumerate(detectors):
        f1 = detector.f1
        for group in (1, 2):
            rows = [
                row for row in data["rows"] if (row["detector"], row["shift"]) == (number, group)
            ]
            assert len(rows) == (f1[group] < 1).sum()
            failing += len(rows)
            losses = np.sort((f1[0] - f1[group])[f1[group] < 1])
            np.testing.assert_allclose(
                sorted(row["lost"] for row in rows), losses, rtol=0, atol=1e-4
            )
    assert all_failing == failing


def test_boxes_agree_with_the_f1_of_the_image() -> None:
    objects, detectors = scenes()
    data, _ = shown(objects, detectors)
    for row in data["rows"]:
        scene = data["scenes"][row["scene"]]
        for answer in (data["answers"][number] for number in row["answers"]):
            counting = [at for at, entry in enumerate(scene["objects"]) if not entry[-1]]
            hits = sum(answer["found"][at] for at in counting)
            assert sorted(box[-1] for box in answer["boxes"] if box[-1] >= 0) == [
                at for at in counting if answer["found"][at]
            ]
            assert all((box[-2] >= 0) == (box[-1] < 0) for box in answer["boxes"]), (
                "a false box has a kind of error"
            )
            whole = len(counting) + len(answer["boxes"])
            assert answer["f1"] == (round(2 * hits / whole, 4) if whole else 1.0)


def test_many_failures_are_cut_evenly() -> None:
    objects, detectors = scenes()
    whole, failing = shown(objects, detectors)
    some, failing_of_some = shown(objects, detectors, most=10)
    assert len(some["rows"]) == 10 and failing_of_some == failing
    cells = [(row["detector"], row["shift"]) for row in some["rows"]]
    assert {cells.count(cell) for cell in set(cells)} <= {2, 3} and len(set(cells)) == 4
    for cell in set(cells):
        best = [row["lost"] for row in whole["rows"] if (row["detector"], row["shift"]) == cell]
        assert [
            row["lost"] for row in some["rows"] if (row["detector"], row["shift"]) == cell
        ] == best[: cells.count(cell)]
    pictures = [picture["key"] for picture in some["pictures"]]
    assert len(pictures) == len(set(pictures))


def written(folder: Path, seed: int = 0) -> Path:
    objects, detectors = scenes(seed)
    return write_detection_failures(subject_of(objects), detectors, "", folder)


def test_pictures_are_as_they_were_and_old_ones_go(tmp_path: Path) -> None:
    page = written(tmp_path)
    (tmp_path / "failures" / "99999.webp").write_bytes(b"old")
    (tmp_path / "failures" / "mine.webp").write_bytes(b"kept")
    before = page.read_bytes()
    assert written(tmp_path).read_bytes() == before
    names = {path.name for path in (tmp_path / "failures").iterdir()}
    assert "99999.webp" not in names and "mine.webp" in names
    # WebP is lossy, but pictures have no drawn boxes.
    objects, detectors = scenes()
    data, _ = shown(objects, detectors)
    for number, picture in enumerate(data["pictures"][:6]):
        group, image = picture["key"].split("/")
        stored = np.asarray(
            Image.open(tmp_path / "failures" / f"{number:05d}.webp").convert("RGB"), np.int64
        )
        difference = np.abs(
            stored - np.asarray(drawn(objects, GROUPS.index(group), int(image)), np.int64)
        )
        assert difference.mean() < 3


def tiles(page: Page) -> list[dict[str, Any]]:
    return page.eval_on_selector_all(
        ".tile",
        "all => all.map(one => ({text: one.innerText, boxes:"
        " one.querySelectorAll('rect:not(.under)').length}))",
    )


def test_the_page_filters_and_shows_base_and_shift(
    open_page: Callable[..., Page], tmp_path: Path
) -> None:
    page = open_page(written(tmp_path))
    data = page.evaluate("data")
    everything = tiles(page)
    assert len(everything) == min(60, len(data["rows"]))
    first = data["rows"][0]
    answer = data["answers"][first["answers"][1]]
    scene = data["scenes"][first["scene"]]
    missed = sum(
        not hit and not entry[-1]
        for hit, entry in zip(answer["found"], scene["objects"], strict=True)
    )
    false = sum(box[-1] < 0 for box in answer["boxes"])
    assert f"{missed} missed" in everything[0]["text"] and f"{false} false" in everything[0]["text"]
    crowds = sum(entry[-1] for entry in scene["objects"])
    assert everything[0]["boxes"] == len(answer["boxes"]) + missed + crowds
    page.select_option("#group", label=page.inner_text("#group option:nth-child(2)"))
    page.check("input[value=missed]")
    fewer = tiles(page)
    assert (
        0 < len(fewer) < len(everything)
        and "kind=missed" in page.url
        and "shift=dense_fog" in page.url
    )
    page.select_option("#category", label=page.inner_text("#category option:nth-child(3)"))
    assert 0 < len(tiles(page)) < len(fewer)
    page.click(".tile")
    assert page.locator("#zoom figure").count() == 2
    assert "missed" in page.inner_text("#zoom-table")
    assert page.locator("#zoom b, #zoom i").count() == 0  # names are text
    page.keyboard.press("Escape")
    page.click("button[type=reset]")
    assert len(tiles(page)) == len(everything)
    page.select_option("#error", label=page.inner_text("#error option:nth-child(2)"))
    kind = next(name for name in KINDS if f"error={name}" in page.url)
    number = KINDS.index(kind)
    with_it = [
        any(box[-2] == number for box in data["answers"][row["answers"][1]]["boxes"])
        for row in data["rows"]
    ]
    assert len(tiles(page)) == min(60, sum(with_it)) > 0
    page.click(".tile")
    assert f"false: {kind}" in page.inner_text("#zoom-table")
    again = open_page(tmp_path / "failures.html", fragment="#shift=blur&kind=false")
    assert {tile["text"].splitlines()[-1].split(" · ")[0] for tile in tiles(again)} == {"blur"}


def test_texts_stand_out(open_page: Callable[..., Page], tmp_path: Path) -> None:
    page = written(tmp_path)
    for dark in (False, True):
        for width in (1300, 400):
            opened = open_page(page, width=width, dark=dark)
            opened.click(".tile")
            assert not faint_texts(opened)
            assert opened.evaluate("document.documentElement.scrollWidth") <= width
