"""Input datasets, pinned and loaded by that pin, and labelled images of any origin.

What is named here loads when it is first used: a recipe's classes are asked for without an array or an image.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from counterfoil.sources.labelled_images import LabelledImages, first_of_classes, rows_of, thinned
    from counterfoil.sources.labelled_sources import Reference, labelled_source, labelled_split

_HOMES = {
    "LabelledImages": "counterfoil.sources.labelled_images",
    "Reference": "counterfoil.sources.labelled_sources",
    "first_of_classes": "counterfoil.sources.labelled_images",
    "labelled_source": "counterfoil.sources.labelled_sources",
    "labelled_split": "counterfoil.sources.labelled_sources",
    "rows_of": "counterfoil.sources.labelled_images",
    "thinned": "counterfoil.sources.labelled_images",
}

__all__ = ["LabelledImages", "Reference", "first_of_classes", "labelled_source", "labelled_split", "rows_of", "thinned"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'counterfoil.sources' has no attribute '{name}'")
