"""The last layer of a classifier: taken out as numbers, proved to be the whole head, and put back into a folder.

Only a head that is one Linear on one vector an image can be fitted again alone. Whatever else an architecture ends in
(two heads, a convolution, a normalisation of its own) is refused by name before anything is computed.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.errors import RunFailure, UserError
from counterfoil.models.classifiers import of_timm
from counterfoil.models.classifiers.classifier import Classifier
from counterfoil.models.classifiers.of_python import CallableClassifier
from counterfoil.models.classifiers.of_timm import stored_config
from counterfoil.models.loading_errors import one_line

if TYPE_CHECKING:
    from torch import nn

# float32 sums of thousands of products differ by far less than this share of the largest sum of their magnitudes, and
# a head that does more than one product differs by far more.
TOLERANCE = 2e-5
# What a folder with a mended head holds, and nothing else: only such a folder is written over.
MENDED_FILES = ("config.json", "model.safetensors", "mended.json", "README.md")
_BEFORE = "before"  # the name of a model that another takes the place of, until that is done
_ROWS_AT_ONCE = 4096
_PROBES = 2
_CAN_BE = "Only models whose head is a single Linear can be mended: timm models and your own torch modules."


@dataclass(frozen=True, eq=False)
class LinearHead:
    """The last layer of K outputs on d numbers. weight: (K, d) float32. bias: (K,) float32."""

    weight: NDArray[np.float32] = field(repr=False)
    bias: NDArray[np.float32] = field(repr=False)

    def __post_init__(self) -> None:
        if self.weight.ndim != 2 or self.bias.shape != self.weight.shape[:1]:
            raise ValueError(f"a head's weight (K, d) and bias (K,): {self.weight.shape} and {self.bias.shape}")

    def logits(self, features: NDArray[np.floating]) -> NDArray[np.float32]:
        """(n, K) float32 of features (n, d), each summed in float64."""
        found = np.empty((len(features), len(self.bias)), dtype=np.float32)
        weight, bias = self.weight.T.astype(np.float64), self.bias.astype(np.float64)
        for start in range(0, len(features), _ROWS_AT_ONCE):
            part = features[start : start + _ROWS_AT_ONCE].astype(np.float64)
            found[start : start + _ROWS_AT_ONCE] = part @ weight + bias
        return found


def head_of(classifier: Classifier, device: str = "cpu") -> LinearHead:
    """The head of a loaded classifier, proved on two images of noise.

    UserError naming model and architecture where the head is no single Linear with a bias. RunFailure where features
    and head do not give the model's own logits.
    """
    layer = _single_linear(classifier)
    head = LinearHead(*(one.detach().cpu().float().numpy().copy() for one in (layer.weight, layer.bias)))
    refuse_other_logits(classifier.name, head, *_probed(classifier, device))
    return head


def refuse_other_logits(
    model: str, head: LinearHead, features: NDArray[np.floating], logits: NDArray[np.floating]
) -> None:
    """RunFailure where a head on features (n, d) does not give logits (n, K), which the model gave of the same images.

    They may differ by `TOLERANCE` of the largest sum of magnitudes that a logit is made of.
    """
    if features.shape[1:] != head.weight.shape[1:] or logits.shape[1:] != head.bias.shape:
        raise RunFailure(
            f"model {model!r}: its head takes {head.weight.shape[1]} numbers to {len(head.bias)} outputs, and the model"
            f" gave {features.shape[-1]} numbers and {logits.shape[-1]} outputs"
        )
    if not len(features):
        return
    made_of = np.abs(features).astype(np.float64) @ np.abs(head.weight.T).astype(np.float64) + np.abs(head.bias)
    apart = float(np.abs(head.logits(features) - logits.astype(np.float64)).max())
    allowed = TOLERANCE * float(made_of.max())
    if not apart <= allowed:  # NaN is not
        raise RunFailure(
            f"model {model!r}: its last layer does not reproduce its logits from its features: they differ by"
            f" {apart:.3g}, and rounding explains at most {allowed:.3g}",
            f"The model computes something after its last layer. {_CAN_BE}",
        )


def write_with_head(
    classifier: Classifier, head: LinearHead, folder: Path, *, about: Mapping[str, Any], card: str
) -> str:
    """Write a timm folder that `local-dir:` opens: the classifier with another head. Returns the sha256 of its weights.

    All tensors are float32, `about` becomes mended.json and `card` README.md. The classifier is left as it is. The
    folder is loaded again before it takes its place, whole or not at all; one that is there already is replaced where
    it holds nothing but such files. UserError for another folder, a head of another shape, or one that is not finite;
    RunFailure where the disk refuses, or what was loaded does not give the new head's logits.
    """
    if not isinstance(classifier, of_timm.TimmClassifier):
        raise UserError(f"model {classifier.name!r}: only timm models can be saved to a folder")
    layer = _single_linear(classifier)
    if tuple(layer.weight.shape) != head.weight.shape:
        raise UserError(
            f"model {classifier.name!r}: a head of {head.weight.shape} does not fit one of {tuple(layer.weight.shape)}"
        )
    if not (np.isfinite(head.weight).all() and np.isfinite(head.bias).all()):
        raise UserError(f"model {classifier.name!r}: the numbers of its head are not all finite")
    folder = folder.absolute()
    refuse_another_folder(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _beside(folder) as beside:
            made = beside / folder.name
            made.mkdir()
            _write_files(made, classifier, layer, head, about, card)
            sha256 = _proved(made, classifier, head)
            if folder.exists():
                folder.rename(beside / _BEFORE)
            made.rename(folder)
    except OSError as error:
        raise RunFailure(f"{folder} cannot be written: {one_line(error)}") from error
    return sha256


@contextlib.contextmanager
def _beside(folder: Path) -> Iterator[Path]:
    """A hidden folder beside a model's, for as long as this is written; what a killed run left there goes first."""
    beside = folder.with_name(f".{folder.name}.writing")
    if beside.is_symlink() or (beside.exists() and any(one.name not in (folder.name, _BEFORE) for one in _in(beside))):
        raise UserError(f"{beside} exists and is not a folder with a model", "Remove it.")
    for one in _in(beside):
        refuse_another_folder(one)
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir()
    try:
        yield beside
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _in(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _single_linear(classifier: Classifier) -> nn.Linear:
    from torch import nn

    if isinstance(classifier, CallableClassifier):
        return classifier.last_linear()
    if not isinstance(classifier, of_timm.TimmClassifier):
        raise UserError(f"model {classifier.name!r}: the head of {classifier.architecture} cannot be refitted", _CAN_BE)
    if classifier.module is None:
        raise ValueError(f"{classifier.name} was released")
    found = classifier.module.get_classifier()
    if isinstance(found, nn.Linear) and found.bias is not None:
        return found
    raise UserError(
        f"model {classifier.name!r}: the head of {classifier.architecture} is not a single Linear: {_in_words(found)}",
        _CAN_BE,
    )


def _in_words(found: Any) -> str:
    from torch import nn

    if isinstance(found, nn.Linear):
        return "it has no bias"
    if isinstance(found, tuple | list | nn.ModuleList):
        return f"it has {len(found)} heads, and averages their logits"
    return f"it is a {type(found).__name__}"


def _probed(classifier: Classifier, device: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Features and logits of two images of noise, the same ones for every model of one input size."""
    import torch

    size = classifier.shape if isinstance(classifier, CallableClassifier) else classifier.input_size
    assert size is not None  # timm's always have one
    noise = torch.randn(_PROBES, *size, generator=torch.Generator().manual_seed(0))
    features = classifier.features(noise, device)
    assert features is not None
    return features.numpy(), classifier.logits(noise, device).numpy()


def refuse_another_folder(folder: Path) -> None:
    """UserError for what is there and is no folder of a mended model: `write_with_head` would not replace it."""
    if not folder.exists() and not folder.is_symlink():
        return
    if folder.is_symlink() or not folder.is_dir():
        what = "it is a link" if folder.is_symlink() else "it is a file"
    else:
        strange = sorted(file.name for file in folder.iterdir() if file.name not in MENDED_FILES)
        if not strange:
            return
        what = f"it holds {', '.join(strange[:3])}"
    raise UserError(f"{folder} is not the folder of a mended model: {what}", "Name a new folder, or remove this one.")


def remove_mended(folder: Path) -> None:
    """Remove the folder of a mended model that an earlier run left.

    Without a mended.json it is none, and stays. UserError for one that holds anything else, RunFailure where the disk
    refuses.
    """
    if folder.is_symlink() or not (folder / "mended.json").is_file():
        return
    refuse_another_folder(folder)
    try:
        for name in sorted(MENDED_FILES, key="mended.json".__eq__):  # what says that it is one goes last
            (folder / name).unlink(missing_ok=True)
        folder.rmdir()
    except OSError as error:
        raise RunFailure(f"{folder} cannot be removed: {one_line(error)}") from error


def _write_files(
    folder: Path, classifier: Classifier, layer: nn.Linear, head: LinearHead, about: Mapping[str, Any], card: str
) -> None:
    import torch
    from safetensors.torch import save

    assert isinstance(classifier, of_timm.TimmClassifier)
    fitted = {id(layer.weight): head.weight, id(layer.bias): head.bias}
    tensors: dict[str, torch.Tensor] = {}
    for key, value in classifier.module.state_dict(keep_vars=True).items():
        one = torch.from_numpy(fitted[id(value)].copy()) if id(value) in fitted else value.detach().cpu()
        # A copy each: tensors that share memory cannot be saved.
        tensors[key] = (one.float() if one.is_floating_point() else one).clone().contiguous()
    # Written by Python, whose errors tell a full disk from a fault.
    (folder / "model.safetensors").write_bytes(save(tensors, metadata={"format": "pt"}))
    config = stored_config(
        classifier.architecture,
        classifier.num_classes,
        classifier.label_names,
        classifier.module.pretrained_cfg,
        classifier.model_args,
    )
    for name, document in (("config.json", config), ("mended.json", dict(about))):
        text = json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
        (folder / name).write_text(text + "\n", encoding="utf-8")
    (folder / "README.md").write_text(card, encoding="utf-8")
    for file in folder.iterdir():
        with file.open("rb") as handle:
            os.fsync(handle.fileno())


def _proved(folder: Path, classifier: Classifier, head: LinearHead) -> str:
    """The sha256 of what a folder holds, loaded as anybody loads it. RunFailure where it answers otherwise."""
    loaded = of_timm.load(f"local-dir:{folder}")
    if loaded.input_key != classifier.input_key or loaded.label_names != classifier.label_names:
        raise RunFailure(
            f"model {classifier.name!r}: the saved model would prepare images differently or name other outputs"
        )
    refuse_other_logits(classifier.name, head, *_probed(loaded, "cpu"))
    return str(loaded.sha256)
