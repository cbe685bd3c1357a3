"""Thresholds become numbers: given, or a percentile of scores; without the models, on scores
alone."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from functools import cache
from typing import Any, get_args

import numpy as np
import open_clip
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image

from counterfoil.data.open_source import open_source
from counterfoil.errors import UserError
from counterfoil.generate.screen.doubts import Decides, doubts_of, screen_doubts
from counterfoil.generate.screen.known_classes import KnownClass, KnownClasses, known_classes
from counterfoil.generate.screen.scores import Scorer, ValidationScores, shift_scores
from counterfoil.generate.screen.thresholds import (
    FewImages,
    Thresholds,
    images_needed,
    needs_validation,
    open_shifts,
    percentile_of,
    resolve_thresholds,
)
from counterfoil.lab.scenes import wardrobe_scene
from counterfoil.lab.world import render
from counterfoil.models.clip import ClipModel
from counterfoil.models.names import LAB_WEIGHTS
from counterfoil.plan.layout import make_plan
from counterfoil.recipe import load_recipe, object_caption_for

scores = arrays.arrays(np.float32, st.integers(1, 60), elements=st.floats(-1, 1, width=32))


@given(scores, st.floats(0, 100), st.floats(0, 100))
def test_a_percentile_grows_and_stays_among_the_scores(
    values: np.ndarray, percent: float, other: float
) -> None:
    low, high = sorted((percent, other))
    assert values.min() <= percentile_of(values, low) <= percentile_of(values, high) <= values.max()
    assert float(np.float32(percentile_of(values, percent))) == percentile_of(values, percent), (
        "as scores are stored"
    )
    assert percentile_of(values, 0) == values.min()
    assert percentile_of(values, 100) == values.max()
    assert percentile_of(values, percent) == percentile_of(np.sort(values)[::-1], percent)


def test_thresholds_by_value_need_no_images() -> None:
    recipe = load_recipe(
        "wardrobe-mini", ["screen.object_threshold=0.25", "screen.shift_threshold=0.2"]
    )
    assert not needs_validation(recipe)
    assert needs_validation(load_recipe("wardrobe-mini"))
    candidates_alone = ["screen.object_threshold=0", "prompts.shifts.red.threshold={percentile: 1}"]
    assert not needs_validation(load_recipe("wardrobe-mini", candidates_alone))
    thresholds = resolve_thresholds(recipe, None)
    assert thresholds.of("red", "03") == {"object": 0.25, "shift": np.float32(0.2)}
    assert thresholds.of("base", "03") == {"object": 0.25, "shift": None}
    assert Thresholds.read(thresholds.content()) == thresholds


def test_a_shift_that_is_not_screened_has_no_threshold() -> None:
    changes = ["screen.object_threshold=0", "prompts.shifts.red.caption=null"]
    thresholds = resolve_thresholds(load_recipe("wardrobe-mini", changes), None)
    assert thresholds.of("red", "03") == {"object": 0.0, "shift": None}


def test_only_a_shifts_own_classes_have_thresholds() -> None:
    recipe = load_recipe(
        "wardrobe-mini", ["screen.object_threshold=0", "prompts.shifts.red.classes=['03']"]
    )
    thresholds = resolve_thresholds(recipe, None)
    assert set(thresholds.object["red"]) == {"03"}
    assert set(thresholds.object["base"]) == {cls.id for cls in recipe.classes}


def test_classes_without_validation_images_are_named_together() -> None:
    recipe = load_recipe("wardrobe-mini")
    present = {
        cls.id: np.linspace(0, 1, 5, dtype=np.float32)
        for cls in recipe.classes
        if cls.id not in ("02", "07")
    }
    with pytest.raises(UserError) as refused:
        resolve_thresholds(recipe, lambda caption: present)
    assert len(refused.value.problems) == 2
    assert "'02'" in refused.value.problems[0]
    assert "'07'" in refused.value.problems[1]
    assert "percentile 5" in refused.value.problems[0]
    assert refused.value.hint is not None


def test_each_caption_is_scored_once() -> None:
    recipe = load_recipe("wardrobe-star")
    captions: list[str] = []

    def scored(caption: str) -> dict[str, np.ndarray]:
        captions.append(caption)
        return {cls.id: np.ones(1, np.float32) for cls in recipe.classes}

    resolve_thresholds(recipe, scored)
    assert len(captions) == len(set(captions)) == 2


def test_a_score_on_a_threshold_by_value_passes_as_it_is_stored() -> None:
    """Scores are stored as float32: a threshold as a double could refuse a score that equals it."""
    thresholds = resolve_thresholds(
        load_recipe(
            "wardrobe-mini", ["screen.object_threshold=0.3", "prompts.shifts.red.threshold=0.7"]
        ),
        None,
    )
    assert thresholds.of("red", "03") == {
        "object": float(np.float32(0.3)),
        "shift": float(np.float32(0.7)),
    }


def test_a_shift_by_percentile_is_open_and_measures_nothing() -> None:
    changes = ["screen.object_threshold=0.25", "prompts.shifts.red.threshold={percentile: 10}"]
    recipe = load_recipe("wardrobe-mini", changes)
    thresholds = resolve_thresholds(recipe, None)
    assert open_shifts(recipe) == ("red",)
    assert [name for name in ("base", "red", "at_night") if thresholds.is_open(name)] == ["red"]
    assert thresholds.of("red", "03") == {"object": 0.25, "shift": None}
    assert thresholds.shift["red"]["03"] == {
        "value": None,
        "percentile": 10.0,
        "n": 0,
        "source": "candidates",
    }
    assert Thresholds.read(thresholds.content()) == thresholds


def test_only_what_was_measured_is_pinned() -> None:
    def resolved(*changes: str) -> Thresholds:
        recipe = load_recipe("wardrobe-mini", list(changes))
        scores = {cls.id: np.linspace(0, 1, 50, dtype=np.float32) for cls in recipe.classes}
        return resolve_thresholds(recipe, lambda caption: scores)

    before = resolved()
    assert before.pin() is not None
    assert resolved("prompts.shifts.red.threshold=0.3").pin() == before.pin()
    assert resolved("prompts.shifts.red.threshold={percentile: 3}").pin() == before.pin()
    assert resolved("prompts.shifts.red.threshold=0.3").content() != before.content()
    assert resolved("screen.object_threshold={percentile: 6}").pin() != before.pin()
    assert resolved("screen.object_threshold=0.1").pin() is None


def test_what_was_measured_before_is_not_measured_again() -> None:
    recipe = load_recipe("wardrobe-mini")
    generator = np.random.default_rng(3)
    scores = {cls.id: generator.random(50, np.float32) for cls in recipe.classes}
    first = resolve_thresholds(recipe, lambda caption: scores)
    known = first.measured({shift.name: shift.object_caption for shift in recipe.all_shifts()})
    cut = load_recipe("wardrobe-mini", ["prompts.shifts.red.threshold=0.3"])
    assert not needs_validation(cut, known)
    assert resolve_thresholds(cut, None, known).object == first.object
    for change in (
        "screen.object_threshold={percentile: 6}",
        "screen.object_caption=a picture of a {class}",
    ):
        assert needs_validation(load_recipe("wardrobe-mini", [change]), known)


@given(st.floats(0.01, 99.99), st.integers(0, 30))
def test_with_the_images_it_needs_a_percentile_is_more_than_the_extreme(
    percentile: float, more: int
) -> None:
    needs = images_needed(percentile)
    assert needs >= 2
    if needs > 2000:
        return
    values = np.arange(needs + 1 + more, dtype=np.float32)
    assert values[0] < percentile_of(values, percentile) < values[-1]
    assert (needs - 1) * min(percentile, 100 - percentile) < 100 + 1e-6, (
        "no more are asked for than needed"
    )


def test_the_images_needed_are_those_of_the_tail() -> None:
    assert [images_needed(p) for p in (0, 1, 2.5, 5, 25, 50, 90, 95, 100)] == [
        1,
        100,
        40,
        20,
        4,
        2,
        10,
        20,
        1,
    ]


def test_a_class_with_too_few_images_is_recorded_and_not_refused() -> None:
    recipe = load_recipe("wardrobe-mini", ["screen.object_threshold={percentile: 5}"])
    counts = {cls.id: 20 if cls.id != "03" else 19 for cls in recipe.classes}
    scores = {class_id: np.linspace(0, 1, n, dtype=np.float32) for class_id, n in counts.items()}
    thresholds = resolve_thresholds(recipe, lambda caption: scores)
    assert thresholds.few_images() == (FewImages("03", 5.0, 19, 20),)
    assert thresholds.object["red"]["03"]["needs"] == 20
    assert "needs" not in thresholds.object["red"]["02"]
    assert "'03'" in str(thresholds.few_images()[0])


# Scores are the cosines that open_clip itself gives, whatever is scored beside them.


TWO_CLASSES = (
    "source.classes=[{id: sandal, name: sandal, source_label: 5}, {id: bag, name: bag,"
    " source_label: 8}]"
)


@cache
def plain_clip() -> tuple[Any, Any, Any]:
    """Return the lab's CLIP, its transform and its tokenizer by open_clip alone."""
    name = f"local-dir:{LAB_WEIGHTS / 'clip'}"
    parts: Any = open_clip.create_model_and_transforms(name, precision="fp32")
    return parts[0].eval(), parts[2], open_clip.get_tokenizer(name)


def naive_cosines(pictures: list[Image.Image], captions: list[str]) -> np.ndarray:
    """Return cosines [pictures, captions] as open_clip's readme computes them, one picture at a
    time."""
    model, preprocess, tokenizer = plain_clip()
    with torch.no_grad():
        texts = model.encode_text(tokenizer(captions))
        texts = texts / texts.norm(dim=-1, keepdim=True)
        rows = []
        for picture in pictures:
            image = model.encode_image(preprocess(picture).unsqueeze(0))
            rows.append((image / image.norm(dim=-1, keepdim=True)) @ texts.T)
    return torch.cat(rows).numpy()


def test_embeddings_have_unit_length_and_do_not_know_their_neighbours(
    clip: ClipModel, pictures: list[Image.Image]
) -> None:
    together = clip.embed_images(pictures, 4)
    assert together.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-6)
    np.testing.assert_array_equal(clip.embed_images(pictures[::-1], 4)[::-1], together)
    np.testing.assert_array_equal(clip.embed_images(pictures[6:7], 4)[0], together[6])
    captions = ["a photo of a bag", "a bag", "an embroidery"]
    texts = clip.embed_texts(captions)
    np.testing.assert_allclose(np.linalg.norm(texts, axis=1), 1, atol=1e-6)
    np.testing.assert_array_equal(clip.embed_texts(captions[1:2])[0], texts[1])


def test_scores_of_samples_are_open_clips_cosines(
    clip: ClipModel, pictures: list[Image.Image]
) -> None:
    recipe = load_recipe("wardrobe-mini", ["generator.batch_size=4", "samples.candidates=1"])
    plan = make_plan(recipe)
    samples = [sample for shard in plan.shards for sample in shard.samples(plan)]
    chosen = samples[:: len(samples) // len(pictures)][: len(pictures)]
    assert {"base", "pencil_sketch"} <= {sample.shift for sample in chosen}
    embeddings, scores = Scorer(clip, plan).score(pictures, chosen)
    for picture, embedding, sample, (object_score, shift_score) in zip(
        pictures, embeddings, chosen, scores, strict=True
    ):
        shift = plan.shift(sample.shift)
        cls = plan.class_of(sample.label)
        captions = [object_caption_for(shift, cls)] + ([shift.caption] if shift.caption else [])
        expected = naive_cosines([picture], captions)[0]
        assert object_score == pytest.approx(expected[0], abs=2e-5)
        assert (shift_score is None) == (sample.shift == "base")
        if shift_score is not None:
            assert shift_score == pytest.approx(expected[1], abs=2e-5)
        again = shift_scores(embedding[None], clip.embed_texts(captions[:1]), [None])
        assert again == [(object_score, None)]


@pytest.fixture(scope="module")
def validation(clip: ClipModel) -> ValidationScores:
    recipe = load_recipe("wardrobe-mini", [TWO_CLASSES])
    split = open_source(recipe.source).split("validation")
    rows = {cls.label: split.rows_of(cls.source_label) for cls in recipe.classes}
    pictures = [split.image(int(row)) for class_rows in rows.values() for row in class_rows]
    labels = np.array([label for label, class_rows in rows.items() for _ in class_rows])
    return ValidationScores(recipe, clip, labels, clip.embed_images(pictures, 64))


def test_validation_scores_are_of_the_classes_own_images(validation: ValidationScores) -> None:
    scores = validation("a photo of a {class}")
    assert {name: len(values) for name, values in scores.items()} == {"sandal": 150, "bag": 150}
    rows = [5, 15, 8, 18]
    pictures = [Image.fromarray(render(wardrobe_scene("validation", row))) for row in rows]
    expected = naive_cosines(pictures, ["a photo of a sandal", "a photo of a bag"])
    np.testing.assert_allclose(scores["sandal"][:2], expected[:2, 0], atol=2e-5)
    np.testing.assert_allclose(scores["bag"][:2], expected[2:, 1], atol=2e-5)


def test_a_caption_with_a_category_is_of_the_classes_that_have_one(clip: ClipModel) -> None:
    bag = TWO_CLASSES.replace("source_label: 8", "source_label: 8, category: holdall")
    recipe = load_recipe("wardrobe-mini", [bag])
    embeddings = clip.embed_texts(["a bag", "a sandal"])
    scores = ValidationScores(recipe, clip, np.array([1, 0]), embeddings)("a {category}, a {class}")
    assert scores.keys() == {"bag"}
    assert scores["bag"] == pytest.approx(
        embeddings[0] @ clip.embed_texts(["a holdall, a bag"])[0], abs=1e-6
    )


@pytest.mark.parametrize("percentile", [5, 37.5])
def test_percentile_thresholds_are_numpys_of_those_scores(
    validation: ValidationScores, percentile: float
) -> None:
    settings = [
        f"screen.object_threshold={{percentile: {percentile}}}",
        "screen.shift_threshold=0.2",
    ]
    settings += ["prompts.shifts.red.object_threshold=0.11"]
    recipe = load_recipe("wardrobe-mini", [TWO_CLASSES, *settings])
    thresholds = resolve_thresholds(recipe, validation)
    for caption, shift in (("a photo of a {class}", "in_the_snow"), ("a {class}", "pencil_sketch")):
        for class_id, scores in validation(caption).items():
            expected = np.percentile(scores.astype(np.float64), percentile)
            assert thresholds.of(shift, class_id)["object"] == pytest.approx(expected, abs=1e-7)
            entry = thresholds.object[shift][class_id]
            assert (entry["percentile"], entry["n"], entry["source"]) == (
                percentile,
                150,
                "validation",
            )
            yields = np.mean(scores >= np.float32(entry["value"]))
            assert abs(yields - (1 - percentile / 100)) <= 1.5 / 150
            assert entry["value"] == percentile_of(scores, percentile)
    assert thresholds.of("red", "bag") == {"object": np.float32(0.11), "shift": np.float32(0.2)}
    assert thresholds.of("base", "bag")["shift"] is None


# Whether CLIP knows the classes: zero-shot answers as numpy gives them, and files of strangers.


CAPTION = "a photo of a {class}"
THREE = (
    "source.classes=[{id: mug, name: mug, source_label: 0}, {id: star, name: star, source_label:"
    " 1},"
    " {id: ladder, name: ladder, source_label: 2}]"
)


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def vectors(rows: int, seed: int) -> np.ndarray:
    return unit(np.random.default_rng(seed).normal(size=(rows, 16)))


@given(st.integers(2, 12), st.integers(1, 40), st.integers(0, 2**31))
def test_the_answers_are_those_of_the_argmax(classes: int, images: int, seed: int) -> None:
    ids = [f"c{number}" for number in range(classes)]
    captions = vectors(classes, seed)
    pictures = {name: vectors(images, seed + 1 + index) for index, name in enumerate(ids)}
    known = known_classes(
        CAPTION, {name: f"a photo of a {name}" for name in ids}, captions, pictures
    )
    assert known is not None
    assert (known.captions, known.n) == (classes, classes * images)
    for index, name in enumerate(ids):
        scores = pictures[name].astype(np.float64) @ captions.astype(np.float64).T
        others = np.delete(scores, index, axis=1)
        assert known.classes[name].right == (scores.argmax(axis=1) == index).sum()
        assert known.classes[name].margin == pytest.approx(
            (scores[:, index] - others.max(axis=1)).mean(), abs=2e-6
        )
        wrong = np.delete(np.arange(classes), index)[others.argmax(axis=1)][
            scores.argmax(axis=1) != index
        ]
        times = np.bincount(wrong, minlength=classes)
        taken_for = known.classes[name].taken_for
        assert (
            taken_for is None
            if wrong.size == 0
            else times[ids.index(str(taken_for))] == times.max()
        )
    assert KnownClasses.read(json.loads(json.dumps(known.document()))) == known


def test_classes_of_one_name_are_not_told_apart() -> None:
    captions = vectors(2, 0)[[0, 0, 1]]
    texts = {
        "bird": "a photo of a crane",
        "machine": "a photo of a crane",
        "dog": "a photo of a dog",
    }
    pictures = {"bird": captions[:1].repeat(5, axis=0), "dog": captions[2:].repeat(5, axis=0)}
    known = known_classes(CAPTION, texts, captions, pictures)
    assert known is not None
    assert known.classes["bird"] == KnownClass(5, 0, 0.0, "machine")
    assert known.classes["dog"].right == 5
    assert known.classes["dog"].taken_for is None


def test_one_class_has_no_other() -> None:
    assert (
        known_classes(CAPTION, {"mug": "a photo of a mug"}, vectors(1, 0), {"mug": vectors(3, 1)})
        is None
    )
    assert known_classes(CAPTION, {"mug": "a mug", "star": "a star"}, vectors(2, 0), {}) is None


def answered(**classes: tuple[int, int, float, str | None]) -> KnownClasses:
    return KnownClasses(CAPTION, 3, {name: KnownClass(*counts) for name, counts in classes.items()})


def measured(known: KnownClasses | None, lowest: float = 0.2, *changes: str) -> Any:
    recipe = load_recipe("wardrobe-mini", [THREE, *changes])
    scores = {cls.id: np.linspace(lowest, 0.9, 50, dtype=np.float32) for cls in recipe.classes}
    return recipe, resolve_thresholds(recipe, lambda caption: scores).with_known(known, recipe)


def test_a_screen_that_knows_its_classes_is_not_doubted() -> None:
    known = answered(
        mug=(12, 12, 0.1, None), star=(12, 11, 0.08, "mug"), ladder=(12, 12, 0.2, None)
    )
    assert screen_doubts(*measured(known)) is None
    assert screen_doubts(*measured(None)) is None


def test_what_is_near_chance_is_doubted_by_its_interval() -> None:
    # 7 of 12 begin at 32.0 %, below 40 %: chance of one third and a tenth of the way above it.
    known = answered(mug=(12, 12, 0.1, None), star=(12, 7, 0.01, "mug"), ladder=(12, 12, 0.2, None))
    doubts = screen_doubts(*measured(known))
    assert doubts is not None
    assert [cls.class_id for cls in doubts.classes] == ["star"]
    assert (doubts.classes[0].near_chance, doubts.near_chance) == (True, False)
    assert "7 of 12" in str(doubts.classes[0])
    assert "cannot tell 'star' from 'mug'" in doubts.meaning
    assert "86.1 %" in doubts.headline


def test_near_chance_over_all_is_reported_as_not_knowing_them() -> None:
    known = answered(
        mug=(12, 11, 0.1, "star"), star=(12, 2, -0.1, "mug"), ladder=(12, 1, -0.2, "mug")
    )
    doubts = screen_doubts(*measured(known))
    assert doubts is not None
    assert doubts.near_chance
    assert doubts.headline.startswith(
        "CLIP does not know these classes: it matches 38.9 % (24.8 to 55.1) of 36"
    )
    assert [cls.class_id for cls in doubts.classes] == ["ladder", "star"], "the worst first"
    assert any("screen.model" in line for line in doubts.lines())


def test_a_negative_margin_is_doubted_whatever_the_share() -> None:
    known = answered(
        mug=(300, 200, -0.01, "star"), star=(300, 300, 0.2, None), ladder=(300, 300, 0.2, None)
    )
    doubts = screen_doubts(*measured(known))
    assert doubts is not None
    assert [(cls.class_id, cls.near_chance) for cls in doubts.classes] == [("mug", False)]


def test_a_negative_threshold_is_doubted_where_it_was_measured() -> None:
    doubts = screen_doubts(*measured(None, -0.5))
    assert doubts is not None
    assert doubts.accuracy is None
    assert {cls.class_id for cls in doubts.classes} == {"mug", "star", "ladder"}
    assert all(
        cls.least_threshold is not None and cls.least_threshold < 0 for cls in doubts.classes
    )
    assert "may show anything" in doubts.meaning
    given_by_hand = measured(None, -0.5, "screen.object_threshold=-0.5")
    assert screen_doubts(*given_by_hand) is None


def test_words_and_contexts_are_doubted_by_the_same_check_in_words_of_their_own() -> None:
    known = answered(
        mug=(12, 11, 0.1, "star"), star=(12, 2, -0.1, "mug"), ladder=(12, 12, 0.2, None)
    )
    recipe, thresholds = measured(known)
    labels, words, contexts = (
        doubts_of(recipe, thresholds.known, decides=decides) for decides in get_args(Decides)
    )
    assert labels == screen_doubts(recipe, thresholds)
    assert labels is not None and words is not None and contexts is not None
    assert words.classes == contexts.classes == labels.classes
    assert "of 36 audited images" in words.headline
    assert words.meaning.startswith(
        "CLIP cannot tell 'star' from 'mug': the images of a finding may not show"
    )
    assert words.lines()[-1].startswith("Before you trust these words: name a CLIP")
    assert "screen.judge" not in words.what_to_do
    assert "another context" in contexts.meaning
    assert words.of_any(["mug", "star"]) and not words.of_any(["mug", "ladder"])


def test_names_of_strangers_are_plain_in_warnings() -> None:
    classes = THREE.replace("name: star", 'name: "\\e[31mst\\nar"').replace(
        "name: mug", f"name: {'m' * 200}"
    )
    known = answered(
        mug=(12, 1, -0.1, "star"), star=(12, 1, -0.1, "mug"), ladder=(12, 12, 0.2, None)
    )
    doubts = screen_doubts(*measured(known, 0.2, classes))
    assert doubts is not None
    assert all(line.isprintable() and len(line) < 300 for line in doubts.lines())


def test_thresholds_bring_it_along_and_pin_nothing_of_it() -> None:
    known = answered(mug=(12, 12, 0.1, None), star=(12, 7, 0.01, "mug"), ladder=(12, 12, 0.2, None))
    recipe, with_it = measured(known)
    _, without = measured(None)
    assert with_it.pin() == without.pin() is not None
    assert Thresholds.read(with_it.content()) == with_it
    assert "known" not in json.loads(without.content()), (
        "what was written before there was such a key"
    )
    assert Thresholds.read(without.content()).known is None
    by_value = load_recipe("wardrobe-mini", [THREE, "screen.object_threshold=0.2"])
    assert resolve_thresholds(by_value, None).with_known(known, by_value).known is None, (
        "nothing was measured"
    )
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
    "all right and taken for another": lambda known: known["classes"]["mug"].update(
        taken_for="star"
    ),
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
