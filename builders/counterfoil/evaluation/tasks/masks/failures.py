"""The page of segmenters' failures: each image on the base and under a shift, with truth, answer and
difference.

A strip is one picture of four panels: the image, its true classes, the model's, and the pixels that
are wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.data.masks import PixelClasses
from counterfoil.evaluation.failures import FOLDER, browser_html, ranks_in_cells, write_browser
from counterfoil.evaluation.scored_models import short_names
from counterfoil.evaluation.tasks.masks.measures import MeasuredSegmenter
from counterfoil.evaluation.tasks.masks.subject import MaskSubject
from counterfoil.recipe.tasks.masks import UNLABELLED
from counterfoil.report.pictures import webp
from counterfoil.report.words import in_words
from counterfoil.store.decoding import readable_image

if TYPE_CHECKING:
    from PIL.Image import Image

# Each row has two strips of some 40 kB.
MOST_ROWS = 300
# The longer side of a panel in pixels; a smaller image keeps its own.
SIDE = 240
_GAP = 4
# Black is no class. Colours are far apart for neighbouring numbers, and hold for 255 classes.
_GOLDEN = 0.618034
_WRONG = (230, 40, 40)


def class_colours() -> NDArray[np.uint8]:
    """Return the colour of each class, (256, 3); unlabelled pixels are black."""
    import colorsys

    colours = []
    for number in range(UNLABELLED):
        hue = number * _GOLDEN % 1
        saturation = 0.55 + 0.35 * (number % 2)
        value = 0.95 - 0.15 * (number % 3)
        colours.append(colorsys.hsv_to_rgb(hue, saturation, value))
    return np.round(255 * np.array([*colours, (0, 0, 0)])).astype(np.uint8)


def strip(image: Image, truth: PixelClasses, answer: PixelClasses) -> Image:
    """Return the four panels of an answer beside each other."""
    from PIL import Image

    colours = class_colours()
    pixels = np.asarray(image.resize(truth.shape[::-1]))
    wrong = (truth != answer) & (truth != UNLABELLED)
    difference = np.where(wrong[..., None], np.array(_WRONG, np.uint8), pixels // 3)
    true_colours = colours[truth]
    answer_colours = colours[answer]
    panels = [pixels, true_colours, answer_colours, difference]
    height, width = truth.shape
    scale = min(1.0, SIDE / max(height, width))
    width, height = (max(1, round(side * scale)) for side in (width, height))
    whole = Image.new("RGB", (4 * width + 3 * _GAP, height), "white")
    for number, panel in enumerate(panels):
        small = Image.fromarray(panel.astype(np.uint8)).resize(
            (width, height), Image.Resampling.NEAREST
        )
        whole.paste(small, (number * (width + _GAP), 0))
    return whole


def write_mask_failures(
    subject: MaskSubject, models: Sequence[MeasuredSegmenter], preview: str, folder: Path
) -> Path:
    """Write the strips of the images that lose most IoU under a shift, then the page, and return
    its path."""
    iou = np.stack([model.image_iou for model in models])
    lost = iou[:, :1] - iou[:, 1:]
    model, shift, image = np.nonzero(lost > 0)
    order = np.lexsort((image, shift, model, -lost[model, shift, image]))
    model, shift, image = model[order], shift[order] + 1, image[order]
    cells = model * len(subject.rows) + shift
    chosen = np.sort(np.argsort(ranks_in_cells(cells), kind="stable")[:MOST_ROWS])
    files: dict[tuple[int, int], str] = {}
    rows: list[dict[str, Any]] = []
    for number, group, scene in zip(
        *(part[chosen].tolist() for part in (model, shift, image)), strict=True
    ):
        pairs = [(number, int(subject.rows[side, scene])) for side in (0, group)]
        strips = [files.setdefault(pair, f"{FOLDER}/{len(files):05d}.webp") for pair in pairs]
        values = [round(float(iou[number, side, scene]), 4) for side in (0, group)]
        wrong = _lost_classes(models[number], group, scene)
        row = {"model": number, "shift": group, "strips": strips, "iou": values, "classes": wrong}
        rows.append(row | {"keys": [subject.dataset.keys[row] for _, row in pairs]})
    colours = class_colours()
    short = short_names([each.name for each in models])
    data = {
        "models": [short[each.name] for each in models],
        "groups": [
            {"id": group.name, "name": in_words(group.name)} for group in subject.dataset.groups
        ],
        "classes": [
            {"name": name, "colour": "#" + bytes(colours[number]).hex()}
            for number, name in enumerate(subject.classes)
        ],
        "rows": rows,
    }
    html = browser_html(
        "failures-of-masks.html.j2",
        subject.dataset.name,
        preview,
        data,
        found=len(cells),
        shown=len(rows),
        images=subject.images,
    )
    return write_browser(folder, html, _strips(subject, models, files), len(files))


def _lost_classes(model: MeasuredSegmenter, group: int, image: int) -> list[int]:
    """Return the classes of which a shift costs an image pixels."""
    hits = [model.counts[side].hits[image] for side in (0, group)]
    return np.flatnonzero(hits[1] < hits[0]).tolist()


def _strips(
    subject: MaskSubject, models: Sequence[MeasuredSegmenter], files: dict[tuple[int, int], str]
) -> Iterator[tuple[str, bytes]]:
    for number, model in enumerate(models):
        rows = sorted(row for of_model, row in files if of_model == number)
        keys = frozenset(subject.dataset.keys[row] for row in rows)
        images = dict(subject.dataset.images(keys)) if keys else {}
        for row, answer in model.answered.again(rows) if rows else ():
            picture = readable_image(images[subject.dataset.keys[row]])
            if picture is not None:
                truth = subject.mask(subject.number_of[row])
                yield files[number, row], webp(strip(picture, truth, answer), 82)
