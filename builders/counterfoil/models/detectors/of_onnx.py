"""Load detectors of ONNX Runtime: `onnx:FOLDER`, or `onnx:FOLDER/model.onnx`, with a configuration as a classifier's.

A graph has the outputs `boxes` (corners in pixels of its input), `scores` and `labels`, or `logits` and `pred_boxes` as
Optimum exports a model of transformers. It takes one image at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.errors import RunFailure, UserError
from counterfoil.models.classifiers.of_onnx import deployed_graph, refuse_other_size
from counterfoil.models.config_files import CONFIG
from counterfoil.models.detectors.detector import Detector, ImageDetections, checked_detections
from counterfoil.models.detectors.of_transformers import DETECTORS
from counterfoil.models.loading_errors import computing
from counterfoil.models.onnx_graphs import FLOAT_TYPES, open_graph

if TYPE_CHECKING:
    from PIL import Image

_BOXES = ("boxes", "scores", "labels")
_LOGITS = ("logits", "pred_boxes")
# What the exports of RT-DETR and D-FINE ask for beside the image: width and height that boxes are scaled to.
_SIDES = "orig_target_sizes"
_SIDE_TYPES = {**FLOAT_TYPES, "tensor(int32)": np.int32}


@dataclass(frozen=True, kw_only=True)
class OnnxDetector(Detector):
    """A graph of ONNX Runtime. prepare: PIL image → float tensor (C, H, W). processor: of transformers, or None."""

    session: Any
    prepare: Any
    processor: Any
    device: str

    def __call__(self, images: Sequence[Image.Image]) -> list[ImageDetections]:
        return [checked_detections(self.name, self._found(image)) for image in images]

    def _found(self, image: Image.Image) -> ImageDetections:
        import torch

        pixels = self.prepare(image).numpy()
        with computing(f"model {self.name!r}", "find objects", self.device):
            outputs = {name: torch.from_numpy(values) for name, values in _run(self.session, pixels).items()}
            if _LOGITS[0] in outputs:
                raw = SimpleNamespace(**{name: outputs[name].float() for name in _LOGITS})
                sides = [(image.height, image.width)]
                (detected,) = self.processor.post_process_object_detection(raw, threshold=0.0, target_sizes=sides)
                return detected
            boxes, scores, labels = (outputs[name] for name in _BOXES)
        count = scores.numel()
        if labels.numel() != count or boxes.numel() != 4 * count or (count and boxes.shape[-1] != 4):
            shapes = ", ".join(f"{name} {list(outputs[name].shape)}" for name in _BOXES)
            raise RunFailure(
                f"model {self.name!r} gives {shapes}, expected boxes [n, 4], scores [n] and labels [n] for an image"
            )
        # Graphs fill up their answers with scores of 0. A score that is no number is kept, and is refused.
        kept = ~(scores.reshape(-1) <= 0)
        boxes, scores, labels = boxes.reshape(-1, 4)[kept], scores.reshape(-1)[kept], labels.reshape(-1)[kept]
        names = len(self.label_names)
        odd = labels[~((labels >= 0) & (labels < names) & (labels == labels.floor()))]
        if len(odd):
            raise RunFailure(
                f"model {self.name!r} gives the labels {odd[:5].tolist()}, expected a label from 0 to {names - 1}:"
                f" {CONFIG} names so many",
                "If its labels count from 1, name a first label in label_names that stands for none.",
            )
        across, down = image.width / pixels.shape[2], image.height / pixels.shape[1]
        return {"boxes": boxes.float() * torch.tensor([across, down, across, down]), "scores": scores, "labels": labels}


def load(name: str, device: str = "cpu") -> OnnxDetector:
    """Load the graph on `device`. Raise UserError for one that finds no objects, RunFailure for a damaged file."""
    deployed = deployed_graph(name, DETECTORS)
    if deployed.facts.label_names is None:
        raise UserError(f"model {name!r}: its {CONFIG} has no label_names", "Name its labels, in order.")
    session, sha256 = open_graph(name, deployed.file, device)
    outputs = {entry.name for entry in session.get_outputs()}
    if not (outputs >= set(_BOXES) or (deployed.processor is not None and outputs >= set(_LOGITS))):
        raise UserError(
            f"model {name!r}: its graph gives {', '.join(sorted(outputs))}, expected boxes, scores and labels",
            "Name the outputs so, or export it with Optimum: logits and pred_boxes, with the image processor's files.",
        )
    inputs = [entry for entry in session.get_inputs() if entry.name != _SIDES]
    shape = inputs[0].shape if len(inputs) == 1 and inputs[0].type in FLOAT_TYPES else []
    # A dimension with a name is free.
    if len(shape) != 4 or (isinstance(shape[0], int) and shape[0] != 1):
        takes = ", ".join(f"{entry.name} {entry.type} {entry.shape}" for entry in session.get_inputs())
        raise UserError(f"model {name!r}: its graph takes {takes}, expected one input of floats [1, 3, height, width]")
    if deployed.input_size is not None:
        refuse_other_size(name, shape, deployed.input_size)
    if not _only_resizes(deployed.settings):
        raise UserError(
            f"model {name!r}: its configuration crops or pads images, so that boxes do not lie as in the image",
            'Write "crop_pct": 1.0 and "crop_mode": "squash", and no padding.',
        )
    return OnnxDetector(
        name=name,
        architecture=deployed.facts.architecture,
        label_names=deployed.facts.label_names,
        param_count=None,
        sha256=sha256,
        input_key=deployed.input_key,
        session=session,
        prepare=deployed.prepare(),
        processor=deployed.processor,
        device=device,
    )


def _only_resizes(settings: Mapping[str, Any]) -> bool:
    """Return whether images are scaled as a whole, by timm's settings or those of an image processor."""
    if "crop_mode" in settings:
        return settings["crop_mode"] == "squash" and settings["crop_pct"] == 1
    return not settings.get("do_center_crop") and settings.get("pad_size") is None


def _run(session: Any, pixels: NDArray[np.float32]) -> dict[str, NDArray[Any]]:
    """Return the outputs for one image (C, H, W), by name."""
    given: dict[str, NDArray[Any]] = {}
    for entry in session.get_inputs():
        if entry.name == _SIDES:
            given[entry.name] = np.asarray([pixels.shape[:0:-1]], _SIDE_TYPES.get(entry.type, np.int64))
        else:
            given[entry.name] = pixels[None].astype(FLOAT_TYPES[entry.type])
    names = [entry.name for entry in session.get_outputs()]
    return dict(zip(names, session.run(names, given), strict=True))
