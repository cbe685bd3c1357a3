"""What is true: how often a classifier fails on scenes that the world itself renders, with and
without an attribute.

A class's scenes have the attributes of its base images, as the oracle reads them, on garments that
no model of the lab and no planted classifier was trained on. A cell sets one attribute, or several,
of the same scenes to a value and leaves the rest as it was; its true drop is its failure rate less
that of the scenes as they are. Scenes are rendered once, for all classifiers of a panel.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from bugs_proof.answering import Panel
from bugs_proof.audits import Audit
from counterfoil.arrays import Bools, Ints
from counterfoil.lab.vocabulary import ATTRIBUTES, CLASSES
from counterfoil.lab.world import Scene, load_garments, render
from proof_files import PACKAGE, Facts, Values, arrays_of, save_arrays

Claims = tuple[tuple[str, str], ...]
"""(attribute, value), sorted: what a cell sets. None is the base."""
BASE: Claims = ()
GARMENTS = "heldout"
# Scenes are rendered and answered so many at a time; more of them leave the first ones as they are.
CHUNK = 60
_PURPOSE = 13
_WORLD = ("world.py", "scenery.py", "vocabulary.py")


@dataclass(frozen=True, slots=True)
class TrueRate:
    """Of n scenes: how often the classifier fails with the claims and without them, on the same
    scenes."""

    scenes: int
    rate: float
    base: float

    @property
    def drop(self) -> float:
        return self.rate - self.base


@dataclass
class Truth:
    """The truth of a panel. mix: by label, attributes of base images. count: scenes a cell."""

    panel: Panel
    mix: Mapping[int, Sequence[Values]]
    folder: Path
    count: int
    _failed: dict[tuple[int, Claims], dict[str, Bools]] = field(default_factory=dict)

    def rate(self, target: str, label: int, claims: Claims) -> TrueRate:
        """Return the true rate of a class with some claims; the base has no claims."""
        claimed = self.failed(label, claims)[target]
        base = self.failed(label, BASE)[target]
        return TrueRate(len(claimed), float(claimed.mean()), float(base.mean()))

    def failed(self, label: int, claims: Claims) -> dict[str, Bools]:
        """Return name → (count,) which scenes each classifier gets wrong."""
        key = (label, claims)
        if key not in self._failed:
            parts = [self._chunk(label, claims, start) for start in range(0, self.count, CHUNK)]
            self._failed[key] = {
                name: np.concatenate([part[name] for part in parts])[: self.count]
                for name in self.panel.names
            }
        return self._failed[key]

    def scenes(self, label: int, start: int = 0, stop: int | None = None) -> list[Scene]:
        """Return some of the base's scenes of a class."""
        garments = load_garments(GARMENTS).of_class(label)
        of_class = self.mix[label]
        scenes = []
        for index in range(start, self.count if stop is None else stop):
            rng = np.random.default_rng([_PURPOSE, label, index])
            attributes = dict(of_class[int(rng.integers(len(of_class)))])
            garment = int(garments[int(rng.integers(len(garments)))])
            scenes.append(
                Scene(GARMENTS, garment, label, seed=int(rng.integers(2**53)), **attributes)
            )
        return scenes

    def _chunk(self, label: int, claims: Claims, start: int) -> dict[str, Bools]:
        path = self.folder / self._hash / f"{label}-{_file(claims)}-{start}.npz"
        held = arrays_of(path)
        keys = dict(zip(self.panel.names, self.panel.weights, strict=True))
        missing = [name for name, key in keys.items() if key not in held]
        if missing:
            changes: Facts = dict(claims)
            scenes = [
                replace(scene, **changes) for scene in self.scenes(label, start, start + CHUNK)
            ]
            pixels = np.stack([render(scene) for scene in scenes])
            held |= {
                keys[name]: failed
                for name, failed in self.panel.failed_pixels(pixels, label, missing).items()
            }
            save_arrays(path, held)
        return {name: held[key] for name, key in keys.items()}

    @cached_property
    def _hash(self) -> str:
        digest = hashlib.sha256(
            json.dumps({str(label): of_class for label, of_class in self.mix.items()}).encode()
        )
        for name in _WORLD:
            digest.update((PACKAGE / "lab" / name).read_bytes())
        return digest.hexdigest()[:12]


def truth_of(audit: Audit) -> Truth:
    """Return the truth of an audit's panel, on the base of its run."""
    return Truth(audit.panel, mix_of(audit), audit.kept / "truth", audit.asked.renders)


def mix_of(audit: Audit) -> dict[int, list[dict[str, str]]]:
    """Return by label what the oracle reads of each accepted base image of the baseline, without
    its class."""
    drawer, base = audit.baseline()
    mix: dict[int, list[dict[str, str]]] = {}
    for cell in drawer.cells[f"{base.asked.name}/"]:
        seen = audit.panel.seen(audit.store, cell.cell)
        mix[cell.label] = [attributes_read(seen, index) for index in cell.indices.tolist()]
    return {label: of_class for label, of_class in mix.items() if of_class}


def attributes_read(seen: Mapping[str, Ints], index: int) -> dict[str, str]:
    """Return what the oracle reads of one image, without its class."""
    return {
        name: values[int(seen[name][index])]
        for name, values in ATTRIBUTES.items()
        if name != "class"
    }


def single_cells() -> Iterator[Claims]:
    """Yield every value of every attribute but the class, alone."""
    for attribute, values in ATTRIBUTES.items():
        if attribute != "class":
            for value in values:
                yield ((attribute, value),)


def shown(of_class: Sequence[Values], claims: Claims) -> float:
    """Return the share of a class's base images that have the claims; 0 without images."""
    return sum(set(claims) <= set(attributes.items()) for attributes in of_class) / max(
        1, len(of_class)
    )


def cell_text(label: int, claims: Claims) -> str:
    """Return a cell as people read it: `sandal: snow`."""
    return f"{CLASSES[label]}: {', '.join(value for _, value in claims) or 'base'}"


def _file(claims: Claims) -> str:
    return "_".join(f"{attribute}={value}" for attribute, value in claims) or "base"
