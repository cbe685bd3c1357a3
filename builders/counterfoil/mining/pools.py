"""Use directions in training. Choose the rows of a pool with the lowest decision values of each
class (Jain 2023, A.5), or double the weight of train rows with a negative decision value (A.2,
B.1.2).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from counterfoil.arrays import AnyFloats, Bools, Floats, Ints
from counterfoil.data.labelled_images import LabelledImages
from counterfoil.data.labelled_sources import NamedDataset, every_row
from counterfoil.data.labels import conditions_of, labels_of
from counterfoil.data.open_source import OpenSource
from counterfoil.errors import UserError, some_of
from counterfoil.mining.audited import (
    NO_CONTENT,
    Audited,
    ContentsSeen,
    audited_train_rows,
    class_map_of,
    collect_answers,
    conditions_scored,
    features_of,
    row_labels,
)
from counterfoil.mining.findings import Findings
from counterfoil.mining.findings_layer import audit_origin, laid_over
from counterfoil.mining.hypotheses import Found, MiningRun
from counterfoil.prediction.embedding import Embedder
from counterfoil.recipe import Recipe, layer_text
from counterfoil.recipe.loader import merged_deeply
from counterfoil.recipe.names import PREDICTIONS, derived_name, did_you_mean
from counterfoil.recipe.rows_table import MOST_BYTES, rows_csv
from counterfoil.recipe.schema_mine import Mine

POOL_LAYER = "pool.yaml"
POOL_TABLE = "pool.csv"
WEIGHTS = "weights.parquet"
POOL_SHIFT = "hard"
PREDICTED = "predicted"
# The weight of a train row with a negative decision value (Jain 2023, Appendix B.1.2).
FACTOR = 2.0
# The metadata of a file of weights holds the origin of the weights under this key.
ORIGIN = "counterfoil"
# The generator's keys about rendering. A pool is not rendered, and its rows keep their size.
_OF_RENDERING = (
    "model", "revision", "scheduler", "steps", "guidance", "size", "saved_size", "negative_prompt", "lora"
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Hardest:
    """Rows of a pool."""

    rows: Mapping[int, Ints]
    """By label, the hardest first."""
    decisions: Mapping[int, Floats]
    """The decision values of these rows."""
    unreadable: int = 0
    unlabelled: int = 0
    """Numbers of rows left out."""


def hardest_rows(
    decisions: Floats,
    labels: Ints,
    most: int,
    rows: Ints | None = None,
) -> Hardest:
    """Return at most `most` rows of each class, those with the lowest decision values. decisions:
    (m,), NaN for an unreadable row. labels: (m,), below 0 for a row without a direction. rows:
    (m,), needed if a row can have several classes.
    """
    if rows is None:
        rows = np.arange(len(labels))
    readable = ~np.isnan(decisions)
    labelled = labels >= 0
    by_label: dict[int, Ints] = {}
    values: dict[int, Floats] = {}
    able = readable & labelled
    for label in np.unique(labels[able]).tolist():
        class_rows = np.flatnonzero(able & (labels == label))
        order = np.lexsort((rows[class_rows], decisions[class_rows]))
        best = class_rows[order[:most]]
        by_label[label] = rows[best]
        values[label] = decisions[best]
    unreadable = np.unique(rows[~readable])
    unlabelled = np.unique(rows[readable & ~labelled])
    return Hardest(by_label, values, len(unreadable), len(unlabelled))


def pool_labels(
    stated: str | None,
    pool: str,
    columns: Sequence[str],
    usual: str = "label",
) -> str:
    """Return the column of a pool's labels, by default `usual`, or `predicted` for the target's
    answers."""
    if stated == PREDICTED:
        return PREDICTED
    if stated is None and usual in columns:
        return usual
    hint = f"Its columns are {', '.join(columns)}."
    if stated is None:
        raise UserError(
            f"the pool {pool} has no column '{usual}': the class of its rows is unknown",
            f"Name the column of its labels, or use `{PREDICTED}`: then a row's class is the"
            f" target's prediction, right or wrong. {hint}",
        )
    if stated not in columns:
        close = did_you_mean(stated, [*columns, PREDICTED])
        raise UserError(f"the pool {pool} has no column '{stated}'{close}", hint)
    return stated


@dataclass(frozen=True, slots=True)
class PoolOrigin:
    """The pool with its split."""

    reference: NamedDataset
    labels: str
    """A column, or `predicted`."""


def pool_files(
    hardest: Hardest,
    pool: PoolOrigin,
    recipe: Recipe,
    below: Recipe,
    extends: str | None,
    changes: Mapping[str, Any],
    mined_from: Mapping[str, Any],
) -> dict[str, bytes]:
    """Return a layer over `below` with the chosen rows as the shift `hard`, and the table that it
    names. changes: the overrides between `below` and `recipe`. mined_from: the direction's origin,
    for the card.
    """
    if below.kind.takes_rows or recipe.kind.takes_rows:
        raise UserError(
            f"recipe {recipe.name}: it already selects rows, so it cannot take another selection",
            "Mine with the recipe that it extends.",
        )
    chosen = {}
    counts = []
    for label, rows in sorted(hardest.rows.items()):
        chosen[recipe.classes[label].id] = rows.tolist()
        counts.append(len(rows))
    table = rows_csv({POOL_SHIFT: chosen})
    if len(table) > MOST_BYTES:
        total = f"{sum(counts):,} rows were chosen"
        raise UserError(f"{total}, too many for one table", "Choose fewer.")
    most = max(counts)
    decisions = np.concatenate(list(hardest.decisions.values()))
    dataset = pool.reference.dataset.rstrip("/")
    _, _, pool_name = dataset.rpartition("/")
    origin = {
        "pool": pool_name,
        "split": pool.reference.split,
        "labels": pool.labels,
        "decisions": [float(decisions.min()), float(decisions.max())],
        "unreadable": hardest.unreadable,
    }
    base = recipe.prompts.base
    shift = {
        "prompt": base.prompt,
        "object_caption": base.object_caption,
        "style": base.style,
        "group": POOL_SHIFT,
        "kind": "mined",
        "classes": list(chosen),
        "mined_from": {**mined_from, **origin},
    }
    both = (recipe, below)
    shifts: dict[str, Any] = dict.fromkeys(below.prompts.shifts)
    shifts |= dict.fromkeys(recipe.prompts.shifts)
    shifts[POOL_SHIFT] = {key: value for key, value in shift.items() if value is not None}
    screen: dict[str, Any] = {"object_threshold": -1}  # CLIP rejects no chosen row.
    screens = [part.screen for part in both]
    screen |= _dropped(("keep",), screens)
    limits = ("accepted", "at_most", "held", "pairs")
    samples: dict[str, Any] = _dropped(limits, [part.samples for part in both])
    samples |= {"candidates": most, "noise": "independent"}
    bases = [part.prompts.base for part in both]
    layer: dict[str, Any] = {
        "name": derived_name(recipe.name, "pool"),
        "license": "other",
        "description": f"Rows of a pool that a failure direction calls hardest, at most {most:,} a"
        " class.",
        "generator": _generator(pool, both),
        "prompts": {
            "base": _dropped(("object_threshold",), bases),
            "shifts": shifts,
        },
        "screen": screen,
        "samples": samples,
    }
    if any(part.tokens is not None for part in both):
        layer["tokens"] = None
    if any(part.publish.repo is not None for part in both):
        layer["publish"] = {"repo": None}
    text = layer_text(merged_deeply(changes, layer), below, extends)
    return {POOL_TABLE: table, POOL_LAYER: text.encode()}


def _generator(pool: PoolOrigin, both: Sequence[Recipe]) -> dict[str, Any]:
    reference = pool.reference
    source = both[0].source
    generator: dict[str, Any] = _dropped(_OF_RENDERING, [part.generator for part in both])
    generator |= {"kind": "rows", "rows": f"./{POOL_TABLE}", "split": reference.split}
    predicted = pool.labels == PREDICTED
    if predicted:
        generator["labels"] = PREDICTED
    keys = ("dataset", "config", "revision", "image_column")
    is_source = all(getattr(reference, key) == getattr(source, key) for key in keys)
    if is_source and (predicted or pool.labels == source.label_column):
        # a split of the input dataset, whose labels are numbers as the recipe's classes say
        return generator
    for key in keys:
        value = getattr(reference, key)
        if value is not None:
            generator[key] = value
    if not predicted:
        generator["label_column"] = pool.labels
    return generator


def _dropped(names: Sequence[str], sections: Sequence[Any]) -> dict[str, None]:
    """Return null for each key that has another value than its default in at least one of the
    sections."""
    fields = type(sections[0]).model_fields
    dropped: dict[str, None] = {}
    for name in sorted(names):
        default = fields[name].get_default()
        if any(getattr(section, name) != default for section in sections):
            dropped[name] = None
    return dropped


def hard_weights(decisions: AnyFloats) -> Floats:
    """Return weights of training rows: `FACTOR` where the decision value is below 0, else 1, also
    for NaN."""
    return np.where(decisions < 0, FACTOR, 1.0)


def weights_parquet(
    keys: Sequence[str],
    weights: Mapping[str, Floats],
    origin: Mapping[str, Any] | None = None,
) -> bytes:
    """Return a Parquet file with columns `key` and `row` and those of `weights`, (n,). Its metadata
    hold `origin`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [int(key.rpartition("_")[2]) for key in keys]
    columns = {"key": pa.array(keys, pa.string()), "row": pa.array(rows, pa.int64()), **weights}
    metadata = None
    if origin is not None:
        text = json.dumps(origin, sort_keys=True, ensure_ascii=False)
        metadata = {ORIGIN: text}
    table = pa.table(columns, metadata=metadata)
    buffer = pa.BufferOutputStream()
    pq.write_table(table, buffer, compression="zstd", row_group_size=1 << 20)
    return buffer.getvalue().to_pybytes()


_MOST_NAMED = 8
# The number of rows to take per class by default.
ROWS = 50


@dataclass(frozen=True)
class OpenedPool:
    """Images of a pool."""

    images: LabelledImages
    origin: PoolOrigin
    rows: Ints | None
    labels: Ints | None
    """(m,), each label of each row, -1 if it has none. None: labels are predicted."""


@dataclass(frozen=True, slots=True)
class FilteredPool:
    """The hardest rows of each class that has a direction."""

    origin: PoolOrigin
    hardest: Hardest
    without: tuple[str, ...]
    """The other classes."""
    shared: int
    """How many images are left out because they or their units are audited. So findings can be
    tested again after training on the pool."""

    @property
    def count(self) -> int:
        by_label = self.hardest.rows.values()
        return sum(map(len, by_label))

    def to_json(self) -> dict[str, Any]:
        return {
            "pool": self.origin.reference.dataset,
            "split": self.origin.reference.split,
            "labels": self.origin.labels,
            "rows": self.count,
            "without_direction": list(self.without),
            "shared": self.shared,
            "unreadable": self.hardest.unreadable,
            "unlabelled": self.hardest.unlabelled,
        }

    def sentence(self) -> str:
        left = {
            "in no class with a direction": self.hardest.unlabelled,
            "among the audited images": self.shared,
            "unreadable": self.hardest.unreadable,
        }
        classes = len(self.hardest.rows)
        sentence = f"{self.count:,} rows of {classes} classes were chosen from the pool"
        for why, count in left.items():
            if count:
                sentence += f"; {count:,} left out: {why}"
        if self.without:
            sentence += f"; without a direction: {some_of(self.without, _MOST_NAMED)}"
        return f"{sentence}."


@dataclass(frozen=True)
class AskedTraining:
    """Images to train on."""

    source: OpenSource
    pool: OpenedPool | None
    most: int
    """The most rows of each class of the pool."""
    weights: bool
    """Whether the train split's rows get weights."""


def open_training(
    run: MiningRun,
    source: OpenSource,
    *,
    pool: str | None,
    pool_rows: int | None,
    pool_labels: str | None,
    weights: bool | None,
) -> AskedTraining | None:
    """Open what the options ask for; None if they ask for nothing. Raise UserError for what cannot
    be chosen."""
    values = {"--pool-rows": pool_rows, "--pool-labels": pool_labels}
    options = [name for name, value in values.items() if value is not None]
    if pool is None and options:
        raise UserError(f"{' and '.join(options)}: no pool is named", "Name one: --pool ./photos")
    if pool_rows is None:
        pool_rows = ROWS
    elif pool_rows < 1:
        raise UserError(f"--pool-rows: found {pool_rows}, expected at least 1")
    opened = None
    if pool is not None:
        opened = open_pool(pool, pool_labels, run.recipe, run.mine, source)
    train = run.recipe.source.train_split
    if weights and train not in source.splits:
        raise UserError(
            f"--weights: '{run.recipe.source.dataset}' has no split '{train}', whose rows have"
            " weights",
            f"Its splits are {', '.join(source.splits) or 'not named'}; set source.train_split.",
        )
    if opened is None and not weights:
        return None
    return AskedTraining(source, opened, pool_rows, bool(weights))


def open_pool(
    pool: str,
    stated: str | None,
    recipe: Recipe,
    mine: Mine,
    opened: OpenSource,
) -> OpenedPool:
    """Open a split of the recipe's source by name, or a folder or Hub dataset. stated: the label
    column, or `predicted`. Raise UserError for the audited split, and for labels that match no
    class or cannot be predicted.
    """
    if recipe.kind.takes_rows:
        raise UserError(
            f"recipe {recipe.name}: it is a set of rows itself",
            "Mine by the recipe that it extends.",
        )
    source = recipe.source
    splits = opened.splits
    in_source = pool in splits
    if in_source:
        columns = (source.image_column, source.label_column, source.unit_column)
        reference = NamedDataset(
            source.dataset,
            pool,
            source.revision,
            source.config,
            *columns,
            exif=source.exif,
            numbering_splits=source.numbering_splits,
        )
    else:
        reference = NamedDataset.parse(pool)
    same = (reference.dataset, reference.revision) == (source.dataset, source.revision)
    images, rows = every_row(reference, opened.pin if same else None)
    reference = replace(reference, split=rows.split)
    same = (reference.dataset, reference.config) == (source.dataset, source.config)
    if same and reference.split in mine.on:
        left = [name for name in splits if name not in mine.on]
        raise UserError(
            f"the pool {pool} is what the target is audited on; rows that found or tested a failure"
            " cannot be a pool",
            f"Name another: {', '.join(left) or 'a folder of images'}.",
        )
    column = source.label_column
    by_condition = in_source and source.conditions is not None and stated in (None, column)
    if not by_condition:
        column = pool_labels(stated, pool, rows.columns, reference.label_column)
    origin = PoolOrigin(reference, column)
    if column == PREDICTED:
        if (mine.target or "").startswith(PREDICTIONS):
            raise UserError(
                f"the target {mine.target} must predict the labels of the pool {pool}, but it is a"
                " file of predictions, which has none for new images",
                "Name the column of the pool's labels.",
            )
        return OpenedPool(images, origin, None, None)
    if by_condition:
        conditions = conditions_of(rows, source)
        return OpenedPool(images, origin, *row_labels(conditions.present))
    # The source's own labels are the recipe's numbers; other columns are matched by name if they
    # have names.
    by_number = in_source and column == source.label_column
    stored = labels_of(rows, column, numbered=by_number)
    labels = stored.places(recipe.classes, rows.place, numbers=by_number)
    numbers = np.arange(len(images))
    return OpenedPool(images, origin, numbers, labels)


def filter_pool(
    pool: OpenedPool,
    most: int,
    recipe: Recipe,
    audits: Sequence[Audited],
    outcome: Found,
    embedder: Embedder,
    device: str,
) -> FilteredPool:
    """Return at most `most` rows of each class that has a direction, with the lowest decision
    values."""
    rows = pool.rows
    labels = pool.labels
    if rows is None or labels is None:
        target = audits[0].target
        name = target.classifier.name
        class_map = class_map_of(recipe, name)
        images = [pool.images]
        thresholds = target.about.get("thresholds")
        if thresholds is None:
            answers = collect_answers(images, {name: class_map}, recipe, device)
            rows = np.arange(len(pool.images))
            labels = answers[name].taken_for
        else:
            _, values = conditions_scored(images, name, class_map, recipe.classes, device)
            limits = np.asarray(list(thresholds.values()))
            rows, labels = row_labels(values >= limits)  # False for NaN, an image without an answer
    shared = _shared(pool, recipe, audits[0])
    features = features_of(pool.images, embedder)
    directed = np.isin(labels, list(outcome.decide))
    has_direction = np.zeros(len(shared), dtype=bool)
    has_direction[rows[directed]] = True
    # A label without a direction is left out if another label of the row has one. Otherwise its row
    # is counted below.
    wanted = ~shared[rows] & (directed | ~has_direction[rows])
    rows = rows[wanted]
    labels = np.where(directed, labels, -1)[wanted]
    decisions = decision_values(features, rows, labels, outcome)
    hardest = hardest_rows(decisions, labels, most, rows)
    without = [cls.name for cls in recipe.classes if cls.label not in outcome.decide]
    return FilteredPool(pool.origin, hardest, tuple(without), int(shared.sum()))


def decision_values(
    features: AnyFloats,
    rows: Ints,
    labels: Ints,
    outcome: Found,
) -> Floats:
    """Return the decision value (m,) of each row by the direction of its label. An unreadable row
    has NaN. A row whose label has no direction has 0. features: (n, width). rows, labels: (m,).
    """
    finite = np.asarray(np.isfinite(features).all(axis=1))
    readable = finite[rows]
    values = np.where(readable, 0.0, np.nan)
    for label, decide in outcome.decide.items():
        class_rows = np.flatnonzero((labels == label) & readable)
        if len(class_rows):
            of_class = np.asarray(features[rows[class_rows]], dtype=np.float32)
            values[class_rows] = decide(of_class)
    return values


def _shared(pool: OpenedPool, recipe: Recipe, audited: Audited) -> Bools:
    """Return whether each image of the pool is audited too, (n,), by content, and within one
    dataset by unit too."""
    contents: set[str] = set()
    units: list[str | None] = []
    for part in audited.parts:
        contents.update(ContentsSeen(part).known())
        units += part.units or ()
    contents.discard(NO_CONTENT)
    of_pool = ContentsSeen(pool.images).known()
    shared = np.asarray([content in contents for content in of_pool], dtype=bool)
    of_source = pool.origin.reference.dataset == recipe.source.dataset
    if pool.images.units is not None and of_source:
        pool_units = np.asarray(pool.images.units, dtype=str)
        shared |= np.isin(pool_units, np.asarray(units, dtype=str))
    return shared


def training_files(
    training: AskedTraining,
    run: MiningRun,
    audits: Sequence[Audited],
    outcome: Found,
    embedder: Embedder,
    findings: Findings,
) -> tuple[FilteredPool | None, dict[str, bytes]]:
    """Return the chosen rows of the pool, if one is asked for, and the files to train by. A file of
    weights has a column, or one per condition.
    """
    recipe = run.recipe
    files = dict[str, bytes]()
    filtered = None
    if training.pool is not None:
        filtered = filter_pool(
            training.pool,
            training.most,
            recipe,
            audits,
            outcome,
            embedder,
            run.device,
        )
    if filtered is not None and filtered.count:
        below, changes, extends = laid_over(run.source, run.overrides, run.folder)
        origin = audit_origin(findings) | {"shared": filtered.shared}
        files = pool_files(
            filtered.hardest,
            filtered.origin,
            recipe,
            below,
            extends,
            changes,
            origin,
        )
    if training.weights:
        images, has = audited_train_rows(recipe, training.source)
        rows = np.arange(len(images))
        labels = images.labels
        if has is not None:
            rows, labels = row_labels(has.present)
        features = features_of(images, embedder)
        weights = hard_weights(decision_values(features, rows, labels, outcome))
        columns = {"weight": weights}
        if has is not None:
            by_condition = weights.reshape(has.present.shape).T
            columns = dict(zip(has.names, by_condition, strict=True))
        origin = {"train_content": images.content, "mined": audit_origin(findings)}
        files[WEIGHTS] = weights_parquet(images.keys, columns, origin)
    return filtered, files
