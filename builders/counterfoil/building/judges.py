"""The classifiers that keep rules and the screen ask: pinned before the first image, loaded by workers, and asked.

A judge sees an image as it is stored, so what it is said to answer is what an evaluation of the dataset finds.

A second judge (`screen.judge`) decides nothing. It is asked about every image, the base's too; what it answers to the
source's validation images stands in its pin in the lock and is never measured again, so that nobody who makes, cuts
or reads a dataset needs the source for it. An estimate of false labels assumes that it errs under a shift as it does
there; where its own failures chose the images there is none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from counterfoil.data.labelled_images import first_of_classes, rows_of
from counterfoil.data.labelled_sources import labelled_split
from counterfoil.dataset.label_checks import MOST_A_CLASS, OTHER, counted, without_validation
from counterfoil.errors import CounterfoilError, RunFailure, UserError, raise_together
from counterfoil.models.classifiers import describe_classifier, load_classifier
from counterfoil.models.classifiers.of_open_clip import pin_zero_shot
from counterfoil.models.clip import pin_clip
from counterfoil.models.devices import one_thread
from counterfoil.models.loading_errors import reading_errors, skipped_reason
from counterfoil.prediction.class_map import ClassMap, map_classes
from counterfoil.prediction.failures import failures, refuse_unanswered
from counterfoil.prediction.inference import answer_columns, logits_of
from counterfoil.prediction.passes import score_models
from counterfoil.prediction.predictions import Predictions
from counterfoil.recipe.keep import SOURCE_SIMILARITY, similarity
from counterfoil.recipe.keep.misclassified import ANSWER, CONFIDENCE, FAILED, RIGHT, TOP1, judge_column
from counterfoil.recipe.layering import without_folders
from counterfoil.recipe.names import OPEN_CLIP
from counterfoil.store.decoding import rgb_image
from counterfoil.store.layout import user_cache

if TYPE_CHECKING:
    from PIL import Image

    from counterfoil.data.pins import SourcePin
    from counterfoil.generate.screen import Scorer
    from counterfoil.models.classifiers import Classifier
    from counterfoil.plan import Plan, Sample
    from counterfoil.recipe import Recipe


Pins = Mapping[str, Mapping[str, Any]]
# Answers that failure rules read.
_RANKED = 3


def pin_judges(recipe: Recipe) -> dict[str, dict[str, Any]]:
    """What pins each judge of a recipe, by its name without folders: its weights, and which answers are right.

    UserError for judges that do not exist, whose outputs match nothing in the recipe, or who cannot answer a failure
    rule, and for a second judge that is the screening model, all together; RunFailure for one that cannot be loaded.
    """
    pins: dict[str, dict[str, Any]] = {}
    found: list[CounterfoilError] = []
    for name in recipe.judges:
        try:
            class_map = map_classes(recipe.classes, describe_classifier(name, recipe.classes))
            if name == recipe.screen.judge:
                _refuse_the_screen(recipe, name)
            for rule in dict.fromkeys(recipe.failure_asked(shift, name) for shift in recipe.all_shifts()):
                refuse_unanswered(rule or TOP1, recipe.classes, class_map, "misclassified.failure")
            pins[without_folders(name)] = _pin(_looking(load_classifier(name, classes=recipe.classes)), class_map)
        except CounterfoilError as error:
            place = "screen.judge" if name == recipe.screen.judge else "screen.keep"
            found.append(type(error)([f"{place}: {problem}" for problem in error.problems], error.hint))
    raise_together(found)
    return pins


def _refuse_the_screen(recipe: Recipe, judge: str) -> None:
    """UserError for a second judge with the weights of the CLIP that screens, whatever either is called."""
    if not judge.startswith(OPEN_CLIP) or recipe.screen.model is None:
        return
    screen, own = pin_clip(recipe.screen.model, recipe.screen.weights), pin_zero_shot(judge)
    same_files = own.sha256 is not None and own.sha256 == screen.sha256
    if same_files or (own.revision is not None and own.revision == screen.revision):
        raise UserError(
            f"'{judge}' is the screening model '{screen.name}' under another name: it would agree with itself",
            "Name another model, or none.",
        )


def _looking(classifier: Classifier) -> Classifier:
    """UserError for a judge that answers from a record: it cannot score images that it has not seen."""
    if classifier.recorded(()) is not None:
        raise UserError(
            f"the judge {classifier.name!r} is a file of predictions, which cannot score images that it has not seen",
            "Name a model that looks at images.",
        )
    return classifier


def _pin(classifier: Classifier, class_map: ClassMap) -> dict[str, Any]:
    return {
        "architecture": classifier.architecture,
        "sha256": classifier.sha256,
        "targets": [list(outputs) for outputs in class_map.targets],
    }


@dataclass(frozen=True, slots=True)
class Judges:
    """The judges of a plan, loaded; answers depend on an image and the batch size alone."""

    plan: Plan
    judges: Mapping[str, tuple[Classifier, ClassMap]]
    device: str

    @classmethod
    def load(cls, plan: Plan, pins: Pins, device: str) -> Judges:
        """RunFailure for a judge that is not the one that is pinned."""
        judges: dict[str, tuple[Classifier, ClassMap]] = {}
        pins = without_validation(pins)
        for name in plan.recipe.judges:
            class_map = map_classes(plan.recipe.classes, describe_classifier(name, plan.recipe.classes))
            classifier = load_classifier(name, device, plan.recipe.classes)
            pinned = pins.get(without_folders(name))
            if pinned != _pin(classifier, class_map):
                expected = f"sha256 {pinned['sha256']}" if pinned else "none"
                raise RunFailure(
                    f"the judge {name!r} is not the one that the dataset was started with:"
                    f" found sha256 {classifier.sha256}, expected {expected}",
                    "Restore that judge, or name its revision (hf-hub:NAME@COMMIT). Another judge makes another"
                    " dataset.",
                )
            judges[name] = (classifier, class_map)
        return cls(plan, judges, device)

    def answers(self, samples: Sequence[Sample], images: Sequence[bytes | None]) -> list[dict[str, float]]:
        """What each image's judges say, by column; nothing where there is no image or nobody is asked."""
        said: list[dict[str, float]] = [{} for _ in samples]
        for name in self.judges:
            asked = [
                place
                for place, sample in enumerate(samples)
                if images[place] is not None and self._rule(sample, name) is not None
            ]
            if asked:
                self._ask(name, asked, samples, images, said)
        return said

    def _rule(self, sample: Sample, name: str) -> str | None:
        return self.plan.recipe.failure_asked(self.plan.shift(sample.shift), name)

    def _ask(
        self,
        name: str,
        asked: Sequence[int],
        samples: Sequence[Sample],
        images: Sequence[bytes | None],
        said: list[dict[str, float]],
    ) -> None:
        import numpy as np
        import torch

        classifier, class_map = self.judges[name]
        transform = classifier.transform()
        tensors = [transform(rgb_image(images[place])) for place in asked]
        # Always full batches, since on most machines a batch's size moves the last bits of an answer.
        size = self.plan.recipe.generator.batch_size
        full = tensors + [tensors[-1]] * (size - len(tensors))
        logits = logits_of(classifier, torch.stack(full), self.device)[: len(asked)]
        labels = np.array([samples[place].label for place in asked])
        found = answer_columns(logits.numpy(), labels, class_map, _RANKED)
        rules = [self._rule(samples[place], name) for place in asked]
        answers = Predictions(np.ones(len(asked), dtype=bool), **found)
        failed = {
            rule: failures(rule, answers, labels, self.plan.recipe.classes, class_map)
            for rule in set(rules)
            if rule is not None and rule != TOP1
        }
        for row, (place, rule) in enumerate(zip(asked, rules, strict=True)):
            said[place] |= {
                judge_column(name, ANSWER): int(found["answers"][row, 0]),
                judge_column(name, CONFIDENCE): float(found["shares"][row, 0]),
                judge_column(name, RIGHT): float(found["correct"][row]),
                **({judge_column(name, FAILED): float(failed[rule][row])} if rule in failed else {}),
            }


_BATCH = 64


def validation_answers(
    recipe: Recipe, judge: str, source: SourcePin, device: str
) -> tuple[Mapping[str, Mapping[str, int]] | None, str | None]:
    """By class id, how many validation images the judge answers as which class id; or None, and why there are none.

    At most 200 images a class, those whose keys have the lowest hashes. The judge answers as it answers to candidates:
    with one of all its outputs. Predictions are kept in the user's cache. Raises what the judge's own loading raises.
    """
    if recipe.source.conditions is not None:
        return None, "rows of its source may have several labels or none"
    try:
        images = labelled_split(recipe.source, recipe.source.validation_split, recipe.classes, source, units=False)
    except reading_errors() as error:
        return None, skipped_reason(f"the input dataset '{recipe.source.dataset}'", error).problems[0]
    images = rows_of(images, first_of_classes(images.keys, images.labels, MOST_A_CLASS))
    class_map = map_classes(recipe.classes, describe_classifier(judge, recipe.classes))
    with one_thread():
        scored = score_models(
            images, [judge], {judge: class_map}, user_cache() / "predictions", device, _BATCH,
            lambda name: load_classifier(name, classes=recipe.classes),
        )  # fmt: skip
        answers = scored[judge].predictions
    ids = [cls.id for cls in recipe.classes]
    # The first class that an output is right for, where it is right for several.
    named = {output: ids[label] for label in reversed(range(len(ids))) for output in class_map.targets[label]}
    found = counted(
        (ids[label], ids[label] if right else named.get(int(answer), OTHER))
        for label, answer, right, readable in zip(
            images.labels.tolist(), answers.prediction, answers.correct, answers.readable, strict=True
        )
        if readable
    )
    return (found, None) if found else (None, "none of its validation images can be read")


def measured(plan: Plan, samples: Sequence[Sample], images: Sequence[bytes | None]) -> list[dict[str, float]]:
    """The measures of each image by column; nothing where there is no image, or no rule of its shift measures any."""
    return [_of(plan, sample, image) for sample, image in zip(samples, images, strict=True)]


def _of(plan: Plan, sample: Sample, image: bytes | None) -> dict[str, float]:
    rules = [rule for rule in plan.shift(sample.shift).keep if rule.measures]
    if image is None or not rules:
        return {}
    pixels = np.asarray(rgb_image(image))
    return {name: value for rule in rules for name, value in rule.measure(pixels).items()}


def asks_similarity(plan: Plan, sample: Sample) -> bool:
    """Whether the shift of a sample has a rule that compares its image with its row."""
    return any(SOURCE_SIMILARITY in rule.measures for rule in plan.shift(sample.shift).keep)


def similarities(
    scorer: Scorer | None, embeddings: Mapping[int, np.ndarray], sources: Sequence[Image.Image | None]
) -> list[dict[str, float]]:
    """The similarity of each image by column; nothing where there is no image, or no source to compare it with.

    `embeddings` are those of the images that were drawn, by their place in the batch; `sources` has the batch's length.
    """
    there = [place for place in sorted(embeddings) if sources[place] is not None]
    if scorer is None or not there:
        return [{} for _ in sources]
    rows = scorer.embed([source for place in there if (source := sources[place]) is not None])
    found = {place: similarity(embeddings[place], row) for place, row in zip(there, rows, strict=True)}
    # Where CLIP's own numbers are none, there is nothing to tell.
    return [
        {SOURCE_SIMILARITY: found[place]} if place in found and np.isfinite(found[place]) else {}
        for place in range(len(sources))
    ]
