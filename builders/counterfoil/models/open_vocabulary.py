"""Load open-vocabulary detectors of transformers, which find what a text names:
`transformers:NAME`, a model of the Hub, or `transformers:FOLDER`.

The results are those of `AutoModelForZeroShotObjectDetection` and its processor. Configuration,
tokenizer and weights are checked as those of captioners (`text_models.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from counterfoil.models.loading_errors import explain_computing
from counterfoil.models.messages import failure, refusal
from counterfoil.models.text_models import (
    TEXT_DETECTOR_FILES,
    checked_text_detector,
    load_text_model,
)
from counterfoil.models.transformers_files import (
    found_files,
    image_processor_of,
    quiet_transformers,
)
from counterfoil.recipe.names import TRANSFORMERS

if TYPE_CHECKING:
    import torch
    from PIL import Image

# Model type → its processor. The types whose text is a sentence that ends with a dot come last.
_PHRASED = ("grounding-dino", "mm-grounding-dino")
_PROCESSORS = {
    "owlvit": "OwlViTProcessor",
    "owlv2": "Owlv2Processor",
    **dict.fromkeys(_PHRASED, "GroundingDinoProcessor"),
}


@dataclass(frozen=True, kw_only=True)
class TextDetector:
    """A model of transformers in eval mode, which finds what a text names."""

    name: str
    phrased: bool
    """Whether a dot ends a phrase of the text."""
    processor: Any
    module: Any
    device: str

    def __call__(
        self, image: Image.Image, text: str, least: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the boxes of an RGB image with a confidence above `least`.

        Boxes are float32 [n, 4]: left, top, right and bottom in pixels; confidences float32 [n].
        RunFailure if nothing can be computed or is not finite.
        """
        import torch

        if self.phrased:
            phrase = " ".join(text.lower().replace(".", " ").split())
            query: Any = f"{phrase}."
        else:
            query = [[text]]
        with (
            explain_computing(f"model {self.name!r}", f"look for {text[:80]!r}", self.device),
            quiet_transformers(),
            torch.inference_mode(),
        ):
            inputs = self.processor(text=query, images=image, return_tensors="pt").to(self.device)
            outputs = self.module(**inputs)
            (detections,) = self.processor.post_process_grounded_object_detection(
                outputs, threshold=least, target_sizes=[(image.height, image.width)]
            )
        boxes = detections["boxes"].float().cpu()
        confidences = detections["scores"].float().cpu()
        if not (torch.isfinite(boxes).all() and torch.isfinite(confidences).all()):
            where = f"model {self.name!r}"
            raise failure("failed-model.boxes", where)
        return boxes, confidences


def load_text_detector(name: str, device: str) -> TextDetector:
    """Load the trained model on `device`, in eval mode, without gradients, in float32.

    Raises UserError for a folder that cannot be such a detector, RunFailure when it cannot be
    fetched or its weights cannot be read.
    """
    import transformers

    files = found_files(name, name.removeprefix(TRANSFORMERS), TEXT_DETECTOR_FILES)
    config = checked_text_detector(name, files, _PROCESSORS)
    parts = load_text_model(name, files, config, device)
    module = parts["module"]
    pictures = image_processor_of(name, config, module.config)
    if not hasattr(pictures, "post_process_object_detection"):
        where = f"model {name!r}"
        raise refusal("invalid-config.boxes", where, type(pictures).__name__)
    processor = getattr(transformers, _PROCESSORS[config.model_type])(
        image_processor=pictures, tokenizer=parts["tokenizer"]
    )
    return TextDetector(
        name=name,
        phrased=config.model_type in _PHRASED,
        processor=processor,
        module=module,
        device=device,
    )
