"""What a finding is good for in training: rows of a pool that are chosen, and weights of rows that are there.

*Filter* takes the rows of a pool that a direction calls hardest, so many a class, whether or not their decision value
is negative (Jain et al. 2023, Appendix A.5). They become a layer of `generator.kind: rows`, so they are built, carded
and published like any dataset. *Upweight* doubles the weight of training rows with a negative one (A.2, B.1.2).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.errors import UserError
from counterfoil.recipe import Recipe, layer_text
from counterfoil.recipe.loader import merged_deeply
from counterfoil.recipe.names import derived_name, did_you_mean
from counterfoil.recipe.rows_table import MOST_BYTES, rows_csv
from counterfoil.store.atomic import make_folder, write_atomically

if TYPE_CHECKING:
    from counterfoil.sources import Reference

LAYER, TABLE = "pool.yaml", "pool.csv"
SHIFT = "hard"
PREDICTED = "predicted"
# Jain 2023, Appendix B.1.2.
FACTOR = 2.0
# Under what a file of weights says in its metadata what it came from.
ORIGIN = "counterfoil"

# What a generator says of rendering; rows of a pool are stored at the size that they have.
_OF_RENDERING = ("model", "revision", "scheduler", "steps", "guidance", "size", "saved_size", "negative_prompt")


@dataclass(frozen=True, slots=True)
class Hardest:
    """Rows of a pool by label, the hardest first, with their decision values; and how many rows were left out.

    unreadable: those without a decision value, whose image could not be decoded. unlabelled: those of no class that has
    a direction.
    """

    rows: Mapping[int, NDArray[np.int64]]
    decisions: Mapping[int, NDArray[np.float64]]
    unreadable: int = 0
    unlabelled: int = 0


def hardest_rows(
    decisions: NDArray[np.floating], labels: NDArray[np.int64], most: int, rows: NDArray[np.int64] | None = None
) -> Hardest:
    """At most `most` rows a class of the least decision values, whatever their sign; of equal ones the first row.

    decisions: (m,), each by the direction of its label; NaN where the image could not be decoded. labels: (m,), below 0
    where a row is of no class, or of one without a direction. rows: (m,), where one row of the pool is of several
    classes (conditions) and so stands here several times; else entry i is row i.
    """
    rows = np.arange(len(labels)) if rows is None else rows
    if most < 1 or not len(decisions) == len(labels) == len(rows):
        raise ValueError(f"expected a decision, a label and a row each, and at least one a class, found {most}")
    readable, labelled = ~np.isnan(decisions), labels >= 0
    found: dict[int, NDArray[np.int64]] = {}
    values: dict[int, NDArray[np.float64]] = {}
    for label in np.unique(labels[readable & labelled]).tolist():
        own = np.flatnonzero(readable & (labels == label))
        best = own[np.lexsort((rows[own], decisions[own]))][:most]
        found[label] = rows[best].astype(np.int64)
        values[label] = decisions[best].astype(np.float64)
    unreadable = len(np.unique(rows[~readable]))
    return Hardest(found, values, unreadable, len(np.unique(rows[readable & ~labelled])))


def pool_labels(stated: str | None, pool: str, columns: Sequence[str], usual: str = "label") -> str:
    """Where the labels of a pool are from: a column of it, or `predicted`, the target's answer.

    stated: what a person said, None where nothing. usual: the column that is meant where nothing is said. UserError for
    a pool without that column and with nothing stated: a class that was guessed would not look like one.
    """
    if stated == PREDICTED:
        return PREDICTED
    if stated is None and usual in columns:
        return usual
    there = f"Its columns are {', '.join(columns)}."
    if stated is None:
        raise UserError(
            f"the pool {pool} has no column '{usual}': of which class its rows are is not stated",
            f"Name the column of its labels, or say `{PREDICTED}`: then a row's class is what the target answers, right"
            f" or wrong. {there}",
        )
    if stated not in columns:
        raise UserError(f"the pool {pool} has no column '{stated}'{did_you_mean(stated, [*columns, PREDICTED])}", there)
    return stated


def answered_labels(answers: NDArray[np.integer], targets: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    """The classes that a classifier's best outputs (n,) stand for, -1 for an output of no class.

    targets: by label, its outputs (`prediction.class_map.ClassMap`); an image without an answer has -1.
    """
    label_of = {output: label for label, outputs in enumerate(targets) for output in outputs}
    return np.asarray([label_of.get(output, -1) for output in answers.tolist()], dtype=np.int64)


@dataclass(frozen=True, slots=True)
class PoolFiles:
    """A layer of rows, and the table that it names."""

    layer: str
    table: bytes

    def write(self, folder: Path) -> Path:
        """Write both, the table first, each whole or not at all; the layer's path. Raises as `write_atomically`."""
        make_folder(folder)
        write_atomically(folder / TABLE, self.table)
        write_atomically(folder / LAYER, self.layer.encode())
        return folder / LAYER


@dataclass(frozen=True, slots=True)
class PoolOrigin:
    """Where a pool is and what its labels are: `labels` is a column's name or `predicted` (`pool_labels`).

    reference: with its split, its folder absolute. license: of its images, as the Hub spells it.
    """

    reference: Reference
    labels: str
    license: str = "other"


def pool_files(
    hardest: Hardest,
    pool: PoolOrigin,
    recipe: Recipe,
    below: Recipe,
    extends: str | None = None,
    changes: Mapping[str, Any] | None = None,
    mined_from: Mapping[str, Any] | None = None,
) -> PoolFiles:
    """The chosen rows as a layer that `counterfoil build` takes: one shift, `hard`, of the classes that have rows.

    recipe: as it was mined; below: what the layer extends, named `extends` from its folder; changes: what lies between
    the two (`--set`), as a mapping. Nothing is rendered, every inherited shift is dropped, and no threshold drops a
    row: they were chosen already. mined_from: what the direction came from, for the card.

    UserError where no row was chosen, for more rows than a table may hold, and for a recipe that is a set of rows
    itself; ValueError for a pool without a split.
    """
    if pool.reference.split is None:
        raise ValueError(f"of which split are the rows of {pool.reference.dataset}?")
    if below.generator.takes_rows or recipe.generator.takes_rows:
        raise UserError(
            f"recipe {recipe.name}: it is a set of rows itself, so another set cannot be laid over it",
            "Mine by the recipe that it extends.",
        )
    if not any(len(rows) for rows in hardest.rows.values()):
        raise UserError(
            f"the pool {pool.reference.dataset} has no row to choose: {hardest.unreadable:,} images cannot be decoded,"
            f" and {hardest.unlabelled:,} rows are of no class that has a direction"
        )
    ids = {cls.label: cls.id for cls in recipe.classes}
    chosen = {ids[label]: hardest.rows[label].tolist() for label in sorted(hardest.rows) if len(hardest.rows[label])}
    table = rows_csv({SHIFT: chosen})
    if len(table) > MOST_BYTES:
        raise UserError(f"{sum(map(len, chosen.values())):,} rows were chosen, too many for one table", "Choose fewer.")
    layer = merged_deeply(changes or {}, _changes(hardest, pool, recipe, below, chosen, mined_from or {}))
    return PoolFiles(layer_text(layer, below, extends), table)


def _changes(
    hardest: Hardest,
    pool: PoolOrigin,
    recipe: Recipe,
    below: Recipe,
    chosen: Mapping[str, Sequence[int]],
    mined_from: Mapping[str, Any],
) -> dict[str, Any]:
    most = max(map(len, chosen.values()))
    base = recipe.prompts.base
    decisions = np.concatenate([hardest.decisions[label] for label in sorted(hardest.decisions)])
    origin = {
        "pool": pool.reference.dataset.rstrip("/").rpartition("/")[2],
        "split": pool.reference.split,
        "labels": pool.labels,
        "decisions": [float(decisions.min()), float(decisions.max())],
        "unreadable": hardest.unreadable,
    }
    shift = {
        "prompt": base.prompt,
        "object_caption": base.object_caption,
        "style": base.style,
        "group": SHIFT,
        "kind": "mined",
        "classes": list(chosen),
        "mined_from": {**mined_from, **origin},
    }
    both = (recipe, below)
    changes: dict[str, Any] = {
        "name": derived_name(recipe.name, "pool"),
        "license": pool.license,
        "description": f"Rows of a pool that a failure direction calls hardest, at most {most:,} a class.",
        "generator": _generator(pool, both),
        "prompts": {
            "base": _dropped({"object_threshold"}, [one.prompts.base for one in both]),
            "shifts": dict.fromkeys((*below.prompts.shifts, *recipe.prompts.shifts))
            | {SHIFT: {key: value for key, value in shift.items() if value is not None}},
        },
        # They are the rows that were chosen, whatever CLIP says of them.
        "screen": {"object_threshold": -1} | _dropped({"keep"}, [one.screen for one in both]),
        "samples": _dropped({"accepted", "at_most", "pairs", "held"}, [one.samples for one in both])
        | {"candidates": most, "noise": "independent"},
    }
    if any(one.tokens is not None for one in both):
        changes["tokens"] = None
    if any(one.publish.repo is not None for one in both):
        changes["publish"] = {"repo": None}
    return changes


def _generator(pool: PoolOrigin, both: Sequence[Recipe]) -> dict[str, Any]:
    reference, source = pool.reference, both[0].source
    column = pool.labels if pool.labels != PREDICTED else source.label_column
    generator: dict[str, Any] = _dropped(_OF_RENDERING, [one.generator for one in both])
    generator |= {"kind": "rows", "rows": f"./{TABLE}", "split": reference.split}
    if pool.labels == PREDICTED:
        generator["labels"] = PREDICTED
    place = (reference.dataset, reference.config, reference.revision, reference.image_column, column)
    if place == (source.dataset, source.config, source.revision, source.image_column, source.label_column):
        return generator  # a split of the input dataset, whose labels are numbers as the recipe's classes say
    return generator | {
        "dataset": reference.dataset,
        **({} if reference.config is None else {"config": reference.config}),
        **({} if reference.revision is None else {"revision": reference.revision}),
        "image_column": reference.image_column,
        **({} if pool.labels == PREDICTED else {"label_column": column}),
    }


def _dropped(names: Sequence[str] | set[str], sections: Sequence[Any]) -> dict[str, None]:
    """Null for each of these keys that any of the sections has another value than the default of."""
    fields = type(sections[0]).model_fields
    others = [name for name in sorted(names) for one in sections if getattr(one, name) != fields[name].get_default()]
    return dict.fromkeys(others)


def hard_weights(decisions: NDArray[np.floating], factor: float = FACTOR) -> NDArray[np.float64]:
    """Weights of training rows: `factor` where the decision value is below 0, else 1, NaN (unreadable) included.

    decisions: (n,), each by the direction of its label; or (n, K) by those of K conditions, since then each is a loss
    of its own. ValueError for a factor that is not above 0.
    """
    if not (np.isfinite(factor) and factor > 0):
        raise ValueError(f"found a factor of {factor}, expected one above 0")
    return np.where(decisions < 0, float(factor), 1.0)


def write_weights(
    path: Path,
    keys: Sequence[str],
    rows: NDArray[np.int64],
    weights: Mapping[str, NDArray[np.float64]],
    origin: Mapping[str, Any] | None = None,
) -> None:
    """A Parquet of weights by row: `key`, `row` (its number in the split) and the columns of `weights`, in order.

    origin: what they came from, as JSON in the file's metadata under `ORIGIN`. weights: `weight`, or one a condition,
    (n,) each. Equal values give equal bytes. Raises as `write_atomically`.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns: dict[str, pa.Array] = {"key": pa.array(keys, pa.string()), "row": pa.array(rows, pa.int64())}
    columns |= {name: pa.array(values, pa.float64()) for name, values in weights.items()}
    buffer = pa.BufferOutputStream()
    told = None if origin is None else {ORIGIN: json.dumps(origin, sort_keys=True, ensure_ascii=False)}
    pq.write_table(pa.table(columns, metadata=told), buffer, compression="zstd", row_group_size=1 << 20)
    make_folder(path.parent)
    write_atomically(path, buffer.getvalue().to_pybytes())
