"""Load detectors of any kind by name. A kind is a file and a line in `DETECTOR_KINDS`."""

from __future__ import annotations

from collections.abc import Callable

from counterfoil.models.detectors import of_onnx, of_transformers
from counterfoil.models.detectors.detector import Detector
from counterfoil.models.names import load_kind
from counterfoil.registry import Registry, uncallable

# Prefix of a name, before its colon → what loads it on a device.
DETECTOR_KINDS: Registry[Callable[[str, str], Detector]] = Registry(
    "counterfoil.detectors",
    {"lab": of_transformers.load, "transformers": of_transformers.load, "onnx": of_onnx.load},
    uncallable,
)


def load_detector(name: str, device: str = "cpu") -> Detector:
    """Load a trained detector on `device`, in eval mode, without gradients.

    Raises UserError for a name or folder that cannot be a trained model, RunFailure when it cannot
    be fetched or its weights cannot be read.
    """
    return load_kind("detector", DETECTOR_KINDS, name, device)
