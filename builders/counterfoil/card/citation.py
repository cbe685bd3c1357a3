"""BibTeX for the dataset and for the paper whose method built it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from counterfoil.recipe import Recipe

DATASET_INTERFACES = """\
@article{vendrow2023dataset,
  title   = {Dataset Interfaces: Diagnosing Model Failures Using Controllable Counterfactual Generation},
  author  = {Vendrow, Joshua and Jain, Saachi and Engstrom, Logan and Madry, Aleksander},
  journal = {arXiv preprint arXiv:2302.07865},
  year    = {2023}
}"""


# BibTeX counts braces, escaped ones too, so that a text's own become commands.
_ESCAPED = {
    "\\": r"\textbackslash{}", "{": r"\textbraceleft{}", "}": r"\textbraceright{}", "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
}  # fmt: skip


def dataset_entry(recipe: Recipe, plan_hash: str, version: str) -> str:
    """The dataset's own entry, of what the recipe tells under `publish`; `version` is Counterfoil's.

    It has the year that is told there and no other: a card knows nothing of when it was made.
    """
    publish, name = recipe.publish, recipe.name
    key = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    owner = publish.repo.partition("/")[0] if publish.repo else None
    authors = publish.authors or (("{" + owner + "}",) if owner else ())
    fields = {
        "author": " and ".join(map(_author, authors)),
        "title": f"{{{escaped(name)}}}: a dataset of counterfactual images",
        "year": str(publish.year) if publish.year is not None else "",
        "version": escaped(publish.version or ""),
        "doi": publish.doi or "",
        "url": address_of(recipe) or "",
        "note": f"Built with Counterfoil {version}, plan {plan_hash[:12]}",
    }
    lines = [f"  {field:<5} = {{{text}}}," for field, text in fields.items() if text]
    return "\n".join([f"@misc{{{key},", *lines[:-1], lines[-1].removesuffix(","), "}"])


def address_of(recipe: Recipe) -> str | None:
    """Where the dataset is, as far as its recipe tells: an address of its own, or its repository on the Hub."""
    repo = recipe.publish.repo
    return recipe.publish.url or (f"https://huggingface.co/datasets/{repo}" if repo else None)


def escaped(text: str) -> str:
    """A text for a field of BibTeX in one line: what LaTeX reads otherwise is escaped, letters of all scripts stay."""
    return "".join(_ESCAPED.get(letter, letter) for letter in " ".join(text.split()))


def is_organisation(author: str) -> bool:
    """Whether an author is written in braces, as BibTeX has names that have no parts."""
    return author.startswith("{") and author.endswith("}")


def plain_author(author: str) -> str:
    """An author's name without the braces of an organisation."""
    return author[1:-1].strip() if is_organisation(author) else author


def _author(author: str) -> str:
    name = escaped(plain_author(author))
    # `and` would divide a name in two, and a third comma is none that BibTeX knows.
    whole = is_organisation(author) or re.search(r"\band\b", name, re.IGNORECASE) or name.count(",") > 2
    return f"{{{name}}}" if whole else name
