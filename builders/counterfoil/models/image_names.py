"""Find images by the names that a file of answers gives them, by one rule for all its lines.

A name is a key, or a path. Paths agree if their ends agree: a rule takes the same first folders off
every path of the file and off every path of the dataset (`/data/photos/cat/1.jpg` and
`val/cat/1.jpg`), so it does not matter below which folder a path begins. The rule that finds most
images is taken. Accents, `./` and backslashes make no difference.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from counterfoil.arrays import Ints
from counterfoil.documents import as_cell
from counterfoil.models.messages import refusal
from counterfoil.report.words import format_count

# No image, and one of several images.
NO_IMAGE = -1
SEVERAL = -2
_LOOKED_AT = 2_000  # names of a file from which rules are made
_MOST_ALIKE = 50  # images with the same file name
_MOST_RULES = 6

Parts = tuple[str, ...]

# Folders of splits: images of the first are rarely those of the second.
_TRAINING = ("train", "training")
_HELD_OUT = ("validation", "valid", "val", "dev", "test", "testing")


@dataclass(frozen=True)
class FoundImages:
    """rows: (lines,) the image that each line names, NO_IMAGE or SEVERAL. how: the rule in words;
    empty if exact."""

    rows: Ints
    how: str = ""


@dataclass(frozen=True)
class _Rule:
    """taken_off: the first folders of a path in the file that do not count. added: the first
    folders in the dataset, or None if they differ from image to image.
    """

    taken_off: Parts
    added: Parts | None

    def words(self) -> str:
        """Say what is left of the paths. Folders are not named, because they may name people."""
        texts: list[str] = []
        if self.taken_off:
            texts.append(
                f"the first {format_count(len(self.taken_off), 'folder')} of the file's paths"
            )
        if self.added is None:
            texts.append("all of the dataset's paths before what the file writes")
        elif self.added:
            texts.append(
                f"the first {format_count(len(self.added), 'folder')} of the dataset's paths"
            )
        return f"paths agree without {' and '.join(texts)}" if texts else ""


def find_images(
    names: Sequence[str], keys: Sequence[str], paths: Sequence[str], where: str
) -> FoundImages:
    """Return the image of each name. where: the file, for messages.

    Raise UserError if a name fits several images, or if two rules find different images.
    """
    exact = _numbered(paths) | _numbered(keys)
    for name, row in [*exact.items()]:
        cell = as_cell(name)
        if exact.setdefault(cell, row) != row:
            exact[cell] = SEVERAL
    rows = np.array([exact.get(name, NO_IMAGE) for name in names], dtype=np.int64)
    images = FoundImages(rows)
    if paths and (rows == NO_IMAGE).any() and _fitted(rows) < len(paths):
        images = _by_rule(names, paths, rows, where)
    several = np.flatnonzero(images.rows == SEVERAL)
    if several.size:
        name = names[several[0]]
        if several.size == 1:
            raise refusal("unmatched-images.several", where, name)
        raise refusal("unmatched-images.many", where, name, more=int(several.size) - 1)
    return images


def _by_rule(names: Sequence[str], paths: Sequence[str], exact: Ints, where: str) -> FoundImages:
    """Return the images by the rule that fits most of them. exact: (lines,) the images of names
    written exactly."""
    of_names = [plain_parts(name) for name in names]
    ends = _Ends([plain_parts(path) for path in paths])
    best = _AS_WRITTEN
    images = exact
    rivals = list[Ints]()
    for rule, rows in _tried(of_names, ends, exact):
        if _fitted(rows) > _fitted(images):
            best = rule
            images = rows
            rivals = []
        elif _fitted(rows) == _fitted(images) and best != _AS_WRITTEN:
            differs = rows != images
            if differs[images != NO_IMAGE].any():
                rivals.append(rows)
    if rivals:
        line = int(np.flatnonzero(rivals[0] != images)[0])
        meant = set()
        for row in (images[line], rivals[0][line]):
            meant.add(paths[row] if row >= 0 else "no image")
        two = " or ".join(sorted(path[:80] for path in meant))
        raise refusal("unmatched-images.rules", where, names[line], two)
    how = best.words()
    lines = np.flatnonzero(images >= 0)
    if how and lines.size:
        path = ends.paths[images[lines[0]]]
        kept = len(of_names[lines[0]]) - len(best.taken_off)
        how += _of_another_split(best.taken_off, path[:-kept], len(lines))
    return FoundImages(images, how)


def _of_another_split(taken_off: Parts, before: Parts, lines: int) -> str:
    """Return words for training images in the file that are taken for held-out ones of the dataset,
    or the reverse; empty if they are not.

    taken_off, before: the folders that do not count, in the file and in the dataset.
    """
    of_file = [folder for folder in taken_off if folder in _TRAINING + _HELD_OUT]
    of_dataset = [folder for folder in before if folder in _TRAINING + _HELD_OUT]
    if not of_file or not of_dataset:
        return ""
    if (of_file[-1] in _TRAINING) == (of_dataset[-1] in _TRAINING):
        return ""
    images = format_count(lines, "line")
    return f": {images} of {of_file[-1]} stand for images of {of_dataset[-1]}, which may be others"


def _fitted(rows: Ints) -> int:
    """Return how many images are found, and lines that fit several."""
    images = np.unique(rows[rows >= 0])
    return len(images) + int((rows == SEVERAL).sum())


def _numbered(names: Sequence[str]) -> dict[str, int]:
    rows: dict[str, int] = {}
    for row, name in enumerate(names):
        if rows.setdefault(name, row) != row:
            rows[name] = SEVERAL
    return rows


def plain_parts(path: str) -> Parts:
    """Return the parts of a path. `./`, the kind of slash and the encoding of accents make no
    difference."""
    parts = unicodedata.normalize("NFC", path).replace("\\", "/").split("/")
    return tuple(part for part in parts if part not in ("", "."))


_AS_WRITTEN = _Rule((), ())


class _Ends:
    """The images by whole path, and by the last part of it."""

    def __init__(self, paths: Sequence[Parts]) -> None:
        self.paths = paths
        self.whole: dict[Parts, int] = {}
        self.by_name: dict[str, list[int]] = {}
        self._by_end: dict[int, dict[Parts, int]] = {}
        for row, path in enumerate(paths):
            if self.whole.setdefault(path, row) != row:
                self.whole[path] = SEVERAL
            self.by_name.setdefault(path[-1] if path else "", []).append(row)

    def ending_in(self, end: Parts) -> int:
        """Return the image whose path has this end: a row, NO_IMAGE or SEVERAL."""
        if not end:
            return NO_IMAGE
        if end in self.whole:
            return self.whole[end]
        by_end = self._by_end.get(len(end))
        if by_end is None:
            by_end = self._by_end[len(end)] = {}
            for row, path in enumerate(self.paths):
                last = path[-len(end) :]
                if len(path) > len(end) and by_end.setdefault(last, row) != row:
                    by_end[last] = SEVERAL
        return by_end.get(end, NO_IMAGE)


def _tried(names: Sequence[Parts], ends: _Ends, exact: Ints) -> Iterator[tuple[_Rule, Ints]]:
    """Yield the rules that fit most of the first names, those that say most of a path first."""
    yield _AS_WRITTEN, _applied(_AS_WRITTEN, names, ends, exact)
    rules = Counter[_Rule]()
    taken_off = Counter[Parts]()
    for name in names[:: max(1, len(names) // _LOOKED_AT)]:
        for row in ends.by_name.get(name[-1] if name else "", ())[:_MOST_ALIKE]:
            path = ends.paths[row]
            shared = 0
            while shared < min(len(name), len(path)) and name[-1 - shared] == path[-1 - shared]:
                shared += 1
            before = name[: len(name) - shared]
            added = path[: len(path) - shared]
            rules[_Rule(before, added)] += 1
            taken_off[before] += 1
    chosen = [rule for rule, _ in rules.most_common(_MOST_RULES)]
    chosen += [_Rule(first, None) for first, _ in taken_off.most_common(_MOST_RULES)]
    for rule in chosen:
        yield rule, _applied(rule, names, ends, exact)


def _applied(rule: _Rule, names: Sequence[Parts], ends: _Ends, exact: Ints) -> Ints:
    rows = exact.copy()
    if rule != _AS_WRITTEN:
        rows[:] = NO_IMAGE
    first = len(rule.taken_off)
    for line, name in enumerate(names):
        if rows[line] == NO_IMAGE and name[:first] == rule.taken_off:
            end = name[first:]
            if rule.added is None:
                rows[line] = ends.ending_in(end)
            else:
                rows[line] = ends.whole.get((*rule.added, *end), NO_IMAGE)
    return rows
