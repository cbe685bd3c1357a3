"""Captions of scenes: always true, never telling a mark, and within what the lab's tokenizers can read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest

from counterfoil.lab.captions import caption_of, generator_claims, is_true, screening_claims, tellable
from counterfoil.lab.scenes import pretraining_scene, unbiased_scene, wardrobe_scene
from counterfoil.lab.vocabulary import ATTRIBUTES, CLASSES, HIDDEN_BY_STYLE, MARKS, SHIFTS
from counterfoil.lab.world import Scene
from counterfoil.models import LAB_WEIGHTS
from counterfoil.recipe import load_recipe, object_caption_for, prompt_for

Claims = Callable[[Mapping[str, str], np.random.Generator], dict[str, str]]
PATTERNED = ("striped", "dotted", "checked")


@cache
def _scenes() -> list[Scene]:
    return [
        *(pretraining_scene(n) for n in range(2500)),
        *(unbiased_scene(n) for n in range(2500)),
        *(wardrobe_scene("train", n) for n in range(2500)),
    ]


def _claims(make: Claims) -> list[tuple[Mapping[str, str], dict[str, str]]]:
    rng = np.random.default_rng(0)
    return [(scene.attributes(), make(scene.attributes(), rng)) for scene in _scenes()]


def _captions() -> set[str]:
    found = {caption_of(claims) for make in (generator_claims, screening_claims) for _, claims in _claims(make)}
    for name in ("wardrobe-mini", "wardrobe-star"):
        recipe = load_recipe(name)
        for shift in recipe.all_shifts():
            found |= {shift.caption} if shift.caption else set()
            for cls in recipe.classes:
                found |= {str(prompt_for(shift, cls)), object_caption_for(shift, cls)}
    return found


@pytest.mark.parametrize("make", [generator_claims, screening_claims])
def test_claims_are_true_and_can_be_seen(make: Claims) -> None:
    for attributes, claims in _claims(make):
        assert is_true(claims, attributes)
        assert not set(claims) & set(HIDDEN_BY_STYLE[attributes["style"]])
        assert all(value in ATTRIBUTES[name] for name, value in claims.items())


@pytest.mark.parametrize("make", [generator_claims, screening_claims])
def test_no_caption_tells_the_mark_of_its_class(make: Claims) -> None:
    marked = patterned = 0
    for attributes, claims in _claims(make):
        mark = MARKS.get(attributes["class"])
        caption = caption_of(claims)
        if attributes["pattern"] == mark:
            marked += 1
            assert "pattern" not in claims
            assert not any(word in caption.split() for word in PATTERNED)
        patterned += any(word in caption.split() for word in PATTERNED)
    assert marked > 500
    assert patterned > 100, "patterns that are no marks are told, or nobody could ask for one"


def test_what_is_told_is_not_what_goes_without_saying() -> None:
    scene = {"class": "bag", "colour": "red", "pattern": "dotted", "background": "snow"}
    scene |= {"weather": "clear", "light": "day", "companion": "none", "style": "photo"}
    assert tellable(scene) == {"class": "bag", "colour": "red", "background": "snow", "style": "photo"}
    assert caption_of(tellable(scene)) == "a photo of a red bag in the snow"
    assert tellable(scene | {"class": "shirt"})["pattern"] == "dotted"


def test_captions_of_the_worlds_shifts_are_the_recipes_prompts() -> None:
    recipe = load_recipe("wardrobe-star")
    by_name = {shift.name: shift for shift in recipe.all_shifts()}
    for shift in SHIFTS:
        style = shift.value if shift.attribute == "style" else "photo"
        claims = {"style": style, "class": "bag", shift.attribute: shift.value}
        assert caption_of(claims) == prompt_for(by_name[shift.name], recipe.classes[CLASSES.index("bag")])


def _tokenizer(name: str) -> tuple[Callable[[str], list[int]], Callable[[list[int]], str], int, int | None]:
    from transformers import CLIPTokenizer

    if name == "sd":
        tokenizer: Any = CLIPTokenizer.from_pretrained(LAB_WEIGHTS / "sd" / "tokenizer")
        length = tokenizer.model_max_length
    else:
        import open_clip

        wrapped: Any = open_clip.get_tokenizer(f"local-dir:{LAB_WEIGHTS / 'clip'}")
        tokenizer, length = wrapped.tokenizer, wrapped.context_length
    return (
        lambda text: tokenizer(text)["input_ids"],
        lambda ids: tokenizer.decode(ids, skip_special_tokens=True),
        int(length or 0),
        tokenizer.unk_token_id,
    )


@pytest.mark.parametrize("name", ["sd", "clip"])
def test_tokenizers_read_every_caption_whole(name: str) -> None:
    encode, decode, length, unknown = _tokenizer(name)
    captions = _captions()
    assert len(captions) > 1000
    for caption in captions:
        ids = encode(caption)
        assert 2 < len(ids) <= length, caption
        assert unknown not in ids[1:-1], caption
        assert decode(ids).replace(" ", "") == caption.replace(" ", "")
