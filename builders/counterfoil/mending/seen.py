"""What one model makes of the images of a run: its head, and the features that the head takes, kept in the cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from counterfoil.embedding import Embedder, classifier_embedder, embed
from counterfoil.errors import CounterfoilError, RunFailure, UserError, raise_together
from counterfoil.mending.fitting import Lesson
from counterfoil.mending.opening import MendSource, target_of
from counterfoil.mining.audited import Audited, audit_target, class_map_of
from counterfoil.models.classifiers import Classifier, load_classifier
from counterfoil.models.classifiers.head import LinearHead, head_of
from counterfoil.models.clip import ClipModel
from counterfoil.models.mended import mended_of
from counterfoil.prediction.class_map import ClassMap
from counterfoil.progress import renamed
from counterfoil.sources import LabelledImages
from counterfoil.user_cache import user_cache

# Answers that differ between the model and its head on kept features, by no more than rounding explains.
_TIE = 1e-3


@dataclass(frozen=True)
class JudgedRows:
    """n rows to judge heads on. features: (n, d) float32. labels: (n,). units: (n,), equal where rows share one."""

    features: NDArray[np.float32]
    labels: NDArray[np.int64]
    units: NDArray[np.int64]


@dataclass(frozen=True)
class SeenModel:
    """A model, still loaded, and its audit: `audited` are all rows that `Audited` has, in its order."""

    classifier: Classifier
    head: LinearHead
    class_map: ClassMap
    embedder: Embedder
    audit: Audited
    clip: ClipModel
    audited: JudgedRows

    def allowed(self) -> NDArray[np.bool_]:
        """(classes, outputs): which answers are right."""
        found = np.zeros((len(self.class_map.targets), self.class_map.num_classes), dtype=bool)
        for label, outputs in enumerate(self.class_map.targets):
            found[label, list(outputs)] = True
        return found

    def lesson(
        self, features: NDArray[np.float32], labels: NDArray[np.int64], weights: NDArray[np.floating] | None = None
    ) -> Lesson:
        """What a head learns of some rows: of a class with several outputs, the one that the model itself prefers."""
        logits = np.where(self.allowed()[labels], self.head.logits(features), -np.inf)
        return Lesson(features, logits.argmax(axis=1), weights)


def refuse_unmendable(models: Sequence[str], source: MendSource) -> None:
    """UserError, before anything long begins, for models whose classes do not fit or whose head is no single Linear."""
    if not models:
        raise UserError("no model to mend: --model is missing", "Name one: --model lab:resnet10t")
    found: list[CounterfoilError] = []
    for name in models:
        try:
            class_map_of(source.recipe, name)
            before = mended_of(name)
            if before is not None:
                raise UserError(
                    f"model {name!r} was mended before: what it learned from then may be among what would judge it now",
                    f"Mend the model that it was made from, with all datasets at once: {before.model}.",
                )
            classifier = load_classifier(name, classes=source.recipe.classes)
            head_of(classifier)
            if classifier.sha256 is None:
                raise UserError(f"model {name!r}: what it computes is not known, so nothing of it can be mended")
        except CounterfoilError as error:
            found.append(error)
    raise_together(found)


def see_model(name: str, source: MendSource, device: str) -> SeenModel:
    """Audit a model as mining does, and see the audited rows as its head does. Raises as `audit_target`."""
    audits, clip, _ = audit_target(source.recipe, target_of(source.mine, name), device)
    audit = audits[0]
    classifier = load_classifier(name, device, classes=source.recipe.classes)
    head = head_of(classifier, device)
    embedder = classifier_embedder(classifier, device)
    parts = []
    for part in audit.parts:
        parts.append(features_through(part, embedder))
    features = np.concatenate(parts)[audit.rows]
    refuse_infinite(name, features, ", ".join(part.name for part in audit.parts))
    seen = SeenModel(
        classifier, head, audit.target.class_map, embedder, audit, clip, JudgedRows(features, audit.labels, audit.units)
    )
    _refuse_other_answers(seen)
    return seen


def features_through(images: LabelledImages, embedder: Embedder) -> NDArray[np.float32]:
    """(n, d) float32 of n images, NaN for what is no image, from the user's cache where they are known."""
    with renamed(f"{embedder.name}: {images.name}"):
        return np.asarray(embed(images, embedder, user_cache() / "embeddings", precision="float32"))


def rows_through(
    images: LabelledImages, pixels: Sequence[str | None], embedder: Embedder
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Rows of images that can be decoded, and their features. RunFailure where there is none, or one is not finite."""
    features = features_through(images, embedder)
    rows = np.flatnonzero([digest is not None for digest in pixels])
    if not len(rows):
        raise RunFailure(f"{images.name}: not one image can be decoded")
    refuse_infinite(embedder.name, features[rows], images.name)
    return rows, features[rows]


def refuse_infinite(model: str, features: NDArray[np.floating], images: str) -> None:
    """RunFailure for features of decoded images that are no numbers."""
    wrong = int((~np.isfinite(features).all(axis=1)).sum())
    if wrong:
        raise RunFailure(
            f"model {model!r}: the features of {wrong:,} of {len(features):,} images of {images} are not"
            " finite numbers",
            "Its weights may be damaged, or overflow on this device; another one may do: --device cpu",
        )


def _refuse_other_answers(seen: SeenModel) -> None:
    """RunFailure where the head on these features answers otherwise than the model did, beyond ties."""
    logits = seen.head.logits(seen.audited.features)
    given = seen.audit.target.predictions.prediction[seen.audit.rows]
    best = logits.max(axis=1)
    behind = best - logits[np.arange(len(logits)), given]
    other = int((behind > _TIE * np.maximum(1.0, np.abs(best))).sum())
    if other:
        raise RunFailure(
            f"model {seen.classifier.name!r}: its last layer on its features answers {other:,} of {len(logits):,}"
            " audited images otherwise than the model itself",
            "Does it do more after its last layer? It cannot be mended by that layer alone.",
        )
