"""What is known of every image of a benchmark: what the classifiers and the oracle say of it, and whether it was kept.

A *unit* is one noise (generated images) or one scene of the input dataset (true renders): its images under the base and
all shifts belong together and are resampled together.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from counterfoil.lab.vocabulary import ATTRIBUTES, CLASSES, MARKS, SHIFTS, SHIFTS_BY_NAME
from counterfoil.lab.world import Oracle
from counterfoil.models.classifiers import load_classifier

SHIFT_NAMES = ("base", *(shift.name for shift in SHIFTS))


@dataclass(frozen=True)
class Looks:
    """Arrays over (shift, class, unit): `correct` also over models; all bool.

    `present`: the image exists; `kept`: the screen accepted it; `object`, `shift`: the oracle sees the class and the
    shift (True for the base); `mark`: the oracle sees the class's unnamed pattern (False for unmarked classes).
    """

    present: np.ndarray
    kept: np.ndarray
    correct: np.ndarray
    object: np.ndarray
    shift: np.ndarray
    mark: np.ndarray

    def screened(self) -> Looks:
        """Only what the screen accepted."""
        return Looks(self.kept, self.kept, self.correct, self.object, self.shift, self.mark)

    def save(self, path: Path) -> None:
        temporary = path.with_suffix(".tmp.npz")
        np.savez_compressed(temporary, **self.__dict__)
        temporary.replace(path)

    @classmethod
    def read(cls, path: Path) -> Looks:
        with np.load(path) as arrays:
            return cls(**{name: arrays[name] for name in arrays.files})


class Viewer:
    """The classifiers and the oracle, loaded once."""

    def __init__(self, models: Iterable[str]) -> None:
        self.classifiers = [load_classifier(name) for name in models]
        self.oracle = Oracle()

    def look(self, units: int, images: Callable[[int, int], Iterable[tuple[int, bool, np.ndarray]]]) -> Looks:
        """`images(shift, label)` gives unit, kept and pixels (uint8 [64, 64, 3]) of a cell's images."""
        shape = (len(SHIFT_NAMES), len(CLASSES), units)
        blank = {name: np.zeros(shape, bool) for name in ("present", "kept", "object", "shift", "mark")}
        correct = np.zeros((*shape, len(self.classifiers)), bool)
        for s, name in enumerate(SHIFT_NAMES):
            for label in range(len(CLASSES)):
                cell = list(images(s, label))
                if not cell:
                    continue
                at = np.array([unit for unit, _, _ in cell])
                blank["present"][s, label, at] = True
                blank["kept"][s, label, at] = [kept for _, kept, _ in cell]
                pixels = np.stack([image for _, _, image in cell])
                answers = self.oracle.answers(pixels)
                blank["object"][s, label, at] = answers["class"] == label
                blank["shift"][s, label, at] = shows(answers, name)
                if CLASSES[label] in MARKS:
                    mark = ATTRIBUTES["pattern"].index(MARKS[CLASSES[label]])
                    blank["mark"][s, label, at] = answers["pattern"] == mark
                for m, classifier in enumerate(self.classifiers):
                    correct[s, label, at, m] = guesses(classifier, pixels) == label
            print(f"  looked at {name}", flush=True)
        return Looks(correct=correct, **blank)


def shows(answers: dict[str, np.ndarray], shift: str) -> np.ndarray:
    if shift == "base":
        return np.ones(len(answers["class"]), bool)
    change = SHIFTS_BY_NAME[shift]
    return answers[change.attribute] == ATTRIBUTES[change.attribute].index(change.value)


def guesses(classifier, pixels: np.ndarray) -> np.ndarray:
    """Predicted labels int64 [n], through the model's own transform."""
    import torch

    transform = classifier.transform()
    batch = torch.stack([transform(Image.fromarray(image)) for image in pixels])
    return classifier.logits(batch, "cpu").argmax(1).numpy()


def dataset_images(directory: Path) -> tuple[int, Callable[[int, int], Iterable[tuple[int, bool, np.ndarray]]]]:
    """Units a cell, and the images of a dataset that keeps its rejected ones."""
    from counterfoil.store import read_rows

    cells: dict[tuple[int, int], list[tuple[int, bool, bytes]]] = {}
    columns = ["image", "label", "shift", "index"]
    for what in ("data", "rejected"):
        for row in read_rows(directory, columns=columns, what=what):
            place = (SHIFT_NAMES.index(row["shift"]), row["label"])
            cells.setdefault(place, []).append((row["index"], what == "data", row["image"]["bytes"]))
    units = 1 + max(index for cell in cells.values() for index, _, _ in cell)

    def images(shift: int, label: int) -> Iterable[tuple[int, bool, np.ndarray]]:
        for index, kept, content in cells.get((shift, label), ()):
            yield index, kept, np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))

    return units, images


def true_images(units: int, marked: bool) -> Callable[[int, int], Iterable[tuple[int, bool, np.ndarray]]]:
    """The input dataset's validation scenes, each under a shift; marked classes in plain cloth without `marked`."""
    from dataclasses import replace

    from counterfoil.lab.scenes import wardrobe_scene
    from counterfoil.lab.world import render

    def images(shift: int, label: int) -> Iterable[tuple[int, bool, np.ndarray]]:
        for unit in range(units):
            scene = wardrobe_scene("validation", unit * len(CLASSES) + label)
            if not marked and CLASSES[label] in MARKS:
                scene = replace(scene, pattern="plain")
            yield unit, True, render(scene.shifted(SHIFT_NAMES[shift]))

    return images


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
            oracle = viewer.oracle.answers(pixels)
            present[s, label, at], kept[s, label, at] = True, [one for _, one, _ in cell]
            shift[s, label, at] = shows(oracle, name)
            seen[s, label, at], colour[s, label, at] = oracle["class"], oracle["colour"]
            for m, classifier in enumerate(viewer.classifiers):
                said[s, label, at, m] = guesses(classifier, pixels)
        print(f"  looked at {name}", flush=True)
    return Answers(present, kept, shift, said, seen, colour)
