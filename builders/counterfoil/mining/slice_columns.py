"""The columns by which images are cut into slices: measures of pixels and files, shifts, and
classifier features.

Only the part of the classifier's features that its last layer does not read is used. Groups by the
other part would mostly repeat the answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from counterfoil.arrays import Floats, Floats32
from counterfoil.data.tables import EVERYTHING
from counterfoil.errors import CounterfoilError, UserError
from counterfoil.mining.audited import Audited
from counterfoil.mining.hypotheses import SliceColumns
from counterfoil.models.classifiers import load_classifier
from counterfoil.models.classifiers.head import head_of
from counterfoil.prediction.embedding import classifier_embedder, embed
from counterfoil.progress import track
from counterfoil.recipe import Recipe
from counterfoil.recipe.prompts import BASE
from counterfoil.store.decoding import open_image

if TYPE_CHECKING:
    from PIL.Image import Image

# Larger images are reduced to this size first, so that focus is measured as a model of usual input
# size sees it.
_LONGEST_SIDE = 256
# Of the luminance table of quality 50 (ITU-T T.81, table K.1), from which libjpeg scales those of
# all others.
_TABLE_SUM = 3688
_TABLE_LEAST = 10
_CLIPPED = 255
_LOSSLESS = 100


@dataclass(frozen=True, slots=True)
class ImageMeasure:
    """A measure of images."""

    name: str
    low: str
    """A word for images with little of it."""
    high: str
    """A word for images with much of it."""
    unit: str = ""

    def words(self, *values: float) -> str:
        """Return a value, or the span of several: `62 of 255`, `41 to 80 of 255`."""
        ends = []
        for value in (min(values), max(values)):
            ends.append(f"{value:,.0f}" if abs(value) >= 10 else f"{value:.2g}")
        return " to ".join(dict.fromkeys(ends)) + self.unit


IMAGE_MEASURES = (
    ImageMeasure("brightness", "dark", "bright", " of 255"),
    ImageMeasure("contrast", "low in contrast", "rich in contrast", " of 255"),
    ImageMeasure("saturation", "pale", "colourful", " of 255"),
    ImageMeasure("red minus blue", "bluish", "reddish", " of 255"),
    ImageMeasure("variance of the Laplacian", "blurred", "sharp"),
    ImageMeasure("size", "small", "large", " pixels"),
    ImageMeasure("width divided by height", "tall", "wide"),
    ImageMeasure("JPEG quality", "strongly compressed", "lightly compressed", " of 100"),
)


def measure_image(image: Image, encoded: bytes) -> tuple[float, ...]:
    """Return the measures of an RGB image and of its file, in the order of `IMAGE_MEASURES`.

    brightness, contrast: the mean and the standard deviation of the luma (ITU-R BT.601).
    saturation: the mean of the saturation in HSV.
    """
    width, height = image.size
    if max(width, height) > _LONGEST_SIDE:
        image = image.copy()
        image.thumbnail((_LONGEST_SIDE, _LONGEST_SIDE))
    luma = np.asarray(image.convert("L"), dtype=np.float64)
    colours = np.asarray(image, dtype=np.float64)
    red, _, blue = colours.mean(axis=(0, 1))
    rows = luma[:, 1:-1]
    columns = luma[1:-1]
    neighbours = rows[:-2] + rows[2:]
    neighbours += columns[:, :-2]
    neighbours += columns[:, 2:]
    laplacian = neighbours - 4 * luma[1:-1, 1:-1]
    focus = 0.0
    if laplacian.size:
        focus = float(laplacian.var())
    hsv = np.asarray(image.convert("HSV"))
    saturation = hsv[..., 1]
    return (
        float(luma.mean()),
        float(luma.std()),
        float(saturation.mean()),
        float(red - blue),
        focus,
        float(width * height),
        width / height,
        jpeg_quality(encoded),
    )


def jpeg_quality(encoded: bytes) -> float:
    """Return the quality of a JPEG on libjpeg's scale, 1 to 100, computed from its luminance table.
    A file of another format has 100.
    """
    image = open_image(encoded, photograph=True)
    tables = getattr(image, "quantization", {})
    table = tables.get(0)
    if table is None:
        return float(_LOSSLESS)
    # At low qualities, large entries of the table are clipped, but the smallest entry never is.
    factor = min(table) / _TABLE_LEAST
    if max(table) < _CLIPPED:
        factor = sum(table) / _TABLE_SUM
    percent = 100 * factor
    quality = 100 - percent / 2
    if percent > 100:
        quality = 5000 / percent
    whole = max(1, round(quality))
    return float(min(_LOSSLESS, whole))


_LEAST = 1e-6  # of the largest singular value: what is below is rounding


def slice_columns(
    audited: Audited,
    recipe: Recipe,
    device: str,
) -> tuple[SliceColumns, Floats32, tuple[str, ...]]:
    """Return the columns, their values (n, columns) for the n audited images, and notes for
    people."""
    notes = []
    measured = _measured(audited)
    images = len(measured)
    unmeasured = np.isnan(measured)
    blind = int(unmeasured[:, 0].sum())
    if blind:
        notes.append(
            f"{blind:,} of {images:,} images cannot be decoded, so nothing was measured of them"
        )
    # Unmeasured values get the median, far from either end.
    medians = 0.0
    if blind < images:
        medians = np.nanmedian(measured, axis=0)
    measured = np.where(unmeasured, medians, measured)
    spans = np.ptp(measured, axis=0)
    varied = np.flatnonzero(spans > 0)
    shifts, of_shift = _shifts(audited)
    try:
        features = _own_features(audited, recipe, device)
    except CounterfoilError as error:
        notes.append(f"images were not grouped by the classifier's own features: {error.reason}")
        features = np.zeros((images, 0))
    measures = tuple(IMAGE_MEASURES[index] for index in varied.tolist())
    columns = SliceColumns(measures, shifts, features.shape[1])
    parts = [measured[:, varied], of_shift, features]
    values = np.concatenate(parts, axis=1)
    return columns, values.astype(np.float32), tuple(notes)


def _measured(audited: Audited) -> Floats:
    """Return the measures of the audited images, (n, measures). An image that cannot be decoded has
    NaN."""
    unmeasured = (np.nan,) * len(IMAGE_MEASURES)
    measures = []
    for part in audited.parts:
        stage = f"{part.name}: measuring images"
        read = track(part.images(), stage, len(part), 1000)
        for _, encoded in read:
            image = part.decoded(encoded)
            if image is None or encoded is None:
                measures.append(unmeasured)
            else:
                measures.append(measure_image(image, encoded))
    return np.asarray(measures)[audited.rows]


def _shifts(audited: Audited) -> tuple[tuple[str, ...], Floats]:
    """Return the shifts of built datasets beside the base, and (n, shifts) with 1 where an image is
    of one."""
    by_part = []
    for part in audited.parts:
        group_names = np.asarray(part.group_names, dtype=object)
        by_part.append(group_names[part.groups])
    names = np.concatenate(by_part)
    shifts = set(names.tolist()) - {BASE, EVERYTHING}
    in_order = tuple(sorted(shifts))
    row_names = names[audited.rows]
    of_shift = row_names[:, None] == np.asarray(in_order, dtype=object)
    return in_order, of_shift.astype(np.float64)


def _own_features(audited: Audited, recipe: Recipe, device: str) -> Floats:
    """Return (n, width) unit vectors of the features that the last layer does not read; UserError
    without any."""
    name = audited.target.classifier.name
    classifier = load_classifier(name, classes=recipe.classes).placed(device)
    read = head_of(classifier, device).weight
    embedder = classifier_embedder(classifier, device)
    parts = []
    for part in audited.parts:
        vectors = embed(part, embedder, precision="float32", device=device)
        parts.append(vectors)
    features = np.concatenate(parts)[audited.rows]
    features = features.astype(np.float64)
    if not np.isfinite(features).all():
        raise UserError(f"model {classifier.name!r} gives features that are not finite")
    # Answers depend on differences of outputs alone.
    differences = (read - read.mean(axis=0)).astype(np.float64)
    _, sizes, axes = np.linalg.svd(differences, full_matrices=False)
    axes = axes[sizes > _LEAST * sizes[0]]
    width = features.shape[1]
    if len(axes) >= width - 1:
        raise UserError(
            f"model {classifier.name!r}: its last layer reads all {width:,} of its features"
        )
    centre = features[audited.halves.discover].mean(axis=0)
    left = features - centre
    left -= left @ axes.T @ axes
    lengths = np.linalg.norm(left, axis=1, keepdims=True)
    return left / np.maximum(lengths, np.finfo(np.float32).tiny)
