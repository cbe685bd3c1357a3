"""The contexts that are proposed for each class of a target, and the pictures of the lab's
generator by prompt.

Which axis is looked along is the person's choice (`axis`): places where a place was planted,
colours where a colour was, kinds where a kind is scarce. Kinds alone would be two, and three are
chosen: they stand in every place.

A picture is decided by its prompt and its number, and drawn once whoever asks: the noise of a
number is the same under every prompt, as the lab's recipes draw in pairs. Planted worlds are drawn
by class names. The wardrobe's classes are drawn by their tokens, as `wardrobe-star` draws them: a
checked coat is what its classifiers know as a coat.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from counterfoil.arrays import Floats32
from counterfoil.generate.tokens.class_tokens import read_class_tokens
from counterfoil.lab.vocabulary import BACKGROUNDS, CLASSES, COLOURS, PATTERNS
from counterfoil.mining.methods.context_proposals import ContextList
from counterfoil.models.diffusion import load_pipeline
from counterfoil.models.names import LAB_WEIGHTS, folder_sha256
from counterfoil.recipe import load_recipe
from counterfoil.recipe.schema_mine import ContextsSettings
from lab_training.captions import caption_of as words_of_claims
from mend_proof.targets import Target, clip_vectors
from proof_files import arrays_of, save_arrays, saved, text_digest
from proof_pictures import Pixels, draw_pictures

_PLACES = ContextsSettings(axis="background", contexts="wardrobe")
_COLOURS = ContextsSettings(axis="colour", contexts="wardrobe-colours")
_FIRST_SEED = 77_000_000


@dataclass(frozen=True, slots=True)
class Context:
    """A context of a class. caption: what CLIP reads; prompt: what is drawn, `{5}` standing for
    class 5.

    claims: (attribute, value) that it says of a scene.
    """

    words: str
    caption: str
    prompt: str
    claims: tuple[tuple[str, str], ...]


def axis_of(target: Target) -> str:
    """Return along which axis contexts of a target are proposed: `background`, `colour` or
    `class`."""
    return "background" if target.world is None else str(target.world.attribute)


def contexts_of(target: Target, label: int) -> list[Context]:
    """Return all contexts that are proposed for a class."""
    axis = axis_of(target)
    kinds = target.kinds[label]
    name = target.class_names[label]
    if axis == "class":
        return [
            Context(
                f"{kind} {context.words}",
                context.caption,
                context.prompt,
                (("class", kind), *context.claims),
            )
            for kind in kinds
            for context in _of(_PLACES, kind, (kind,))
        ]
    return _of(_COLOURS if axis == "colour" else _PLACES, name, kinds)


def _of(settings: ContextsSettings, name: str, kinds: tuple[str, ...]) -> list[Context]:
    assert settings.contexts is not None
    drawn = _drawn(kinds)
    return [
        Context(
            words, settings.caption(name, words), settings.caption(drawn, words), (_claim(words),)
        )
        for words in ContextList.load(settings.contexts).contexts
    ]


def plain_prompt(target: Target, label: int) -> str:
    """Return the class's name alone: `a photo of a {5}`; `{0} or {4}` if it holds two garments."""
    return f"a photo of a {_drawn(target.kinds[label])}"


def kind_prompt(kind: str) -> str:
    """Return `a photo of a {5}`, of one garment by its name."""
    return f"a photo of a {_drawn((kind,))}"


def without_class(prompt: str) -> str | None:
    """Return `a photo in the snow` of `a photo of a {5} in the snow`, to screen the shift; None for
    a class alone."""
    alone = re.sub(r" of a \{\d+\}(?: or \{\d+\})*", "", prompt)
    return None if alone == "a photo" else alone


def _drawn(kinds: tuple[str, ...]) -> str:
    return " or ".join(f"{{{CLASSES.index(kind)}}}" for kind in kinds)


@cache
def _claims() -> dict[str, tuple[str, str]]:
    places = {
        words_of_claims({"background": background}).removeprefix("a "): ("background", background)
        for background in BACKGROUNDS
    }
    return (
        places
        | {value: ("colour", value) for value in COLOURS}
        | {value: ("pattern", value) for value in PATTERNS}
    )


def _claim(words: str) -> tuple[str, str]:
    return _claims()[words]


class Pictures:
    """Pictures under a folder. tokens: whether classes are drawn by the tokens of
    `wardrobe-star`."""

    def __init__(self, folder: Path, tokens: bool) -> None:
        self.tokens = tokens
        self.folder = (
            folder
            / "pictures"
            / f"{'tokens' if tokens else 'names'}-{folder_sha256(LAB_WEIGHTS / 'sd')[:8]}"
        )

    def of(self, prompt: str, count: int) -> Pixels:
        """Return the first `count` pictures of a prompt, drawn where they are missing: uint8
        [count, 64, 64, 3].

        `{0}` … stand for classes in it.
        """
        nothing = np.zeros((0, 64, 64, 3), np.uint8)
        known = arrays_of(self.path(prompt)).get("pixels", nothing)
        if len(known) < count:
            seeds = range(_FIRST_SEED + len(known), _FIRST_SEED + count)
            more = draw_pictures(self._pipeline, self._written(prompt), seeds)
            known = np.concatenate([known, more])
            save_arrays(self.path(prompt), {"pixels": known}, compressed=True)
        return known[:count]

    def vectors(self, prompt: str, count: int) -> Floats32:
        """Return (count, width) of the first pictures of a prompt, by CLIP, kept beside them."""
        path = self.path(prompt).with_suffix(".clip.npy")
        known = np.load(path) if path.exists() else np.zeros((0, 1), np.float32)
        if len(known) < count:
            known = clip_vectors(self.of(prompt, count))
            saved(path, lambda to: np.save(to, known))
        return known[:count]

    def path(self, prompt: str) -> Path:
        """Return the file of a prompt."""
        return self.folder / f"{text_digest(prompt)}.npz"

    def _written(self, prompt: str) -> str:
        """Return the prompt as the generator reads it: each `{label}` is a class's name, or its
        token."""
        for label, name in enumerate(CLASSES):
            prompt = prompt.replace(f"{{{label}}}", self._placeholders.get(f"{label:02d}", name))
        return prompt

    @cached_property
    def _class_tokens(self) -> Any:
        return read_class_tokens(load_recipe("wardrobe-star")) if self.tokens else None

    @cached_property
    def _placeholders(self) -> dict[str, str]:
        return {} if self._class_tokens is None else dict(self._class_tokens.placeholders)

    @cached_property
    def _pipeline(self) -> Any:
        tokens = None if self._class_tokens is None else self._class_tokens.by_placeholder()
        return load_pipeline("lab:sd", dtype="float32", tokens=tokens)
