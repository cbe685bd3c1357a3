"""Load segmenters of transformers: `transformers:NAME`, a model of the Hub, `transformers:FOLDER`,
or `lab:NAME`.

The scores are those of `AutoModelForSemanticSegmentation` and its image processor. Mask2Former
answers by queries, and gives the classes that its processor makes of them.
Configuration and weights are checked as those of classifiers (`classifiers/of_transformers.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from counterfoil.models.classifiers.of_transformers import (
    ModelKind,
    load_transformers,
)
from counterfoil.models.loading_errors import explain_computing
from counterfoil.models.messages import refusal
from counterfoil.models.segmenters.segmenter import Segmenter
from counterfoil.models.transformers_files import (
    input_key_of,
    inputs_prepared_by,
)

if TYPE_CHECKING:
    import torch
    from PIL import Image

_BY_QUERIES = "mask2former"


class _SegmenterKind(ModelKind):
    def classes(self, model_type: Any) -> tuple[str, ...]:
        if model_type == _BY_QUERIES:
            universal = ModelKind(self.what, "MODEL_FOR_UNIVERSAL_SEGMENTATION_MAPPING_NAMES")
            return universal.classes(model_type)
        return super().classes(model_type)


SEGMENTERS = _SegmenterKind("semantic segmenter", "MODEL_FOR_SEMANTIC_SEGMENTATION_MAPPING_NAMES")
# Settings of a processor after which the scores are no longer of the whole image.
_PARTIAL = ("do_center_crop", "do_pad")


@dataclass(frozen=True, kw_only=True)
class TransformersSegmenter(Segmenter):
    """A model of transformers in eval mode with its image processor."""

    processor: Any
    module: Any
    device: str

    def __call__(self, images: Sequence[Image.Image]) -> list[torch.Tensor]:
        import torch

        prepare = inputs_prepared_by(self.name, self.processor)
        answers = []
        for image in images:
            pixels = prepare(image)["pixel_values"][None].to(self.device)
            with (
                explain_computing(f"model {self.name!r}", "segment", self.device),
                torch.inference_mode(),
            ):
                outputs = self.module(pixel_values=pixels)
                if self.module.config.model_type == _BY_QUERIES:
                    (answer,) = self.processor.post_process_semantic_segmentation(
                        outputs, target_sizes=[(image.height, image.width)]
                    )
                    answers.append(answer.cpu())
                else:
                    answers.append(outputs.logits[0].float().cpu())
        return answers


def load(name: str, device: str) -> TransformersSegmenter:
    """Load the trained model on `device`, in eval mode, without gradients, in float32.

    Raises UserError for a folder that cannot be a trained segmenter, RunFailure when it cannot be
    fetched or its weights cannot be read.
    """
    fields, processor, _ = load_transformers(name, device, SEGMENTERS)
    settings = processor.to_dict()
    partial = [key for key in _PARTIAL if settings.get(key)]
    if partial:
        where = f"model {name!r}"
        raise refusal("invalid-config.partial", where, " and ".join(partial))
    del fields["num_classes"]
    return TransformersSegmenter(
        **fields, input_key=input_key_of(processor), processor=processor, device=device
    )
