"""From the bundled recipe of masks to a report on the lab's segmenter, beside datasets, transformers
and scikit-learn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from sklearn.metrics import jaccard_score
from transformers import AutoImageProcessor, AutoModelForSemanticSegmentation

from counterfoil.building.build_dataset import build
from counterfoil.evaluation import evaluate
from counterfoil.models.names import LAB_WEIGHTS
from counterfoil.recipe import load_recipe

MODEL = "lab:upernet_masks"
KEPT = ("fog",)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("masks") / "built"
    shifts = [shift.name for shift in load_recipe("wardrobe-masks").all_shifts()]
    left_out = [f"prompts.shifts.{name}=null" for name in shifts if name not in ("base", *KEPT)]
    changes = ["samples.candidates=6", *left_out]
    build("wardrobe-masks", out, overrides=changes, device="cpu", workers=1)
    return out


def plain_iou(rows: Any) -> float:
    """Compute mIoU of a split, over the classes that some pixel has, without Counterfoil."""
    folder = LAB_WEIGHTS / MODEL.removeprefix("lab:")
    model: Any = AutoModelForSemanticSegmentation.from_pretrained(folder).float().eval()
    processor: Any = AutoImageProcessor.from_pretrained(folder)
    true = []
    answered = []
    for row in rows:
        with torch.inference_mode():
            outputs = model(**processor(images=row["image"], return_tensors="pt"))
        sizes = [row["image"].size[::-1]]
        (answer,) = processor.post_process_semantic_segmentation(outputs, target_sizes=sizes)
        true.append(np.asarray(row["mask"]).ravel())
        answered.append(answer.numpy().ravel())
    pixels = np.concatenate(true)
    labels = np.unique(pixels)
    return float(jaccard_score(pixels, np.concatenate(answered), labels=labels, average="macro"))


def test_the_report_has_the_numbers_of_a_plain_loop(built: Path, tmp_path: Path) -> None:
    evaluation = evaluate(built, out=tmp_path / "report", device="cpu")
    assert [model.name for model in evaluation.results.models] == [MODEL]
    values = {}
    loaded = datasets.load_dataset(str(built))
    assert isinstance(loaded, datasets.DatasetDict) and set(loaded) == {"base", *KEPT}
    for group, rows in loaded.items():
        value = evaluation.results.rows.value("mIoU", model=MODEL, group=str(group))
        assert value is not None
        assert value == pytest.approx(plain_iou(rows), abs=1e-9)
        values[group] = value
    assert values["base"] > max(values[name] for name in KEPT)
    html = (tmp_path / "report" / "report.html").read_text(encoding="utf-8")
    assert "loses most under" in html
