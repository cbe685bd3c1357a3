"""Input datasets, pinned and loaded by their pins, and labelled images of any origin.

Names load on first use, so that asking for a recipe's classes imports no arrays or images.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from counterfoil.data.labelled_images import LabelledImages, first_of_classes, rows_of, thinned
    from counterfoil.data.labelled_sources import NamedDataset, labelled_source, labelled_split

_HOMES = {
    "LabelledImages": "counterfoil.data.labelled_images",
    "NamedDataset": "counterfoil.data.labelled_sources",
    "first_of_classes": "counterfoil.data.labelled_images",
    "labelled_source": "counterfoil.data.labelled_sources",
    "labelled_split": "counterfoil.data.labelled_sources",
    "rows_of": "counterfoil.data.labelled_images",
    "thinned": "counterfoil.data.labelled_images",
}

__all__ = [
    "LabelledImages",
    "NamedDataset",
    "first_of_classes",
    "labelled_source",
    "labelled_split",
    "rows_of",
    "thinned",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'counterfoil.data' has no attribute '{name}'")
