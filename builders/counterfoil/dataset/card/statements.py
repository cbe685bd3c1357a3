"""Write what must be said of synthetic, screened images, on the card and in Croissant: origin, use, biases, limits,
risks.

The sentences are in `cards/statements.txt.j2`, those of one kind of generator in `cards/kind-NAME.txt.j2`; each follows
from the recipe and the pins of lock.json.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from counterfoil.dataset.card.markdown import code
from counterfoil.dataset.card.tables import InputRow
from counterfoil.generate.screen.doubts import ScreenDoubts
from counterfoil.recipe import Recipe
from counterfoil.recipe.corruptions import MATCH
from counterfoil.recipe.layering import without_folders
from counterfoil.report.templates import template_environment
from counterfoil.report.words import counted

TEMPLATE = "statements.txt.j2"


@dataclass(frozen=True, slots=True)
class Statements:
    """Sentences by subject, each subject in reading order."""

    summary: str
    collection: str
    source: str
    preprocessing: tuple[str, ...]
    annotation: str
    annotation_tools: tuple[str, ...]
    missing: str
    intended: tuple[str, ...]
    unintended: tuple[str, ...]
    biases: tuple[str, ...]
    limits: tuple[str, ...]
    personal: str
    social_impact: str
    maintenance: str


def screened_shifts(recipe: Recipe) -> dict[str, int]:
    """Count the `shifts`, and those that are `screened` by a threshold of the shift score too."""
    shifts = [shift for shift in recipe.all_shifts()[1:] if shift.top]  # the base is no shift, nor is a mild level
    return {"screened": sum(shift.threshold is not None for shift in shifts), "shifts": len(shifts)}


def statements_of(
    recipe: Recipe,
    inputs: Sequence[InputRow],
    images: int,
    candidates: int,
    doubts: ScreenDoubts | None = None,
    *,
    looked_at: bool = False,
) -> tuple[Statements, Mapping[str, str]]:
    """Return what must be said of a dataset, and by name what only its kind of generator says.

    inputs: rows of `input_rows`. images: accepted, of so many `candidates`, by a screen with `doubts`. looked_at:
    people reviewed images, and the review is in the dataset.
    """
    every = recipe.all_shifts()
    percentiles = any(shift.object_threshold.percentile is not None for shift in every)
    judges = dict.fromkeys(name for shift in every for rule in shift.keep for name in rule.judges())
    filters = {"counted": counted, "without_folders": without_folders, "code": code}
    environment = template_environment(TEMPLATE, filters, markdown=True)
    known = {
        "recipe": recipe,
        "name": without_folders(recipe.source.dataset),
        "inputs": {row.role: row for row in inputs},
        "images": images,
        "candidates": candidates,
        "screened": screened_shifts(recipe),
        "doubts": doubts,
        "looked_at": looked_at,
        "judges": list(map(without_folders, judges)),
        "borrowed": recipe.samples.pairs != "noise",
        "over_the_edited": percentiles and recipe.generator.split == recipe.source.validation_split,
        "match": MATCH,
    }
    its: dict[str, str] = {}
    for words in ("kind-words.txt.j2", f"kind-{recipe.kind.key}.txt.j2"):
        kind_texts = vars(environment.get_template(words).make_module(known))
        its |= {name: text for name, text in kind_texts.items() if isinstance(text, str) and name[0] != "_"}
    rendered: Any = environment.get_template(TEMPLATE).make_module(known | {"its": its})

    def sentences(subject: str, several: bool) -> Any:
        text = getattr(rendered, subject)
        if several:
            return tuple(" ".join(subject.split()) for subject in re.split(r"^- ", text, flags=re.MULTILINE)[1:])
        return " ".join(text.split())

    statements = Statements(
        **{subject.name: sentences(subject.name, subject.type.startswith("tuple")) for subject in fields(Statements)}
    )
    return statements, {name: " ".join(text.split()) for name, text in its.items()}
