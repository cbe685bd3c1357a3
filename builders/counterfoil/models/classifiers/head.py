"""Read the last layer of a classifier, check that it is the whole head, and save the model with
another head."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from counterfoil.arrays import AnyFloats, Floats32
from counterfoil.documents import document_bytes
from counterfoil.models.classifiers import of_timm
from counterfoil.models.classifiers.classifier import Classifier
from counterfoil.models.classifiers.of_python import CallableClassifier
from counterfoil.models.loading_errors import error_line
from counterfoil.models.messages import failure, refusal

if TYPE_CHECKING:
    from torch import nn

# Share of the largest sum of magnitudes. Rounding of float32 sums is far below it, and other heads
# are far above it.
TOLERANCE = 2e-5
# The files of a mended model, in the order of their removal: mended.json last, to resume a killed
# removal. A folder with any other file is never replaced.
MENDED_FILES = ("config.json", "model.safetensors", "README.md", "mended.json")
_BEFORE = "before"  # the old model, while the new one takes its place
_ROWS_AT_ONCE = 4096
_PROBES = 2


@dataclass(frozen=True, eq=False)
class LinearHead:
    """A last layer from d features to K outputs. weight: (K, d) float32. bias: (K,) float32."""

    weight: Floats32 = field(repr=False)
    bias: Floats32 = field(repr=False)

    def __post_init__(self) -> None:
        if self.weight.ndim != 2 or self.bias.shape != self.weight.shape[:1]:
            raise ValueError(
                f"a head's weight (K, d) and bias (K,): {self.weight.shape} and {self.bias.shape}"
            )

    def tensors(self) -> dict[str, Floats32]:
        return {"weight": self.weight, "bias": self.bias}

    def holding(self, tensors: Mapping[str, Floats32]) -> LinearHead:
        """Return a head with these tensors, as `tensors` of a head gives them."""
        return LinearHead(tensors["weight"], tensors["bias"])

    def logits(self, features: AnyFloats) -> Floats32:
        """Return logits (n, K) float32 of features (n, d), summed in float64."""
        logits = np.empty((len(features), len(self.bias)), dtype=np.float32)
        weight = self.weight.T.astype(np.float64)
        bias = self.bias.astype(np.float64)
        for start in range(0, len(features), _ROWS_AT_ONCE):
            rows = slice(start, start + _ROWS_AT_ONCE)
            part = features[rows].astype(np.float64)
            logits[rows] = part @ weight + bias
        return logits


def head_of(classifier: Classifier, device: str = "cpu") -> LinearHead:
    """Return a classifier's head, checked on two images of noise. Raise UserError if it is not a
    single Linear."""
    layer = _single_linear(classifier)
    weight = layer.weight.detach().cpu().float().numpy()
    bias = layer.bias.detach().cpu().float().numpy()
    head = LinearHead(weight.copy(), bias.copy())
    refuse_other_logits(classifier.name, head, *_probed(classifier, device))
    return head


def refuse_other_logits(
    model: str,
    head: LinearHead,
    features: AnyFloats,
    logits: AnyFloats,
) -> None:
    """Raise RunFailure if a head on features (n, d) does not give the model's logits (n, K), up to
    `TOLERANCE`."""
    same_numbers = features.shape[1:] == head.weight.shape[1:]
    if not same_numbers or logits.shape[1:] != head.bias.shape:
        taken = f"{head.weight.shape[1]} numbers to {len(head.bias)} outputs"
        given = f"{features.shape[-1]} numbers and {logits.shape[-1]} outputs"
        where = f"model {model!r}"
        raise failure(
            "failed-model.head",
            where,
            given,
            taken,
        )
    if not len(features):
        return
    weight = np.abs(head.weight.T).astype(np.float64)
    sizes = np.abs(features).astype(np.float64)
    magnitudes = sizes @ weight + np.abs(head.bias)
    differences = head.logits(features) - logits.astype(np.float64)
    difference = float(np.abs(differences).max())
    allowed = TOLERANCE * float(magnitudes.max())
    if not difference <= allowed:  # also true for NaN
        where = f"model {model!r}"
        raise failure(
            "unmendable-model.more",
            where,
            difference,
            allowed,
        )


def write_with_head(
    classifier: Classifier,
    head: LinearHead,
    folder: Path,
    *,
    about: Mapping[str, Any],
    card: str,
) -> str:
    """Write the classifier with another head to a timm folder for `local-dir:`. Return the sha256
    of its weights.

    `about` becomes mended.json, and `card` becomes README.md. The new folder is loaded and checked
    before it replaces the folder of an earlier mended model. Raise UserError if another folder is
    there, or if the head has another shape or numbers that are not finite. Raise RunFailure for a
    disk error or a failed check.
    """
    where = f"model {classifier.name!r}"
    if not isinstance(classifier, of_timm.TimmClassifier):
        raise refusal("unmendable-model.saved", where)
    layer = _single_linear(classifier)
    expected = tuple(layer.weight.shape)
    if expected != head.weight.shape:
        raise refusal(
            "unmendable-model.shape",
            where,
            head.weight.shape,
            expected,
        )
    if not (np.isfinite(head.weight).all() and np.isfinite(head.bias).all()):
        raise refusal("unmendable-model.finite", where)
    folder = folder.absolute()
    refuse_another_folder(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _beside(folder) as beside:
            made = beside / folder.name
            made.mkdir()
            _write_files(
                made,
                classifier,
                layer,
                head,
                about,
                card,
            )
            loaded = of_timm.load(f"local-dir:{made}")  # as a user loads it
            same_input = loaded.input_key == classifier.input_key
            if not same_input or loaded.label_names != classifier.label_names:
                raise failure("unmendable-model.prepared", where)
            refuse_other_logits(classifier.name, head, *_probed(loaded, "cpu"))
            # If a kill comes between the two, the same command makes the model again.
            if folder.exists():
                folder.rename(beside / _BEFORE)
            made.rename(folder)
    except OSError as error:
        raise failure("mended-folder.written", folder, error_line(error)) from error
    return str(loaded.sha256)


@contextlib.contextmanager
def _beside(folder: Path) -> Iterator[Path]:
    """Make a hidden folder beside a model's folder while it is written; remove such folders of
    killed runs."""
    beside = folder.with_name(f".{folder.name}.writing")
    # A killed run leaves the new folder, the one before, or both.
    left = sorted(beside.iterdir()) if beside.is_dir() else []
    if beside.is_symlink() or any(path.name not in (folder.name, _BEFORE) for path in left):
        raise refusal("mended-folder.beside", beside)
    for path in left:
        refuse_another_folder(path)
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir()
    try:
        yield beside
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _single_linear(classifier: Classifier) -> nn.Linear:
    from torch import nn

    if isinstance(classifier, CallableClassifier):
        return classifier.last_linear()
    if not isinstance(classifier, of_timm.TimmClassifier):
        where = f"model {classifier.name!r}"
        raise refusal("unmendable-model.kind", where, classifier.architecture)
    head = classifier.module.get_classifier()
    if isinstance(head, nn.Linear) and head.bias is not None:
        return head
    if isinstance(head, nn.Linear):
        reason = "it has no bias"
    elif isinstance(head, tuple | list | nn.ModuleList):
        reason = f"it has {len(head)} heads, and averages their logits"
    else:
        reason = f"it is a {type(head).__name__}"
    where = f"model {classifier.name!r}"
    raise refusal(
        "unmendable-model.head",
        where,
        classifier.architecture,
        reason=reason,
    )


def _probed(classifier: Classifier, device: str) -> tuple[Floats32, Floats32]:
    """Return features and logits of two images of noise. Models of one input size get the same
    images."""
    import torch

    size = classifier.input_size
    if isinstance(classifier, CallableClassifier):
        size = classifier.shape
    assert size is not None  # timm's models always have one
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(_PROBES, *size, generator=generator)
    features = classifier.features(noise, device)
    assert features is not None
    logits = classifier.logits(noise, device)
    return features.numpy(), logits.numpy()


def refuse_another_folder(folder: Path) -> None:
    """Raise UserError if anything except a mended model is at this path, because it must not be
    replaced."""
    if folder.is_symlink():
        reason = "it is a link"
    elif not folder.exists():
        return
    elif not folder.is_dir():
        reason = "it is a file"
    else:
        others = sorted(file.name for file in folder.iterdir() if file.name not in MENDED_FILES)
        if not others:
            return
        reason = f"it holds {', '.join(others[:3])}"
    raise refusal("mended-folder.other", folder, reason)


def remove_mended(folder: Path) -> None:
    """Remove a mended model's folder if it has a mended.json. Raise UserError if it has other files
    too."""
    if folder.is_symlink() or not (folder / "mended.json").is_file():
        return
    refuse_another_folder(folder)
    try:
        for name in MENDED_FILES:
            (folder / name).unlink(missing_ok=True)
        folder.rmdir()
    except OSError as error:
        raise failure("mended-folder.removed", folder, error_line(error)) from error


def _write_files(
    folder: Path,
    classifier: of_timm.TimmClassifier,
    layer: nn.Linear,
    head: LinearHead,
    about: Mapping[str, Any],
    card: str,
) -> None:
    import torch
    from safetensors.torch import save

    # `keep_vars` gives the parameters themselves, which are known by their identity.
    fitted = {id(layer.weight): head.weight, id(layer.bias): head.bias}
    tensors = {}
    for key, value in classifier.module.state_dict(keep_vars=True).items():
        tensor = value.detach().cpu()
        if id(value) in fitted:
            tensor = torch.from_numpy(fitted[id(value)].copy())
        if tensor.is_floating_point():
            tensor = tensor.float()
        # Each tensor is copied, because tensors that share memory cannot be saved.
        tensors[key] = tensor.clone().contiguous()
    # Python's errors name a full disk; the errors of safetensors do not.
    (folder / "model.safetensors").write_bytes(save(tensors, metadata={"format": "pt"}))
    config = of_timm.stored_config(classifier)
    for name, document in (("config.json", config), ("mended.json", dict(about))):
        (folder / name).write_bytes(document_bytes(document))
    (folder / "README.md").write_text(card, encoding="utf-8")
    for file in folder.iterdir():
        with file.open("rb") as handle:
            os.fsync(handle.fileno())
