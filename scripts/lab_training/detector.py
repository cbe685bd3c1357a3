"""The detector of scenes with boxes: stage `detector`.

An RT-DETR of 1.5 million parameters, for its queries start at likely places and learn within an
hour on one core, where those of a plain DETR or YOLOS take days.
"""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from counterfoil.lab.boxes import (
    ROWS,
    SIDE,
    boxes_scene,
    objects_in,
    render_boxes,
    split_objects,
    split_pixels,
)
from counterfoil.lab.vocabulary import CLASSES
from counterfoil.models.detectors import Detector, load_detector
from lab_training.boxes import AT_ONCE, BACKBONE, SCENES, WIDTHS, Part, drawn, labelled
from lab_training.state import (
    WEIGHTS,
    Loop,
    batches,
    mean_of,
    rendered_once,
    update_metrics,
    write_training,
)

DETECTOR: dict[str, Any] = {
    "seed": 1010,
    "steps": 5000,
    "batch": 16,
    "rate": 1e-3,
    "weight_decay": 1e-4,
    "decay_from": 0.5,
    "average": 0.998,
    "scenes": SCENES,
}
FOLDER = WEIGHTS / "rtdetr_boxes"
_WIDTH = 96

Objects = dict[str, list[Any]]


def new_detector() -> Any:
    """Return an untrained detector; its random weights come from torch's seed."""
    from transformers import RTDetrConfig, RTDetrForObjectDetection

    backbone = BACKBONE | {
        "model_type": "rt_detr_resnet",
        "hidden_act": "relu",
        "out_features": ["stage2", "stage3", "stage4"],
    }
    config = RTDetrConfig(
        backbone_config=backbone,
        # An untrained backbone has statistics to learn.
        freeze_backbone_batch_norms=False,
        encoder_in_channels=WIDTHS[1:],
        encoder_hidden_dim=_WIDTH,
        encoder_ffn_dim=2 * _WIDTH,
        encoder_attention_heads=4,
        hidden_expansion=0.5,
        d_model=_WIDTH,
        decoder_in_channels=[_WIDTH] * 3,
        decoder_ffn_dim=2 * _WIDTH,
        decoder_attention_heads=4,
        decoder_layers=2,
        num_queries=20,
        num_denoising=20,
        **labelled(CLASSES),
    )
    return RTDetrForObjectDetection(config)


def train_detector(work: Path) -> None:
    """Train the detector on scenes of garments that no test shows; it ends in
    lab/weights/rtdetr_boxes."""
    parts = [_scenes(work, split, count) for split, count in SCENES.items()]
    torch.manual_seed(DETECTOR["seed"])
    model = new_detector().train().to(memory_format=torch.channels_last)
    loop = Loop.of_adamw(
        work / "detector", {"detector": model}, DETECTOR, weight_decay=DETECTOR["weight_decay"]
    )
    for step, rng in loop.draws(DETECTOR["seed"]):
        # The loss draws noisy queries with torch's own generator.
        torch.manual_seed(DETECTOR["seed"] + step)
        pictures = []
        targets = []
        for picture, objects, mirrored in drawn(parts, DETECTOR["batch"], rng):
            pictures.append(picture)
            targets.append(_target(objects, mirrored))
        loop.after(step, model(pixel_values=_tensor(np.stack(pictures)), labels=targets).loss)
    loop.load_averages()
    _save(model)
    detector = load_detector(f"transformers:{FOLDER}")
    metrics = measured(detector, "validation")
    update_metrics(FOLDER, parameters=detector.param_count, **metrics)
    print(f"detector: {metrics}", flush=True)


def _scenes(work: Path, split: str, count: int) -> Part:
    """Return scenes 0 … count-1 of a split of garments, rendered once: uint8 [count, 96, 96, 3] and
    their objects."""
    path = work / f"boxes-{split}-{count}.npy"
    listed = path.with_suffix(".json")
    pixels = rendered_once(
        path, (count, SIDE, SIDE, 3), lambda number: render_boxes(boxes_scene(split, number))
    )
    if not listed.exists():
        objects = [objects_in(boxes_scene(split, number)) for number in range(count)]
        listed.write_text(json.dumps(objects))
    return pixels, json.loads(listed.read_text())


def _tensor(pixels: NDArray[np.uint8]) -> torch.Tensor:
    """Return uint8 [n, 96, 96, 3] as float [n, 3, 96, 96] in 0 … 1, as RT-DETR's image processor
    gives."""
    images = torch.from_numpy(np.ascontiguousarray(pixels)).permute(0, 3, 1, 2).float() / 255
    return images.contiguous(memory_format=torch.channels_last)


def _target(objects: Objects, mirrored: bool) -> dict[str, torch.Tensor]:
    """Return the labels of a picture as DETR's losses take them: boxes are centre and size, as
    shares of the side."""
    boxes = torch.tensor(objects["bbox"], dtype=torch.float32).reshape(-1, 4) / SIDE
    centres = boxes[:, :2] + boxes[:, 2:] / 2
    if mirrored:
        centres[:, 0] = 1 - centres[:, 0]
    return {
        "class_labels": torch.tensor(objects["category"]),
        "boxes": torch.cat([centres, boxes[:, 2:]], 1),
    }


def _save(model: Any) -> None:
    """Write configuration, image processor and fp16 weights as transformers reads them."""
    from transformers import RTDetrImageProcessor

    model.half().to(memory_format=torch.contiguous_format).save_pretrained(FOLDER)
    RTDetrImageProcessor(size={"height": SIDE, "width": SIDE}).save_pretrained(FOLDER)
    write_training(FOLDER, "detector", DETECTOR)


def measured(detector: Detector, split: str) -> dict[str, float]:
    """Return AP and AP50 of a split by pycocotools, in 0 … 1."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    truth: list[dict[str, Any]] = []
    for image, objects in enumerate(split_objects(split)):
        columns = (objects[key] for key in ("bbox", "category", "area"))
        for box, category, area in zip(*columns, strict=True):
            number = len(truth) + 1
            entry = {"id": number, "bbox": box, "category_id": category, "area": area}
            truth.append(entry | _of(image))
    images = range(ROWS[split])
    answers = list[dict[str, Any]]()
    for part in batches(images, AT_ONCE):
        detections = detector([Image.fromarray(split_pixels(split, image)) for image in part])
        for image, detection in zip(part, detections, strict=True):
            columns = (detection[key].tolist() for key in ("boxes", "scores", "labels"))
            for (left, top, right, bottom), score, category in zip(*columns, strict=True):
                box = [left, top, right - left, bottom - top]
                answers.append({"bbox": box, "category_id": category, "score": score} | _of(image))
    with contextlib.redirect_stdout(io.StringIO()):
        known: Any = COCO()
        known.dataset = {
            "images": [{"id": image} for image in images],
            "categories": [{"id": number} for number in range(len(CLASSES))],
            "annotations": truth,
        }
        known.createIndex()
        evaluation = COCOeval(known, known.loadRes(answers), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    ap, ap50, *_ = map(mean_of, evaluation.stats)
    return {f"{split}_ap": ap, f"{split}_ap50": ap50}


def _of(image: int) -> dict[str, int]:
    return {"image_id": image, "iscrowd": 0}
