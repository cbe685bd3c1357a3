"""The README.md of a mended model's folder, from what its mended.json says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from counterfoil.card.markdown import code, code_cell, inline
from counterfoil.report.templates import template_environment

TEMPLATE = "model-card.md.j2"


def model_card(
    about: Mapping[str, Any],
    verdict: str = "",
    *,
    role: str = "mended",
    headline: str = "",
    helps: bool = True,
    trained_on: Sequence[str] = (),
    chosen_on: Sequence[str] = (),
) -> str:
    """The card of a model, whose mended.json is `about`: what it was, what it was mended with, and the verdict.

    `about` holds "model" {"name", "sha256"}, "on" and "datasets" [{"name", …}], "lambda", "fit", "weight_decay" and
    "rows" {what: number}; a dataset's "group" and "recipe" are told where they are there. role: what kind of arm it is.
    headline: the verdict in one sentence; helps: whether it does, else nothing is called mended. trained_on: names of
    the sets whose rows the head was fitted to; chosen_on: of those whose discover half chose, and taught nothing. Names
    are those that everybody may see, without folders of this machine. Equal facts give equal cards.
    """
    filters = {"code": code, "cell": code_cell, "inline": inline, "number": "{:,}".format}
    environment = template_environment(TEMPLATE, filters, markdown=True)
    return environment.get_template(TEMPLATE).render(
        about=about,
        verdict=verdict,
        role=role,
        headline=headline,
        helps=helps,
        trained_on=trained_on,
        chosen_on=chosen_on,
    )
