"""Print an evaluation of detectors, or of classifiers with several labels: tables, sentences and the files."""

from __future__ import annotations

from collections.abc import Sequence

from counterfoil.cli.terminal import print_table, say, terminal
from counterfoil.evaluation.detection.report import (
    compared_sentences,
    detection_notes,
    first_sentences,
    group_table,
)
from counterfoil.evaluation.multilabel.measures import MEANS
from counterfoil.evaluation.multilabel.report import first_label_sentences, multilabel_notes
from counterfoil.evaluation.results import Evaluation
from counterfoil.report.severity import severity_words
from counterfoil.report.words import Table

_MEASURES = ("AP", "AP50", "AP75", "F1")
_MOST_ROWS = 40


def print_detection(evaluation: Evaluation, width: int) -> None:
    """Print the table of each detector, the first sentences and every path."""
    results = evaluation.results
    tables = [group_table(results, model, _MEASURES) for model in results.models]
    sentences = (*first_sentences(results), *compared_sentences(results), *severity_words(results))
    _print_tables(evaluation, width, [*detection_notes(results)], tables, "detection.csv", sentences)


def print_multilabel(evaluation: Evaluation, width: int) -> None:
    """Print the table of each classifier, the first sentences and every path."""
    results, means = evaluation.results, tuple(MEANS)
    tables = [group_table(results, model, means, means) for model in results.models]
    notes, sentences = [*multilabel_notes(results)], first_label_sentences(results)
    _print_tables(evaluation, width, notes, tables, "multilabel.csv", sentences)


def _print_tables(
    evaluation: Evaluation,
    width: int,
    notes: Sequence[str],
    tables: Sequence[Table],
    file: str,
    sentences: Sequence[str],
) -> None:
    if evaluation.results.preview:
        say(evaluation.results.preview_sentence)
    for note in (*evaluation.notes, *notes):
        say(f"Note: {note}")
    for table in tables:
        print_table(terminal(width), table, _MOST_ROWS, file)
    for sentence in sentences:
        say(sentence)
    for name, path in evaluation.files.items():
        say(f"{name + ':':<12} {path}")
