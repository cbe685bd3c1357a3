"""The ways to prepare images otherwise than a model does, by name: the common faults of a deployment.

`prediction/changes.py` computes them.
"""

from __future__ import annotations

from collections.abc import Sequence

from counterfoil.errors import UserError
from counterfoil.recipe.names import did_you_mean

EVERY = "all"
# Filters of a resize.
INTERPOLATIONS = {
    "nearest": "resized by taking the nearest pixel",
    "bilinear": "resized with the bilinear filter",
    "bicubic": "resized with the bicubic filter",
    "lanczos": "resized with the Lanczos filter",
}
# OpenCV's and TensorFlow's resize skip pixels when they shrink an image, by default.
ALIASED = {
    "bilinear_without_antialias": "resized by bilinear interpolation without antialiasing, as"
    " OpenCV and TensorFlow do by default",
    "bicubic_without_antialias": "resized by bicubic interpolation without antialiasing, as OpenCV"
    " does",
}
# The side of the crop over that of the resized image.
CROPS = {"crop_100": 1.0, "crop_95": 0.95, "crop_87": 0.875}
# Mean and standard deviation of every channel.
NORMALISATIONS = {
    "not_normalised": ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
    "imagenet_mean": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "half_mean": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
}
SQUASH = "squash"
BGR = "bgr"
EXIF = "exif_applied"
SCALED = "jpeg_scaled"
CHROMA = "jpeg_plain_chroma"
# Changes of how a file is read, which concern only some files.
OF_FILES = (EXIF, SCALED, CHROMA)
# Name → what is done to an image.
PREPROCESSING = {
    **INTERPOLATIONS,
    **ALIASED,
    **{name: f"cropped to {share:.1%} of the resized side" for name, share in CROPS.items()},
    SQUASH: "squashed to the input's sides, with no crop",
    EXIF: "turned as the EXIF tag says",
    SCALED: "JPEG decoded at a reduced size, as Pillow's draft mode does",
    CHROMA: "JPEG decoded with repeated chroma pixels, as nvJPEG does by default",
    BGR: "given with red and blue exchanged",
    "not_normalised": "given as levels from 0 to 1, not normalised",
    "imagenet_mean": "normalised with ImageNet's mean and standard deviation",
    "half_mean": "normalised with mean and standard deviation 0.5",
}


def preprocessing_names(words: Sequence[str]) -> tuple[str, ...]:
    """Return the named changes, each once, in their usual order. Raise UserError for unknown names.

    `all` stands for every change.
    """
    if isinstance(words, str):
        words = (words,)
    problems = []
    for word in words:
        if word not in (EVERY, *PREPROCESSING):
            problems.append(
                f"preprocessing: there is no {word[:80]!r}"
                f"{did_you_mean(word, [EVERY, *PREPROCESSING])}"
            )
    if problems:
        raise UserError(problems, f"Names are {EVERY}, {', '.join(PREPROCESSING)}.")
    return tuple(name for name in PREPROCESSING if EVERY in words or name in words)
