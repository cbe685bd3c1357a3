"""The contexts that are proposed for each class of a target, how a caption tells them, and how they are drawn.

Which axis is looked along is the person's choice (`axis`): places where a place was planted, colours where a colour
was, kinds where a kind is scarce. Kinds alone would be two, and three are chosen: they stand in every place.
"""

from __future__ import annotations

from dataclasses import dataclass

from counterfoil.lab.captions import caption_of
from counterfoil.lab.vocabulary import BACKGROUNDS, CLASSES, COLOURS
from mend_proof.targets import Target


@dataclass(frozen=True, slots=True)
class Context:
    """A context of a class. caption: what CLIP reads; prompt: what is drawn, `{5}` standing for class 5.

    claims: attribute → value that it says of a scene.
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
    axis, kinds = axis_of(target), target.kinds[label]
    name = _spoken(target, label)
    if axis == "colour":
        return [
            Context(colour, f"a photo of a {colour} {name}", _prompt(f"a photo of a {colour} {{}}", kinds),
                    (("colour", colour),))
            for colour in COLOURS
        ]  # fmt: skip
    places = [(place, caption_of({"background": place})) for place in BACKGROUNDS]
    if axis == "background":
        return [
            Context(words, f"a photo of a {name} {words}", _prompt(f"a photo of a {{}} {words}", kinds),
                    (("background", place),))
            for place, words in places
        ]  # fmt: skip
    return [
        Context(f"{kind} {words}", f"a photo of a {kind} {words}", _prompt(f"a photo of a {{}} {words}", (kind,)),
                (("background", place), ("class", kind)))
        for kind in kinds
        for place, words in places
    ]  # fmt: skip


def plain_prompt(target: Target, label: int) -> str:
    """`a photo of a {5}`: the class's name alone, `{0} or {4}` where it holds two garments."""
    return _prompt("a photo of a {}", target.kinds[label])


def hard_prompt(target: Target, label: int, caption: str) -> str:
    """A caption of the bundled grammar as a prompt, its garments by their places."""
    for kind in sorted(target.kinds[label], key=len, reverse=True):
        caption = caption.replace(kind, f"{{{CLASSES.index(kind)}}}")
    return caption


def _spoken(target: Target, label: int) -> str:
    return target.class_names[label]


def _prompt(template: str, kinds: tuple[str, ...]) -> str:
    return template.replace("{}", " or ".join(f"{{{CLASSES.index(kind)}}}" for kind in kinds))
