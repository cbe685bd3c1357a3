"""Make the dataset card from finished shards alone: README.md, its figures, croissant.json and
eval.yaml.

Equal datasets give equal cards, because a card holds no time, host, path or duration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from counterfoil import __version__
from counterfoil.corrupting.corruptions import SMALL_BELOW
from counterfoil.dataset.card import markdown
from counterfoil.dataset.card.contact_sheets import (
    OVERVIEW,
    Tally,
    contact_sheets,
    sheet_name,
    tally_of,
)
from counterfoil.dataset.card.croissant import croissant_bytes
from counterfoil.dataset.card.markdown import with_marks
from counterfoil.dataset.card.metadata import (
    DATASET_INTERFACES,
    benchmark_file,
    card_metadata,
    classes_are_named,
    configs_of,
    dataset_entry,
    example_group,
    license_for_people,
    pretty_name,
    timm_splits,
)
from counterfoil.dataset.card.sections import (
    adversarial_of,
    asked_texts,
    hash_rows,
    judged_labels,
    known_of,
    lead_drops_of,
    mined_of,
    robustness_of,
    screened_shifts,
    stack_lines,
    statements_of,
)
from counterfoil.dataset.card.tables import (
    corruption_table_rows,
    input_rows,
    reasons_seen,
    threshold_rows,
    yield_rows,
)
from counterfoil.dataset.label_checks import Selection, people_of, with_people
from counterfoil.dataset.reading import other_stacks
from counterfoil.errors import UserError
from counterfoil.generate.screen.thresholds import Thresholds, open_shifts, stored_thresholds
from counterfoil.plan.layout import Plan
from counterfoil.recipe import Recipe
from counterfoil.recipe.prompts import ABOUT_CLASS, words_in_template
from counterfoil.recipe.tasks.task import WholeImages
from counterfoil.report.labels import LabelChecks
from counterfoil.report.results import NESTED
from counterfoil.report.templates import template_environment
from counterfoil.report.words import format_points, in_words, measure_tables, preview_sentence
from counterfoil.store.layout import BENCHMARK, CROISSANT, EVALUATION, FIGURES, REVIEW
from counterfoil.store.manifest import content_of_receipts
from counterfoil.store.receipts import Receipt, preview_images
from counterfoil.store.rows import described_columns
from counterfoil.store.sealed_folder import read_results

TEMPLATE = "dataset-card.md.j2"

# People do not read tables longer than this. The yield table then has one row per group, without
# thresholds by shift.
MOST_ROWS = 100

# What every card says alike.
_CONSTANTS = {
    "most_names": 12,
    "small_below": SMALL_BELOW,
    "results_folder": EVALUATION,
    "review_folder": REVIEW,
    "paper_entry": DATASET_INTERFACES,
    "version": __version__,
}


@dataclass(frozen=True)
class Card:
    """The files of a card."""

    readme: str
    """The text of README.md."""
    figures: Mapping[str, bytes]
    """The figures by file name below `figures/`."""
    croissant: bytes
    """The content of croissant.json."""
    benchmark: bytes | None = None
    """The content of eval.yaml."""

    @property
    def documents(self) -> dict[str, bytes]:
        documents = {CROISSANT: self.croissant}
        if self.benchmark is not None:
            documents[BENCHMARK] = self.benchmark
        return documents


def make_card(
    directory: Path,
    plan: Plan,
    lock: Mapping[str, Any],
    receipts: Sequence[Receipt],
) -> Card:
    """Make the card of a dataset directory whose shards are all done; `lock` is the content of
    lock.json.

    Reads candidates once, without images, and only the images shown. RunFailure, with the file, for
    shards or thresholds that this version did not write, since anyone may have made them.
    """
    recipe = plan.recipe
    tally = tally_of(directory, plan, receipts)
    figures = dict(contact_sheets(directory, plan, receipts, tally))
    page = card_page(directory, plan, lock, receipts, tally, figures.keys())
    croissant = croissant_bytes(directory, page)
    benchmark = benchmark_file(recipe, receipts, page["images"])
    return Card(card_text(page), figures, croissant, benchmark)


def card_text(page: Mapping[str, Any]) -> str:
    """Return the text of README.md that shows a page of `card_page`."""
    filters = {
        "prose": markdown.prose,
        "inline": markdown.inline,
        "code": markdown.code,
        "cell": markdown.code_cell,
        "fenced": markdown.fenced,
        "address": markdown.address,
        "license": license_for_people,
        "table": markdown.markdown_table,
        "number": "{:,}".format,
        "points": format_points,
        "percent": lambda fraction: f"{100 * fraction:.1f} %",
        "in_words": in_words,
    }
    template = template_environment(TEMPLATE, filters, markdown=True).get_template(TEMPLATE)
    return with_marks(template.render({**_CONSTANTS, **page}))


def card_page(
    directory: Path,
    plan: Plan,
    lock: Mapping[str, Any],
    receipts: Sequence[Receipt],
    tally: Tally,
    figures: Set[str],
) -> dict[str, Any]:
    """Return what README.md shows, before any of it is Markdown, by the names that templates read.

    figures: the names of the contact sheets. Raises as `make_card`.
    """
    recipe = plan.recipe
    lock_inputs = lock.get("inputs", {})
    shifts = recipe.all_shifts()
    stored = stored_thresholds(directory) or Thresholds({}, {})
    thresholds = threshold_rows(recipe, stored.document())
    rows = yield_rows(recipe, receipts, tally, MOST_ROWS, stored.document())
    images = sum(row.accepted for row in rows)
    candidates = sum(row.candidates for row in rows)
    inputs = input_rows(recipe, lock_inputs)
    content = content_of_receipts(receipts)
    reviewed, unread_review = Selection.of_dataset(directory, content)
    labels = judged_labels(recipe, lock_inputs, tally, MOST_ROWS)
    checks = with_people(labels[0], people_of(reviewed))
    looked_at = []
    if reviewed:
        names = {shift.name for shift in shifts}
        looked_at = [shift for shift in reviewed.shifts if shift.name in names]
    known, doubts = known_of(recipe, stored)
    statements, its = statements_of(
        recipe, inputs, images, candidates, doubts, looked_at=bool(looked_at)
    )
    words = set()
    for shift in shifts:
        words.update(words_in_template(shift.prompt), words_in_template(shift.object_caption))
    return {
        "recipe": recipe,
        "preview": preview_sentence(preview_images(recipe, receipts)),
        "title": pretty_name(recipe.name),
        "images": images,
        "candidates": candidates,
        # A row for each shift, or for each group.
        "rows": rows,
        "by_group": len(shifts) > MOST_ROWS,
        "reasons": reasons_seen(rows),
        "columns": described_columns("rejected", recipe),
        "open_shifts": open_shifts(recipe),
        "few_images": stored.few_images(),
        "screened": screened_shifts(recipe),
        "known": known,
        "doubts": doubts,
        "thresholds": thresholds if len(thresholds) <= MOST_ROWS else (),
        "inputs": inputs,
        "hashes": hash_rows(lock),
        "stack": stack_lines(lock),
        # Differences of stacks, and how many shards have them.
        "mixed": other_stacks(lock.get("stack", {}), receipts),
        # Sentences of every dataset, and of its kind of generator.
        "said": statements,
        "its": its,
        "about_class": [f"`{{{word}}}`" for word in ABOUT_CLASS if word in words],
        "corruptions": corruption_table_rows(recipe),
        "labels": labels,
        "asked": asked_texts(recipe),
        "adversarial": adversarial_of(recipe, receipts, MOST_ROWS),
        "mined": mined_of(recipe, MOST_ROWS),
        "reviewed": reviewed,
        # Shifts that people reviewed.
        "looked_at": looked_at,
        # What is wrong with a folder that is not shown.
        "unread_review": unread_review,
        "dataset_entry": dataset_entry(recipe, plan.hash, __version__),
        "recipe_yaml": recipe.portable_yaml,
        **_pictured(recipe, figures),
        **_loaded(plan, receipts, images),
        **_measured(directory, recipe, content, checks),
    }


def _pictured(recipe: Recipe, figures: Set[str]) -> dict[str, Any]:
    """Return the paths of the figures; `sheets` are the shift and the path of each contact sheet."""
    sheets = []
    for shift in recipe.all_shifts():
        sheet = sheet_name(shift.name)
        if sheet in figures:
            sheets.append((shift.name, f"{FIGURES}/{sheet}"))
    overview = f"{FIGURES}/{OVERVIEW}" if OVERVIEW in figures else None
    return {"overview": overview, "sheets": sheets}


def _loaded(plan: Plan, receipts: Sequence[Receipt], images: int) -> dict[str, Any]:
    """Return what the card says of loading the dataset, and its metadata for that."""
    recipe = plan.recipe
    configs = configs_of(plan, receipts)
    with_images = [config.name for config in configs if config.what == "data"]
    return {
        "metadata": card_metadata(recipe, configs, images).to_yaml(),
        "configs": configs,
        "empty_groups": [group for group in plan.groups if group not in with_images],
        # Whether a config lacks the names of classes.
        "unnamed": not all(classes_are_named(config, configs, recipe) for config in configs),
        # The group that code examples load.
        "example": example_group(plan, receipts),
        "timm_splits": timm_splits(receipts) if recipe.output.format == "webdataset" else {},
    }


def _measured(
    directory: Path,
    recipe: Recipe,
    content: str,
    checks: LabelChecks | None,
) -> dict[str, Any]:
    """Return what the card shows of an evaluation of this content, or why it shows none."""
    nested = []
    warnings = []
    page: dict[str, Any] = {
        "results": None,
        "unread": None,
        "robustness": None,
        "lead_drops": None,
        "measures": (),
        # Those of nested measures.
        "sections": nested,
        "warnings": warnings,
    }
    try:
        results = read_results(directory, content)
    except UserError as error:
        page["unread"] = error.problems[0]
        return page
    if results is None:
        return page
    results = replace(results, label_checks=checks)
    for shown in NESTED.values():
        section = shown.card(results)
        if section is not None:
            nested.append(section)
            warnings += section.warnings
    if results.lead == "accuracy":
        page["robustness"] = robustness_of(results)
    elif isinstance(recipe.task, WholeImages):
        page["lead_drops"] = lead_drops_of(results, recipe.task)
    return page | {"results": results, "measures": measure_tables(results, "card")}
