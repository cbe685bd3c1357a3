"""Whole answers of the classifiers and the oracle to pairs of images: what `Looks` tells, and which class and colour.

A *unit* is one pair: one noise, or one scene, under the base and every shift.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from counterfoil.lab.vocabulary import CLASSES
from interface_proof.looks import SHIFT_NAMES, Looks, Viewer, guesses, shows

Images = Callable[[int, int], Iterable[tuple[int, bool, np.ndarray]]]


@dataclass(frozen=True)
class Answers:
    """Arrays over (shift, class, unit); `said` also over models.

    present, kept, shift: as `Looks` has them. said: the classifiers' labels. seen, colour: what the oracle
    reads of class and colour.
    """

    present: np.ndarray
    kept: np.ndarray
    shift: np.ndarray
    said: np.ndarray
    seen: np.ndarray
    colour: np.ndarray

    @property
    def looks(self) -> Looks:
        label = np.arange(len(CLASSES))[None, :, None]
        nothing = np.zeros_like(self.present)
        right = self.said == label[..., None]
        return Looks(self.present, self.kept, right, self.seen == label, self.shift, nothing)

    def kept_in_pairs(self, what: np.ndarray) -> np.ndarray:
        """Where the oracle reads the same of a shifted image as of its base: bool (shift, class, unit)."""
        return (what == what[:1]) & self.pairs

    @property
    def pairs(self) -> np.ndarray:
        """Where both images of a pair are there: bool (shift, class, unit)."""
        return self.present & self.present[:1]

    def screened(self) -> Answers:
        """Only what the screen accepted."""
        return Answers(self.kept, self.kept, self.shift, self.said, self.seen, self.colour)

    def save(self, path: Path) -> None:
        temporary = path.with_suffix(".tmp.npz")
        np.savez_compressed(temporary, **self.__dict__)
        temporary.replace(path)

    @classmethod
    def read(cls, path: Path) -> Answers:
        with np.load(path) as arrays:
            return cls(**{name: arrays[name] for name in arrays.files})


def answers_to(viewer: Viewer, units: int, images: Images, shifts: Sequence[str]) -> Answers:
    """What is said of the images of the base and these shifts; `images` as `Viewer.look` takes them."""
    shape = (len(SHIFT_NAMES), len(CLASSES), units)
    present, kept, shift = (np.zeros(shape, bool) for _ in range(3))
    said = np.full((*shape, len(viewer.classifiers)), -1, np.int8)
    seen, colour = (np.full(shape, -1, np.int8) for _ in range(2))
    for name in ("base", *shifts):
        s = SHIFT_NAMES.index(name)
        for label in range(len(CLASSES)):
            cell = list(images(s, label))
            if not cell:
                continue
            at = np.array([unit for unit, _, _ in cell])
            pixels = np.stack([image for _, _, image in cell])
            oracle = viewer.oracle.judge(pixels)
            present[s, label, at], kept[s, label, at] = True, [one for _, one, _ in cell]
            shift[s, label, at] = shows(oracle, name)
            seen[s, label, at], colour[s, label, at] = oracle["class"], oracle["colour"]
            for m, classifier in enumerate(viewer.classifiers):
                said[s, label, at, m] = guesses(classifier, pixels)
        print(f"  looked at {name}", flush=True)
    return Answers(present, kept, shift, said, seen, colour)
