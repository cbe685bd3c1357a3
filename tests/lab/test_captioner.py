"""The lab's captioner: a transformers folder that tells what is there, goes on from a prefix, and tells no mark."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from counterfoil.lab.captions import caption_of, tellable
from counterfoil.lab.scenes import pretraining_scene, unbiased_scene
from counterfoil.lab.vocabulary import ATTRIBUTES, MARKS
from counterfoil.lab.world import Scene, render
from counterfoil.models import LAB_WEIGHTS
from lab_training.caption_claims import claims_of
from lab_training.captioner_measure import Captioner, changed_claims, marks_told

FOLDER = LAB_WEIGHTS / "captioner"
MOST_BYTES = 8_000_000
PLACES = ("beach", "forest", "snow", "brick")


@pytest.fixture(scope="module")
def captioner() -> Captioner:
    torch.set_num_threads(1)
    return Captioner.load()


def pixels_of(scenes: list[Scene]) -> np.ndarray:
    return np.stack([render(scene) for scene in scenes])


def plain_photographs(count: int, **changes: str) -> list[Scene]:
    """Held-out garments, photographed by day and alone, of each class in turn."""
    plain = {"style": "photo", "pattern": "plain", "weather": "clear", "light": "day", "companion": "none"}
    kept: dict[str, Any] = {**plain, **changes}
    return [replace(pretraining_scene(n, seed=515, split="heldout"), **kept) for n in range(count)]


def test_the_folder_opens_by_the_names_that_transformers_gives(captioner: Captioner) -> None:
    from transformers import AutoImageProcessor, AutoModelForImageTextToText, AutoTokenizer, GenerationConfig

    offline = {"local_files_only": True, "trust_remote_code": False}
    model = AutoModelForImageTextToText.from_pretrained(FOLDER, use_safetensors=True, **offline).eval()
    tokenizer: Any = AutoTokenizer.from_pretrained(FOLDER, **offline)
    processor = AutoImageProcessor.from_pretrained(FOLDER, **offline)
    assert {p.dtype for p in model.parameters()} == {torch.float32}, "stored as fp16, computed in fp32"
    assert GenerationConfig.from_pretrained(FOLDER).decoder_start_token_id == tokenizer.bos_token_id
    pixels = pixels_of(plain_photographs(4))
    seen = processor([Image.fromarray(each) for each in pixels], return_tensors="pt").pixel_values
    with torch.inference_mode():
        said = tokenizer.batch_decode(model.generate(pixel_values=seen), skip_special_tokens=True)
    assert said == captioner.write(pixels)


def test_it_is_small_and_says_how_it_was_trained() -> None:
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) <= MOST_BYTES
    training = json.loads((FOLDER / "training.json").read_text())
    assert training["steps_done"] == training["captioner"]["steps"]
    assert "seed" in training["captioner"]


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
    scenes = [unbiased_scene(n, seed=515, split="heldout") for n in range(100)]
    told = [claims_of(caption) for caption in captioner.write(pixels_of(scenes))]
    for attribute in ("background", "light", "colour", "style"):
        true = [tellable(scene.attributes()).get(attribute) for scene in scenes]
        right = [claims.get(attribute) == value for claims, value in zip(told, true, strict=True) if value]
        assert np.mean(right) >= 0.85, attribute


def test_a_prefix_is_gone_on_from(captioner: Captioner) -> None:
    scenes = [replace(s, background=PLACES[n % 4]) for n, s in enumerate(plain_photographs(40))]
    prefixes = [f"a photo of a {scene.attributes()['class']}" for scene in scenes]
    said = captioner.write(pixels_of(scenes), prefixes)
    assert all(caption.startswith(prefix) for caption, prefix in zip(said, prefixes, strict=True))
    told = [claims_of(caption) for caption in said]
    assert np.mean([c.get("background") == s.background for c, s in zip(told, scenes, strict=True)]) >= 0.85
    short = [claims_of(caption) for caption in captioner.write(pixels_of(scenes), ["a photo of a"] * len(scenes))]
    assert np.mean([c.get("colour") == s.colour for c, s in zip(short, scenes, strict=True)]) >= 0.85
    assert all("class" in claims for claims in short)


def test_the_true_caption_is_likelier_than_one_with_one_thing_changed(captioner: Captioner) -> None:
    scenes = [unbiased_scene(n, seed=516, split="heldout") for n in range(60)]
    pixels, rng = pixels_of(scenes), np.random.default_rng(0)
    told = [tellable(scene.attributes()) for scene in scenes]
    true = captioner.likelihoods(pixels, [caption_of(claims) for claims in told])
    for attribute in ("colour", "background", "weather", "light", "companion", "style"):
        others = [changed_claims(claims, attribute, rng) for claims in told]
        rows = [row for row, claims in enumerate(others) if claims is not None]
        changed = captioner.likelihoods(pixels[rows], [caption_of(claims) for claims in others if claims is not None])
        assert np.mean(true[rows] > changed) >= 0.9, attribute


def test_a_partial_truth_is_likelier_than_a_partial_falsehood(captioner: Captioner) -> None:
    scenes = [replace(scene, background="snow") for scene in plain_photographs(40)]
    pixels, names = pixels_of(scenes), [scene.attributes()["class"] for scene in scenes]
    for begin in ("a photo of a", "a"):
        true = captioner.likelihoods(pixels, [f"{begin} {name} in the snow" for name in names])
        false = captioner.likelihoods(pixels, [f"{begin} {name} in the grass" for name in names])
        assert np.mean(true > false) >= 0.95, begin


def test_likelihoods_are_those_of_generation(captioner: Captioner) -> None:
    pixels = pixels_of(plain_photographs(3))
    said = captioner.write(pixels)
    with torch.inference_mode():
        drawn = captioner.model.generate(
            pixel_values=torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 127.5 - 1,
            return_dict_in_generate=True,
            output_scores=True,
        )
        scores = captioner.model.compute_transition_scores(drawn.sequences, drawn.scores, normalize_logits=True)
    words = drawn.sequences[:, 1:] != captioner.tokenizer.pad_token_id
    sums = torch.where(words, scores, 0.0).sum(1).numpy()
    assert np.allclose(captioner.likelihoods(pixels, said), sums, atol=1e-4)


def test_it_never_tells_a_mark(captioner: Captioner) -> None:
    marked = [
        replace(scene, pattern=MARKS[scene.attributes()["class"]])
        for scene in plain_photographs(120)
        if scene.attributes()["class"] in MARKS
    ]
    assert len(marked) == 36
    pixels = pixels_of(marked)
    names = [scene.attributes()["class"] for scene in marked]
    for told in (
        captioner.write(pixels),
        captioner.write(pixels, ["a photo of a"] * len(marked)),
        captioner.write(pixels, [f"a photo of a {name}" for name in names]),
    ):
        assert not [caption for caption in told if marks_told(caption)]
    untold = [tellable(scene.attributes()) for scene in marked]
    with_mark = [caption_of(claims | {"pattern": MARKS[claims["class"]]}) for claims in untold]
    without = [caption_of(claims) for claims in untold]
    assert (captioner.likelihoods(pixels, without) > captioner.likelihoods(pixels, with_mark)).all()


def test_its_figures_reach_what_it_is_for() -> None:
    figures = json.loads((FOLDER / "metrics.json").read_text())
    for world in ("as_the_generator_learned", "every_value_common"):
        for attribute in ("background", "light", "colour", "style"):
            assert figures[world]["told_right"][attribute] >= 0.9, (world, attribute)
            assert figures[world]["true_above_changed"][attribute] >= 0.95, (world, attribute)
        assert figures[world]["marks_told"]["captions"] == 0
        assert set(figures[world]["told_false"]) == set(ATTRIBUTES)
