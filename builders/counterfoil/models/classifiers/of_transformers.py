"""Classifiers of transformers: `transformers:NAME`, a model of the Hub, or `transformers:FOLDER`.

What `AutoModelForImageClassification` and its image processor would make of the files, without what they would do for
a stranger: no code of an author runs, pickled weights are not read, nothing outside the files of one commit or folder
is followed. The configuration is checked first (`transformers_config`), its size compared with the weights before
memory is taken (`trial_build`), and the weights are safetensors, all of which have to fit.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterfoil.errors import CounterfoilError, RunFailure, UserError
from counterfoil.models.classifiers.classifier import Classifier, ClassifierFacts
from counterfoil.models.config_files import read_config
from counterfoil.models.error_text import one_line
from counterfoil.models.input_form import refuse_unlike_sides
from counterfoil.models.loading_errors import told_in_words
from counterfoil.models.names import HUB, local_folder, pin_model, refuse_shadowed
from counterfoil.models.transformers_config import CONFIG, PROCESSORS, TransformersConfig, checked_transformers
from counterfoil.models.weights_files import refuse_damaged, refuse_infinite, weights_sha256

if TYPE_CHECKING:
    import torch
    from torch import nn

    from counterfoil.recipe.prompts import RecipeClass

PREFIX = "transformers:"
_WEIGHTS = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_SHARD = re.compile(r"[\w-]+\.safetensors")
_MOST_SHARDS = 1_000
# A part of a model of which its weights hold more than its configuration builds: the answers would be another model's.
_LAYER = re.compile(r"\.(layers?|blocks?|stages?)\.\d+\.")


@dataclass(frozen=True, kw_only=True)
class TransformersClassifier(Classifier):
    """A model of transformers in eval mode with its image processor. `sha256` is over configuration and tensors."""

    processor: Any

    def transform(self) -> Callable[[Any], torch.Tensor]:
        """The image processor, one image at a time: a PIL image to a float tensor (C, H, W)."""
        return prepared_by(self.name, self.processor)

    def logits(self, batch: torch.Tensor, device: str) -> torch.Tensor:
        import torch

        with torch.inference_mode():
            return self.module(pixel_values=batch.to(device)).logits.float().cpu()


def describe(name: str, classes: Sequence[RecipeClass] = ()) -> ClassifierFacts:
    """Architecture and outputs of the model, read from its configuration only.

    Raises UserError, with all that is wrong with a configuration, RunFailure where it cannot be fetched.
    """
    _, config = _configured(name)
    return ClassifierFacts(name, name.removeprefix(PREFIX), config.architecture, config.num_classes, config.label_names)


def load(name: str, device: str = "cpu", classes: Sequence[RecipeClass] = ()) -> TransformersClassifier:
    """The trained model on `device`, in eval mode, its parameters without gradients, in float32.

    Raises UserError for a folder that cannot be a trained classifier, RunFailure when it cannot be fetched or its
    weights cannot be read.
    """
    place, config = _configured(name)
    module: Any = told_in_words(name, lambda: _trained(name, place, config))
    processor = _image_processor(name, config, module.config)
    module.eval().requires_grad_(False)
    tensors = weights_sha256(f"{config.architecture}\n{config.text()}", module.state_dict())
    form = {"processor": type(processor).__name__, **processor.to_dict()}
    return TransformersClassifier(
        name=name,
        architecture=config.architecture,
        num_classes=config.num_classes,
        label_names=config.label_names,
        param_count=sum(parameter.numel() for parameter in module.parameters()),
        sha256=tensors,
        input_key=f"transformers {version('transformers')} {json.dumps(form, sort_keys=True, default=str)}",
        input_size=_input_size(name, processor),
        crop_pct=_crop_share(processor),
        interpolation=_interpolation(processor),
        module=module.to(device),
        processor=processor,
    )


def prepared_by(name: str, processor: Any) -> Callable[[Any], torch.Tensor]:
    """A function from a PIL image to what the processor makes of it. UserError for an image that it cannot take."""
    settings = processor.to_dict()
    size, crop = settings.get("size") or {}, settings.get("crop_pct") or 1.0
    edge = size.get("shortest_edge")

    def transformed(image: Any) -> torch.Tensor:
        if edge is not None and size.get("longest_edge") is None:
            side = int(edge / crop)
            refuse_unlike_sides(name, image.size, (side, side))
        try:
            return processor(images=image, return_tensors="pt")["pixel_values"][0]
        except CounterfoilError:
            raise
        except Exception as error:  # whatever settings of any content make it raise
            shown = f"{image.size[0]:,} x {image.size[1]:,}"
            raise UserError(
                f"model {name!r}: its image processor cannot prepare an image of {shown}: {one_line(error)}"
            ) from error

    return transformed


@dataclass(frozen=True)
class _Place:
    """Where the files lie: a folder, which is the person's own or that of one commit of `repository` in the cache."""

    folder: Path
    repository: str | None = None

    def file(self, name: str) -> Path | None:
        """A regular file of these; None where there is none."""
        from huggingface_hub import errors as hub
        from huggingface_hub import hf_hub_download

        if self.repository is None:
            return self.folder / name if (self.folder / name).is_file() else None
        try:
            return Path(hf_hub_download(self.repository, name, revision=self.folder.name))
        except hub.LocalEntryNotFoundError:
            raise
        except hub.EntryNotFoundError:
            return None


def _configured(name: str) -> tuple[_Place, TransformersConfig]:
    place = _found(name)
    return place, checked_transformers(name, place.folder)


def _found(name: str) -> _Place:
    from huggingface_hub import hf_hub_download

    rest = name.removeprefix(PREFIX)
    folder = local_folder(rest)
    if folder is not None:
        if not (folder / CONFIG).exists():
            raise UserError(f"model {name!r}: {folder} has no {CONFIG}, so it is no model of transformers")
        return _Place(folder)
    repository, _, revision = rest.removeprefix(HUB).partition("@")
    refuse_shadowed(repository, "model")

    def fetched() -> _Place:
        # The commit first: a branch may move between any two requests.
        commit = pin_model(repository, revision or None).revision
        place = _Place(Path(hf_hub_download(repository, CONFIG, revision=commit)).parent, repository)
        for other in PROCESSORS:
            place.file(other)
        return place

    return told_in_words(name, fetched)


def _trained(name: str, place: _Place, config: TransformersConfig) -> nn.Module:
    """The module with its weights, all of them."""
    import torch
    import transformers
    from safetensors.torch import load_file

    from counterfoil.models.trial_build import refuse_overgrown

    files = _weights(name, place)
    for file in files:
        refuse_damaged(file, name)
    built: Any = getattr(transformers, config.architecture)
    with _quiet():
        described = _as_configuration(name, config)
        refuse_overgrown(name, files, lambda: built(described))
        state: dict[str, torch.Tensor] = {}
        for file in files:
            state |= load_file(file)
        # Without a folder nothing but these tensors is looked at: no adapters, no other file of weights.
        module, told = built.from_pretrained(
            None, config=described, state_dict=state, dtype=torch.float32, output_loading_info=True
        )
    missing = sorted(told["missing_keys"])
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise RunFailure(
            f"model {name!r}: its weights do not hold {', '.join(missing[:3])}{more}, which would be made up",
            "Name a model that was trained to classify, or correct its configuration.",
        )
    left = sorted(key for key in told["unexpected_keys"] if _LAYER.search(key))
    if left:
        raise UserError(
            f"model {name!r}: its weights hold layers that its configuration does not have, such as {left[0]}",
            "Configuration and weights are not of one model.",
        )
    if getattr(module, "main_input_name", None) != "pixel_values":
        raise UserError(f"model {name!r}: {config.architecture} does not take images alone")
    refuse_infinite(name, module)
    return module


def _as_configuration(name: str, config: TransformersConfig) -> Any:
    from transformers import CONFIG_MAPPING

    try:
        return CONFIG_MAPPING[config.model_type].from_dict(config.document)
    except Exception as error:  # whatever a configuration of any content makes it raise
        raise UserError(
            f"model {name!r}: nothing can be built from its configuration: {one_line(error)}",
            "Correct the configuration, or name another model.",
        ) from error


def _weights(name: str, place: _Place) -> list[Path]:
    """The weights files, safetensors only: one, or those that an index lists."""
    whole = place.file(_WEIGHTS)
    if whole is not None:
        return [whole]
    index = place.file(_INDEX)
    if index is None:
        raise UserError(
            f"model {name!r} has no {_WEIGHTS}",
            "Pickled weights (.bin) may run their author's code and are not read: save it again as safetensors.",
        )
    listed = read_config(index, name, 1 << 24).get("weight_map")
    shards = sorted({str(file) for file in listed.values()}) if isinstance(listed, dict) else []
    odd = [file for file in shards if not _SHARD.fullmatch(file)]
    if not shards or odd or len(shards) > _MOST_SHARDS:
        raise UserError(f"model {name!r}: {_INDEX} lists {odd[0] if odd else 'no weights'!r}, expected safetensors")
    found = [(file, place.file(file)) for file in shards]
    missing = [file for file, path in found if path is None]
    if missing:
        raise RunFailure(f"model {name!r}: {_INDEX} lists {missing[0]}, which is not there")
    return [path for _, path in found if path is not None]


def _image_processor(name: str, config: TransformersConfig, of_model: Any) -> Any:
    """The processor of these settings, from a folder that holds them and nothing else."""
    from transformers import AutoImageProcessor

    with tempfile.TemporaryDirectory() as folder, _quiet():
        (Path(folder) / PROCESSORS[1]).write_text(json.dumps(config.processor), encoding="utf-8")
        try:
            return AutoImageProcessor.from_pretrained(folder, config=of_model)
        except Exception as error:  # whatever settings of any content make it raise
            raise UserError(
                f"model {name!r}: no image processor of transformers can be made of its settings: {one_line(error)}"
            ) from error


def _input_size(name: str, processor: Any) -> tuple[int, int, int] | None:
    """[C, H, W] of what the processor makes of any image; None where it follows the image's sides."""
    from PIL import Image

    prepare = prepared_by(name, processor)
    sizes = {tuple(prepare(Image.new("RGB", sides, "grey")).shape) for sides in ((48, 32), (32, 48))}
    shape = sizes.pop()
    if len(shape) != 3:
        raise UserError(f"model {name!r}: its image processor gives {list(shape)}, expected [channels, height, width]")
    return None if sizes else (shape[0], shape[1], shape[2])


def _crop_share(processor: Any) -> float:
    """timm's crop_pct: the side that is cut out over the side that is resized to."""
    settings = processor.to_dict()
    if settings.get("crop_pct"):
        return float(settings["crop_pct"])
    size, crop = settings.get("size") or {}, settings.get("crop_size") or {}
    edge, cut = size.get("shortest_edge") or size.get("height"), crop.get("height")
    return round(cut / edge, 4) if settings.get("do_center_crop") and edge and cut else 1.0


def _interpolation(processor: Any) -> str | None:
    from PIL import Image

    resample: Any = getattr(processor, "resample", None)
    return Image.Resampling(int(resample)).name.lower() if resample in set(Image.Resampling) else None


@contextmanager
def _quiet() -> Iterator[None]:
    """No bars and reports of transformers: what they tell is told in errors here."""
    from transformers.utils import logging

    level, shown = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()
