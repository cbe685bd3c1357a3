"""From the bundled recipe of boxes to a report on the lab's detector, beside datasets, transformers
and pycocotools."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from transformers import AutoImageProcessor, AutoModelForObjectDetection

from counterfoil.building.build_dataset import build
from counterfoil.evaluation import evaluate
from counterfoil.lab.vocabulary import CLASSES
from counterfoil.models.detectors.of_transformers import TransformersDetector
from counterfoil.models.names import LAB_WEIGHTS
from counterfoil.prediction import answer_cache

MODEL = "lab:rtdetr_boxes"
KEPT = ("fog",)
FILES = ("results.json", "measures.csv", "detection.csv", "report.html")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("boxes") / "built"
    left_out = [
        f"prompts.shifts.{name}=null"
        for name in (
            "gaussian_noise", "motion_blur", "defocus_blur", "snow", "contrast", "jpeg_compression", "low_resolution",
            "darker",
        )
    ]  # fmt: skip
    build(
        "wardrobe-boxes",
        out,
        overrides=["samples.candidates=8", *left_out],
        device="cpu",
        workers=1,
    )
    return out


def average_precision(rows: Any) -> tuple[float, float]:
    """Compute AP and AP50 of a split without Counterfoil."""
    model: Any = (
        AutoModelForObjectDetection.from_pretrained(LAB_WEIGHTS / MODEL.removeprefix("lab:"))
        .float()
        .eval()
    )
    processor: Any = AutoImageProcessor.from_pretrained(LAB_WEIGHTS / MODEL.removeprefix("lab:"))
    truth: dict[str, Any] = {
        "images": [],
        "categories": [{"id": index} for index in range(len(CLASSES))],
    }
    truth["annotations"] = []
    results = []
    for number, row in enumerate(rows):
        truth["images"].append({"id": number})
        objects = row["objects"]
        for box, category, area in zip(
            objects["bbox"], objects["category"], objects["area"], strict=True
        ):
            entry = {
                "image_id": number,
                "bbox": box,
                "category_id": category,
                "area": area,
                "iscrowd": 0,
            }
            truth["annotations"].append(entry | {"id": len(truth["annotations"]) + 1})
        with torch.inference_mode():
            outputs = model(**processor(images=row["image"], return_tensors="pt"))
        sides = [row["image"].size[::-1]]
        (answer,) = processor.post_process_object_detection(
            outputs, threshold=0.0, target_sizes=sides
        )
        for box, score, label in zip(
            *(answer[key].tolist() for key in ("boxes", "scores", "labels")), strict=True
        ):
            sized = [box[0], box[1], box[2] - box[0], box[3] - box[1]]
            results.append(
                {"image_id": number, "bbox": sized, "category_id": label, "score": score}
            )
    with contextlib.redirect_stdout(io.StringIO()):
        coco: Any = COCO()
        coco.dataset = truth
        coco.createIndex()
        judged = COCOeval(coco, coco.loadRes(results), "bbox")
        judged.evaluate()
        judged.accumulate()
        judged.summarize()
    return float(judged.stats[0]), float(judged.stats[1])


@pytest.fixture(scope="module")
def report(built: Path) -> Path:
    """Return the folder of an evaluation of the 16 images in batches of 2."""
    evaluate(built, out=built.parent / "report", device="cpu", batch_size=2)
    return built.parent / "report"


def test_the_report_says_what_pycocotools_says_of_the_same_images(
    built: Path, report: Path
) -> None:
    document = json.loads((report / "results.json").read_text())
    assert [model["name"] for model in document["models"]] == [MODEL]
    values = {(row["measure"], row.get("group")): row.get("value") for row in document["rows"]}
    loaded = datasets.load_dataset(str(built))
    assert isinstance(loaded, datasets.DatasetDict) and set(loaded) == {"base", *KEPT}
    for group, rows in loaded.items():
        expected = average_precision(rows)
        # The reference answers images one by one, the evaluation in batches: the last bits of
        # scores differ.
        assert (values["AP", group], values["AP50", group]) == pytest.approx(expected, abs=2e-3)
    assert values["AP50", "base"] > 0.5 > values["AP50", "fog"]
    # Eight images are too few for an interval.
    assert "may lose most under fog" in (report / "report.html").read_text(encoding="utf-8")


def test_a_stopped_run_goes_on_at_its_next_part_and_gives_the_same_files(
    built: Path, report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = tmp_path / "built"
    shutil.copytree(built, dataset, ignore=shutil.ignore_patterns(".counterfoil"))
    whole = {name: (report / name).read_bytes() for name in FILES}
    monkeypatch.setattr(answer_cache, "PART_ROWS", 4)
    answer = TransformersDetector.__call__
    answered: list[int] = []

    def stop_after(images: int) -> None:
        def counting(self: TransformersDetector, batch: Any) -> Any:
            if sum(answered) + len(batch) > images:
                raise KeyboardInterrupt
            answered.append(len(batch))
            return answer(self, batch)

        answered.clear()
        monkeypatch.setattr(TransformersDetector, "__call__", counting)

    def run(images: int) -> dict[str, bytes]:
        stop_after(images)
        evaluate(dataset, out=tmp_path / "again", device="cpu", batch_size=2)
        return {name: (tmp_path / "again" / name).read_bytes() for name in FILES}

    with pytest.raises(KeyboardInterrupt):
        run(10)
    assert run(16) == whole
    assert sum(answered) == 16 - 8, "two parts of 4 images were answered before"
    assert run(0) == whole and answered == []
    kept = dataset / ".counterfoil" / "detections"
    [entry] = kept.iterdir()
    entry.write_bytes(entry.read_bytes()[:-100])
    with pytest.raises(KeyboardInterrupt):
        run(10)
    assert sum(answered) == 10, "a damaged entry is made again"
    _, damaged = sorted(kept.glob("*.parts/*.parquet"))
    damaged.write_bytes(damaged.read_bytes()[:-100])
    assert run(16) == whole
    assert sum(answered) == 16 - 4, "from the first damaged part on"
    assert [path.suffix for path in kept.iterdir()] == [".parquet"]
