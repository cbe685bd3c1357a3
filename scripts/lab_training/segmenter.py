"""The segmenter of scenes with masks: stage `segmenter`.

A UPerNet on a ResNet, 0.6 million parameters together, trained in a quarter of an hour
of one core.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from counterfoil.lab.boxes import (
    MASK_CLASSES,
    ROWS,
    SIDE,
    boxes_scene,
    class_mask,
    render_boxes,
    split_mask,
    split_pixels,
)
from counterfoil.models.segmenters import Segmenter, load_segmenter
from lab_training.boxes import AT_ONCE, BACKBONE, SCENES, WIDTHS, Part, drawn, labelled
from lab_training.state import (
    WEIGHTS,
    Loop,
    batches,
    mean_of,
    rendered_once,
    to_tensor,
    update_metrics,
    warm_then_linear,
    write_training,
)

SEGMENTER: dict[str, Any] = {
    "seed": 1111,
    "cycles": [2800, 2000],
    "batch": 16,
    "rate": 2e-3,
    "weight_decay": 1e-4,
    "decay_from": 0.3,
    "average": 0.997,
    "scenes": SCENES,
}
FOLDER = WEIGHTS / "upernet_masks"


def new_segmenter() -> Any:
    """Return an untrained segmenter; its random weights come from torch's seed."""
    from transformers import UperNetConfig, UperNetForSemanticSegmentation

    backbone = BACKBONE | {
        "model_type": "resnet",
        "out_features": ["stage1", "stage2", "stage3", "stage4"],
    }
    config = UperNetConfig(
        backbone_config=backbone,
        hidden_size=WIDTHS[0],
        pool_scales=[1, 2],
        use_auxiliary_head=False,
        **labelled(MASK_CLASSES),
    )
    return UperNetForSemanticSegmentation(config)


def train_segmenter(work: Path) -> None:
    """Train the segmenter on scenes of garments that no test shows; it ends in
    lab/weights/upernet_masks."""
    parts = [_scenes(work, split, count) for split, count in SCENES.items()]
    torch.manual_seed(SEGMENTER["seed"])
    model = new_segmenter().train().to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=SEGMENTER["rate"], weight_decay=SEGMENTER["weight_decay"]
    )
    steps = sum(SEGMENTER["cycles"])
    loop = Loop(
        work / "segmenter", {"segmenter": model}, optimizer, steps, _rate, SEGMENTER["average"]
    )
    for step, rng in loop.draws(SEGMENTER["seed"]):
        # Dropout draws with torch's own generator.
        torch.manual_seed(SEGMENTER["seed"] + step)
        pictures = []
        targets = []
        for picture, mask, mirrored in drawn(parts, SEGMENTER["batch"], rng):
            pictures.append(picture)
            targets.append(mask[:, ::-1] if mirrored else mask)
        images = to_tensor(np.stack(pictures)).contiguous(memory_format=torch.channels_last)
        true = torch.from_numpy(np.stack(targets)).long()
        scores = model(pixel_values=images).logits
        loop.after(step, torch.nn.functional.cross_entropy(scores, true))
    loop.load_averages()
    _save(model)
    segmenter = load_segmenter(f"transformers:{FOLDER}")
    metrics = measured(segmenter, "validation")
    update_metrics(FOLDER, parameters=segmenter.param_count, **metrics)
    print(f"segmenter: {metrics}", flush=True)


def _rate(t: float) -> float:
    """Return the rate at a share of all steps: in each cycle it falls to zero again."""
    step = round(t * sum(SEGMENTER["cycles"]))
    first, second = SEGMENTER["cycles"]
    of_cycle = step / first if step < first else (step - first) / second
    return warm_then_linear(SEGMENTER["decay_from"])(of_cycle)


def _scenes(work: Path, split: str, count: int) -> Part:
    """Return scenes 0 … count-1 of a split of garments, rendered once: uint8 [count, 96, 96, 3] and
    their masks [count, 96, 96]."""

    def rendered(number: int) -> NDArray[np.uint8]:
        scene = boxes_scene(split, number)
        return np.dstack([render_boxes(scene), class_mask(scene)])

    path = work / f"masks-{split}-{count}.npy"
    both = rendered_once(path, (count, SIDE, SIDE, 4), rendered)
    return both[..., :3], both[..., 3]


def _save(model: Any) -> None:
    """Write configuration, image processor and fp16 weights as transformers reads them."""
    from transformers import SegformerImageProcessor

    model.half().to(memory_format=torch.contiguous_format).save_pretrained(FOLDER)
    half = [0.5, 0.5, 0.5]
    size = {"height": SIDE, "width": SIDE}
    SegformerImageProcessor(size=size, image_mean=half, image_std=half).save_pretrained(FOLDER)
    write_training(FOLDER, "segmenter", SEGMENTER)


def measured(segmenter: Segmenter, split: str) -> dict[str, Any]:
    """Return mIoU, IoU by class and the share of right pixels of a split, in 0 … 1."""
    classes = len(MASK_CLASSES)
    pixels = np.zeros((classes, classes), np.int64)
    for rows in batches(range(ROWS[split]), AT_ONCE):
        answers = segmenter([Image.fromarray(split_pixels(split, row)) for row in rows])
        for row, scores in zip(rows, answers, strict=True):
            np.add.at(pixels, (split_mask(split, row), scores.argmax(0).numpy()), 1)
    right = pixels.diagonal()
    iou = right / (pixels.sum(axis=0) + pixels.sum(axis=1) - right)
    return {
        f"{split}_miou": mean_of(iou),
        f"{split}_pixel_accuracy": mean_of(right.sum() / pixels.sum()),
        f"{split}_iou": dict(zip(MASK_CLASSES, map(mean_of, iou), strict=True)),
    }
