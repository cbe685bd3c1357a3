"""Use any Python callable that takes a batch and returns scores as a classifier.

A torch module gets a tensor on the run's device; any other callable gets a numpy array. The names
of outputs come from an attribute `label_names`, else from attributes of transformers and timm.
Because code may change, answers are used again only by a run for which the user gives the same
version. Names begin with `python:` and exist for one run. Only a `python:package.module:function`
that the user names is imported, never one from a recipe or a dataset.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np

from counterfoil.arrays import Floats
from counterfoil.errors import CounterfoilError
from counterfoil.models.classifiers.classifier import (
    Classifier,
    ClassifierFacts,
    far_apart,
    shortened,
)
from counterfoil.models.loading_errors import error_line
from counterfoil.models.messages import failure, refusal
from counterfoil.models.names import usable_name
from counterfoil.models.score_scale import as_logits, network_scale
from counterfoil.models.weights_files import weights_sha256
from counterfoil.recipe.names import PYTHON
from counterfoil.recipe.prompts import RecipeClass

if TYPE_CHECKING:
    import torch
    from torch import nn

Transform = Callable[[Any], Any]


@dataclass(frozen=True, kw_only=True)
class CallableClassifier(Classifier):
    """A callable with the transform that prepares its images."""

    model: Callable[[Any], Any]
    prepare: Transform
    shape: tuple[int, ...] = ()
    """The shape of a prepared image; empty before the first image."""
    home: str | None
    """The device to which the module returns after a run. None for other callables, and for modules
    on several devices."""

    @property
    def largest_side(self) -> int | None:
        # Without a transform, an input has the size of its image.
        if self.prepare is _as_float or len(self.shape) != 3:
            return super().largest_side
        return max(self.shape[1:])

    def transform(self) -> Callable[[Any], torch.Tensor]:
        import torch

        def transformed(image: Any) -> torch.Tensor:
            try:
                prepared = self.prepare(image)
                if isinstance(prepared, torch.Tensor):
                    return prepared.detach()
                array = np.asarray(prepared)
                if array.dtype == object:
                    given = type(prepared).__name__
                    where = f"model {self.name!r}"
                    raise refusal("invalid-callable.array", where, given)
                return torch.from_numpy(np.ascontiguousarray(array))
            except CounterfoilError:
                raise
            except (Exception, SystemExit) as error:  # the user's own code
                reason = _error_line(error)
                where = f"model {self.name!r}"
                raise refusal("invalid-callable.transform", where, reason) from error

        return transformed

    def stages(self) -> Any:
        return self.prepare

    def logits(self, batch: torch.Tensor, device: str) -> torch.Tensor:
        placed = None if self.home is None else device
        scores = _scores_of(self.name, self.model, batch, placed)
        return as_logits(scores, self.score_scale)

    def features(self, batch: torch.Tensor, device: str) -> torch.Tensor:
        """Return the inputs of `last_linear`. Raise RunFailure if this layer is not called exactly
        once."""
        seen: list[torch.Tensor] = []
        hook = self.last_linear().register_forward_pre_hook(
            lambda layer, given: seen.append(given[0].detach())
        )
        try:
            self.logits(batch, device)
        finally:
            hook.remove()
        if len(seen) != 1 or seen[0].ndim != 2:
            where = f"model {self.name!r}"
            raise failure("unmendable-model.calls", where, len(seen))
        return seen[0].float().cpu()

    def last_linear(self) -> nn.Linear:
        """Return the last Linear whose outputs are all the module's outputs. Raise UserError if
        there is none."""
        from torch import nn

        module = _as_module(self.model)
        if module is None:
            where = f"model {self.name!r}"
            raise refusal("unmendable-model.object", where, type(self.model).__name__)
        last = None
        for layer in module.modules():
            if isinstance(layer, nn.Linear) and layer.out_features == self.num_classes:
                last = layer
        if last is None or last.bias is None:
            where = f"model {self.name!r}"
            raise refusal("unmendable-model.bias", where, self.architecture, self.num_classes)
        return last

    def placed(self, device: str) -> Self:
        module = _as_module(self.model)
        if module is not None and self.home is not None:
            module.to(device)
        return self

    def released(self) -> Self:
        return self.placed(self.home) if self.home is not None else self


# Images that show whether outputs between 0 and 1 are always that, and calls that show whether a
# transform is random: one that only mirrors half of the images is seen in all but 1 of 128.
_MOST_TRIED = 7
# Shares of the spread of scores that differ by more than arithmetic explains. Activations that are
# quantised by the largest one of a batch differ by some percent.
_OF_CHANCE = 0.01
_OF_NEIGHBOURS = 0.1


def classifier_of(
    name: str,
    model: Callable[[Any], Any],
    transform: Transform | None,
    image: Any,
    version: str | None = None,
    more: Iterable[Any] = (),
) -> tuple[ClassifierFacts, CallableClassifier]:
    """Wrap a callable as a classifier. It is called with a first PIL image to count its scores.

    more: further images, for a callable whose scores of the first one do not show what they are.

    Without a transform, timm modules use their own, and functions get float32 [3, height, width]
    from 0 to 1. version: the user's name for the code of model and transform. Raise UserError for
    other modules without a transform, and for objects that cannot be called or give no scores.
    Raise RunFailure if the callable fails.
    """
    where = f"model {name!r}"
    if not callable(model):
        raise refusal("invalid-callable.model", where, type(model).__name__)
    if transform is not None and not callable(transform):
        raise refusal("invalid-callable.no-function", where, type(transform).__name__)
    prepare, home, described = _described(name, model, transform)
    # Without a version, only the same object counts as the same transform.
    input_key = f"callable {id(prepare)}"
    if version is not None:
        input_key = f"{PYTHON}{name}, version {version}"
    first = CallableClassifier(
        name=name,
        num_classes=0,
        label_names=None,
        **described,
        input_key=input_key,
        kept=version is not None,
        model=model,
        prepare=prepare,
        home=home,
    )
    tensor = first.transform()(image)
    scores = _scores_of(first.name, first.model, tensor[None], first.home)
    if scores.ndim != 2 or len(scores) != 1 or scores.shape[1] < 1:
        raise refusal("invalid-callable.shape", where, list(scores.shape))
    outputs = int(scores.shape[1])
    names = _names_of(name, model, outputs)

    def scores_of_images() -> Iterator[Floats]:
        yield scores.double().numpy()
        for another in islice(further, _MOST_TRIED):
            prepared = first.transform()(another)
            yield _scores_of(name, model, prepared[None], first.home).double().numpy()

    further = iter(more)
    scale, note = network_scale(scores_of_images())
    classifier = replace(
        first,
        num_classes=outputs,
        label_names=names,
        shape=tuple(tensor.shape),
        score_scale=scale,
        read=note,
        unsteady=_unsteadiness(first, image, next(further, None)),
    )
    facts = ClassifierFacts(
        name,
        name,
        first.architecture,
        outputs,
        names,
    )
    return facts, classifier


def _unsteadiness(classifier: CallableClassifier, image: Any, another: Any) -> str:
    """Return why an image has not always the same answer, empty if it has. another: a second image,
    or None.

    The usual causes are the transform of training, and a network in training mode inside a
    function, whose answer depends on chance and on the other images of a batch.
    """
    prepare = classifier.transform()
    tensor = prepare(image)
    for _ in range(_MOST_TRIED):
        if far_apart(tensor, prepare(image), _OF_CHANCE):
            return (
                "sees another picture of an image each time, because its transform is random: its"
                " numbers change from run to run. Pass the transform that it was validated with."
            )

    if classifier.kept:
        return ""  # kept answers are taken without another call

    def scores_of(*tensors: torch.Tensor) -> torch.Tensor:
        import torch

        batch = torch.stack(tensors)
        return _scores_of(classifier.name, classifier.model, batch, classifier.home)

    alone = scores_of(tensor)[0]
    repeated = scores_of(tensor)[0]
    if far_apart(alone, repeated, _OF_CHANCE):
        return (
            "scores the same image differently each time: its numbers change from run to run. A"
            " network in training mode does so. Call its eval() first."
        )
    try:
        beside = scores_of(tensor, prepare(another)) if another is not None else alone[None]
    except (CounterfoilError, RuntimeError):
        return ""  # images of two sizes, or a callable that takes one image at a time
    fits = len(beside) > 0 and beside.shape[1:] == alone.shape
    if fits and far_apart(alone, beside[0], _OF_NEIGHBOURS):
        return (
            "scores an image differently beside another image: its numbers depend on the batch size"
            " and on the order of the images. A network in training mode does so, and a softmax over"
            " the batch. Call eval() first, and compute each row of scores from one image."
        )
    return ""


def _described(
    name: str, model: Callable[[Any], Any], transform: Transform | None
) -> tuple[Any, str | None, dict[str, Any]]:
    """Return what prepares a callable's images, its only device if it is a module, and fields of
    its description."""
    module = _as_module(model)
    kind = type(model).__name__
    prepare: Any = transform or _as_float
    if module is None:
        return prepare, None, {"architecture": getattr(model, "__name__", kind), "sha256": None}
    parameters = list(module.parameters())
    described: dict[str, Any] = {
        "architecture": kind,
        "sha256": weights_sha256(type(model).__qualname__, module.state_dict()),
        "param_count": sum(parameter.numel() for parameter in parameters),
    }
    if transform is None:
        from timm.data.transforms_factory import create_transform

        form = _timm_form(name, module)
        prepare = create_transform(**form, is_training=False)
        described["input_size"] = tuple(form["input_size"])
        described["crop_pct"] = float(form["crop_pct"])
        described["interpolation"] = str(form["interpolation"])
    tensors = (*parameters, *module.buffers())
    devices = {str(tensor.device) for tensor in tensors}
    home = None
    if len(devices) == 1 and "meta" not in devices:
        home = devices.pop()
    return prepare, home, described


# The usual validation transforms, for the message below, each with the models that it is of.
USUAL_TRANSFORMS = {
    "torchvision.models.ResNet50_Weights.DEFAULT.transforms()": (
        "of a model with torchvision's weights"
    ),
    "T.Compose([T.Resize(256), T.CenterCrop(224), T.ToTensor(),"
    " T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))])": "of most others",
    "T.ToTensor()": "of one that takes pixels from 0 to 1",
}


def _timm_form(name: str, module: Any) -> dict[str, Any]:
    """Return the data configuration of a timm module. Raise UserError for any other module."""
    stated = getattr(module, "pretrained_cfg", None) or ()
    if not {"input_size", "mean", "std"} <= set(stated):
        lines = [f"\n  {code}  # {models}" for code, models in USUAL_TRANSFORMS.items()]
        where = f"model {name!r}"
        raise refusal("invalid-callable.no-transform", where, lines="".join(lines))
    from timm.data.config import resolve_model_data_config

    return dict(resolve_model_data_config(module, use_test_size=True))


def _scores_of(
    name: str,
    model: Callable[[Any], Any],
    batch: torch.Tensor,
    device: str | None,
) -> torch.Tensor:
    import torch

    where = f"model {name!r}"
    module = _as_module(model)
    # Other models get the same tensor, and the person's code may change what it gets in place.
    copied = batch.clone()
    try:
        if module is None:
            output = model(copied.numpy())
        else:
            # Inference mode is not used, because tensors that a module keeps must stay usable in
            # training.
            with torch.no_grad(), in_eval_mode(module):
                output = module(copied if device is None else copied.to(device))
    except torch.OutOfMemoryError:
        raise
    except (Exception, SystemExit) as error:  # the person's own code
        shape = list(batch.shape)
        reason = _error_line(error)
        raise failure("failed-model.batch", where, shape, reason=reason) from error
    scores = getattr(output, "logits", output)
    try:
        if isinstance(scores, torch.Tensor):
            tensor = scores
        else:
            array = np.asarray(scores)
            if np.iscomplexobj(array):
                raise TypeError("they are complex numbers")
            # float64, so that scores too large for float32 are found below.
            tensor = torch.from_numpy(np.array(array, dtype=np.float64))
        if tensor.is_complex():
            raise TypeError("they are complex numbers")
        whole = tensor.detach().to_dense().cpu()
        single = whole.float()
    except (TypeError, ValueError, RuntimeError) as error:
        given = type(scores).__name__
        reason = error_line(error)
        raise refusal("invalid-callable.scores", where, given, reason=reason) from error
    beyond = whole.isfinite() & ~single.isfinite()
    if beyond.any():
        raise refusal("invalid-callable.large", where, whole[beyond][0].item())
    if (whole.double() != single.double()).any():
        return whole  # ranks are taken of these numbers, and float32 would lose digits
    return single


def _error_line(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"it called sys.exit({error.code})"
    return error_line(error)


@contextmanager
def in_eval_mode(module: nn.Module) -> Iterator[None]:
    """Put a module and its parts into eval mode, and those back that were in training mode."""
    training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True


def _names_of(name: str, model: Any, outputs: int) -> tuple[str, ...] | None:
    """Return the names of a model's outputs, if known. Raise UserError for `label_names` that are
    not texts."""
    label_names = getattr(model, "label_names", None)
    if label_names is not None:
        names = label_names
        if hasattr(names, "tolist"):
            names = names.tolist()
        if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
            shown = shortened(repr(label_names))
            where = f"model {name!r}"
            raise refusal("invalid-callable.label-names", where, shown)
        return tuple(names)
    if _as_module(model) is None:
        return None
    # Names that transformers or timm left in a module. If their number is wrong, they belong to an
    # earlier head.
    config = getattr(model, "config", None)
    labels = getattr(config, "id2label", None)
    if isinstance(labels, Mapping) and set(labels) == set(range(outputs)):
        return tuple(str(labels[output]) for output in range(outputs))
    config = getattr(model, "pretrained_cfg", None)
    names = getattr(config, "label_names", None)
    if isinstance(config, Mapping):
        names = config.get("label_names")
    if isinstance(names, list | tuple) and len(names) == outputs:
        return tuple(map(str, names))
    return None


def _as_float(image: Any) -> np.ndarray:
    return np.asarray(image, dtype=np.float32).transpose(2, 0, 1) / 255


def _as_module(model: Any) -> nn.Module | None:
    from torch import nn

    return model if isinstance(model, nn.Module) else None


_CODE = re.compile(r"(?P<module>[^\W\d]\w*(?:\.[^\W\d]\w*)*):(?P<name>[^\W\d]\w*)")


def import_model(name: str) -> tuple[Any, Any]:
    """Import `python:package.module:function`, the user's own code. Return a model, and its
    transform or None.

    A function without required arguments is called: it returns a model, or a model and its
    transform. Other functions are models themselves. Raise UserError if the import fails,
    RunFailure if the function fails.
    """
    where = f"model {name!r}"
    parts = _CODE.fullmatch(name.removeprefix(PYTHON))
    if parts is None:
        raise refusal("unknown-model.code", where)
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    try:
        module = importlib.import_module(parts["module"])
    except (Exception, SystemExit) as error:  # the person's own code
        raise refusal(
            "invalid-callable.import",
            where,
            _error_line(error),
            module=parts["module"],
            folder=Path.cwd(),
        ) from error
    function = getattr(module, parts["name"], None)
    if not callable(function):
        known = []
        for key, value in vars(module).items():
            if callable(value) and not key.startswith("_"):
                known.append(key)
        sentence = "invalid-callable.unknown"
        if function is not None:
            sentence = "invalid-callable.value"
        raise refusal(
            sentence,
            where,
            parts["name"],
            known,
            module=parts["module"],
            kind=type(function).__name__,
        )
    if _as_module(function) is not None:
        return function, None
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # written in C
        return function, None
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    for parameter in parameters:
        if parameter.kind not in variable and parameter.default is parameter.empty:
            return function, None
    try:
        made = function()
    except (Exception, SystemExit) as error:
        reason = _error_line(error)
        raise failure("failed-model.function", where, parts["name"], reason=reason) from error
    return made if isinstance(made, tuple) and len(made) == 2 else (made, None)


def _decoded(parts: Iterable[Any]) -> Iterator[Any]:
    """Yield the images that can be decoded."""
    for part in parts:
        for _, image in part.images():
            decoded = part.decoded(image)
            if decoded is not None:
                yield decoded


class HandedOver:
    """A callable with its transform. Set `images` before calling `known`, which tries the callable
    on an image."""

    def __init__(self, name: str, model: Any, transform: Transform | None) -> None:
        self.name = name
        self.model = model
        self.transform = transform
        self.images: Callable[[], Sequence[Any]] | None = None
        self._known: tuple[ClassifierFacts, CallableClassifier] | None = None

    def known(self) -> tuple[ClassifierFacts, CallableClassifier]:
        """Call `classifier_of` once. Raise RunFailure if no image can be decoded."""
        if self._known is None:
            assert self.images is not None
            shown = _decoded(self.images())
            first = next(shown, None)
            if first is None:
                where = f"model {self.name!r}"
                raise failure("unfit-input.none", where)
            self._known = classifier_of(
                self.name,
                self.model,
                self.transform,
                first,
                more=shown,
            )
        return self._known


# The callables of runs in this process, by name.
_HELD: dict[str, HandedOver] = {}


def describe(name: str, classes: Sequence[RecipeClass]) -> ClassifierFacts:
    return _held(name).known()[0]


def load(name: str, device: str, classes: Sequence[RecipeClass]) -> Classifier:
    return _held(name).known()[1].placed(device)


def by_name(models: Any) -> Any:
    """Return a mapping for a bare callable, and names by `usable_name`. Raise UserError for
    callables in a list."""
    if callable(models):
        name = getattr(models, "__name__", type(models).__name__)
        return {str(name): models}
    if isinstance(models, Mapping):
        return {name: usable_name(model) for name, model in models.items()}
    if models is None or isinstance(models, str | Path):
        return usable_name(models)
    for model in models:
        if not isinstance(model, str | Path):
            raise refusal("invalid-callable.listed", "models", type(model).__name__)
    return [usable_name(model) for model in models]


@contextmanager
def handed_over(
    models: Any,
    transform: Transform | Mapping[str, Transform] | None = None,
) -> Iterator[tuple[list[str], list[HandedOver]]]:
    """Register callables for the time of a run. Yield the names of all models, and the callables.

    models: what a person gave: a name, a list of names, a callable, or a mapping from names to
    callables or names. Names of code are imported. Raise UserError for anything else, and for a
    transform without a callable.
    """
    models = by_name(models)
    if not isinstance(models, Mapping):
        words = [models] if isinstance(models, str) else models
        models = {word.removeprefix(PYTHON): word for word in words}
    called: dict[str, Any] = {}
    names: list[str] = []
    for name, model in models.items():
        if isinstance(model, str) and not model.startswith(PYTHON):
            names.append(model)
        else:
            called[str(name)] = model
            names.append(f"{PYTHON}{name}")
    if transform is not None and not called:
        raise refusal("invalid-callable.alone", "transform")
    transforms: dict[str, Any] = dict.fromkeys(called, transform)
    if isinstance(transform, Mapping):
        transforms = dict(transform)
    for name in transforms:
        if name not in called:
            raise refusal("invalid-callable.of-none", "transform", str(name), list(called))
    for name, model in called.items():
        if isinstance(model, str):
            called[name], imported_transform = import_model(model)
            transforms[name] = imported_transform or transforms.get(name)
    held: dict[str, HandedOver] = {}
    for name, model in called.items():
        full_name = PYTHON + name
        if not name.isprintable() or not name.strip() or full_name in _HELD:
            where = f"model {name[:80]!r}"
            raise refusal("invalid-callable.name", where)
        held[full_name] = HandedOver(full_name, model, transforms.get(name))
    _HELD.update(held)
    try:
        yield names, [*held.values()]
    finally:
        for name in held:
            _HELD.pop(name, None)


def _held(name: str) -> HandedOver:
    if name not in _HELD:
        refuse_unnamed(name)
    return _HELD[name]


def refuse_unnamed(name: str) -> NoReturn:
    """Raise UserError for a name of code that a recipe, a gate or a dataset brings."""
    where = f"model {name!r}"
    raise refusal("untrusted-name.code", where)
