"""Every model's answers to a dataset: remembered from an earlier run, or computed in as few passes as fit.

A pass decodes each image once for all its models. What a model has answered is kept in parts while the
pass runs, so that a killed run goes on where each model stood, and a model once finished is never scored
again on the same data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from counterfoil.engines import Lost
from counterfoil.errors import CounterfoilError, RunFailure, UserError, raise_together
from counterfoil.models.classifiers import Classifier, load_classifier
from counterfoil.models.free_memory import free_bytes
from counterfoil.prediction.class_map import ClassMap
from counterfoil.prediction.inference import ModelInPass, predict
from counterfoil.prediction.parts import finish_parts, load_parts, part_rows, save_part
from counterfoil.prediction.predictions import RANKED, Predictions, cache_key, cache_path, load_predictions, ranked_of
from counterfoil.prediction.recorded import take_over
from counterfoil.prediction.spread import Spread, predict_on_engine
from counterfoil.progress import report
from counterfoil.sources import LabelledImages

# Share of the free memory that the weights and inputs of one pass may take; the rest is for activations and images.
_SHARE = 0.4
# The same in bytes on a worker's device: what a GPU of 16 GB has room for.
_ROOM_ELSEWHERE = 6e9
_BYTES_A_PARAMETER = 4
_BYTES_A_VALUE = 4
# One batch is computed while the next one is decoded, or stacked from its images.
_BATCHES_AT_ONCE = 2
# No layer of timm's models makes more of its input than this; below it, what happens inside is not looked at.
_INSIDE_AT_MOST = 100


@dataclass(frozen=True)
class Scored:
    """A model after its pass, without its weights."""

    classifier: Classifier
    class_map: ClassMap
    predictions: Predictions


def score_models(
    images: LabelledImages,
    names: Sequence[str],
    maps: Mapping[str, ClassMap],
    folder: Path,
    device: str,
    batch_size: int,
    load: Callable[[str], Classifier] = load_classifier,
    *,
    ranked: int | None = RANKED,
    logits: bool = False,
    spread: Spread | None = None,
) -> dict[str, Scored]:
    """Every model's answers: remembered in `folder` where a run before finished them, else computed and kept there.

    A model that fails does not end the run: the others are scored and kept, then all failures are told. `load` gives
    the model of a name; one whose content is not known (`Classifier.kept`) is scored and not remembered. `ranked`
    answers are kept of each image (None: all), and with `logits` the scores themselves. With `spread`, the workers of
    an engine load the models and answer, but for those that only this process has. A stage is a model, or several
    that share a pass.
    """
    scored: dict[str, Scored] = {}
    failures: list[CounterfoilError] = []
    for models in _passes(
        images, names, maps, device, batch_size, folder, scored, failures, load, ranked, logits, spread
    ):
        entries = {model.classifier.name: _entry(images, model, device, folder) for model in models}
        try:
            _one_pass(images, models, entries, device, batch_size, _spread_of(models, spread))
        finally:
            # The list of the pass lives on while the next one is made; its weights must not.
            for model in models:
                model.classifier = model.classifier.released()
        for model in models:
            name = model.classifier.name
            if model.failure is None:
                if model.classifier.kept:
                    finish_parts(*entries[name], images.keys, model.answers)
                scored[name] = Scored(model.classifier, maps[name], model.answers)
            else:
                failures.append(model.failure)
    kept = f"The answers of the other {len(scored)} are kept: mend or leave out what failed, and run it again."
    raise_together(failures, kept if scored else None)
    return scored


def _one_pass(
    images: LabelledImages,
    models: Sequence[ModelInPass],
    entries: Mapping[str, tuple[Path, str]],
    device: str,
    batch_size: int,
    spread: Spread | None,
) -> None:
    """Let the models answer all images, and keep what each has answered, a part at a time."""
    stage = models[0].classifier.name
    stage = stage if len(models) == 1 else f"{len(models)} models, {stage} first"
    rows = part_rows(batch_size)
    kept = [model.done for model in models]
    if spread is None:
        encoded = (image for _, image in images.images())
        batches = predict(encoded, images.labels, models, device=device, batch_size=batch_size, decode=images.decoded)
    else:
        batches = predict_on_engine(images, models, spread, batch_size)
    with closing(batches):  # its decoders end with the pass, wherever that ends
        done = min(kept)
        for told in batches:
            if isinstance(told, Lost):
                report(stage, done, len(images.keys), told.told)
                continue
            done = told
            for place, model in enumerate(models):
                if model.failure is None and model.done - kept[place] >= rows:
                    if model.classifier.kept:
                        save_part(*entries[model.classifier.name], images.keys, model.answers, kept[place], model.done)
                    kept[place] = model.done
            report(stage, done, len(images.keys))


def _entry(images: LabelledImages, model: ModelInPass, device: str, folder: Path) -> tuple[Path, str]:
    """The path and key of a model's predictions."""
    ranked, logits = model.answers.answers.shape[1], model.answers.logits is not None
    key = cache_key(images.content, model.classifier, model.class_map, device, ranked, logits)
    return cache_path(folder, model.classifier.name, key), key


def _passes(
    images: LabelledImages,
    names: Sequence[str],
    maps: Mapping[str, ClassMap],
    device: str,
    batch_size: int,
    folder: Path,
    scored: dict[str, Scored],
    failures: list[CounterfoilError],
    load: Callable[[str], Classifier],
    ranked: int | None,
    logits: bool,
    spread: Spread | None,
) -> Iterator[list[ModelInPass]]:
    """Lists of models whose weights and inputs fit in memory together; what is known already goes to `scored` at once.

    A model that shares its input with another of the list takes no memory for it. Models that workers load and models
    that only this process has are never in one list.
    """
    waiting: list[ModelInPass] = []
    room = _room(device) if spread is None else _room_elsewhere()
    for name in _first_spread(names, spread):
        try:
            classifier = load(name)
            _refuse_other_inputs(classifier)
            _refuse_changed(classifier, maps[name])
            recorded = classifier.recorded(images.keys, images.paths)
            if recorded is not None:
                scored[name] = Scored(classifier, maps[name], take_over(images, name, recorded, maps[name]))
                continue
        except CounterfoilError as error:
            failures.append(error)
            continue
        form = Predictions.empty(len(images), ranked_of(maps[name], ranked), maps[name].num_classes if logits else None)
        model = ModelInPass(classifier, maps[name], form)
        entry, key = _entry(images, model, device, folder)
        known = load_predictions(entry, key, images.keys, form) if classifier.kept else None
        if known is not None:
            scored[name] = Scored(classifier.released(), maps[name], known)
            continue
        try:
            _refuse_vast_batch(classifier, batch_size, device)
        except CounterfoilError as error:
            failures.append(error)
            continue
        size = (classifier.param_count or 0) * _BYTES_A_PARAMETER
        if all(other.classifier.input_key != classifier.input_key for other in waiting):
            size += batch_bytes(classifier, batch_size)
        elsewhere = _spread_of([model], spread) is not None
        if waiting and (size > room or elsewhere != (_spread_of(waiting, spread) is not None)):
            yield waiting
            waiting, room = [], _room_elsewhere() if elsewhere else _room(device)
        model.classifier = classifier if elsewhere else classifier.placed(device)
        if classifier.kept:
            model.answers, model.done = load_parts(entry, key, images.keys, form)
        waiting.append(model)
        room -= size
    if waiting:
        yield waiting


def _first_spread(names: Sequence[str], spread: Spread | None) -> list[str]:
    """The names, those first that workers can load."""
    return sorted(names, key=lambda name: spread is not None and name in spread.here)


def _spread_of(models: Sequence[ModelInPass], spread: Spread | None) -> Spread | None:
    """How a list of models is spread; None where it answers in this process."""
    return None if spread is None or any(one.classifier.name in spread.here for one in models) else spread


def _room(device: str) -> float:
    """Bytes that the weights and inputs of one pass may take."""
    return free_bytes(device) * _SHARE


def _room_elsewhere() -> float:
    """The same on a worker's device, which is not asked: this process, which loads the weights too, does not use it."""
    return min(_ROOM_ELSEWHERE, free_bytes() * _SHARE)


def batch_bytes(classifier: Classifier, batch_size: int) -> int:
    """Memory of the batches of a model's input that a pass holds at once, as float32 on the CPU; 0 where not known."""
    channels, height, width = classifier.input_size or (0, 0, 0)
    return _BATCHES_AT_ONCE * batch_size * channels * height * width * _BYTES_A_VALUE


def _refuse_vast_batch(classifier: Classifier, batch_size: int, device: str) -> None:
    """RunFailure where one batch would take more memory than there is: the kernel would end the run without a word."""
    if classifier.input_size is None:
        return
    needed, free = batch_bytes(classifier, batch_size), free_bytes()
    if not device.startswith("cuda") and needed * _INSIDE_AT_MOST > free:
        from counterfoil.models.trial_pass import largest_tensor_bytes

        shape = (batch_size, *classifier.input_size)
        # What a layer is given and what it makes of it are there together.
        needed += 2 * largest_tensor_bytes(classifier.module, shape)
    if needed <= free:
        return
    _, height, width = classifier.input_size
    fitting = batch_size * free // needed
    raise RunFailure(
        f"model {classifier.name!r} takes images of {height:,} x {width:,} pixels: batches of {batch_size} need "
        f"{needed / 1e9:,.1f} GB of memory, and {free / 1e9:,.1f} GB are free",
        f"Set --batch-size {fitting} or smaller." if fitting else "Run it on a machine with more memory.",
    )


def _refuse_changed(classifier: Classifier, class_map: ClassMap) -> None:
    """RunFailure where a model is no longer what the class map was made for: a branch moved, a file was written."""
    same = class_map.label_names in (None, classifier.label_names)
    if not same or classifier.num_classes != class_map.num_classes:
        raise RunFailure(
            f"model {classifier.name!r} changed while the run began: its outputs are others now", "Run it again."
        )


def _refuse_other_inputs(classifier: Classifier) -> None:
    if classifier.input_size is not None and classifier.input_size[0] != 3:
        raise UserError(
            f"model {classifier.name!r} wants images of {classifier.input_size[0]} channels; a dataset's are RGB"
        )
