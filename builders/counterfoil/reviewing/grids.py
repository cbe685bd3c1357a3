"""Choose images to ask people about, and deal them to grids. A grid asks about one label and has
controls. The ids of pictures reveal nothing about an image.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from counterfoil.dataset.label_checks import ReviewTask
from counterfoil.errors import UserError
from counterfoil.store.reading import planned_rows

if TYPE_CHECKING:
    from counterfoil.plan.layout import Plan
    from counterfoil.recipe import Recipe, RecipeClass
    from counterfoil.store.receipts import Receipt

GRID = 48  # Vendrow et al. 2023, appendix A.4
# of these: real images of the class, and images without the label, half and half if possible
CONTROLS = 8

# A shift's images fill one grid beside the controls.
IMAGES_A_SHIFT = 40
# With its controls, a page has at most 1,050 pictures of 8 kB (`review_dataset.py`): 11 MB in
# base64.
MOST_IMAGES = 850
# If a page cannot have this many images of each class, some classes are left out.
FEWEST_A_CLASS = 24
# The most real images of a class on a page. Apart from the dataset's content, the id of a real
# image depends only on its class and number, so counting answers needs no input dataset.
MOST_CONTROLS = 64
_ID_LENGTH = 20


@dataclass(frozen=True, slots=True)
class CandidateImage:
    """An image of the dataset. at: the index of its receipt. kept: False if the screen rejected
    it."""

    key: str
    shift: str
    label: int
    at: int
    kept: bool = True


@dataclass(frozen=True, slots=True)
class RealControl:
    """A real image of a class from the source's validation split, by its number in the class."""

    label: int
    number: int


ShownPicture = CandidateImage | RealControl


def accepted_images(
    directory: Path,
    plan: Plan,
    receipts: Sequence[Receipt],
) -> list[CandidateImage]:
    """Return the accepted images of a finished dataset in the plan's order, without reading an
    image."""
    images: list[CandidateImage] = []
    for at, (shard, receipt) in enumerate(zip(plan.shards, receipts, strict=True)):
        for row in planned_rows(directory, plan, shard, receipt, "data"):
            images.append(CandidateImage(row["key"], row["shift"], row["label"], at))
    return images


def image_id(content: str, image: CandidateImage) -> str:
    return _opaque(content, "image", image.key)


def control_id(
    content: str,
    class_id: str,
    number: int,
) -> str:
    return _opaque(content, "control", class_id, str(number))


def known_ids(
    content: str,
    images: Sequence[CandidateImage],
    classes: Sequence[RecipeClass],
) -> Mapping[str, ShownPicture]:
    """Return the picture for every id that a page of the dataset can hold."""
    known: dict[str, ShownPicture] = {image_id(content, image): image for image in images}
    for cls in classes:
        for number in range(MOST_CONTROLS):
            known[control_id(content, cls.id, number)] = RealControl(cls.label, number)
    return known


def random_rank(seed: int, *words: str) -> bytes:
    """Return a random sort key that is the same on every machine and does not depend on other
    images."""
    return hashlib.sha256("\0".join((str(seed), *words)).encode()).digest()


def _opaque(*words: str) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:_ID_LENGTH]


@dataclass(frozen=True, slots=True)
class Chosen:
    """The images to ask about, and the number wanted for each shift."""

    images: Sequence[CandidateImage]
    each: int

    @property
    def classes(self) -> list[int]:
        """The labels of the images' classes."""
        return sorted({image.label for image in self.images})


def choose_images(
    images: Sequence[CandidateImage],
    shifts: Sequence[str],
    each: int | None,
    seed: int,
    *,
    whole_classes: bool,
) -> Chosen:
    """Choose at most `each` images of every shift. By default, choose as many as a page holds.
    whole_classes: take few classes, so that each class fills a grid. Raise UserError if there are
    no images, or if a page cannot hold them.
    """
    images_by_shift: dict[str, list[CandidateImage]] = {shift: [] for shift in shifts}
    labels = set()
    for image in images:
        if image.shift in images_by_shift:
            images_by_shift[image.shift].append(image)
            labels.add(image.label)
    if not labels:
        raise UserError("no image of these shifts was accepted, so there is nothing to review")
    wanted = _images_a_shift(each, list(map(len, images_by_shift.values())))
    total = sum(min(wanted, len(shift_images)) for shift_images in images_by_shift.values())
    taken = sorted(labels, key=lambda label: random_rank(seed, "class", f"{label}"))
    if whole_classes:
        taken = taken[: max(1, total // FEWEST_A_CLASS)]
    chosen: list[CandidateImage] = []
    for shift in shifts:
        turns = []
        for index, label in enumerate(taken):
            of_shift = images_by_shift[shift]
            class_images = [image for image in of_shift if image.label == label]
            class_images.sort(key=lambda image: random_rank(seed, "image", image.key))
            turns += [(turn, index, image) for turn, image in enumerate(class_images)]
        # Take one image of each class in turn.
        turns.sort(key=lambda turn: turn[:2])
        chosen += [image for *_, image in turns[:wanted]]
    return Chosen(chosen, wanted)


def draw_screened(
    images: Sequence[CandidateImage],
    shifts: Sequence[str],
    each: int | None,
    seed: int,
) -> Chosen:
    """Draw at most `each` images of every shift at random, of all classes: half of them kept, half
    rejected. Raise UserError if a page cannot hold them.
    """
    strata: dict[tuple[str, bool], list[CandidateImage]] = {}
    sizes = dict.fromkeys(shifts, 0)
    for image in images:
        if image.shift in sizes:
            sizes[image.shift] += 1
            strata.setdefault((image.shift, image.kept), []).append(image)
    wanted = _images_a_shift(each, list(sizes.values()))
    chosen: list[CandidateImage] = []
    for of_stratum in strata.values():
        of_stratum.sort(key=lambda image: random_rank(seed, "screen", image.key))
        chosen += of_stratum[: max(1, wanted // 2)]
    return Chosen(chosen, wanted)


def _images_a_shift(
    each: int | None,
    sizes: Sequence[int],
) -> int:
    """Return how many images of each shift to show. Raise UserError if a page cannot hold them.
    sizes: how many each shift has."""
    fits = MOST_IMAGES // len(sizes)
    wanted = each
    if wanted is None:
        wanted = min(IMAGES_A_SHIFT, max(1, fits))
    total = sum(min(wanted, size) for size in sizes)
    if total > MOST_IMAGES:
        hint = f"Use at most {fits} per shift, or name" if fits else "Name"
        raise UserError(
            f"a page holds at most {MOST_IMAGES:,} images, and {wanted:,} of each of {len(sizes):,}"
            f" shifts are {total:,}",
            f"{hint} fewer shifts with --shift.",
        )
    return wanted


@dataclass(frozen=True, slots=True)
class Grid:
    """One question. label: the class id or shift to look for. pictures: as shown."""

    task: ReviewTask
    label: str
    pictures: tuple[ShownPicture, ...]


def class_grids(
    recipe: Recipe,
    images: Sequence[CandidateImage],
    controls: Mapping[int, Sequence[RealControl]],
    seed: int,
) -> list[Grid]:
    """Return grids that show every image under its class, with real images of the class and images
    of other classes."""
    grids = []
    for cls in recipe.classes:
        labelled = [image for image in images if image.label == cls.label]
        others = [image for image in images if image.kept and image.label != cls.label]
        grids += _grids("class", cls.id, labelled, controls.get(cls.label, ()), others, seed)
    return _shuffled(grids, seed)


def shift_grids(
    recipe: Recipe,
    images: Sequence[CandidateImage],
    base: Sequence[CandidateImage],
    seed: int,
) -> list[Grid]:
    """Return grids that show every image under its whole shift, with base images as controls."""
    grids = []
    for shift in recipe.all_shifts()[1:]:
        if not shift.top:
            continue
        labelled = [image for image in images if image.shift == shift.name]
        grids += _grids("shift", shift.name, labelled, (), base, seed)
    return _shuffled(grids, seed)


def _grids(
    task: ReviewTask,
    label: str,
    labelled: Sequence[CandidateImage],
    real: Sequence[RealControl],
    without: Sequence[CandidateImage],
    seed: int,
) -> list[Grid]:
    """Deal the images of one label to grids of about equal size. No picture is in two of these
    grids."""
    if not labelled:
        return []
    room = GRID - CONTROLS
    count = -(-len(labelled) // room)
    shuffled = sorted(labelled, key=lambda image: random_rank(seed, task, label, image.key))
    left = sorted(without, key=lambda image: random_rank(seed, task, label, "without", image.key))
    spare = list(real)
    grids = []
    for number in range(count):
        dealt: list[ShownPicture] = [*shuffled[number::count]]
        # Small grids have fewer controls, at least one of each kind.
        controls = max(2, -(-CONTROLS * len(dealt) // room))
        half = controls // 2 if real else 0
        others = controls - half
        dealt += spare[:half] + left[:others]
        del spare[:half], left[:others]
        dealt.sort(key=lambda picture: random_rank(seed, task, label, "place", *_words(picture)))
        grids.append(Grid(task, label, tuple(dealt)))
    return grids


def _words(picture: ShownPicture) -> tuple[str, str]:
    if isinstance(picture, CandidateImage):
        return ("image", picture.key)
    return ("control", str(picture.number))


def _shuffled(
    grids: Sequence[Grid],
    seed: int,
) -> list[Grid]:
    by_rank = {}
    for index, grid in enumerate(grids):
        by_rank[random_rank(seed, "grid", grid.label, str(index))] = grid
    return [by_rank[rank] for rank in sorted(by_rank)]
