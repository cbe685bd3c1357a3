"""`review`: a page of grids on which people say whether images show their class and their shift."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from counterfoil.card.index_page import write_index
from counterfoil.dataset import SoundDataset, read_dataset
from counterfoil.errors import UserError
from counterfoil.label_checks import TASKS, Task
from counterfoil.recipe.names import did_you_mean
from counterfoil.recipe.prompts import BASE
from counterfoil.regular_files import named_path
from counterfoil.reviewing.controls import RealImages, real_images
from counterfoil.reviewing.grids import (
    CONTROLS,
    IMAGES_A_SHIFT,
    MOST_CONTROLS,
    AcceptedImage,
    Chosen,
    Grid,
    RealControl,
    ShownPicture,
    accepted_images,
    choose_images,
    class_grids,
    rank,
    shift_grids,
)
from counterfoil.reviewing.page import page_of_review, thumbnail, thumbnails
from counterfoil.screen import open_shifts
from counterfoil.store.atomic import try_folder, write_atomically
from counterfoil.store.content import content_of_receipts
from counterfoil.store.inside import refuse_written_inside
from counterfoil.store.layout import PRIVATE

# In the private folder, for the page is not part of the dataset.
PAGE = f"{PRIVATE}/review.html"
MOST_SHIFTS = 100
_MOST_NAMED = 12


@dataclass(frozen=True, slots=True)
class ReviewPage:
    """The page that was written, and what is on it.

    images: of the dataset, that are asked about, of `accepted` ones; `each`: at most so many a shift. controls: real
    images that are mixed in; `without_controls` says why there are none. notes: what a person should know besides.
    """

    directory: Path
    page: Path
    tasks: tuple[Task, ...]
    shifts: tuple[str, ...]
    classes: tuple[str, ...]
    all_shifts: int
    all_classes: int
    images: int
    accepted: int
    each: int
    grids: int
    controls: int
    without_controls: str | None
    notes: tuple[str, ...] = ()


def review(
    directory: str | Path,
    page: str | Path | None = None,
    *,
    images: int | None = None,
    tasks: Sequence[Task] = TASKS,
    shifts: Sequence[str] | None = None,
    seed: int = 0,
    source: str | None = None,
    controls: bool = True,
) -> ReviewPage:
    """Write the page of a finished dataset: grids of at most 48 images with one label each.

    Of every shift, or of those named, at most `images` accepted ones are asked about: whether they show their class
    (`tasks` has "class") and their shift ("shift"). Mixed in are real images of the class from the source's validation
    split, as the dataset pins it, and images without the label; `source` says where a source that is a folder lies.
    UserError for what is no finished dataset, a shift that it does not have, or more images than a page holds.
    """
    directory = named_path(directory)
    place = directory / PAGE if page is None else named_path(page)
    _refuse_odd(images, tasks)
    dataset = read_dataset(directory, "receipts").finished()
    refuse_written_inside(place, directory, directory / PRIVATE)
    try_folder(place.parent)
    recipe = dataset.recipe
    names = _shifts(dataset, tasks, shifts, seed)
    waiting = [name for name in open_shifts(recipe) if name in names]
    if waiting and not set(names) - {*waiting, BASE}:
        raise UserError(
            f"{directory} is not cut yet: nothing of a shift is kept to look at, for these wait for a threshold:"
            f" {', '.join(waiting[:_MOST_NAMED])}",
            f"Cut first: counterfoil calibrate {directory}",
        )
    every = accepted_images(directory, dataset.plan, dataset.receipts)
    chosen = choose_images(every, names, images, seed, whole_classes="class" in tasks)
    base = _base(every, chosen, seed) if "shift" in tasks else []
    real = _real(dataset, chosen, seed, source) if controls and "class" in tasks else RealImages()
    numbered = {
        label: [RealControl(label, number) for number in range(len(own))] for label, own in real.by_label.items()
    }
    grids: list[Grid] = []
    if "class" in tasks:
        grids += class_grids(recipe, chosen.images, numbered, seed)
    if "shift" in tasks:
        grids += shift_grids(recipe, chosen.images, base, seed)
    if not grids:
        raise UserError("no shift is left to ask about: the base shows none", "Name a shift, or --task class.")
    content = content_of_receipts(dataset.receipts)
    shown = list(dict.fromkeys(picture for grid in grids for picture in grid.pictures))
    pictures: dict[ShownPicture, str] = {
        picture: thumbnail(real.by_label[picture.label][picture.number])
        for picture in shown
        if isinstance(picture, RealControl)
    }
    n_controls = len(pictures)
    without = [name for name in names if all(image.shift != name for image in chosen.images)]
    own = [picture for picture in shown if isinstance(picture, AcceptedImage)]
    pictures |= dict(thumbnails(directory, dataset.receipts, own))
    html = page_of_review(recipe, directory.resolve().name, content, grids, pictures)
    write_atomically(place, html.encode())
    if page is None:
        write_index(directory)
    return ReviewPage(
        directory=directory,
        page=place,
        tasks=tuple(task for task in TASKS if task in tasks),
        shifts=tuple(name for name in names if name not in without),
        classes=tuple(recipe.classes[label].id for label in chosen.classes),
        all_shifts=len(recipe.all_shifts()),
        all_classes=len(recipe.classes),
        images=len(chosen.images),
        accepted=len(every),
        each=chosen.each,
        grids=len(grids),
        controls=n_controls,
        without_controls=real.missing,
        notes=tuple(_notes(chosen, base, tasks, without, waiting)),
    )


def _refuse_odd(images: int | None, tasks: Sequence[Task]) -> None:
    problems = [f"images: found {images}, expected 1 or more"] if images is not None and images < 1 else []
    problems += [f"task: found '{task}', expected one of {', '.join(TASKS)}" for task in tasks if task not in TASKS]
    problems += [] if tasks else ["task: found none, expected one"]
    if problems:
        raise UserError(problems)


def _shifts(dataset: SoundDataset, tasks: Sequence[Task], asked: Sequence[str] | None, seed: int) -> list[str]:
    """The shifts to ask about, in the recipe's order. UserError for one that there is not."""
    known = [shift.name for shift in dataset.recipe.all_shifts()]
    base, *others = known
    unknown = [name for name in asked or () if name not in known]
    if unknown:
        raise UserError(
            [f"found '{name[:80]}', expected a shift{did_you_mean(name, known)}" for name in unknown],
            f"The shifts: {', '.join(known[:20])}{' …' if len(known) > 20 else ''}",
        )
    if asked is None and len(known) > MOST_SHIFTS:
        asked = [base, *sorted(others, key=lambda name: rank(seed, "shift", name))[: MOST_SHIFTS - 1]]
    chosen = [name for name in known if asked is None or name in asked]
    # Whether the base shows its shift is no question.
    return chosen if "class" in tasks else [name for name in chosen if name != base] or chosen


def _base(every: Sequence[AcceptedImage], chosen: Chosen, seed: int) -> list[AcceptedImage]:
    """Base images that are mixed in where a shift is looked for; those that are on the page anyhow, where some are."""
    shown = [image for image in chosen.images if image.shift == BASE]
    own = [image for image in every if image.shift == BASE and image.label in chosen.classes]
    return shown or sorted(own, key=lambda image: rank(seed, BASE, image.key))[:IMAGES_A_SHIFT]


def _real(dataset: SoundDataset, chosen: Chosen, seed: int, source: str | None) -> RealImages:
    counts = {label: sum(image.label == label for image in chosen.images) for label in chosen.classes}
    # Half of a grid's controls, of every grid that a class has.
    wanted = {
        label: min(MOST_CONTROLS, CONTROLS // 2 * (1 + count // IMAGES_A_SHIFT)) for label, count in counts.items()
    }
    return real_images(dataset, wanted, seed, source)


def _notes(
    chosen: Chosen,
    base: Sequence[AcceptedImage],
    tasks: Sequence[Task],
    without: Sequence[str],
    waiting: Sequence[str],
) -> list[str]:
    notes = []
    if waiting:
        shown = ", ".join(waiting[:_MOST_NAMED])
        notes.append(f"not asked about, for they wait for a threshold: {shown}; cut first, by counterfoil calibrate")
    without = [name for name in without if name not in waiting]
    if without:
        more = f" and {len(without) - _MOST_NAMED} more" if len(without) > _MOST_NAMED else ""
        notes.append(f"nothing to look at, for no image of them was accepted: {', '.join(without[:_MOST_NAMED])}{more}")
    if "shift" in tasks and not base:
        notes.append("no base image was accepted, so grids of shifts have no images without the shift mixed in")
    if "class" in tasks and len(chosen.classes) == 1:
        notes.append("all images are of one class, so its grids have no images of others mixed in")
    return notes
