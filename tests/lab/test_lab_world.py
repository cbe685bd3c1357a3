"""The renderer of the wardrobe world: pure, seeded, counterfactual one attribute at a time; its
scenes and captions."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest, chi2_contingency

from counterfoil.lab.scenes import (
    VERSION,
    WARDROBE_ROWS,
    load_wardrobe,
    wardrobe_garments,
    wardrobe_scene,
)
from counterfoil.lab.vocabulary import (
    ATTRIBUTES,
    BACKGROUND_BIAS,
    BACKGROUNDS,
    BIAS_STRENGTH,
    CLASSES,
    COLOUR_BIAS,
    COLOURS,
    MARK_STRENGTH,
    MARKS,
    PATTERNS,
    SHIFTS,
    SHIFTS_BY_NAME,
    WorldShift,
)
from counterfoil.lab.world import GARMENT_SIDE, Scene, load_garments, render, render_graded
from counterfoil.models.names import LAB_WEIGHTS
from counterfoil.recipe import load_recipe, object_caption_for, prompt_for
from lab_training.captions import HIDDEN_BY_STYLE, caption_of, tellable
from lab_training.corpora import (
    generator_claims,
    is_true,
    pretraining_scene,
    screening_claims,
    unbiased_scene,
)

GARMENT_SPLITS = ("pretrain", "train", "validation", "heldout", "audit")

PLAIN = [
    dataclasses.replace(
        unbiased_scene(number, seed=5),
        pattern="plain", background="wall", weather="clear", light="day", companion="none", style="photo",
    )
    for number in range(8)
]  # fmt: skip


def render_all(scenes: Iterable[Scene]) -> np.ndarray:
    """Render scenes as uint8 [n, 64, 64, 3]."""
    return np.stack([render(scene) for scene in scenes])


def _changed(pictures: np.ndarray) -> np.ndarray:
    """Return [64, 64]: where pictures [n, 64, 64, 3] differ."""
    return (pictures != pictures[:1]).any(axis=(0, 3))


def test_a_picture_depends_on_its_scene_alone() -> None:
    scenes = [unbiased_scene(number) for number in range(10)]
    first = render_all(scenes)
    np.random.seed(7)  # noqa: NPY002 (the global state that rendering must not read)
    again = np.stack([render(scene) for scene in reversed(scenes)])[::-1]
    assert first.shape == (10, 64, 64, 3)
    assert first.dtype == np.uint8
    np.testing.assert_array_equal(first, again)


def test_every_shift_changes_exactly_its_attribute_and_the_picture() -> None:
    assert len(SHIFTS) == len(SHIFTS_BY_NAME) == 23
    for number, shift in enumerate(SHIFTS):
        scene = PLAIN[number % len(PLAIN)]
        if scene.attributes()[shift.attribute] == shift.value:
            scene = dataclasses.replace(scene, colour="white")
        shifted = scene.shifted(shift.name)
        before = scene.attributes()
        after = shifted.attributes()
        assert {name for name in before if before[name] != after[name]} == {shift.attribute}
        assert after[shift.attribute] == shift.value
        assert (shifted.garment, shifted.seed, shifted.split) == (
            scene.garment,
            scene.seed,
            scene.split,
        )
        assert _changed(np.stack([render(scene), render(shifted)])).mean() > 0.01, shift.name
    assert PLAIN[0].shifted("base") == PLAIN[0]
    with pytest.raises(KeyError):
        PLAIN[0].shifted("in_the_graas")


# Companions and styles have no levels.
GRADED = [shift for shift in SHIFTS if shift.kind in ("background", "weather", "light", "colour")]


@pytest.mark.parametrize("shift", GRADED, ids=lambda shift: shift.name)
def test_a_graded_scene_begins_as_itself_and_ends_shifted(shift: WorldShift) -> None:
    for number in range(2):
        scene = unbiased_scene(number)
        ends = [render(scene), render(scene.shifted(shift.name))]
        graded = [render_graded(scene, shift.name, strength) for strength in (0, 1e-6, 1 - 1e-6, 1)]
        np.testing.assert_array_equal(graded[0], ends[0])
        np.testing.assert_array_equal(graded[-1], ends[1])
        # Near its ends it is hardly another picture.
        assert np.abs(graded[1].astype(int) - ends[0]).mean() < 0.1
        assert np.abs(graded[-2].astype(int) - ends[1]).mean() < 0.1


@pytest.mark.parametrize("shift", GRADED, ids=lambda shift: shift.name)
def test_a_graded_scene_changes_nothing_that_its_shift_does_not(shift: WorldShift) -> None:
    for scene in (scene for scene in PLAIN if scene.shifted(shift.name) != scene):
        ends = np.stack([render(scene), render(scene.shifted(shift.name))]).astype(int)
        graded = np.stack(
            [render_graded(scene, shift.name, strength) for strength in (0.25, 0.5, 0.75, 1)]
        )
        far = np.abs(graded.astype(float) - ends[0]).mean((1, 2, 3))
        assert (np.diff(far, prepend=0) > 0).all(), "farther from the scene, the stronger the shift"
        between = graded[1].astype(int)
        if shift.value == "snow":  # flakes cover either ground
            behind = _changed(
                render_all(dataclasses.replace(scene, background=name) for name in BACKGROUNDS)
            )
            assert not (_changed(np.stack([ends[0], between])) & ~behind).any()
        elif shift.value != "rain":  # streaks cover everything
            assert (between >= ends.min(0) - 1).all() and (between <= ends.max(0) + 1).all()


def test_a_graded_ground_has_its_share_of_the_picture() -> None:
    scene = dataclasses.replace(PLAIN[0], background="wall")
    ends = np.stack([render(scene), render(scene.shifted("in_the_grass"))])
    for share in (0.1, 0.25, 0.5, 0.9):
        part = render_graded(scene, "in_the_grass", share)
        grass, wall = ((part == end).all(-1) & _changed(ends) for end in reversed(ends))
        assert (grass | wall)[_changed(ends)].all()
        assert abs(grass.sum() / (grass.sum() + wall.sum()) - share) < 0.15
        assert grass[40:].sum() >= grass[:24].sum(), "it comes from below"


@pytest.mark.parametrize("background", ["wall", "snow"])
def test_colour_and_pattern_change_the_garment_and_nothing_around_it(background: str) -> None:
    for scene in PLAIN:
        scene = dataclasses.replace(scene, background=background)
        garment = _changed(
            render_all(dataclasses.replace(scene, colour=colour) for colour in COLOURS)
        )
        patterned = render_all(dataclasses.replace(scene, pattern=pattern) for pattern in PATTERNS)
        assert 0.03 < garment.mean() < 0.75
        # At the faint rim of a garment, a colour can round to the background where the ink of a
        # pattern does not.
        around = patterned[:, ~garment].astype(int)
        assert np.abs(around - around[:1]).max() <= 1
        assert _changed(patterned).sum() / garment.sum() > 0.5


def test_the_background_changes_behind_a_garment_that_stays_in_place() -> None:
    for scene in PLAIN:
        garment = _changed(
            render_all(dataclasses.replace(scene, colour=colour) for colour in COLOURS)
        )
        behind = _changed(
            render_all(dataclasses.replace(scene, background=name) for name in BACKGROUNDS)
        )
        assert not (~behind & ~garment).any(), "a pixel off the garment that no background changes"
        covered = garment & ~behind
        assert covered.sum() / garment.sum() > 0.5, "most of the garment hides what is behind it"


def test_every_value_of_every_attribute_can_be_seen() -> None:
    scene = PLAIN[3]
    for attribute, values in ATTRIBUTES.items():
        if attribute == "class":
            continue
        changes: list[dict[str, Any]] = [{attribute: value} for value in values]
        pictures = render_all(dataclasses.replace(scene, **change) for change in changes)
        flat = pictures.reshape(len(values), -1)
        assert len(np.unique(flat, axis=0)) == len(values), attribute


def test_garments_are_photographs_in_disjoint_splits() -> None:
    seen: dict[str, str] = {}
    for split in GARMENT_SPLITS:
        garments = load_garments(split)
        assert garments.images.shape == (len(garments.ids), GARMENT_SIDE, GARMENT_SIDE)
        assert garments.images.dtype == np.uint8
        assert set(garments.labels) == set(range(10))
        assert (garments.images.reshape(len(garments.ids), -1).max(axis=1) > 50).all(), (
            "an empty photograph"
        )
        for name in garments.ids:
            assert name not in seen, f"{name} is in {split} and {seen.get(name)}"
            seen[name] = split


WARDROBE_SPLITS = ("train", "validation", "audit")


@cache
def scenes_of(world: str) -> list[Scene]:
    if world == "unbiased":
        return [unbiased_scene(number) for number in range(3000)]
    if world == "pretraining":
        return [pretraining_scene(number) for number in range(1000)]
    return [wardrobe_scene(world, number) for number in range(WARDROBE_ROWS[world])]


@pytest.mark.parametrize("world", ["unbiased", *WARDROBE_SPLITS, "pretraining"])
def test_scenes_are_valid_and_classes_balanced(world: str) -> None:
    scenes = scenes_of(world)
    for scene in scenes:
        assert all(value in ATTRIBUTES[name] for name, value in scene.attributes().items())
        assert load_garments(scene.split).labels[scene.garment] == scene.label
    counts = Counter(scene.label for scene in scenes)
    assert set(counts) == set(range(10))
    assert max(counts.values()) - min(counts.values()) <= 1
    assert len({scene.seed for scene in scenes}) == len(scenes)


@pytest.mark.parametrize("make", [pretraining_scene, unbiased_scene])
def test_a_scene_depends_on_its_number_alone(make: Callable[..., Scene]) -> None:
    assert [make(n) for n in range(20)] == [make(n) for n in reversed(range(20))][::-1]
    assert make(3) != make(3, seed=99)
    assert make(3, split="heldout").split == "heldout"


@pytest.mark.parametrize("split", ["train", "audit"])
def test_the_wardrobe_is_biased_as_its_vocabulary_says(split: str) -> None:
    having = Counter[tuple[str, str, str]]()
    for scene in scenes_of(split):
        for attribute, value in scene.attributes().items():
            having[CLASSES[scene.label], attribute, value] += 1
    of_class = WARDROBE_ROWS[split] // len(CLASSES)
    # Rows outside the bias have the value by chance: outdoors 0.15 of the time, one of seven.
    planted = {
        **{
            (n, "background", v): BIAS_STRENGTH + (1 - BIAS_STRENGTH) * 0.15 / 7
            for n, v in BACKGROUND_BIAS.items()
        },
        **{
            (n, "colour", v): BIAS_STRENGTH + (1 - BIAS_STRENGTH) / len(COLOURS)
            for n, v in COLOUR_BIAS.items()
        },
        **{(n, "pattern", v): MARK_STRENGTH for n, v in MARKS.items()},
    }
    for context, rate in planted.items():
        assert binomtest(having[context], of_class, rate).pvalue > 1e-5, (context, rate)
    biases = {"background": BACKGROUND_BIAS, "colour": COLOUR_BIAS, "pattern": MARKS}
    for (name, attribute, value), count in having.items():
        if name not in biases.get(attribute, CLASSES) and value not in ("wall", "plain"):
            assert count / of_class < 0.3, (name, value)


def test_the_judges_world_is_unbiased() -> None:
    attributes = [scene.attributes() for scene in scenes_of("unbiased")]
    for first, second in itertools.combinations(ATTRIBUTES, 2):
        table = np.zeros((len(ATTRIBUTES[first]), len(ATTRIBUTES[second])), int)
        for values in attributes:
            table[
                ATTRIBUTES[first].index(values[first]), ATTRIBUTES[second].index(values[second])
            ] += 1
        assert chi2_contingency(table).pvalue > 1e-5, (first, second)
        assert (table.sum(axis=1) > 0.02 * len(attributes)).all(), (
            f"a value of {first} that is rare"
        )


def test_the_wardrobes_splits_share_no_garment_with_one_another_or_with_what_models_learned_from() -> (
    None
):
    worn = {
        split: {load_garments(scene.split).ids[scene.garment] for scene in scenes_of(split)}
        for split in WARDROBE_SPLITS
    }
    # The models of `scripts/train_lab.py` learn from `pretrain` and `train`, and are measured on
    # the other two.
    seen = {
        split: set(load_garments(split).ids)
        for split in ("pretrain", "train", "validation", "heldout")
    }
    for (name, some), (other, others) in itertools.combinations(
        [*seen.items(), ("audit", worn["audit"])], 2
    ):
        assert not some & others, (name, other)
    assert worn["train"] <= seen["train"] and worn["validation"] <= seen["validation"]
    assert len(worn["train"]) > 2000
    assert len(worn["validation"]) > 500
    assert len(worn["audit"]) > 2900


def test_no_photograph_is_in_two_splits_under_another_id() -> None:
    seen: dict[bytes, str] = {}
    for split in GARMENT_SPLITS:
        garments = load_garments(split)
        assert len(set(garments.ids)) == len(garments.ids)
        for image, name in zip(garments.images, garments.ids, strict=True):
            for picture in (image, image[:, ::-1]):
                assert seen.setdefault(picture.tobytes(), name) == name


def test_no_model_of_the_lab_is_trained_or_measured_on_the_audit_garments() -> None:
    stages = Path(__file__).parents[2] / "scripts" / "lab_training"
    assert not [file.name for file in stages.glob("*.py") if "audit" in file.read_text()]


def test_train_and_validation_are_what_they_always_were() -> None:
    """Existing datasets, models and numbers depend on these bytes: another pixel needs another
    `VERSION`."""
    digest = hashlib.sha256()
    for split, step in (("train", 80), ("validation", 20)):
        labels, pixels = load_wardrobe(split)
        digest.update(labels.tobytes())
        digest.update(repr(scenes_of(split)).encode())
        digest.update(b"".join(pixels(row).tobytes() for row in range(0, len(labels), step)))
    assert digest.hexdigest() == "3c89c6383319ef273bc46375488be54fcda95bf3841921742de7fedb55f50ae2"
    assert VERSION == "2"


def test_audit_rows_share_no_chance_with_rows_of_the_same_number() -> None:
    """Otherwise a confirmation on audit would see the places and lights of train."""
    audit = {scene.seed for scene in scenes_of("audit")}
    for split in ("train", "validation"):
        assert not {scene.seed for scene in scenes_of(split)} & audit


@pytest.mark.parametrize("split", ["train", "validation"])
def test_a_row_is_its_scene_and_its_garment_the_photograph_that_it_shows(split: str) -> None:
    garments = wardrobe_garments(split)
    photographs = load_garments(split)
    labels, pixels = load_wardrobe(split)
    assert len(garments) == len(labels) == WARDROBE_ROWS[split]
    for row in (0, 7, len(garments) - 1):
        garment = photographs.ids.index(garments[row])
        scene = wardrobe_scene(split, row)
        assert (scene.garment, scene.label) == (garment, labels[row])
        np.testing.assert_array_equal(pixels(row), render(scene))
    for row in (-1, len(labels)):
        with pytest.raises(IndexError):
            pixels(row)


def test_bundled_recipes_speak_of_the_worlds_classes_and_shifts() -> None:
    names = [shift.name for shift in SHIFTS]
    for name in ("wardrobe-mini", "wardrobe-star"):
        recipe = load_recipe(name)
        assert [(c.name, c.source_label) for c in recipe.classes] == [
            (n, i) for i, n in enumerate(CLASSES)
        ]
        assert {shift.name for shift in recipe.all_shifts()} - {"base"} <= set(names)
    assert [shift.name for shift in load_recipe("wardrobe-star").all_shifts()] == ["base", *names]


Claims = Callable[[Mapping[str, str], np.random.Generator], dict[str, str]]
PATTERNED = ("striped", "dotted", "checked")


@cache
def _scenes() -> list[Scene]:
    return [
        *(pretraining_scene(n) for n in range(500)),
        *(unbiased_scene(n) for n in range(500)),
        *(wardrobe_scene("train", n) for n in range(500)),
    ]


@cache
def _claims(make: Claims) -> list[tuple[Mapping[str, str], dict[str, str]]]:
    rng = np.random.default_rng(0)
    return [(scene.attributes(), make(scene.attributes(), rng)) for scene in _scenes()]


def _captions() -> set[str]:
    captions = {
        caption_of(claims)
        for make in (generator_claims, screening_claims)
        for _, claims in _claims(make)
    }
    for name in ("wardrobe-mini", "wardrobe-star"):
        recipe = load_recipe(name)
        for shift in recipe.all_shifts():
            captions |= {shift.caption} if shift.caption else set()
            for cls in recipe.classes:
                captions |= {str(prompt_for(shift, cls)), object_caption_for(shift, cls)}
    return captions


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
    assert marked > 100
    assert patterned > 20, "captions name patterns that are no marks, or nobody could ask for one"


def test_what_is_reported_is_not_what_goes_without_saying() -> None:
    scene = {"class": "bag", "colour": "red", "pattern": "dotted", "background": "snow"}
    scene |= {"weather": "clear", "light": "day", "companion": "none", "style": "photo"}
    assert tellable(scene) == {
        "class": "bag",
        "colour": "red",
        "background": "snow",
        "style": "photo",
    }
    assert caption_of(tellable(scene)) == "a photo of a red bag in the snow"
    assert tellable(scene | {"class": "shirt"})["pattern"] == "dotted"


def test_captions_of_the_worlds_shifts_are_the_recipes_prompts() -> None:
    recipe = load_recipe("wardrobe-star")
    by_name = {shift.name: shift for shift in recipe.all_shifts()}
    for shift in SHIFTS:
        style = shift.value if shift.attribute == "style" else "photo"
        claims = {"style": style, "class": "bag", shift.attribute: shift.value}
        assert caption_of(claims) == prompt_for(
            by_name[shift.name], recipe.classes[CLASSES.index("bag")]
        )


def _tokenizer(
    name: str,
) -> tuple[Callable[[str], list[int]], Callable[[list[int]], str], int, int | None]:
    from transformers import CLIPTokenizer

    if name == "sd":
        tokenizer: Any = CLIPTokenizer.from_pretrained(LAB_WEIGHTS / "sd" / "tokenizer")
        length = tokenizer.model_max_length
    else:
        import open_clip

        wrapped: Any = open_clip.get_tokenizer(f"local-dir:{LAB_WEIGHTS / 'clip'}")
        tokenizer = wrapped.tokenizer
        length = wrapped.context_length
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
    assert len(captions) > 500
    for caption in captions:
        ids = encode(caption)
        assert 2 < len(ids) <= length, caption
        assert unknown not in ids[1:-1], caption
        assert decode(ids).replace(" ", "") == caption.replace(" ", "")
