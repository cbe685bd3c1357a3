"""Load an open_clip model by name and embed images and captions with it, on any device."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from counterfoil.errors import CounterfoilError, RunFailure, UserError
from counterfoil.models.clip_config import CONFIG, refuse_odd_clip, weights_in
from counterfoil.models.error_text import one_line
from counterfoil.models.loading_errors import known_cause
from counterfoil.models.names import HUB, LAB, LOCAL, Pin, local_folder, pin_model
from counterfoil.models.transformers_files import never_ask_for_code
from counterfoil.models.weights_files import SAFE, refuse_infinite, refuse_packed
from counterfoil.recipe.names import did_you_mean

if TYPE_CHECKING:
    from PIL import Image


# The files of a tokenizer, as transformers reads them.
_TOKENIZER_FILES = ("tokenizer*", "vocab*", "merges.txt", "special_tokens_map.json", "*.model")
# What a weights tag of open_clip says of how images are prepared.
_PREPARED = ("mean", "std", "interpolation", "resize_mode")


@dataclass(frozen=True, slots=True)
class ClipModel:
    """An open_clip model in eval mode. Embeddings are float32 and of unit length, so a dot product is a cosine.

    Embedding raises RunFailure for whatever the model cannot do.
    """

    name: str
    module: Any
    preprocess: Any
    tokenizer: Any
    device: str

    def embed_images(self, images: Sequence[Image.Image], batch_size: int) -> np.ndarray:
        """[n, width] of n images, in batches padded to `batch_size`: what a batch holds changes no bit."""
        import torch

        parts = []
        for start in range(0, len(images), batch_size):
            part = [self.preprocess(image) for image in images[start : start + batch_size]]
            count = len(part)
            part += [part[-1]] * (batch_size - count)
            with self._told("images"), torch.inference_mode():
                features = self.module.encode_image(torch.stack(part).to(self.device))
            parts.append(_unit(features.float().cpu().numpy()[:count]))
        return np.concatenate(parts)

    def embed_texts(self, texts: Sequence[str]) -> np.ndarray:
        """[n, width] of n captions, each encoded alone: its neighbours change no bit."""
        import torch

        from counterfoil.models.id_bounds import ids_in_bounds

        rows = []
        with self._told("captions"), ids_in_bounds(self.name, self.module), torch.inference_mode():
            for text in texts:
                features = self.module.encode_text(self.tokenizer([text]).to(self.device))
                rows.append(_unit(features.float().cpu().numpy()))
        return np.concatenate(rows)

    @contextlib.contextmanager
    def _told(self, what: str) -> Iterator[None]:
        import torch

        try:
            yield
        except CounterfoilError:
            raise
        except torch.OutOfMemoryError as error:
            raise RunFailure(f"out of memory on {self.device} while model '{self.name}' embeds {what}") from error
        except Exception as error:
            # A tokenizer, a configuration and weights that do not belong together meet here first.
            raise RunFailure(
                f"model '{self.name}' cannot embed {what}: {one_line(error)}",
                "Check its configuration, or name another model.",
            ) from error


def _unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def pin_clip(name: str, weights: str | None) -> Pin:
    """Pin a CLIP model: files of a folder, the commit of a Hub model, or open_clip's own weights tag."""
    if weights is None and (local_folder(name) is not None or name.startswith(HUB)):
        return pin_model(name)
    _check_architecture(name, weights)
    from open_clip.pretrained import get_pretrained_cfg

    config: dict[str, Any] = get_pretrained_cfg(name, weights or "")
    repository = str(config.get("hf_hub") or "").rstrip("/")
    revision = None
    if repository:
        with contextlib.suppress(RunFailure):
            # Offline, the architecture and weights tag stay the whole name of what was used.
            revision = pin_model(repository).revision
    return Pin(f"{name}/{weights}", revision, config.get("sha256") or None, None)


def load_clip(name: str, weights: str | None = None, device: str = "cpu", *, revision: str | None = None) -> ClipModel:
    """Load for inference in float32. UserError for an unknown name, RunFailure when it cannot be read.

    `revision` is the commit that a model of the Hub was pinned to: its weights and configuration come from there,
    whatever its branches say now. A tokenizer that a built-in name or another repository brings has no commit.
    """
    import open_clip
    import safetensors
    import torch

    folder = local_folder(name)
    if folder is not None:
        if not (folder / CONFIG).is_file():
            raise UserError(f"model '{name}': {folder} has no {CONFIG}, so it is no open_clip folder")
        refuse_odd_clip(name, folder)
        resolved = f"{LOCAL}{folder}"
    else:
        resolved = name
        if not name.startswith(HUB):
            _check_architecture(name, weights)
    never_ask_for_code()
    logged = logging.root.manager.disable
    try:
        logging.disable(logging.ERROR)  # open_clip logs what it raises too
        # weights_only is open_clip's default; safetensors are preferred wherever they exist.
        chosen: dict[str, Any] = {"pretrained": weights}
        tokens_of = resolved
        if folder is None and (revision is not None or name.startswith(HUB)):
            # Without a pin the branch's commit: what is checked is what is loaded.
            resolved, tokens_of, chosen = _at_commit(name, weights, revision)
        if resolved.startswith(LOCAL) and not name.startswith(LAB):
            _refuse_other_sizes(name, resolved)
        module, _, preprocess = open_clip.create_model_and_transforms(resolved, precision="fp32", **chosen)
        tokenizer = open_clip.get_tokenizer(tokens_of, **_never_code(resolved))
        module = module.to(device=device, dtype=torch.float32).eval().requires_grad_(False)
        refuse_infinite(name, module)
    except (safetensors.SafetensorError, EOFError) as error:
        raise RunFailure(f"model '{name}': its weights file is damaged: {error}") from error
    except CounterfoilError:
        raise
    except Exception as error:
        # Whatever a configuration of any content makes it raise: weights that do not fit, keys that nobody knows.
        known = known_cause(f"model '{name}'", error)
        raise known or RunFailure(f"model '{name}' could not be loaded: {one_line(error)}") from error
    finally:
        logging.disable(logged)
    return ClipModel(name, module, preprocess, tokenizer, device)


def _refuse_other_sizes(name: str, resolved: str) -> None:
    """UserError where a folder's configuration asks for more than its weights hold, or these are a packed archive."""
    import open_clip

    from counterfoil.models.trial_build import refuse_overgrown

    files = weights_in(Path(resolved.removeprefix(LOCAL)))
    for file in files:
        if file.suffix != SAFE:
            refuse_packed(file, name)
    refuse_overgrown(name, files, lambda: open_clip.create_model(resolved, load_weights=False))


def _never_code(model: str) -> dict[str, Any]:
    """For a tokenizer of transformers: none of its author's code, whatever the configuration asks for."""
    import open_clip

    text = (open_clip.get_model_config(model) or {}).get("text_cfg", {})
    return {"trust_remote_code": False} if text.get("hf_tokenizer_name") else {}


def _at_commit(name: str, weights: str | None, commit: str | None) -> tuple[str, str, dict[str, Any]]:
    """What open_clip is to load so that it reads one commit of the Hub: model, tokenizer's model and options.

    It takes no commit with a name, so it is given the files of the commit.
    """
    import json

    from huggingface_hub import snapshot_download
    from open_clip.pretrained import download_pretrained_from_hf, get_pretrained_cfg

    if name.startswith(HUB):
        repository = name.removeprefix(HUB)
        config = Path(download_pretrained_from_hf(repository, CONFIG, revision=commit))
        commit = config.parent.name
        download_pretrained_from_hf(repository, revision=commit)
        settings = json.loads(config.read_text(encoding="utf-8")).get("model_cfg", {}).get("text_cfg", {})
        if settings.get("hf_tokenizer_name") in (None, "", repository):
            snapshot_download(repository, revision=commit, allow_patterns=[*_TOKENIZER_FILES, "config.json"])
        refuse_odd_clip(name, config.parent)
        folder = f"{LOCAL}{config.parent}"
        return folder, folder if settings.get("hf_tokenizer_name") in (None, "", repository) else name, {}
    settings = get_pretrained_cfg(name, weights or "")
    repository, _, file = str(settings.get("hf_hub") or "").rpartition("/")
    if not repository:
        return name, name, {"pretrained": weights}
    path = download_pretrained_from_hf(repository, file or None, revision=commit)
    # A file has no settings of its own: those of the tag decide how images are prepared.
    prepared = {f"image_{key}": settings[key] for key in _PREPARED if settings.get(key) is not None}
    return name, name, {"pretrained": path, **prepared}


def _check_architecture(name: str, weights: str | None) -> None:
    import open_clip

    known = open_clip.list_models()
    if name not in known:
        raise UserError(f"screen.model: open_clip has no '{name}'{did_you_mean(name, known)}")
    tags = open_clip.list_pretrained_tags_by_model(name)
    if weights not in tags:
        found = f"'{weights}'" if weights else "none"
        raise UserError(
            f"screen.weights: found {found}, expected one of open_clip's tags for {name}: {', '.join(tags)}"
        )
