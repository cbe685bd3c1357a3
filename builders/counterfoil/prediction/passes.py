"""Read every model's answers to a dataset from the cache, or compute them in as few passes as memory allows.

A pass decodes each image once for all its models. Answers are saved in parts of whole batches, so after a kill each
model continues where it stopped. With an engine, workers load the models, and each worker takes stretches of images.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from counterfoil.data import LabelledImages
from counterfoil.data.labelled_images import Chunk, Chunks, stretch_rows
from counterfoil.engines import Advanced, Doing, Engine, Finished, LocalEngine, Lost, Work
from counterfoil.errors import CounterfoilError, RunFailure, UserError, raise_together
from counterfoil.models.classifiers import Classifier, load_classifier
from counterfoil.models.classifiers.of_predictions import refuse_by_row
from counterfoil.models.devices import free_bytes, give_back_memory
from counterfoil.models.score_scale import AnyScale
from counterfoil.prediction.class_map import ClassMap
from counterfoil.prediction.inference import ModelInPass, predict, take_over
from counterfoil.prediction.predictions import (
    CacheEntry,
    Predictions,
    cache_key,
    cache_path,
    no_answers,
    part_rows,
    ranked_of,
)
from counterfoil.progress import report
from counterfoil.recipe.prompts import RecipeClass
from counterfoil.store.decoding import readable_image

# The weights and inputs of one pass may take this share of the free memory. The rest is for activations and images.
_SHARE = 0.4
# On a worker's device, weights and inputs may take so many bytes. The device is assumed to be a GPU of 16 GB.
_FREE_ELSEWHERE = 6e9
_BYTES_A_PARAMETER = 4
_BYTES_A_VALUE = 4
# One batch is computed while the next one is decoded, or stacked from its images.
_BATCHES_AT_ONCE = 2
# No layer of timm's models enlarges its input by more than this factor. If so much memory is free, layers are not
# checked.
_INSIDE_AT_MOST = 100


@dataclass(frozen=True)
class Scored:
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
    logits: bool = False,
    placement: Placement | None = None,
    failed: dict[str, CounterfoilError] | None = None,
) -> dict[str, Scored]:
    """Return every model's answers: cached in `folder` if an earlier run finished them, else computed and saved there.

    If a model fails, the other models are still scored and saved. Then all failures are raised, or put into `failed`
    by model if it is given. A model without a content hash (`Classifier.kept`) is scored but not cached. For each
    image, `RANKED` answers are kept, and with `logits` also the scores of all outputs. With `placement`, the workers of
    an engine compute the answers, except for models that only this process has. Each pass is one stage of progress.
    """
    failures: dict[str, CounterfoilError] = {} if failed is None else failed
    scored: dict[str, Scored] = {}
    run = _Run(images, maps, folder, device, batch_size, load, logits, placement, scored, failures)
    for models in run.passes(names):
        entries = {model.classifier.name: run.entry(model) for model in models}
        try:
            run.answer(models, entries)
        finally:
            # The list of models stays alive while the next pass is prepared. Their weights must be released.
            for model in models:
                model.classifier = model.classifier.released()
            give_back_memory()
        for model in models:
            name = model.classifier.name
            if model.failure is None:
                if model.classifier.kept:
                    entries[name].finish(model.answers)
                scored[name] = Scored(model.classifier, maps[name], model.answers)
            else:
                failures[name] = model.failure
    kept = f"The answers of the other {len(scored)} are kept: repair or leave out what failed, and run it again."
    if failed is None:
        raise_together(list(failures.values()), kept if scored else None)
    return scored


@dataclass(frozen=True, slots=True)
class _Run:
    """The data that all passes of a run share. Each pass adds its models to `scored` or `failures`."""

    images: LabelledImages
    maps: Mapping[str, ClassMap]
    folder: Path
    device: str
    batch_size: int
    load: Callable[[str], Classifier]
    logits: bool
    placement: Placement | None
    scored: dict[str, Scored]
    failures: dict[str, CounterfoilError]

    def passes(self, names: Sequence[str]) -> Iterator[list[ModelInPass]]:
        """Yield lists of models that fit in memory together and have the same placement.

        Put the models with cached answers into `scored`.
        """
        waiting: list[ModelInPass] = []
        free = _free_for_a_pass(self.device if self.placement is None else None)
        # Models that workers can load come first.
        for name in sorted(names, key=lambda name: self._placement_of(name) is None):
            try:
                model = self._model(name)
            except CounterfoilError as error:
                self.failures[name] = error
                continue
            if model is None:
                continue
            classifier = model.classifier
            size = (classifier.param_count or 0) * _BYTES_A_PARAMETER
            if all(other.classifier.input_key != classifier.input_key for other in waiting):
                size += batch_bytes(classifier, self.batch_size)
            in_process = self._placement_of(name) is None
            moved = waiting and in_process != (self._placement_of(waiting[0].classifier.name) is None)
            if waiting and (size > free or moved):
                yield waiting
                waiting, free = [], _free_for_a_pass(self.device if in_process else None)
            if in_process:
                model.classifier = classifier.placed(self.device)
            if classifier.kept:
                model.done = self.entry(model).load_parts(model.answers)
            waiting.append(model)
            free -= size
        if waiting:
            yield waiting

    def _model(self, name: str) -> ModelInPass | None:
        """Load a model that must compute answers. Return None if its answers are in a file or in the cache."""
        images, class_map = self.images, self.maps[name]
        classifier = self.load(name)
        _refuse_unfit(classifier, class_map)
        refuse_by_row(classifier, images.preview)
        recorded = classifier.recorded(images.keys, images.paths)
        if recorded is not None:
            answers = take_over(images, name, recorded, class_map, classifier.score_scale)
            self.scored[name] = Scored(classifier, class_map, answers)
            return None
        form = no_answers(len(images), class_map, ranked_of(class_map), self.logits)
        model = ModelInPass(classifier, class_map, form)
        known = self.entry(model).load(form) if classifier.kept else None
        if known is not None:
            self.scored[name] = Scored(classifier.released(), class_map, known)
            return None
        _refuse_vast_batch(classifier, self.batch_size, self.device)
        return model

    def answer(self, models: Sequence[ModelInPass], entries: Mapping[str, CacheEntry]) -> None:
        """Let the models of a pass answer all images, and save the answers in parts."""
        images, placement = self.images, self._placement_of(models[0].classifier.name)
        stage = models[0].classifier.name
        stage = stage if len(models) == 1 else f"{len(models)} models, {stage} first"
        rows = part_rows(self.batch_size)
        saved = [model.done for model in models]
        if placement is None:
            encoded = (image for _, image in images.images())
            batches = predict(
                encoded,
                images.labels,
                models,
                device=self.device,
                batch_size=self.batch_size,
                decode=images.decoded,
            )
        else:
            batches = predict_on_engine(images, models, placement, self.batch_size)
        with closing(batches):  # so that its decoders end with the pass
            done = min(saved)
            for event in batches:
                if isinstance(event, Lost):
                    report(stage, done, len(images.keys), event.message)
                    continue
                done = event
                for index, model in enumerate(models):
                    if model.failure is None and model.done - saved[index] >= rows:
                        if model.classifier.kept:
                            entries[model.classifier.name].save_part(model.answers, saved[index], model.done)
                        saved[index] = model.done
                report(stage, done, len(images.keys))

    def entry(self, model: ModelInPass) -> CacheEntry:
        ranked, logits = model.answers.answers.shape[1], model.answers.logits is not None
        key = cache_key(self.images.content, model.classifier, model.class_map, self.device, ranked, logits)
        return CacheEntry(cache_path(self.folder, model.classifier.name, key), key, self.images.keys)

    def _placement_of(self, name: str) -> Placement | None:
        """Return the placement of a model, or None if this process computes its answers."""
        if self.placement is None or name in self.placement.of_this_process:
            return None
        return self.placement


def _free_for_a_pass(device: str | None) -> float:
    """Return the bytes for the weights and inputs of one pass. A worker's device (None) is not measured."""
    return min(_FREE_ELSEWHERE, free_bytes() * _SHARE) if device is None else free_bytes(device) * _SHARE


def batch_bytes(classifier: Classifier, batch_size: int) -> int:
    """Return the bytes of the input batches that are in memory together, as float32 on the CPU. 0 means unknown."""
    channels, height, width = classifier.input_size or (0, 0, 0)
    return _BATCHES_AT_ONCE * batch_size * channels * height * width * _BYTES_A_VALUE


def _refuse_vast_batch(classifier: Classifier, batch_size: int, device: str) -> None:
    """Raise RunFailure if one batch needs more memory than is free, since the kernel would silently kill the run."""
    if classifier.input_size is None:
        return
    needed, free = batch_bytes(classifier, batch_size), free_bytes()
    if not device.startswith("cuda") and needed * _INSIDE_AT_MOST > free:
        from counterfoil.models.trials import largest_tensor_bytes

        shape = (batch_size, *classifier.input_size)
        # A layer's input and output are in memory together.
        needed += 2 * largest_tensor_bytes(lambda batch: classifier.logits(batch, "cpu"), shape)
    if needed <= free:
        return
    _, height, width = classifier.input_size
    fitting = batch_size * free // needed
    raise RunFailure(
        f"model {classifier.name!r} takes images of {height:,} x {width:,} pixels: batches of {batch_size} need "
        f"{needed / 1e9:,.1f} GB of memory, and {free / 1e9:,.1f} GB are free",
        f"Set --batch-size {fitting} or smaller." if fitting else "Run it on a machine with more memory.",
    )


def _refuse_unfit(classifier: Classifier, class_map: ClassMap) -> None:
    """Raise UserError if a model does not take RGB images, RunFailure if it changed since the map was made."""
    if classifier.input_size is not None and classifier.input_size[0] != 3:
        raise UserError(
            f"model {classifier.name!r} wants images of {classifier.input_size[0]} channels; a dataset's are RGB"
        )
    same = class_map.order_given or class_map.label_names in (None, classifier.label_names)
    if not same or classifier.num_classes != class_map.num_classes:  # a branch moved, a file was written
        raise RunFailure(
            f"model {classifier.name!r} changed while the run started: its outputs differ now", "Run it again."
        )


# For fewer images, one process finishes before worker processes have started.
_WORTH_WORKERS = 2000


# The heavy modules of the workers.
WORKERS_IMPORT = (__name__, "timm")


@dataclass(frozen=True, slots=True)
class Placement:
    """The engine whose workers run models, and the models that only this process can load.

    classes: the classes of the dataset, for models whose answers depend on classes. of_this_process: model names that
    refer to an object in this process, such as a function or a module.
    """

    engine: Engine
    device: str
    classes: tuple[RecipeClass, ...]
    of_this_process: frozenset[str] = frozenset()

    def worth_for(self, images: int) -> Placement | None:
        """Return this placement, or None if this process alone answers so many images as fast on its only device."""
        alone = isinstance(self.engine, LocalEngine) and len(self.engine.devices) == 1
        return None if alone and (self.engine.at_once == 1 or images < _WORTH_WORKERS) else self

    def threads(self, stretches: int) -> int:
        """Return the number of threads of each process: local CPU workers share those of this process."""
        import torch

        if not isinstance(self.engine, LocalEngine) or self.device != "cpu":
            return 1
        return max(1, torch.get_num_threads() // max(1, min(self.engine.at_once, stretches)))


@dataclass(frozen=True, slots=True)
class _ModelSpec:
    """The description by which a worker loads a model. `done`: the number of rows whose answers are known already."""

    name: str
    class_map: ClassMap
    sha256: str | None
    ranked: int
    logits: bool
    done: int
    scale: AnyScale


@dataclass(frozen=True, slots=True)
class _Answering:
    specs: tuple[_ModelSpec, ...]
    classes: tuple[RecipeClass, ...]
    device: str
    batch_size: int
    photographs: bool
    threads: int

    def on(self, device: str) -> _Answering:
        return replace(self, device=device)

    @property
    def imports(self) -> Sequence[str]:
        return WORKERS_IMPORT

    @contextlib.contextmanager
    def ready(self) -> Iterator[Callable[[Chunk], Doing[int, list[Predictions | CounterfoilError]]]]:
        """Load the models. RunFailure if a model's weights differ from its weights at the start of the run."""
        import torch

        if self.device == "cpu":
            torch.set_num_threads(self.threads)
        models = []
        for model in self.specs:
            classifier = load_classifier(model.name, classes=self.classes)
            if classifier.sha256 != model.sha256:
                raise RunFailure(
                    f"model {model.name!r} has other weights on a worker than where the run started",
                    "Give every machine the same files, or name a commit.",
                )
            models.append(replace(classifier, score_scale=model.scale).placed(self.device))

        def answer(chunk: Chunk) -> Doing[int, list[Predictions | CounterfoilError]]:
            count = len(chunk.encoded)
            in_pass = [
                ModelInPass(
                    classifier,
                    model.class_map,
                    no_answers(count, model.class_map, model.ranked, model.logits),
                    done=min(max(model.done - chunk.start, 0), count),
                )
                for classifier, model in zip(models, self.specs, strict=True)
            ]
            before = 0
            batches = predict(
                chunk.encoded,
                chunk.labels,
                in_pass,
                device=self.device,
                batch_size=self.batch_size,
                decode=lambda encoded: readable_image(encoded, photograph=self.photographs),
            )
            with contextlib.closing(batches):
                for done in batches:
                    yield done - before
                    before = done
            return [model.failure or model.answers for model in in_pass]

        yield answer


def predict_on_engine(
    images: LabelledImages, models: Sequence[ModelInPass], placement: Placement, batch_size: int
) -> Generator[int | Lost]:
    """Do the work of `prediction.inference.predict` on the workers of an engine. Also yield lost workers."""
    first = min(model.done for model in models) // batch_size * batch_size
    chunks = Chunks(images, stretch_rows(len(images) - first, batch_size, placement.engine.at_once), first)
    specs = tuple(
        _ModelSpec(
            model.classifier.name,
            model.class_map,
            model.classifier.sha256,
            model.answers.answers.shape[1],
            model.answers.logits is not None,
            model.done,
            model.classifier.score_scale,
        )
        for model in models
    )
    work: Work[Chunk, list[Predictions | CounterfoilError]] = _Answering(
        specs,
        placement.classes,
        placement.device,
        batch_size,
        images.photographs,
        placement.threads(len(chunks)),
    )
    ends: dict[int, int] = {}  # start → end of finished stretches that wait for an earlier one
    through = done = first
    with contextlib.closing(placement.engine.run(work, chunks)) as events:
        for event in events:
            if isinstance(event, Lost):
                yield event
            elif isinstance(event, Advanced):
                done += event.count
            elif isinstance(event, Finished):
                chunk: Chunk = event.item
                for model, result in zip(models, event.result, strict=True):
                    if isinstance(result, CounterfoilError):
                        model.failure = model.failure or result
                        continue
                    start = max(model.done, chunk.start)  # known rows stay unchanged to the bit
                    answered = result.rows(start - chunk.start, chunk.stop - chunk.start)
                    model.answers.fill(slice(start, chunk.stop), answered.columns())
                chunks.release(chunk)
                ends[chunk.start] = chunk.stop
                while through in ends:
                    through = ends.pop(through)
                for model in models:
                    if model.failure is None:
                        model.done = max(model.done, through)
            yield min(done, len(images))
