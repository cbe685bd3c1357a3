"""Print an evaluation of detectors: a sentence for each, a table, and the paths of the files."""

from __future__ import annotations

from counterfoil.cli.terminal import print_table, say, terminal
from counterfoil.evaluation.detection.report import (
    compared_sentences,
    detection_notes,
    first_sentences,
    group_table,
)
from counterfoil.evaluation.results import Evaluation
from counterfoil.report.severity import severity_words

_MEASURES = ("AP", "AP50", "AP75", "F1")
_MOST_ROWS = 40


def print_detection(evaluation: Evaluation, width: int) -> None:
    """Print the table of each detector, the first sentences and every path."""
    results, console = evaluation.results, terminal(width)
    if results.preview:
        say(results.preview_sentence)
    for note in (*evaluation.notes, *detection_notes(results)):
        say(f"Note: {note}")
    for model in results.models:
        print_table(console, group_table(results, model, _MEASURES), _MOST_ROWS, "detection.csv")
    for sentence in (*first_sentences(results), *compared_sentences(results), *severity_words(results)):
        say(sentence)
    for name, path in evaluation.files.items():
        say(f"{name + ':':<12} {path}")
