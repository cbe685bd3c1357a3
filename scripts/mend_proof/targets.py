"""One classifier, the images that it learned from, is mined on and measured on, and the truth about
their scenes.

Of a planted world: mined on `validation`, measured on the first rows of `proof`; rows of `test` are
a pool. Of the wardrobe's classifiers: mined on `audit`, measured on `validation` and on true
renders, scenes of `audit` with garments that nobody saw and any place as often as any other.
Features are computed once and kept as arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from counterfoil.arrays import Bools, Floats32, Ints
from counterfoil.lab.planted import VERSION as PLANTED_VERSION
from counterfoil.lab.planted import PlantedWorld, named_world
from counterfoil.lab.scenes import VERSION as WARDROBE_VERSION
from counterfoil.lab.scenes import wardrobe_scene
from counterfoil.lab.vocabulary import ATTRIBUTES, BACKGROUND_BIAS, BACKGROUNDS, CLASSES
from counterfoil.lab.world import Scene, load_garments, render
from counterfoil.models.classifiers import Classifier, load_classifier
from counterfoil.models.clip import ClipModel, load_clip
from counterfoil.models.names import LAB_WEIGHTS, folder_sha256, local_folder
from proof_files import Facts, Pixels, saved

CLIP = "lab:clip"
_BATCH = 64
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
        folder = local_folder(self.model)
        assert folder is not None
        return folder_sha256(folder)

    @cached_property
    def classifier(self) -> Classifier:
        return load_classifier(self.model)

    def features(self, pixels: Pixels) -> Floats32:
        """Return (n, d) what the last layer sees of pictures uint8 [n, 64, 64, 3]."""
        import torch

        transform = self.classifier.transform()
        parts = []
        for start in range(0, len(pixels), _BATCH):
            part = [transform(Image.fromarray(pixel)) for pixel in pixels[start : start + _BATCH]]
            batch_features = self.classifier.features(torch.stack(part), "cpu")
            assert batch_features is not None
            parts.append(batch_features.numpy())
        return np.concatenate(parts)

    def rows(self, split: str, clip: bool = False) -> Rows:
        """Return the rows of a split; `clip`: with CLIP's vectors."""
        held = self._held(split)
        features = self._own(split)
        vectors = _vectors(self._scenes_name, split, held["count"], self.kept) if clip else None
        empty = np.zeros((len(features), 0), np.float32)
        return Rows(
            held["labels"], held["units"], held["members"], features, empty if vectors is None else vectors,
            held["attributes"],
        )  # fmt: skip

    @property
    def _scenes_name(self) -> str:
        return "wardrobe" if self.world is None else self.world.name

    def _own(self, split: str) -> Floats32:
        path = (
            self.kept
            / "features"
            / f"{_file(self.name)}-{split}-{count_of(self._scenes_name, split)}-{self.sha256[:12]}.npy"
        )
        if not path.exists():
            pixels = _pixels(self._scenes_name, split, self._held(split)["count"], self.kept)
            features = self.features(pixels)
            saved(path, lambda to: np.save(to, features))
        return np.load(path)

    def _held(self, split: str) -> Facts:
        return _facts(self._scenes_name, split, self.kept)


def count_of(scenes: str, split: str) -> int:
    """Return how many rows of a split are looked at."""
    return _WARDROBE_ROWS[split] if scenes == "wardrobe" else _PLANTED_ROWS[split]


@cache
def _facts(scenes: str, split: str, kept: Path) -> Facts:
    """Return labels, units, members and attributes of a split."""
    count = count_of(scenes, split)
    path = kept / "facts" / f"{scenes}-{split}-{count}-{_version(scenes)}.npz"
    if not path.exists():
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
        arrays: Facts = {
            "labels": np.asarray(labels, np.int64),
            "units": np.asarray([scene.garment for scene in scenes_of_split], np.int64),
            "members": np.asarray(members, np.bool_),
            "attributes": np.asarray(attributes, np.int8),
        }
        saved(path, lambda to: np.savez(to, **arrays))
    with np.load(path) as held:
        return {"count": count} | {name: held[name] for name in held.files}


def _version(scenes: str) -> str:
    return WARDROBE_VERSION if scenes == "wardrobe" else PLANTED_VERSION


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


@cache
def clip_model() -> ClipModel:
    """Return the lab's CLIP, loaded once."""
    return load_clip(CLIP)


@cache
def text_vector(text: str) -> Floats32:
    """Return (width,) of a caption."""
    return clip_model().embed_texts([text])[0]


def text_vectors(texts: Sequence[str]) -> Floats32:
    """Return (m, width) of captions, each encoded alone and once."""
    return np.stack([text_vector(text) for text in texts])


def _vectors(scenes: str, split: str, count: int, kept: Path) -> Floats32:
    path = (
        kept
        / "vectors"
        / f"{scenes}-{split}-{count}-{_version(scenes)}-{folder_sha256(LAB_WEIGHTS / 'clip')[:8]}.npy"
    )
    if not path.exists():
        vectors = clip_vectors(_pixels(scenes, split, count, kept))
        saved(path, lambda to: np.save(to, vectors))
    return np.load(path)


def clip_vectors(pixels: Pixels) -> Floats32:
    """Return (n, width) of pictures."""
    return (
        clip_model()
        .embed_images([Image.fromarray(pixel) for pixel in pixels], _BATCH)
        .astype(np.float32)
    )


@cache
def _pixels(scenes: str, split: str, count: int, kept: Path) -> Pixels:
    """Return pictures of a split, uint8 [count, 64, 64, 3], rendered once."""
    path = kept / "pixels" / f"{scenes}-{split}-{count}-{_version(scenes)}.npy"
    if not path.exists():
        draw = _renderer(scenes, split)
        pixels = np.stack([draw(row) for row in range(count)])
        saved(path, lambda to: np.save(to, pixels))
    return np.load(path, mmap_mode="r")


def _renderer(scenes: str, split: str) -> Callable[[int], Pixels]:
    world = named_world(scenes)
    if world is not None:
        return lambda row: world.pixels(split, row)
    return lambda row: render(scene_of(scenes, split, row))


def _file(name: str) -> str:
    return name.replace(":", "-").replace("/", "-")
