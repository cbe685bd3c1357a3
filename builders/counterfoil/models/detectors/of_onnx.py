"""Load detectors of ONNX Runtime: `onnx:FOLDER`, or `onnx:FOLDER/model.onnx`, with a configuration
as a classifier's.

A graph has the outputs `boxes` (corners in pixels of its input), `scores` and `labels`, or `logits`
and `pred_boxes` as Optimum exports a model of transformers, or others that the section `detector`
of its config.json describes (`onnx_forms.py`). It takes one image at a time.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.arrays import Floats32
from counterfoil.models.classifiers.of_onnx import (
    Deployed,
    deployed_graph,
    input_words,
    refuse_other_size,
)
from counterfoil.models.classifiers.of_transformers import ModelKind
from counterfoil.models.config_files import CONFIG, refuse_problems
from counterfoil.models.detectors.detector import (
    Detector,
    ImageDetections,
    checked_detections,
    refuse_unnamed_labels,
)
from counterfoil.models.detectors.of_transformers import DETECTORS
from counterfoil.models.detectors.onnx_forms import (
    SECTION,
    InputPlacement,
    OutputForm,
    checked_form,
    letterboxed,
    read_outputs,
)
from counterfoil.models.loading_errors import explain_computing
from counterfoil.models.messages import failure, refusal
from counterfoil.models.onnx_graphs import FLOAT_TYPES, Graph, open_graph

if TYPE_CHECKING:
    from PIL import Image

_BOXES = ("boxes", "scores", "labels")
_LOGITS = ("logits", "pred_boxes")
OTHER_WAYS = (
    "Or hand over its answers as predictions:FILE, or a Python function as python:MODULE:FUNCTION."
)
# What the exports of RT-DETR and D-FINE ask for beside the image: width and height that boxes are
# scaled to.
_SIDES = "orig_target_sizes"
_SIDE_TYPES = {**FLOAT_TYPES, "tensor(int32)": np.int32}


@dataclass(frozen=True, kw_only=True)
class OnnxDetector(Detector):
    """A graph of ONNX Runtime."""

    session: Any
    """The opened graph."""
    prepare: Any
    """PIL image → float tensor (C, H, W)."""
    processor: Any
    """The image processor of transformers, if there is one."""
    device: str
    """Where it runs."""
    form: OutputForm | None
    """The form of its outputs; None if the processor reads them."""
    size: tuple[int, int] | None
    """Height and width of the input."""
    mean: Sequence[float]
    """What is subtracted from each colour."""
    std: Sequence[float]
    """What each colour is then divided by."""

    def __call__(self, images: Sequence[Image.Image]) -> list[ImageDetections]:
        return [checked_detections(self.name, self._found(image)) for image in images]

    def _found(self, image: Image.Image) -> ImageDetections:
        import torch

        pixels, placement = self._prepared(image)
        with explain_computing(f"model {self.name!r}", "find objects", self.device):
            outputs = run_graph(self.session, pixels)
            if self.form is None:
                raw = SimpleNamespace()
                for name in _LOGITS:
                    setattr(raw, name, torch.from_numpy(outputs[name]).float())
                sides = [(image.height, image.width)]
                (detected,) = self.processor.post_process_object_detection(
                    raw, threshold=0.0, target_sizes=sides
                )
                return detected
        height, width = pixels.shape[1:]
        try:
            answers = read_outputs(self.form, outputs, (width, height), len(self.label_names))
        except ValueError as error:
            where = f"model {self.name!r}"
            raise failure("failed-model.answers", where, error) from error
        refuse_unnamed_labels(self.name, answers.labels, self.label_names, CONFIG)
        return {
            "boxes": torch.from_numpy(placement.in_image(answers.boxes)),
            "scores": torch.from_numpy(answers.scores),
            "labels": torch.from_numpy(answers.labels),
        }

    def _prepared(self, image: Image.Image) -> tuple[Floats32, InputPlacement]:
        """Return an image as the graph takes it, (C, H, W), and where it is in the input."""
        form = self.form
        if form is not None and form.resize == "none":
            shares = np.asarray(image, np.float32) / 255
            centred = shares - np.asarray(self.mean, np.float32)
            pixels = (centred / np.asarray(self.std, np.float32)).transpose(2, 0, 1)
            placement = InputPlacement((1.0, 1.0))
        elif form is not None and form.resize != "squash" and self.size is not None:
            corner = form.resize == "letterbox_corner"
            canvas, placement = letterboxed(image, self.size, corner, form.pad)
            pixels = self.prepare(canvas).numpy()
        else:
            pixels = self.prepare(image).numpy()
            height, width = pixels.shape[1:]
            placement = InputPlacement((width / image.width, height / image.height))
        if form is not None and form.channels == "bgr":
            pixels = pixels[::-1]
        return pixels.astype(np.float32, copy=False), placement


def load(name: str, device: str) -> OnnxDetector:
    """Load the graph on `device`. Raise UserError for one that finds no objects, RunFailure for a
    damaged file."""
    deployed, session, fields = open_whole(name, device, DETECTORS)
    form = _form_of(name, session, deployed)
    shape = input_shape(name, session)
    if deployed.input_size is not None and (form is None or form.resize != "none"):
        refuse_other_size(name, (1, *shape), deployed.input_size)
    input_key = deployed.input_key
    if form is not None:
        input_key += f" {form.model_dump_json()}"
    return OnnxDetector(
        **fields,
        input_key=input_key,
        session=session,
        prepare=deployed.prepare(),
        processor=deployed.processor,
        device=device,
        form=form,
        size=None if deployed.input_size is None else deployed.input_size[1:],
        mean=deployed.settings.get("mean") or (0,) * 3,
        std=deployed.settings.get("std") or (1,) * 3,
    )


def open_whole(name: str, device: str, kind: ModelKind) -> tuple[Deployed, Graph, dict[str, Any]]:
    """Open a graph whose answers are of whole images. Return its configuration, the graph, and the
    fields of its description.

    Raise UserError for a configuration without names or that crops images, RunFailure for a damaged
    file.
    """
    deployed = deployed_graph(name, kind)
    facts = deployed.facts
    where = f"model {name!r}"
    if facts.label_names is None:
        raise refusal("invalid-config.label-names", where)
    if not only_resizes(deployed.settings):
        raise refusal("invalid-config.crops", where)
    session, sha256 = open_graph(name, deployed.file, device)
    fields = {
        "name": name,
        "architecture": facts.architecture,
        "label_names": facts.label_names,
        "param_count": None,
        "sha256": sha256,
    }
    return deployed, session, fields


def _form_of(name: str, session: Graph, deployed: Deployed) -> OutputForm | None:
    """Return the form of a graph's outputs, or None for those that an image processor reads."""
    outputs = {entry.name for entry in session.outputs}
    if SECTION in deployed.document:
        form, problems = checked_form(deployed.document)
        names = [] if form is None else form.outputs
        lacking = [output for output in names if output not in outputs]
        if lacking:
            problems.append(
                f"{SECTION}.outputs: the graph gives {', '.join(sorted(outputs))}, and no"
                f" {lacking[0]}"
            )
        refuse_problems(name, problems, CONFIG)
        return form
    if outputs >= set(_BOXES):
        return OutputForm(form="separate", outputs=list(_BOXES))
    if deployed.processor is not None and outputs >= set(_LOGITS):
        return None
    file = shlex.quote(str(deployed.file))
    where = f"model {name!r}"
    raise refusal("unfit-model.detector", where, sorted(outputs), file=file, ways=OTHER_WAYS)


def input_shape(name: str, session: Graph) -> list[Any]:
    """Return channels, height and width of the graph's input; a dimension with a name is free."""
    inputs = [entry for entry in session.inputs if entry.name != _SIDES]
    shape = []
    if len(inputs) == 1 and inputs[0].type in FLOAT_TYPES:
        shape = list(inputs[0].shape)
    if len(shape) == 4 and not (isinstance(shape[0], int) and shape[0] != 1):
        shape = shape[1:]
    # The exports of torchvision take an image without a batch.
    if len(shape) != 3:
        where = f"model {name!r}"
        raise refusal("unfit-model.graph-input", where, input_words(session.inputs), "1")
    return shape


def only_resizes(settings: Mapping[str, Any]) -> bool:
    """Return whether images are scaled as a whole, by timm's settings or those of an image
    processor."""
    if "crop_mode" in settings:
        return settings["crop_mode"] == "squash" and settings["crop_pct"] == 1
    return not settings.get("do_center_crop") and settings.get("pad_size") is None


def run_graph(session: Graph, pixels: Floats32) -> dict[str, NDArray[Any]]:
    """Return the outputs for one image (C, H, W), by name."""
    given: dict[str, NDArray[Any]] = {}
    for entry in session.inputs:
        if entry.name == _SIDES:
            number_type = _SIDE_TYPES.get(entry.type, np.int64)
            given[entry.name] = np.asarray([pixels.shape[:0:-1]], number_type)
        else:
            image = pixels[None] if len(entry.shape) == 4 else pixels
            given[entry.name] = np.ascontiguousarray(image, FLOAT_TYPES[entry.type])
    names = [entry.name for entry in session.outputs]
    return dict(zip(names, session.run(names, given), strict=True))
