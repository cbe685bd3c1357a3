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
from counterfoil.errors import UserError
from counterfoil.evaluation import evaluate
from counterfoil.evaluation.dataset import open_dataset
from counterfoil.evaluation.tasks.masks.answers import class_numbers
from counterfoil.evaluation.tasks.masks.subject import open_masks
from counterfoil.models.segmenters.of_transformers import load
from counterfoil.store.decoding import rgb_image
from support.masks import NAMES, RECIPE, mask_folder

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


def plain_answer(folder: Path, image: Image.Image) -> np.ndarray:
    """Return the classes that the library's own model and processor give."""
    model = transformers.AutoModelForSemanticSegmentation.from_pretrained(folder).eval()
    processor = transformers.AutoImageProcessor.from_pretrained(folder)
    with torch.inference_mode():
        outputs = model(**processor(images=image, return_tensors="pt"))
    sizes = [image.size[::-1]]
    (answer,) = processor.post_process_semantic_segmentation(outputs, target_sizes=sizes)
    return answer.numpy()


def test_answers_are_those_of_a_plain_call(segformer: Path) -> None:
    segmenter = load(f"transformers:{segformer}", "cpu")
    assert segmenter.label_names == ("sky", *NAMES)
    rng = np.random.default_rng(0)
    images = [
        Image.fromarray(rng.integers(0, 256, (*shape, 3), dtype=np.uint8))
        for shape in ((48, 64), (60, 40))
    ]
    for image, scores in zip(images, segmenter(images), strict=True):
        numbers = class_numbers("mine", scores, image.size[::-1], 4)
        assert (numbers == plain_answer(segformer, image)).all()


def test_an_evaluation_has_these_answers_and_keeps_them(segformer: Path, tmp_path: Path) -> None:
    mask_folder(tmp_path / "patches", 10)
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
    with pytest.raises(UserError) as caught:
        load(f"transformers:{tmp_path}", "cpu")
    assert problem in "\n".join(caught.value.problems)
