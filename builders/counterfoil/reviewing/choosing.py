"""Which images people are asked about: so many a shift, evenly over classes, by chance that a seed decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from counterfoil.errors import UserError
from counterfoil.reviewing.accepted_images import AcceptedImage, rank

# A shift's images fill one grid beside the controls.
IMAGES_A_SHIFT = 40
# Images of a page. With its controls it has at most 1,050 pictures of at most 8 kB (`thumbnails.py`), which base64
# makes a third more: 11 MB.
MOST_IMAGES = 850
# A class is asked about where so many images can be; of a dataset with more classes, some are taken.
FEWEST_A_CLASS = 24


@dataclass(frozen=True, slots=True)
class Chosen:
    """images: those to ask about. classes: labels that they are of. each: how many a shift were wanted."""

    images: tuple[AcceptedImage, ...]
    classes: tuple[int, ...]
    each: int


def choose_images(
    images: Sequence[AcceptedImage], shifts: Sequence[str], each: int | None, seed: int, *, whole_classes: bool
) -> Chosen:
    """At most `each` images of every shift; without a number as many as a page holds, 40 at most.

    A smaller number chooses a part of what a larger one does, as long as they take the same classes. `whole_classes`:
    classes are asked about, so that few images are of few classes and each fills a grid. UserError where there is no
    image, or where a page cannot hold them.
    """
    of_shift = {shift: [image for image in images if image.shift == shift] for shift in shifts}
    if not any(of_shift.values()):
        raise UserError("no image of these shifts was accepted, so there is nothing to look at")
    wanted = min(IMAGES_A_SHIFT, max(1, MOST_IMAGES // len(shifts))) if each is None else each
    total = sum(min(wanted, len(own)) for own in of_shift.values())
    if total > MOST_IMAGES:
        fits = MOST_IMAGES // len(shifts)
        hint = f"At most {fits} a shift fit; or " if fits else ""
        raise UserError(
            f"a page holds at most {MOST_IMAGES:,} images, and {wanted:,} of each of {len(shifts):,} shifts are"
            f" {total:,}",
            f"{hint}name fewer shifts with --shift.",
        )
    labels = sorted(
        {image.label for own in of_shift.values() for image in own}, key=lambda n: rank(seed, "class", f"{n}")
    )
    taken = labels[: max(1, total // FEWEST_A_CLASS)] if whole_classes else labels
    chosen = [image for shift in shifts for image in _evenly(of_shift[shift], taken, wanted, seed)]
    return Chosen(tuple(chosen), tuple(sorted({image.label for image in chosen})), wanted)


def _evenly(images: Sequence[AcceptedImage], labels: Sequence[int], most: int, seed: int) -> list[AcceptedImage]:
    """At most so many images of these labels, in turn one of each."""
    by_label = {label: [image for image in images if image.label == label] for label in labels}
    turns = [
        (turn, place, image)
        for place, label in enumerate(labels)
        for turn, image in enumerate(sorted(by_label[label], key=lambda image: rank(seed, "image", image.key)))
    ]
    return [image for *_, image in sorted(turns, key=lambda turn: turn[:2])[:most]]
