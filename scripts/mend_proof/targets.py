"""One classifier, the images that it learned from, is mined on and measured on, and the truth about
their scenes.

Of a planted world: mined on `validation`, measured on the first rows of `proof`; rows of `test` are
a pool. Of the wardrobe's classifiers: mined on `audit`, measured on `validation` and on true
renders, scenes of `audit` with garments that nobody saw and any place as often as any other.
Features are computed once and kept as arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from counterfoil.arrays import Bools, Floats32, Ints
from counterfoil.lab.planted import VERSION as PLANTED_VERSION
from counterfoil.lab.planted import PlantedWorld, named_world
from counterfoil.lab.scenes import VERSION as WARDROBE_VERSION
from counterfoil.lab.scenes import wardrobe_scene
from counterfoil.lab.vocabulary import ATTRIBUTES, BACKGROUND_BIAS, BACKGROUNDS, CLASSES
from counterfoil.lab.world import Scene, load_garments, render
from counterfoil.models.classifiers import Classifier, load_classifier
from counterfoil.models.names import LAB_WEIGHTS, folder_sha256
from directions_proof.captions import vector_of
from directions_proof.worlds import clip
from proof_files import Arrays, arrays_of, kept_array, save_arrays, sha256_of
from proof_pictures import BATCH, Pixels, batches_for, images_of

TRUE_RENDERS = "renders"
_PURPOSE = 14
# Split → how many of its first rows are looked at: of planted worlds, of the wardrobe.
_PLANTED_ROWS = {"train": 6000, "validation": 6000, "test": 2000, "proof": 4000}
_WARDROBE_ROWS = {"train": 4000, "audit": 6000, "validation": 1500, TRUE_RENDERS: 3000}


@dataclass(frozen=True)
class Rows:
    """n rows of a split. labels: as the dataset tells them; units: garments; members: whether in
    the planted slice.

    features: (n, d) of the classifier, `vectors`: (n, width) of CLIP or (n, 0) where it was not
    asked. attributes: name → (n,) places in `ATTRIBUTES`.
    """

    labels: Ints
    units: Ints
    members: Bools
    features: Floats32
    vectors: Floats32
    attributes: NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.labels)

    def of(self, chosen: NDArray) -> Rows:
        """Return some rows, by indices or a mask."""
        return Rows(**{name: getattr(self, name)[chosen] for name in self.__dataclass_fields__})

    def has(self, attribute: str, value: str) -> Bools:
        """Return (n,) which scenes have a value."""
        index = list(ATTRIBUTES).index(attribute)
        return self.attributes[:, index] == ATTRIBUTES[attribute].index(value)


class Target:
    """A classifier and its rows, by the names of splits. outputs are labels: both have the same
    order."""

    def __init__(self, name: str, classifiers: Path, kept: Path) -> None:
        self.name = name
        self.kept = kept
        self.world: PlantedWorld | None = None if name.startswith("lab:") else named_world(name)
        bundled = LAB_WEIGHTS / "planted" / name
        if self.world is None:
            self.model = name
        else:
            folder = bundled if bundled.exists() else classifiers / name
            self.model = f"local-dir:{folder.resolve()}"

    @property
    def class_names(self) -> tuple[str, ...]:
        return CLASSES if self.world is None else self.world.class_names

    @property
    def kinds(self) -> tuple[tuple[str, ...], ...]:
        """By label, the garments that it stands for."""
        return tuple((name,) for name in CLASSES) if self.world is None else self.world.subtypes

    @property
    def mined(self) -> str:
        """The split that is mined, in halves."""
        return "audit" if self.world is None else "validation"

    @property
    def pool(self) -> str:
        """Rows that *filter* takes from; of `train`, those that are not learned from anyway."""
        return "train" if self.world is None else "test"

    @property
    def measured(self) -> str:
        """The split that is the test: other garments than the mined one's."""
        return "validation" if self.world is None else "proof"

    @property
    def truth(self) -> str:
        """Scenes of unseen garments, in which the slice is looked at."""
        return TRUE_RENDERS if self.world is None else "proof"

    @cached_property
    def sha256(self) -> str:
        """Of the classifier's folder, without loading it."""
        return sha256_of(self.model)

    @cached_property
    def classifier(self) -> Classifier:
        return load_classifier(self.model)

    def features(self, pixels: Pixels) -> Floats32:
        """Return (n, d) what the last layer sees of pictures uint8 [n, 64, 64, 3]."""
        parts = []
        for batch in batches_for(self.classifier, pixels):
            features = self.classifier.features(batch, "cpu")
            assert features is not None
            parts.append(features.numpy())
        return np.concatenate(parts)

    def rows(self, split: str, clip: bool = False) -> Rows:
        """Return the rows of a split; `clip`: with CLIP's vectors."""
        scenes = "wardrobe" if self.world is None else self.world.name
        name = self.name.replace(":", "-").replace("/", "-")
        path = f"{name}-{split}-{count_of(scenes, split)}-{self.sha256[:12]}.npy"
        features = kept_array(
            self.kept / "features" / path, lambda: self.features(_pixels(scenes, split, self.kept))
        )
        vectors = np.zeros((len(features), 0), np.float32)
        if clip:
            vectors = _vectors(scenes, split, self.kept)
        return Rows(features=features, vectors=vectors, **_facts(scenes, split, self.kept))


def count_of(scenes: str, split: str) -> int:
    """Return how many rows of a split are looked at."""
    return _WARDROBE_ROWS[split] if scenes == "wardrobe" else _PLANTED_ROWS[split]


@cache
def _facts(scenes: str, split: str, kept: Path) -> Arrays:
    """Return labels, units, members and attributes of a split."""
    path = kept / "facts" / f"{_stem(scenes, split)}.npz"
    if not path.exists():
        count = count_of(scenes, split)
        scenes_of_split = [scene_of(scenes, split, row) for row in range(count)]
        world = named_world(scenes)
        labels = (
            [scene.label for scene in scenes_of_split]
            if world is None
            else [world.label(split, row) for row in range(count)]
        )
        members = [
            biased_off(scene) if world is None else world.in_slice(split, row)
            for row, scene in enumerate(scenes_of_split)
        ]
        attributes = [
            [ATTRIBUTES[name].index(value) for name, value in scene.attributes().items()]
            for scene in scenes_of_split
        ]
        arrays = {
            "labels": np.asarray(labels, np.int64),
            "units": np.asarray([scene.garment for scene in scenes_of_split], np.int64),
            "members": np.asarray(members, np.bool_),
            "attributes": np.asarray(attributes, np.int8),
        }
        save_arrays(path, arrays)
    return arrays_of(path)


def _stem(scenes: str, split: str) -> str:
    version = WARDROBE_VERSION if scenes == "wardrobe" else PLANTED_VERSION
    return f"{scenes}-{split}-{count_of(scenes, split)}-{version}"


def scene_of(scenes: str, split: str, row: int) -> Scene:
    world = named_world(scenes)
    if world is not None:
        return world.scene(split, row)
    if split != TRUE_RENDERS:
        return wardrobe_scene(split, row)
    like = wardrobe_scene("audit", row)
    rng = np.random.default_rng([_PURPOSE, row])
    garments = load_garments("heldout").of_class(like.label)
    return replace(
        like,
        split="heldout",
        garment=int(garments[int(rng.integers(len(garments)))]),
        background=BACKGROUNDS[int(rng.integers(len(BACKGROUNDS)))],
    )


def biased_off(scene: Scene) -> bool:
    """Return whether a scene of the wardrobe is of a class that learned a place, and is
    elsewhere."""
    usual = BACKGROUND_BIAS.get(CLASSES[scene.label])
    return usual is not None and scene.background != usual


def text_vectors(texts: Sequence[str]) -> Floats32:
    """Return (m, width) of captions, each encoded alone and once."""
    return np.stack([vector_of(text) for text in texts])


def _vectors(scenes: str, split: str, kept: Path) -> Floats32:
    stem = f"{_stem(scenes, split)}-{folder_sha256(LAB_WEIGHTS / 'clip')[:8]}"
    return kept_array(
        kept / "vectors" / f"{stem}.npy", lambda: clip_vectors(_pixels(scenes, split, kept))
    )


def clip_vectors(pixels: Pixels) -> Floats32:
    """Return (n, width) of pictures."""
    return clip().embed_images(images_of(pixels), BATCH).astype(np.float32)


@cache
def _pixels(scenes: str, split: str, kept: Path) -> Pixels:
    """Return pictures of a split, uint8 [count, 64, 64, 3], rendered once."""
    path = kept / "pixels" / f"{_stem(scenes, split)}.npy"
    return kept_array(path, lambda: _rendered(scenes, split), mapped=True)


def _rendered(scenes: str, split: str) -> Pixels:
    world = named_world(scenes)
    rows = range(count_of(scenes, split))
    if world is not None:
        return np.stack([world.pixels(split, row) for row in rows])
    return np.stack([render(scene_of(scenes, split, row)) for row in rows])
