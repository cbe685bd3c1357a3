"""What gives the features that distances are measured in: a recipe's CLIP model, or a classifier before its last layer.

`named_features` refuses a name before anything long begins; `load_features` loads what it stands for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from counterfoil.embedding import Embedder, classifier_embedder, clip_embedder
from counterfoil.errors import CounterfoilError, UserError, raise_together
from counterfoil.evaluation.subject import Subject
from counterfoil.models.classifiers import describe_classifier, load_classifier
from counterfoil.models.clip import load_clip, pin_clip
from counterfoil.models.names import Pin, local_folder

# The CLIP model that the recipe screens with.
CLIP = "clip"
_OPEN_CLIP = "open_clip:"
_PREDICTIONS = "predictions:"


@dataclass(frozen=True)
class FeatureModel:
    """`embedder` gives the features of one model; `pin` tells which it was. scaled: whether they are unit vectors."""

    name: str
    pin: str
    embedder: Embedder
    scaled: bool


def named_features(names: str | Sequence[str] | None, subject: Subject) -> tuple[str, ...]:
    """The names, each once. UserError, collected, for those that can give no features, before any weight is loaded."""
    wanted = tuple(dict.fromkeys([names] if isinstance(names, str) else names or ()))
    problems: list[CounterfoilError] = []
    for name in wanted:
        try:
            _refuse_unfit(name, subject)
        except CounterfoilError as error:
            told = [f"distances: {problem}" for problem in error.problems]
            problems.append(type(error)(told, error.hint))
    raise_together(problems)
    return wanted


def _refuse_unfit(name: str, subject: Subject) -> None:
    if name == CLIP:
        if subject.recipe is None:
            raise UserError(
                f"'{CLIP}' is the model that a recipe screens with, and there is no recipe",
                "Name one (--recipe), or a model: --distances open_clip:ViT-B-32/laion2b_s34b_b79k",
            )
        if subject.recipe.screen.model is None:
            raise UserError(
                f"'{CLIP}' is the model that a recipe screens with, and this one screens nothing",
                "Name a model: --distances open_clip:ViT-B-32/laion2b_s34b_b79k",
            )
        local_folder(subject.recipe.screen.model)
    elif name.startswith(_PREDICTIONS):
        raise UserError(f"model {name!r}: a file of predictions looks at no image, so it has no features")
    else:
        describe_classifier(name, subject.classes)


def load_features(name: str, subject: Subject, device: str) -> FeatureModel:
    """The model that a name stands for, on `device`. A CLIP model of the Hub is the commit that the dataset pins."""
    if name != CLIP:
        classifier = load_classifier(name, device, subject.classes)
        embedder = classifier_embedder(classifier, device)
        return FeatureModel(name, f"sha256 {classifier.sha256}", embedder, scaled=name.startswith(_OPEN_CLIP))
    assert subject.recipe is not None  # `named_features` asked
    screen = subject.recipe.screen
    pinned = (subject.pins.get("models") or {}).get("screen") or {}
    if pinned.get("name") and pinned.get("revision"):
        pin = Pin(pinned["name"], pinned["revision"], pinned.get("sha256"), pinned.get("license"))
    else:
        pin = pin_clip(screen.clip, screen.weights)
    clip = load_clip(screen.clip, screen.weights, device, revision=pin.revision)
    told = f"commit {pin.revision}" if pin.revision else f"sha256 {pin.sha256}" if pin.sha256 else "not pinned"
    return FeatureModel(pin.name, told, clip_embedder(clip, pin, screen.weights), scaled=True)
