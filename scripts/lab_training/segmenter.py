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
from lab_training.state import WEIGHTS, Loop, update_metrics, warm_then_linear, write_json

SEGMENTER: dict[str, Any] = {
    "seed": 1111,
    "cycles": [2800, 2000],
    "batch": 16,
    "rate": 2e-3,
    "weight_decay": 1e-4,
    "decay_from": 0.3,
    "average": 0.997,
    "scenes": {"pretrain": 12000, "train": ROWS["train"]},
}
FOLDER = WEIGHTS / "upernet_masks"
_WIDTHS = [32, 64, 96, 128]
_WIDTH = 32
_AT_ONCE = 50


def new_segmenter() -> Any:
    """Return an untrained segmenter; its random weights come from torch's seed."""
    from transformers import UperNetConfig, UperNetForSemanticSegmentation

    backbone: dict[str, Any] = {
        "model_type": "resnet",
        "embedding_size": _WIDTHS[0],
        "hidden_sizes": _WIDTHS,
        "depths": [1, 1, 1, 1],
        "layer_type": "basic",
        "out_features": ["stage1", "stage2", "stage3", "stage4"],
    }
    config = UperNetConfig(
        backbone_config=backbone,
        hidden_size=_WIDTH,
        pool_scales=[1, 2],
        use_auxiliary_head=False,
        id2label=dict(enumerate(MASK_CLASSES)),
        label2id={name: number for number, name in enumerate(MASK_CLASSES)},
    )
    return UperNetForSemanticSegmentation(config)


def train_segmenter(work: Path) -> None:
    """Train the segmenter on scenes of garments that no test shows; it ends in
    lab/weights/upernet_masks."""
    parts = [_scenes(work, split, count) for split, count in SEGMENTER["scenes"].items()]
    torch.manual_seed(SEGMENTER["seed"])
    model = new_segmenter().train().to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=SEGMENTER["rate"], weight_decay=SEGMENTER["weight_decay"]
    )
    loop = Loop(
        work / "segmenter",
        {"segmenter": model},
        optimizer,
        sum(SEGMENTER["cycles"]),
        _rate,
        SEGMENTER["average"],
    )
    ends = np.cumsum([len(masks) for _, masks in parts])
    for step in loop.steps():
        # Dropout draws with torch's own generator.
        torch.manual_seed(SEGMENTER["seed"] + step)
        rng = np.random.default_rng([SEGMENTER["seed"], step])
        pictures = []
        targets = []
        for row, flip in zip(
            rng.integers(0, ends[-1], SEGMENTER["batch"]),
            rng.random(SEGMENTER["batch"]) < 0.5,
            strict=True,
        ):
            part = int(np.searchsorted(ends, row, side="right"))
            pixels, masks = parts[part]
            index = int(row - (ends[part] - len(masks)))
            across = slice(None, None, -1 if flip else 1)
            pictures.append(pixels[index][:, across])
            targets.append(masks[index][:, across])
        scores = model(pixel_values=_tensor(np.stack(pictures))).logits
        true = torch.from_numpy(np.stack(targets)).long()
        loss = torch.nn.functional.cross_entropy(scores, true)
        loop.after(step, loss)
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


def _scenes(work: Path, split: str, count: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return scenes 0 … count-1 of a split of garments, rendered once: uint8 [count, 96, 96, 3] and
    their masks [count, 96, 96]."""
    path = work / f"masks-{split}-{count}.npy"
    if not path.exists():
        work.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".tmp.npy")
        shape = (count, SIDE, SIDE, 4)
        rendered = np.lib.format.open_memmap(temporary, mode="w+", dtype=np.uint8, shape=shape)
        for number in range(count):
            scene = boxes_scene(split, number)
            rendered[number, ..., :3] = render_boxes(scene)
            rendered[number, ..., 3] = class_mask(scene)
        rendered.flush()
        temporary.replace(path)
    rendered = np.load(path, mmap_mode="r")
    return rendered[..., :3], rendered[..., 3]


def _tensor(pixels: NDArray[np.uint8]) -> torch.Tensor:
    """Return uint8 [n, 96, 96, 3] as float [n, 3, 96, 96] in -1 … 1."""
    images = torch.from_numpy(np.ascontiguousarray(pixels)).permute(0, 3, 1, 2).float() / 127.5 - 1
    return images.contiguous(memory_format=torch.channels_last)


def _save(model: Any) -> None:
    """Write configuration, image processor and fp16 weights as transformers reads them."""
    from transformers import SegformerImageProcessor

    model.half().to(memory_format=torch.contiguous_format).save_pretrained(FOLDER)
    half = [0.5, 0.5, 0.5]
    size = {"height": SIDE, "width": SIDE}
    SegformerImageProcessor(size=size, image_mean=half, image_std=half).save_pretrained(FOLDER)
    write_json(
        FOLDER / "training.json", SEGMENTER | {"command": "python scripts/train_lab.py segmenter"}
    )


def measured(segmenter: Segmenter, split: str) -> dict[str, Any]:
    """Return mIoU, IoU by class and the share of right pixels of a split, in 0 … 1."""
    classes = len(MASK_CLASSES)
    pixels = np.zeros((classes, classes), np.int64)
    for start in range(0, ROWS[split], _AT_ONCE):
        rows = range(start, min(start + _AT_ONCE, ROWS[split]))
        answers = segmenter([Image.fromarray(split_pixels(split, row)) for row in rows])
        for row, scores in zip(rows, answers, strict=True):
            np.add.at(pixels, (split_mask(split, row), scores.argmax(0).numpy()), 1)
    right = pixels.diagonal()
    iou = right / (pixels.sum(axis=0) + pixels.sum(axis=1) - right)
    by_class = zip(MASK_CLASSES, iou.tolist(), strict=True)
    return {
        f"{split}_miou": round(float(iou.mean()), 4),
        f"{split}_pixel_accuracy": round(float(right.sum() / pixels.sum()), 4),
        f"{split}_iou": {name: round(value, 4) for name, value in by_class},
    }
