"""What measuring distances returns: a row for the dataset, each group of it, and the source against itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from counterfoil.evaluation.statistics import Estimate

SetOfImages = Literal["dataset", "group", "source"]


@dataclass(frozen=True)
class Distance:
    """Images against those of the source of the same classes.

    what: all of the dataset, a group of it (`name`), or the source against itself. kid is None for too few images,
    and `note` then says so. kid_subset, kid_source_subset: the most images of either side in one of KID's subsets.
    fid_biased: whether a side has too few images for so many features.
    """

    what: SetOfImages
    name: str
    classes: int
    images: int
    source_images: int
    kid: Estimate | None = None
    kid_subset: int | None = None
    kid_source_subset: int | None = None
    fid: float | None = None
    fid_biased: bool = False
    note: str | None = None


@dataclass(frozen=True)
class Distances:
    """Distances in the features of one model.

    features: its name. pin: what the name stood for. width: how many features an image has. scaled: whether they are
    unit vectors that were lengthened to the square root of the width, so that KID's kernel is (1 + cosine)³. source:
    what was compared with, as DATASET:SPLIT, and source_content the sha256 of these images. source_rows: how many rows
    of these classes it has, of which the images are a part where they are fewer. unreadable: images left out, on both
    sides. near: the source against itself, so that one knows what near is. skipped: why nothing was measured.
    """

    features: str
    pin: str = ""
    width: int | None = None
    scaled: bool = False
    source: str = ""
    source_content: str = ""
    source_rows: int = 0
    subsets: int = 0
    seed: int = 0
    unreadable: int = 0
    rows: tuple[Distance, ...] = ()
    near: Distance | None = None
    skipped: str | None = None

    @property
    def all_rows(self) -> tuple[Distance, ...]:
        """The rows, and the source against itself as the last."""
        return (*self.rows, *((self.near,) if self.near else ()))
