"""Load a text-to-image pipeline of diffusers by name: Stable Diffusion 1.x, 2.x, XL, full size or the lab's."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterfoil.errors import RunFailure, UserError
from counterfoil.models.devices import resolve_dtype
from counterfoil.models.names import local_folder
from counterfoil.recipe.names import did_you_mean

if TYPE_CHECKING:
    import torch


def load_pipeline(
    name: str,
    *,
    revision: str | None = None,
    scheduler: str | None = None,
    dtype: str = "auto",
    device: str = "cpu",
    tokens: Mapping[str, torch.Tensor] | None = None,
) -> Any:
    """A diffusers text-to-image pipeline on `device`, every part in one number type, quiet, without a safety filter.

    `tokens` maps placeholder → vectors [n, width]; they are added to the vocabulary together.
    The filter is left out because it would replace pictures by black ones; screening is CLIP's.
    Raises UserError for a name or scheduler that does not exist, RunFailure when it cannot be fetched or read.
    """
    import diffusers
    import torch

    folder = local_folder(name)
    kind = resolve_dtype(dtype, device)
    options: dict[str, Any] = {"dtype": kind, "use_safetensors": True}
    source = str(folder) if folder is not None else name.removeprefix("hf-hub:")
    with _told(name), _quiet(diffusers):
        if folder is not None and not (folder / "model_index.json").is_file():
            raise UserError(f"model '{name}': {folder} has no model_index.json, so it is no diffusers pipeline")
        pipeline = diffusers.AutoPipelineForText2Image.from_pretrained(source, revision=revision, **options)
        for part in ("safety_checker", "feature_extractor", "image_encoder"):
            if getattr(pipeline, part, None) is not None:
                pipeline.register_modules(**{part: None})
        if "requires_safety_checker" in pipeline.config:
            pipeline.register_to_config(requires_safety_checker=False)
    if scheduler is not None:
        pipeline.scheduler = _scheduler(scheduler, pipeline.scheduler)
    if tokens:
        _add_tokens(name, pipeline, tokens)
    pipeline.set_progress_bar_config(disable=True)
    pipeline = pipeline.to(device)
    for part in pipeline.components.values():
        if isinstance(part, torch.nn.Module):
            part.eval().requires_grad_(False)
            if part.dtype != kind:
                part.to(kind)
    return pipeline


def native_size(pipeline: Any) -> int:
    """The side in pixels that a pipeline renders by default."""
    unet = getattr(pipeline, "unet", None) or pipeline.transformer
    size = unet.config.sample_size
    side = size if isinstance(size, int) else size[0]
    return int(side * pipeline.vae_scale_factor)


def _scheduler(name: str, current: Any) -> Any:
    import diffusers

    known = [n.removesuffix("Scheduler") for n in dir(diffusers.schedulers) if n.endswith("Scheduler")]
    if name.removesuffix("Scheduler") not in known:
        raise UserError(f"generator.scheduler: diffusers has no '{name}'{did_you_mean(name, known)}")
    return getattr(diffusers, f"{name.removesuffix('Scheduler')}Scheduler").from_config(current.config)


def _add_tokens(name: str, pipeline: Any, tokens: Mapping[str, torch.Tensor]) -> None:
    """Add all placeholders at once (one by one resizes the matrix each time: minutes for a thousand)."""
    if getattr(pipeline, "text_encoder_2", None) is not None:
        # The second encoder would read the placeholder as the letters of its name.
        raise UserError(
            f"class tokens: {name} has two text encoders, and a class token holds the vectors of one",
            "Set tokens to null to prompt by class name, or name a Stable Diffusion 1.x or 2.x model.",
        )
    width = pipeline.text_encoder.get_input_embeddings().weight.shape[1]
    wrong = [
        f"class token {t}: width {v.shape[-1]}, expected {width} by {name}"
        for t, v in tokens.items()
        if v.shape[-1] != width
    ]
    if wrong:
        raise UserError(wrong, "These tokens were learned for another text encoder.")
    words = pipeline.tokenizer.get_vocab()
    taken = [f"class token {t!r} is already in the vocabulary of {name}" for t in tokens if t in words]
    if taken:
        raise UserError(taken, "Rename the tensor in the token's file, such as '<bag>'.")
    placeholders = list(tokens)
    pipeline.load_textual_inversion([{p: tokens[p]} for p in placeholders], token=placeholders)


@contextlib.contextmanager
def _quiet(diffusers: Any):
    """No loading bars and no advice on the terminal; our own messages say what matters."""
    import transformers

    level = diffusers.utils.logging.get_verbosity()
    diffusers.utils.logging.set_verbosity_error()
    diffusers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    try:
        yield
    finally:
        diffusers.utils.logging.set_verbosity(level)


@contextlib.contextmanager
def _told(name: str):
    """What goes wrong while a model loads, in one line."""
    import safetensors
    from huggingface_hub import errors as hub

    try:
        yield
    except (hub.RepositoryNotFoundError, hub.RevisionNotFoundError, hub.HFValidationError) as error:
        raise UserError(
            f"model '{name}' is not on the Hub, or is private", "Correct its name in the recipe."
        ) from error
    except (hub.LocalEntryNotFoundError, hub.OfflineModeIsEnabled, hub.HfHubHTTPError) as error:
        raise RunFailure(f"model '{name}' is not in the local cache and the Hub cannot be reached") from error
    except (safetensors.SafetensorError, EOFError) as error:
        raise RunFailure(f"model '{name}': a weights file is damaged: {error}") from error
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:300]
        raise RunFailure(f"model '{name}' could not be loaded: {reason}") from error


def read_token_files(files: Mapping[str, Path]) -> dict[str, tuple[str, torch.Tensor]]:
    """Class id → (placeholder, vectors [n, width]) from safetensors files of one `{placeholder: tensor}` each."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    tokens, problems = {}, []
    for class_id, file in files.items():
        try:
            content = load_file(file)
        except (SafetensorError, OSError) as error:
            problems.append(f"tokens: {file.name}: not a readable safetensors file ({error})")
            continue
        if len(content) != 1:
            problems.append(f"tokens: {file.name}: {len(content)} tensors, expected one class token")
            continue
        placeholder, vectors = next(iter(content.items()))
        tokens[class_id] = (placeholder, vectors.reshape(-1, vectors.shape[-1]))
    if problems:
        raise UserError(problems)
    return tokens
