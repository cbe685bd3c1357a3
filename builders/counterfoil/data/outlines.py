"""Draw the outlines of COCO annotations, polygons and run lengths, pixel by pixel as pycocotools does.

Pixels are numbered down the columns, as in run lengths: a pixel has the number x * height + y. An
outline becomes the sorted numbers at which its inside begins and ends. Outlines may come from
anyone, so their sizes are checked before memory is allocated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.arrays import Ints
from counterfoil.data.messages import refusal
from counterfoil.data.written_objects import Size, is_number
from counterfoil.recipe.tasks.masks import UNLABELLED

# pycocotools follows polygons in steps of a fifth of a pixel.
_STEPS = 5
# An outline of this many steps is as long as the edge of 200 photographs.
_MOST_STEPS = 1 << 22
# The pixels between the first and the last of each outline, all together: 250 outlines across an
# image of 4,096 × 4,096 pixels.
_MOST_PIXELS = 1 << 32
# A character of compressed run lengths has five bits of a number, from "0" on, and a bit that says
# whether more follow.
_FIRST = ord("0")
_BITS = 5
_LAST_BITS = 0x1F
_SIGN = 0x10
_MORE = 0x20
_MOST_CHARACTERS = 7  # in a number of 32 bits


@dataclass(frozen=True, slots=True)
class Inside:
    """The pixels of an outline. turns: sorted numbers of pixels at which the inside begins and ends,
    of each polygon."""

    turns: tuple[Ints, ...]

    @property
    def first(self) -> int:
        return min((int(each[0]) for each in self.turns), default=0)

    @property
    def end(self) -> int:
        return max((int(each[-1]) for each in self.turns), default=0)

    @property
    def is_empty(self) -> bool:
        return not any((turns[1::2] > turns[0::2]).any() for turns in self.turns)

    def pixels(self) -> NDArray[np.bool_]:
        """Return whether each pixel from the first to the end is inside."""
        inside = np.zeros(self.end - self.first, bool)
        for turns in self.turns:
            offset = int(turns[0])
            length = int(turns[-1]) - offset
            changes = np.zeros(length + 1, np.int8)
            begins = turns[0::2] - offset
            ends = turns[1::2] - offset
            np.add.at(changes, begins, 1)
            np.subtract.at(changes, ends, 1)
            np.cumsum(changes, dtype=np.int8, out=changes)
            start = offset - self.first
            inside[start : start + length] |= changes[:-1] > 0
        return inside


def inside_of(segmentation: Any, size: Size) -> Inside:
    """Return the pixels of a COCO `segmentation` in an image of a width and height.

    Raise UserError for anything else than a list of polygons, or run lengths of this size.
    """
    if isinstance(segmentation, Mapping):
        return Inside(_kept([_run_turns(segmentation, size)]))
    if not isinstance(segmentation, list) or not segmentation:
        raise refusal("invalid-outline.form", found=segmentation)
    return Inside(_kept([_polygon_turns(polygon, size) for polygon in segmentation]))


def _kept(turns: Sequence[Ints]) -> tuple[Ints, ...]:
    return tuple(each for each in turns if each.size)


def _polygon_turns(polygon: Any, size: Size) -> Ints:
    """Return the turns of a polygon [x1, y1, x2, y2, …], as `rleFrPoly` of pycocotools finds them.

    Fewer than three corners have no inside.
    """
    listed = isinstance(polygon, list) and len(polygon) % 2 == 0
    if not listed or not all(map(is_number, polygon)):
        raise refusal("invalid-outline.polygon", found=polygon)
    if len(polygon) < 6:
        return np.zeros(0, np.int64)
    width, height = size
    exact = _STEPS * np.array(polygon, np.float64) + 0.5
    corners = exact.astype(np.int64).reshape(-1, 2)
    along, across = _steps(corners)
    # Where the line enters another column of steps, the pixels below it change sides.
    entered = np.flatnonzero(np.diff(along))
    columns = np.minimum(along[entered], along[entered + 1])
    rows = np.minimum(across[entered], across[entered + 1])
    # The step in the middle of a pixel decides.
    x = (columns + 0.5) / _STEPS - 0.5
    y = (rows + 0.5) / _STEPS - 0.5
    middle = np.floor(x) == x
    inside = (x >= 0) & (x <= width - 1)
    chosen = middle & inside
    column = x[chosen].astype(np.int64)
    below = np.ceil(np.clip(y[chosen], 0, height))
    row = below.astype(np.int64)
    turns = np.sort(column * height + row)
    return _even(turns, width * height)


def _steps(corners: Ints) -> tuple[Ints, Ints]:
    """Return the steps around a polygon: x and y, from corner to corner. Raise UserError for too
    many."""
    nexts = np.roll(corners, -1, axis=0)
    sides = np.abs(nexts - corners)
    lengths = sides.max(axis=1)
    total = lengths.sum(dtype=np.float64)
    if total > _MOST_STEPS:
        far = np.abs(corners).max() // _STEPS
        raise refusal("invalid-outline.long", found=total / _STEPS, far=far)
    # Each line goes along its longer side, from the lower end: both directions give the same pixels.
    main = np.where(sides[:, 0] >= sides[:, 1], 0, 1)
    lines = np.arange(len(corners))
    back = corners[lines, main] > nexts[lines, main]
    start = np.where(back[:, None], nexts, corners)
    end = np.where(back[:, None], corners, nexts)
    rise = (end - start)[lines, 1 - main]
    slope = rise / np.maximum(lengths, 1)
    # The line of each step, and its number there.
    counts = lengths + 1
    line = np.repeat(lines, counts)
    firsts = np.cumsum(counts) - counts
    step = np.arange(len(line)) - firsts[line]
    step = np.where(back[line], lengths[line] - step, step)
    along = start[line, main[line]] + step
    exact = start[line, 1 - main[line]] + slope[line] * step + 0.5
    across = exact.astype(np.int64)
    flat = main[line] == 0
    x = np.where(flat, along, across)
    y = np.where(flat, across, along)
    return x, y


def _run_turns(runs: Mapping[str, Any], size: Size) -> Ints:
    """Return the turns of run lengths: counts of pixels outside and inside by turns, in a list or
    compressed into text."""
    width, height = size
    pixels = width * height
    written = runs.get("size")
    if written != [height, width]:
        sides = [height, width]
        raise refusal("invalid-outline.runs", None, written, sides)
    counts = runs.get("counts")
    if isinstance(counts, str):
        counts = _uncompressed(counts)
    if not isinstance(counts, list) or len(counts) > pixels + 1:
        raise refusal("invalid-outline.counts")
    for count in counts:
        if type(count) is not int or not 0 <= count <= pixels:
            raise refusal("invalid-outline.run")
    total = sum(counts)
    if total != pixels:
        raise refusal("invalid-outline.total", found=total, expected=pixels)
    turns = np.cumsum(counts[:-1], dtype=np.int64)
    return _even(turns, pixels)


def _uncompressed(text: str) -> list[int]:
    """Return the counts in compressed run lengths, as `rleFrString` of pycocotools reads them. From
    the fourth on, a count is written as its difference from the one two before it."""
    counts = []
    value = 0
    characters = 0
    for character in text:
        bits = ord(character) - _FIRST
        if not 0 <= bits < 2 * _MORE or characters == _MOST_CHARACTERS:
            raise refusal("invalid-outline.damaged")
        value |= (bits & _LAST_BITS) << _BITS * characters
        characters += 1
        if bits & _MORE:
            continue
        if bits & _SIGN:
            value -= 1 << _BITS * characters
        if len(counts) > 2:
            value += counts[-2]
        counts.append(value)
        value = 0
        characters = 0
    if characters:
        raise refusal("invalid-outline.cut")
    return counts


def _even(turns: Ints, end: int) -> Ints:
    """Return turns of which each beginning has an end."""
    return np.append(turns, end) if len(turns) % 2 else turns


def drawn(
    insides: Sequence[Inside],
    numbers: Sequence[int],
    crowds: Sequence[bool],
    size: Size,
    empty: int,
) -> NDArray[np.uint8]:
    """Return the number of each pixel, [height, width]: that of the smallest outline around it, and
    of equals that of the last; `empty` outside all. Crowds have no class and are below all others.

    Files order annotations as people drew them, not by depth. The smallest is seen whole: a cup on a
    table stays a cup. Raise UserError if the outlines take too long to draw.
    """
    width, height = size
    total = sum(inside.end - inside.first for inside in insides)
    if total > _MOST_PIXELS:
        raise refusal(
            "invalid-outline.many", outlines=len(insides), found=total, expected=_MOST_PIXELS
        )
    areas = [np.count_nonzero(inside.pixels()) for inside in insides]
    order = sorted(range(len(insides)), key=lambda each: (not crowds[each], -areas[each]))
    canvas = np.full(width * height, empty, np.uint8)
    for each in order:
        inside = insides[each]
        number = UNLABELLED if crowds[each] else numbers[each]
        canvas[inside.first : inside.end][inside.pixels()] = number
    return np.ascontiguousarray(canvas.reshape(width, height).T)
