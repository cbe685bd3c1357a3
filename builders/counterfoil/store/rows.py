"""The rows of a dataset: candidates, the columns of each table, and their types in Arrow and in `datasets`."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from counterfoil.recipe.keep import ACCEPTED, CLIP_SCORES, Verdict
from counterfoil.store.layout import What

if TYPE_CHECKING:
    import pyarrow as pa

    from counterfoil.plan import Sample
    from counterfoil.recipe import Recipe

# Columns that every table has, in order, with the `datasets` type of each.
_SHARED = {
    "label": "ClassLabel",
    "shift": "string",
    "class_id": "string",
    "index": "int32",
    "pair": "string",
    "prompt": "string",
    "seed": "int64",
    **{f"{name}_score": "float32" for name in CLIP_SCORES},
    **{f"{name}_threshold": "float32" for name in CLIP_SCORES},
}
# Every row has a value here; scores and thresholds may be unknown.
NEVER_EMPTY = frozenset({"key", "label", "shift", "class_id", "index", "pair", "seed", "reason"})


def score_columns(verdict: Verdict) -> dict[str, float | None]:
    """Return a candidate's scores and thresholds by column. ValueError for a score that is not finite."""
    columns = {f"{name}_score": verdict.scores.get(name) for name in CLIP_SCORES}
    columns |= {f"{name}_threshold": verdict.thresholds.get(name) for name in CLIP_SCORES}
    for name, value in columns.items():
        if value is not None and not math.isfinite(value):
            raise ValueError(f"{name} is {value}; a score is a number or None")
    return {name: None if value is None else float(value) for name, value in columns.items()}


def verdict_of(
    row: Mapping[str, Any], thresholds: Mapping[str, float | None], added: Iterable[str] = (), *, open: bool = False
) -> Verdict:
    """Rebuild a verdict from a row's stored scores under these thresholds; `added` are columns of keep rules."""
    scores = {name: row[f"{name}_score"] for name in CLIP_SCORES} | {name: row[name] for name in added}
    return Verdict(scores, thresholds, open)


@dataclass(slots=True)
class Candidate:
    """A rendered sample with its verdict and the screen's decision.

    `reason` is "accepted" for what is kept, otherwise why it is not ("low_object", "surplus", "failed", …).
    `image` is the encoded file, None only if rendering failed. `values` are cells of added columns that no score
    fills.
    """

    sample: Sample
    verdict: Verdict
    reason: str
    image: bytes | None
    embedding: Sequence[float] | None = None
    values: Mapping[str, Any] = field(default_factory=dict)

    @property
    def accepted(self) -> bool:
        return self.reason == ACCEPTED


@dataclass(frozen=True, slots=True)
class TableForm:
    """The columns of a dataset's tables beyond those that every dataset has."""

    embeddings: bool = False
    added: Mapping[str, str] = field(default_factory=dict)  # column → type

    @classmethod
    def of(cls, recipe: Recipe) -> TableForm:
        added = {name: column.type for name, column in recipe.added_columns.items()}
        return cls(recipe.screen.store_embeddings, added)


PLAIN = TableForm()


def column_types(what: What, form: TableForm) -> dict[str, str]:
    """Return column → type, in the table's order. `rejected` and `candidates` also have the reason."""
    types = {"key": "string"}
    if what != "candidates":
        types["image"] = "Image"
    types.update(_SHARED)
    types.update(form.added)
    if what != "data":
        types["reason"] = "string"
    if form.embeddings:
        types["embedding"] = "list<float32>"
    return types


def unique_names(classes: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """Return unique class names for ClassLabel from (id, name) pairs; a repeated one becomes "name (id)"."""
    times = Counter(name for _, name in classes)
    names = tuple(name if times[name] == 1 else f"{name} ({id})" for id, name in classes)
    if len(set(names)) < len(names):  # a class is named like another's "name (id)"
        names = tuple(f"{name} ({id})" for id, name in classes)
    return names


def features(what: What, class_names: Sequence[str], form: TableForm) -> dict[str, Any]:
    """Return the table's features in the form that `datasets.Features.from_dict` reads."""
    declared: dict[str, Any] = {}
    for name, type in column_types(what, form).items():
        match type:
            case "Image":
                declared[name] = {"_type": "Image"}
            case "ClassLabel":
                declared[name] = {"names": list(class_names), "_type": "ClassLabel"}
            case "list<float32>":
                declared[name] = {"feature": {"dtype": "float32", "_type": "Value"}, "_type": "List"}
            case _:
                declared[name] = {"dtype": type, "_type": "Value"}
    return declared


def webdataset_features(what: What, class_names: Sequence[str], form: TableForm, image_suffix: str) -> dict[str, Any]:
    """Return the features for tar files, whose columns are the members' extensions, in the order of `datasets`."""
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
    """Return the Parquet schema, with the features where `load_dataset` looks for them."""
    info = {"info": {"features": features(what, class_names, form)}}
    return plain_schema(what, form).with_metadata({"huggingface": json.dumps(info)})


def plain_schema(what: What, form: TableForm) -> pa.Schema:
    """Return names and Arrow types of the columns, without metadata."""
    import pyarrow as pa

    arrow_types = {
        "string": pa.string(),
        "Image": pa.struct([("bytes", pa.binary()), ("path", pa.string())]),
        "ClassLabel": pa.int64(),
        "int32": pa.int32(),
        "int64": pa.int64(),
        "float32": pa.float32(),
        "bool": pa.bool_(),
        "list<float32>": pa.list_(pa.float32()),
    }
    return pa.schema([(name, arrow_types[type]) for name, type in column_types(what, form).items()])


def row(candidate: Candidate, what: What, form: TableForm, image_suffix: str) -> dict[str, Any]:
    """Turn a candidate into a row of the table. ValueError for a score that is not finite."""
    sample = candidate.sample
    try:
        scores = score_columns(candidate.verdict)
    except ValueError as error:
        raise ValueError(f"{sample.key}: {error}") from None
    embedding = candidate.embedding
    added = {**candidate.verdict.scores, **candidate.values}
    values = {
        "key": sample.key,
        "image": {"bytes": candidate.image, "path": f"{sample.key}.{image_suffix}"},
        "label": sample.label,
        "shift": sample.shift,
        "class_id": sample.class_id,
        "index": sample.index,
        "pair": sample.pair,
        "prompt": sample.prompt,
        "seed": sample.seed,
        **scores,
        **{name: _cell(added.get(name), type) for name, type in form.added.items()},
        "reason": candidate.reason,
        "embedding": None if embedding is None else [float(value) for value in embedding],
    }
    return {name: values[name] for name in column_types(what, form)}


def _cell(value: Any, type: str) -> Any:
    """Convert a value to the type of its column."""
    if value is None:
        return None
    if type == "bool":
        return bool(value)
    if type != "float32":
        return value
    if not math.isfinite(value):
        raise ValueError(f"a column of numbers is {value}; expected a number or None")
    return float(value)
