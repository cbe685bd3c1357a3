"""Grids of at most 48 images with one label each, controls mixed in, in an order that tells nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from counterfoil.reviewing.accepted_images import AcceptedImage, RealControl, rank

if TYPE_CHECKING:
    from counterfoil.recipe import Recipe

Task = Literal["class", "shift"]
TASKS: tuple[Task, ...] = ("class", "shift")

GRID = 48  # Vendrow et al. 2023, appendix A.4
CONTROLS = 8  # of them: real images of the class and images without the label, half and half where there are both

ShownPicture = AcceptedImage | RealControl


@dataclass(frozen=True, slots=True)
class Grid:
    """One question. label: the class id or the shift that is looked for; pictures: as they are shown."""

    task: Task
    label: str
    pictures: tuple[ShownPicture, ...]


def class_grids(
    recipe: Recipe, images: Sequence[AcceptedImage], controls: Mapping[int, Sequence[RealControl]], seed: int
) -> list[Grid]:
    """Every image under its class, with real images of the class and with images of other classes."""
    grids = []
    for cls in recipe.classes:
        own = [image for image in images if image.label == cls.label]
        others = [image for image in images if image.label != cls.label]
        grids += _grids("class", cls.id, own, controls.get(cls.label, ()), others, seed)
    return _shuffled(grids, seed)


def shift_grids(
    recipe: Recipe, images: Sequence[AcceptedImage], base: Sequence[AcceptedImage], seed: int
) -> list[Grid]:
    """Every image under its shift, with base images, which do not show it; the base itself is no shift."""
    grids = []
    for shift in recipe.all_shifts()[1:]:
        own = [image for image in images if image.shift == shift.name]
        grids += _grids("shift", shift.name, own, (), base, seed)
    return _shuffled(grids, seed)


def _grids(
    task: Task,
    label: str,
    own: Sequence[AcceptedImage],
    real: Sequence[RealControl],
    without: Sequence[AcceptedImage],
    seed: int,
) -> list[Grid]:
    """The images of one label, dealt to grids of about one size. No picture is in two grids of a label."""
    if not own:
        return []
    count = -(-len(own) // (GRID - CONTROLS))
    shuffled = sorted(own, key=lambda image: rank(seed, task, label, image.key))
    left = sorted(without, key=lambda image: rank(seed, task, label, "without", image.key))
    spare = list(real)
    grids = []
    for number in range(count):
        dealt: list[ShownPicture] = [*shuffled[number::count]]
        # Small grids have fewer controls, at least one of a kind.
        controls = max(2, -(-CONTROLS * len(dealt) // (GRID - CONTROLS)))
        half = controls // 2 if real else 0
        dealt += spare[:half] + left[: controls - half]
        del spare[:half], left[: controls - half]
        dealt.sort(key=lambda picture: rank(seed, task, label, "place", *_words(picture)))
        grids.append(Grid(task, label, tuple(dealt)))
    return grids


def _words(picture: ShownPicture) -> tuple[str, str]:
    return ("image", picture.key) if isinstance(picture, AcceptedImage) else ("control", str(picture.number))


def _shuffled(grids: Sequence[Grid], seed: int) -> list[Grid]:
    """In an order in which equal labels do not follow each other on purpose."""
    numbered = sorted(enumerate(grids), key=lambda each: rank(seed, "grid", each[1].label, str(each[0])))
    return [grid for _, grid in numbered]
