"""Describe a kind of generator: the keys that it reads, the origin of its images, and what it adds and refuses.

`generate/kinds/` makes the images. Other code reads these attributes by name, so a new kind changes only its own two
files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from counterfoil.recipe.keep.rule import Column
from counterfoil.recipe.names import without_folders
from counterfoil.recipe.rows_table import ChosenKind

if TYPE_CHECKING:
    from counterfoil.recipe.parts import RecipeParts, RecipeProblem
    from counterfoil.recipe.prompts import Shift
    from counterfoil.recipe.schema import Recipe
    from counterfoil.recipe.schema_inputs import Generator
    from counterfoil.recipe.section import Section
    from counterfoil.recipe.severity import By

# The column with the number of the row that an image is, or was made from.
ROW = "source_row"
# Keys of a lock's models: the model that draws images, and the CLIP that ranks a pool.
GENERATOR, RETRIEVAL = "generator", "retrieval"


class GeneratorKind:
    """A kind of generator. An instance of this class itself stands for an unknown kind, in a recipe of any form.

    name: the kind's name in `generator.kind`. key: the name of the kind's files. keys: the keys of the section that
    this kind reads and some other kind does not. needed: the keys that the kind requires.

    draws: a model draws the images, from noise or from real images. takes_rows: each sample is a row of real images, or
    is made from such a row. alters_rows: each sample is made from a row of the input dataset, which is the same row
    under the base and every shift. drawn_elsewhere: columns of a table describe each image. corrupts: a shift is a
    corruption of a row. unchanged_base: base images are the rows themselves, so their labels are valid and the source
    shows nothing new.

    table: the key of a lock's inputs for the rows that a build chooses, if it chooses rows. counts_rows: that table
    decides how many candidates a cell has. fewer_rows: the table may have fewer candidates than the recipe asks for.

    models: the keys of a lock's models that the kind needs. prompted: the base and each shift need a prompt or an
    embedding. needs_screen: a CLIP must screen the images. levels: the ways to a level of a shift, with the default
    first. libraries: packages that change an image's bytes only with this kind. usual_side: the side in pixels of
    images without a size. holds: a phrase for the images of the kind's datasets. row_columns: columns of every row that
    give the row's origin.
    meanings: the meaning of columns of `ROW_COLUMNS` (`store/rows.py`) that differ with this kind.

    tags: the tags on the Hub that stand before and after the tags of every dataset. annotations: the Hub's word for who
    made the labels. names_pool: whether the page on the Hub names the pool as a source dataset.
    """

    keys: ClassVar[tuple[str, ...]] = ()
    needed: ClassVar[tuple[str, ...]] = ()
    draws: ClassVar[bool] = False
    takes_rows: ClassVar[bool] = True
    alters_rows: ClassVar[bool] = False
    drawn_elsewhere: ClassVar[bool] = False
    corrupts: ClassVar[bool] = False
    unchanged_base: ClassVar[bool] = False
    table: ClassVar[ChosenKind | None] = None
    counts_rows: ClassVar[bool] = False
    fewer_rows: ClassVar[bool] = False
    models: ClassVar[tuple[str, ...]] = ()
    prompted: ClassVar[bool] = True
    needs_screen: ClassVar[bool] = True
    levels: ClassVar[tuple[By, ...]] = ()
    libraries: ClassVar[tuple[str, ...]] = ()
    usual_side: ClassVar[int | None] = None
    holds: ClassVar[str] = "rows of a pool"
    row_columns: ClassVar[Mapping[str, Column]] = {}
    meanings: ClassVar[Mapping[str, str]] = {}
    tags: ClassVar[tuple[tuple[str, ...], tuple[str, ...]]] = (("synthetic",), ())
    annotations: ClassVar[str] = "machine-generated"
    names_pool: ClassVar[bool] = False

    def __init__(self, name: str, key: str = "") -> None:
        self.name = name
        self.key = key or name

    @property
    def edits(self) -> bool:
        """Return whether a model draws each image from a row."""
        return self.draws and self.alters_rows

    @property
    def from_noise(self) -> bool:
        """Return whether a model draws each image from noise. The number of images is then unlimited."""
        return self.draws and not self.takes_rows

    def problem(self, generator: Generator) -> str | None:
        """Return a problem with the combination of the kind's own keys, or None."""
        return None

    def problems(self, parts: RecipeParts) -> Iterator[RecipeProblem]:
        """Yield problems that other sections have with this kind, in a recipe of any form."""
        yield from ()

    def reads_labels(self, generator: Generator) -> bool:
        """Return whether a row's class is read from the labels of the row's dataset."""
        return self.alters_rows

    def columns(self, generator: Generator) -> dict[str, Column]:
        """Return the columns that the kind adds to every row."""
        columns = dict(self.row_columns)
        if generator.license_column:
            columns["license"] = Column("string", "Licence of the row, as given by its dataset.")
        elif self.alters_rows:
            columns["license"] = Column("string", "Licence of the row's input dataset, if known.")
        return columns

    def made_by(self, shift: Shift) -> str:
        """Return in words what makes a shift or the base: its prompt, an image embedding, or both."""
        parts = [shift.prompt, None if shift.embedding is None else "an image embedding"]
        drawn = " and ".join(part for part in parts if part is not None)
        return f"{drawn}, {shift.step}" if shift.step else drawn

    def inputs(self, recipe: Recipe, pinned: Mapping[str, Any]) -> list[tuple[str, str, Mapping[str, Any]]]:
        """Return role, name and pin of each input that only this kind has, for the card.

        `pinned` holds the inputs in the lock, and each of them may be absent.
        """
        if self.draws:
            models = pinned.get("models") or {}
            return [("generator", without_folders(recipe.generator.model), models.get(GENERATOR) or {})]
        pool = pinned.get("pool") or {}
        name = f"{without_folders(recipe.generator.dataset or recipe.source.dataset)}, split {recipe.generator.split}"
        return [("pool", name, {**pool, "sha256": pool.get("content")})]


class AlteringKind(GeneratorKind):
    """A kind whose samples are made from rows of the input dataset. No classifier may have learned from these rows."""

    alters_rows = True
    table = "edited"
    counts_rows = True
    row_columns: ClassVar[Mapping[str, Column]] = {
        ROW: Column("int64", "Number of the row in the input dataset's split that it was made from.")
    }

    def may_share_split(self, parts: RecipeParts) -> bool:
        """Return whether the rows may come from the split that classifiers learn from."""
        return False

    def problems(self, parts: RecipeParts) -> Iterator[RecipeProblem]:
        split, train = parts.generator.get("split", "train"), parts.source.get("train_split", "train")
        if split == train and not self.may_share_split(parts):
            message = (
                f"found '{split}', which classifiers learn from (source.train_split), expected a split that they have"
                f" not seen, such as '{parts.source.get('validation_split', 'validation')}'"
            )
            yield ("generator", "split"), message
        if parts.samples.get("noise", "paired") != "paired":
            yield ("samples", "noise"), "all samples of a row start from that row, expected paired"


def written(section: Section, keys: Iterable[str]) -> list[str]:
    """Return the keys of a section whose values differ from their defaults."""
    fields = type(section).model_fields
    return [key for key in keys if getattr(section, key) != fields[key].get_default(call_default_factory=True)]
