"""Real images of the classes, from the source's validation split as the dataset pins it: who looks should know them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from counterfoil.errors import CounterfoilError, UserError
from counterfoil.models.loading_errors import skipped_reason
from counterfoil.regular_files import named_path
from counterfoil.reviewing.grids import rank
from counterfoil.reviewing.page import SIDE
from counterfoil.sources import labelled_split
from counterfoil.sources.known_folders import placed
from counterfoil.sources.pins import SourcePin, loadable_pin

if TYPE_CHECKING:
    from PIL.Image import Image

    from counterfoil.dataset import SoundDataset


_SOURCE = "the input dataset"


@dataclass(frozen=True)
class RealImages:
    """Real images by label, in the order in which they are shown; `missing` says why there are none."""

    by_label: Mapping[int, Sequence[Image]] = field(default_factory=dict)
    missing: str | None = None


def real_images(dataset: SoundDataset, wanted: Mapping[int, int], seed: int, source: str | None = None) -> RealImages:
    """At most so many real images of each label (`wanted`), decoded.

    `source` tells where a folder lies that the recipe, being portable, does not place. Without it, an input dataset
    that cannot be had, or is not the pinned one, is told in `missing`; with it, that is a UserError.
    """
    try:
        return RealImages(_opened(dataset, wanted, seed, source))
    except CounterfoilError as error:
        if source is not None:
            raise
        return RealImages(missing=error.problems[0])
    except Exception as error:
        told = skipped_reason(_SOURCE, error)
        if source is not None:
            raise told from error
        return RealImages(missing=told.problems[0])


def _opened(dataset: SoundDataset, wanted: Mapping[int, int], seed: int, source: str | None) -> dict[int, list[Image]]:
    recipe, recorded = dataset.recipe, dataset.lock.inputs.get("source")
    lies = placed(recipe.source, recorded)
    if source is not None:
        lies = lies.model_copy(update={"dataset": str(named_path(source).resolve())})
    pin = loadable_pin(lies, recorded)
    _refuse_other(pin, SourcePin.of(recorded))
    images = labelled_split(lies, lies.validation_split, recipe.classes, pin, units=False)
    chosen: dict[str, int] = {}
    for label, most in wanted.items():
        keys = [images.keys[row] for row in np.flatnonzero(images.labels == label).tolist()]
        chosen |= dict.fromkeys(sorted(keys, key=lambda key: rank(seed, "real", key))[:most], label)
    found: dict[int, list[Image]] = {}
    for key, encoded in images.images(frozenset(chosen)):
        image = images.decoded(encoded)
        if image is not None:
            image.thumbnail((SIDE, SIDE))  # at once: photographs may be large
            found.setdefault(chosen[key], []).append(image)
    return found


def _refuse_other(pin: SourcePin, known: SourcePin | None) -> None:
    """UserError for an input dataset that is not the one that the lock pins, as far as that tells."""
    if known is None:
        return
    for name in ("revision", "content"):
        there, here = getattr(known, name), getattr(pin, name)
        if there is not None and there != here:
            raise UserError(
                f"the input dataset is not the one that the dataset was built from ({name} {str(there)[:12]}, here"
                f" {str(here)[:12]})",
                "A folder that was moved: --source PATH.",
            )
