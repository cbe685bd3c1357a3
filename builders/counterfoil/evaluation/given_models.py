"""Models that Python code hands over, each under a name: `evaluate(dataset, {"mine": model}, transform=…)`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from counterfoil.errors import CounterfoilError, RunFailure, UserError, raise_together
from counterfoil.models.classifiers import Classifier, ClassifierFacts, describe_classifier, load_classifier
from counterfoil.models.classifiers.of_python import Transform, classifier_of
from counterfoil.recipe.names import did_you_mean

if TYPE_CHECKING:
    from counterfoil.recipe import RecipeClass
    from counterfoil.sources import LabelledImages


@dataclass(frozen=True)
class GivenModel:
    """A model under a name that its person chose: what it says of itself, and how it is loaded."""

    facts: ClassifierFacts
    load: Callable[[], Classifier]


def given_models(
    models: Any,
    transform: Transform | Mapping[str, Transform] | None,
    images: LabelledImages,
    classes: Sequence[RecipeClass],
) -> dict[str, GivenModel]:
    """Name → model of a mapping from names to callables, or to names of models; nothing where `models` is no mapping.

    `transform` prepares an image for every callable, or is a mapping by their names. Raises UserError, or RunFailure
    where a callable fails on a first image, with all that is wrong.
    """
    if not isinstance(models, Mapping):
        if transform is not None:
            raise UserError("transform is given, and no callable", 'Give one: evaluate(dataset, {"mine": model}, …)')
        return {}
    errors: list[CounterfoilError] = []
    called = [name for name, model in models.items() if not isinstance(model, str)]
    for name in transform if isinstance(transform, Mapping) else ():
        if name not in called:
            errors.append(UserError(f"transform: there is no callable {name!r}{did_you_mean(str(name), called)}"))
    found: dict[str, GivenModel] = {}
    for name, model in models.items():
        own = transform.get(name) if isinstance(transform, Mapping) else transform
        try:
            found[name] = _given(name, model, own, images, classes)
        except CounterfoilError as error:
            errors.append(error)
    raise_together(errors)
    return found


def _given(
    name: Any, model: Any, transform: Transform | None, images: LabelledImages, classes: Sequence[RecipeClass]
) -> GivenModel:
    if not isinstance(name, str) or not name.isprintable() or not name.strip():
        raise UserError(f"model {str(name)[:80]!r}: expected a printable text as its name")
    if isinstance(model, str):
        facts = replace(describe_classifier(model, classes), name=name)
        return GivenModel(facts, lambda: replace(load_classifier(model, classes=classes), name=name))
    first = next((image for _, one in images.images() if (image := images.decoded(one)) is not None), None)
    if first is None:
        raise RunFailure(f"{images.name}: not one image can be decoded")
    facts, classifier = classifier_of(name, model, transform, first)
    return GivenModel(facts, partial(_same, classifier))


def _same(classifier: Classifier) -> Classifier:
    return classifier
