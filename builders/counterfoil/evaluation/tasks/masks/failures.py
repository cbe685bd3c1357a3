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

from counterfoil.data.masks import PixelClasses, class_colours
from counterfoil.evaluation.failures import (
    FOLDER,
    browser_html,
    group_names_in_words,
    worst_answers,
    write_browser,
)
from counterfoil.evaluation.scored_models import short_names
from counterfoil.evaluation.tasks.masks.measures import MeasuredSegmenter
from counterfoil.evaluation.tasks.masks.subject import MaskSubject
from counterfoil.recipe.tasks.masks import UNLABELLED
from counterfoil.report.pictures import encode_webp
from counterfoil.store.decoding import readable_image

if TYPE_CHECKING:
    from PIL.Image import Image

# Each row has two strips of some 40 kB.
MOST_ROWS = 300
# The longer side of a panel in pixels; a smaller image keeps its own.
SIDE = 240
_GAP = 4
_WRONG = (230, 40, 40)
# The class of most pixels, such as a background, is pale, so that others stand out.
_MOST = (216, 216, 216)


def shown_colours(subject: MaskSubject) -> NDArray[np.uint8]:
    """Return the colour of each class on the page, (256, 3)."""
    colours = class_colours()
    colours[subject.shares.argmax()] = _MOST
    return colours


def strip(
    image: Image,
    truth: PixelClasses,
    answer: PixelClasses,
    colours: NDArray[np.uint8],
) -> Image:
    """Return the four panels of an answer beside each other."""
    from PIL import Image

    height, width = truth.shape
    resized = image.resize((width, height))
    pixels = np.asarray(resized)
    wrong = (truth != answer) & (truth != UNLABELLED)
    red = np.array(_WRONG, np.uint8)
    difference = np.where(wrong[..., None], red, pixels // 3)
    scale = min(1.0, SIDE / max(height, width))
    width = max(1, round(width * scale))
    height = max(1, round(height * scale))
    length = 4 * width + 3 * _GAP
    whole = Image.new("RGB", (length, height), "white")
    left = 0
    for panel in (pixels, colours[truth], colours[answer], difference):
        shown = Image.fromarray(panel.astype(np.uint8))
        small = shown.resize((width, height), Image.Resampling.NEAREST)
        whole.paste(small, (left, 0))
        left += width + _GAP
    return whole


def write_mask_failures(
    subject: MaskSubject,
    models: Sequence[MeasuredSegmenter],
    preview: str,
    folder: Path,
) -> Path:
    """Write the strips of the images that lose most IoU under a shift, then the page, and return
    its path."""
    iou = np.stack([model.image_iou for model in models])
    lost = iou[:, :1] - iou
    loses = lost > 0
    keys = subject.dataset.keys
    files: dict[tuple[int, int], str] = {}
    rows: list[dict[str, Any]] = []
    shown = worst_answers(lost, loses, MOST_ROWS)
    for number, group, scene in shown.tolist():
        strips = []
        names = []
        values = []
        for side in (0, group):
            row = int(subject.rows[side, scene])
            file = f"{FOLDER}/{len(files):05d}.webp"
            strips.append(files.setdefault((number, row), file))
            names.append(keys[row])
            value = float(iou[number, side, scene])
            values.append(round(value, 4))
        counts = models[number].counts
        costs_pixels = counts[group].hits[scene] < counts[0].hits[scene]
        card = {
            "model": number,
            "shift": group,
            "strips": strips,
            "iou": values,
            "classes": np.flatnonzero(costs_pixels).tolist(),
            "keys": names,
        }
        rows.append(card)
    colours = shown_colours(subject)
    classes = []
    for number, name in enumerate(subject.classes):
        colour = bytes(colours[number]).hex()
        classes.append({"name": name, "colour": f"#{colour}"})
    short = short_names([each.name for each in models])
    groups = [each.name for each in subject.dataset.groups]
    data = {
        "models": [short[each.name] for each in models],
        "groups": group_names_in_words(groups),
        "classes": classes,
        "rows": rows,
    }
    html = browser_html(
        "failures-of-masks.html.j2",
        subject.dataset.name,
        preview,
        data,
        found=int(loses.sum()),
        shown=len(rows),
        images=subject.images,
    )
    pictures = _strips(subject, models, files)
    return write_browser(folder, html, pictures, len(files))


def _strips(
    subject: MaskSubject,
    models: Sequence[MeasuredSegmenter],
    files: dict[tuple[int, int], str],
) -> Iterator[tuple[str, bytes]]:
    keys = subject.dataset.keys
    colours = shown_colours(subject)
    for number, model in enumerate(models):
        rows = sorted(row for of_model, row in files if of_model == number)
        if not rows:
            continue
        wanted = frozenset(keys[row] for row in rows)
        images = dict(subject.dataset.images(wanted))
        for row, answer in model.answered.again(rows):
            picture = readable_image(images[keys[row]])
            if picture is None:
                continue
            truth = subject.mask(subject.number_of[row])
            panels = strip(picture, truth, answer, colours)
            yield files[number, row], encode_webp(panels, 82)
