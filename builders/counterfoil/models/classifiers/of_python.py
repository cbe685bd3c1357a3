"""Models that Python code hands over: any callable as a classifier; a batch in, scores out.

A torch module is given a tensor on the device of the run, any other callable a numpy array on the CPU: these take
arrays whatever made them, and arrays need no device. Scores may be a torch tensor, a numpy array, whatever
`numpy.asarray` takes, or what transformers returns, with the scores in `.logits`. Names of the outputs are read from an
attribute `label_names` where the callable has one, else from what transformers and timm leave in their modules.

What a callable computes is not known from outside: not the code of a function, nor that of a module's `forward` or of a
transform, which may be written anew between two runs of one session. So its answers are taken from an earlier run only
if its person gave both the same version. The hash of a torch module is that of its tensors; another callable has none.
Its name begins with `python:`, is of this process alone, and lasts as long as the run: no recipe or worker can load it.
`python:package.module:function` is code of the person who types it (`imported`); no name that a recipe, a gate or a
dataset brings is imported.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from counterfoil.errors import CounterfoilError, RunFailure, UserError
from counterfoil.models.classifiers.classifier import Classifier, ClassifierFacts, shortened
from counterfoil.models.loading_errors import one_line
from counterfoil.models.weights_files import weights_sha256
from counterfoil.recipe.names import did_you_mean
from counterfoil.recipe.prompts import RecipeClass

if TYPE_CHECKING:
    import torch
    from torch import nn

Transform = Callable[[Any], Any]


@dataclass(frozen=True, kw_only=True)
class CallableClassifier(Classifier):
    """A callable with the transform that prepares its images. A module is used as it is and given back as it was."""

    model: Callable[[Any], Any]
    prepare: Transform
    # Of an image that it takes, as its transform gives it; empty before a first one was tried.
    shape: tuple[int, ...] = ()
    # Where the module's tensors were; None for other callables, and for modules that lie on several devices.
    home: str | None

    def transform(self) -> Callable[[Any], torch.Tensor]:
        """Return the transform, whose result becomes a tensor. Raise UserError where it fails."""
        import torch

        def transformed(image: Any) -> torch.Tensor:
            try:
                prepared = self.prepare(image)
                if isinstance(prepared, torch.Tensor):
                    return prepared.detach()
                array = np.asarray(prepared)
                if array.dtype == object:
                    raise UserError(f"a transform gives {type(prepared).__name__}, expected an array of numbers")
                return torch.from_numpy(np.ascontiguousarray(array))
            except CounterfoilError:
                raise
            except (Exception, SystemExit) as error:  # the person's own code
                raise UserError(f"model {self.name!r}: its transform failed: {_told(error)}") from error

        return transformed

    def logits(self, batch: torch.Tensor, device: str) -> torch.Tensor:
        """The scores. RunFailure where the callable fails, UserError where what it returns are no scores."""
        return _scores_of(self.name, self.model, batch, device if self.home is not None else None)

    def features(self, batch: torch.Tensor, device: str) -> torch.Tensor:
        """What its last layer is given. UserError as `last_linear`, RunFailure where that layer is not called once."""
        seen: list[torch.Tensor] = []
        hook = self.last_linear().register_forward_pre_hook(lambda layer, given: seen.append(given[0].detach()))
        try:
            self.logits(batch, device)
        finally:
            hook.remove()
        if len(seen) != 1 or seen[0].ndim != 2:
            raise RunFailure(
                f"model {self.name!r}: its last Linear is called {len(seen)} times, expected once",
                "Only a torch module whose head is a single Linear can be mended.",
            )
        return seen[0].float().cpu()

    def last_linear(self) -> nn.Linear:
        """The last Linear of a torch module that gives all its outputs. UserError where there is none."""
        from torch import nn

        module = _as_module(self.model)
        if module is None:
            raise UserError(
                f"model {self.name!r} is a {type(self.model).__name__}: it has no last layer to refit",
                "Pass a torch module, or name a timm model.",
            )
        found = [one for one in module.modules() if isinstance(one, nn.Linear) and one.out_features == self.num_classes]
        if not found or found[-1].bias is None:
            raise UserError(
                f"model {self.name!r}: {self.architecture} has no Linear with a bias of {self.num_classes:,} outputs",
                "Only a torch module whose head is a single Linear can be mended.",
            )
        return found[-1]

    def placed(self, device: str) -> Self:
        module = _as_module(self.model)
        if module is not None and self.home is not None:
            module.to(device)
        return self

    def released(self) -> Self:
        """The same; a module goes back to the device where it was."""
        return self.placed(self.home) if self.home is not None else self


def classifier_of(
    name: str, model: Callable[[Any], Any], transform: Transform | None, image: Any, version: str | None = None
) -> tuple[ClassifierFacts, CallableClassifier]:
    """Return a callable as the classifier called `name`; a first PIL image tells how many scores it gives.

    Without a transform a module of timm has its own, and a function takes images as they are: float32 [3, height,
    width] from 0 to 1. `version`: what the person calls what model and transform compute. UserError for any other
    module without one, for what cannot be called or gives no scores, RunFailure for what fails.
    """
    if not callable(model) or (transform is not None and not callable(transform)):
        wrong, what = ("", model) if not callable(model) else ("its transform ", transform)
        raise UserError(f"model {name!r}: {wrong}is {type(what).__name__}, which cannot be called")
    module = _as_module(model)
    form = _timms_form(name, module) if transform is None and module is not None else None
    prepare: Any = transform or _as_it_is
    if form is not None:
        from timm.data.transforms_factory import create_transform

        prepare = create_transform(**form, is_training=False)
    parts = () if module is None else (*module.parameters(), *module.buffers())
    devices = {str(one.device) for one in parts}
    first = CallableClassifier(
        name=name,
        architecture=type(model).__name__ if module is not None else getattr(model, "__name__", type(model).__name__),
        num_classes=0,
        label_names=None,
        param_count=sum(one.numel() for one in module.parameters()) if module is not None else None,
        sha256=weights_sha256(type(model).__qualname__, module.state_dict()) if module is not None else None,
        # Without a version equal for one object; a transform's content is not known.
        input_key=f"callable {id(prepare)}" if version is None else f"{PREFIX}{name}, version {version}",
        input_size=None if form is None else tuple(form["input_size"]),
        crop_pct=None if form is None else float(form["crop_pct"]),
        interpolation=None if form is None else str(form["interpolation"]),
        kept=version is not None,
        model=model,
        prepare=prepare,
        home=devices.pop() if len(devices) == 1 and "meta" not in devices else None,
    )
    tensor = first.transform()(image)
    found = _scores_of(first.name, first.model, tensor[None], first.home)
    if found.ndim != 2 or len(found) != 1 or found.shape[1] < 1:
        raise UserError(
            f"model {first.name!r} gives scores of shape {list(found.shape)} for a batch of one image; "
            "expected [1, classes]"
        )
    outputs = int(found.shape[1])
    names = _names_of(name, model, outputs)
    classifier = replace(first, num_classes=outputs, label_names=names, shape=tuple(tensor.shape))
    return ClassifierFacts(name, name, first.architecture, outputs, names), classifier


# What a torch module is validated with in most training programs, to copy.
USUAL_TRANSFORMS = (
    "torchvision.models.ResNet50_Weights.DEFAULT.transforms()",
    "T.Compose([T.Resize(256), T.CenterCrop(224), T.ToTensor(),"
    " T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))])",
    "T.ToTensor()",
)


def _timms_form(name: str, module: Any) -> dict[str, Any]:
    """How a module of timm takes images, from its `pretrained_cfg`. UserError for any other module."""
    if not {"input_size", "mean", "std"} <= set(getattr(module, "pretrained_cfg", None) or ()):
        means = ("of a model with torchvision's weights", "of most others", "of one that takes pixels from 0 to 1")
        lines = [f"  {code}  # {what}" for code, what in zip(USUAL_TRANSFORMS, means, strict=True)]
        raise UserError(
            f"model {name!r} is a torch module without a transform: how it takes images is not known, and a wrong size"
            " or normalisation lowers every accuracy",
            "\n".join(
                ["Pass the transform that it was validated with as transform=. Usual ones, with"
                 " `import torchvision` and `from torchvision import transforms as T`:", *lines]
            ),
        )  # fmt: skip
    from timm.data.config import resolve_model_data_config

    return dict(resolve_model_data_config(module, use_test_size=True))


def _scores_of(name: str, model: Callable[[Any], Any], batch: torch.Tensor, device: str | None) -> torch.Tensor:
    """Return what the model gives of a batch, float32 on the CPU."""
    import torch

    module = _as_module(model)
    try:
        if module is None:
            found = model(batch.numpy())
        else:
            # Without gradients, and not in inference mode: what a module remembers stays fit for training.
            with torch.no_grad(), _in_eval_mode(module):
                found = module(batch if device is None else batch.to(device))
    except torch.OutOfMemoryError:
        raise
    except (Exception, SystemExit) as error:  # the person's own code
        raise RunFailure(
            f"model {name!r} failed with a batch of shape {list(batch.shape)}: {_told(error)}",
            "A torch module is given a tensor, any other callable a numpy array, stacked from what transform gives.",
        ) from error
    scores = getattr(found, "logits", found)
    try:
        if isinstance(scores, torch.Tensor):
            tensor = scores
        else:
            # In double precision; complex ones as they are.
            array = np.asarray(scores)
            array = array.copy() if np.iscomplexobj(array) else np.array(array, dtype=np.float64)
            tensor = torch.from_numpy(array)
        tensor = tensor.detach() if tensor.layout == torch.strided else tensor.detach().to_dense()
        if tensor.is_complex():
            raise TypeError("they are complex numbers")
        whole = tensor.cpu()
        single = whole.float()
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(
            f"model {name!r} gives {type(scores).__name__}, expected scores [batch, classes]: {one_line(error)}"
        ) from error
    if (beyond := whole.isfinite() & ~single.isfinite()).any():
        raise UserError(
            f"model {name!r} gives scores such as {whole[beyond][0].item():.3g}, larger than float32 holds (3.4e38)",
            "Scores are logits or probabilities: divide them, or take their logarithm.",
        )
    return single


def _told(error: BaseException) -> str:
    """An error in one line; a program that ends itself is one, whatever its exit code."""
    return f"it called sys.exit({error.code})" if isinstance(error, SystemExit) else one_line(error)


@contextmanager
def _in_eval_mode(module: nn.Module) -> Iterator[None]:
    """Each part of the module in eval mode, and back again as it was."""
    training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True


def _names_of(name: str, model: Any, outputs: int) -> tuple[str, ...] | None:
    """Return what the model calls its outputs, or None. Raise UserError for `label_names` that are no names."""
    found = getattr(model, "label_names", None)
    if found is None and _as_module(model) is not None:
        # transformers or timm may have left names in a module. Those of a head with other outputs are not its own.
        labels = getattr(getattr(model, "config", None), "id2label", None)
        if isinstance(labels, Mapping) and set(labels) == set(range(outputs)):
            return tuple(str(labels[output]) for output in range(outputs))
        own = getattr(model, "pretrained_cfg", None)
        names = own.get("label_names") if isinstance(own, Mapping) else getattr(own, "label_names", None)
        return tuple(map(str, names)) if isinstance(names, list | tuple) and len(names) == outputs else None
    if found is None:
        return None
    names = found.tolist() if hasattr(found, "tolist") else found
    if not isinstance(names, list | tuple) or not all(isinstance(one, str) for one in names):
        raise UserError(
            f"model {name!r}: its label_names are {shortened(repr(found))}, expected a list of texts",
            "List the name of each output in order: label_names = ['cat', 'dog'].",
        )
    return tuple(names)


def _as_it_is(image: Any) -> np.ndarray:
    return np.asarray(image, dtype=np.float32).transpose(2, 0, 1) / 255


def _as_module(model: Any) -> nn.Module | None:
    from torch import nn

    return model if isinstance(model, nn.Module) else None


PREFIX = "python:"
_CODE = re.compile(r"(?P<module>[^\W\d]\w*(?:\.[^\W\d]\w*)*):(?P<name>[^\W\d]\w*)")


def is_code(name: str) -> bool:
    """Whether a name has the form of one that `imported` takes."""
    return name.startswith(PREFIX) and _CODE.fullmatch(name.removeprefix(PREFIX)) is not None


def imported(name: str) -> tuple[Any, Any]:
    """Return the model that a person's own code makes, and its transform or None, of `python:package.module:function`.

    The function is called where it needs no argument, and gives a model, or a model and its transform; else it is the
    model itself: a batch in, scores out. Modules are looked for among what is installed, then in the working folder.
    UserError for what cannot be imported, RunFailure where the function fails.
    """
    parts = _CODE.fullmatch(name.removeprefix(PREFIX))
    if parts is None:
        raise UserError(
            f"model {name!r}: expected python:package.module:function",
            "The function takes nothing and returns a torch module and its transform, or takes a batch of images.",
        )
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    try:
        module = importlib.import_module(parts["module"])
    except (Exception, SystemExit) as error:  # the person's own code
        raise UserError(
            f"model {name!r}: {parts['module']} cannot be imported: {_told(error)}",
            f"It is looked for among the installed packages and in {Path.cwd()}.",
        ) from error
    found = getattr(module, parts["name"], None)
    if not callable(found):
        known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        what = "has no" if found is None else f"has a {type(found).__name__}, and no function,"
        raise UserError(f"model {name!r}: {parts['module']} {what} {parts['name']}{did_you_mean(parts['name'], known)}")
    if _as_module(found) is not None:
        return found, None
    try:
        arguments = inspect.signature(found).parameters.values()
    except (TypeError, ValueError):  # of a library in C
        return found, None
    needed = [one for one in arguments if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    if any(one.default is one.empty for one in needed):
        return found, None
    try:
        made = found()
    except (Exception, SystemExit) as error:
        raise RunFailure(f"model {name!r}: {parts['name']}() failed: {_told(error)}") from error
    return made if isinstance(made, tuple) and len(made) == 2 else (made, None)


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
                raise RunFailure(f"model {self.name!r}: no image can be decoded to try it with")
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
        raise UserError("transform needs a callable, and none is given", 'Pass one: {"mine": model}')
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
            raise UserError(f"model {name[:80]!r}: expected a printable name that no other run in this process uses")
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
            f"model {name!r}: a Python model must be passed in by your code",
            'As in counterfoil.mine(recipe, out, target={"mine": model}, transform=prepare)',
        )
    return _HELD[name]
