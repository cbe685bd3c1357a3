"""The lab's input datasets by name, as sources read them: `lab:wardrobe`, and `lab:planted/KIND-SEED`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from counterfoil.errors import UserError
from counterfoil.models.names import LAB
from counterfoil.recipe.names import did_you_mean

if TYPE_CHECKING:
    import numpy as np

_PLANTED = "planted/"


@dataclass(frozen=True, slots=True)
class LabDataset:
    """One input dataset, rendered as it is read.

    version: what pins it. names: what the labels are called. labels(split): int64 [n]. garments(split): the garment of
    each row. pixels(split, row): uint8 [64, 64, 3].
    """

    name: str
    version: str
    names: tuple[str, ...]
    splits: tuple[str, ...]
    columns: tuple[str, ...]
    labels: Callable[[str], np.ndarray]
    garments: Callable[[str], Sequence[str]]
    pixels: Callable[[str, int], np.ndarray]

    def need_split(self, split: str) -> None:
        """UserError for a split that there is not."""
        if split not in self.splits:
            near = did_you_mean(split, self.splits)
            raise UserError(
                f"source: {self.name} has no split '{split}'{near}", f"Its splits are {', '.join(self.splits)}."
            )


def lab_dataset(name: str) -> LabDataset:
    """The dataset that `lab:NAME` stands for. UserError for one that the lab does not have."""
    short = name.removeprefix(LAB)
    if short == "wardrobe":
        return _wardrobe(name)
    if short.startswith(_PLANTED):
        return _planted(name, short.removeprefix(_PLANTED))
    from counterfoil.lab.planted import KINDS

    near = did_you_mean(short, ["wardrobe", *(f"{_PLANTED}{kind}-0" for kind in KINDS)])
    raise UserError(
        f"source.dataset: the lab has no '{short}'{near}",
        f"Its datasets are {LAB}wardrobe and {LAB}{_PLANTED}KIND-SEED.",
    )


def lab_names(name: str) -> tuple[str, ...]:
    """What the labels of a dataset of the lab are called. Raises as `lab_dataset`."""
    from counterfoil.lab.vocabulary import CLASSES

    return CLASSES if name == f"{LAB}wardrobe" else lab_dataset(name).names


def _wardrobe(name: str) -> LabDataset:
    from counterfoil.lab import wardrobe
    from counterfoil.lab.vocabulary import CLASSES

    def pixels(split: str, row: int) -> np.ndarray:
        return wardrobe.load_wardrobe(split)[1](row)

    return LabDataset(
        name,
        wardrobe.VERSION,
        CLASSES,
        wardrobe.SPLITS,
        wardrobe.COLUMNS,
        lambda split: wardrobe.load_wardrobe(split)[0],
        wardrobe.wardrobe_garments,
        pixels,
    )


def _planted(name: str, world_name: str) -> LabDataset:
    from counterfoil.lab import planted

    world = planted.named_world(world_name)
    if world is None:
        kind, _, seed = world_name.rpartition("-")
        near = did_you_mean(world_name, [f"{each}-{seed if seed.isdecimal() else 0}" for each in planted.KINDS])
        raise UserError(
            f"source.dataset: the lab has no planted world '{world_name}'"
            + (f": '{seed}' is no seed" if kind in planted.KINDS else near),
            f"Write {LAB}{_PLANTED}KIND-SEED with a kind of {', '.join(planted.KINDS)} and a seed of 0 to "
            f"{planted.MOST_SEED}, such as {LAB}{_PLANTED}{planted.KINDS[0]}-0.",
        )
    return LabDataset(
        name,
        planted.VERSION,
        world.class_names,
        planted.SPLITS,
        planted.COLUMNS,
        world.labels,
        world.garments,
        world.pixels,
    )
