"""Load classifiers of ONNX Runtime: `onnx:FOLDER`, or `onnx:FOLDER/model.onnx`.

The folder's configuration describes the input and names the outputs: a `config.json` of timm, or
the files of transformers. A graph with weights in other files is refused, and no library of
operators is loaded.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np

from counterfoil.arrays import Floats, Floats32
from counterfoil.models.classifiers.classifier import Classifier, ClassifierFacts, far_apart
from counterfoil.models.classifiers.of_timm import (
    TimmDocument,
    as_document,
    checked_config,
    timm_stages,
    timm_transform,
    unstated_note,
)
from counterfoil.models.classifiers.of_transformers import (
    CLASSIFIERS,
    ModelKind,
    checked_transformers,
)
from counterfoil.models.config_files import (
    CONFIG,
    Label,
    expected_words,
    read_config,
    shown_setting,
)
from counterfoil.models.messages import refusal
from counterfoil.models.names import refuse_elsewhere
from counterfoil.models.onnx_graphs import FLOAT_TYPES, open_graph, refuse_vast_input
from counterfoil.models.score_scale import as_logits, network_scale
from counterfoil.models.transformers_files import (
    as_configuration,
    image_processor_of,
    input_key_of,
    prepared_by,
)
from counterfoil.recipe.names import ONNX
from counterfoil.regular_files import named_path

if TYPE_CHECKING:
    import torch

    from counterfoil.recipe.prompts import RecipeClass

# Noise whose answers show whether outputs between 0 and 1 are always that.
_STRENGTHS = (-1, 3, -3, 10, -10, 30)
# A share of the spread of scores. Activations that are quantised by the largest one of a batch
# differ by less.
_OF_NEIGHBOURS = 0.1
_IN_TRAINING = (
    "scores an image differently beside another image: its numbers depend on the batch size and on the"
    " order of the images. A graph that was exported in training mode does so. Call eval() and export it"
    " again."
)
# The key of a config.json that names the output with the scores.
OUTPUT = "output"


class OnnxDocument(TimmDocument):
    """A config.json in timm's form. Any architecture is allowed, because nothing is built from its
    name."""

    architecture: Annotated[Label, expected_words("printable text")]


@dataclass(frozen=True, kw_only=True)
class OnnxClassifier(Classifier):
    """A graph of ONNX Runtime on the CPU or a CUDA device. sha256: of the file and the version of
    ONNX Runtime."""

    session: Any
    output: str
    """The output with scores."""
    prepare: Callable[[Any], Any]
    settings: Mapping[str, Any]
    """The source of its preparation: timm's data configuration, or an image processor's settings."""
    processor: Any
    """The image processor of transformers, if it prepares the images."""
    batch: int | None
    """The number of images that the graph takes at once; None for any number."""

    def transform(self) -> Callable[[Any], Any]:
        return self.prepare

    def stages(self) -> Any:
        return timm_stages(self.settings) if self.processor is None else self.processor

    def logits(self, batch: torch.Tensor, device: str) -> torch.Tensor:
        import torch

        outputs = _run(self.session, batch.numpy(), self.batch, [self.output])
        scores = torch.from_numpy(outputs[self.output])
        return as_logits(scores, self.score_scale)

    def released(self) -> Self:
        return replace(self, session=None)


@dataclass(frozen=True)
class Deployed:
    """A graph's file and its folder's configuration."""

    file: Path
    """The graph."""
    document: Mapping[str, Any]
    """The folder's config.json."""
    facts: ClassifierFacts
    """Its description."""
    input_key: str
    """Graphs with the same key get the same tensor for an image."""
    input_size: tuple[int, int, int] | None
    """(channels, height, width), or None if it depends on the image."""
    prepare: Callable[[], Callable[[Any], Any]]
    """Makes the transform of images."""
    settings: Mapping[str, Any]
    """What the transform is made from."""
    processor: Any = None
    """The image processor of transformers, if it prepares the images."""
    read: str = ""
    """What its configuration does not say, for people."""


def describe(name: str, classes: Sequence[RecipeClass]) -> ClassifierFacts:
    return deployed_graph(name).facts


def load(name: str, device: str, classes: Sequence[RecipeClass]) -> OnnxClassifier:
    deployed = deployed_graph(name)
    session, sha256 = open_graph(name, deployed.file, device)
    batch, shape = _input_of(name, session, deployed)
    refuse_vast_input(name, batch, shape)
    noise = np.random.default_rng(0).normal(size=(batch or 2, *shape))
    probe = noise.astype(np.float32)
    given = [entry.name for entry in session.outputs]
    outputs = _run(
        session,
        probe,
        batch,
        given,
    )
    shapes = {key: list(scores.shape) for key, scores in outputs.items()}
    output = _output_of(
        name,
        deployed,
        shapes,
        len(probe),
    )

    def scores_of_noise() -> Iterator[Floats]:
        yield outputs[output].astype(np.float64)
        for strength in _STRENGTHS:
            stronger = np.float32(strength) * probe[:, :, ::-1]
            images = np.ascontiguousarray(stronger)
            answers = _run(session, images, batch, [output])
            yield answers[output].astype(np.float64)

    scale, note = network_scale(scores_of_noise())
    unsteady = ""
    if _depends_on_neighbours(session, probe, batch, output):
        unsteady = _IN_TRAINING
    input_key = deployed.input_key
    if OUTPUT in deployed.document:
        input_key += f" {output}"
    return OnnxClassifier(
        **deployed.facts.fields(),
        sha256=sha256,
        input_key=input_key,
        input_size=deployed.input_size,
        session=session,
        output=output,
        prepare=deployed.prepare(),
        settings=deployed.settings,
        processor=deployed.processor,
        batch=batch,
        score_scale=scale,
        read="; ".join(filter(None, (note, deployed.read))),
        unsteady=unsteady,
    )


def _depends_on_neighbours(session: Any, noise: Floats32, batch: int | None, output: str) -> bool:
    """Return whether the scores of an image change with the others of its batch.

    noise: images for the graph (n, channels, height, width), which get a colour each.
    """
    import torch

    colours = np.random.default_rng(1).normal(0, 2, size=(*noise.shape[:2], 1, 1))
    images = noise + colours.astype(np.float32)
    others = images.copy()
    # They have the same numbers in another order, so that quantisation by the largest stays.
    others[1:] = images[1:, ::-1]
    scores = []
    for given in (images, others):
        answers = _run(session, given, batch, [output])
        scores.append(torch.from_numpy(answers[output][0]))
    alone, beside_others = scores
    return far_apart(alone, beside_others, _OF_NEIGHBOURS)


def _output_of(
    name: str,
    deployed: Deployed,
    shapes: Mapping[str, list[int]],
    images: int,
) -> str:
    """Return the output that scores the classes: the one that the configuration names, or the only
    one of that width.

    shapes: of each output for so many images. Raise UserError if no output fits, or several do.
    """
    where = f"model {name!r}"
    wanted = [images, deployed.facts.num_classes]
    named_output = deployed.document.get(OUTPUT)
    fitting = []
    for output, shape in shapes.items():
        if shape == wanted and named_output in (None, output):
            fitting.append(output)
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        first = json.dumps(fitting[0])
        raise refusal(
            "unfit-model.outputs",
            where,
            fitting,
            first=first,
        )
    given = ", ".join(f"{output} {shape}" for output, shape in shapes.items())
    called = "" if named_output is None else f" called {shown_setting(named_output)}"
    raise refusal(
        "unfit-model.graph-scores",
        where,
        given,
        wanted,
        images=images,
        called=called,
    )


def deployed_graph(name: str, kind: ModelKind = CLASSIFIERS) -> Deployed:
    """Read the configuration beside a graph. Raise UserError with all problems. kind: used for
    transformers' files."""
    refuse_elsewhere(name, "model")
    where = f"model {name!r}"
    given = name.removeprefix(ONNX)
    if not given.strip():
        raise refusal("unknown-model.onnx", where)
    path = named_path(given)
    files = sorted(path.glob("*.onnx")) if path.is_dir() else [path]
    if len(files) != 1 or not files[0].is_file():
        what = f"no file {path}"
        if path.is_dir():
            what = f"{len(files)} files *.onnx in {path}"
        raise refusal("missing-model-file.onnx", where, what)
    file = files[0]
    folder = file.parent
    if not (folder / CONFIG).is_file():
        sentence = "missing-model-file.deployed"
        if kind.what == "detector":
            sentence = "missing-model-file.detector"
        raise refusal(
            sentence,
            where,
            folder,
            file=shlex.quote(str(file)),
        )
    document = read_config(folder / CONFIG, name)
    if kind is not CLASSIFIERS:
        labels = document.get("label_names")
        outputs = len(labels) if isinstance(labels, list) else 0
        document = {"num_classes": max(1, outputs), **document}
    if "architecture" in document and document.get("model_type") in (None, "timm_wrapper"):
        from timm.data.config import resolve_data_config

        timm_config = checked_config(name, {**document, "model_args": None}, OnnxDocument)
        form = timm_config.pretrained_cfg
        resolved = resolve_data_config({}, pretrained_cfg=form, use_test_size=True)
        data_config = as_document(resolved)
        channels, height, width = data_config["input_size"]
        facts = timm_config.facts(name, file.name)
        return Deployed(
            file=file,
            document=document,
            facts=facts,
            input_key=json.dumps(data_config, sort_keys=True, default=str),
            input_size=(channels, height, width),
            prepare=partial(timm_transform, name, data_config),
            settings=data_config,
            read=unstated_note(timm_config, data_config),
        )
    config = checked_transformers(name, folder, kind)
    processor = image_processor_of(name, config, as_configuration(name, config))
    labels = config.label_names
    return Deployed(
        file=file,
        document=document,
        facts=ClassifierFacts(
            name,
            file.name,
            config.architecture,
            len(labels),
            labels,
        ),
        input_key=input_key_of(processor),
        input_size=None,
        prepare=partial(prepared_by, name, processor),
        settings=processor.to_dict(),
        processor=processor,
    )


def _input_of(
    name: str,
    session: Any,
    deployed: Deployed,
) -> tuple[int | None, tuple[int, int, int]]:
    """Return the graph's batch size, None for any size, and (channels, height, width) of an
    image."""
    inputs = session.inputs
    dimensions = inputs[0].shape if len(inputs) == 1 else []
    if len(dimensions) != 4 or inputs[0].type not in FLOAT_TYPES:
        where = f"model {name!r}"
        raise refusal(
            "unfit-model.graph-input",
            where,
            input_words(inputs),
            "n",
        )
    prepared = deployed.input_size
    if prepared is None:
        from PIL import Image

        prepare = deployed.prepare()
        image = Image.new("RGB", (48, 48), "grey")
        prepared = tuple(prepare(image).shape)
    refuse_other_size(name, dimensions, prepared)
    batch = dimensions[0] if isinstance(dimensions[0], int) else None
    return batch, (prepared[0], prepared[1], prepared[2])


def input_words(entries: Sequence[Any]) -> str:
    return ", ".join(f"{entry.name} {entry.type} {entry.shape}" for entry in entries)


def refuse_other_size(name: str, dimensions: Sequence[Any], prepared: Sequence[int]) -> None:
    """Raise UserError if a graph takes no images of the prepared size (channels, height, width).

    dimensions: those of the graph's input; a dimension that is no number is free.
    """
    for side, given in zip(dimensions[1:], prepared, strict=True):
        if isinstance(side, int) and side != given:
            taken = list(dimensions[1:])
            where = f"model {name!r}"
            raise refusal(
                "unfit-model.size",
                where,
                taken,
                list(prepared),
            )


def _run(
    session: Any,
    images: Floats32,
    batch: int | None,
    outputs: Sequence[str],
) -> dict[str, Floats32]:
    """Return these outputs of the graph (n, …) for n images, in batches of the graph's size."""
    entry = session.inputs[0]
    size = batch or len(images)
    parts = []
    for start in range(0, len(images), size):
        part = images[start : start + size].astype(FLOAT_TYPES[entry.type])
        # The last batch is padded, because a graph with a fixed batch size takes no smaller batch.
        padding = np.zeros((size - len(part), *part.shape[1:]), part.dtype)
        padded = np.concatenate([part, padding])
        given = session.run(outputs, {entry.name: padded})
        parts.append([np.atleast_1d(scores)[: len(part)] for scores in given])
    whole = {}
    for output, scores in zip(outputs, zip(*parts, strict=True), strict=True):
        whole[output] = np.concatenate(scores).astype(np.float32)
    return whole
