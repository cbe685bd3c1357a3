"""Print an evaluation of detectors: a sentence for each, a table, and the paths of the files."""

from __future__ import annotations

from counterfoil.cli.terminal import print_table, say, terminal
from counterfoil.evaluation.detection.measures import DROP
from counterfoil.evaluation.detection.report import detection_notes, first_sentences
from counterfoil.evaluation.results import Evaluation
from counterfoil.report.words import Table, TableCell, TableColumn, TableRow, points_cell

_MEASURES = ("AP", "AP50", "AP75", "F1")
_MOST_ROWS = 40


def print_detection(evaluation: Evaluation, width: int) -> None:
    """Print the first sentences, the table of drops and every path."""
    results, console = evaluation.results, terminal(width)
    if results.preview:
        say(results.preview_sentence)
    for note in (*evaluation.notes, *detection_notes(results)):
        say(f"Note: {note}")
    columns = (
        TableColumn("shift", "name"),
        *(TableColumn(name) for name in _MEASURES),
        TableColumn("drop of AP"),
        TableColumn("drop of AP50"),
    )
    for model in results.models:
        rows = []
        for group in results.groups:
            key = {"model": model.name, "group": group.name}
            numbers = [points_cell(results.rows.estimate(name, **key)) for name in _MEASURES]
            drops = [points_cell(results.rows.estimate(DROP, at=name, **key)) for name in ("AP", "AP50")]
            rows.append(TableRow((TableCell(group.name), *numbers, *drops)))
        caption = f"{model.short_name}: percent, and points lost (95 % confidence interval)"
        print_table(console, Table(caption, columns, tuple(rows)), _MOST_ROWS, "detection.csv")
    for sentence in first_sentences(results):
        say(sentence)
    for name, path in evaluation.files.items():
        say(f"{name + ':':<12} {path}")
