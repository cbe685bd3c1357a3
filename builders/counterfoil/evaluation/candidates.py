"""The candidates of mined shifts that passed the screen, before a classifier's rule selects among
them.

Such a rule keeps failures, so a finding's failure rate is over all these candidates, never over the
images kept. If no rule uses a classifier, the candidates are the accepted images, and nothing else
is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.arrays import Bools, Ints
from counterfoil.data.hub import HubDataset, locate_dataset
from counterfoil.data.labelled_images import LabelledImages
from counterfoil.documents import sha256_json
from counterfoil.errors import RunFailure
from counterfoil.generate.screen.thresholds import open_shifts
from counterfoil.recipe import Recipe, Shift
from counterfoil.recipe.keep.cells import ACCEPTED, before_judges
from counterfoil.recipe.keep.misclassified import RIGHT
from counterfoil.recipe.names import judge_column, without_folders
from counterfoil.recipe.schema_mine import MinedFacts, mined_facts
from counterfoil.store.inside import refuse_unfit
from counterfoil.store.layout import What
from counterfoil.store.manifest import VERIFY, changed_files, refuse_changed
from counterfoil.store.reading import planned_rows, read_shard, shard_batches
from counterfoil.store.receipts import Receipt
from counterfoil.store.rows import TableForm

if TYPE_CHECKING:
    from counterfoil.dataset.reading import SoundDataset

MINED = "mined"
_COMMIT = re.compile(r"[0-9a-f]{40}")
# A judge's recorded answer: wrong, right, or none.
WRONG = 0
IS_RIGHT = 1
NO_ANSWER = -1


@dataclass(frozen=True)
class Unpicked:
    """All n candidates of a shift that a classifier's rule could choose from, in the plan's order.

    accepted: (n,) bool, whether the candidate is an image of the dataset. recorded: judge → (n,)
    int8, the answers that the build recorded.
    """

    keys: tuple[str, ...]
    labels: Ints
    indices: Ints
    accepted: Bools
    recorded: Mapping[str, NDArray[np.int8]]


@dataclass(frozen=True)
class MinedShift:
    """A shift of kind `mined`: its index among the groups, its source, and the number of screened
    candidates.

    judges: names without folders of the classifiers that its rules use. quota: the number of kept
    images at which the drawing of a cell ends, if there is one. unpicked: None without judges; then
    the accepted images are measured.
    """

    index: int
    facts: MinedFacts
    open: bool
    screened: int
    judges: tuple[str, ...] = ()
    quota: int | None = None
    unpicked: Unpicked | None = None


@dataclass(frozen=True)
class MinedCandidates:
    """The mined shifts of a dataset. images: the stored images of unpicked candidates that were not
    accepted.

    complete: whether each such candidate has its image stored. pins: the judges' pins in the lock,
    by name.
    """

    shifts: tuple[MinedShift, ...] = ()
    images: LabelledImages | None = None
    complete: bool = True
    pins: Mapping[str, Any] = field(default_factory=dict)


def read_mined(
    dataset: SoundDataset, reasons: Mapping[str, Mapping[str, int]], reference: HubDataset | None
) -> MinedCandidates:
    """Return the mined shifts of a finished dataset.

    reasons: counts from its receipts. reference: the dataset on the Hub that it is a copy of. Raise
    RunFailure if candidates differ from their receipts or are not in the plan.
    """
    recipe = dataset.recipe
    directory = dataset.directory
    mined = [
        (index, shift)
        for index, shift in enumerate(recipe.all_shifts())
        if shift.kind == MINED and shift.top
    ]
    judged = [shift for _, shift in mined if _judges(shift)]
    unpicked: dict[str, Unpicked] = {}
    images = None
    complete = True
    if judged:
        groups = {shift.group for shift in judged}
        receipts = [receipt for receipt in dataset.receipts if receipt.group in groups]
        tables: tuple[What, ...] = (
            ("candidates", "rejected") if recipe.screen.keep_rejected else ("candidates",)
        )
        if reference is not None:  # fetch from the commit that was opened
            commit = directory.name if _COMMIT.fullmatch(directory.name) else reference.revision
            patterns = [f"{table}/{group}/**" for table in tables for group in sorted(groups)]
            locate_dataset(str(replace(reference, revision=commit)), patterns)
            refuse_unfit(directory)
        files = [
            file
            for receipt in receipts
            for table in tables
            if (file := receipt.file(table)) is not None
        ]
        refuse_changed(directory, changed_files(directory, files))
        unpicked = _unpicked(dataset, receipts, judged)
        of_judged = [unpicked[shift.name] for shift in judged]
        dropped = [
            (candidates.keys[at], int(candidates.labels[at]))
            for candidates in of_judged
            for at in np.flatnonzero(~candidates.accepted)
        ]
        complete = recipe.screen.keep_rejected or not dropped
        if dropped and complete:
            images = _images(directory, receipts, dropped)
    open_now = set(open_shifts(recipe))
    shifts = []
    for index, shift in mined:
        candidates = unpicked.get(shift.name)
        passed = sum(
            n for why, n in reasons.get(shift.name, {}).items() if before_judges(shift.keep, why)
        )
        if candidates is not None and len(candidates.keys) != passed:
            raise RunFailure(
                f"{directory}: the candidates of {shift.name} do not match the counts in its"
                " receipts",
                VERIFY,
            )
        facts = mined_facts(recipe.prompts.shifts[shift.of].mined_from)
        judges = tuple(map(without_folders, _judges(shift)))
        quota = shift.accepted if judges else None
        shifts.append(
            MinedShift(index, facts, shift.name in open_now, passed, judges, quota, candidates)
        )
    return MinedCandidates(tuple(shifts), images, complete, dataset.lock.inputs.get("judges") or {})


def refuse_other_data(
    directory: Path, recipe: Recipe, mined: MinedCandidates, keys: Sequence[str]
) -> None:
    """Raise RunFailure if the accepted candidates are not the images of `data`. keys: the keys of
    all shifts."""
    names = [shift.name for shift in recipe.all_shifts()]
    data_keys = set(keys)
    for shift in mined.shifts:
        if shift.unpicked is None:
            continue
        candidate_keys = np.asarray(shift.unpicked.keys, dtype=object)
        accepted = set(candidate_keys[shift.unpicked.accepted].tolist())
        missing = next((key for key in sorted(accepted) if key not in data_keys), None)
        if missing is not None:
            raise RunFailure(
                f"{directory}: {missing} is accepted in candidates but missing in data", VERIFY
            )
        refused = next(
            (key for key in candidate_keys[~shift.unpicked.accepted].tolist() if key in data_keys),
            None,
        )
        if refused is not None:
            of_shift = f"the candidates of {names[shift.index]}"
            raise RunFailure(f"{directory}: data has {refused}, which {of_shift} reject", VERIFY)


def _judges(shift: Shift) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for rule in shift.keep for name in rule.judges()))


def _unpicked(
    dataset: SoundDataset, receipts: Sequence[Receipt], judged: Sequence[Shift]
) -> dict[str, Unpicked]:
    """Read the candidates by shift; every row must be a sample of the plan, and unique."""
    directory = dataset.directory
    plan = dataset.plan
    recipe = dataset.recipe
    judges = {shift.name: _judges(shift) for shift in judged}
    columns = {
        name: judge_column(name, RIGHT) for shift_judges in judges.values() for name in shift_judges
    }
    rules = {shift.name: shift.keep for shift in judged}
    rows: dict[str, list[tuple[Any, ...]]] = {shift.name: [] for shift in judged}
    shards = {(shard.group, shard.number): shard for shard in plan.shards}
    read_columns = ["reason", *columns.values()]
    form = TableForm.of(recipe)
    for receipt in receipts:
        shard = shards[receipt.group, receipt.shard]
        for row in planned_rows(directory, plan, shard, receipt, "candidates", read_columns, form):
            name = row["shift"]
            if name in rules and before_judges(rules[name], row["reason"]):
                answers = (row[columns[judge]] for judge in judges[name])
                rows[name].append(
                    (row["key"], row["label"], row["index"], row["reason"] == ACCEPTED, *answers)
                )
    unpicked = {}
    for name, candidate_rows in rows.items():
        recorded = {}
        for at, judge in enumerate(judges[name], start=4):
            answered = []
            for row in candidate_rows:
                answered.append(NO_ANSWER if row[at] is None else int(row[at]))
            recorded[without_folders(judge)] = np.array(answered, np.int8)
        unpicked[name] = Unpicked(
            keys=tuple(row[0] for row in candidate_rows),
            labels=np.array([row[1] for row in candidate_rows], np.int64),
            indices=np.array([row[2] for row in candidate_rows], np.int64),
            accepted=np.array([row[3] for row in candidate_rows], bool),
            recorded=recorded,
        )
    return unpicked


def _images(
    directory: Path, receipts: Sequence[Receipt], dropped: Sequence[tuple[str, int]]
) -> LabelledImages:
    """Return the rejected images of these candidates, in the order in which they are stored."""
    labels = dict(dropped)

    def read(keys: frozenset[str] | None) -> Iterator[tuple[str, bytes | None]]:
        for receipt in receipts:
            for batch in shard_batches(directory, receipt, ["key", "image"], "rejected"):
                images = batch.column("image")
                for position, key in enumerate(batch.column("key").to_pylist()):
                    if key in labels and (keys is None or key in keys):
                        yield key, (images[position].as_py() or {}).get("bytes")

    stored = [
        row["key"]
        for receipt in receipts
        for row in read_shard(directory, receipt, ["key"], "rejected")
        if row["key"] in labels
    ]
    if sorted(stored) != sorted(labels):
        raise RunFailure(
            f"{directory}: rejected does not hold the image of each rejected candidate exactly once",
            VERIFY,
        )
    files = [
        [file.path, file.sha256]
        for receipt in receipts
        if (file := receipt.file("rejected")) is not None
    ]
    return LabelledImages(
        name=f"candidates of {directory.name}",
        content=sha256_json([files, stored]),
        keys=tuple(stored),
        labels=np.array([labels[key] for key in stored], np.int64),
        groups=np.zeros(len(stored), np.int64),
        group_names=(MINED,),
        read=read,
    )
