"""The page of detectors' failures: true boxes, found, missed and false ones, on the base and under
shifts.

The page draws boxes over the pictures, so no pixel is changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from counterfoil.arrays import Floats, Ints
from counterfoil.detection_stats import AREAS, Objects
from counterfoil.evaluation.failures import (
    FOLDER,
    browser_html,
    group_names_in_words,
    worst_answers,
    write_browser,
)
from counterfoil.evaluation.scored_models import short_names
from counterfoil.evaluation.tasks.objects.error_kinds import KINDS
from counterfoil.evaluation.tasks.objects.measures import MeasuredModel
from counterfoil.evaluation.tasks.objects.subject import DetectionSubject
from counterfoil.report.pictures import encode_webp
from counterfoil.store.decoding import readable_image

# Each row has a picture of some 40 kB; the shifts share one of the base.
MOST_ROWS = 1_000
# The longer side of a picture in pixels; a smaller image keeps its own.
SIDE = 640
_SIZES = [name for name in AREAS if name != "all"]


def detection_failures(
    subject: DetectionSubject,
    models: Sequence[MeasuredModel],
    most: int = MOST_ROWS,
) -> tuple[dict[str, Any], int]:
    """Choose the images with missed or false boxes under a shift. Images that lose most F1 from the
    base come first.

    Return what the page's script reads, and how many images, by detector and shift, have such a
    box. If there are more than `most`, all detectors and shifts have the same bound on the number
    of their images.
    """
    objects = subject.truth
    dataset = subject.dataset
    groups = [group.name for group in dataset.groups]
    short = short_names([model.name for model in models])
    detectors = [{"name": short[model.name], "score": model.score} for model in models]
    f1 = np.stack([model.f1 for model in models])
    lost = f1[:, :1] - f1
    failing = f1 < 1
    failing[:, 0] = False  # the base is shown beside each shift
    shown = worst_answers(lost, failing, most)
    images = np.unique(shown[:, 2]).tolist()
    answers: dict[tuple[int, int, int], int] = {}
    pictures: dict[tuple[int, int], int] = {}
    rows: list[dict[str, Any]] = []
    for number, shift, scene in shown.tolist():
        of_row = []
        shown_pictures = []
        for side in (0, shift):
            answer = answers.setdefault((number, side, scene), len(answers))
            of_row.append(answer)
            picture = pictures.setdefault((side, scene), len(pictures))
            shown_pictures.append(picture)
        loss = float(lost[number, shift, scene])
        row = {
            "detector": number,
            "shift": shift,
            "scene": images.index(scene),
            "lost": round(loss, 4),
            "answers": of_row,
            "shown": shown_pictures,
        }
        rows.append(row)
    marks = []
    for number, side, scene in answers:
        mark = _marked(models[number], side, scene, objects)
        value = float(f1[number, side, scene])
        mark["f1"] = round(value, 4)
        marks.append(mark)
    facts = np.stack([objects.category, _sizes(objects.area), objects.crowd], axis=1)
    scenes = []
    for scene in images:
        shown_objects = []
        for index in _of_image(objects.image, scene):
            box = _rounded(objects.box[index])
            shown_objects.append([*box, *facts[index].tolist()])
        scenes.append({"sides": subject.sides[scene].tolist(), "objects": shown_objects})
    files = []
    for (side, scene), number in pictures.items():
        key = dataset.keys[subject.rows[side, scene]]
        files.append({"file": picture_file(number), "key": key})
    data = {
        "detectors": detectors,
        "groups": group_names_in_words(groups),
        "categories": list(subject.categories),
        "sizes": _SIZES,
        "errors": list(KINDS),
        "scenes": scenes,
        "answers": marks,
        "rows": rows,
        "pictures": files,
    }
    return data, int(failing.sum())


def picture_file(number: int) -> str:
    return f"{FOLDER}/{number:05d}.webp"


def _marked(
    model: MeasuredModel,
    group: int,
    image: int,
    objects: Objects,
) -> dict[str, Any]:
    """Return which objects of one image a detector finds, and its boxes, true and false.

    found: 1 or 0 for each object of the image. boxes: x, y, width, height, category, size, score in
    percent, the kind of error or -1, and the object's number in its image or -1.
    """
    detections = model.answers[group]
    matches = model.matches[group]
    kinds = model.errors[group].kind
    of_image = _of_image(objects.image, image)
    is_met = [0] * len(of_image)
    counting = (matches.image == image) & matches.counting(model.score)
    detected = np.flatnonzero(counting)
    best_first = np.argsort(-matches.score[detected], kind="stable")
    boxes = []
    for index in detected[best_first]:
        box = detections.box[matches.row[index]]
        met = -1
        if matches.matched[0, 0, index]:
            met = int(matches.found[index]) - of_image.start
            is_met[met] = 1
        _, _, width, height = box
        facts = (
            matches.category[index],
            _sizes(width * height),
            round(100 * float(matches.score[index])),
            kinds[index],
            met,
        )
        boxes.append([*_rounded(box), *map(int, facts)])
    return {"found": is_met, "boxes": boxes}


def _of_image(images: Ints, image: int) -> range:
    """Return the rows of an image, which are consecutive."""
    first, last = np.searchsorted(images, [image, image + 1]).tolist()
    return range(first, last)


def _sizes(area: Any) -> Ints:
    """Return each area's size as a number. An area at a bound belongs to both sizes; it gets the
    smaller one."""
    bounds = [AREAS[name][1] for name in _SIZES[:-1]]
    return np.searchsorted(bounds, area)


def _rounded(box: Floats) -> list[float]:
    return [round(float(side), 1) for side in box]


def write_detection_failures(
    subject: DetectionSubject,
    models: Sequence[MeasuredModel],
    preview: str,
    folder: Path,
) -> Path:
    """Write the pictures as they were stored, and then the page, and return its path; equal
    evaluations give equal bytes."""
    data, failing = detection_failures(subject, models)
    html = browser_html(
        "failures-of-objects.html.j2",
        subject.dataset.name,
        preview,
        data,
        found=failing,
        shown=len(data["rows"]),
        images=subject.images,
    )
    keys = [picture["key"] for picture in data["pictures"]]

    def pictures() -> Iterator[tuple[str, bytes]]:
        stored = dict(subject.dataset.images(frozenset(keys)))
        for number, key in enumerate(keys):
            picture = readable_image(stored.get(key))
            if picture is not None:
                yield picture_file(number), encode_webp(picture, 82, SIDE)

    return write_browser(folder, html, pictures(), len(keys))
