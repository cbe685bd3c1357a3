"""Answers of classifiers to images, as columns that a cache keeps (`answer_cache.py`).

The columns come from a batch of images, or from the scores in a file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.arrays import AnyFloats, Bools, Floats, Floats32, Ints
from counterfoil.data.labelled_images import LabelledImages
from counterfoil.errors import CounterfoilError, some_of
from counterfoil.models.classifiers.classifier import Recorded
from counterfoil.models.loading_errors import error_line, known_cause
from counterfoil.models.messages import failure, refusal
from counterfoil.models.score_scale import SOME, UNKNOWN, AnyScale, confidences
from counterfoil.prediction.answer_cache import AnswerCache, Columns, answers_key
from counterfoil.prediction.asking import Batch, Model
from counterfoil.prediction.changes import ChangedPreparation, answers_name
from counterfoil.prediction.class_map import ClassMap

if TYPE_CHECKING:
    import torch

    from counterfoil.models.classifiers import Classifier


# The number of answers that are kept for each image, best first. A model with fewer outputs has
# fewer answers.
RANKED = 10


@dataclass(frozen=True)
class Predictions:
    """A model's answers to n images, in the order of the images."""

    readable: Bools
    """(n,) bool; if False, the other columns of the row mean nothing."""
    answers: NDArray[np.int32]
    """(n, k) int32, the k best outputs, best first."""
    shares: Floats32
    """(n, k) float32, the confidence in these outputs, over the outputs that an answer is chosen
    from (`ClassMap.answering`); NaN if the scale of the scores is unknown."""
    correct: Bools
    correct_top_k: Bools
    """(n,) bool, by the class map."""
    true_confidence: Floats32
    """(n,) confidence, summed over the right outputs."""
    logits: Floats | None = None
    """(n, outputs) float64, if requested; -inf at outputs that are never an answer."""
    correct_otherwise: Bools | None = None
    """(n,) bool, whether the answer is correct if it is chosen from the other set of outputs
    (`ClassMap.leads`), if there are two sets."""
    tied: Bools | None = None
    """(n,) bool, whether the two best scores are equal, if it is known."""
    tied_top_k: Bools | None = None
    """(n,) bool, whether only the order of equal scores decides `correct_top_k`, if it is known."""

    @classmethod
    def empty(
        cls,
        n: int,
        ranked: int = 1,
        outputs: int | None = None,
        both_ways: bool = False,
    ) -> Predictions:
        """Return empty answers to n images. If `outputs` is given, they include logits."""
        return cls(
            readable=np.zeros(n, dtype=bool),
            answers=np.full((n, ranked), -1, dtype=np.int32),
            shares=np.zeros((n, ranked), dtype=np.float32),
            correct=np.zeros(n, dtype=bool),
            correct_top_k=np.zeros(n, dtype=bool),
            true_confidence=np.zeros(n, dtype=np.float32),
            logits=None if outputs is None else np.zeros((n, outputs)),
            correct_otherwise=np.zeros(n, dtype=bool) if both_ways else None,
        )

    @property
    def prediction(self) -> NDArray[np.int32]:
        return self.answers[:, 0]

    @property
    def confidence(self) -> Floats32:
        return self.shares[:, 0]

    def columns(self) -> Columns:
        columns = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: values for name, values in columns.items() if values is not None}

    def fill(self, rows: Ints | Bools, columns: Mapping[str, NDArray]) -> None:
        """Set these rows of the columns. Columns that these answers do not have are ignored."""
        for name, values in self.columns().items():
            if name in columns:
                values[rows] = columns[name]


def no_answers(n: int, class_map: ClassMap, logits: bool = False) -> Predictions:
    # At most as many answers are kept as the model ranks.
    most = class_map.most_ranked or class_map.answering
    ranked = max(class_map.top_k, min(RANKED, most))
    outputs = class_map.num_classes if logits else None
    return Predictions.empty(n, ranked, outputs, class_map.class_outputs is not None)


def logits_of(classifier: Classifier, batch: torch.Tensor, device: str) -> torch.Tensor:
    """Return the model's outputs (b, num_classes), floats on the CPU. UserError for another shape
    of the outputs."""
    import torch

    where = f"model {classifier.name!r}"
    try:
        logits = classifier.logits(batch, device)
    except torch.OutOfMemoryError as error:
        raise failure("out-of-memory.batch", where, device, len(batch)) from error
    except RuntimeError as error:
        words = str(error).split()
        reason = " ".join(words)[:300]
        raise failure("failed-model.device", where, device, reason=reason) from error
    except CounterfoilError:
        raise
    # a network of libraries may raise anything for images of another size
    except Exception as error:
        known = known_cause(where, error)
        if known is not None:
            raise known from error
        shape = list(batch.shape[1:])
        reason = error_line(error)
        raise refusal("unfit-model.images", where, shape, reason=reason) from error
    expected = (len(batch), classifier.num_classes)
    if logits.shape != expected:
        raise refusal(
            "unfit-model.shape",
            where,
            tuple(logits.shape),
            expected,
            images=len(batch),
        )
    if not torch.isfinite(logits).all():
        raise failure("failed-model.infinite", where)
    return logits


def torch_softmax(logits: AnyFloats) -> Floats32:
    import torch

    return torch.from_numpy(logits).softmax(dim=1).float().numpy()


def shares_of(scale: AnyScale) -> Callable[[AnyFloats], Floats32]:
    """Return how the confidences of a model's scores are computed. `Classifier.logits` are logits
    if they can be."""
    if scale in ("sigmoids", UNKNOWN, SOME):
        return partial(confidences, scale=scale)
    return torch_softmax


def answer_columns(
    logits: AnyFloats,
    labels: Ints,
    class_map: ClassMap,
    ranked: int,
    softmax: Callable[[AnyFloats], Floats32] = torch_softmax,
) -> dict[str, np.ndarray]:
    """Return the columns of `Predictions` for a batch of scores (b, num_classes) and labels (b,).

    softmax: gives the confidence of each score.
    """
    otherwise = {}
    if class_map.class_outputs is not None:
        no_class = np.ones(class_map.num_classes, dtype=bool)
        no_class[list(class_map.class_outputs)] = False
        among_classes = np.where(no_class, logits.dtype.type(-np.inf), logits)
        # The answers that lead come from one set of outputs, these from the other set.
        other_logits = among_classes
        if class_map.leads == "classes":
            other_logits = logits
            logits = among_classes
        whole_map = replace(class_map, class_outputs=None)
        columns = answer_columns(
            other_logits,
            labels,
            whole_map,
            1,
            softmax,
        )
        otherwise = {"correct_otherwise": columns["correct"]}
    right = np.zeros((len(labels), class_map.num_classes), dtype=bool)
    for row, label in enumerate(labels):
        right[row, list(class_map.targets[label])] = True
    shares = softmax(logits)
    # Sort by scores, because softmax may round different values to the same. Equal logits keep the
    # order of outputs.
    best = np.argsort(-logits, axis=1, kind="stable")[:, :ranked]
    hits = np.take_along_axis(right, best, axis=1)
    first_hits = hits[:, : class_map.top_k]
    correct_top_k = first_hits.any(axis=1)
    right_shares = shares * right
    ranked_scores = np.take_along_axis(logits, best, axis=1)
    _, kept = best.shape
    last = min(class_map.top_k, kept) - 1
    of_right = np.where(right, logits, -np.inf)
    highest = of_right.max(axis=1)
    at_last = highest == ranked_scores[:, last]
    return {
        "answers": best.astype(np.int32),
        "shares": np.take_along_axis(shares, best, axis=1),
        "correct": hits[:, 0],
        "correct_top_k": np.asarray(correct_top_k),
        "true_confidence": right_shares.sum(axis=1),
        "logits": logits,
        "tied": _equals_next(ranked_scores, 0),
        "tied_top_k": at_last & _equals_next(ranked_scores, last),
        **otherwise,
    }


def _equals_next(ranked_scores: AnyFloats, index: int) -> Bools:
    """Return whether the score at this index equals the next one, (n,)."""
    count, scores = ranked_scores.shape
    if scores <= index + 1:
        return np.zeros(count, dtype=bool)
    equal = ranked_scores[:, index] == ranked_scores[:, index + 1]
    return np.asarray(equal)


@dataclass
class MappedClassifier(Model):
    """A classifier in a pass, whose answers are the columns of `Predictions`."""

    classifier: Classifier
    class_map: ClassMap
    device: str
    logits: bool = False
    prepared: ChangedPreparation | None = None
    """How its images are prepared, if not by its own transform."""

    def __post_init__(self) -> None:
        classifier = self.classifier
        self.name = classifier.name
        self.key = classifier.sha256
        self.input_key = classifier.input_key
        self.answers_name = self.name
        if self.prepared is not None:
            self.answers_name = answers_name(self.name, self.prepared.change)
            self.of_files = True
            self.input_key += f" {self.prepared.key}"

    def cache(self, folder: Path, images: LabelledImages) -> AnswerCache:
        """Return the entry in `folder` of the answers to all images."""
        class_map = self.class_map
        empty = no_answers(0, class_map, self.logits)
        form = _form(empty.columns())
        input_key = self.input_key
        if self.prepared is not None and images.seeds is not None:
            input_key += hashlib.sha256(images.seeds.tobytes()).hexdigest()
        key = answers_key(
            self.device,
            data=images.content,
            weights=self.key,
            input=input_key,
            scale=self.classifier.score_scale,
            targets=class_map.targets,
            top_k=class_map.top_k,
            leads=class_map.leads,
            form=form,
        )

        def fits(columns: Columns, rows: range) -> bool:
            return _form(columns) == form and len(columns["readable"]) == len(rows)

        each_batch = self.classifier.served
        return AnswerCache(
            folder,
            self.name,
            key,
            len(images),
            fits,
            each_batch,
        )

    def transform(self) -> Callable[..., Any]:
        usual = self.classifier.transform()
        if self.prepared is None:
            return usual
        return self.prepared.transform(self.name, usual)

    def answers(self, batch: Batch) -> Columns:
        answers = no_answers(len(batch.at), self.class_map, self.logits)
        readable = batch.readable
        if batch.inputs is not None:
            logits = logits_of(self.classifier, batch.inputs, self.device)
            columns = answer_columns(
                logits.numpy(),
                batch.labels[batch.at[readable]],
                self.class_map,
                ranked=answers.answers.shape[1],
                softmax=shares_of(self.classifier.score_scale),
            )
            answers.fill(readable, columns)
            answers.readable[:] = readable
        return answers.columns()


def _form(columns: Columns) -> dict[str, str]:
    return {name: f"{values.dtype} {values.shape[1:]}" for name, values in columns.items()}


_MOST_SHOWN = 5


def take_over(
    images: LabelledImages,
    name: str,
    recorded: Recorded,
    class_map: ClassMap,
    scale: AnyScale,
) -> Predictions:
    """Make predictions from a classifier's recorded scores. Raises the same errors as
    `each_once`."""
    answers = no_answers(len(images), class_map)
    tied = np.zeros(len(images), dtype=bool)
    tied_top_k = np.zeros(len(images), dtype=bool)
    answers = replace(answers, tied=tied, tied_top_k=tied_top_k)
    softmax = partial(confidences, scale=scale)
    ranked = answers.answers.shape[1]
    for at, scores in each_once(images, name, recorded, class_map.num_classes):
        labels = images.labels[at]
        columns = answer_columns(
            scores,
            labels,
            class_map,
            ranked,
            softmax,
        )
        answers.fill(at, columns)
        answers.readable[at] = True
    return answers


def each_once(
    images: LabelledImages,
    name: str,
    recorded: Recorded,
    outputs: int,
) -> Recorded:
    """Yield the recorded scores unchanged. UserError unless every readable image has exactly one
    answer."""
    where = f"model {name!r}"
    times = np.zeros(len(images), dtype=np.int64)
    for at, scores in recorded:
        if scores.shape[1] != outputs:
            raise failure("failed-model.file", where)
        np.add.at(times, at, 1)
        if times.max() > 1:
            twice = images.keys[times.argmax()]
            [shown] = images.shown([twice])
            raise refusal("unmatched-images.twice", where, shown)
        yield at, scores
    unanswered = np.flatnonzero(times == 0)
    missing = frozenset(images.keys[row] for row in unanswered)
    if not missing:
        return
    unseen = []
    for key, image in images.images(missing):
        if images.decoded(image) is not None:
            unseen.append(key)
    if unseen:
        named = images.shown(unseen[:_MOST_SHOWN])
        shown = some_of(named, _MOST_SHOWN, count=len(unseen))
        raise refusal(
            "unmatched-images.missing",
            where,
            len(unseen),
            len(images),
            names=shown,
        )
