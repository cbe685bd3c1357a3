"""What is known of every image of a benchmark: what the classifiers and the oracle say of it, and
whether it was kept.

A *unit* is one noise (generated images) or one scene of the input dataset (true renders): its
images under the base and all shifts belong together and are resampled together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from counterfoil.lab.scenes import wardrobe_scene
from counterfoil.lab.vocabulary import ATTRIBUTES, CLASSES, MARKS, SHIFTS, SHIFTS_BY_NAME
from counterfoil.lab.world import render
from counterfoil.models.classifiers import load_classifier
from counterfoil.store.reading import read_rows
from lab_training.oracle import Oracle
from proof_files import Arrays, arrays_of, save_arrays
from proof_pictures import batches_for, pixels_of

SHIFT_NAMES = ("base", *(shift.name for shift in SHIFTS))
# Unit, kept and pixels (uint8 [64, 64, 3]) of a cell's images.
Cell = Iterable[tuple[int, bool, NDArray]]
# (shift, label) → the images.
Images = Callable[[int, int], Cell]
# The unnamed pattern of each class, as the oracle numbers patterns; -2 for unmarked classes.
_MARKS = np.array(
    [ATTRIBUTES["pattern"].index(MARKS[name]) if name in MARKS else -2 for name in CLASSES]
)


@dataclass(frozen=True)
class Looks:
    """Arrays over (shift, class, unit): `correct` also over models; all bool.

    `present`: the image exists; `kept`: the screen accepted it; `object`, `shift`: the oracle sees
    the class and the shift (True for the base); `mark`: the oracle sees the class's unnamed pattern
    (False for unmarked classes).
    """

    present: NDArray
    kept: NDArray
    correct: NDArray
    object: NDArray
    shift: NDArray
    mark: NDArray

    def screened(self) -> Looks:
        """Return only what the screen accepted."""
        return replace(self, present=self.kept)


@dataclass(frozen=True)
class Answers:
    """Arrays over (shift, class, unit); `said` also over models.

    present, kept, shift: as `Looks` has them. said: the classifiers' labels. seen, colour, pattern:
    what the oracle reads of class, colour and pattern.
    """

    present: NDArray
    kept: NDArray
    shift: NDArray
    said: NDArray
    seen: NDArray
    colour: NDArray
    pattern: NDArray

    @property
    def looks(self) -> Looks:
        """What is right in them."""
        label = np.arange(len(CLASSES))[None, :, None]
        marked = self.pattern == _MARKS[None, :, None]
        right = self.said == label[..., None]
        return Looks(self.present, self.kept, right, self.seen == label, self.shift, marked)

    def kept_in_pairs(self, what: NDArray) -> NDArray:
        """Return where the oracle reads the same of a shifted image as of its base: bool (shift,
        class, unit)."""
        return (what == what[:1]) & self.pairs

    @property
    def pairs(self) -> NDArray:
        """Where both images of a pair are there: bool (shift, class, unit)."""
        return self.present & self.present[:1]

    def save(self, path: Path) -> None:
        """Write the arrays to a file."""
        save_arrays(path, self.__dict__, compressed=True)

    @classmethod
    def read(cls, path: Path) -> Answers:
        """Return what was saved."""
        return cls(**arrays_of(path))


class Viewer:
    """The classifiers and the oracle, loaded once."""

    def __init__(self, models: Iterable[str]) -> None:
        self.classifiers = [load_classifier(name) for name in models]
        self.oracle = Oracle()

    def answers(
        self, units: int, images: Images, shifts: Sequence[str] = SHIFT_NAMES[1:]
    ) -> Answers:
        """Return what is said of the images of the base and these shifts."""
        shape = (len(SHIFT_NAMES), len(CLASSES), units)
        present, kept, shift = (np.zeros(shape, bool) for _ in range(3))
        guessed = np.full((*shape, len(self.classifiers)), -1, np.int8)
        seen, colour, pattern = (np.full(shape, -1, np.int8) for _ in range(3))
        for name in ("base", *shifts):
            s = SHIFT_NAMES.index(name)
            for label in range(len(CLASSES)):
                cell = list(images(s, label))
                if not cell:
                    continue
                at = np.array([unit for unit, _, _ in cell])
                pixels = np.stack([image for _, _, image in cell])
                oracle = self.oracle.answers(pixels)
                present[s, label, at] = True
                kept[s, label, at] = [accepted for _, accepted, _ in cell]
                shift[s, label, at] = shows(oracle, name)
                seen[s, label, at], colour[s, label, at] = oracle["class"], oracle["colour"]
                pattern[s, label, at] = oracle["pattern"]
                for m, classifier in enumerate(self.classifiers):
                    guessed[s, label, at, m] = guesses(classifier, pixels)
            print(f"  looked at {name}", flush=True)
        return Answers(present, kept, shift, guessed, seen, colour, pattern)


def shows(answers: Arrays, shift: str) -> NDArray:
    """Return whether the oracle sees a shift, which it always does of the base: bool [n]."""
    if shift == "base":
        return np.ones(len(answers["class"]), bool)
    change = SHIFTS_BY_NAME[shift]
    return answers[change.attribute] == ATTRIBUTES[change.attribute].index(change.value)


def guesses(classifier, pixels: NDArray) -> NDArray:
    """Return predicted labels int64 [n], through the model's own transform."""
    (batch,) = batches_for(classifier, pixels, len(pixels))
    return classifier.logits(batch, "cpu").argmax(1).numpy()


def dataset_images(directory: Path) -> tuple[int, Images]:
    """Return units a cell, and the images of a dataset that keeps its rejected ones."""
    cells: dict[tuple[int, int], list[tuple[int, bool, bytes]]] = {}
    columns = ["image", "label", "shift", "index"]
    for what in ("data", "rejected"):
        for row in read_rows(directory, columns=columns, what=what):
            cell = (SHIFT_NAMES.index(row["shift"]), row["label"])
            cells.setdefault(cell, []).append((row["index"], what == "data", row["image"]["bytes"]))
    units = 1 + max(index for cell in cells.values() for index, _, _ in cell)

    def images(shift: int, label: int) -> Cell:
        for index, kept, content in cells.get((shift, label), ()):
            yield index, kept, pixels_of(content)

    return units, images


def true_images(units: int, marked: bool) -> tuple[int, Images]:
    """Return the input dataset's validation scenes under each shift; marked classes in plain cloth
    without `marked`."""

    def images(shift: int, label: int) -> Cell:
        for unit in range(units):
            scene = wardrobe_scene("validation", unit * len(CLASSES) + label)
            if not marked and CLASSES[label] in MARKS:
                scene = replace(scene, pattern="plain")
            yield unit, True, render(scene.shifted(SHIFT_NAMES[shift]))

    return units, images
