"""Describe a kind of generator: the keys of its section, the origin of its images, and what it adds
and refuses.

`generate/kinds/` makes the images.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from counterfoil.recipe.keep.rule import Column
from counterfoil.recipe.messages import message
from counterfoil.recipe.names import nameless_problem, without_folders
from counterfoil.recipe.parts import RecipeParts, RecipeProblem, embedding_specs
from counterfoil.recipe.rows_table import ChosenKind
from counterfoil.recipe.section import LARGEST_SIDE, NonEmpty, Section, field_check

if TYPE_CHECKING:
    from counterfoil.recipe.prompts import Shift
    from counterfoil.recipe.schema import Recipe
    from counterfoil.recipe.severity import By

# The column with the number of the row that an image is, or was made from.
ROW = "source_row"
# Keys of a lock's models: the model that draws images, and the CLIP that ranks a pool.
GENERATOR = "generator"
RETRIEVAL = "retrieval"
# Role, name and pin of each input that only one kind has.
KindInputs: TypeAlias = "list[tuple[str, str, Mapping[str, Any]]]"
# The order of keys in the recipes of older datasets. Later keys follow in the order of their
# section.
_IN_ORDER = (
    "kind", "model", "revision", "adapter", "adapter_revision", "lora", "scheduler", "steps", "guidance", "size",
    "saved_size", "dtype", "batch_size", "negative_prompt", "guidance_interval", "options", "offload", "quantize",
    "compile", "dataset", "config", "split", "image_column", "label_column", "shift_column", "prompt_column",
    "seed_column", "index_column", "labels", "license_column",
)  # fmt: skip
SideInPixels = Annotated[int, Field(ge=8, le=LARGEST_SIDE, multiple_of=8)]


class GeneratorKind(Section):
    """What renders the samples, or where they come from.

    A kind of generator is a section of a recipe with the keys that it reads, and `kind` with its
    name as default. This class itself stands for an unknown kind, in a recipe of any form.
    """

    name: ClassVar[str] = ""
    """The kind's name in `generator.kind`."""
    key: ClassVar[str] = ""
    """The name of the kind's files."""
    draws: ClassVar[bool] = False
    """A model draws the images, from noise or from real images."""
    takes_rows: ClassVar[bool] = True
    """Each sample is a row of real images, or is made from such a row."""
    alters_rows: ClassVar[bool] = False
    """Each sample is made from a row of the input dataset, which is the same row under the base and
    every shift."""
    edits: ClassVar[bool] = False
    """A model draws each image from a row."""
    from_noise: ClassVar[bool] = False
    """A model draws each image from noise, so their number is unlimited."""
    drawn_elsewhere: ClassVar[bool] = False
    """Columns of a table describe each image."""
    corrupts: ClassVar[bool] = False
    """A shift is a corruption of a row."""
    unchanged_base: ClassVar[bool] = False
    """Base images are the rows themselves, so their labels are valid and the source shows nothing
    new."""
    table: ClassVar[ChosenKind | None] = None
    """The key of a lock's inputs for the rows that a build chooses, if it chooses rows."""
    counts_rows: ClassVar[bool] = False
    """That table decides how many candidates a cell has."""
    fewer_rows: ClassVar[bool] = False
    """The table may have fewer candidates than the recipe asks for."""
    models: ClassVar[tuple[str, ...]] = ()
    """The keys of a lock's models that the kind needs."""
    prompted: ClassVar[bool] = True
    """The base and each shift need a prompt or an embedding."""
    needs_screen: ClassVar[bool] = True
    """A CLIP must screen the images."""
    levels: ClassVar[tuple[By, ...]] = ()
    """The ways to a level of a shift, with the default first."""
    libraries: ClassVar[tuple[str, ...]] = ()
    """Packages that change an image's bytes only with this kind."""
    usual_side: ClassVar[int | None] = None
    """The side in pixels of images without a size."""
    holds: ClassVar[str] = "images"
    """A phrase for the images of the kind's datasets."""
    row_columns: ClassVar[Mapping[str, Column]] = {}
    """Columns of every row that give the row's origin."""
    meanings: ClassVar[Mapping[str, str]] = {}
    """The meaning of columns of `ROW_COLUMNS` (`store/rows.py`) that differ with this kind."""
    tags: ClassVar[tuple[tuple[str, ...], tuple[str, ...]]] = (("synthetic",), ())
    """The tags on the Hub that stand before and after the tags of every dataset."""
    annotations: ClassVar[str] = "machine-generated"
    """The Hub's word for who made the labels."""
    names_pool: ClassVar[bool] = False
    """Whether the page on the Hub names the pool as a source dataset."""
    words: ClassVar[Mapping[str, str]] = {}
    """Sentences of the card in place of those in `cards/kind-of-a-plugin.txt.j2`, by their names
    there."""

    revision: str | None = None
    """Branch, tag or commit on the Hub; the lock pins it."""
    saved_size: int | None = Field(default=None, ge=8, le=LARGEST_SIDE)
    """Stored side in pixels; null: as rendered."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Number format; `auto` is bfloat16 on CUDA and float32 on CPU."""
    batch_size: int = Field(default=8, ge=1, le=4096)
    """Images per batch. Another batch size gives other bytes."""

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        cls.name = cls.model_fields["kind"].default if "kind" in cls.model_fields else ""
        cls.key = vars(cls).get("key", cls.name)  # a key is not inherited
        cls.edits = cls.draws and cls.alters_rows
        cls.from_noise = cls.draws and not cls.takes_rows

    @classmethod
    def maker(cls) -> Any:
        """Return the `ImageMaker` of a plugin's kind.

        Import it inside this method, so that recipes are read without the libraries that make
        images.
        """
        raise NotImplementedError

    @model_serializer(mode="wrap")
    def _in_order(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        values = dump(self)
        in_order = {key: values[key] for key in _IN_ORDER if key in values}
        return in_order | values

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key, or a default if this kind does not read the key."""
        return getattr(self, key) if key in type(self).model_fields else default

    def named_models(self) -> dict[str, str]:
        """Return the names of the models that draw images, by their keys in the recipe."""
        return {}

    def problem(self) -> str | None:
        size = self.get("size")
        if size is not None and self.saved_size is not None and self.saved_size > size:
            return message("out-of-range.size", found=self.saved_size, most=size)
        return None

    @classmethod
    def problems(cls, parts: RecipeParts) -> Iterator[RecipeProblem]:
        """Yield problems that other sections have with this kind, in a recipe of any form."""
        yield from ()

    @property
    def reads_labels(self) -> bool:
        """Return whether a row's class is read from the labels of the row's dataset."""
        return self.alters_rows

    def columns(self) -> dict[str, Column]:
        """Return the columns that the kind adds to every row."""
        return dict(self.row_columns)

    @classmethod
    def made_by(cls, shift: Shift) -> str:
        """Return in words what makes a shift or the base: its prompt, an image embedding, or
        both."""
        parts = [shift.prompt, None if shift.embedding is None else "an image embedding"]
        drawn = " and ".join(part for part in parts if part is not None)
        return f"{drawn}, {shift.step}" if shift.step else drawn

    def inputs(self, recipe: Recipe, pinned: Mapping[str, Any]) -> KindInputs:
        """Return role, name and pin of each input that only this kind has, for the card.

        `pinned` holds the inputs in the lock, and each of them may be absent.
        """
        return []


class RowKind(GeneratorKind):
    """A kind that takes rows of a split."""

    split: str = "train"
    """Split of the rows; to edit or corrupt them, one that models do not learn from."""
    license_column: str | None = None
    """Column with the licence of each row. The dataset gets a licence column. Edited and corrupted
    rows have one without this key too: it holds the input dataset's licence."""

    def columns(self) -> dict[str, Column]:
        columns = super().columns()
        if self.license_column:
            columns["license"] = Column("string", "Licence of the row, as given by its dataset.")
        elif self.alters_rows:
            columns["license"] = Column("string", "Licence of the row's input dataset, if known.")
        return columns

    def inputs(self, recipe: Recipe, pinned: Mapping[str, Any]) -> KindInputs:
        pool = pinned.get("pool") or {}
        name = (
            f"{without_folders(self.get('dataset') or recipe.source.dataset)}, split {self.split}"
        )
        return [("pool", name, {**pool, "sha256": pool.get("content")})]


class AlteringKind(RowKind):
    """A kind whose samples are made from rows of the input dataset. No classifier may have learned
    from these rows."""

    alters_rows = True
    table = "edited"
    counts_rows = True
    row_columns: ClassVar[Mapping[str, Column]] = {
        ROW: Column(
            "int64", "Number of the row in the input dataset's split that it was made from."
        )
    }

    @classmethod
    def may_share_split(cls, parts: RecipeParts) -> bool:
        """Return whether the rows may come from the split that classifiers learn from."""
        return False

    @classmethod
    def problems(cls, parts: RecipeParts) -> Iterator[RecipeProblem]:
        split = parts.generator.get("split", "train")
        train = parts.source.get("train_split", "train")
        if split == train and not cls.may_share_split(parts):
            expected = parts.source.get("validation_split", "validation")
            problem = message("training-split", found=split, expected=expected)
            yield ("generator", "split"), problem
        if parts.samples.get("noise", "paired") != "paired":
            yield ("samples", "noise"), message("wrong-kind.row-noise")


class PoolKind(RowKind):
    """A kind whose samples are rows of a pool, unchanged.

    noiseless: whether samples have no noise that they could share.
    """

    row_columns: ClassVar[Mapping[str, Column]] = {
        ROW: Column("int64", "Number of the row in its pool.")
    }
    holds = "rows of a pool"
    noiseless: ClassVar[bool] = True
    no_tokens: ClassVar[str] = message("wrong-kind.pool-tokens")

    dataset: NonEmpty | None = None
    """The pool, named like source.dataset; null: source.dataset itself."""
    config: str | None = None
    """Config of the pool."""
    image_column: str = "image"
    """Column of the pool that holds the images; in a CSV file, the names of the image files."""

    _has_a_name = field_check("dataset", by=nameless_problem)

    @classmethod
    def problems(cls, parts: RecipeParts) -> Iterator[RecipeProblem]:
        if cls.noiseless and parts.samples.noise != "independent":
            yield ("samples", "noise"), message("wrong-kind.pool-noise")
        if parts.recipe.tokens is not None:
            yield ("tokens",), cls.no_tokens
        for path, _ in embedding_specs(parts.recipe):
            yield path, message("wrong-kind.pool-embeddings")
