"""One planted world as an audit sees it, beside its truth: CLIP's features, the classifier's
answers, the slice.

Embeddings and predictions go through the caches of the package and are found again by their
content. A split is rendered once for both, and its pictures are removed when both are known.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy import special

from counterfoil.arrays import Bools, Floats, Floats32, Ints
from counterfoil.data.labelled_images import LabelledImages
from counterfoil.data.labelled_sources import labelled_source
from counterfoil.lab.planted import ROWS, PlantedWorld, named_world
from counterfoil.lab.scenes import wardrobe_scene
from counterfoil.lab.world import Scene
from counterfoil.mining.methods.svm import Direction, fit_direction, whiten
from counterfoil.models.classifiers import describe_classifier, load_classifier
from counterfoil.models.clip import ClipModel, load_clip, pin_clip
from counterfoil.models.names import LAB_WEIGHTS
from counterfoil.prediction.class_map import map_classes
from counterfoil.prediction.embedding import clip_embedder, embed
from counterfoil.prediction.inference import Predictions
from counterfoil.prediction.passes import score_models
from counterfoil.recipe.prompts import RecipeClass
from proof_pictures import Pixels

Attributes = Mapping[str, NDArray[np.str_]]
CLIP = "lab:clip"
BATCH = 64


@dataclass(frozen=True)
class Rows:
    """n rows of a split. Labels are those that the dataset tells, flipped ones included.

    numbers: (n,), rows of the split. features: (n, width), unit vectors. labels, units: (n,).
    members: (n,), whether in the slice. failed: (n,). shares: (n, classes), the classifier's
    softmax. answers: (n, k), best first.
    """

    numbers: Ints
    features: Floats32
    labels: Ints
    units: Ints
    members: Bools
    failed: Bools
    shares: Floats
    answers: NDArray[np.int32]

    def of(self, chosen: NDArray) -> Rows:
        """Return some rows, by their indices or a mask."""
        return Rows(**{name: getattr(self, name)[chosen] for name in self.__dataclass_fields__})

    def of_class(self, label: int) -> Rows:
        """Return the rows of a class."""
        return self.of(self.labels == label)

    @property
    def true_confidence(self) -> Floats:
        """(n,), what the classifier gives the label."""
        return self.shares[np.arange(len(self.labels)), self.labels]


class AuditedWorld:
    """A world, its classifier, and what of both is known; all of it computed when it is asked for,
    and kept."""

    def __init__(self, name: str, classifiers: Path, kept: Path) -> None:
        world = named_world(name)
        if world is None:
            raise ValueError(f"no planted world {name!r}")
        self.world: PlantedWorld = world
        self.folder = classifiers / name
        self.early_folder = classifiers / f"{name}-early"
        self.biased_folder = classifiers / f"{name}-biased"
        self.kept = kept

    @property
    def name(self) -> str:
        return self.world.name

    @cached_property
    def classes(self) -> tuple[RecipeClass, ...]:
        return tuple(
            RecipeClass(f"{label:02d}", name, label, label, ())
            for label, name in enumerate(self.world.class_names)
        )

    @cached_property
    def whitening(self) -> tuple[Floats, Floats]:
        """(width,) mean and standard deviation (ddof 1) of the features of the train split."""
        features = self.train[0].astype(np.float64)
        return features.mean(axis=0), features.std(axis=0, ddof=1)

    @cached_property
    def train(self) -> tuple[Floats32, Ints]:
        """Features (n, width) and labels (n,) of the train split."""
        features, labels, _ = self.seen("train")
        return features, labels

    def whitened(self, rows: Rows) -> Floats:
        """Return the (n, width) points on which directions are fitted."""
        return whiten(rows.features, *self.whitening)

    def direction(self, rows: Rows) -> Direction | None:
        """Return the direction that is fitted on some rows; None if they have too few errors."""
        fitted = fit_direction(
            self.whitened(rows), ~rows.failed, rows.units, seed=0, permutations=0
        )
        return fitted if isinstance(fitted, Direction) else None

    @cached_property
    def validation(self) -> Rows:
        return self.rows("validation")

    @cached_property
    def test(self) -> Rows:
        return self.rows("test")

    def rows(self, split: str, most: int | None = None) -> Rows:
        """Return the rows of a split, all or the first `most`."""
        images = self._images(split, most)
        features = self.features_of(images)
        predictions = self._predictions(images, self.folder)
        self._forget_pictures(split)
        assert predictions.logits is not None
        count = len(images)
        return Rows(
            numbers=np.arange(count),
            features=features,
            labels=images.labels,
            units=_units(images),
            members=np.asarray([self.world.in_slice(split, row) for row in range(count)], np.bool_),
            failed=~predictions.correct,
            shares=special.softmax(np.asarray(predictions.logits, np.float64), axis=1),
            answers=predictions.answers,
        )

    def seen(self, split: str) -> tuple[Floats32, Ints, Ints]:
        """Return features (n, width), labels (n,) and units (n,) of a split: what is known without
        a classifier."""
        images = self._images(split)
        features = self.features_of(images)
        self._forget_pictures(split)
        return features, images.labels, _units(images)

    def scene(self, row: int) -> Scene:
        """Return the scene of a row of `validation`."""
        return self.world.scene("validation", row)

    @cached_property
    def attributes(self) -> Attributes:
        """Attribute but the class → its value in each scene of `validation`, (n,)."""
        count = len(self._images("validation"))
        scenes = [self.scene(row).attributes() for row in range(count)]
        return {
            name: np.asarray([scene[name] for scene in scenes])
            for name in scenes[0]
            if name != "class"
        }

    def confidence_of(self, folder: Path, split: str) -> Floats | None:
        """Return (n,) the confidence of another classifier of this world in the label; None if the
        folder has no such one."""
        if not (folder / "config.json").exists():
            return None
        predictions = self._predictions(self._images(split), folder)
        self._forget_pictures(split)
        return np.asarray(predictions.true_confidence, np.float64)

    def _images(self, split: str, most: int | None = None) -> LabelledImages:
        images = labelled_source(
            f"lab:planted/{self.name}:{split}", self.classes, unit_column="garment"
        )
        read = _rendered_once(
            self.world, split, len(images) if most is None else most, self._pictures(split)
        )
        if most is None or most >= len(images):
            return replace(images, read=lambda keys: read(images.keys, keys))
        keys = images.keys[:most]
        return replace(
            images,
            content=f"{images.content}-first-{most}",
            keys=keys,
            labels=images.labels[:most],
            groups=images.groups[:most],
            units=None if images.units is None else images.units[:most],
            read=lambda wanted: read(keys, wanted),
        )

    def features_of(self, images: LabelledImages) -> Floats32:
        """Return (n, width) CLIP's unit vectors of some images, of this world or others."""
        embedder = clip_embedder(clip(), pin_clip(CLIP, None))
        return np.asarray(
            embed(images, embedder, self.kept / "embeddings", precision="float32"), np.float32
        )

    def _predictions(self, images: LabelledImages, folder: Path) -> Predictions:
        name = f"local-dir:{folder.resolve()}"
        maps = {name: map_classes(self.classes, describe_classifier(name, self.classes))}
        scored = score_models(
            images, [name], maps, self.kept / "predictions", "cpu", BATCH,
            lambda path: load_classifier(path, classes=self.classes), logits=True,
        )  # fmt: skip
        return scored[name].predictions

    def _pictures(self, split: str) -> Path:
        return self.kept / "pictures" / f"{self.name}-{split}.npy"

    def _forget_pictures(self, split: str) -> None:
        self._pictures(split).unlink(missing_ok=True)


def _units(images: LabelledImages) -> Ints:
    assert images.units is not None
    return np.unique(np.asarray(images.units), return_inverse=True)[1].astype(np.int64)


@cache
def clip() -> ClipModel:
    """Return the lab's CLIP, loaded once."""
    return load_clip(CLIP)


def pictures(world: PlantedWorld, split: str, count: int, path: Path) -> Pixels:
    """Return the first `count` pictures of a split, uint8 [count, 64, 64, 3], mapped from a file
    written once."""
    if path.exists():
        stored = np.load(path, mmap_mode="r")
        if len(stored) >= count:
            return stored
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part.npy")
    array = np.lib.format.open_memmap(part, "w+", np.uint8, (count, 64, 64, 3))
    for row in range(count):
        array[row] = world.pixels(split, row)
    array.flush()
    del array
    part.replace(path)
    return np.load(path, mmap_mode="r")


def _rendered_once(world: PlantedWorld, split: str, count: int, path: Path):
    assert count <= ROWS[split]

    def read(
        keys: tuple[str, ...], wanted: frozenset[str] | None
    ) -> Iterator[tuple[str, bytes | None]]:
        stored = pictures(world, split, count, path)
        for row, key in enumerate(keys):
            if wanted is None or key in wanted:
                stream = io.BytesIO()
                Image.fromarray(stored[row]).save(stream, "BMP")
                yield key, stream.getvalue()

    return read


SPLIT = "audit"
_WARDROBE_SPLITS = {"train": "train", "validation": SPLIT}


class AuditedWardrobe(AuditedWorld):
    """One of the lab's classifiers on 12,000 images; `validation` is the split `audit`, and nothing
    is planted."""

    def __init__(self, classifier: str, classifiers: Path, kept: Path) -> None:
        super().__init__("null-0", classifiers, kept)  # it has the same ten classes
        self.classifier = classifier
        self.folder = LAB_WEIGHTS / classifier

    @property
    def name(self) -> str:
        return self.classifier

    def scene(self, row: int) -> Scene:
        """Return the scene of a row of `audit`."""
        return wardrobe_scene(SPLIT, row)

    def _images(self, split: str, most: int | None = None) -> LabelledImages:
        assert most is None
        return labelled_source(
            f"lab:wardrobe:{_WARDROBE_SPLITS[split]}", self.classes, unit_column="garment"
        )
