"""Pin and load the judges, which are the classifiers of keep rules and of the screen, and record
their answers.

Judges see images as the dataset stores them. The second judge (`screen.judge`) answers for every
image and decides nothing. Its pin in the lock has its answers to the validation images of the
source, so no later command needs the source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from counterfoil.data.labelled_images import LabelledImages, first_of_classes, rows_of
from counterfoil.data.labelled_sources import labelled_split
from counterfoil.errors import CounterfoilError, RunFailure, UserError, raise_together
from counterfoil.generate.pictures import padded_to
from counterfoil.models.arithmetic import one_thread
from counterfoil.models.classifiers import describe_classifier, load_classifier
from counterfoil.models.classifiers.of_open_clip import pin_zero_shot
from counterfoil.models.clip import pin_clip
from counterfoil.models.loading_errors import reading_errors, skipped_reason
from counterfoil.prediction.class_map import ClassMap, map_classes
from counterfoil.prediction.failures import failed_answers, refuse_unanswered
from counterfoil.prediction.inference import Predictions, answer_columns, logits_of
from counterfoil.prediction.passes import score_models
from counterfoil.recipe.keep.misclassified import ANSWER, CONFIDENCE, FAILED, RIGHT, TOP1
from counterfoil.recipe.keep.same_image import SOURCE_SIMILARITY, similarity
from counterfoil.recipe.names import OPEN_CLIP, judge_column, without_folders
from counterfoil.store.decoding import rgb_image
from counterfoil.store.layout import writable_cache
from counterfoil.store.lock import MOST_A_CLASS, OTHER, count_answers, without_validation

if TYPE_CHECKING:
    from PIL import Image

    from counterfoil.data.pins import SourcePin
    from counterfoil.generate.screen.scores import Scorer
    from counterfoil.models.classifiers import Classifier
    from counterfoil.plan.layout import Plan, Sample
    from counterfoil.recipe import Recipe
    from counterfoil.recipe.keep.rule import KeepRule


Pins = dict[str, dict[str, Any]]
_RANKED = 3  # the number of best answers that failure rules read


def pin_judges(recipe: Recipe) -> Pins:
    """Return the pin of each judge by its name without folders. A pin has the weights and the right
    answers.

    Raise UserError with every judge that does not exist, that matches no class, or that cannot
    answer a failure rule. Also raise UserError if the second judge is the screening model. Raise
    RunFailure if a judge cannot be loaded.
    """
    pins: Pins = {}
    errors: list[CounterfoilError] = []
    for name in recipe.judges:
        try:
            description = describe_classifier(name, recipe.classes)
            class_map = map_classes(recipe.classes, description)
            if name == recipe.screen.judge:
                _refuse_the_screen(recipe, name)
            shifts = recipe.all_shifts()
            rules = dict.fromkeys(recipe.failure_asked(shift, name) for shift in shifts)
            for rule in rules:
                refuse_unanswered(rule or TOP1, recipe.classes, class_map, "misclassified.failure")
            classifier = load_classifier(name, classes=recipe.classes)
            if classifier.recorded(()) is not None:
                raise UserError(
                    f"the judge {name!r} is a file of predictions, which cannot score images that"
                    " it has not seen",
                    "Name a model that looks at images.",
                )
            pins[without_folders(name)] = _pin(classifier, class_map)
        except CounterfoilError as error:
            key = "screen.judge" if name == recipe.screen.judge else "screen.keep"
            errors.append(error.at(key))
    raise_together(errors)
    return pins


def _refuse_the_screen(recipe: Recipe, judge: str) -> None:
    """Raise UserError if the second judge has the weights of the screening CLIP, whatever its name
    is."""
    model = recipe.screen.model
    if model is None or not judge.startswith(OPEN_CLIP):
        return
    screen = pin_clip(model, recipe.screen.weights)
    pin = pin_zero_shot(judge)
    same_files = pin.sha256 is not None and pin.sha256 == screen.sha256
    same_commit = pin.revision is not None and pin.revision == screen.revision
    if same_files or same_commit:
        raise UserError(
            f"'{judge}' is the screening model '{screen.name}' under another name: it would agree"
            " with itself",
            "Name another model, or none.",
        )


def _pin(
    classifier: Classifier,
    class_map: ClassMap,
) -> dict[str, Any]:
    return {
        "architecture": classifier.architecture,
        "sha256": classifier.sha256,
        "targets": [list(outputs) for outputs in class_map.targets],
    }


@dataclass(frozen=True, slots=True)
class Judges:
    """The loaded judges of a plan. The answer of a judge depends on the image and on the batch
    size."""

    plan: Plan
    judges: Mapping[str, tuple[Classifier, ClassMap]]
    device: str

    @classmethod
    def load(
        cls,
        plan: Plan,
        pins: Pins,
        device: str,
    ) -> Judges:
        """Load the judges. Raise RunFailure if a judge differs from its pin."""
        judges = {}
        pins = without_validation(pins)
        classes = plan.recipe.classes
        for name in plan.recipe.judges:
            description = describe_classifier(name, classes)
            class_map = map_classes(classes, description)
            classifier = load_classifier(name, device, classes)
            pinned = pins.get(without_folders(name))
            if pinned != _pin(classifier, class_map):
                expected = f"sha256 {pinned['sha256']}" if pinned else "none"
                raise RunFailure(
                    f"the judge {name!r} is not the one that the dataset was started with:"
                    f" found sha256 {classifier.sha256}, expected {expected}",
                    "Restore that judge, or name its revision (hf-hub:NAME@COMMIT). Another judge"
                    " makes another dataset.",
                )
            judges[name] = (classifier, class_map)
        return cls(plan, judges, device)

    def answers(
        self,
        samples: Sequence[Sample],
        images: Sequence[bytes | None],
    ) -> list[dict[str, float]]:
        """Return the answers to each image by column. A missing image has no answers."""
        import torch

        answers: list[dict[str, float]] = [{} for _ in samples]
        recipe = self.plan.recipe
        size = recipe.generator.batch_size
        for name, (classifier, class_map) in self.judges.items():
            rules = {}
            for index, sample in enumerate(samples):
                shift = self.plan.shift(sample.shift)
                rule = recipe.failure_asked(shift, name)
                if rule is not None and images[index] is not None:
                    rules[index] = rule
            if not rules:
                continue
            labels = np.array([samples[index].label for index in rules])
            transform = classifier.transform()
            tensors = []
            for index in rules:
                image = rgb_image(images[index])
                tensors.append(transform(image))
            # Fill the batch, because on most machines the batch size changes the last bits of an
            # answer.
            batch = torch.stack(padded_to(size, tensors))
            logits = logits_of(classifier, batch, self.device)
            outputs = logits[: len(rules)].numpy()
            columns = answer_columns(outputs, labels, class_map, _RANKED)
            every = np.ones(len(rules), dtype=bool)
            answered = Predictions(every, **columns)
            failed = {}
            for rule in set(rules.values()) - {TOP1}:
                failed[rule] = failed_answers(rule, answered, labels, recipe.classes, class_map)
            for row, (index, rule) in enumerate(rules.items()):
                values = {
                    ANSWER: int(columns["answers"][row, 0]),
                    CONFIDENCE: float(columns["shares"][row, 0]),
                    RIGHT: float(columns["correct"][row]),
                }
                if rule in failed:
                    values[FAILED] = float(failed[rule][row])
                for column, value in values.items():
                    answers[index][judge_column(name, column)] = value
        return answers


_BATCH = 64


def validation_images(
    recipe: Recipe,
    source: SourcePin | None,
) -> LabelledImages:
    """Open the validation images of a recipe's classes."""
    split = recipe.source.validation_split
    return labelled_split(recipe.source, split, recipe.classes, source, units=False)


def validation_answers(
    recipe: Recipe,
    judge: str,
    source: SourcePin,
    device: str,
) -> tuple[Mapping[str, Mapping[str, int]] | None, str | None]:
    """Count the answers of a judge to validation images: class id → answered class id → number of
    images.

    If the judge cannot answer, return None and the reason. Each class has at most 200 images, which
    are the images whose keys have the lowest hashes. Predictions are cached.
    """
    if recipe.source.conditions is not None:
        return None, "rows of its source may have several labels or none"
    try:
        images = validation_images(recipe, source)
    except reading_errors() as error:
        reason = skipped_reason(f"the input dataset '{recipe.source.dataset}'", error)
        return None, reason.reason
    first = first_of_classes(images.keys, images.labels, MOST_A_CLASS)
    images = rows_of(images, first)
    description = describe_classifier(judge, recipe.classes)
    class_map = map_classes(recipe.classes, description)
    folder = writable_cache() / "predictions"
    load = partial(load_classifier, classes=recipe.classes)
    class_maps = {judge: class_map}
    with one_thread():
        scored = score_models(images, [judge], class_maps, folder, device, _BATCH, load)
        answers = scored[judge].predictions
    ids = [cls.id for cls in recipe.classes]
    # An output that is right for several classes counts as an answer of the first of these classes.
    class_of_output: dict[int, str] = {}
    for class_id, outputs in zip(ids, class_map.targets, strict=True):
        for output in outputs:
            class_of_output.setdefault(output, class_id)
    pairs = []
    for row in np.flatnonzero(answers.readable).tolist():
        true = ids[images.labels[row]]
        answer = true
        if not answers.correct[row]:
            output = int(answers.prediction[row])
            answer = class_of_output.get(output, OTHER)
        pairs.append((true, answer))
    counts = count_answers(pairs)
    if not counts:
        return None, "none of its validation images can be read"
    return counts, None


def measured_columns(
    keep: Sequence[KeepRule],
    image: bytes | None,
    source: Image.Image | None,
) -> dict[str, float]:
    """Measure an image for keep rules, also against the row that it is an edit of, and return the
    columns."""
    rules = [rule for rule in keep if rule.measures]
    columns: dict[str, float] = {}
    if image is not None and rules:
        pixels = np.asarray(rgb_image(image))
        for rule in rules:
            columns |= rule.measure(pixels)
            if source is not None and rule.compares:
                source_pixels = np.asarray(source.convert("RGB"))
                columns |= rule.measure_against(pixels, source_pixels)
    return columns


def source_similarities(
    scorer: Scorer | None,
    embeddings: Mapping[int, np.ndarray],
    sources: Mapping[int, Image.Image],
) -> dict[int, dict[str, float]]:
    """Return the similarity column of each image in a batch that is an edit of a source.

    The keys are indices in the batch.
    """
    compared = [index for index in sources if index in embeddings]
    if scorer is None or not compared:
        return {}
    rows = scorer.embed([sources[index] for index in compared])
    columns = {}
    for index, row in zip(compared, rows, strict=True):
        value = similarity(embeddings[index], row)
        if np.isfinite(value):  # CLIP may give numbers that are not finite
            columns[index] = {SOURCE_SIMILARITY: value}
    return columns
