"""Which configs and splits a dataset has, and how the card declares them so that `datasets` loads each.

`default` has a split a group; each group is a config of its own; `candidates` (and `rejected`, where
images of rejected samples are kept) hold what was screened. What has no row is left out: a config without
one does not load.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from counterfoil.store.layout import SUFFIXES, What
from counterfoil.store.rows import TableForm, unique_names, webdataset_features

if TYPE_CHECKING:
    from counterfoil.plan import Plan
    from counterfoil.recipe import Recipe
    from counterfoil.store import Receipt

DEFAULT = "default"

# Class names are declared in every config of a WebDataset card up to here, about 200 kB of metadata.
# Beyond, only `default` names the classes and the others keep plain numbers (24 shifts of 1000 classes
# would make a card of a megabyte that takes a second to parse).
MOST_DECLARED_NAMES = 5000


@dataclass(frozen=True, slots=True)
class Split:
    """A split: the globs of its files, and what they hold. `bytes` is the size of the files."""

    name: str
    paths: tuple[str, ...]
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Config:
    """A config of the dataset and the table that it shows."""

    name: str
    what: What
    splits: tuple[Split, ...]


def configs_of(plan: Plan, receipts: Sequence[Receipt]) -> tuple[Config, ...]:
    """Every config with a row: `default`, the groups in the plan's order, `candidates`, `rejected`."""
    output = plan.recipe.output
    rows: dict[tuple[What, str], list[int]] = {}
    for receipt in receipts:
        for what in receipt.rows:
            file = receipt.file(what)
            if file is not None:
                total = rows.setdefault((what, receipt.group), [0, 0])
                total[0] += file.rows
                total[1] += file.size

    def split(what: What, groups: Iterable[str], name: str) -> Split:
        with_rows = [group for group in groups if (what, group) in rows]
        totals = [rows[what, group] for group in with_rows]
        suffix = SUFFIXES[output.format]
        return Split(
            name=name,
            paths=tuple(f"{what}/{group}/{output.split}-*.{suffix}" for group in with_rows),
            rows=sum(count for count, _ in totals),
            bytes=sum(size for _, size in totals),
        )

    groups = [group for group in plan.groups if ("data", group) in rows]
    configs = [Config(group, "data", (split("data", [group], output.split),)) for group in groups]
    if groups:
        every = tuple(split("data", [group], group) for group in groups)
        configs.insert(0, Config(DEFAULT, "data", every))
    for what in ("candidates", "rejected"):
        if any((what, group) in rows for group in plan.groups):
            configs.append(Config(what, what, (split(what, plan.groups, output.split),)))
    return tuple(configs)


def configs_metadata(configs: Sequence[Config]) -> list[dict[str, Any]]:
    """The card's `configs`: explicit globs, since guessing would take stray files and words for splits."""
    return [
        {
            "config_name": config.name,
            **({"default": True} if config is configs[0] else {}),
            "data_files": [
                {"split": split.name, "path": split.paths[0] if len(split.paths) == 1 else list(split.paths)}
                for split in config.splits
            ],
        }
        for config in configs
    ]


def dataset_info_metadata(configs: Sequence[Config], recipe: Recipe) -> list[dict[str, Any]]:
    """The card's `dataset_info`: row counts, which `load_dataset` checks, and for tar files the features."""
    infos = []
    for config in configs:
        info: dict[str, Any] = {"config_name": config.name}
        if recipe.output.format == "webdataset":
            info["features"] = _features(config, recipe, named=classes_are_named(config, configs, recipe))
        info["splits"] = [
            {"name": split.name, "num_bytes": split.bytes, "num_examples": split.rows} for split in config.splits
        ]
        infos.append(info)
    return infos


def classes_are_named(config: Config, configs: Sequence[Config], recipe: Recipe) -> bool:
    """Whether a config shows class names for its labels; Parquet files bring them along."""
    if recipe.output.format == "parquet" or config is configs[0]:
        return True
    return len(configs) * len(recipe.classes) <= MOST_DECLARED_NAMES


def _features(config: Config, recipe: Recipe, named: bool) -> list[dict[str, Any]]:
    from datasets import Features, Value

    names = unique_names([(cls.id, cls.name) for cls in recipe.classes])
    declared = webdataset_features(config.what, names, TableForm.of(recipe), recipe.output.image.format)
    features = Features.from_dict(declared)
    if not named:
        features["cls"] = Value("int64")
    return features._to_yaml_list()
