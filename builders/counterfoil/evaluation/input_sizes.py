"""Whether a person's own model takes images of about the size that they have, or far larger ones: in words."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from counterfoil.report.results import Results
from counterfoil.sources.labelled_images import LabelledImages, thinned

_LOOKED_AT = 9
# Enlarged so much, an image is nothing that a model of its own size has seen; photographs are seldom smaller.
_FAR = 3


def usual_side(sets: Iterable[LabelledImages]) -> int | None:
    """The shorter side of a set's images, by the median of a few, in pixels: of the set with the smallest."""
    found = []
    for images in sets:
        decoded = (images.decoded(encoded) for _, encoded in thinned(images, _LOOKED_AT).images())
        sides = [min(image.size) for image in decoded if image is not None]
        found += [int(median(sides))] if sides else []
    return min(found, default=None)


def spoken_sizes(results: Results) -> tuple[str, ...]:
    """A hint for each timm folder by whose configuration these images are enlarged far; none where none are."""
    side = results.image_side
    return tuple(
        f"{model.short_name} gets these images enlarged {model.img_size / side:.0f} times: they have {side} pixels a"
        f" side, and its folder says {model.img_size}. If it was trained on images of {side}, these answers are worth"
        f" little: set input_size to [3, {side}, {side}] in the pretrained_cfg of the folder's config.json."
        for model in results.models
        if side and model.img_size and model.img_size >= _FAR * side and model.name.startswith("local-dir:")
    )
