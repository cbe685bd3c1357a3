"""Models that Python code hands over for one run: each under a name of this process, and for as long as the run goes.

Such a name begins with `python:` and means nothing anywhere else: no recipe, command line or worker can load it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from counterfoil.errors import RunFailure, UserError
from counterfoil.models.classifiers.classifier import Classifier, ClassifierFacts
from counterfoil.models.classifiers.of_callable import CallableClassifier, Transform, classifier_of
from counterfoil.recipe.names import did_you_mean
from counterfoil.recipe.prompts import RecipeClass

PREFIX = "python:"


class HandedOver:
    """A callable with its transform. images: labelled images, named before it is asked; one tells what it takes."""

    def __init__(self, name: str, model: Any, transform: Transform | None) -> None:
        self.name, self.model, self.transform = name, model, transform
        self.images: Callable[[], Sequence[Any]] | None = None
        self._known: tuple[ClassifierFacts, CallableClassifier] | None = None

    def known(self) -> tuple[ClassifierFacts, CallableClassifier]:
        """As `classifier_of`, asked once. RunFailure where not one image can be decoded."""
        if self._known is None:
            assert self.images is not None  # of the run that holds it
            first = next(
                (
                    image
                    for part in self.images()
                    for _, one in part.images()
                    if (image := part.decoded(one)) is not None
                ),
                None,
            )
            if first is None:
                raise RunFailure(f"model {self.name!r}: not one image can be decoded to try it with")
            self._known = classifier_of(self.name, self.model, self.transform, first)
        return self._known


# What runs of this process hold just now, by name.
_HELD: dict[str, HandedOver] = {}


def describe(name: str, classes: Sequence[RecipeClass] = ()) -> ClassifierFacts:
    """Its outputs, as a first image tells them. UserError for a name that no run of this process holds."""
    return _held(name).known()[0]


def load(name: str, device: str = "cpu", classes: Sequence[RecipeClass] = ()) -> Classifier:
    """The callable as a classifier; a module on `device` until it is released. UserError as `describe`."""
    return _held(name).known()[1].placed(device)


@contextmanager
def handed_over(
    models: Any, transform: Transform | Mapping[str, Transform] | None = None
) -> Iterator[tuple[list[str], list[HandedOver]]]:
    """The names that a run calls some models by, while it holds them, and those that are no names.

    `models` is a name, several, a callable, or a mapping from names to callables and names. UserError for what is none
    of these, and for a transform without a callable.
    """
    if isinstance(models, str):
        models = [models]
    elif callable(models):
        models = {str(getattr(models, "__name__", type(models).__name__)): models}
    named = models if isinstance(models, Mapping) else {}
    called = {str(name): model for name, model in named.items() if not isinstance(model, str)}
    if transform is not None and not called:
        raise UserError("transform is given, and no callable", 'Hand one over: {"mine": model}')
    if not isinstance(models, Mapping):
        names = list(models)
        if nameless := [type(one).__name__ for one in names if not isinstance(one, str)]:
            raise UserError(
                f"models: found a {nameless[0]} in a list, expected names of models",
                'Give each callable a name: {"mine": model}',
            )
        yield names, []
        return
    given = transform if isinstance(transform, Mapping) else {}
    for name in given:
        if name not in called:
            raise UserError(f"transform: there is no callable {name!r}{did_you_mean(str(name), called)}")
    for name in called:
        if not name.isprintable() or not name.strip() or PREFIX + name in _HELD:
            raise UserError(f"model {name[:80]!r}: expected a printable name that no other run of this process holds")
    held = {
        PREFIX + name: HandedOver(
            PREFIX + name, model, given.get(name) if isinstance(transform, Mapping) else transform
        )
        for name, model in called.items()
    }
    _HELD.update(held)
    try:
        yield (
            [model if isinstance(model, str) else PREFIX + str(name) for name, model in models.items()],
            [*held.values()],
        )
    finally:
        for name in held:
            _HELD.pop(name, None)


def _held(name: str) -> HandedOver:
    if name not in _HELD:
        raise UserError(
            f"model {name!r}: a model of Python is handed over by the code that has it",
            'As in counterfoil.mine(recipe, out, target={"mine": model}, transform=prepare)',
        )
    return _HELD[name]
