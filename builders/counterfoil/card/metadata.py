"""The YAML block at the top of the card: what the Hub files the dataset under, and how it is loaded."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from counterfoil.card.configs import Config, configs_metadata, dataset_info_metadata
from counterfoil.card.licenses import license_metadata
from counterfoil.recipe.names import is_local

if TYPE_CHECKING:
    from huggingface_hub import DatasetCardData

    from counterfoil.recipe import Recipe

# The first is not of real images.
_TAGS = ("synthetic", "counterfoil", "counterfactual", "robustness")

# Upper ends (not included) and the Hub's names of the sizes, in images.
_SIZES = {
    10**3: "n<1K",
    10**4: "1K<n<10K",
    10**5: "10K<n<100K",
    10**6: "100K<n<1M",
    10**7: "1M<n<10M",
    10**8: "10M<n<100M",
    10**9: "100M<n<1B",
    10**10: "1B<n<10B",
    10**11: "10B<n<100B",
    10**12: "100B<n<1T",
}


def tags_of(recipe: Recipe) -> list[str]:
    """What the dataset is found by: on the Hub, and as keywords of croissant.json."""
    kind = recipe.generator.kind
    altered = {"edit": ("edited",), "corrupt": ("corruptions",)}.get(kind, ())
    return list(dict.fromkeys([*_TAGS[kind in ("retrieve", "corrupt") :], *altered, *recipe.publish.tags]))


def card_metadata(recipe: Recipe, configs: Sequence[Config], images: int) -> DatasetCardData:
    """The metadata of a dataset of `images` accepted images."""
    from huggingface_hub import DatasetCardData

    license, license_name = license_metadata(recipe.license)
    retrieved = recipe.generator.kind == "retrieve"
    pool = recipe.generator.dataset if retrieved else None
    sources = [recipe.source.dataset, *([] if pool is None else [pool])]
    named: dict[str, Any] = {"license_name": license_name} if license_name else {}
    return DatasetCardData(
        license=license,
        **named,
        pretty_name=pretty_name(recipe.name),
        tags=tags_of(recipe),
        annotations_creators=["found" if recipe.generator.kind == "corrupt" else "machine-generated"],
        task_categories=["image-classification"],
        task_ids=["multi-class-image-classification"],
        source_datasets=list(dict.fromkeys(name for source in sources for name in source_datasets(source))),
        size_categories=[size_category(images)],
        configs=configs_metadata(configs),
        dataset_info=dataset_info_metadata(configs, recipe),
    )


def pretty_name(name: str) -> str:
    """A dataset's name for people: "wardrobe-mini" is "Wardrobe mini"."""
    words = re.sub(r"[-_]+", " ", name).strip()
    return words[:1].upper() + words[1:]


def size_category(images: int) -> str:
    """The Hub's name for a number of images."""
    return next((name for end, name in _SIZES.items() if images < end), "n>1T")


def source_datasets(dataset: str) -> list[str]:
    """The id of an input dataset of the Hub; `original` where it is embedded or a folder."""
    return ["original"] if ":" in dataset or is_local(dataset) else [dataset]
