"""Kind `edit`: draw rows of the input dataset again under every shift.

The rows get captions if prompts contain them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from counterfoil.data.labelled_sources import every_row
from counterfoil.data.pins import SourcePin
from counterfoil.data.pool import (
    licences_of_rows,
    pool_of,
    pool_rows,
    rows_of_classes,
    truth_of,
    units_of_rows,
)
from counterfoil.data.tables import Rows
from counterfoil.errors import UserError
from counterfoil.generate.kinds.diffusers import DiffusersMaker
from counterfoil.generate.kinds.kind import (
    ChosenTable,
    Materials,
    in_drawn_order,
    left_out,
    pool_of_rows,
)
from counterfoil.generate.rows import EditRenderer
from counterfoil.models.arithmetic import one_thread
from counterfoil.models.captioners import describe_captioner, load_captioner
from counterfoil.models.diffusion import generator_pipeline, prompt_length
from counterfoil.plan.layout import RowTable, captions_asked, rows_wanted
from counterfoil.prediction.captioning import caption_images
from counterfoil.recipe import Recipe, RecipeClass
from counterfoil.recipe.layering import without_folders
from counterfoil.recipe.prompts import asks_caption, prompt_for
from counterfoil.recipe.rows_table import LONGEST_CAPTION, MOST_BYTES, PoolRow, one_line


class EditMaker(DiffusersMaker):
    def device_of_rows(self, recipe: Recipe, device: str) -> str:
        return device if recipe.generator.get("captioner") is not None else "cpu"

    def choose_rows(
        self,
        recipe: Recipe,
        pool: SourcePin,
        models: Mapping[str, Any],
        device: str,
    ) -> ChosenTable:
        """Choose rows that have a usable caption and prompts that the model reads to their end.

        The captions come from the column or the captioner that the recipe names. The notes count
        the other rows. Raise UserError with every class that has fewer rows than candidates.
        """
        rows = pool_rows(recipe, pool)
        units_of_rows(recipe, rows)  # missing units are reported before any image is made
        truth = truth_of(recipe, rows) if recipe.task.placed else None
        of_class = rows_of_classes(recipe, rows)
        wanted = rows_wanted(recipe)
        classes = [cls for cls in recipe.classes if cls.id in wanted]
        seed = recipe.samples.seed
        ordered = {cls.id: in_drawn_order(of_class(cls), seed) for cls in classes}
        # by row; None if no prompt contains a caption
        captions: Mapping[int, str | None] | None = None
        captioner: Mapping[str, Any] = {}
        left = Counter[str]()
        prompts = _Prompts(recipe)
        column = recipe.generator.get("caption_column")
        if column is not None:
            captions = dict(enumerate(map(_usable, rows.column(column))))
        elif captions_asked(recipe):
            captions, captioner = _captions_of_captioner(
                recipe, pool, ordered, wanted, prompts, device
            )
        table: dict[tuple[str | None, str], list[PoolRow]] = {}
        problems: list[str] = []
        for cls in classes:
            chosen = table[None, cls.id] = list[PoolRow]()
            of_class_left = Counter[str]()
            for row in ordered[cls.id]:
                if len(chosen) == wanted[cls.id]:
                    break
                caption = None if captions is None else captions.get(row)
                if truth is not None and not _decodes(rows, row):
                    of_class_left["unreadable"] += 1
                elif captions is not None and caption is None:
                    of_class_left["wordless"] += 1
                elif not prompts.read_whole(cls, caption):
                    of_class_left["long"] += 1
                else:
                    chosen.append(PoolRow(row, caption=caption))
            left += of_class_left
            if len(chosen) < wanted[cls.id]:
                lack = _lack(of_class_left, prompts.most)
                problems.append(
                    f"samples: class '{cls.id}' ({cls.name}) has {len(chosen):,} rows in"
                    f" {rows.place}{lack}, expected {wanted[cls.id]:,}, one for each candidate"
                )
        if problems:
            raise UserError(
                problems,
                "Lower samples.candidates (or at_most), or name a larger split: generator.split.",
            )
        edited = RowTable.of(table, "edited")
        if len(edited.content) > MOST_BYTES:
            raise UserError(
                f"samples: the table of rows takes {len(edited.content):,} bytes, expected at most"
                f" {MOST_BYTES:,}",
                "Build fewer candidates or classes.",
            )
        notes = list[str]()
        if truth is not None:
            (of_every_image,) = table.values()
            notes += truth.checked(recipe.source, rows, [row.row for row in of_every_image])
        reasons = {
            "unreadable": "an image that does not decode",
            "wordless": f"no usable caption in {rows.place}",
            "long": f"a caption too long for the {prompts.most} prompt tokens that"
            f" {recipe.drawing.model} reads",
        }
        notes += [left_out(left[why], reason) for why, reason in reasons.items() if left[why]]
        return ChosenTable(edited, {"sha256": edited.sha256, **captioner}, tuple(notes))

    def renderer(self, materials: Materials) -> EditRenderer:
        recipe = materials.recipe
        pool, table = materials.rows
        rows = pool_of_rows(recipe, pool, table, labels=True)
        pipeline = generator_pipeline(
            recipe.drawing,
            materials.device,
            materials.revision,
            materials.tokens,
        )
        licences = licences_of_rows(recipe, rows, pool)
        units = units_of_rows(recipe, rows)
        truth = truth_of(recipe, rows) if recipe.task.placed else None
        return EditRenderer(pipeline, recipe, rows.image, licences, units, truth)


class _Prompts:
    """Builds the prompts that contain the caption of a row, and checks that the model reads all
    their tokens."""

    def __init__(self, recipe: Recipe) -> None:
        self._shifts = [shift for shift in recipe.all_shifts() if asks_caption(shift.prompt)]
        self._length = None
        if self._shifts:
            self._length = prompt_length(recipe.drawing.model, recipe.drawing.revision)
        self.most = 0 if self._length is None else self._length.most

    def read_whole(self, cls: RecipeClass, caption: str | None) -> bool:
        """Return whether the model reads every prompt of a row to its end.

        Where a prompt has a class token, the name of the class is counted in its place.
        """
        if self._length is None or caption is None:
            return True
        shifts = [shift for shift in self._shifts if cls.label in shift.class_labels]
        prompts = [prompt_for(shift, cls, None, caption) or "" for shift in shifts]
        return not prompts or self._length.fits(prompts)


def _captions_of_captioner(
    recipe: Recipe,
    pool: SourcePin,
    ordered: Mapping[str, Sequence[int]],
    wanted: Mapping[str, int],
    prompts: _Prompts,
    device: str,
) -> tuple[Mapping[int, str | None], Mapping[str, Any]]:
    """Caption rows of each class until enough rows have usable captions.

    Return the captions by row, and the pin of the captioner.
    """
    name = recipe.generator.get("captioner")
    assert name is not None  # a checked recipe names its captioner
    images, _ = every_row(pool_of(recipe), pool)
    captioner = load_captioner(name, device)
    caption_of: dict[int, str | None] = {}
    with one_thread():
        classes = {cls.id: cls for cls in recipe.classes}

        def chosen(class_id: str, row: int) -> bool:
            caption = caption_of.get(row)
            return caption is not None and prompts.read_whole(classes[class_id], caption)

        def missing() -> list[int]:
            """Return the rows to caption next. Each class gets as many rows as it still lacks."""
            rows: list[int] = []
            for class_id, class_rows in ordered.items():
                lacking = wanted[class_id] - sum(chosen(class_id, row) for row in class_rows)
                uncaptioned = [row for row in class_rows if row not in caption_of]
                rows += uncaptioned[: max(lacking, 0)]
            return rows

        while rows := missing():
            keys = {images.keys[row]: row for row in sorted(set(rows))}
            captions = caption_images(images, captioner, keys=tuple(keys), number=1)
            for key, row in keys.items():
                caption = (captions[key] or (None,))[0]
                caption_of[row] = _usable(caption)
    pin = {
        "name": without_folders(name),
        "revision": describe_captioner(name).revision,
        "sha256": captioner.sha256,
    }
    return caption_of, {"captioner": pin}


def _lack(left: Counter[str], most: int) -> str:
    """Return what the rows of a class lack that were left out."""
    lack = f", {left['wordless']:,} more without a caption" if left["wordless"] else ""
    if left["long"]:
        lack += f", {left['long']:,} more with one too long for the {most} tokens of a prompt"
    return lack


def _decodes(rows: Rows, row: int) -> bool:
    try:
        rows.image(row)
    except UserError:
        return False
    return True


def _usable(value: Any) -> str | None:
    """Return a caption in one line without its final full stop, or None if the caption is
    unusable."""
    if not isinstance(value, str):
        return None
    text = one_line(value).rstrip(". ")
    return text[:LONGEST_CAPTION].rstrip() or None
