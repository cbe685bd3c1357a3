"""The page of detectors' failures: true boxes, found, missed and false ones, on the base and under
shifts.

The page draws boxes over the pictures, so no pixel is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from counterfoil.arrays import Floats, Ints
from counterfoil.detection_stats import AREAS, Detections, Matches, Objects, image_f1
from counterfoil.evaluation.failures import FOLDER, browser_html, ranks_in_cells, write_browser
from counterfoil.evaluation.tasks.objects.error_kinds import KINDS, ErrorKinds
from counterfoil.report.pictures import webp
from counterfoil.report.words import in_words

if TYPE_CHECKING:
    from PIL.Image import Image

# Each row has a picture of some 40 kB; the shifts share one of the base.
MOST_ROWS = 1_000
# The longer side of a picture in pixels; a smaller image keeps its own.
SIDE = 640
_SIZES = [name for name in AREAS if name != "all"]


@dataclass(frozen=True)
class ScoredDetector:
    """One detector on every group, the base first. score: detections count from it on
    (`best_f1_score` of the base).

    errors: one item for each group, from that score on.
    """

    name: str
    score: float
    groups: Sequence[tuple[Detections, Matches]]
    errors: Sequence[ErrorKinds]


@dataclass(frozen=True)
class DetectionFailures:
    """The contents of the page. data: for its script. pictures: (group, image) of each picture, by
    number.

    failing: how many images, by detector and shift, have a missed or a false box; the page may show
    fewer.
    """

    data: dict[str, Any]
    pictures: list[tuple[int, int]]
    failing: int


def detection_failures(
    objects: Objects,
    detectors: Sequence[ScoredDetector],
    groups: Sequence[str],
    categories: Sequence[str],
    sides: Ints,
    keys: Sequence[Sequence[str]],
    most: int = MOST_ROWS,
) -> DetectionFailures:
    """Choose the images with missed or false boxes under a shift. Images that lose most F1 from the
    base come first.

    objects: true boxes, the same for every group. groups: names of the groups, the base first.
    sides: (images, 2) width and height in pixels. keys: for each group, the key of each image. If
    there are more than `most` images, all detectors and shifts have the same bound on the number of
    their images.
    """
    f1_of = []
    for scored in detectors:
        f1_of.append([image_f1(matches, scored.score) for _, matches in scored.groups])
    f1 = np.stack(f1_of)
    lost = f1[:, :1] - f1[:, 1:]
    detector, shift, image = np.nonzero(f1[:, 1:] < 1)
    order = np.lexsort((image, shift, detector, -lost[detector, shift, image]))
    detector = detector[order]
    shift = shift[order]
    image = image[order]
    cell = detector * len(groups) + shift
    chosen = np.sort(np.argsort(ranks_in_cells(cell), kind="stable")[:most])
    answers: dict[tuple[int, int, int], int] = {}
    pictures: dict[tuple[int, int], int] = {}
    scenes = {scene: number for number, scene in enumerate(np.unique(image[chosen]).tolist())}
    rows: list[dict[str, Any]] = []
    for number, group, scene in zip(
        *(part[chosen].tolist() for part in (detector, shift + 1, image)), strict=True
    ):
        pair = [answers.setdefault((number, side, scene), len(answers)) for side in (0, group)]
        shown = [pictures.setdefault((side, scene), len(pictures)) for side in (0, group)]
        loss = round(float(lost[number, group - 1, scene]), 4)
        row = {"detector": number, "shift": group, "scene": scenes[scene], "lost": loss}
        rows.append({**row, "answers": pair, "shown": shown})
    sizes = _sizes(objects.area)
    marks = [_marked(detectors[number], group, scene, objects) for number, group, scene in answers]
    for (number, group, scene), mark in zip(answers, marks, strict=True):
        mark["f1"] = round(float(f1[number, group, scene]), 4)
    scenes_data = []
    for scene in scenes:
        shown_objects = []
        for row in _of_image(objects.image, scene):
            facts = (objects.category[row], sizes[row], objects.crowd[row])
            shown_objects.append([*_rounded(objects.box[row]), *map(int, facts)])
        scenes_data.append({"sides": sides[scene].tolist(), "objects": shown_objects})
    data = {
        "detectors": [{"name": scored.name, "score": scored.score} for scored in detectors],
        "groups": [{"id": name, "name": in_words(name)} for name in groups],
        "categories": list(categories),
        "sizes": _SIZES,
        "errors": list(KINDS),
        "scenes": scenes_data,
        "answers": marks,
        "rows": rows,
        "pictures": [
            {"file": picture_file(number), "key": keys[group][scene]}
            for (group, scene), number in pictures.items()
        ],
    }
    return DetectionFailures(data, list(pictures), len(cell))


def picture_file(number: int) -> str:
    return f"{FOLDER}/{number:05d}.webp"


def _marked(scored: ScoredDetector, group: int, scene: int, objects: Objects) -> dict[str, Any]:
    """Return which objects of one image a detector finds, and its boxes, true and false.

    found: 1 or 0 for each object of the image. boxes: x, y, width, height, category, size, score in
    percent, the kind of error or -1, and the object's number in its image or -1.
    """
    (detections, matches), kinds = scored.groups[group], scored.errors[group].kind
    first = int(np.searchsorted(objects.image, scene))
    times_found = [0] * len(_of_image(objects.image, scene))
    detected = np.flatnonzero(
        (matches.image == scene) & (matches.score >= scored.score) & ~matches.ignored[0, 0]
    )
    boxes = []
    for index in detected[np.argsort(-matches.score[detected], kind="stable")]:
        box = detections.box[matches.row[index]]
        met = int(matches.found[index]) - first if matches.matched[0, 0, index] else -1
        if met >= 0:
            times_found[met] = 1
        size = int(_sizes(np.array([box[2] * box[3]]))[0])
        percent = round(100 * float(matches.score[index]))
        boxes.append(
            [*_rounded(box), int(matches.category[index]), size, percent, int(kinds[index]), met]
        )
    return {"found": times_found, "boxes": boxes}


def _of_image(image: Ints, scene: int) -> range:
    """Return the rows of an image, which are consecutive."""
    return range(
        int(np.searchsorted(image, scene)), int(np.searchsorted(image, scene, side="right"))
    )


def _sizes(area: Floats) -> Ints:
    """Return each area's size as a number. An area at a bound belongs to both sizes; it gets the
    smaller one."""
    return np.searchsorted([AREAS[name][1] for name in _SIZES[:-1]], area)


def _rounded(box: Floats) -> list[float]:
    return [round(float(side), 1) for side in box]


def write_detection_failures(
    name: str,
    failures: DetectionFailures,
    images: int,
    picture: Callable[[int, int], Image | None],
    folder: Path,
    preview: str = "",
) -> Path:
    """Write the pictures and then the page, and return its path; equal evaluations give equal
    bytes.

    images: how many there are in each group. picture: returns the picture of (group, image) as it
    was stored, or None if it cannot be read.
    """
    html = browser_html(
        "failures-of-objects.html.j2",
        name,
        preview,
        failures.data,
        found=failures.failing,
        shown=len(failures.data["rows"]),
        images=images,
    )
    stored = (
        (picture_file(number), picture(*picture_place))
        for number, picture_place in enumerate(failures.pictures)
    )
    pictures = (
        (file, webp(image.convert("RGB"), 82, SIDE)) for file, image in stored if image is not None
    )
    return write_browser(folder, html, pictures, len(failures.pictures))
