"""Segmenters of transformers answer as a plain call of their model and processor, and unfit folders
are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image

from counterfoil.building.build_dataset import build
from counterfoil.data.masks import decoded_mask
from counterfoil.evaluation import evaluate
from counterfoil.evaluation.dataset import open_dataset
from counterfoil.evaluation.tasks.masks.answers import class_numbers
from counterfoil.evaluation.tasks.masks.subject import open_masks
from counterfoil.models.segmenters.of_transformers import load
from counterfoil.store.decoding import rgb_image
from support.masks import NAMES, RECIPE, mask_folder
from support.refusals import problems_of

LABELS: dict[str, Any] = {
    "id2label": dict(enumerate(("sky", *NAMES))),
    "label2id": {name: number for number, name in enumerate(("sky", *NAMES))},
}


@pytest.fixture(scope="module")
def segformer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save a SegFormer of a few thousand random weights."""
    torch.manual_seed(0)
    config = transformers.SegformerConfig(
        num_encoder_blocks=2, depths=[1, 1], sr_ratios=[2, 1], hidden_sizes=[8, 16], patch_sizes=[7, 3],
        strides=[4, 2], num_attention_heads=[1, 2], mlp_ratios=[2, 2], decoder_hidden_size=16, **LABELS,
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("segformer")
    transformers.SegformerForSemanticSegmentation(config).save_pretrained(folder)
    transformers.SegformerImageProcessor(size={"height": 64, "width": 64}).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def mask2former(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save a Mask2Former of random weights, whose images get sides of its own."""
    torch.manual_seed(0)
    stages = ["stage1", "stage2", "stage3", "stage4"]
    small: dict[str, Any] = {
        "image_size": 64,
        "patch_size": 4,
        "embed_dim": 8,
        "out_features": stages,
    }
    backbone = transformers.SwinConfig(
        depths=[1, 1, 1, 1], num_heads=[1, 1, 1, 1], window_size=4, **small
    )
    config = transformers.Mask2FormerConfig(
        backbone_config=backbone, feature_size=32, mask_feature_size=32, hidden_dim=32, encoder_layers=1,
        decoder_layers=2, encoder_feedforward_dim=32, dim_feedforward=32, num_attention_heads=2, num_queries=6,
        **LABELS,
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("mask2former")
    model = transformers.Mask2FormerForUniversalSegmentation(config)
    with torch.no_grad():
        # Random queries are all alike: these differ, so that images have several classes.
        for parameter in model.parameters():
            if parameter.ndim > 1:
                torch.nn.init.normal_(parameter, std=0.5)
    model.save_pretrained(folder)
    size = {"shortest_edge": 64, "longest_edge": 128}
    transformers.Mask2FormerImageProcessor(size=size).save_pretrained(folder)
    return folder


def plain_answer(folder: Path, image: Image.Image) -> np.ndarray:
    """Return the classes that the library's own model and processor give."""
    auto = transformers.AutoModelForSemanticSegmentation
    if folder.name.startswith("mask2former"):
        auto = transformers.AutoModelForUniversalSegmentation
    model = auto.from_pretrained(folder).eval()
    processor = transformers.AutoImageProcessor.from_pretrained(folder)
    with torch.inference_mode():
        outputs = model(**processor(images=image, return_tensors="pt"))
    sizes = [image.size[::-1]]
    (answer,) = processor.post_process_semantic_segmentation(outputs, target_sizes=sizes)
    return answer.numpy()


@pytest.mark.parametrize("kind", ["segformer", "mask2former"])
def test_answers_are_those_of_a_plain_call(kind: str, request: pytest.FixtureRequest) -> None:
    folder = request.getfixturevalue(kind)
    segmenter = load(f"transformers:{folder}", "cpu")
    assert segmenter.label_names == ("sky", *NAMES)
    rng = np.random.default_rng(0)
    images = [
        Image.fromarray(rng.integers(0, 256, (*shape, 3), dtype=np.uint8))
        for shape in ((48, 64), (60, 40))
    ]
    for image, scores in zip(images, segmenter(images), strict=True):
        numbers = class_numbers("mine", scores, image.size[::-1], 4)
        expected = plain_answer(folder, image)
        assert (numbers == expected).all()
        assert len(np.unique(expected)) > 1


def test_an_evaluation_has_these_answers_and_keeps_them(segformer: Path, tmp_path: Path) -> None:
    mask_folder(tmp_path / "patches", 4)
    (tmp_path / "recipe.yaml").write_text(RECIPE.format(folder=tmp_path / "patches"))
    built = tmp_path / "built"
    build(tmp_path / "recipe.yaml", built, device="cpu", workers=1)
    name = f"transformers:{segformer}"
    first = evaluate(built, [name], device="cpu")
    dataset = open_dataset(built)
    subject = open_masks(dataset)
    right = known = 0
    for key, encoded in dataset.images():
        if key.startswith("base"):
            mask = decoded_mask(subject.masks[subject.number_of[dataset.keys.index(key)]])
            answer = plain_answer(segformer, rgb_image(encoded)) - 1
            right += int(((answer == mask) & (mask != 255)).sum())
            known += int((mask != 255).sum())
    accuracy = first.results.rows.value("pixel_accuracy", model=name, group="base")
    assert accuracy == pytest.approx(right / known, abs=1e-9)
    (kept,) = dataset.workplace.glob("segmentations/*.parquet")
    before = kept.stat().st_mtime_ns
    again = evaluate(built, [name], device="cpu")
    assert kept.stat().st_mtime_ns == before
    assert again.results.rows == first.results.rows


CHANGES: dict[str, tuple[str, dict[str, Any], str]] = {
    "another kind": ("config.json", {"model_type": "vit"}, "no semantic segmenter of that kind"),
    "no names": ("config.json", {"id2label": None}, "id2label"),
    "a crop": (
        "preprocessor_config.json",
        {"do_center_crop": True, "crop_size": {"height": 32, "width": 32}},
        "so that scores are not of the whole image",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_unfit_folders_are_refused(segformer: Path, tmp_path: Path, name: str) -> None:
    file, values, problem = CHANGES[name]
    for path in segformer.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    document = json.loads((tmp_path / file).read_text())
    (tmp_path / file).write_text(json.dumps(document | values))
    problems = problems_of(load, f"transformers:{tmp_path}", "cpu")
    assert problem in "\n".join(problems)
