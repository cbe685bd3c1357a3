"""The candidates of mined shifts that passed the screen, as they were before a classifier's rule took its pick.

What such a rule keeps are failures, so the rate of a finding is over every candidate that the rules before it let
through. Where no rule asks a classifier, these are the accepted images, and nothing more is read.

Over what such a rule kept no rate is ever given: it is for transfer alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.data import LabelledImages
from counterfoil.data.hub import HubDataset, locate_dataset
from counterfoil.dataset.standing import SoundDataset
from counterfoil.errors import RunFailure
from counterfoil.generate.screen import open_shifts
from counterfoil.recipe import Recipe, Shift, sha256_json
from counterfoil.recipe.keep import ACCEPTED, before_judges
from counterfoil.recipe.keep.misclassified import RIGHT, judge_column
from counterfoil.recipe.names import without_folders
from counterfoil.recipe.schema_mine import MinedFacts, mined_facts
from counterfoil.store import Receipt
from counterfoil.store.inside import refuse_unfit
from counterfoil.store.layout import What
from counterfoil.store.manifest import VERIFY, changed_files, refuse_changed
from counterfoil.store.reading import planned_rows, read_shard, shard_batches
from counterfoil.store.rows import TableForm

MINED = "mined"
_COMMIT = re.compile(r"[0-9a-f]{40}")
# What a judge is recorded to have answered: wrong, right, nothing.
WRONG, IS_RIGHT, NO_ANSWER = 0, 1, -1


@dataclass(frozen=True)
class Unpicked:
    """All n candidates of a shift that a classifier's rule could choose from, in the plan's order.

    accepted: (n,) bool, whether it is an image of the dataset. recorded: by judge, (n,) int8: what it is recorded to
    have answered in the build.
    """

    keys: tuple[str, ...]
    labels: NDArray[np.int64]
    indices: NDArray[np.int64]
    accepted: NDArray[np.bool_]
    recorded: Mapping[str, NDArray[np.int8]]


@dataclass(frozen=True)
class MinedShift:
    """A shift of kind `mined`: its place among the groups, what it came from, and what became of its candidates.

    screened: how many candidates passed the screen, before a classifier's rule. judges: the classifiers that its rules
    ask, by names without folders. quota: how many images that these let through end the drawing of a cell, where so.
    unpicked: None where no judge is asked, so that accepted images are what is measured.
    """

    place: int
    facts: MinedFacts
    open: bool
    screened: int
    judges: tuple[str, ...] = ()
    quota: int | None = None
    unpicked: Unpicked | None = None


@dataclass(frozen=True)
class MinedCandidates:
    """The mined shifts of a dataset. `images` are the stored ones of all unpicked candidates that were not accepted.

    complete: whether each such candidate has its image there. pins: what the lock says of the judges, by name.
    """

    shifts: tuple[MinedShift, ...] = ()
    images: LabelledImages | None = None
    complete: bool = True
    pins: Mapping[str, Any] = field(default_factory=dict)


def read_mined(
    dataset: SoundDataset, reasons: Mapping[str, Mapping[str, int]], reference: HubDataset | None
) -> MinedCandidates:
    """Return the mined shifts of a finished dataset. reasons: counts of its receipts; reference: what it is a copy of.

    Raise RunFailure for candidates that differ from their receipts, or that are no samples of the plan.
    """
    recipe, directory = dataset.recipe, dataset.directory
    mined = [(index, shift) for index, shift in enumerate(recipe.all_shifts()) if shift.kind == MINED and shift.top]
    judged = [shift for _, shift in mined if _judges(shift)]
    found: dict[str, Unpicked] = {}
    images, complete = None, True
    if judged:
        groups = {shift.group for shift in judged}
        receipts = [receipt for receipt in dataset.receipts if receipt.group in groups]
        tables: tuple[What, ...] = ("candidates", "rejected") if recipe.screen.keep_rejected else ("candidates",)
        if reference is not None:  # of the very commit that was opened
            commit = directory.name if _COMMIT.fullmatch(directory.name) else reference.revision
            patterns = [f"{table}/{group}/**" for table in tables for group in sorted(groups)]
            locate_dataset(str(replace(reference, revision=commit)), patterns)
            refuse_unfit(directory)
        files = [file for receipt in receipts for table in tables if (file := receipt.file(table)) is not None]
        refuse_changed(directory, changed_files(directory, files))
        found = _unpicked(dataset, receipts, judged)
        of_judged = [found[shift.name] for shift in judged]
        dropped = [(one.keys[at], int(one.labels[at])) for one in of_judged for at in np.flatnonzero(~one.accepted)]
        complete = recipe.screen.keep_rejected or not dropped
        if dropped and complete:
            images = _images(directory, receipts, dropped)
    open_now = set(open_shifts(recipe))
    shifts = []
    for place, shift in mined:
        own = found.get(shift.name)
        passed = sum(n for why, n in reasons.get(shift.name, {}).items() if before_judges(shift.keep, why))
        if own is not None and len(own.keys) != passed:
            raise RunFailure(
                f"{directory}: the candidates of {shift.name} do not match the counts in its receipts", VERIFY
            )
        facts = mined_facts(recipe.prompts.shifts[shift.of].mined_from)
        judges = tuple(map(without_folders, _judges(shift)))
        quota = shift.accepted if judges else None
        shifts.append(MinedShift(place, facts, shift.name in open_now, passed, judges, quota, own))
    return MinedCandidates(tuple(shifts), images, complete, dataset.lock.inputs.get("judges") or {})


def refuse_other_data(directory: Path, recipe: Recipe, mined: MinedCandidates, keys: Sequence[str]) -> None:
    """Raise RunFailure if candidates accept others than the images that `data` has: `keys`, of all shifts."""
    if all(shift.unpicked is None for shift in mined.shifts):
        return
    names = [shift.name for shift in recipe.all_shifts()]
    there = set(keys)
    for shift in mined.shifts:
        if shift.unpicked is None:
            continue
        own = np.asarray(shift.unpicked.keys, dtype=object)
        accepted = set(own[shift.unpicked.accepted].tolist())
        missing = next((key for key in sorted(accepted) if key not in there), None)
        if missing is not None:
            raise RunFailure(f"{directory}: {missing} is accepted in candidates but missing in data", VERIFY)
        refused = next((key for key in own[~shift.unpicked.accepted].tolist() if key in there), None)
        if refused is not None:
            of_shift = f"the candidates of {names[shift.place]}"
            raise RunFailure(f"{directory}: data has {refused}, which {of_shift} reject", VERIFY)


def _judges(shift: Shift) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for rule in shift.keep for name in rule.judges()))


def _unpicked(dataset: SoundDataset, receipts: Sequence[Receipt], judged: Sequence[Shift]) -> dict[str, Unpicked]:
    """Read the candidates by shift; every row is a sample of the plan, and none stands there twice."""
    directory, plan, recipe = dataset.directory, dataset.plan, dataset.recipe
    judges = {shift.name: _judges(shift) for shift in judged}
    columns = {name: judge_column(name, RIGHT) for asked in judges.values() for name in asked}
    rules = {shift.name: shift.keep for shift in judged}
    rows: dict[str, list[tuple[Any, ...]]] = {shift.name: [] for shift in judged}
    shards = {(shard.group, shard.number): shard for shard in plan.shards}
    asked, form = ["reason", *columns.values()], TableForm.of(recipe)
    for receipt in receipts:
        shard = shards[receipt.group, receipt.shard]
        for row in planned_rows(directory, plan, shard, receipt, "candidates", asked, form):
            name = row["shift"]
            if name in rules and before_judges(rules[name], row["reason"]):
                answers = (row[columns[judge]] for judge in judges[name])
                rows[name].append((row["key"], row["label"], row["index"], row["reason"] == ACCEPTED, *answers))
    unpicked = {}
    for name, found in rows.items():
        recorded = {}
        for at, judge in enumerate(judges[name], start=4):
            answered = [NO_ANSWER if row[at] is None else int(row[at]) for row in found]
            recorded[without_folders(judge)] = np.array(answered, np.int8)
        unpicked[name] = Unpicked(
            keys=tuple(row[0] for row in found),
            labels=np.array([row[1] for row in found], np.int64),
            indices=np.array([row[2] for row in found], np.int64),
            accepted=np.array([row[3] for row in found], bool),
            recorded=recorded,
        )
    return unpicked


def _images(directory: Path, receipts: Sequence[Receipt], dropped: Sequence[tuple[str, int]]) -> LabelledImages:
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
            f"{directory}: rejected does not hold the image of each rejected candidate exactly once", VERIFY
        )
    files = [[file.path, file.sha256] for receipt in receipts if (file := receipt.file("rejected")) is not None]
    return LabelledImages(
        name=f"candidates of {directory.name}",
        content=sha256_json([files, stored]),
        keys=tuple(stored),
        labels=np.array([labels[key] for key in stored], np.int64),
        groups=np.zeros(len(stored), np.int64),
        group_names=(MINED,),
        read=read,
    )
