"""The lab's weights: small, documented, and as good as they say: class tokens, the decoder, the
captioner."""

from __future__ import annotations

import hashlib
import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors import safe_open

from counterfoil.data.open_source import open_source
from counterfoil.detection_stats import Detections, Objects, average_precision, match_detections
from counterfoil.errors import UserError
from counterfoil.generate.image_embeddings import ImageEmbeddings
from counterfoil.generate.render import Renderer
from counterfoil.generate.tokens.class_tokens import (
    read_class_tokens,
    read_token_file,
    token_folder,
)
from counterfoil.lab.boxes import (
    MASK_CLASSES,
    boxes_scene,
    objects_in,
    split_mask,
    split_pixels,
)
from counterfoil.lab.scenes import wardrobe_scene
from counterfoil.lab.vocabulary import ATTRIBUTES, CLASSES, MARKS, SHIFTS_BY_NAME
from counterfoil.lab.world import Scene, render, render_graded
from counterfoil.models.adapters import load_adapter
from counterfoil.models.clip import load_clip
from counterfoil.models.detectors import load_detector
from counterfoil.models.diffusion import load_pipeline
from counterfoil.models.names import LAB_WEIGHTS, lab_models, pin_model, resolve_name
from counterfoil.models.segmenters import load_segmenter
from counterfoil.plan.layout import make_plan
from counterfoil.recipe import load_recipe
from lab_training.captioner import Captioner, changed_claims, claims_of, marks_told
from lab_training.captions import caption_of, tellable
from lab_training.class_tokens import MEASURED, RECIPE, SETTINGS, learning
from lab_training.corpora import pretraining_scene, unbiased_scene
from lab_training.oracle import Oracle

FOLDERS = [LAB_WEIGHTS / name for name in lab_models()]
# The lab may have 50 MB in all; raise this budget knowingly.
MOST_BYTES = 47_000_000


def test_the_weights_are_small() -> None:
    assert (
        sum(file.stat().st_size for file in LAB_WEIGHTS.rglob("*") if file.is_file()) <= MOST_BYTES
    )


def test_every_file_of_weights_has_a_name() -> None:
    files = list(LAB_WEIGHTS.rglob("*.safetensors"))
    assert files
    assert all(any(file.is_relative_to(folder) for folder in FOLDERS) for file in files)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_each_folder_says_how_it_was_trained_and_has_half_precision_safetensors(
    folder: Path,
) -> None:
    training = json.loads((folder / "training.json").read_text())
    script = "train_planted" if folder.parent.name == "planted" else "train_lab"
    assert training["command"].startswith(f"python scripts/{script}.py")
    kinds = {file.suffix for file in folder.rglob("*")}
    assert not kinds & {".bin", ".pt", ".pth", ".ckpt", ".pkl", ".npy"}
    for file in folder.rglob("*.safetensors"):
        with safe_open(file, "numpy") as tensors:
            kinds = {tensors.get_slice(name).get_dtype() for name in tensors.keys()}  # noqa: SIM118 (not a mapping)
        assert kinds <= {"F16", "I64"}, file


TOKENS = token_folder("lab:tokens", None)
MANIFEST = json.loads((TOKENS / "manifest.json").read_text())
METRICS = json.loads((TOKENS / "metrics.json").read_text())


@pytest.mark.parametrize("name", ["wardrobe-mini", "wardrobe-star"])
def test_the_wardrobe_recipes_prompt_with_them(name: str) -> None:
    recipe = load_recipe(name)
    tokens = read_class_tokens(recipe)
    assert tokens is not None
    for cls in recipe.classes:
        assert tokens.placeholders[cls.id] == f"<{cls.name.replace(' ', '-')}-{cls.id}>"
        assert [tuple(part.shape) for part in tokens.vectors[cls.id]] == [
            (SETTINGS["vectors"], 128)
        ]
    assert tokens.hashes() == {
        class_id: entry["sha256"] for class_id, entry in MANIFEST["classes"].items()
    }


def test_they_were_learned_with_the_generator_that_ships_from_the_training_images() -> None:
    recipe = load_recipe(RECIPE, learning(SETTINGS))
    assert recipe.tokens is not None and recipe.tokens.learn is not None
    assert MANIFEST["generator"] == pin_model("lab:sd").document()
    # Version 1 of the world, which differs from version 2 in one value of 10,000
    # (`docs/explanation/lab.md`).
    assert MANIFEST["source"] == open_source(recipe.source).pin.document() | {
        "split": "train",
        "revision": "1",
    }
    assert {**recipe.tokens.learn.model_dump(mode="json"), "rendered_size": None} == MANIFEST[
        "settings"
    ]
    for cls in recipe.classes:
        path = TOKENS / f"{cls.id}.safetensors"
        assert (
            hashlib.sha256(path.read_bytes()).hexdigest() == MANIFEST["classes"][cls.id]["sha256"]
        )
        notes = read_token_file(path).notes
        assert (notes["initial_words"], notes["images"]) == (cls.name, 800)


def test_they_say_how_they_were_trained_and_what_they_change() -> None:
    training = json.loads((TOKENS / "training.json").read_text())
    assert training["command"] == "python scripts/train_lab.py tokens"
    assert training["tokens"]["learn"] == json.loads(json.dumps(SETTINGS))
    assert METRICS["measured"]["samples"] == MEASURED
    assert MEASURED["seed"] not in {
        load_recipe(name).samples.seed for name in ("wardrobe-mini", "wardrobe-star")
    }
    assert set(METRICS["base_accuracy"]) == set(load_recipe(RECIPE).evaluate.models)


def test_they_are_no_model_and_other_names_of_the_lab_are_no_tokens() -> None:
    assert "tokens" not in lab_models()
    with pytest.raises(UserError, match="the lab has no 'tokens'"):
        resolve_name("lab:tokens")
    with pytest.raises(UserError, match=r"no tokens 'lab:token'; did you mean 'lab:tokens'\?"):
        token_folder("lab:token", None)
    with pytest.raises(UserError, match="no tokens 'lab:sd'") as refused:
        read_class_tokens(load_recipe(RECIPE, ["tokens.path=lab:sd"]))
    assert "lab:tokens" in (refused.value.hint or "")


PLACES = {"beach": "on the beach", "snow": "in the snow"}


def test_colour_and_place_of_a_captions_vector_are_seen_in_its_picture() -> None:
    torch.set_num_threads(1)
    claimed = list(itertools.product(("red", "blue", "green"), PLACES))
    captions = [f"a photo of a {colour} bag {PLACES[ground]}" for colour, ground in claimed]
    classes = ", ".join(
        f"{{id: '{number}', name: bag, source_label: {number}}}" for number in range(len(claimed))
    )
    recipe = load_recipe(
        "wardrobe-mini",
        [
            f"source.classes=[{classes}]",
            "tokens=null",
            "prompts={base: {prompt: null, embedding: {file: v.safetensors}}, shifts: {}}",
            "generator={model: lab:sd, steps: 8, guidance: 3.0, batch_size: 6, dtype: float32}",
            "samples.candidates=1",
        ],
    )
    vectors = dict(
        zip(
            [cls.id for cls in recipe.classes],
            load_clip("lab:clip").embed_texts(captions),
            strict=True,
        )
    )
    pipeline = load_pipeline("lab:sd", dtype="float32")
    embeddings = ImageEmbeddings({"base": vectors}, {"base": "{class_id}"}, 128)
    renderer = Renderer(pipeline, recipe, embeddings, load_adapter(pipeline, "lab:decoder"))
    plan = make_plan(recipe)
    drawn = renderer.render([sample for shard in plan.shards for sample in shard.samples(plan)])
    seen = Oracle().answers(np.stack([image for image in drawn if image is not None]))
    for index, attribute in enumerate(("colour", "background")):
        wanted = np.array([ATTRIBUTES[attribute].index(values[index]) for values in claimed])
        assert (seen[attribute] == wanted).sum() >= 5, attribute


@pytest.mark.parametrize("shift", ["in_the_rain", "red"])
def test_the_oracles_confidence_grows_with_the_strength_of_a_shift(shift: str) -> None:
    oracle = Oracle()
    change = SHIFTS_BY_NAME[shift]
    scenes = [
        scene
        for scene in map(wardrobe_scene, ["audit"] * 10, range(10))
        if scene.shifted(shift) != scene
    ]
    graded = np.stack(
        [
            render_graded(scene, shift, strength)
            for strength in (0, 0.25, 0.5, 0.75, 1)
            for scene in scenes
        ]
    )
    seen = oracle.confidences(graded)
    for attribute, answers in oracle.answers(graded).items():
        np.testing.assert_allclose(seen[attribute].sum(1), 1)
        np.testing.assert_array_equal(seen[attribute].argmax(1), answers)
    sure = seen[change.attribute][:, ATTRIBUTES[change.attribute].index(change.value)].reshape(
        5, -1
    )
    assert (np.diff(sure.mean(1)) > 0).all()
    assert sure[0].mean() < 0.1 and sure[-1].mean() > 0.95
    assert ((np.diff(sure, axis=0) >= -0.02).all(0)).mean() >= 0.9


def test_its_figures_stand_well_above_chance() -> None:
    figures = json.loads((LAB_WEIGHTS / "decoder" / "metrics.json").read_text())[
        "heldout_agreement"
    ]
    for attribute, chance in figures["chance"].items():
        for way in ("of_picture_vectors", "of_caption_vectors"):
            assert figures[way][attribute] > 3 * chance, (way, attribute)


CAPTIONER = LAB_WEIGHTS / "captioner"
GROUNDS = ("beach", "forest", "snow", "brick")


@pytest.fixture(scope="module")
def captioner() -> Captioner:
    torch.set_num_threads(1)
    return Captioner.load()


def pixels_of(scenes: list[Scene]) -> np.ndarray:
    return np.stack([render(scene) for scene in scenes])


def plain_photographs(count: int, **changes: str) -> list[Scene]:
    """Return scenes of held-out garments, photographed by day and alone, of each class in turn."""
    plain = {
        "style": "photo",
        "pattern": "plain",
        "weather": "clear",
        "light": "day",
        "companion": "none",
    }
    attributes: dict[str, Any] = {**plain, **changes}
    return [
        replace(pretraining_scene(n, seed=515, split="heldout"), **attributes) for n in range(count)
    ]


def test_the_folder_opens_by_the_names_that_transformers_gives(captioner: Captioner) -> None:
    from transformers import (
        AutoImageProcessor,
        AutoModelForImageTextToText,
        AutoTokenizer,
        GenerationConfig,
    )

    offline = {"local_files_only": True, "trust_remote_code": False}
    model = AutoModelForImageTextToText.from_pretrained(
        CAPTIONER, use_safetensors=True, **offline
    ).eval()
    tokenizer: Any = AutoTokenizer.from_pretrained(CAPTIONER, **offline)
    processor = AutoImageProcessor.from_pretrained(CAPTIONER, **offline)
    assert {p.dtype for p in model.parameters()} == {torch.float32}, (
        "stored as fp16, computed in fp32"
    )
    assert (
        GenerationConfig.from_pretrained(CAPTIONER).decoder_start_token_id == tokenizer.bos_token_id
    )
    pixels = pixels_of(plain_photographs(4))
    seen = processor([Image.fromarray(image) for image in pixels], return_tensors="pt").pixel_values
    with torch.inference_mode():
        captions = tokenizer.batch_decode(
            model.generate(pixel_values=seen), skip_special_tokens=True
        )
    assert captions == captioner.write(pixels)


def test_its_tokenizer_knows_every_word_and_gives_it_back(captioner: Captioner) -> None:
    captions = {caption_of(tellable(unbiased_scene(n, seed=517).attributes())) for n in range(1500)}
    tokenizer = captioner.tokenizer
    for caption in sorted(captions):
        words = tokenizer(caption).input_ids
        assert tokenizer.unk_token_id not in words, caption
        assert tokenizer.decode(words) == caption
    assert tokenizer("A photo of a sandal.").input_ids == tokenizer("a photo of a sandal").input_ids
    assert tokenizer("a photo of a giraffe").input_ids[-1] == tokenizer.unk_token_id


def test_it_tells_what_is_there_on_held_out_garments(captioner: Captioner) -> None:
    scenes = [unbiased_scene(n, seed=515, split="heldout") for n in range(40)]
    claimed = [claims_of(caption) for caption in captioner.write(pixels_of(scenes))]
    for attribute in ("background", "light", "colour", "style"):
        true = [tellable(scene.attributes()).get(attribute) for scene in scenes]
        right = [
            claims.get(attribute) == value
            for claims, value in zip(claimed, true, strict=True)
            if value
        ]
        assert np.mean(right) >= 0.85, attribute


def test_a_prefix_is_gone_on_from(captioner: Captioner) -> None:
    scenes = [replace(s, background=GROUNDS[n % 4]) for n, s in enumerate(plain_photographs(20))]
    prefixes = [f"a photo of a {scene.attributes()['class']}" for scene in scenes]
    captions = captioner.write(pixels_of(scenes), prefixes)
    assert all(
        caption.startswith(prefix) for caption, prefix in zip(captions, prefixes, strict=True)
    )
    claimed = [claims_of(caption) for caption in captions]
    assert (
        np.mean([c.get("background") == s.background for c, s in zip(claimed, scenes, strict=True)])
        >= 0.85
    )
    short = [
        claims_of(caption)
        for caption in captioner.write(pixels_of(scenes), ["a photo of a"] * len(scenes))
    ]
    assert (
        np.mean([c.get("colour") == s.colour for c, s in zip(short, scenes, strict=True)]) >= 0.85
    )
    assert all("class" in claims for claims in short)


def test_the_true_caption_is_likelier_than_one_with_one_thing_changed(captioner: Captioner) -> None:
    scenes = [unbiased_scene(n, seed=516, split="heldout") for n in range(24)]
    pixels = pixels_of(scenes)
    rng = np.random.default_rng(0)
    claimed = [tellable(scene.attributes()) for scene in scenes]
    true = captioner.likelihoods(pixels, [caption_of(claims) for claims in claimed])
    for attribute in ("colour", "background", "weather", "light", "companion", "style"):
        others = [changed_claims(claims, attribute, rng) for claims in claimed]
        rows = [row for row, claims in enumerate(others) if claims is not None]
        changed = captioner.likelihoods(
            pixels[rows], [caption_of(claims) for claims in others if claims is not None]
        )
        assert np.mean(true[rows] > changed) >= 0.9, attribute


def test_a_partial_truth_is_likelier_than_a_partial_falsehood(captioner: Captioner) -> None:
    scenes = [replace(scene, background="snow") for scene in plain_photographs(20)]
    pixels = pixels_of(scenes)
    names = [scene.attributes()["class"] for scene in scenes]
    for begin in ("a photo of a", "a"):
        true = captioner.likelihoods(pixels, [f"{begin} {name} in the snow" for name in names])
        false = captioner.likelihoods(pixels, [f"{begin} {name} in the grass" for name in names])
        assert np.mean(true > false) >= 0.95, begin


def test_likelihoods_are_those_of_generation(captioner: Captioner) -> None:
    pixels = pixels_of(plain_photographs(3))
    captions = captioner.write(pixels)
    with torch.inference_mode():
        drawn = captioner.model.generate(
            pixel_values=torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 127.5 - 1,
            return_dict_in_generate=True,
            output_scores=True,
        )
        scores = captioner.model.compute_transition_scores(
            drawn.sequences, drawn.scores, normalize_logits=True
        )
    words = drawn.sequences[:, 1:] != captioner.tokenizer.pad_token_id
    sums = torch.where(words, scores, 0.0).sum(1).numpy()
    assert np.allclose(captioner.likelihoods(pixels, captions), sums, atol=1e-4)


def test_it_never_tells_a_mark(captioner: Captioner) -> None:
    marked = [
        replace(scene, pattern=MARKS[scene.attributes()["class"]])
        for scene in plain_photographs(40)
        if scene.attributes()["class"] in MARKS
    ]
    assert len(marked) == 12
    pixels = pixels_of(marked)
    names = [scene.attributes()["class"] for scene in marked]
    prefixes = [f"a photo of a {name}" for name in names]
    for claimed in (captioner.write(pixels), captioner.write(pixels, prefixes)):
        assert not [caption for caption in claimed if marks_told(caption)]
    untold = [tellable(scene.attributes()) for scene in marked]
    with_mark = [caption_of(claims | {"pattern": MARKS[claims["class"]]}) for claims in untold]
    without = [caption_of(claims) for claims in untold]
    assert (captioner.likelihoods(pixels, without) > captioner.likelihoods(pixels, with_mark)).all()


def test_its_figures_reach_what_it_is_for() -> None:
    figures = json.loads((CAPTIONER / "metrics.json").read_text())
    for world in ("as_the_generator_learned", "every_value_common"):
        for attribute in ("background", "light", "colour", "style"):
            assert figures[world]["told_right"][attribute] >= 0.9, (world, attribute)
            assert figures[world]["true_above_changed"][attribute] >= 0.95, (world, attribute)
        assert figures[world]["marks_told"]["captions"] == 0
        assert set(figures[world]["told_false"]) == set(ATTRIBUTES)


def test_the_detector_finds_what_it_says_on_garments_that_it_never_saw() -> None:
    detector = load_detector("lab:rtdetr_boxes")
    assert detector.label_names == CLASSES
    rows = range(40)
    objects = [objects_in(boxes_scene("audit", row)) for row in rows]
    detections = detector([Image.fromarray(split_pixels("audit", row)) for row in rows])

    def flat(values: list[Any]) -> np.ndarray:
        return np.concatenate(
            [np.asarray(value, float).reshape(len(value), -1) for value in values]
        ).squeeze()

    images = np.repeat(rows, [len(detection["scores"]) for detection in detections])
    corners = flat([detection["boxes"] for detection in detections])
    boxes = np.concatenate([corners[:, :2], corners[:, 2:] - corners[:, :2]], axis=1)
    detected = Detections.of(
        images,
        boxes,
        flat([detection["labels"] for detection in detections]),
        flat([detection["scores"] for detection in detections]),
    )
    true = Objects.of(
        np.repeat(rows, [len(row["id"]) for row in objects]),
        flat([row["bbox"] for row in objects]),
        flat([row["category"] for row in objects]),
        flat([row["area"] for row in objects]),
    )
    precision = average_precision(match_detections(true, detected, len(rows), len(CLASSES)))
    metrics = json.loads((LAB_WEIGHTS / "rtdetr_boxes" / "metrics.json").read_text())
    # 120 garments: a standard error of some 5 points.
    assert precision.measure("AP50") == pytest.approx(metrics["validation_ap50"], abs=0.08)
    assert precision.measure("AP") == pytest.approx(metrics["validation_ap"], abs=0.08)
    assert metrics["validation_ap50"] > 0.6


def test_the_segmenter_knows_what_it_says_on_garments_that_it_never_saw() -> None:
    folder = LAB_WEIGHTS / "upernet_masks"
    assert sum(file.stat().st_size for file in folder.iterdir()) < 2_000_000
    segmenter = load_segmenter("lab:upernet_masks")
    assert segmenter.label_names == MASK_CLASSES
    rows = range(40)
    answers = segmenter([Image.fromarray(split_pixels("audit", row)) for row in rows])
    answered = np.stack([scores.argmax(0).numpy() for scores in answers])
    true = np.stack([split_mask("audit", row) for row in rows])
    iou = []
    for number in range(len(MASK_CLASSES)):
        is_class = true == number
        given = answered == number
        iou.append((is_class & given).sum() / (is_class | given).sum())
    metrics = json.loads((folder / "metrics.json").read_text())
    # 120 garments: a standard error of some 5 points.
    assert np.mean(iou) == pytest.approx(metrics["validation_miou"], abs=0.08)
    assert metrics["validation_miou"] > 0.55
