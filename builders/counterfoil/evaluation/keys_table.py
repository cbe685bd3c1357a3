"""A table of the images of a dataset, for answers that are given elsewhere and come back as `predictions:FILE`."""

from __future__ import annotations

from pathlib import Path

from counterfoil.csv_text import csv_text
from counterfoil.errors import UserError
from counterfoil.evaluation.opening import open_subject
from counterfoil.recipe import Recipe
from counterfoil.regular_files import named_path
from counterfoil.store.atomic import write_atomically

COLUMNS = ("key", "path", "label", "class")


def write_keys(
    dataset: str | Path,
    out: str | Path,
    *,
    recipe: Recipe | str | Path | None = None,
    base: str | None = None,
    groups: str | None = None,
) -> int:
    """Write a CSV of all images of a dataset, as `evaluate` opens it, and tell how many they are.

    A row an image: its key, its path below a folder (empty where there is none), its label and its class's name.
    UserError where there is such a file already, which may hold somebody's answers, and for a place in the dataset.
    """
    place = named_path(out)
    if place.exists():
        raise UserError(f"there is a file {place} already", "Name another, or remove it.")
    folder = named_path(dataset)
    if folder.is_dir() and place.resolve().is_relative_to(folder.resolve()):
        raise UserError(f"{place} lies in the dataset, which would be another with it", "Name a place outside.")
    subject = open_subject(dataset, recipe, base, groups, {})
    paths = subject.paths or (None,) * len(subject.keys)
    rows = (
        dict(zip(COLUMNS, (key, path, label, subject.classes[label].name), strict=True))
        for key, path, label in zip(subject.keys, paths, subject.labels.tolist(), strict=True)
    )
    write_atomically(place, csv_text(rows, COLUMNS).encode())
    return len(subject.keys)
