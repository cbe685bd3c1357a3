"""Whether CLIP knows the classes: zero-shot answers as numpy gives them, and files of strangers."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterfoil.recipe import load_recipe
from counterfoil.screen.doubts import Decides, doubts_of, screen_doubts
from counterfoil.screen.known_classes import KnownClass, KnownClasses, known_classes
from counterfoil.screen.thresholds import Thresholds, resolve_thresholds

CAPTION = "a photo of a {class}"
THREE = (
    "source.classes=[{id: mug, name: mug, source_label: 0}, {id: star, name: star, source_label: 1},"
    " {id: ladder, name: ladder, source_label: 2}]"
)


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def vectors(rows: int, seed: int) -> np.ndarray:
    return unit(np.random.default_rng(seed).normal(size=(rows, 16)))


@given(st.integers(2, 12), st.integers(1, 40), st.integers(0, 2**31))
def test_the_answers_are_those_of_the_argmax(classes: int, images: int, seed: int) -> None:
    ids = [f"c{number}" for number in range(classes)]
    captions, pictures = (
        vectors(classes, seed),
        {name: vectors(images, seed + 1 + place) for place, name in enumerate(ids)},
    )
    known = known_classes(CAPTION, {name: f"a photo of a {name}" for name in ids}, captions, pictures)
    assert known is not None
    assert (known.captions, known.n) == (classes, classes * images)
    for place, name in enumerate(ids):
        scores = pictures[name].astype(np.float64) @ captions.astype(np.float64).T
        others = np.delete(scores, place, axis=1)
        assert known.classes[name].right == (scores.argmax(axis=1) == place).sum()
        assert known.classes[name].margin == pytest.approx((scores[:, place] - others.max(axis=1)).mean(), abs=2e-6)
        wrong = np.delete(np.arange(classes), place)[others.argmax(axis=1)][scores.argmax(axis=1) != place]
        times = np.bincount(wrong, minlength=classes)
        taken_for = known.classes[name].taken_for
        assert taken_for is None if wrong.size == 0 else times[ids.index(str(taken_for))] == times.max()
    assert KnownClasses.read(json.loads(json.dumps(known.document()))) == known


def test_classes_of_one_name_are_not_told_apart() -> None:
    captions = vectors(2, 0)[[0, 0, 1]]
    texts = {"bird": "a photo of a crane", "machine": "a photo of a crane", "dog": "a photo of a dog"}
    pictures = {"bird": captions[:1].repeat(5, axis=0), "dog": captions[2:].repeat(5, axis=0)}
    known = known_classes(CAPTION, texts, captions, pictures)
    assert known is not None
    assert known.classes["bird"] == KnownClass(5, 0, 0.0, "machine")
    assert known.classes["dog"].right == 5
    assert known.classes["dog"].taken_for is None


def test_one_class_has_no_other() -> None:
    assert known_classes(CAPTION, {"mug": "a photo of a mug"}, vectors(1, 0), {"mug": vectors(3, 1)}) is None
    assert known_classes(CAPTION, {"mug": "a mug", "star": "a star"}, vectors(2, 0), {}) is None


def answered(**classes: tuple[int, int, float, str | None]) -> KnownClasses:
    return KnownClasses(CAPTION, 3, {name: KnownClass(*one) for name, one in classes.items()})


def measured(known: KnownClasses | None, lowest: float = 0.2, *changes: str) -> Any:
    recipe = load_recipe("wardrobe-mini", [THREE, *changes])
    scores = {cls.id: np.linspace(lowest, 0.9, 50, dtype=np.float32) for cls in recipe.classes}
    return recipe, resolve_thresholds(recipe, lambda caption: scores).with_known(known, recipe)


def test_a_screen_that_knows_its_classes_is_not_doubted() -> None:
    known = answered(mug=(12, 12, 0.1, None), star=(12, 11, 0.08, "mug"), ladder=(12, 12, 0.2, None))
    assert screen_doubts(*measured(known)) is None
    assert screen_doubts(*measured(None)) is None


def test_what_is_near_chance_is_doubted_by_its_interval() -> None:
    # 7 of 12 begin at 32.0 %, below 40 %: chance of one third and a tenth of the way above it.
    known = answered(mug=(12, 12, 0.1, None), star=(12, 7, 0.01, "mug"), ladder=(12, 12, 0.2, None))
    doubts = screen_doubts(*measured(known))
    assert doubts is not None
    assert [one.class_id for one in doubts.classes] == ["star"]
    assert (doubts.classes[0].near_chance, doubts.near_chance) == (True, False)
    assert "7 of 12" in str(doubts.classes[0])
    assert "cannot tell 'star' from 'mug'" in doubts.meaning
    assert "86.1 %" in doubts.headline


def test_near_chance_over_all_is_told_as_not_knowing_them() -> None:
    known = answered(mug=(12, 11, 0.1, "star"), star=(12, 2, -0.1, "mug"), ladder=(12, 1, -0.2, "mug"))
    doubts = screen_doubts(*measured(known))
    assert doubts is not None
    assert doubts.near_chance
    assert doubts.headline.startswith("CLIP does not know these classes: it names 38.9 % (24.8 to 55.1) of 36")
    assert [one.class_id for one in doubts.classes] == ["ladder", "star"], "the worst first"
    assert any("screen.model" in line for line in doubts.lines())


def test_a_negative_margin_is_doubted_whatever_the_share() -> None:
    known = answered(mug=(300, 200, -0.01, "star"), star=(300, 300, 0.2, None), ladder=(300, 300, 0.2, None))
    doubts = screen_doubts(*measured(known))
    assert doubts is not None
    assert [(one.class_id, one.near_chance) for one in doubts.classes] == [("mug", False)]


def test_a_negative_threshold_is_doubted_where_it_was_measured() -> None:
    doubts = screen_doubts(*measured(None, -0.5))
    assert doubts is not None
    assert doubts.accuracy is None
    assert {one.class_id for one in doubts.classes} == {"mug", "star", "ladder"}
    assert all(one.least_threshold is not None and one.least_threshold < 0 for one in doubts.classes)
    assert "may show anything" in doubts.meaning
    given_by_hand = measured(None, -0.5, "screen.object_threshold=-0.5")
    assert screen_doubts(*given_by_hand) is None


def test_words_and_contexts_are_doubted_by_the_same_check_in_words_of_their_own() -> None:
    known = answered(mug=(12, 11, 0.1, "star"), star=(12, 2, -0.1, "mug"), ladder=(12, 12, 0.2, None))
    recipe, thresholds = measured(known)
    labels, words, contexts = (doubts_of(recipe, thresholds.known, decides=one) for one in get_args(Decides))
    assert labels == screen_doubts(recipe, thresholds)
    assert labels is not None and words is not None and contexts is not None
    assert words.classes == contexts.classes == labels.classes
    assert "of 36 audited images" in words.headline
    assert words.meaning.startswith("CLIP cannot tell 'star' from 'mug': the words of a finding may say what")
    assert words.lines()[-1].startswith("Before you trust these words: name a CLIP")
    assert "screen.judge" not in words.what_to_do
    assert "another context" in contexts.meaning
    assert words.of_any(["mug", "star"]) and not words.of_any(["mug", "ladder"])


def test_names_of_strangers_are_plain_in_warnings() -> None:
    classes = THREE.replace("name: star", 'name: "\\e[31mst\\nar"').replace("name: mug", f"name: {'m' * 200}")
    known = answered(mug=(12, 1, -0.1, "star"), star=(12, 1, -0.1, "mug"), ladder=(12, 12, 0.2, None))
    doubts = screen_doubts(*measured(known, 0.2, classes))
    assert doubts is not None
    assert all(line.isprintable() and len(line) < 300 for line in doubts.lines())


def test_thresholds_bring_it_along_and_pin_nothing_of_it() -> None:
    known = answered(mug=(12, 12, 0.1, None), star=(12, 7, 0.01, "mug"), ladder=(12, 12, 0.2, None))
    recipe, with_it = measured(known)
    _, without = measured(None)
    assert with_it.pin() == without.pin() is not None
    assert Thresholds.read(with_it.content()) == with_it
    assert "known" not in json.loads(without.content()), "what was written before there was such a key"
    assert Thresholds.read(without.content()).known is None
    by_value = load_recipe("wardrobe-mini", [THREE, "screen.object_threshold=0.2"])
    assert resolve_thresholds(by_value, None).with_known(known, by_value).known is None, "nothing was measured"
    for other in (
        load_recipe("wardrobe-mini"),
        load_recipe("wardrobe-mini", [THREE, "screen.object_caption=a {class}"]),
    ):
        assert with_it.with_known(known, other).known is None, "of other classes, or by other words"
    assert with_it.with_known(known, recipe) == with_it


Spoil = Callable[[dict[str, Any]], object]
SPOILED: dict[str, Spoil] = {
    "a key more": lambda known: known.update(more=1),
    "a key less": lambda known: known.pop("caption"),
    "a caption of another kind": lambda known: known.update(caption=None),
    "a caption without end": lambda known: known.update(caption="a" * 10_001),
    "one caption": lambda known: known.update(captions=1),
    "fewer captions than classes": lambda known: known.update(captions=2),
    "captions as a truth": lambda known: known.update(captions=True),
    "no classes": lambda known: known.update(classes={}, n=0, right=0),
    "a list of classes": lambda known: known.update(classes=[]),
    "other sums": lambda known: known.update(right=0),
    "a sum without end": lambda known: known.update(n=10**400),
    "a class of text": lambda known: known["classes"].update(star="7 of 12"),
    "a key more of a class": lambda known: known["classes"]["star"].update(more=1),
    "more right than there are": lambda known: known["classes"]["star"].update(right=13),
    "no image": lambda known: known["classes"]["star"].update(n=0, right=0),
    "half an image": lambda known: known["classes"]["star"].update(n=12.5),
    "a margin past every cosine": lambda known: known["classes"]["star"].update(margin=3),
    "a margin that is none": lambda known: known["classes"]["star"].update(margin=math.nan),
    "a margin without end": lambda known: known["classes"]["star"].update(margin=10**400),
    "taken for itself": lambda known: known["classes"]["star"].update(taken_for="star"),
    "taken for nothing": lambda known: known["classes"]["star"].update(taken_for=None),
    "all right and taken for another": lambda known: known["classes"]["mug"].update(taken_for="star"),
}


@pytest.mark.parametrize("case", [*SPOILED, "null", "a list"])
def test_another_form_is_refused(case: str) -> None:
    known = answered(mug=(12, 12, 0.1, None), star=(12, 7, 0.01, "mug"), ladder=(12, 12, 0.2, None))
    _, thresholds = measured(known)
    document = copy.deepcopy(thresholds.document())
    if case in SPOILED:
        SPOILED[case](document["known"])
    else:
        document["known"] = None if case == "null" else []
    with pytest.raises(ValueError, match="not thresholds"):
        Thresholds.read(json.dumps(document).encode())
