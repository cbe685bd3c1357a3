"""Input datasets, pinned and loaded by their pins, and labelled images of any origin.

Names load on first use, so that asking for a recipe's classes imports no arrays or images.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from counterfoil.data.labelled_images import LabelledImages, first_of_classes, rows_of, thinned
    from counterfoil.data.labelled_sources import NamedDataset, labelled_source, labelled_split

__all__ = [
    "LabelledImages",
    "NamedDataset",
    "first_of_classes",
    "labelled_source",
    "labelled_split",
    "rows_of",
    "thinned",
]


_OF_SOURCES = ("NamedDataset", "labelled_source", "labelled_split")


def __getattr__(name: str) -> Any:
    if name in __all__:
        module = "labelled_sources" if name in _OF_SOURCES else "labelled_images"
        return getattr(import_module(f"counterfoil.data.{module}"), name)
    raise AttributeError(f"module 'counterfoil.data' has no attribute '{name}'")
