"""The README.md of a mended model's folder, from what its mended.json says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from counterfoil.card.markdown import code, code_cell, inline
from counterfoil.card.templates import templates_folder

TEMPLATE = "model-card.md.j2"


def model_card(about: Mapping[str, Any], verdict: str = "") -> str:
    """The card of a model, whose mended.json is `about`: what it was, what it was mended with, and the verdict.

    `about` holds "model" {"name", "sha256"}, "on" and "datasets" [{"name", …}], "lambda", "fit", "weight_decay" and
    "rows" {what: number}; a dataset's "group" and "recipe" are told where they are there. Names are those that
    everybody may see, without folders of this machine. Equal facts give equal cards.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(templates_folder(TEMPLATE)),
        undefined=StrictUndefined,
        autoescape=False,  # Markdown: the filters below make text safe
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"code": code, "cell": code_cell, "inline": inline, "number": "{:,}".format}
    return environment.get_template(TEMPLATE).render(about=about, verdict=verdict)
