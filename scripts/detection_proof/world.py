"""A world of boxes of which the truth is known: many images, of which a set has few.

Images are easy or hard, and so are objects; a detector finds, misplaces, doubles and invents boxes
by its skill. Base and shift have the same objects. What all images give is the truth; sets are
drawn from them without replacement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from counterfoil.arrays import Floats, Ints
from counterfoil.detection_stats import Detections, Matches, Objects, match_detections

_CELL = 100.0  # pixels: objects of an image stand in cells of their own
OBJECTS = 4  # of an image, on average


@dataclass(frozen=True)
class World:
    """categories: how many. rarity: the k-th is as frequent as k to the power of minus this."""

    name: str
    categories: int
    rarity: float


@dataclass(frozen=True)
class Skill:
    """What a detector can on a group; perfect: it finds all but a share, and invents nothing."""

    level: float = 0.0
    perfect: bool = False
    missed: float = 0.0


def made_matches(
    world: World, skills: Sequence[Skill], images: int, rng: np.random.Generator
) -> list[Matches]:
    """Make the images of a world and match what each skill detects in them, without ranges of
    area."""
    frequency = np.arange(1, world.categories + 1) ** -world.rarity
    frequency /= frequency.sum()
    counts = rng.poisson(OBJECTS, images)
    image = np.repeat(np.arange(images), counts)
    n = len(image)
    # Images have a theme: objects of one category come together.
    theme = rng.choice(world.categories, images, p=frequency)[image]
    category = np.where(rng.random(n) < 0.4, theme, rng.choice(world.categories, n, p=frequency))
    cell = np.arange(n) - np.repeat(np.cumsum(counts) - counts, counts)
    side = np.exp(rng.normal(np.log(50), 0.6, n)).clip(8, _CELL - 1)
    box = np.stack([cell * _CELL, np.zeros(n), side, side], axis=1)
    hardness = rng.normal(0, 1, images)
    ease = rng.normal(0, 1, n) + 0.8 * np.log(side / 50) - hardness[image]
    objects = Objects.of(image, box, category)
    made = []
    for skill in skills:
        if skill.perfect:
            detected = _perfect(image, box, category, skill.missed, rng)
        else:
            detected = _imperfect(
                skill.level, image, box, category, ease, hardness, world.categories, rng
            )
        matches = match_detections(objects, Detections.of(*detected), images, world.categories)
        counted = matches.counted.copy()
        counted[1:] = False
        made.append(replace(matches, counted=counted))
    return made


def _perfect(
    image: NDArray, box: NDArray, category: NDArray, missed: float, rng: np.random.Generator
) -> tuple[NDArray, ...]:
    seen = rng.random(len(image)) >= missed
    return image[seen], box[seen], category[seen], rng.uniform(0.9, 0.95, int(seen.sum()))


def _imperfect(
    level: float,
    image: NDArray,
    box: NDArray,
    category: NDArray,
    ease: NDArray,
    hardness: NDArray,
    categories: int,
    rng: np.random.Generator,
) -> tuple[NDArray, ...]:
    """Return (image, box, category, score) of objects that are seen, of some once more, and of
    inventions."""
    n = len(image)
    clear = level + ease + rng.normal(0, 0.5, n)
    seen = rng.random(n) < _logistic(1.5 * clear + 1)
    twice = seen & (rng.random(n) < 0.15)
    score = _logistic(clear + rng.normal(0, 0.8, n))
    overlap = np.clip(0.55 + 0.3 * _logistic(clear), 0.5, 0.93)
    iou = rng.beta(12 * overlap, 12 * (1 - overlap))
    moved = box.copy()
    moved[:, 0] += box[:, 2] * (1 - iou) / (1 + iou)  # to the right, to just this IoU
    mistaken = rng.random(n) < 0.1 * _logistic(-clear)
    named = np.where(mistaken, rng.integers(0, categories, n), category)
    of = np.repeat(np.arange(len(hardness)), rng.poisson(np.exp(0.4 * hardness - 0.3 * level)))
    invented = np.tile([0.0, 300.0, 40.0, 40.0], (len(of), 1))
    invented[:, 0] = rng.uniform(0, 400, len(of))
    called = category[rng.integers(0, n, len(of))]
    return (
        np.concatenate([image[seen], image[twice], of]),
        np.concatenate([moved[seen], moved[twice], invented]),
        np.concatenate([named[seen], named[twice], called]),
        np.concatenate([score[seen], 0.8 * score[twice], _logistic(rng.normal(-1.2, 1, len(of)))]),
    )


def _logistic(values: Floats) -> Floats:
    return 1 / (1 + np.exp(-values))


class Images:
    """Sets of few images out of many that are matched."""

    def __init__(self, matches: Matches) -> None:
        self.matches = matches
        self.of_detections = np.argsort(matches.image, kind="stable")
        self.of_objects = np.argsort(matches.object_image, kind="stable")

    def chosen(self, images: Ints) -> Matches:
        """Return the matches of these images, numbered by their place."""
        whole = self.matches
        number = np.full(whole.images, -1)
        number[images] = np.arange(len(images))
        rows = np.sort(self._rows(whole.image, self.of_detections, images))
        objects = self._rows(whole.object_image, self.of_objects, images)
        return Matches(
            len(images),
            whole.categories,
            whole.score[rows],
            number[whole.image[rows]],
            whole.category[rows],
            whole.row[rows],
            whole.matched[:, :, rows],
            whole.ignored[:, :, rows],
            whole.found[rows],
            number[whole.object_image[objects]],
            whole.object_category[objects],
            whole.counted[:, objects],
        )

    @staticmethod
    def _rows(image: Ints, order: Ints, images: Ints) -> Ints:
        starts = np.searchsorted(image[order], images)
        stops = np.searchsorted(image[order], images, side="right")
        spans = [order[start:stop] for start, stop in zip(starts, stops, strict=True)]
        return np.concatenate([*spans, np.zeros(0, np.int64)])
