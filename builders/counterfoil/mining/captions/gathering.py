"""The captions of all classes, each text once, so that none is encoded twice: 1,000 classes share 37 categories."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from counterfoil.errors import UserError
from counterfoil.mining.captions.grammar import CaptionGrammar, CaptionNoun, ClassCaptions, Misfit
from counterfoil.recipe.names import did_you_mean
from counterfoil.recipe.prompts import RecipeClass

MOST_TEXTS = 500_000
"""Of all classes together: an hour of a text encoder of ViT-B/32 on a CPU."""
_MOST_PROBLEMS = 20
_MOST_NAMED = 5

Gathered = tuple[tuple[str, ...], tuple[int, ...], tuple[NDArray[np.int64], ...]]


def gather(grammar: CaptionGrammar, classes: Sequence[RecipeClass], noun: CaptionNoun) -> Gathered:
    """Texts, references and candidates, as `mining.method.Captions` holds them.

    Texts stand in the order in which the classes come to them, a class's reference before its candidates. References
    are rows of texts, by label; candidates int64 [m], by label, in the grammar's order. UserError with every class that
    has no captions and every name of the grammar that is of no class.
    """
    problems = list(_names_of_no_class(grammar, classes))
    hints: dict[str, None] = {}
    together: dict[Misfit, list[str]] = {}
    rows: dict[str, int] = {}
    references, candidates = [], []
    for cls in classes:
        found = grammar.captions_or_misfits(cls, noun)
        if not isinstance(found, ClassCaptions):
            for misfit in found:
                together.setdefault(misfit, []).append(cls.name)
            continue
        references.append(rows.setdefault(found.reference, len(rows)))
        candidates.append(np.asarray([rows.setdefault(text, len(rows)) for text in found.texts], dtype=np.int64))
        if len(rows) > MOST_TEXTS:
            reached = f"class '{cls.name}', {len(references)} of {len(classes)}"
            reason = f"captions: more than {MOST_TEXTS:,} in all by {reached}"
            raise UserError(reason, hint="Say noun: category, or leave out adjectives, prepositions or hyponyms.")
    for misfit, names in together.items():
        problems.append(f"captions: {_classes_named(names)} {misfit.reason}")
        hints[misfit.advice] = None
    if problems:
        more = [f"… and {len(problems) - _MOST_PROBLEMS} more"] if len(problems) > _MOST_PROBLEMS else []
        raise UserError([*problems[:_MOST_PROBLEMS], *more], hint=" ".join(hints) or None)
    return tuple(rows), tuple(references), tuple(candidates)


def _names_of_no_class(grammar: CaptionGrammar, classes: Sequence[RecipeClass]) -> Iterator[str]:
    """Names that the grammar has words for, but no class; one that says what it covers has been compared with that."""
    if grammar.covers:
        return
    known = {name: None for cls in classes for name in (cls.name, cls.category) if name is not None}
    unknown = [name for name in grammar.by_name if name not in known]
    for position, name in enumerate(unknown):
        # Looking for the nearest of thousands takes long; nobody reads thousands of suggestions.
        close = did_you_mean(name, known) if position < _MOST_PROBLEMS else ""
        yield f"captions: by_name.{name[:80]}: expected the name or the category of a class of the recipe{close}"


def _classes_named(names: Sequence[str]) -> str:
    """`class 'cat'`, or `7 classes ('cat', 'dog', … and 2 more)`."""
    if len(names) == 1:
        return f"class '{names[0]}'"
    listed = ", ".join(f"'{name}'" for name in names[:_MOST_NAMED])
    more = f", … and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"each of {len(names):,} classes ({listed}{more})"
