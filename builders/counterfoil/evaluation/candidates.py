"""The candidates of mined shifts that passed the screen, before a classifier's rule selects among
them.

Such a rule keeps failures, so a finding's failure rate is over all these candidates, never over the
images kept. If no rule uses a classifier, the candidates are the accepted images, and nothing else
is read.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.arrays import Bools, Ints
from counterfoil.data.hub import HubDataset, locate_dataset
from counterfoil.data.labelled_images import LabelledImages
from counterfoil.documents import sha256_json
from counterfoil.evaluation.messages import failure
from counterfoil.generate.screen.thresholds import open_shifts
from counterfoil.recipe import Recipe, Shift
from counterfoil.recipe.keep.cells import ACCEPTED, before_judges
from counterfoil.recipe.keep.misclassified import RIGHT
from counterfoil.recipe.names import judge_column, without_folders
from counterfoil.recipe.schema_mine import MinedFacts, mined_facts
from counterfoil.store.inside import refuse_unfit
from counterfoil.store.layout import What
from counterfoil.store.manifest import changed_files, refuse_changed
from counterfoil.store.reading import planned_rows, read_shard, shard_batches
from counterfoil.store.receipts import Receipt
from counterfoil.store.rows import TableForm

if TYPE_CHECKING:
    from counterfoil.dataset.reading import SoundDataset

MINED = "mined"
_COMMIT = re.compile(r"[0-9a-f]{40}")
# A judge's recorded answer; 0 is wrong.
IS_RIGHT = 1
NO_ANSWER = -1


@dataclass(frozen=True)
class Unpicked:
    """All n candidates of a shift that a classifier's rule could choose from, in the plan's
    order."""

    keys: tuple[str, ...]
    labels: Ints
    indices: Ints
    accepted: Bools
    """(n,), whether the candidate is an image of the dataset."""
    recorded: Mapping[str, NDArray[np.int8]]
    """Judge → (n,), the answers that the build recorded."""


@dataclass(frozen=True)
class MinedShift:
    """A shift of kind `mined`."""

    index: int
    """Its position among the groups."""
    facts: MinedFacts
    """The finding that it was mined from."""
    open: bool
    """Whether its threshold is a percentile over its candidates."""
    screened: int
    """The number of candidates that passed the screen."""
    judges: tuple[str, ...] = ()
    """The classifiers that its rules use, by their names without folders."""
    quota: int | None = None
    """The number of kept images at which the drawing of a cell ends, if there is one."""
    unpicked: Unpicked | None = None
    """None without judges: the accepted images are measured then."""


@dataclass(frozen=True)
class MinedCandidates:
    """The mined shifts of a dataset."""

    shifts: tuple[MinedShift, ...] = ()
    images: LabelledImages | None = None
    """The stored images of unpicked candidates that were not accepted."""
    complete: bool = True
    """Whether each such candidate has its image stored."""
    pins: Mapping[str, Any] = field(default_factory=dict)
    """The judges' pins in the lock, by name."""


def read_mined(
    dataset: SoundDataset,
    reasons: Mapping[str, Mapping[str, int]],
    reference: HubDataset | None,
) -> MinedCandidates:
    """Return the mined shifts of a finished dataset.

    reasons: counts from its receipts. reference: the dataset on the Hub that it is a copy of. Raise
    RunFailure if candidates differ from their receipts or are not in the plan.
    """
    recipe = dataset.recipe
    directory = dataset.directory
    mined = []
    for index, shift in enumerate(recipe.all_shifts()):
        if shift.kind == MINED and shift.top:
            mined.append((index, shift))
    judged = [shift for _, shift in mined if _judges(shift)]
    unpicked: dict[str, Unpicked] = {}
    images = None
    complete = True
    if judged:
        groups = {shift.group for shift in judged}
        receipts = [receipt for receipt in dataset.receipts if receipt.group in groups]
        tables: list[What] = ["candidates"]
        if recipe.screen.keep_rejected:
            tables.append("rejected")
        if reference is not None:  # fetch from the commit that was opened
            commit = directory.name if _COMMIT.fullmatch(directory.name) else reference.revision
            patterns = [f"{table}/{group}/**" for table in tables for group in sorted(groups)]
            locate_dataset(str(replace(reference, revision=commit)), patterns)
            refuse_unfit(directory)
        files = []
        for receipt in receipts:
            for table in tables:
                file = receipt.file(table)
                if file is not None:
                    files.append(file)
        refuse_changed(changed_files(directory, files))
        unpicked = _unpicked(dataset, receipts, judged)
        dropped: dict[str, int] = {}
        for shift in judged:
            candidates = unpicked[shift.name]
            for row in np.flatnonzero(~candidates.accepted):
                dropped[candidates.keys[row]] = int(candidates.labels[row])
        complete = recipe.screen.keep_rejected or not dropped
        if dropped and complete:
            images = _images(directory, receipts, dropped)
    open_now = set(open_shifts(recipe))
    shifts = []
    for index, shift in mined:
        candidates = unpicked.get(shift.name)
        passed = 0
        of_shift = reasons.get(shift.name, {})
        for reason, count in of_shift.items():
            if before_judges(shift.keep, reason):
                passed += count
        if candidates is not None and len(candidates.keys) != passed:
            raise failure("altered-dataset.counts", directory, shift.name)
        facts = mined_facts(recipe.prompts.shifts[shift.of].mined_from)
        judges = tuple(map(without_folders, _judges(shift)))
        mined_shift = MinedShift(
            index,
            facts,
            shift.name in open_now,
            passed,
            judges,
            shift.accepted if judges else None,
            candidates,
        )
        shifts.append(mined_shift)
    pins = dataset.lock.inputs.get("judges") or {}
    return MinedCandidates(tuple(shifts), images, complete, pins)


def refuse_other_data(
    directory: Path,
    recipe: Recipe,
    mined: MinedCandidates,
    keys: Sequence[str],
) -> None:
    """Raise RunFailure if the accepted candidates are not the images of `data`. keys: the keys of
    all shifts."""
    names = [shift.name for shift in recipe.all_shifts()]
    data_keys = set(keys)
    for shift in mined.shifts:
        if shift.unpicked is None:
            continue
        candidate_keys = np.asarray(shift.unpicked.keys, dtype=object)
        accepted = candidate_keys[shift.unpicked.accepted]
        for key in sorted(accepted):
            if key not in data_keys:
                raise failure("altered-dataset.missing", directory, key)
        for key in candidate_keys[~shift.unpicked.accepted]:
            if key in data_keys:
                shift_name = names[shift.index]
                raise failure("altered-dataset.rejected", directory, key, shift=shift_name)


def _judges(shift: Shift) -> tuple[str, ...]:
    judges = chain.from_iterable(rule.judges() for rule in shift.keep)
    return tuple(dict.fromkeys(judges))


def _unpicked(
    dataset: SoundDataset,
    receipts: Sequence[Receipt],
    judged: Sequence[Shift],
) -> dict[str, Unpicked]:
    """Read the candidates by shift; every row must be a sample of the plan, and unique."""
    directory = dataset.directory
    plan = dataset.plan
    columns = {}
    for shift in judged:
        for judge in _judges(shift):
            columns[judge] = judge_column(judge, RIGHT)
    rules = {shift.name: shift.keep for shift in judged}
    rows: dict[str, list[Mapping[str, Any]]] = {name: [] for name in rules}
    shards = {}
    for shard in plan.shards:
        shards[shard.group, shard.number] = shard
    read_columns = ["reason", *columns.values()]
    form = TableForm.of(dataset.recipe)
    for receipt in receipts:
        shard = shards[receipt.group, receipt.shard]
        for row in planned_rows(
            directory,
            plan,
            shard,
            receipt,
            "candidates",
            read_columns,
            form,
        ):
            name = row["shift"]
            if name in rules and before_judges(rules[name], row["reason"]):
                rows[name].append(row)
    unpicked = {}
    for shift in judged:
        of_shift = rows[shift.name]
        labels = [row["label"] for row in of_shift]
        indices = [row["index"] for row in of_shift]
        accepted = [row["reason"] == ACCEPTED for row in of_shift]
        recorded = {}
        for judge in _judges(shift):
            answers = []
            for row in of_shift:
                answer = row[columns[judge]]
                answers.append(NO_ANSWER if answer is None else int(answer))
            recorded[without_folders(judge)] = np.array(answers, np.int8)
        unpicked[shift.name] = Unpicked(
            keys=tuple(row["key"] for row in of_shift),
            labels=np.array(labels, np.int64),
            indices=np.array(indices, np.int64),
            accepted=np.array(accepted, bool),
            recorded=recorded,
        )
    return unpicked


def stored_images(
    directory: Path,
    receipts: Sequence[Receipt],
    what: What,
    wanted: Collection[str] | None = None,
) -> Iterator[tuple[str, bytes | None]]:
    """Yield (key, encoded image) of the wanted rows of a table, by default all, in the order in
    which they are stored."""
    yielded = 0
    for receipt in receipts:
        for batch in shard_batches(directory, receipt, ["key", "image"], what):
            if wanted is not None and yielded == len(wanted):
                return
            images = batch.column("image")
            keys = batch.column("key").to_pylist()
            for index, key in enumerate(keys):
                if wanted is None or key in wanted:
                    image = images[index].as_py() or {}
                    yield key, image.get("bytes")
                    yielded += 1


def _images(
    directory: Path,
    receipts: Sequence[Receipt],
    labels: Mapping[str, int],
) -> LabelledImages:
    """Return the rejected images of these candidates (key → label), in the order in which they are
    stored."""

    def read(keys: frozenset[str] | None) -> Iterator[tuple[str, bytes | None]]:
        wanted = labels.keys() if keys is None else labels.keys() & keys
        return stored_images(directory, receipts, "rejected", wanted)

    stored = []
    files = []
    for receipt in receipts:
        for row in read_shard(directory, receipt, ["key"], "rejected"):
            if row["key"] in labels:
                stored.append(row["key"])
        file = receipt.file("rejected")
        if file is not None:
            files.append([file.path, file.sha256])
    if sorted(stored) != sorted(labels):
        raise failure("altered-dataset.images", directory)
    of_stored = [labels[key] for key in stored]
    return LabelledImages(
        name=f"candidates of {directory.name}",
        content=sha256_json([files, stored]),
        keys=tuple(stored),
        labels=np.array(of_stored, np.int64),
        groups=np.zeros(len(stored), np.int64),
        group_names=(MINED,),
        read=read,
    )
