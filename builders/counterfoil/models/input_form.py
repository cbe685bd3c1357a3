"""What a classifier's input may look like: the sides, how images are resized and cropped, and how they are normalised.

A configuration says it, images follow it, and memory is taken for it: what it asks for is checked before an image is
decoded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from counterfoil.errors import UserError
from counterfoil.models.config_files import is_integer, is_number, shown

# Four times the longest side of any model that timm 1.0.31 knows (1,024); one such image takes 201 MB as float32.
LARGEST_SIDE = 4096
# An image is resized to its side divided by crop_pct first; timm's own are 0.875 to 1.15.
LEAST_CROP, MOST_CROP = 0.1, 2.0
LARGEST_RESIZED_SIDE = 2 * LARGEST_SIDE
# RGB of 400 MB. An image of one row resized by its shorter side would become wider without end.
MOST_RESIZED_PIXELS = 1 << 27
_LEAST_STD, _MOST_SHIFT = 1e-6, 1e6

INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "box", "hamming", "lanczos")
CROP_MODES = ("center", "squash", "border")


def input_problems(form: Mapping[str, Any]) -> list[str]:
    """A line for each key of timm's `pretrained_cfg` that no input can have; a key left out or null has its default."""
    given = {key: value for key, value in form.items() if value is not None}
    problems = [
        _told(key, given[key], f"[3, height, width] with sides from 1 to {LARGEST_SIDE:,}")
        for key in ("input_size", "test_input_size")
        if key in given and not _is_size(given[key])
    ]
    problems += [
        _told(key, given[key], f"a number from {LEAST_CROP} to {MOST_CROP:g}")
        for key in ("crop_pct", "test_crop_pct")
        if key in given and not is_number(given[key], LEAST_CROP, MOST_CROP)
    ]
    if not problems:
        problems += _resize_problems(given)
    problems += [
        _told(key, given[key], f"one of {', '.join(known)}")
        for key, known in (("interpolation", INTERPOLATIONS), ("crop_mode", CROP_MODES))
        if key in given and given[key] not in known
    ]
    if "mean" in given and not _are_three(given["mean"], -_MOST_SHIFT, _MOST_SHIFT):
        problems.append(_told("mean", given["mean"], "three finite numbers"))
    elif given.get("crop_mode") == "border" and "mean" in given and not _are_three(given["mean"], 0, 1):
        problems.append(_told("mean", given["mean"], "three numbers from 0 to 1, the colour of the border"))
    if "std" in given and not _are_three(given["std"], _LEAST_STD, _MOST_SHIFT):
        problems.append(_told("std", given["std"], f"three numbers from {_LEAST_STD:f} to {_MOST_SHIFT:,.0f}"))
    if not isinstance(given.get("fixed_input_size", False), bool):
        problems.append(_told("fixed_input_size", given["fixed_input_size"], "true or false"))
    return problems


def refuse_unlike_sides(model: str, image: tuple[int, int], sides: tuple[int, int], mode: str = "center") -> None:
    """UserError for an image (width, height) with which resizing to `sides` (height, width) would take memory or fail.

    Where the shorter side is made to fit, an image of one row grows without end; where the longer one is, it vanishes.
    """
    if mode == "squash":
        return
    width, height = image
    ratios = sides[1] / width, sides[0] / height
    scale = min(ratios) if mode == "border" else max(ratios)
    resized = round(width * scale), round(height * scale)
    if min(resized) < 1 or resized[0] * resized[1] > MOST_RESIZED_PIXELS:
        raise UserError(
            f"an image of {width:,} x {height:,} pixels would be resized to {resized[0]:,} x {resized[1]:,} "
            f"for model {model!r}",
            "Remove this image: nothing can be seen in it.",
        )


def resized_sides(data_config: Mapping[str, Any]) -> tuple[int, int]:
    """(height, width) that an image is resized to before it is cropped, of timm's resolved data configuration."""
    return _divided(data_config["input_size"], data_config["crop_pct"])


def _resize_problems(given: Mapping[str, Any]) -> list[str]:
    """Where the sides fit and the crop fits, but together they resize images to more than anybody needs."""
    size = given.get("test_input_size", given.get("input_size"))
    crop = given.get("test_crop_pct", given.get("crop_pct"))
    if size is None or crop is None or max(sides := _divided(size, crop)) <= LARGEST_RESIZED_SIDE:
        return []
    return [
        f"input_size and crop_pct: images would be resized to {sides[0]:,} x {sides[1]:,} pixels, "
        f"expected at most {LARGEST_RESIZED_SIDE:,} a side"
    ]


def _divided(size: Any, crop: float) -> tuple[int, int]:
    return math.floor(size[1] / crop), math.floor(size[2] / crop)


def _is_size(value: Any) -> bool:
    if not isinstance(value, list | tuple) or len(value) != 3:
        return False
    return is_integer(value[0], 3, 3) and all(is_integer(side, 1, LARGEST_SIDE) for side in value[1:])


def _are_three(value: Any, least: float, most: float) -> bool:
    return isinstance(value, list | tuple) and len(value) == 3 and all(is_number(one, least, most) for one in value)


def _told(key: str, value: Any, expected: str) -> str:
    return f"{key}: found {shown(value)}, expected {expected}"
