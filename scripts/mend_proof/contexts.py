"""The contexts that are proposed for each class of a target: bundled lists, how CLIP reads them, how they are drawn.

Which axis is looked along is the person's choice (`axis`): places where a place was planted, colours where a colour
was, kinds where a kind is scarce. Kinds alone would be two, and three are chosen: they stand in every place.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from counterfoil.lab.captions import caption_of as words_of_claims
from counterfoil.lab.vocabulary import BACKGROUNDS, CLASSES, COLOURS, PATTERNS
from counterfoil.mining.contexts.lists import load_contexts
from counterfoil.recipe.schema_mine import ContextsSettings
from mend_proof.targets import Target

_PLACES = ContextsSettings(axis="background", contexts="wardrobe")
_COLOURS = ContextsSettings(axis="colour", contexts="wardrobe-colours")


@dataclass(frozen=True, slots=True)
class Context:
    """A context of a class. caption: what CLIP reads; prompt: what is drawn, `{5}` standing for class 5.

    claims: (attribute, value) that it says of a scene.
    """

    words: str
    caption: str
    prompt: str
    claims: tuple[tuple[str, str], ...]


def axis_of(target: Target) -> str:
    """`background`, `colour` or `class`: along which contexts of a target are proposed."""
    return "background" if target.world is None else str(target.world.attribute)


def contexts_of(target: Target, label: int) -> list[Context]:
    """All that are proposed for a class."""
    axis, kinds, name = axis_of(target), target.kinds[label], target.class_names[label]
    if axis == "class":
        return [
            Context(f"{kind} {one.words}", one.caption, one.prompt, (("class", kind), *one.claims))
            for kind in kinds
            for one in _of(_PLACES, kind, (kind,))
        ]
    return _of(_COLOURS if axis == "colour" else _PLACES, name, kinds)


def _of(settings: ContextsSettings, name: str, kinds: tuple[str, ...]) -> list[Context]:
    assert settings.contexts is not None
    drawn = _drawn(kinds)
    return [
        Context(words, settings.caption(name, words), settings.caption(drawn, words), (_claim(words),))
        for words in load_contexts(settings.contexts).contexts
    ]


def plain_prompt(target: Target, label: int) -> str:
    """`a photo of a {5}`: the class's name alone; `{0} or {4}` where it holds two garments."""
    return f"a photo of a {_drawn(target.kinds[label])}"


def kind_prompt(kind: str) -> str:
    """`a photo of a {5}`, of one garment by its name."""
    return f"a photo of a {_drawn((kind,))}"


def without_class(prompt: str) -> str | None:
    """`a photo in the snow` of `a photo of a {5} in the snow`, as a recipe screens the shift; None of a class alone."""
    alone = re.sub(r" of a \{\d+\}(?: or \{\d+\})*", "", prompt)
    return None if alone == "a photo" else alone


def _drawn(kinds: tuple[str, ...]) -> str:
    return " or ".join(f"{{{CLASSES.index(kind)}}}" for kind in kinds)


@cache
def _claims() -> dict[str, tuple[str, str]]:
    places = {words_of_claims({"background": place}).removeprefix("a "): ("background", place) for place in BACKGROUNDS}
    return places | {one: ("colour", one) for one in COLOURS} | {one: ("pattern", one) for one in PATTERNS}


def _claim(words: str) -> tuple[str, str]:
    return _claims()[words]
