"""Look at the input dataset of a recipe, if it is on this machine: its columns, its rows and the
size of its images.

Nothing is downloaded. Images are decoded only in a small folder, to count those that a build can
use.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from counterfoil.errors import CounterfoilError, ProblemLine
from counterfoil.models.names import LAB
from counterfoil.recipe import Recipe
from counterfoil.recipe.names import is_local
from counterfoil.starting.lacking import Lack, Weight, missing_path

if TYPE_CHECKING:
    from counterfoil.data.open_source import OpenSource
    from counterfoil.data.pins import InputDataset
    from counterfoil.plan.layout import RowTable

_SAMPLED = 200  # images, whose headers say how large they are


@dataclass(frozen=True, slots=True)
class SourceRows:
    """Rows that a recipe takes from its input dataset, as far as they were looked at.

    table: the rows of each cell, or None if they are unknown or a build chooses none. exact:
    whether a plan with `table` has as many samples as a build makes; otherwise it may have more.
    side: the side of a square of the images' average area, if known. lacks: problems and notes.
    """

    table: RowTable | None
    exact: bool
    side: int | None
    lacks: tuple[Lack, ...]


def look_at_source(recipe: Recipe) -> SourceRows:
    """Return the rows that a build would choose, if there may be fewer than the recipe asks for,
    with problems."""
    side, notes = sampled_pictures(recipe)
    lacks = [*_lacks("source.dataset", notes, "optional")]
    elsewhere = recipe.kind.drawn_elsewhere
    key = "source.dataset"
    name = recipe.source.dataset
    if elsewhere and recipe.generator.get("dataset") is not None:
        key = "generator.dataset"
        name = recipe.generator.get("dataset")
    table = None
    exact = not recipe.kind.fewer_rows
    missing = is_local(name) and missing_path(name) is not None  # `lacking` reports it
    if (not exact or recipe.source.conditions is not None) and not missing:
        try:
            table, exact, notes = _rows_of_build(recipe, name)
            lacks += _lacks(key, notes, "optional")
        except CounterfoilError as error:
            *others, last = error.problems
            if error.hint is not None:
                end = "" if last.endswith("?") or "? [" in last else "."
                last = last.with_end(f"{end} {error.hint}")
            lacks += _lacks(key, [*others, last], "missing")
    return SourceRows(table, exact, side, tuple(lacks))


def _lacks(key: str, texts: Iterable[str], weight: Weight) -> Iterator[Lack]:
    """Yield what a recipe lacks. A problem or a note of another key of the recipe has this key."""
    for text in texts:
        path = ProblemLine.of(text).path
        if path.partition(".")[0] in Recipe.model_fields:
            _, _, words = text.partition(": ")
            yield Lack(path, words, weight)
        else:
            yield Lack(key, text, weight)


def _rows_of_build(recipe: Recipe, name: str) -> tuple[RowTable | None, bool, Sequence[str]]:
    """Return the table and whether it is exact, as `SourceRows` has them, and notes. Raise
    UserError for problems."""
    from counterfoil.data.drawn_elsewhere import given_rows
    from counterfoil.data.labels import conditions_of
    from counterfoil.data.open_source import is_small
    from counterfoil.data.pictures import MOST_BYTES, MOST_LOOKED_AT
    from counterfoil.data.pool import pin_pool
    from counterfoil.generate.kinds.corrupt import CorruptMaker
    from counterfoil.plan.layout import rows_wanted

    kind = recipe.kind
    source = recipe.source
    local = is_local(name)
    if kind.drawn_elsewhere and local:
        given = given_rows(recipe, pin_pool(recipe, None))
        return given.table, True, given.notes
    opened = None if kind.drawn_elsewhere else open_quickly(source)
    if opened is None:
        unread = f"{name} is {'large' if local else 'on the Hub'} and was not opened"
        return (
            None,
            not kind.fewer_rows,
            [f"{unread}: its columns and its number of images are unchecked"],
        )
    if kind.corrupts:
        few = sum(rows_wanted(recipe).values()) <= MOST_LOOKED_AT
        decode = local and few and is_small(Path(name), MOST_BYTES)
        chosen = CorruptMaker().choose_rows(recipe, opened.pin, {}, "cpu", decode=decode)
        return chosen.table, decode or not local, chosen.notes
    with_percentiles = any(
        shift.object_threshold.percentile is not None for shift in recipe.all_shifts()
    )
    if source.conditions is not None and (kind.alters_rows or with_percentiles):
        rows = opened.rows(
            recipe.generator.get("split") if kind.alters_rows else source.validation_split
        )
        conditions_of(rows, source)
    return None, True, ()


def open_quickly(source: InputDataset) -> OpenSource | None:
    """Open a dataset that can be read quickly: of the lab, a folder of image files, or a small
    folder."""
    from counterfoil.data.open_source import is_small, open_source
    from counterfoil.data.pins import SourcePin
    from counterfoil.data.tables import plain_folder

    if source.dataset.startswith(LAB):
        return open_source(source)
    if not is_local(source.dataset):
        return None
    folder = Path(source.dataset)
    if source.objects is None and plain_folder(source) is not None:
        # contents of files need no hash here
        return open_source(source, pin=SourcePin(folder.name, None, None))
    return open_source(source) if is_small(folder) else None


def sampled_pictures(recipe: Recipe) -> tuple[int | None, tuple[str, ...]]:
    """Return the side of a square of the images' average area, and notes, from the headers of a
    local folder."""
    if not recipe.kind.takes_rows or recipe.kind.drawn_elsewhere:
        return None, ()
    from counterfoil.data.pictures import evenly_spread, look_at_pictures
    from counterfoil.data.pool import pool_of

    pool = pool_of(recipe)
    pictures = None
    total = 0
    with contextlib.suppress(CounterfoilError, OSError):  # a build says what is wrong with a folder
        opened = open_quickly(pool) if is_local(pool.dataset) and pool.split is not None else None
        if opened is not None:
            rows = opened.rows(recipe.generator.get("split"), labelled=False)
            total = rows.count
            looked = evenly_spread(range(rows.count), _SAMPLED)
            images = zip(map(str, looked), rows.images(looked), strict=True)
            pictures = look_at_pictures(images, len(looked), decode=False)
    if pictures is None or not pictures.sides:
        return None, ()
    pixels = sum(width * height for width, height in pictures.sides) / len(pictures.sides)
    notes = pictures.notes(total, applied=pool.exif == "apply")
    if any(shift.corruption == "jpeg_compression" for shift in recipe.all_shifts()):
        notes += pictures.twice_compressed(total)
    return round(pixels**0.5), tuple(notes)
