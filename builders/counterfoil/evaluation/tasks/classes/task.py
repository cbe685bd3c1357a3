"""Classifiers that give each image one class: everything that an evaluation asks of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from counterfoil.arrays import Bools, Ints
from counterfoil.engines import engine_and_device
from counterfoil.evaluation.dataset import Subject, limit_subject, usual_side
from counterfoil.evaluation.failure_folder import Failure, ModelAnswer, classification
from counterfoil.evaluation.figures import thumbnails
from counterfoil.evaluation.gate import DIFFERS, GateLine
from counterfoil.evaluation.messages import message
from counterfoil.evaluation.options import EvaluationOptions
from counterfoil.evaluation.page import ReportPage, Tables
from counterfoil.evaluation.scored_models import (
    ChosenModels,
    choose_models,
    classifier_facts,
    is_stored,
    read_stored,
    with_distinct_short_names,
)
from counterfoil.evaluation.task import Task, write_key_list
from counterfoil.evaluation.tasks.classes.answers import (
    AllAnswers,
    Asking,
    Request,
    answer_names,
)
from counterfoil.evaluation.tasks.classes.computed import (
    answered_parts,
    answers_of_part,
    computed_groups,
    computed_note,
    refusal_notes,
    shifts_are_paired,
    with_computed,
    without_refused,
)
from counterfoil.evaluation.tasks.classes.failures import (
    failure_partners,
    pick_examples,
    write_failures,
)
from counterfoil.evaluation.tasks.classes.file_doubts import file_doubts
from counterfoil.evaluation.tasks.classes.lines import ClassLines, line_measures
from counterfoil.evaluation.tasks.classes.measures import MEASURES, NESTED_MEASURES
from counterfoil.evaluation.tasks.classes.measures.comparison import ComparedModels
from counterfoil.evaluation.tasks.classes.measures.source import (
    PreparedReference,
    prepared_distances,
    prepared_reference,
)
from counterfoil.evaluation.tasks.classes.mistaken_order import likely_order
from counterfoil.evaluation.tasks.classes.report import (
    class_entry,
    classes_page,
    terminal_lines,
)
from counterfoil.evaluation.tasks.classes.resampling import resampled_rows
from counterfoil.evaluation.tasks.classes.tables import image_answers, result_tables
from counterfoil.evaluation.tasks.classes.timm_tables import TIMM, timm_tables
from counterfoil.models.classifiers.of_chat import ChatClassifier
from counterfoil.models.classifiers.of_predictions import RecordedClassifier
from counterfoil.prediction.changes import OWN
from counterfoil.prediction.passes import (
    MOST_CALLS,
    WORKERS_IMPORT,
    CallBudget,
    Placement,
    Scored,
    join_scored,
)
from counterfoil.progress import report_progress
from counterfoil.recipe import RecipeClass
from counterfoil.report.reference import answer_warnings
from counterfoil.report.results import (
    NESTED,
    ClassFacts,
    GroupFacts,
    ModelFacts,
    ResultRow,
    ResultRows,
    Results,
    UnitFacts,
)
from counterfoil.report.sections import MeasureFacts
from counterfoil.report.words import Table
from counterfoil.stats import CONFIDENCE, REPLICATES

_NOT_ON_A_CARD = (
    "Computed shifts of the recipe are left out, because a card shows stored images. Evaluate again"
    " without --into-card to measure them."
)


class ClassesTask(Task):
    """Classifiers that give each image one class."""

    name = "classes"
    of_dataset = "one class an image, and classifiers"
    takes = frozenset(field.name for field in fields(EvaluationOptions))
    table = "robustness.csv"
    truth_columns = ("label", "class")
    answer_columns = ("answered", "confidence", "right")
    chosen: ChosenModels | None = None

    def open(self) -> None:
        options = self.options
        if options.limit is not None:
            self.subject = limit_subject(self.subject, options.limit)
        recipe = self.subject.recipe
        if options.into_card and computed_groups(recipe, None):
            self.computed_notes: Sequence[str] = [_NOT_ON_A_CARD]
            return
        changed = with_computed(self.subject, recipe, options.preprocessing)
        self.subject, self.computed_notes = changed

    @classmethod
    def write_keys(cls, subject: Subject, file: Path) -> int:
        classes = [subject.classes[label] for label in subject.labels.tolist()]
        ids = [cls.id for cls in classes]
        names = [cls.name for cls in classes]
        return write_key_list(subject, file, class_id=ids, label=names)

    @property
    def classes(self) -> tuple[RecipeClass, ...]:
        return self.subject.classes

    @property
    def measures(self) -> Mapping[str, MeasureFacts]:
        return line_measures()

    def line_problems(self, line: GateLine) -> Iterator[str]:
        yield from super().line_problems(line)
        beyond_accuracy = line.share != "accuracy" or line.measure == DIFFERS
        if is_stored(line.other_model) and beyond_accuracy:
            yield message("unfit-line.accuracies")

    def choose_models(self, against: Sequence[str]) -> Sequence[str]:
        self.chosen = choose_models(self.subject, self.named, self.options, against)
        return self.chosen.names

    def read_earlier(
        self,
        lines: Sequence[GateLine],
        judged: Sequence[str],
    ) -> None:
        names = [line.other_model for line in lines]
        files = filter(is_stored, names)
        self.stored = read_stored(files, judged, self.subject, self.chosen)

    def prepare(self) -> None:
        subject = self.subject
        options = self.options
        chosen = self.chosen
        assert chosen is not None
        made_by, device = engine_and_device(options)
        placement = Placement(made_by, device, subject.classes)
        spread = placement.worth_for(len(subject.keys))
        if options.workers is not None and options.workers > 1:
            spread = placement
        if spread is not None:
            made_by.expect(WORKERS_IMPORT)
        budget = CallBudget(options.most_calls or MOST_CALLS)
        self.asking = Asking(
            chosen,
            device,
            options.batch_size,
            spread,
            budget,
        )
        mended = tuple(chosen.mended)
        distances = prepared_distances(subject, options.distances, options.against)
        reference = prepared_reference(subject, chosen.stands_for, mended, options.reference)
        self.requests: list[Request] = [distances, reference]
        if options.compare is not None:
            self.requests.append(ComparedModels(*options.compare))

    def ask(self, names: Sequence[str]) -> None:
        subject = self.subject
        options = self.options
        asking = self.asking
        # Each part's answers are kept by its own content.
        folder = subject.workplace / "predictions"
        refused: dict[tuple[str, str], str] = {}
        by_prefix = {}
        for parts in answered_parts(subject):
            changes = [part.change for part in parts if part.change is not None]
            images = parts[0].images
            answers = asking.scored(
                images,
                names,
                folder,
                changes=changes,
                refused=refused,
            )
            for part in parts:
                by_prefix[part.prefix] = answers
        self.refused = refused
        subject, refused_by = without_refused(subject, names, refused)
        self.subject = subject
        scored = []
        for name in names:
            on_first = by_prefix[""][name]
            of_parts = []
            for part in subject.parts:
                of_part = answers_of_part(
                    subject,
                    part,
                    name,
                    by_prefix[part.prefix],
                    on_first,
                )
                of_parts.append(of_part)
            scored.append(join_scored(of_parts))
        answered = AllAnswers.of(
            subject,
            scored,
            self.min_images,
            options.seed,
            asking,
            tuple(self.requests),
            refused_by,
        )
        # Bootstrapping the drops takes most of the time.
        for done, shift in enumerate(answered.shifts, start=1):
            if subject.base:
                answered.drops(shift)
            report_progress("measuring", done, len(answered.shifts))
        self.answered = answered
        # Computed shifts, which come last, are the images of the base again.
        self.stored_images = 0
        for part in subject.stored_parts:
            self.stored_images += len(part.images)
        readable = answered.answers.readable[: self.stored_images]
        unreadable = np.flatnonzero(~readable).tolist()
        self.unreadable = tuple(subject.keys[row] for row in unreadable)
        if subject.paths is not None:
            self.unreadable_paths = tuple(subject.paths[row] for row in unreadable)

    def results(self) -> Results:
        answered = self.answered
        subject = self.subject
        image_sets = [subject.parts[0].images]
        reference = answered.request(PreparedReference)
        if reference and reference.images:
            image_sets.append(reference.images)
        rows: list[ResultRow] = []
        nested: dict[str, Any] = {}
        nested_facts: list[MeasureFacts] = []
        for name, measure in MEASURES.items():
            if measure.rows is not None:
                rows += measure.rows(answered)
            elif measure.resampled is not None:
                rows += resampled_rows(answered, name, measure.resampled, measure.by_chance)
        for name, measure in NESTED_MEASURES.items():
            nested[name], measure_rows = measure.measure(answered)
            rows += measure_rows
            names = {result.measure for result in measure_rows}
            for facts in NESTED[name].measures:
                if facts.name in names:
                    nested_facts.append(facts)
        rows = [row for row in rows if answered.is_answered(row)]
        base_rows = answered.rows(0)
        count = answered.unit_count(base_rows)
        units = None
        if count is not None and subject.recipe is not None:
            units = UnitFacts(subject.recipe.source.unit_column or "", count)
        base = None
        if subject.base:
            base = subject.groups[0].name
        indices = range(len(answered.scored))
        models = with_distinct_short_names(map(self._model_facts, indices))
        of_measures = [measure.facts(name) for name, measure in MEASURES.items()]
        groups = [answered.facts(index) for index in answered.places]
        classes = [ClassFacts(cls.id, cls.name) for cls in subject.classes]
        return Results(
            content=subject.content,
            dataset=subject.name,
            seed=answered.seed,
            min_images_per_class=answered.min_images,
            confidence=CONFIDENCE,
            replicates=REPLICATES,
            paired=shifts_are_paired(subject),
            unreadable=len(self.unreadable),
            image_side=usual_side(image_sets),
            base=base,
            outputs=answered.asking.models.outputs,
            preview=subject.preview,
            scored=subject.scored_sentences,
            classes=tuple(classes),
            models=models,
            groups=tuple(groups),
            measures=(*of_measures, *nested_facts),
            rows=ResultRows(rows),
            units=units,
            **nested,
        )

    def _model_facts(self, model: int) -> ModelFacts:
        answered = self.answered
        scored = answered.scored[model]
        near_chance = bool(answered.near_chance.models[model])
        given = answered.given[:, model]
        class_map = scored.class_map
        shares = scored.predictions.shares
        # The two best answers are equal: a file's scores are rounded, or the model knows neither.
        tied = scored.predictions.tied
        if tied is None and shares.shape[1] > 1:
            tied = shares[:, 0] == shares[:, 1]
        count = 0
        if tied is not None:
            count = int(tied[given].sum())
        return classifier_facts(
            scored.classifier,
            outputs=class_map.outputs,
            top_k=class_map.top_k,
            chance=float(class_map.chances.mean()),
            near_chance=near_chance,
            tied=count,
            matched=class_map.matched,
            read=self._read(scored, given),
            likely_order=likely_order(answered, model) if near_chance else "",
        )

    def _read(self, scored: Scored, given: Bools) -> str:
        """Return how a file of answers, or a model's scores, were read. given: (images,), which
        images the model answered."""
        classifier = scored.classifier
        subject = self.subject
        predictions = scored.predictions
        if isinstance(classifier, ChatClassifier):
            outside = predictions.prediction == len(classifier.names)
            unsure = np.isnan(predictions.confidence)
            return classifier.told(outside[given], unsure[given])
        if not isinstance(classifier, RecordedClassifier):
            return classifier.read
        parts = [(part.images.keys, part.images.paths) for part in subject.stored_parts]
        answers = None
        if subject.preview is None:
            answers = int(given.sum())
        sentences = [classifier.told(parts, answers), *file_doubts(scored, subject, given)]
        return "; ".join(filter(None, sentences))

    def notes(self, results: Results) -> Iterator[str]:
        yield from super().notes(results)
        yield from computed_note(self.subject, results.rows)
        yield from self.computed_notes
        yield from refusal_notes(self.refused, results.short_names)

    def warnings(self, results: Results) -> Iterable[str]:
        yield from answer_warnings(results)
        for shown in NESTED.values():
            yield from shown.warnings(results)

    def comparing(self, results: Results) -> ClassLines:
        own_ways = [key for key, why in self.refused.items() if why == OWN]
        keys = self.subject.keys
        stored = {}
        for line, answers in self.stored.items():
            stored[line] = answers.to_images(keys)
        return ClassLines(self.answered, results.label_checks, stored, own_ways)

    def tables(self, results: Results) -> Tables:
        return result_tables(results)

    def folders(self, results: Results) -> Mapping[str, Mapping[str, str]]:
        tables = timm_tables(self.answered, results)
        return {TIMM: tables} if tables else {}

    def page(self, results: Results) -> ReportPage:
        examples = pick_examples(self.answered, results)
        shown = []
        for classes in examples.values():
            for *_, pairs in classes:
                for pair in pairs:
                    shown += [pair.base_key, pair.shift_key]
        pictures = {}
        for name, measure in NESTED_MEASURES.items():
            pictures[name] = measure.pictures(self.answered, results)
        small = thumbnails(self.subject, shown)
        return classes_page(
            results,
            examples,
            small,
            self.unreadable,
            pictures,
        )

    def terminal(self, results: Results) -> Iterator[str | Table]:
        return terminal_lines(results)

    def write_failures(self, results: Results, folder: Path) -> Path:
        return write_failures(results, self.answered, folder)

    def entry(
        self,
        results: Results,
        model: ModelFacts,
        group: GroupFacts,
    ) -> tuple[float, str] | None:
        return class_entry(results, model, group)

    def image_columns(self) -> tuple[Ints, dict[str, Any]]:
        rows = np.arange(len(self.subject.keys))
        return rows, image_answers(self.answered)

    @classmethod
    def wrong(cls, frame: Any) -> Any:
        return frame["right"].eq(False)

    @classmethod
    def worst_first(cls, frame: Any) -> Any:
        """Sort the surest answers first."""
        return frame.sort_values("confidence", ascending=False, kind="stable")

    @classmethod
    def failure_words(cls, failure: Mapping[str, Any]) -> tuple[str, str]:
        answer = failure["answered"]
        share = failure["confidence"]
        if not np.isnan(share):
            answer = f"{answer} {100 * share:.0f} %"
        return failure["class"], answer

    def failures(self) -> Iterator[Failure]:
        answered = self.answered
        answers = answered.answers
        subject = self.subject
        called = [answer_names(subject.classes, class_map) for class_map in answered.maps]
        all_right = answers.correct.all(axis=1)
        wrong = answers.readable & ~all_right
        # A computed shift has no image of its own to export.
        wrong = wrong[: self.stored_images]
        for row in np.flatnonzero(wrong).tolist():
            label = int(subject.labels[row])
            name = subject.classes[label].name
            of_models = []
            for model, answer_name in enumerate(called):
                answer = answer_name(int(answers.prediction[row, model]))
                share = float(answered.confidence[row, model])
                confidence = None if np.isnan(share) else round(share, 6)
                columns = {
                    "label": label,
                    "class": name,
                    "answered": answer,
                    "confidence": confidence,
                }
                given = classification(answer, confidence=confidence)
                coco = [{"answer": answer, "score": confidence}]
                right = bool(answers.correct[row, model])
                of_models.append(ModelAnswer(given, right, columns, coco))
            truth = classification(name)
            coco_truth = [{"category_id": label}]
            yield Failure(
                row,
                name,
                truth,
                coco_truth,
                of_models,
            )

    def partners(self) -> Ints:
        _, *shifts = self.subject.groups
        paired = [index for index, group in enumerate(shifts, 1) if group.paired]
        return failure_partners(self.answered, paired)
