"""Check an open_clip model, load it by name, and embed images and captions with it."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field, Strict

from counterfoil.errors import RunFailure, UserError, did_you_mean
from counterfoil.models.config_files import (
    Foreign,
    declared_values,
    expected_words,
    folder_problems,
    fulfils,
    known_to_timm,
    number_problems,
    read_config,
    refuse_problems,
)
from counterfoil.models.loading_errors import explain_computing, explain_loading
from counterfoil.models.messages import message, refusal
from counterfoil.models.names import HUB, LAB, LOCAL, Pin, local_folder, pin_model
from counterfoil.models.transformers_files import never_ask_for_code
from counterfoil.models.weights_files import SAFE, refuse_infinite, refuse_packed
from counterfoil.recipe.names import is_local

if TYPE_CHECKING:
    from PIL import Image

# Name patterns of the tokenizer files that transformers reads.
_TOKENIZER_FILES = ("tokenizer*", "vocab*", "merges.txt", "special_tokens_map.json", "*.model")
# A weights tag of open_clip has these settings, which describe how images are prepared.
_PREPARED = ("mean", "std", "interpolation", "resize_mode")


@dataclass(frozen=True, slots=True)
class ClipModel:
    """An open_clip model in eval mode.

    Embeddings are float32 and have unit length, so the dot product of two embeddings is their
    cosine.
    """

    name: str
    module: Any
    preprocess: Any
    tokenizer: Any
    device: str
    config: Mapping[str, Any]
    """The configuration of its towers, which the weights' names and shapes do not show."""

    def embed_images(self, images: Sequence[Image.Image], batch_size: int) -> np.ndarray:
        """Return the embeddings [n, width] of n images.

        Every batch is padded to `batch_size`, so that the other images of a batch change no bit of
        an embedding.
        """
        import torch

        parts = []
        for start in range(0, len(images), batch_size):
            part = [self.preprocess(image) for image in images[start : start + batch_size]]
            count = len(part)
            part += [part[-1]] * (batch_size - count)
            with (
                explain_computing(f"model {self.name!r}", "embed images", self.device),
                torch.inference_mode(),
            ):
                features = self.module.encode_image(torch.stack(part).to(self.device))
            parts.append(_unit(features.float().cpu().numpy()[:count]))
        return np.concatenate(parts)

    def embed_texts(self, texts: Sequence[str]) -> np.ndarray:
        """Return the embeddings [n, width] of n captions.

        Each caption is encoded alone, so that the other captions change no bit of its embedding.
        """
        import torch

        from counterfoil.models.trials import ids_in_bounds

        rows = []
        with (
            explain_computing(f"model {self.name!r}", "embed captions", self.device),
            ids_in_bounds(self.name, self.module),
            torch.inference_mode(),
        ):
            for text in texts:
                features = self.module.encode_text(self.tokenizer([text]).to(self.device))
                rows.append(_unit(features.float().cpu().numpy()))
        return np.concatenate(rows)


def _unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def pin_clip(name: str, weights: str | None) -> Pin:
    """Pin a CLIP model to the files of a folder, to a commit of the Hub, or to a weights tag of
    open_clip."""
    if weights is None and (local_folder(name) is not None or name.startswith(HUB)):
        return pin_model(name)
    refuse_unknown_weights(name, weights)
    from open_clip.pretrained import get_pretrained_cfg

    config: dict[str, Any] = get_pretrained_cfg(name, weights or "")
    repository = str(config.get("hf_hub") or "").rstrip("/")
    revision = None
    if repository:
        with contextlib.suppress(RunFailure):
            # If the Hub cannot be reached, architecture and weights tag identify the model without
            # a commit.
            revision = pin_model(repository).revision
    return Pin(f"{name}/{weights}", revision, config.get("sha256") or None, None)


def load_clip(
    name: str, weights: str | None = None, device: str = "cpu", *, revision: str | None = None
) -> ClipModel:
    """Load a model for inference in float32. `revision` is the commit of weights and configuration.

    UserError for an unknown name; RunFailure if the model cannot be read.
    """
    import open_clip
    import torch

    from counterfoil.models.trials import refuse_overgrown

    folder = local_folder(name)
    if folder is not None:
        refuse_odd_clip(name, folder)
        resolved = f"{LOCAL}{folder}"
    else:
        resolved = name
        if not name.startswith(HUB):
            refuse_unknown_weights(name, weights)
    never_ask_for_code()
    with _loading(name):
        # By default, open_clip reads pickles with weights_only=True, and prefers safetensors if a
        # model has both.
        chosen: dict[str, Any] = {"pretrained": weights}
        tokens_of = resolved
        if folder is None and (revision is not None or name.startswith(HUB)):
            # Without a pin, take the current commit of the branch: the loaded files are then the
            # checked files.
            resolved, tokens_of, chosen = _at_commit(name, weights, revision)
        if _asks_quick_gelu(name, weights):
            chosen["force_quick_gelu"] = True
        if resolved.startswith(LOCAL) and not name.startswith(LAB):
            files = weights_in(Path(resolved.removeprefix(LOCAL)))
            for file in files:
                if file.suffix != SAFE:
                    refuse_packed(file, name)
            refuse_overgrown(
                name, files, lambda: open_clip.create_model(resolved, load_weights=False)
            )
        module, _, preprocess = open_clip.create_model_and_transforms(
            resolved, precision="fp32", **chosen
        )
        config = open_clip.get_model_config(resolved) or {}
        text = config.get("text_cfg", {})
        # Without this option, a tokenizer of transformers could run its author's code.
        no_code: dict[str, Any] = (
            {"trust_remote_code": False} if text.get("hf_tokenizer_name") else {}
        )
        tokenizer = open_clip.get_tokenizer(tokens_of, **no_code)
        module = module.to(device=device, dtype=torch.float32).eval().requires_grad_(False)
        refuse_infinite(name, module)
    return ClipModel(name, module, preprocess, tokenizer, device, config)


@contextlib.contextmanager
def _loading(name: str) -> Iterator[None]:
    """Report errors as `loading` does. Silence open_clip, which also logs each error that it
    raises."""
    level = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with explain_loading(name):
            yield
    finally:
        logging.disable(level)


def _asks_quick_gelu(name: str, weights: str | None) -> bool:
    """Return whether a weights tag was trained with OpenAI's approximation of GELU.

    The architectures of the same name without `-quickgelu` have the exact GELU, with which these
    weights answer worse. open_clip only warns.
    """
    from open_clip.pretrained import get_pretrained_cfg

    return bool(get_pretrained_cfg(name, weights or "").get("quick_gelu"))


def _at_commit(
    name: str, weights: str | None, commit: str | None
) -> tuple[str, str, dict[str, Any]]:
    """Fetch a model's files of one commit of the Hub.

    Return the model name, the tokenizer name and the options that let open_clip load these files.
    """
    from huggingface_hub import snapshot_download
    from open_clip.pretrained import download_pretrained_from_hf, get_pretrained_cfg

    if name.startswith(HUB):
        repository = name.removeprefix(HUB)
        config = Path(download_pretrained_from_hf(repository, CONFIG, revision=commit))
        commit = config.parent.name
        download_pretrained_from_hf(repository, revision=commit)
        settings = read_config(config, name).get("model_cfg", {}).get("text_cfg", {})
        folder = tokenizer = f"{LOCAL}{config.parent}"
        if settings.get("hf_tokenizer_name") in (None, "", repository):
            snapshot_download(
                repository, revision=commit, allow_patterns=[*_TOKENIZER_FILES, "config.json"]
            )
        else:
            tokenizer = name
        refuse_odd_clip(name, config.parent)
        return folder, tokenizer, {}
    settings = get_pretrained_cfg(name, weights or "")
    repository, _, file = str(settings.get("hf_hub") or "").rpartition("/")
    if not repository:
        return name, name, {"pretrained": weights}
    path = download_pretrained_from_hf(repository, file or None, revision=commit)
    # A weights file does not say how images are prepared, so the settings of the weights tag apply.
    prepared = {f"image_{key}": settings[key] for key in _PREPARED if settings.get(key) is not None}
    return name, name, {"pretrained": path, **prepared}


def refuse_unknown_weights(
    architecture: str,
    tag: str | None,
    model: str = "screen.model",
    weights: str = "screen.weights",
    hint: str | None = None,
) -> None:
    """Raise UserError for an architecture or a tag that open_clip lacks. model, weights: what names
    them."""
    import open_clip

    known = open_clip.list_models()
    if architecture not in known:
        problem = message("unknown-model.open-clip", model, architecture, known)
        raise UserError(problem, hint)
    tags = open_clip.list_pretrained_tags_by_model(architecture)
    if tag not in tags:
        raise refusal(
            "unknown-model.clip-tag",
            weights,
            tag or "none",
            tags,
            architecture=architecture,
            tags=tags or ["it has none"],
            hint=did_you_mean(tag, tags) if tag else "",
        )


CONFIG = "open_clip_config.json"
LONGEST_CONTEXT = 8192  # open_clip allocates an attention mask of LONGEST_CONTEXT ** 2 numbers
_WEIGHTS = ("*.safetensors", "*.bin", "*.pth")  # open_clip searches for weights by these patterns
LARGEST_IMAGE = 1024  # pixels of a side; published CLIP models take 224 to 512
# The largest ratio of a model's estimated float32 size to the size of its files. Weights in half
# precision double in size when they are loaded as float32. Another factor of two, and
# _SLACK bytes, allow for errors of the estimate (`_parameters`).
_UNFOLDS = 4
_SLACK = 64 << 20


def refuse_odd_clip(model: str, folder: Path) -> None:
    """Raise UserError, with all problems, if a configuration names other folders or asks for absurd
    sizes."""
    if not (folder / CONFIG).is_file():
        where = f"model {model!r}"
        raise refusal(
            "missing-model-file.config", where, folder, CONFIG, what="an open_clip folder"
        )
    config = read_config(folder / CONFIG, model)
    towers = config.get("model_cfg", config)
    document = {"model_cfg": towers, "preprocess_cfg": config.get("preprocess_cfg") or None}
    problems = [*number_problems(config, "model"), *declared_values(ClipDocument, document)[1]]
    sound = not problems
    files = weights_in(folder)
    if not files:
        problems.append("its folder has no weights, and open_clip would use random ones")
    if sound:
        needed = 4 * sum(_parameters(towers.get(name, {})) for name in ("vision_cfg", "text_cfg"))
        held = sum(file.stat().st_size for file in files)
        if needed > held * _UNFOLDS + _SLACK:
            problems.append(
                f"its sizes ask for {needed / 1e9:.1f} GB of weights, and its files hold"
                f" {held / 1e9:.3f} GB"
            )
    problems = [f"{CONFIG}: {problem}" for problem in problems]
    problems += folder_problems(folder, ("auto_map",))
    refuse_problems(model, problems)


def weights_in(folder: Path) -> list[Path]:
    return sorted(file for pattern in _WEIGHTS for file in folder.glob(pattern) if file.is_file())


def _of_no_path(name: str) -> bool:
    return not (name and os.path.exists(name))  # noqa: PTH110 (false for 5,000 characters, for which a Path raises)


_ElsewhereName = Annotated[str, fulfils(lambda name: not (name and is_local(name)))]
_ImageSide = Annotated[int, Field(ge=1, le=LARGEST_IMAGE)]
# the tuple is not strict, because JSON has only lists
_Numbers = Annotated[tuple[float, float, float], Strict(False)]
_Above = Annotated[float, Field(gt=0)]
_ELSEWHERE = expected_words("a name, and not a folder of this machine")


class VisionTower(Foreign):
    image_size: Annotated[
        _ImageSide | list[_ImageSide | None] | None, expected_words(f"1 to {LARGEST_IMAGE}")
    ] = None
    timm_model_name: Annotated[
        Annotated[str, fulfils(known_to_timm)] | None, expected_words("an architecture of timm")
    ] = None


class TextTower(Foreign):
    context_length: Annotated[
        int | None, Field(ge=1, le=LONGEST_CONTEXT), expected_words(f"1 to {LONGEST_CONTEXT}")
    ] = None
    hf_model_name: Annotated[Annotated[_ElsewhereName, fulfils(_of_no_path)] | None, _ELSEWHERE] = (
        None
    )
    hf_tokenizer_name: Annotated[_ElsewhereName | None, _ELSEWHERE] = None
    # open_clip's own models have only these keys. open_clip passes all keys to transformers
    # unchanged. Keys such as `trust_remote_code`, `gguf_file` and `bpe_path` would run the author's
    # code or read files of this machine.
    tokenizer_kwargs: Annotated[
        dict[Literal["clean", "strip_sep_token", "language"], Any] | None,
        expected_words("only clean, strip_sep_token, language"),
    ] = None


class _Towers(Foreign):
    vision_cfg: VisionTower = VisionTower()
    text_cfg: TextTower = TextTower()


class _Prepared(Foreign):
    mean: Annotated[_Numbers | None, expected_words("three numbers")] = None
    std: Annotated[
        Annotated[tuple[_Above, _Above, _Above], Strict(False)] | None,
        expected_words("three numbers above 0"),
    ] = None


class ClipDocument(Foreign):
    """The content of open_clip_config.json. Older files contain only the mapping `model_cfg`,
    without its key."""

    model_cfg: _Towers
    preprocess_cfg: _Prepared | None = None


def _parameters(tower: Mapping[str, Any]) -> float:
    """Estimate the number of weights of a transformer tower from its configuration.

    The estimate is far too small for a convolutional tower.
    """
    width, words, layers = (tower.get(key, 0) for key in ("width", "vocab_size", "layers"))
    depth = layers if isinstance(layers, list) else [layers]
    if not all(type(number) in (int, float) for number in (width, words, *depth)):
        return 0.0
    return 12.0 * sum(depth) * float(width) ** 2 + float(words) * float(width)
