"""What classifiers and the oracle answer to kept pictures: all of a panel at once, kept beside the
pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from bugs_proof.pictures import PictureCell, PictureStore
from counterfoil.arrays import Bools, Floats32, Ints
from counterfoil.lab.planted import named_world
from counterfoil.lab.vocabulary import ATTRIBUTES
from counterfoil.models.arithmetic import one_thread
from counterfoil.models.classifiers import Classifier, describe_classifier, load_classifier
from counterfoil.models.names import folder_sha256
from counterfoil.prediction.class_map import map_classes
from counterfoil.recipe import Recipe
from lab_training.oracle import ORACLE_FOLDER, Oracle
from proof_files import Arrays, arrays_of, save_arrays, sha256_of
from proof_pictures import Pixels, batches_for

_ORACLE = "oracle"


class Panel:
    """Classifiers that are asked about the same pictures, loaded when the first answer is
    missing."""

    def __init__(self, names: Sequence[str], recipe: Recipe) -> None:
        self.names = tuple(names)
        self.classes = recipe.classes
        self._loaded: dict[str, Classifier] = {}

    def logits(self, store: PictureStore, cell: PictureCell, name: str) -> Floats32:
        """Return (n, outputs) of a cell's pictures."""
        return self._kept(store, cell)[self._keys[name]]

    def answers(self, store: PictureStore, cell: PictureCell, name: str) -> Ints:
        """Return the (n,) best outputs of a cell's pictures."""
        return self.logits(store, cell, name).argmax(axis=1).astype(np.int64)

    def failed(self, store: PictureStore, cell: PictureCell, label: int, name: str) -> Bools:
        """Return (n,) where the best output is not one of the class's."""
        return ~np.isin(self.answers(store, cell, name), self.right_of(name)[label])

    def seen(self, store: PictureStore, cell: PictureCell) -> dict[str, Ints]:
        """Return attribute → (n,) value index, as the oracle reads a cell's pictures."""
        read = self._kept(store, cell)[self._keys[_ORACLE]]
        return {attribute: read[:, index] for index, attribute in enumerate(ATTRIBUTES)}

    def failed_pixels(self, pixels: Pixels, label: int, names: Sequence[str]) -> dict[str, Bools]:
        """Return name → (n,) which pictures of a class each classifier gets wrong; keep nothing."""
        return {
            name: ~np.isin(self._logits(name, pixels).argmax(axis=1), self.right_of(name)[label])
            for name in names
        }

    @cached_property
    def weights(self) -> list[str]:
        """The classifiers with a hash of the weights that each stands for."""
        return [self._keys[name] for name in self.names]

    def right_of(self, name: str) -> tuple[tuple[int, ...], ...]:
        """Return the outputs that are right, by label."""
        return self._right[name]

    @cached_property
    def _right(self) -> dict[str, tuple[tuple[int, ...], ...]]:
        return {name: self._outputs(name) for name in self.names}

    def _outputs(self, name: str) -> tuple[tuple[int, ...], ...]:
        world = named_world(name.rpartition("/")[2])
        if world is not None:
            # Labels of a world may be merged classes: either of their names is right.
            return tuple(
                tuple(
                    label for label, subtypes in enumerate(world.subtypes) if cls.name in subtypes
                )
                for cls in self.classes
            )
        return map_classes(self.classes, describe_classifier(name, self.classes)).targets

    @cached_property
    def _keys(self) -> Mapping[str, str]:
        """What answers are kept under: the name, and which weights it stood for."""
        keys = {_ORACLE: f"{_ORACLE} {folder_sha256(ORACLE_FOLDER)[:12]}"}
        keys |= {name: f"{name} {sha256_of(name)[:12]}" for name in self.names}
        return keys

    def _kept(self, store: PictureStore, cell: PictureCell) -> Arrays:
        pictures = store[cell]
        path = store.folder / "answers" / cell.name[:2] / f"{cell.name}.npz"
        held = arrays_of(path)
        missing = [
            name for name, key in self._keys.items() if len(held.get(key, ())) < len(pictures)
        ]
        for name in missing:
            key = self._keys[name]
            known = held.get(key, ())
            more = self._read(name, pictures.pixels[len(known) :])
            held[key] = np.concatenate([known, more]) if len(known) else more
        if missing:
            save_arrays(path, held)
        return held

    def _read(self, name: str, pixels: Pixels) -> NDArray:
        if name != _ORACLE:
            return self._logits(name, pixels)
        with one_thread():
            read = self._oracle.answers(pixels)
        return np.stack([read[attribute] for attribute in ATTRIBUTES], axis=1).astype(np.int64)

    def _logits(self, name: str, pixels: Pixels) -> Floats32:
        if name not in self._loaded:
            self._loaded[name] = load_classifier(name, classes=self.classes)
        classifier = self._loaded[name]
        with one_thread():
            parts = [
                classifier.logits(batch, "cpu").numpy().astype(np.float32)
                for batch in batches_for(classifier, pixels)
            ]
        return np.concatenate(parts)

    @cached_property
    def _oracle(self) -> Oracle:
        return Oracle()
