"""The dataset card, from the finished shards and nothing else: README.md, its figures, croissant.json and eval.yaml.

Equal datasets give equal cards: a card holds no clock, host, path or duration.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterfoil import __version__
from counterfoil.dataset.card import markdown
from counterfoil.dataset.card.contact_sheets import OVERVIEW, contact_sheets, sheet_name, tally_of
from counterfoil.dataset.card.croissant import croissant_bytes
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
    hash_rows,
    known_of,
    labels_of,
    mined_of,
    robustness_of,
    stack_lines,
)
from counterfoil.dataset.card.statements import screened_shifts, statements_of
from counterfoil.dataset.card.tables import (
    corruption_rows,
    input_rows,
    reasons_seen,
    threshold_rows,
    yield_rows,
)
from counterfoil.dataset.label_checks import Selection
from counterfoil.documents import differences
from counterfoil.errors import UserError
from counterfoil.generate.corruptions import SMALL_BELOW
from counterfoil.generate.screen import Thresholds, open_shifts, stored_thresholds
from counterfoil.recipe.prompts import ABOUT_CLASS, uses
from counterfoil.report.distances import WORTH, about_bias, distances_table, how_measured
from counterfoil.report.results import Results
from counterfoil.report.templates import template_environment
from counterfoil.report.transfer import MOST_JUDGES, found_words, kept_words, transfer_tables
from counterfoil.report.words import Table, in_words, measure_tables, points
from counterfoil.store.layout import BENCHMARK, CROISSANT, EVALUATION, FIGURES, REVIEW
from counterfoil.store.manifest import content_of_receipts
from counterfoil.store.rows import described_columns
from counterfoil.store.sealed_folder import RESULTS, REVIEWED, read_results

if TYPE_CHECKING:
    from counterfoil.plan import Plan
    from counterfoil.recipe import Recipe
    from counterfoil.store import Receipt

TEMPLATE = "dataset-card.md.j2"

# A table longer than this is not read: a yield table then has a row a group, and no thresholds by shift.
MOST_ROWS = 100
MOST_NAMES = 12
_MOST_MODELS = 20  # of a table of transfer
_MOST_DISTANCES = 4  # models of features


@dataclass(frozen=True)
class Card:
    """The text of README.md, figures by file name below `figures/`, the content of croissant.json and of eval.yaml."""

    readme: str
    figures: Mapping[str, bytes]
    croissant: bytes
    benchmark: bytes | None = None

    @property
    def documents(self) -> dict[str, bytes]:
        """What lies beside the card, by file name."""
        return {CROISSANT: self.croissant} | ({} if self.benchmark is None else {BENCHMARK: self.benchmark})


def make_card(directory: Path | str, plan: Plan, lock: Mapping[str, Any], receipts: Sequence[Receipt]) -> Card:
    """The card of a dataset directory whose shards are all done.

    `lock` is the content of lock.json. Reads candidates once, without images, and only the images shown. RunFailure,
    with the file, where shards or thresholds are not as they are written: they may have come from anybody.
    """
    directory = Path(directory)
    recipe = plan.recipe
    tally = tally_of(directory, plan, receipts)
    figures = dict(contact_sheets(directory, plan, receipts, tally))
    configs = configs_of(plan, receipts)
    stored = stored_thresholds(directory) or Thresholds({}, {})
    resolved = stored.document()
    rows = yield_rows(recipe, receipts, tally, MOST_ROWS, resolved)
    images = sum(row.accepted for row in rows)
    with_images = [config.name for config in configs if config.what == "data"]
    thresholds = threshold_rows(recipe, resolved)
    inputs = input_rows(recipe, lock.get("inputs", {}))
    candidates = sum(row.candidates for row in rows)
    content = content_of_receipts(receipts)
    results, unread = _results(directory, content)
    reviewed, unread_review = Selection.of_dataset(directory, content)
    known_shifts = {shift.name for shift in recipe.all_shifts()}
    looked_at = [one for one in reviewed.shifts if one.name in known_shifts] if reviewed else []
    known, doubts = known_of(recipe, stored)
    statements, its = statements_of(recipe, inputs, images, candidates, doubts, looked_at=bool(looked_at))
    citation = dataset_entry(recipe, plan.hash, __version__)
    text = (
        _environment()
        .get_template(TEMPLATE)
        .render(
            metadata=card_metadata(recipe, configs, images).to_yaml(),
            recipe=recipe,
            title=pretty_name(recipe.name),
            images=images,
            candidates=candidates,
            shifts=recipe.all_shifts(),
            rows=rows,
            reasons=reasons_seen(rows),
            by_group=len(recipe.all_shifts()) > MOST_ROWS,
            empty_groups=[group for group in plan.groups if group not in with_images],
            configs=configs,
            columns=described_columns("rejected", recipe),
            unnamed=[config.name for config in configs if not classes_are_named(config, configs, recipe)],
            open_shifts=open_shifts(recipe),
            few_images=stored.few_images(),
            screened=screened_shifts(recipe),
            known=known,
            doubts=doubts,
            thresholds=thresholds if len(thresholds) <= MOST_ROWS else (),
            inputs=inputs,
            hashes=hash_rows(lock),
            stack=stack_lines(lock),
            said=statements,
            its=its,
            about_class=_about_class(recipe),
            corruptions=corruption_rows(recipe),
            small_below=SMALL_BELOW,
            results=results,
            unread=unread,
            unread_review=unread_review,
            robustness=robustness_of(results) if results is not None else None,
            distances=[
                (distances_table(one, results.rows), how_measured(one), about_bias(one))
                for one in results.distances[:_MOST_DISTANCES]
            ]
            if results is not None
            else [],
            distances_worth=WORTH,
            mined=mined_of(recipe, MOST_ROWS),
            labels=labels_of(recipe, lock.get("inputs", {}), tally, MOST_ROWS),
            adversarial=adversarial_of(recipe, receipts, MOST_ROWS),
            transfer=_transfer(results),
            measures=measure_tables(results, "card") if results is not None else (),
            results_folder=EVALUATION,
            reviewed=reviewed,
            looked_at=looked_at,
            review_folder=REVIEW,
            mixed=Counter(lines for one in receipts if (lines := tuple(differences(lock.get("stack", {}), one.stack)))),
            overview=f"{FIGURES}/{OVERVIEW}" if OVERVIEW in figures else None,
            sheets=[
                (shift.name, f"{FIGURES}/{sheet_name(shift.name)}")
                for shift in recipe.all_shifts()
                if sheet_name(shift.name) in figures
            ],
            example=example_group(plan, receipts),
            timm_splits=timm_splits(receipts) if recipe.output.format == "webdataset" else {},
            dataset_entry=citation,
            paper_entry=DATASET_INTERFACES,
            recipe_yaml=recipe.portable_yaml,
            version=__version__,
            most_names=MOST_NAMES,
        )
    )
    shown = f"{EVALUATION}/{RESULTS}" if results is not None else None
    said = REVIEWED.path if looked_at else None
    croissant = croissant_bytes(directory, recipe, configs, inputs, statements, citation, shown, said)
    return Card(text, figures, croissant, benchmark_file(recipe, receipts, images))


def _results(directory: Path, content: str) -> tuple[Results | None, str | None]:
    """The stored results, or what is wrong with those that somebody else wrote."""
    try:
        return read_results(directory, content), None
    except UserError as error:
        return None, error.problems[0]


def _transfer(results: Results | None) -> list[tuple[str, Table]]:
    """A judge's sentences and table each."""
    found: list[tuple[str, Table]] = []
    if results is None:
        return found
    for judge in results.transfer[:MOST_JUDGES]:
        said = f"{kept_words(judge)} {found_words(judge, results)}".strip()
        tables = transfer_tables(judge, results, short=False)
        found += [(said, table.first(_MOST_MODELS, "models", f"{EVALUATION}/transfer.csv")) for table in tables[:1]]
    return found


def _about_class(recipe: Recipe) -> list[str]:
    """The placeholders beside `{class}` that prompts and captions use, as code."""
    texts = [text for shift in recipe.all_shifts() for text in (shift.prompt, shift.object_caption)]
    return [f"`{{{word}}}`" for word in ABOUT_CLASS if any(word in uses(text) for text in texts)]


def _environment():
    filters = {
        "prose": markdown.prose,
        "inline": markdown.inline,
        "code": markdown.code,
        "cell": markdown.code_cell,
        "fenced": markdown.fenced,
        "address": markdown.address,
        "license": license_for_people,
        "table": markdown.table,
        "number": "{:,}".format,
        "points": points,
        "percent": lambda fraction: f"{100 * fraction:.1f} %",
        "in_words": in_words,
    }
    return template_environment(TEMPLATE, filters, markdown=True)
