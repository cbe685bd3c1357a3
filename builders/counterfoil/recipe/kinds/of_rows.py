"""The bases of kinds whose samples are rows of real images, or are made from such rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from counterfoil.recipe.keep.rule import Column
from counterfoil.recipe.kinds.kind import ROW, GeneratorKind
from counterfoil.recipe.layering import embedding_specs
from counterfoil.recipe.names import nameless_problem, without_folders
from counterfoil.recipe.parts import RecipeParts, RecipeProblem
from counterfoil.recipe.section import checked

if TYPE_CHECKING:
    from counterfoil.recipe.schema import Recipe


class RowKind(GeneratorKind):
    """A kind that takes rows of a split."""

    split: str = Field(
        default="train", description="Split of the rows; to edit or corrupt them, one that models do not learn from."
    )
    license_column: str | None = Field(
        default=None,
        description="Column with the licence of each row. The dataset gets a licence column. Edited and corrupted rows"
        " have one without this key too: it holds the input dataset's licence.",
    )

    def columns(self) -> dict[str, Column]:
        columns = super().columns()
        if self.license_column:
            columns["license"] = Column("string", "Licence of the row, as given by its dataset.")
        elif self.alters_rows:
            columns["license"] = Column("string", "Licence of the row's input dataset, if known.")
        return columns

    def inputs(self, recipe: Recipe, pinned: Mapping[str, Any]) -> list[tuple[str, str, Mapping[str, Any]]]:
        pool = pinned.get("pool") or {}
        name = f"{without_folders(self.get('dataset') or recipe.source.dataset)}, split {self.split}"
        return [("pool", name, {**pool, "sha256": pool.get("content")})]


class AlteringKind(RowKind):
    """A kind whose samples are made from rows of the input dataset. No classifier may have learned from these rows."""

    alters_rows = True
    table = "edited"
    counts_rows = True
    row_columns: ClassVar[Mapping[str, Column]] = {
        ROW: Column("int64", "Number of the row in the input dataset's split that it was made from.")
    }

    @classmethod
    def may_share_split(cls, parts: RecipeParts) -> bool:
        """Return whether the rows may come from the split that classifiers learn from."""
        return False

    @classmethod
    def problems(cls, parts: RecipeParts) -> Iterator[RecipeProblem]:
        split, train = parts.generator.get("split", "train"), parts.source.get("train_split", "train")
        if split == train and not cls.may_share_split(parts):
            message = (
                f"found '{split}', which classifiers learn from (source.train_split), expected a split that they have"
                f" not seen, such as '{parts.source.get('validation_split', 'validation')}'"
            )
            yield ("generator", "split"), message
        if parts.samples.get("noise", "paired") != "paired":
            yield ("samples", "noise"), "all samples of a row start from that row, expected paired"


class PoolKind(RowKind):
    """A kind whose samples are rows of a pool, unchanged.

    noiseless: whether samples have no noise that they could share.
    """

    row_columns: ClassVar[Mapping[str, Column]] = {ROW: Column("int64", "Number of the row in its pool.")}
    holds = "rows of a pool"
    noiseless: ClassVar[bool] = True
    no_tokens: ClassVar[str] = "rows of a pool are not drawn from prompts, expected null"

    dataset: str | None = Field(
        default=None,
        min_length=1,
        description="The pool, named like source.dataset; null: source.dataset itself.",
    )
    config: str | None = Field(default=None, description="Config of the pool.")
    image_column: str = Field(
        default="image",
        description="Column of the pool that holds the images; in a CSV file, the names of the image files.",
    )

    _has_a_name = checked("dataset", by=nameless_problem)

    @classmethod
    def problems(cls, parts: RecipeParts) -> Iterator[RecipeProblem]:
        if cls.noiseless and parts.samples.get("noise") != "independent":
            yield ("samples", "noise"), "rows of a pool have no noise to share, expected independent"
        if parts.recipe.get("tokens") is not None:
            yield ("tokens",), cls.no_tokens
        for path, _ in embedding_specs(parts.recipe):
            yield path, "rows of a pool are not drawn from embeddings, expected null"
