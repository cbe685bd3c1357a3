"""Define the rows of a dataset: the candidates, and the columns of each table with their types in
Arrow and `datasets`.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from counterfoil.plan.layout import Sample
from counterfoil.recipe import Recipe, RecipeClass
from counterfoil.recipe.keep.cells import ACCEPTED
from counterfoil.recipe.keep.rule import CLIP_SCORES, NEWEST_ROWS, OBJECT, SHIFT, Column, Verdict
from counterfoil.recipe.tasks.labels import conditions_feature
from counterfoil.recipe.tasks.objects import objects_feature
from counterfoil.store.layout import What

if TYPE_CHECKING:
    import pyarrow as pa


def verdict_of(
    row: Mapping[str, Any],
    thresholds: Mapping[str, float | None],
    added: Iterable[str],
    *,
    open: bool = False,
) -> Verdict:
    """Rebuild a verdict from a row's stored scores under the given thresholds. `added` are columns
    of keep rules."""
    scores = {name: row[f"{name}_score"] for name in CLIP_SCORES}
    scores |= {name: row[name] for name in added if name in row}
    return Verdict(scores, thresholds, open)


@dataclass(slots=True)
class Candidate:
    """A rendered sample with its verdict."""

    sample: Sample
    verdict: Verdict
    reason: str
    image: bytes | None
    """The encoded image, or None if rendering failed."""
    embedding: Sequence[float] | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    """The cells that hold no score."""

    @property
    def accepted(self) -> bool:
        return self.reason == ACCEPTED


@dataclass(frozen=True, slots=True)
class RowColumn(Column):
    """A column of every row. `cell` returns its value. If `cell` is None, the value is the sample's
    attribute of the same name.
    """

    cell: Callable[[Candidate], Any] | None = None
    required: bool = True


# An image that a task adds beside that of the sample is a PNG.
MASK_SUFFIX = "png"
# The columns are in the order of the tables. The table `candidates` has no images. A kind of
# generator may describe a column more closely (`meanings`).
ROW_COLUMNS: dict[str, RowColumn] = {
    "key": RowColumn("string", "Identifier of the sample: shift, class id and index."),
    "image": RowColumn(
        "Image", "The image; not in candidates.", lambda candidate: candidate.image, required=False
    ),
    "label": RowColumn("ClassLabel", "Position of the class in the recipe; not an ImageNet index."),
    "shift": RowColumn("string", "The shift, or base."),
    "class_id": RowColumn("string", "Unique id of the class; names may repeat."),
    "index": RowColumn(
        "int32", "Number of the sample in its cell, which is one class under one shift."
    ),
    "pair": RowColumn(
        "string", "Class id and index, shared by a base image and its shifted partners."
    ),
    "prompt": RowColumn("string", "Prompt that the image was drawn from.", required=False),
    "seed": RowColumn("int64", "Seed of the image's noise."),
    "object_score": RowColumn(
        "float32",
        "Cosine of the image with the object caption, in CLIP.",
        lambda candidate: candidate.verdict.scores.get(OBJECT),
        required=False,
    ),
    "shift_score": RowColumn(
        "float32",
        "Cosine of the image with the shift caption, in CLIP.",
        lambda candidate: candidate.verdict.scores.get(SHIFT),
        required=False,
    ),
    "object_threshold": RowColumn(
        "float32",
        "The lowest object score that passes.",
        lambda candidate: candidate.verdict.thresholds.get(OBJECT),
        required=False,
    ),
    "shift_threshold": RowColumn(
        "float32",
        "The lowest shift score that passes.",
        lambda candidate: candidate.verdict.thresholds.get(SHIFT),
        required=False,
    ),
}
# These columns come after the columns that a recipe adds. The table `data` has no reason, and
# embeddings are stored only if the recipe asks for them.
LAST_COLUMNS: dict[str, RowColumn] = {
    "reason": RowColumn(
        "string",
        "accepted, or the reason for rejection; not in data.",
        lambda candidate: candidate.reason,
    ),
    "embedding": RowColumn(
        "list<float32>",
        "CLIP embedding of the image.",
        lambda candidate: candidate.embedding,
        required=False,
    ),
}
REQUIRED = frozenset(
    name for name, column in {**ROW_COLUMNS, **LAST_COLUMNS}.items() if column.required
)
# The columns whose values the plan gives.
PLANNED = tuple(name for name, column in ROW_COLUMNS.items() if column.cell is None)


@dataclass(frozen=True, slots=True)
class TableForm:
    embeddings: bool = False
    added: Mapping[str, Column] = field(default_factory=dict)
    names: Sequence[str] = ()  # of what images show, by the task
    version: int = NEWEST_ROWS

    @classmethod
    def of(cls, recipe: Recipe) -> TableForm:
        names = recipe.task.names(recipe.source)
        return cls(recipe.screen.store_embeddings, recipe.added_columns, names, recipe.row_version)


PLAIN = TableForm()


def table_columns(what: What, form: TableForm) -> dict[str, Column]:
    columns: dict[str, Column] = {**ROW_COLUMNS, **form.added, **LAST_COLUMNS}
    if what == "candidates":
        columns = {name: column for name, column in columns.items() if column.type != "Image"}
    if what == "data":
        del columns["reason"]
    if not form.embeddings:
        del columns["embedding"]
    return {name: column for name, column in columns.items() if column.since <= form.version}


def described_columns(what: What, recipe: Recipe) -> dict[str, Column]:
    """Return the columns of a recipe's table, described for the recipe's kind of generator."""
    meanings = recipe.kind.meanings
    return {
        name: replace(column, description=meanings.get(name, column.description))
        for name, column in table_columns(what, TableForm.of(recipe)).items()
    }


def unique_names(classes: Sequence[RecipeClass]) -> tuple[str, ...]:
    """Return unique class names for ClassLabel. A repeated name becomes "name (id)"."""
    times = Counter(cls.name for cls in classes)
    names = tuple(cls.name if times[cls.name] == 1 else f"{cls.name} ({cls.id})" for cls in classes)
    if len(set(names)) < len(names):  # the name of one class equals the "name (id)" of another
        names = tuple(f"{cls.name} ({cls.id})" for cls in classes)
    return names


def features(what: What, class_names: Sequence[str], form: TableForm) -> dict[str, Any]:
    """Return the table's features in the form that `datasets.Features.from_dict` reads."""
    declared: dict[str, Any] = {}
    for name, column in table_columns(what, form).items():
        match column.type:
            case "Image":
                declared[name] = {"_type": "Image"}
            case "ClassLabel":
                declared[name] = {"names": list(class_names), "_type": "ClassLabel"}
            case "list<float32>":
                declared[name] = {
                    "feature": {"dtype": "float32", "_type": "Value"},
                    "_type": "List",
                }
            case "list<ClassLabel>":
                declared[name] = conditions_feature(form.names)
            case "objects":
                declared[name] = objects_feature(form.names)
            case _:
                declared[name] = {"dtype": column.type, "_type": "Value"}
    return declared


def webdataset_features(
    what: What,
    class_names: Sequence[str],
    form: TableForm,
    image_suffix: str,
) -> dict[str, Any]:
    """Return the features of tar files in the order of `datasets`. The columns are the extensions
    of a tar's members.
    """
    declared = features(what, class_names, form)
    columns = {
        "cls": declared.pop("label"),
        "json": {name: value for name, value in declared.items() if name != "image"},
    }
    if "image" in declared:
        columns[image_suffix] = declared["image"]
    string = {"dtype": "string", "_type": "Value"}
    return {**columns, "__key__": string, "__url__": string}


def arrow_schema(what: What, class_names: Sequence[str], form: TableForm) -> pa.Schema:
    """Return the Parquet schema. Its metadata holds the features in the place where `load_dataset`
    looks for them."""
    info = {"info": {"features": features(what, class_names, form)}}
    return plain_schema(what, form).with_metadata({"huggingface": json.dumps(info)})


def plain_schema(what: What, form: TableForm) -> pa.Schema:
    """Return the names and Arrow types of the columns, without metadata."""
    import pyarrow as pa

    declared = features(what, (), form)
    return pa.schema([(name, _arrow_type(feature)) for name, feature in declared.items()])


def _arrow_type(feature: Mapping[str, Any]) -> pa.DataType:
    """Return the Arrow type of a feature. Without a type of its own, it is a struct of features by
    name."""
    import pyarrow as pa

    match feature.get("_type"):
        case None:
            return pa.struct([(name, _arrow_type(part)) for name, part in feature.items()])
        case "Image":
            return pa.struct([("bytes", pa.binary()), ("path", pa.string())])
        case "ClassLabel":
            return pa.int64()
        case "List":
            return pa.list_(_arrow_type(feature["feature"]), feature.get("length", -1))
    return pa.type_for_alias(feature["dtype"])


def stored_row(
    candidate: Candidate,
    what: What,
    form: TableForm,
    image_suffix: str,
) -> dict[str, Any]:
    """Turn a candidate into a row of the table. Raise ValueError for a number that is not
    finite."""
    sample = candidate.sample
    added = {**candidate.verdict.scores, **candidate.values}
    values = {}
    for name, column in table_columns(what, form).items():
        value: Any
        if not isinstance(column, RowColumn):
            value = added.get(name)
        elif column.cell is None:
            value = getattr(sample, name)
        else:
            value = column.cell(candidate)
        if value is not None:
            match column.type:
                case "Image":
                    suffix = image_suffix if isinstance(column, RowColumn) else MASK_SUFFIX
                    value = {"bytes": value, "path": f"{sample.key}.{suffix}"}
                case "list<float32>":
                    value = [float(number) for number in value]
                case "bool":
                    value = bool(value)
                case "float32":
                    value = float(value)
                    if not math.isfinite(value):
                        raise ValueError(
                            f"{sample.key}: {name} is {value}, expected a finite number or none"
                        )
        values[name] = value
    return values
