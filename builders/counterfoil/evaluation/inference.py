"""Run classifiers over a dataset's images: each image is decoded once, and transformed once an input.

Models that fit in memory together share one pass. Batches are cut from the plan's order, and decoding
runs in threads one batch ahead of the models; neither changes what is computed.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from counterfoil.errors import RunFailure, UserError
from counterfoil.evaluation.predictions import Predictions

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image

    from counterfoil.evaluation.class_map import ClassMap
    from counterfoil.models.classifiers import Classifier

MOST_DECODERS = 8


def decode_image(encoded: bytes | None) -> Image | None:
    """An RGB image, or None for bytes that are no image, or one cut short."""
    from PIL import Image

    if not encoded:
        return None
    try:
        with Image.open(io.BytesIO(encoded)) as image:
            return image.convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        # What Pillow raises for damaged files; SyntaxError is its own for a broken PNG.
        return None


def prepared_batches(
    images: Iterable[bytes | None], classifiers: Sequence[Classifier], batch_size: int
) -> Iterator[tuple[np.ndarray, Mapping[str, torch.Tensor]]]:
    """(readable (b,) bool, {input key: (readable, C, H, W) tensor}) for every batch, in order."""
    transforms = {one.input_key: one.transform() for one in classifiers}
    workers = max(1, min(MOST_DECODERS, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2))

    def prepare(encoded: bytes | None) -> list[torch.Tensor] | None:
        image = decode_image(encoded)
        return None if image is None else [transform(image) for transform in transforms.values()]

    stream = iter(images)
    with ThreadPoolExecutor(workers) as pool:
        ahead: list[Future] = [pool.submit(prepare, one) for one in islice(stream, batch_size)]
        while ahead:
            current, ahead = ahead, [pool.submit(prepare, one) for one in islice(stream, batch_size)]
            yield _stacked([future.result() for future in current], list(transforms))


def _stacked(rows: list[list[torch.Tensor] | None], inputs: list[str]) -> tuple[np.ndarray, dict[str, torch.Tensor]]:
    import torch

    readable = np.array([row is not None for row in rows])
    whole = [row for row in rows if row is not None]
    return readable, {key: torch.stack([row[i] for row in whole]) for i, key in enumerate(inputs) if whole}


def logits_of(classifier: Classifier, batch: torch.Tensor, device: str) -> torch.Tensor:
    """The model's outputs, float32 on the CPU: (b, C, H, W) -> (b, num_classes)."""
    import torch

    try:
        with torch.inference_mode():
            logits = classifier.module(batch.to(device)).float().cpu()
    except torch.OutOfMemoryError as error:
        raise RunFailure(
            f"model {classifier.name!r} ran out of memory on {device} with a batch of {len(batch)}",
            "Run it again with a smaller --batch-size; finished models are kept.",
        ) from error
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:300]
        raise RunFailure(f"model {classifier.name!r} failed on {device}: {reason}") from error
    if logits.shape != (len(batch), classifier.num_classes):
        raise UserError(
            f"model {classifier.name!r} gives outputs of shape {tuple(logits.shape)} for {len(batch)} "
            f"images; expected ({len(batch)}, {classifier.num_classes})"
        )
    if not torch.isfinite(logits).all():
        raise RunFailure(f"model {classifier.name!r} gives outputs that are not finite numbers")
    return logits


def judge(logits: torch.Tensor, labels: np.ndarray, class_map: ClassMap) -> dict[str, np.ndarray]:
    """Columns of `Predictions` for a batch: (b, num_classes) logits and (b,) labels of the dataset."""
    import torch

    right = torch.zeros(len(labels), class_map.num_classes, dtype=torch.bool)
    for row, label in enumerate(labels):
        right[row, list(class_map.targets[label])] = True
    shares = logits.softmax(dim=1)
    confidence, prediction = shares.max(dim=1)
    # The argmax of the logits, not of their softmax, which rounds near ties together.
    prediction = logits.argmax(dim=1)
    top = logits.topk(class_map.top_k, dim=1).indices
    return {
        "prediction": prediction.numpy().astype(np.int32),
        "correct": right.gather(1, prediction[:, None])[:, 0].numpy(),
        "correct_top_k": right.gather(1, top).any(dim=1).numpy(),
        "confidence": confidence.numpy(),
        "true_confidence": (shares * right).sum(dim=1).numpy(),
    }


def predict(
    images: Iterable[bytes | None],
    labels: np.ndarray,
    models: Sequence[tuple[Classifier, ClassMap]],
    *,
    device: str,
    batch_size: int,
    on_batch: Callable[[int], None] = lambda done: None,
) -> list[Predictions]:
    """Every model's answers to all images in one pass: (n,) images and labels -> one Predictions a model.

    `on_batch` is told how many images are done. Raises RunFailure when a model cannot compute.
    """
    n = len(labels)
    readable = np.zeros(n, dtype=bool)
    answers = [_empty(n, readable) for _ in models]
    done = 0
    for shown, inputs in prepared_batches(images, [classifier for classifier, _ in models], batch_size):
        rows = np.arange(done, done + len(shown))[shown]
        readable[rows] = True
        for (classifier, class_map), answer in zip(models, answers, strict=True):
            if rows.size:
                logits = logits_of(classifier, inputs[classifier.input_key], device)
                for column, values in judge(logits, labels[rows], class_map).items():
                    getattr(answer, column)[rows] = values
        done += len(shown)
        on_batch(done)
    if done != n:
        raise RunFailure(f"{n} images were expected and {done} were read: the data files changed meanwhile")
    return answers


def _empty(n: int, readable: np.ndarray) -> Predictions:
    return Predictions(
        readable=readable,
        prediction=np.full(n, -1, dtype=np.int32),
        correct=np.zeros(n, dtype=bool),
        correct_top_k=np.zeros(n, dtype=bool),
        confidence=np.zeros(n, dtype=np.float32),
        true_confidence=np.zeros(n, dtype=np.float32),
    )
