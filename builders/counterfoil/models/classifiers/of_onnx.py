"""Load classifiers of ONNX Runtime: `onnx:FOLDER`, or `onnx:FOLDER/model.onnx`.

The folder's configuration describes the input and names the outputs: a `config.json` of timm, or the files of
transformers. A graph with weights in other files is refused, and no library of operators is loaded.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray

from counterfoil.errors import RunFailure, UserError
from counterfoil.models.classifiers.classifier import Classifier, ClassifierFacts
from counterfoil.models.classifiers.of_timm import TimmDocument, checked_config, timm_transform
from counterfoil.models.classifiers.of_transformers import CLASSIFIERS, ModelKind, checked_transformers
from counterfoil.models.config_files import CONFIG, Label, expected, read_config
from counterfoil.models.loading_errors import while_loading
from counterfoil.models.names import refuse_elsewhere
from counterfoil.models.score_scale import ScaleEvidence, as_logits, scale_note
from counterfoil.models.transformers_files import as_configuration, image_processor_of, input_key_of, prepared_by, quiet
from counterfoil.recipe.names import ONNX
from counterfoil.regular_files import named_path, read_regular

if TYPE_CHECKING:
    import torch

    from counterfoil.recipe.prompts import RecipeClass

# Noise whose answers show whether outputs between 0 and 1 are always that.
_STRENGTHS = (-1, 3, -3, 10, -10, 30)
# protobuf's limit for a message.
MOST_BYTES = (1 << 31) - 1
FLOAT_TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16}


class OnnxDocument(TimmDocument):
    """A config.json in timm's form. Any architecture is allowed, because nothing is built from its name."""

    architecture: Annotated[Label, expected("printable text")]


@dataclass(frozen=True, kw_only=True)
class OnnxClassifier(Classifier):
    """A graph of ONNX Runtime on the CPU or a CUDA device. sha256: of the file and the version of ONNX Runtime.

    batch: the number of images that the graph takes at once, or None for any number.
    """

    session: Any
    prepare: Callable[[Any], Any]
    batch: int | None

    def transform(self) -> Callable[[Any], Any]:
        return self.prepare

    def logits(self, batch: torch.Tensor, device: str) -> torch.Tensor:
        import torch

        return as_logits(torch.from_numpy(_run(self.session, batch.numpy(), self.batch)), self.score_scale)

    def released(self) -> Self:
        return replace(self, session=None)


@dataclass(frozen=True)
class Deployed:
    """A graph's file and its folder's configuration. `prepare` makes the transform of images from `settings`."""

    file: Path
    facts: ClassifierFacts
    input_key: str
    input_size: tuple[int, int, int] | None
    prepare: Callable[[], Callable[[Any], Any]]
    settings: Mapping[str, Any]
    processor: Any = None


def describe(name: str, classes: Sequence[RecipeClass] = ()) -> ClassifierFacts:
    return deployed_graph(name).facts


def load(name: str, device: str = "cpu", classes: Sequence[RecipeClass] = ()) -> OnnxClassifier:
    deployed = deployed_graph(name)
    session, sha256 = open_graph(name, deployed.file, device)
    batch, shape = _input_of(name, session, deployed)
    probe = np.random.default_rng(0).normal(size=(batch or 2, *shape)).astype(np.float32)
    scores = while_loading(name, lambda: _run(session, probe, batch))
    if scores.ndim != 2 or scores.shape[1] != deployed.facts.num_classes:
        raise UserError(
            f"model {name!r}: for {len(probe)} images the graph gives {list(scores.shape)} numbers, expected"
            f" {[len(probe), deployed.facts.num_classes]}, a score for each output of {CONFIG}"
        )
    evidence = ScaleEvidence()
    evidence.add(scores.astype(np.float64))
    for strength in _STRENGTHS:
        if evidence.scale(network=True) == "logits":
            break  # else logits may be between 0 and 1, or add up, by chance
        stronger = np.float32(strength) * probe[:, :, ::-1]
        evidence.add(_run(session, np.ascontiguousarray(stronger), batch).astype(np.float64))
    scale = evidence.scale(network=True)
    return OnnxClassifier(
        name=name,
        architecture=deployed.facts.architecture,
        num_classes=deployed.facts.num_classes,
        label_names=deployed.facts.label_names,
        sha256=sha256,
        input_key=deployed.input_key,
        input_size=deployed.input_size,
        session=session,
        prepare=deployed.prepare(),
        batch=batch,
        score_scale=scale,
        read="" if scale == "logits" else scale_note(scale, evidence),
    )


def deployed_graph(name: str, kind: ModelKind = CLASSIFIERS) -> Deployed:
    """Read the configuration beside a graph. Raise UserError with all problems. kind: used for transformers' files."""
    refuse_elsewhere(name, "model")
    given = name.removeprefix(ONNX)
    if not given.strip():
        raise UserError(f"model {name!r} names no file, expected onnx:FOLDER", "Or write onnx:FOLDER/model.onnx.")
    path = named_path(given)
    files = sorted(path.glob("*.onnx")) if path.is_dir() else [path]
    if len(files) != 1 or not files[0].is_file():
        what = f"{len(files)} files *.onnx in {path}" if path.is_dir() else f"no file {path}"
        raise UserError(f"model {name!r}: found {what}, expected one", "Write onnx:FOLDER/model.onnx.")
    folder = files[0].parent
    if not (folder / CONFIG).is_file():
        raise UserError(
            f"model {name!r}: {folder} has no {CONFIG}, so it does not say how images are prepared",
            'As in {"architecture": "mine", "num_classes": 2, "label_names": ["cat", "dog"], "pretrained_cfg":'
            ' {"input_size": [3, 224, 224], "mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5], "crop_pct": 1.0,'
            ' "interpolation": "bilinear"}}, or the files that Optimum exports.',
        )
    document = read_config(folder / CONFIG, name)
    if "architecture" in document and document.get("model_type") in (None, "timm_wrapper"):
        from timm.data.config import resolve_data_config

        timm_config = checked_config(name, {**document, "model_args": None}, OnnxDocument)
        resolved = resolve_data_config({}, pretrained_cfg=timm_config.pretrained_cfg, use_test_size=True)
        data_config: dict[str, Any] = {key: list(v) if isinstance(v, tuple) else v for key, v in resolved.items()}
        channels, height, width = data_config["input_size"]
        architecture, outputs = timm_config.architecture, timm_config.num_classes
        return Deployed(
            file=files[0],
            facts=ClassifierFacts(name, files[0].name, architecture, outputs, timm_config.label_names),
            input_key=json.dumps(data_config, sort_keys=True, default=str),
            input_size=(channels, height, width),
            prepare=partial(timm_transform, name, data_config),
            settings=data_config,
        )
    config = checked_transformers(name, folder, kind)
    with quiet():
        described = as_configuration(name, config.model_type, config.document)
    processor = image_processor_of(name, config.processor, described)
    labels = config.label_names
    facts = ClassifierFacts(name, files[0].name, config.architecture, len(labels), labels)
    prepare = partial(prepared_by, name, processor)
    return Deployed(files[0], facts, input_key_of(processor), None, prepare, processor.to_dict(), processor)


def open_graph(name: str, file: Path, device: str) -> tuple[Any, str]:
    """Return ONNX Runtime's session of a graph, and a hash of the file and the version of ONNX Runtime."""
    try:
        content = read_regular(file, MOST_BYTES)
    except OSError as error:
        raise UserError(f"model {name!r}: {file} {error.strerror or error}") from error
    try:
        session = while_loading(name, lambda: _session(name, content, device))
    except RunFailure as error:
        if "External data" not in str(error):
            raise
        raise RunFailure(
            f"model {name!r} could not be loaded: its weights are in other files",
            f"Save it as one file: onnx.save(onnx.load('{file.name}'), 'model.onnx').",
        ) from error
    digest = hashlib.sha256(content)
    digest.update(f"onnxruntime {version('onnxruntime')}".encode())
    return session, digest.hexdigest()


def _session(name: str, content: bytes, device: str) -> Any:
    import torch

    try:
        import onnxruntime
    except ImportError as error:
        raise UserError(
            f"model {name!r} needs ONNX Runtime, which is not installed", "Install it: pip install 'counterfoil[onnx]'."
        ) from error
    provider = "CPUExecutionProvider" if device == "cpu" else "CUDAExecutionProvider"
    if provider not in onnxruntime.get_available_providers():
        raise UserError(
            f"model {name!r}: the ONNX Runtime here has no {provider} for the device {device}",
            "Install onnxruntime-gpu, or use --device cpu.",
        )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3
    with tempfile.TemporaryDirectory() as nothing:
        # By default, external weights would be read from the working folder, and no hash would include them.
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", nothing)
        return onnxruntime.InferenceSession(content, options, providers=[provider])


def _input_of(name: str, session: Any, deployed: Deployed) -> tuple[int | None, tuple[int, int, int]]:
    """Return the graph's batch size, None for any size, and (channels, height, width) of an image."""
    inputs = session.get_inputs()
    dimensions = inputs[0].shape if len(inputs) == 1 else []
    if len(dimensions) != 4 or inputs[0].type not in FLOAT_TYPES:
        takes = ", ".join(f"{entry.name} {entry.type} {entry.shape}" for entry in inputs)
        raise UserError(f"model {name!r}: its graph takes {takes}, expected one input of floats [n, 3, height, width]")
    prepared = deployed.input_size
    if prepared is None:
        from PIL import Image

        prepared = tuple(deployed.prepare()(Image.new("RGB", (48, 48), "grey")).shape)
    refuse_other_size(name, dimensions, prepared)
    return (dimensions[0] if isinstance(dimensions[0], int) else None), (prepared[0], prepared[1], prepared[2])


def refuse_other_size(name: str, dimensions: Sequence[Any], prepared: Sequence[int]) -> None:
    """Raise UserError if a graph takes no images of the prepared size (channels, height, width).

    dimensions: those of the graph's input; a dimension that is no number is free.
    """
    if any(isinstance(side, int) and side != given for side, given in zip(dimensions[1:], prepared, strict=True)):
        raise UserError(
            f"model {name!r}: its graph takes images of {list(dimensions[1:])}, and {CONFIG} prepares {list(prepared)}",
            "Correct input_size in config.json, or the size of the image processor.",
        )


def _run(session: Any, images: NDArray[np.float32], batch: int | None) -> NDArray[np.float32]:
    """Return the graph's first output (n, num_classes) for n images, in batches of the graph's size."""
    entry = session.get_inputs()[0]
    size = batch or len(images)
    parts = []
    for start in range(0, len(images), size):
        part = images[start : start + size].astype(FLOAT_TYPES[entry.type])
        # The last batch is padded, because a graph with a fixed batch size takes no smaller batch.
        padded = np.concatenate([part, np.zeros((size - len(part), *part.shape[1:]), part.dtype)])
        parts.append(session.run([session.get_outputs()[0].name], {entry.name: padded})[0][: len(part)])
    return np.concatenate(parts).astype(np.float32)
