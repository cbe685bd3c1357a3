"""Load semantic segmenters of any kind by name. A kind is a file and a line in `SEGMENTER_KINDS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from counterfoil.models.names import load_kind
from counterfoil.models.segmenters import of_onnx, of_transformers
from counterfoil.models.segmenters.segmenter import Segmenter

# Prefix of a name, before its colon → what loads it on a device.
SEGMENTER_KINDS: Mapping[str, Callable[[str, str], Segmenter]] = {
    "lab": of_transformers.load,
    "transformers": of_transformers.load,
    "onnx": of_onnx.load,
}


def load_segmenter(name: str, device: str = "cpu") -> Segmenter:
    """Load a trained segmenter on `device`, in eval mode, without gradients.

    Raises UserError for a name or folder that cannot be a trained model, RunFailure when it cannot be
    fetched or its weights cannot be read.
    """
    return load_kind("segmenter", SEGMENTER_KINDS, name, device)
