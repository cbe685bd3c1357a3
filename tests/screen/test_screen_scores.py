"""Scores are the cosines that open_clip itself gives, whatever is scored beside them."""

from __future__ import annotations

from typing import Any

import numpy as np
import open_clip
import pytest
import torch
from PIL import Image

from counterfoil.lab.scenes import wardrobe_scene
from counterfoil.lab.world import render
from counterfoil.models import LAB_WEIGHTS
from counterfoil.models.clip import ClipModel
from counterfoil.plan import make_plan
from counterfoil.recipe import load_recipe, object_caption_for
from counterfoil.screen.scores import Scorer, ValidationScores, shift_scores
from counterfoil.screen.thresholds import percentile_of, resolve_thresholds
from counterfoil.sources.input_datasets import load_source

TWO_CLASSES = "source.classes=[{id: sandal, name: sandal, source_label: 5}, {id: bag, name: bag, source_label: 8}]"


def naive_cosines(pictures: list[Image.Image], captions: list[str]) -> np.ndarray:
    """[pictures, captions] as open_clip's readme computes them, one picture at a time."""
    made: Any = open_clip.create_model_and_transforms(f"local-dir:{LAB_WEIGHTS / 'clip'}", precision="fp32")
    model, _, preprocess = made
    tokenizer = open_clip.get_tokenizer(f"local-dir:{LAB_WEIGHTS / 'clip'}")
    model.eval()
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


def test_scores_of_samples_are_open_clips_cosines(clip: ClipModel, pictures: list[Image.Image]) -> None:
    recipe = load_recipe("wardrobe-mini", ["generator.batch_size=4", "samples.candidates=1"])
    plan = make_plan(recipe)
    samples = [sample for shard in plan.shards for sample in shard.samples(plan)]
    chosen = samples[:: len(samples) // len(pictures)][: len(pictures)]
    assert {"base", "pencil_sketch"} <= {sample.shift for sample in chosen}
    embeddings, scores = Scorer.for_plan(clip, plan).score(pictures, chosen)
    for picture, embedding, sample, (object_score, shift_score) in zip(
        pictures, embeddings, chosen, scores, strict=True
    ):
        shift, cls = plan.shift(sample.shift), plan.class_of(sample.label)
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
    split = load_source(recipe.source, "validation")
    rows = {cls.label: split.rows_of(cls.source_label) for cls in recipe.classes}
    pictures = [split.image(int(row)) for own in rows.values() for row in own]
    labels = np.array([label for label, own in rows.items() for _ in own])
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
    recipe, embeddings = load_recipe("wardrobe-mini", [bag]), clip.embed_texts(["a bag", "a sandal"])
    scores = ValidationScores(recipe, clip, np.array([1, 0]), embeddings)("a {category}, a {class}")
    assert scores.keys() == {"bag"}
    assert scores["bag"] == pytest.approx(embeddings[0] @ clip.embed_texts(["a holdall, a bag"])[0], abs=1e-6)


@pytest.mark.parametrize("percentile", [0, 5, 37.5, 100])
def test_percentile_thresholds_are_numpys_of_those_scores(validation: ValidationScores, percentile: float) -> None:
    settings = [f"screen.object_threshold={{percentile: {percentile}}}", "screen.shift_threshold=0.2"]
    settings += ["prompts.shifts.red.object_threshold=0.11"]
    recipe = load_recipe("wardrobe-mini", [TWO_CLASSES, *settings])
    thresholds = resolve_thresholds(recipe, validation)
    for caption, shift in (("a photo of a {class}", "in_the_snow"), ("a {class}", "pencil_sketch")):
        for class_id, scores in validation(caption).items():
            expected = np.percentile(scores.astype(np.float64), percentile)
            assert thresholds.of(shift, class_id)["object"] == pytest.approx(expected, abs=1e-7)
            entry = thresholds.object[shift][class_id]
            assert (entry["percentile"], entry["n"], entry["source"]) == (percentile, 150, "validation")
            yields = np.mean(scores >= np.float32(entry["value"]))
            assert abs(yields - (1 - percentile / 100)) <= 1.5 / 150
            assert entry["value"] == percentile_of(scores, percentile)
    assert thresholds.of("red", "bag") == {"object": np.float32(0.11), "shift": np.float32(0.2)}
    assert thresholds.of("base", "bag")["shift"] is None
