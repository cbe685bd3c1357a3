"""Load detectors of transformers: `transformers:NAME`, a model of the Hub, `transformers:FOLDER`,
or `lab:NAME`.

The results are those of `AutoModelForObjectDetection` and its image processor at threshold 0.
Configuration and weights are checked as those of classifiers (`classifiers/of_transformers.py`).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from counterfoil.models.classifiers.of_transformers import (
    ModelKind,
    load_transformers,
)
from counterfoil.models.config_files import (
    followed_problems,
    known_to_timm,
    shown_setting,
)
from counterfoil.models.detectors.detector import (
    Detector,
    ImageDetections,
    checked_detections,
    of_one_shape,
)
from counterfoil.models.loading_errors import explain_computing
from counterfoil.models.messages import refusal
from counterfoil.models.transformers_files import (
    input_key_of,
    inputs_prepared_by,
)

if TYPE_CHECKING:
    from PIL import Image

# These say which backbone a DETR has, and are read here; elsewhere in a configuration they are
# refused.
_OF_BACKBONES = ("backbone", "use_timm_backbone", "use_pretrained_backbone")
# Kinds of models that build a backbone by the name of a timm architecture; others would ask the Hub
# for it.
_BY_NAME = ("detr", "conditional_detr", "dab-detr", "deformable_detr", "table-transformer")


def _followed(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each key that would lead to code or other files; a backbone may be an
    architecture of timm."""
    inner = document.get("backbone_config") or {}
    parts = [document]
    if isinstance(inner, Mapping):
        parts.append(inner)
    left = []
    for part in parts:
        left.append({key: value for key, value in part.items() if key not in _OF_BACKBONES})
    yield from followed_problems(left[0] | {"backbone_config": left[-1] if inner else None})
    for part in parts:
        backbone = part.get("backbone")
        if backbone is not None and not (isinstance(backbone, str) and _is_of_timm(backbone)):
            yield f"backbone: found {shown_setting(backbone)}, expected the name of an architecture of timm"
    by_name = (
        document.get("model_type") in _BY_NAME
        and document.get("use_timm_backbone") is not False
        and not inner
    )
    if document.get("backbone") is not None and not by_name:
        backbone = shown_setting(document["backbone"])
        yield f"backbone: found {backbone}, which is not followed here, expected null"


def _is_of_timm(name: str) -> bool:
    try:
        return bool(known_to_timm(name))
    except ValueError:
        return False


DETECTORS = ModelKind("detector", "MODEL_FOR_OBJECT_DETECTION_MAPPING_NAMES", _followed)


@dataclass(frozen=True, kw_only=True)
class TransformersDetector(Detector):
    """A model of transformers in eval mode with its image processor."""

    complete = True
    processor: Any
    module: Any
    device: str

    def __call__(self, images: Sequence[Image.Image]) -> list[ImageDetections]:
        import torch

        prepare = inputs_prepared_by(self.name, self.processor)
        taken = inspect.signature(self.module.forward).parameters
        prepared = []
        for image in images:
            inputs = prepare(image)
            prepared.append({key: values for key, values in inputs.items() if key in taken})
        detected: dict[int, ImageDetections] = {}
        for rows in of_one_shape(prepared):
            stacked = {}
            for key in prepared[rows[0]]:
                stacked[key] = torch.stack([prepared[row][key] for row in rows])
            sides = [(images[row].height, images[row].width) for row in rows]
            with (
                explain_computing(f"model {self.name!r}", "find objects", self.device),
                torch.inference_mode(),
            ):
                placed = {key: tensor.to(self.device) for key, tensor in stacked.items()}
                outputs = self.module(**placed)
                detections = self.processor.post_process_object_detection(
                    outputs, threshold=0.0, target_sizes=sides
                )
            detected |= dict(zip(rows, detections, strict=True))
        return [checked_detections(self.name, detected[index]) for index in range(len(images))]


def load(name: str, device: str) -> TransformersDetector:
    """Load the trained model on `device`, in eval mode, without gradients, in float32.

    Raises UserError for a folder that cannot be a trained detector, RunFailure when it cannot be
    fetched or its weights cannot be read.
    """
    fields, processor, _ = load_transformers(name, device, DETECTORS)
    if not hasattr(processor, "post_process_object_detection"):
        where = f"model {name!r}"
        raise refusal("invalid-config.boxes", where, type(processor).__name__)
    del fields["num_classes"]
    return TransformersDetector(
        **fields, input_key=input_key_of(processor), processor=processor, device=device
    )
