"""Load classifiers of any kind by name. A kind is a file and a line in `CLASSIFIER_KINDS`.

The file's `describe` reads a model's outputs from its configuration, so that a run over many models
reports every wrong name before it loads any weights. The file's `load` loads the weights.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

from counterfoil.models.classifiers import (
    of_chat,
    of_onnx,
    of_open_clip,
    of_predictions,
    of_python,
    of_timm,
    of_transformers,
)
from counterfoil.models.classifiers.classifier import Classifier, ClassifierFacts
from counterfoil.models.messages import refusal
from counterfoil.models.names import meant_kind, refuse_elsewhere
from counterfoil.recipe.names import PYTHON
from counterfoil.recipe.prompts import RecipeClass
from counterfoil.registry import Registry, with_functions


class ClassifierKind(Protocol):
    """The module of a kind. `classes` are the classes of the dataset, because the answers of some
    kinds need them."""

    def describe(self, name: str, classes: Sequence[RecipeClass]) -> ClassifierFacts: ...

    def load(
        self,
        name: str,
        device: str,
        classes: Sequence[RecipeClass],
    ) -> Classifier: ...


# Maps the prefix of a name, before the colon, to its kind. A name without a prefix is timm's.
CLASSIFIER_KINDS: Registry[ClassifierKind] = Registry(
    "counterfoil.classifiers",
    {
        "": of_timm,
        "lab": of_timm,
        "local-dir": of_timm,
        "hf-hub": of_timm,
        "transformers": of_transformers,
        "open_clip": of_open_clip,
        "onnx": of_onnx,
        "predictions": of_predictions,
        "chat": of_chat,
        "python": of_python,
    },
    with_functions("describe", "load"),
)
_PREFIX = re.compile(r"[A-Za-z][\w-]*:")


def describe_classifier(name: str, classes: Sequence[RecipeClass] = ()) -> ClassifierFacts:
    """Read the architecture and outputs of a classifier, without its weights. Raise UserError with
    all problems."""
    return _kind_of(name).describe(name, classes)


def load_classifier(
    name: str,
    device: str = "cpu",
    classes: Sequence[RecipeClass] = (),
) -> Classifier:
    """Load a trained classifier on `device`. Raise UserError if it is invalid, RunFailure if it is
    unavailable."""
    return _kind_of(name).load(name, device, classes)


def _kind_of(name: str) -> ClassifierKind:
    refuse_elsewhere(name, "model")
    match = _PREFIX.match(name)
    prefix = match[0].removesuffix(":") if match else ""
    if prefix not in CLASSIFIER_KINDS:
        # people do not write these
        kinds = [kind for kind in CLASSIFIER_KINDS if f"{kind}:" not in (":", PYTHON)]
        known = [f"{kind}:" for kind in kinds]
        where = f"model {name!r}"
        hint = meant_kind(prefix, kinds)
        raise refusal("unknown-model.classifier", where, prefix, known, hint=hint)
    return CLASSIFIER_KINDS[prefix]
