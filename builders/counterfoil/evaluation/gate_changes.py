"""Changes since an earlier evaluation, for the comment of a pull request: each judged model's
accuracy and drops before and now, and how many images are newly wrong and newly right.

If the earlier answers to each image are known, a change is paired by image and has an interval.
Results that are stored in a dataset have no answers: only the numbers stand beside each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from counterfoil.dataset.card.markdown import code, markdown_table
from counterfoil.errors import UserError, some_of
from counterfoil.evaluation.scored_models import with_public_names
from counterfoil.report.results import DROP, ModelFacts, Results
from counterfoil.report.words import (
    Table,
    TableCell,
    TableColumn,
    count_cell,
    format_count,
    points_cell,
)
from counterfoil.resampled_stats import Number, joint_reach
from counterfoil.store.sealed_folder import EVALUATED, read_results

if TYPE_CHECKING:
    from counterfoil.evaluation.gate import GateResult
    from counterfoil.evaluation.task import Task


@dataclass(frozen=True)
class Changed:
    """A number of one group, of the same images before and now."""

    before: float
    now: float
    difference: Number
    """`now` less `before`, resampled."""


@dataclass(frozen=True)
class GroupChange:
    """A model in one group, compared with an earlier model or with its own earlier answers."""

    group: str
    share: Changed
    """The measure that leads."""
    drop: Changed | None
    """Its drop; None for the base, and where a drop says nothing."""
    images: int
    newly_wrong: int
    newly_right: int
    over: str = ""
    """Over how many classes the drop is; empty for a drop over all of them."""


def changes_markdown(task: Task, results: Results, gate: GateResult) -> str:
    """Return what changed since each model or evaluation that a line compares with, or else since
    the results that the dataset stores; empty if there are none."""
    earlier = dict.fromkeys(judged.line.other_model for judged in gate.judged)
    comparing = task.comparing(results)
    parts = []
    for model in gate.models:
        for name in filter(None, earlier):
            changes = list(comparing.changes(name, model))
            if changes:
                parts.append(_paired(results.lead, model, name, changes))
    if not parts:
        parts = list(_beside_stored(task, results, gate.models))
    if not parts:
        return ""
    return "\n\n".join(["#### What changed", *parts])


def _paired(lead: str, model: str, name: str, changes: Sequence[GroupChange]) -> str:
    """Return a sentence that counts images, and a table with a row for each group."""
    differences = []
    for change in changes:
        differences.append(change.share.difference)
        if change.drop is not None:
            differences.append(change.drop.difference)
    reach = joint_reach(differences)

    def cells_of(changed: Changed | None) -> tuple[TableCell, ...]:
        if changed is None:
            return (points_cell(None),) * 3
        difference = points_cell(changed.difference.interval(reach), signed=True)
        return points_cell(changed.before), points_cell(changed.now), difference

    rows = []
    for change in changes:
        counts = count_cell(change.newly_wrong), count_cell(change.newly_right)
        drop_before, *drop = cells_of(change.drop)
        drop_before = replace(drop_before, below=change.over)
        group = TableCell(change.group)
        rows.append((group, *cells_of(change.share), drop_before, *drop, *counts))
    columns = (
        TableColumn("group", "shift"),
        f"{lead} before",
        "now",
        "change",
        "drop before",
        "drop now",
        "change of drop",
        "newly wrong",
        "newly right",
    )
    images = sum(change.images for change in changes)
    wrong = sum(change.newly_wrong for change in changes)
    right = sum(change.newly_right for change in changes)
    sentence = (
        f"{code(model)} since {code(name)}: of {format_count(images, 'image')}, {wrong:,} newly"
        f" wrong and {right:,} newly right. Changes are paired by image; their 95 % intervals hold"
        " for all rows at once."
    )
    table = Table.of("", columns, rows).without_empty()
    return f"{sentence}\n\n{markdown_table(table)}"


def _beside_stored(task: Task, results: Results, models: Sequence[str]) -> Iterator[str]:
    """Yield for each model its numbers beside those that the dataset stores of it, or of its only
    model; or a sentence that says why there are none."""
    subject = task.subject
    if subject.directory is None:
        return
    nothing = f"Nothing is compared with the results that the dataset stores ({EVALUATED.path}):"
    try:
        stored = read_results(subject.directory, subject.content)
    except UserError:
        yield f"{nothing} this version of Counterfoil does not read them."
        return
    if stored is None:
        return
    if stored.lead != results.lead:
        yield f"{nothing} they measure {stored.lead}, and these {results.lead}."
        return
    by_name = {facts.name: facts for facts in stored.models}
    public = with_public_names(results)
    public_names = {}
    for facts, public_facts in zip(results.models, public.models, strict=True):
        public_names[facts.name] = public_facts.name
    for model in models:
        earlier = by_name.get(public_names[model])
        if earlier is None and len(stored.models) == 1:
            earlier = stored.models[0]
        if earlier is not None:
            yield _unpaired(results, model, stored, earlier)
        else:
            known = [code(name) for name in by_name]
            yield (
                f"The dataset stores no results of {code(model)}, so nothing is compared with them"
                f" ({EVALUATED.path}: {some_of(known, 3)})."
            )


def _unpaired(results: Results, model: str, stored: Results, facts: ModelFacts) -> str:
    """Return both results of a model, group by group, and why their differences have no
    interval."""

    def cells_of(numbers: Results, name: str, group: str) -> tuple[TableCell, TableCell]:
        key = {"model": name, "group": group}
        share = numbers.rows.estimate(numbers.lead, **key)
        of_lead = "" if numbers.lead == "accuracy" else numbers.lead
        drop = numbers.rows.one(DROP, at=of_lead, **key)
        if drop is None:
            return points_cell(share), points_cell(None)
        drop_cell = points_cell(drop.estimate)
        if drop.note:
            drop_cell = replace(drop_cell, below=f"{drop_cell.below}; {drop.note}")
        return points_cell(share), drop_cell

    rows = []
    for group in results.groups:
        share_before, drop_before = cells_of(stored, facts.name, group.name)
        share_now, drop_now = cells_of(results, model, group.name)
        cells = (TableCell(group.name), share_before, share_now, drop_before, drop_now)
        rows.append(cells)
    columns = (
        TableColumn("group", "shift"),
        f"{results.lead} before",
        "now",
        "drop before",
        "drop now",
    )
    sentence = (
        f"{code(model)} since {code(facts.name)}, as stored in the dataset ({EVALUATED.path})."
        " Not paired: the dataset keeps no answers, so a change has no interval."
    )
    table = Table.of("", columns, rows).without_empty()
    return f"{sentence}\n\n{markdown_table(table)}"
