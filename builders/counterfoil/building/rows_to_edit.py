"""Which rows of the input dataset are edited, and what is said of them: chosen before the first image is drawn.

The first of each class by a hash of seed and row, so that more candidates, or fewer classes, leave the others as they
are. What is chosen is an input: a directory that was begun keeps its table, and nobody captions a row again for it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterfoil.captioning import caption_steps
from counterfoil.errors import CounterfoilError, UserError
from counterfoil.models.captioners import describe_captioner, load_captioner
from counterfoil.models.devices import one_thread
from counterfoil.plan import Edited, captions_asked, rows_wanted
from counterfoil.recipe.layering import without_folders
from counterfoil.recipe.rows_table import LONGEST_CAPTION, MOST_BYTES, EditedRow
from counterfoil.sources.labelled_sources import Reference, every_row
from counterfoil.sources.pins import SourcePin
from counterfoil.sources.pool import Pool, pool_rows, rows_of_classes
from counterfoil.store.inside import read_inside
from counterfoil.store.layout import ROWS
from counterfoil.store.lock import Lock
from counterfoil.under_way import Stage, UnderWay, finish
from counterfoil.user_cache import user_cache

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from counterfoil.recipe import Recipe

# What a lock's inputs call the table.
EDITED = "edited"


@dataclass(frozen=True, slots=True)
class RowsToEdit:
    """A table of rows, what the lock says of it, and what people must be told."""

    edited: Edited
    pin: Mapping[str, Any]
    notes: tuple[str, ...] = ()


def known_rows_to_edit(recipe: Recipe, out: Path, lock: Lock | None) -> RowsToEdit | None:
    """The table of a directory that was begun, where it is the one that its lock pins; else None."""
    pin = None if lock is None else lock.inputs.get(EDITED)
    if not isinstance(pin, dict):
        return None
    try:
        found = Edited.read(read_inside(out, ROWS, MOST_BYTES), ROWS)
    except (OSError, CounterfoilError):
        return None  # it is chosen again, and refused where it does not come out the same
    same = found.sha256 == pin.get("sha256") and not any(found.problems(recipe))
    return RowsToEdit(found, pin) if same else None


def choose_rows_to_edit(recipe: Recipe, pool: SourcePin, device: str) -> RowsToEdit:
    """`rows_to_edit_steps` to its end."""
    return finish(rows_to_edit_steps(recipe, pool, device))


def rows_to_edit_steps(recipe: Recipe, pool: SourcePin, device: str) -> UnderWay[Stage, RowsToEdit]:
    """The table of a recipe; captions, where prompts ask for them, by the column or the captioner that it names.

    Rows without a caption that can be used are left out, and counted in a note. UserError, with every such class, where
    one has fewer rows than candidates; raises what reading and captioning raise.
    """
    rows = pool_rows(recipe, pool)
    of_class, wanted = rows_of_classes(recipe, rows), rows_wanted(recipe)
    own = [cls for cls in recipe.classes if cls.id in wanted]
    ordered = {cls.id: _ordered(of_class(cls), recipe.samples.seed) for cls in own}
    captions, without = _Captions(), 0
    column = recipe.generator.caption_column
    if column is not None:
        captions = _Captions({row: _usable(value) for row, value in enumerate(rows.column(column))})
    elif captions_asked(recipe):
        captions = yield from _captions_of_captioner(recipe, pool, ordered, wanted, device)
    table: dict[str, list[EditedRow]] = {}
    problems: list[str] = []
    for cls in own:
        usable, chosen = 0, []
        for row in ordered[cls.id]:
            if len(chosen) == wanted[cls.id]:
                break
            usable += 1
            told, caption = captions.of(row)
            if told:
                chosen.append(EditedRow(row, caption))
        without += usable - len(chosen)
        table[cls.id] = chosen
        if len(chosen) < wanted[cls.id]:
            lack = f", {usable - len(chosen):,} more without a caption" if usable > len(chosen) else ""
            problems.append(
                f"samples: class '{cls.id}' ({cls.name}) has {len(chosen):,} rows in {rows.place}{lack}, expected"
                f" {wanted[cls.id]:,}, one for each candidate"
            )
    if problems:
        raise UserError(problems, "Lower samples.candidates (or at_most), or name a larger split: generator.split.")
    edited = Edited.of(table)
    if len(edited.content) > MOST_BYTES:
        raise UserError(
            f"samples: the table of rows takes {len(edited.content):,} bytes, expected at most {MOST_BYTES:,}",
            "Build fewer candidates or classes.",
        )
    left = "1 row of those that came first has" if without == 1 else f"{without:,} rows of those that came first have"
    notes = (f"{left} no caption in {rows.place} that can be used, and others are edited in their place",)
    return RowsToEdit(edited, {"sha256": edited.sha256, **captions.pin}, notes if without else ())


@dataclass(frozen=True, slots=True)
class _Captions:
    """By row; None where no row needs one. pin: what wrote them."""

    by_row: Mapping[int, str | None] | None = None
    pin: Mapping[str, Any] = field(default_factory=dict)

    def of(self, row: int) -> tuple[bool, str | None]:
        """Whether a row can be edited, and its caption, where prompts ask for one."""
        caption = None if self.by_row is None else self.by_row.get(row)
        return self.by_row is None or caption is not None, caption


def _captions_of_captioner(
    recipe: Recipe,
    pool: SourcePin,
    ordered: Mapping[str, Sequence[int]],
    wanted: Mapping[str, int],
    device: str,
) -> UnderWay[Stage, _Captions]:
    """The likeliest caption of as many rows of each class as are needed; images that do not decode have none."""
    name, source = recipe.generator.captioner, Pool.of(recipe)
    assert name is not None  # the recipe says what captions its rows
    place = Reference(source.dataset, recipe.generator.split, source.revision, source.config, source.image_column)
    images, _ = every_row(place, pool)
    captioner = load_captioner(name, device)
    found: dict[int, str | None] = {}
    with one_thread():
        while missing := [row for class_id, rows in ordered.items() for row in _next(rows, wanted[class_id], found)]:
            keys = {images.keys[row]: row for row in sorted(set(missing))}
            told = yield from caption_steps(images, captioner, user_cache() / "captions", keys=tuple(keys), number=1)
            found |= {row: _usable((told[key] or (None,))[0]) for key, row in keys.items()}
    pin = {"name": without_folders(name), "revision": describe_captioner(name).revision, "sha256": captioner.sha256}
    return _Captions(found, {"captioner": pin})


def _next(rows: Sequence[int], wanted: int, found: Mapping[int, str | None]) -> list[int]:
    """The rows of a class that are to be captioned next: as many as are still lacking."""
    lacking = wanted - sum(found.get(row) is not None for row in rows)
    return [row for row in rows if row not in found][: max(lacking, 0)]


def _usable(value: Any) -> str | None:
    """A caption as prompts hold it: in one line, without the full stop at its end; None for what is none."""
    if not isinstance(value, str):
        return None
    text = " ".join("".join(letter if letter.isprintable() else " " for letter in value).split()).rstrip(". ")
    return text[:LONGEST_CAPTION].rstrip() or None


def _ordered(of_class: NDArray[np.bool_], seed: int) -> list[int]:
    """The rows of a class by a hash of seed and row."""
    import numpy as np

    rows = np.flatnonzero(of_class).tolist()
    return sorted(rows, key=lambda row: hashlib.sha256(f"{seed}\n{row}".encode()).digest())
