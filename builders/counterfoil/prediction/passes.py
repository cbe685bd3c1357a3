"""Read every model's answers to a dataset from the cache, or compute them in as few passes as
memory allows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from counterfoil.data.labelled_images import LabelledImages
from counterfoil.errors import CounterfoilError, raise_together
from counterfoil.models.classifiers import Classifier, load_classifier
from counterfoil.models.classifiers.of_predictions import refuse_by_row
from counterfoil.models.memory import free_bytes, give_back_memory
from counterfoil.models.messages import failure, refusal
from counterfoil.models.preparation import read_preparation
from counterfoil.models.score_scale import AnyScale
from counterfoil.prediction.answer_cache import join_stretches
from counterfoil.prediction.asking import AskedModel, Pass, Placement
from counterfoil.prediction.changes import Change, ChangedPreparation
from counterfoil.prediction.class_map import ClassMap
from counterfoil.prediction.inference import (
    MappedClassifier,
    Predictions,
    take_over,
)
from counterfoil.recipe.names import chat_parts
from counterfoil.recipe.prompts import RecipeClass
from counterfoil.report.words import format_count

# The weights and inputs of one pass may take this share of the free memory. The rest is for
# activations and images.
_SHARE = 0.4
# On a worker's device, weights and inputs may take so many bytes. The device is assumed to be a GPU
# of 16 GB.
_FREE_ELSEWHERE = 6e9
_BYTES_A_PARAMETER = 4
_BYTES_A_VALUE = 4
# One batch is computed while the next one is decoded, or stacked from its images.
_BATCHES_AT_ONCE = 2
# No layer of timm's models enlarges its input by more than this factor. If so much memory is free,
# layers are not checked.
_INSIDE_AT_MOST = 100


# Calls of servers in a run, unless a person allows more.
MOST_CALLS = 10_000


@dataclass
class CallBudget:
    """How many calls of servers a run may make, one an image."""

    most: int = MOST_CALLS
    made: int = 0

    def spend(self, name: str, calls: int) -> None:
        """Take calls for a model. Raise UserError, before the first call, if too few are left."""
        if self.made + calls > self.most:
            before = f" after the {self.made:,} of others" if self.made else ""
            where = f"model {name!r}"
            raise refusal(
                "call-limit",
                where,
                calls,
                self.most,
                before=before,
            )
        self.made += calls


@dataclass(frozen=True)
class Scored:
    classifier: Classifier
    class_map: ClassMap
    predictions: Predictions


def join_scored(parts: Sequence[Scored]) -> Scored:
    """Return one model's answers to several sets of images as those to all."""
    columns = join_stretches([part.predictions.columns() for part in parts])
    return replace(parts[-1], predictions=Predictions(**columns))


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
    budget: CallBudget | None = None,
    changes: Sequence[Change] = (),
    refused: dict[tuple[str, str], str] | None = None,
) -> dict[str, Scored]:
    """Return every model's answers: cached in `folder` if an earlier run finished them, else
    computed and saved there.

    If a model fails, the other models are still scored and saved. Then all failures are raised, or
    put into `failed` by model if it is given. A model without a content hash (`Classifier.kept`) is
    scored but not cached. For each image, `RANKED` answers are kept, and with `logits` also the
    scores of all outputs. With `placement`, the workers of an engine compute the answers, except
    for models that only this process has. Each pass is one stage of progress. `budget` bounds the
    calls of servers, by default to `MOST_CALLS`.

    With `changes`, every model answers once for each change that it can take, under the names of
    `answers_name`. `refused` receives why a model cannot take a change, by their names.
    """
    scoring = _Scoring(
        images,
        maps,
        folder,
        device,
        batch_size,
        load,
        logits,
        changes,
        CallBudget() if budget is None else budget,
        {} if failed is None else failed,
        {} if refused is None else refused,
    )
    of_this_process = list(names)
    if placement is not None:
        # More processes would only make more calls of a server at once.
        served = frozenset(name for name in names if chat_parts(name)[1] is not None)
        kept = placement.of_this_process | served
        of_this_process = [name for name in names if name in kept]
        scoring.score([name for name in names if name not in kept], placement)
    scoring.score(of_this_process, None)
    scored = scoring.scored
    if failed is None:
        hint = None
        if scored:
            hint = (
                f"The answers of the other {len(scored)} are kept: repair or leave out what failed,"
                " and run it again."
            )
        raise_together(list(scoring.failures.values()), hint)
    return scored


@dataclass
class _Scoring:
    """The settings of `score_models`, and what is known so far."""

    images: LabelledImages
    maps: Mapping[str, ClassMap]
    folder: Path
    device: str
    batch_size: int
    load: Callable[[str], Classifier]
    logits: bool
    changes: Sequence[Change]
    budget: CallBudget
    failures: dict[str, CounterfoilError]
    refusals: dict[tuple[str, str], str]
    scored: dict[str, Scored] = field(default_factory=dict)

    def score(self, names: Sequence[str], elsewhere: Placement | None) -> None:
        """Score models in as few passes as memory allows, on workers `elsewhere` or in this
        process."""
        for models in self.passes(names, self.device if elsewhere is None else None):
            try:
                self.one_pass(models, elsewhere).ask(models)
            finally:
                # The list of models stays alive while the next pass is prepared. Their weights must
                # be released.
                for answering in models:
                    model = answering.model
                    model.classifier = model.classifier.released()
                give_back_memory()
            for answering in models:
                self.finish(answering)

    def preparations(
        self,
        classifier: Classifier,
        in_file: bool,
    ) -> list[ChangedPreparation | None]:
        """Return the ways in which a model's images are prepared: its own, or one a change."""
        if not self.changes:
            return [None]
        if in_file or classifier.served:
            why = "its answers are in a file" if in_file else "a server prepares its images"
            for change in self.changes:
                self.refusals[classifier.name, change.name] = why
            return []
        preparation = read_preparation(classifier.stages(), classifier.transform())
        ways: list[ChangedPreparation | None] = []
        for change in self.changes:
            prepared = change.of(classifier, preparation)
            if isinstance(prepared, str):
                self.refusals[classifier.name, change.name] = prepared
            else:
                ways.append(prepared)
        return ways

    def unanswered(self, name: str) -> Iterator[AskedModel]:
        """Load a model, and yield it for each way that it must compute answers. Answers in a file
        or in the cache are taken."""
        images = self.images
        class_map = self.maps[name]
        classifier = self.load(name)
        _refuse_unfit(classifier, class_map)
        refuse_by_row(classifier, images.preview)
        recorded = classifier.recorded(images.keys, images.paths)
        ways = self.preparations(classifier, recorded is not None)
        if recorded is not None:
            if ways:
                answers = take_over(
                    images,
                    name,
                    recorded,
                    class_map,
                    classifier.score_scale,
                )
                self.scored[name] = Scored(classifier, class_map, answers)
            return
        for prepared in ways:
            model = MappedClassifier(
                classifier,
                class_map,
                self.device,
                self.logits,
                prepared,
            )
            cache = model.cache(self.folder, images) if classifier.kept else None
            known = None if cache is None else cache.load()
            if known is not None:
                answers = Predictions(**known)
                self.scored[model.answers_name] = Scored(classifier.released(), class_map, answers)
                continue
            _refuse_vast_batch(classifier, self.batch_size, self.device)
            answering = AskedModel(model, cache)
            if classifier.served:
                self.budget.spend(name, len(images) - answering.done)
            yield answering

    def all_unanswered(self, names: Sequence[str]) -> Iterator[AskedModel]:
        for name in names:
            try:
                yield from self.unanswered(name)
            except CounterfoilError as error:
                self.failures[name] = error

    def passes(self, names: Sequence[str], own_device: str | None) -> Iterator[list[AskedModel]]:
        """Yield lists of models that fit in memory together, and that have answered the same images
        before.

        own_device: the device, if this process answers.
        """
        waiting: list[AskedModel] = []
        free = _free_for_a_pass(own_device)
        for answering in self.all_unanswered(names):
            model = answering.model
            size = 0
            if all(other.model.name != model.name for other in waiting):
                size = (model.classifier.param_count or 0) * _BYTES_A_PARAMETER
            if all(other.model.input_key != model.input_key for other in waiting):
                size += batch_bytes(model.classifier, self.batch_size)
            if waiting and (size > free or answering.done != waiting[0].done):
                yield waiting
                waiting = []
                free = _free_for_a_pass(own_device)
            if own_device is not None:
                model.classifier = model.classifier.placed(own_device)
            waiting.append(answering)
            free -= size
        if waiting:
            yield waiting

    def one_pass(self, models: Sequence[AskedModel], elsewhere: Placement | None) -> Pass:
        """Return the pass of these models, on workers `elsewhere` or in this process."""
        images = self.images
        stage = models[0].model.name
        if len(models) > 1:
            what = "preparations" if self.changes else "models"
            stage = f"{len(models)} {what}, {stage} first"
        calls = 0
        specs = []
        for answering in models:
            model = answering.model
            classifier = model.classifier
            if classifier.served:
                calls += len(images) - answering.done
            specs.append((model.name, classifier.score_scale, model.class_map, model.prepared))
        if calls:
            stage = f"{stage}: {format_count(calls, 'call')} of a server"
        classes = () if elsewhere is None else elsewhere.classes
        loading = partial(_load, specs, classes, self.logits)
        return Pass(
            images,
            stage,
            self.batch_size,
            self.device,
            elsewhere,
            loading,
            WORKERS_IMPORT,
        )

    def finish(self, answering: AskedModel) -> None:
        """Take the answers of a model whose pass has ended, or its failure."""
        model = answering.model
        try:
            answers = Predictions(**answering.finished())
        except CounterfoilError as error:
            self.failures[model.name] = error
            return
        self.scored[model.answers_name] = Scored(model.classifier, model.class_map, answers)


# The heavy modules of the workers.
WORKERS_IMPORT = (__name__, "timm")


def _load(
    specs: Sequence[tuple[str, AnyScale, ClassMap, ChangedPreparation | None]],
    classes: tuple[RecipeClass, ...],
    logits: bool,
    device: str,
) -> list[MappedClassifier]:
    """Load the models of a pass on a worker."""
    models = []
    loaded: dict[str, Classifier] = {}
    for name, scale, class_map, prepared in specs:
        if name not in loaded:
            classifier = replace(load_classifier(name, classes=classes), score_scale=scale)
            loaded[name] = classifier.placed(device)
        models.append(MappedClassifier(loaded[name], class_map, device, logits, prepared))
    return models


def _free_for_a_pass(device: str | None) -> float:
    """Return the bytes for the weights and inputs of one pass. A worker's device (None) is not
    measured."""
    if device is None:
        return min(_FREE_ELSEWHERE, free_bytes() * _SHARE)
    return free_bytes(device) * _SHARE


def batch_bytes(classifier: Classifier, batch_size: int) -> int:
    """Return the bytes of the input batches that are in memory together, as float32 on the CPU. 0
    means unknown."""
    channels, height, width = classifier.input_size or (0, 0, 0)
    return _BATCHES_AT_ONCE * batch_size * channels * height * width * _BYTES_A_VALUE


def _refuse_vast_batch(classifier: Classifier, batch_size: int, device: str) -> None:
    """Raise RunFailure if one batch needs more memory than is free, since the kernel would silently
    kill the run."""
    if classifier.input_size is None:
        return
    needed = batch_bytes(classifier, batch_size)
    free = free_bytes()
    if not device.startswith("cuda") and needed * _INSIDE_AT_MOST > free:
        from counterfoil.models.trials import largest_tensor_bytes

        shape = (batch_size, *classifier.input_size)
        # A layer's input and output are in memory together.
        largest = largest_tensor_bytes(lambda batch: classifier.logits(batch, "cpu"), shape)
        needed += 2 * largest
    if needed <= free:
        return
    _, height, width = classifier.input_size
    fitting = batch_size * free // needed
    sentence = "out-of-memory.smaller" if fitting else "out-of-memory.images"
    where = f"model {classifier.name!r}"
    raise failure(
        sentence,
        where,
        needed / 1e9,
        free / 1e9,
        height=height,
        width=width,
        batch=batch_size,
        fitting=fitting,
    )


def _refuse_unfit(classifier: Classifier, class_map: ClassMap) -> None:
    """Raise UserError if a model does not take RGB images, RunFailure if it changed since the map
    was made."""
    where = f"model {classifier.name!r}"
    channels, *_ = classifier.input_size or (3,)
    if channels != 3:
        raise refusal("unfit-model.channels", where, channels)
    same = class_map.order_given or class_map.label_names in (None, classifier.label_names)
    # a branch moved, a file was written
    if not same or classifier.num_classes != class_map.num_classes:
        raise failure("failed-model.changed", where)
