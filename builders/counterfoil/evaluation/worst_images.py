"""The worst wrong answers of the models that a gate judges, for the comment of a pull request: by
group, as a sheet of small pictures and a list of keys. If a group is there for `differs` lines
alone, its images are those that two models answer differently.

A comment shows no file of the machine that wrote it, so a sheet is a file beside gate.md, and
gate.md links to it by its relative path. A job uploads the folder, and puts its address before the
path.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from counterfoil.dataset.card.contact_sheets import Sheet, line_height, wrapped
from counterfoil.dataset.card.markdown import code, markdown_table
from counterfoil.evaluation.failure_folder import failed_rows, file_stem, worst_rows_first
from counterfoil.evaluation.failures import PAGE
from counterfoil.evaluation.gate import DIFFERS, FOLDER, GateResult, Judged, unlinked
from counterfoil.evaluation.scored_models import short_names
from counterfoil.report.pictures import thumbnail
from counterfoil.report.words import Table, TableColumn, cut_text, format_count, safe_text

if TYPE_CHECKING:
    from PIL.Image import Image

    from counterfoil.evaluation.task import Task

MOST_IMAGES = 20
# A comment is read in a minute, and GitHub limits its length; the page of failures has all groups.
MOST_GROUPS = 6
COLUMNS = 5
_SIDE = 144
_GAP = 8
_TEXT = 12
_LINES = 3
_LONGEST = 80


@dataclass(frozen=True)
class WrongImage:
    """An image and a wrong answer to it. Its texts come from the dataset and the model."""

    key: str
    name: str
    """Its path below the folder that it was read from, or its key."""
    truth: str
    answer: str
    model: str


@dataclass(frozen=True)
class WorstImages:
    """The worst wrong answers in a group, or those that differ."""

    group: str
    answer: str
    """The worst answer of a line of the gate that names the group, advisory lines aside."""
    count: int
    """The number of such images: wrong ones of some judged model, or those that differ."""
    images: Sequence[WrongImage]
    """At most MOST_IMAGES, the worst first."""
    file: str
    """The path of the sheet below the folder of gate.md."""
    differing: bool
    """Whether these are images that models answer differently."""


def worst_images(task: Task, predictions: bytes, gate: GateResult) -> tuple[list[WorstImages], int]:
    """Return the worst images of each group, and how many further groups have wrong answers.

    Groups of failing lines come first, then those of undecided lines, each in the dataset's order.
    Each image is listed once, with its worst answer. predictions: the content of predictions.parquet.
    """
    import pyarrow as pa

    # Group → the lines with its worst verdict, which replace those with a better one.
    deciding: dict[str, list[Judged]] = {}
    for verdict in ("pass", "undecided", "fail"):
        of_verdict: dict[str, list[Judged]] = {}
        for judged in gate.judged:
            if judged.verdict == verdict and not judged.line.advisory:
                of_verdict.setdefault(judged.group, []).append(judged)
        deciding |= of_verdict
    answers = {group: lines[0].verdict for group, lines in deciding.items()}
    order = ("fail", "undecided", "pass", "")

    def rank(group: str) -> int:
        answer = answers.get(group, "")
        return order.index(answer)

    groups = [group.name for group in task.subject.groups]
    groups.sort(key=rank)
    buffer = pa.BufferReader(predictions)
    wrong = failed_rows(type(task), buffer, gate.models)
    short = short_names(gate.models)
    stems: set[str] = set()
    failing: list[WorstImages] = []
    for group in groups:
        lines = deciding.get(group, [])
        differing = bool(lines) and all(judged.line.measure == DIFFERS for judged in lines)
        of_group = wrong[wrong["shift"] == group]
        if differing:
            of_group = _differing_rows(type(task), predictions, group, lines)
        of_group = of_group.drop_duplicates("key")
        if of_group.empty:
            continue
        images = []
        for row in of_group.head(MOST_IMAGES).to_dict("records"):
            truth, answer = task.failure_words(row)
            if differing:
                of_other = {
                    **row,
                    "answered": row["answered.of"],
                    "confidence": row["confidence.of"],
                }
                _, other_answer = task.failure_words(of_other)
                answer = f"{answer}, not {other_answer}"
            key = row["key"]
            model = short[row["model"]]
            images.append(WrongImage(key, row["path"] or key, truth, answer, model))
        stem = file_stem(group, len(failing), stems)
        worst = WorstImages(
            group,
            answers.get(group, ""),
            len(of_group),
            images,
            f"{FOLDER}/{stem}.webp",
            differing,
        )
        failing.append(worst)
    return failing[:MOST_GROUPS], max(0, len(failing) - MOST_GROUPS)


def _differing_rows(
    task: type[Task], predictions: bytes, group: str, lines: Sequence[Judged]
) -> Any:
    """Return a row for each image and line whose two models answer differently, the surest answers
    of the judged model first. Only classifiers have such lines."""
    import pyarrow as pa
    import pyarrow.compute
    import pyarrow.parquet as pq

    compute: Any = pyarrow.compute
    buffer = pa.BufferReader(predictions)
    in_group = [("shift", "=", group)]
    of_group = pq.read_table(buffer, filters=in_group)
    if "path" not in of_group.column_names:
        nothing = pa.nulls(of_group.num_rows, pa.string())
        of_group = of_group.append_column("path", nothing)
    tables = []
    for judged in lines:
        model = judged.model
        other = judged.line.other_model
        columns = {name: of_group[name] for name in ("key", "path", *task.truth_columns)}
        for column in ("answered", "confidence"):
            columns[column] = of_group[f"{column}.{model}"]
            columns[f"{column}.of"] = of_group[f"{column}.{other}"]
        differs = compute.not_equal(columns["answered"], columns["answered.of"])
        answers = pa.table(columns).filter(differs)
        models = pa.array([model] * answers.num_rows, pa.string())
        answers = answers.append_column("model", models)
        tables.append(answers)
    joined = pa.concat_tables(tables)
    return worst_rows_first(task, joined.to_pandas())


def worst_markdown(groups: Iterable[WorstImages], further: int) -> list[str]:
    """Return a part of gate.md for each group: a link to its sheet, and its images in a folded
    list."""
    parts = []
    for worst in groups:
        line = f" (gate: {worst.answer})" if worst.answer else ""
        shown = format_count(worst.count, "wrong image")
        if worst.differing:
            shown = format_count(worst.count, "image") + " answered differently"
        if len(worst.images) < worst.count:
            shown = f"{len(worst.images)} of {shown}"
        several = len({image.model for image in worst.images}) > 1
        names = ["image", "truth", "answer"]
        if several:
            names.append("model")
        columns: list[TableColumn | str] = ["#"]
        columns += [TableColumn(name, "name") for name in names]
        rows = []
        for number, image in enumerate(worst.images, start=1):
            texts = [image.name, image.truth, image.answer]
            if several:
                texts.append(image.model)
            cells = [cut_text(text, _LONGEST) for text in texts]
            rows.append((f"{number}", *cells))
        table = markdown_table(Table.of("", columns, rows))
        part = (
            unlinked(f"**{code(cut_text(worst.group, _LONGEST))}**{line}: {shown}"),
            f"![The worst images of this group]({worst.file})",
            "<details><summary>Names of these images</summary>",
            unlinked(table),
            "</details>",
        )
        parts.append("\n\n".join(part))
    if parts:
        sentence = "The worst first; of classifiers, that is the most confident wrong answer."
        parts[0] = f"#### Worst images\n\n{sentence}\n\n{parts[0]}"
    if further:
        groups_left = format_count(further, "further group")
        parts.append(f"{groups_left} with wrong images: see {PAGE} of the report.")
    return parts


def sheets(task: Task, groups: Iterable[WorstImages]) -> dict[str, bytes]:
    """Draw the sheet of each group: path below the folder of gate.md → WebP."""
    return {worst.file: _sheet(task, worst.images) for worst in groups}


def _sheet(task: Task, images: Sequence[WrongImage]) -> bytes:
    """Draw numbered pictures, each with its truth and the answer below."""
    keys = frozenset(image.key for image in images)
    pictures: dict[str, Image] = {}
    for key, picture in task.subject.pictures(keys):
        if picture is not None:
            pictures[key] = thumbnail(picture, 2 * _SIDE)
    captions = []
    for number, image in enumerate(images, start=1):
        truth = safe_text(f"{number}. {image.truth}", _LONGEST)
        answer = safe_text(f"→ {image.answer}", _LONGEST)
        truth_lines = wrapped(truth, _TEXT, _SIDE, _LINES, bold=True)
        answer_lines = wrapped(answer, _TEXT, _SIDE, _LINES)
        captions.append((truth_lines, answer_lines))
    height = line_height(_TEXT)
    tops = [_GAP]
    for first in range(0, len(images), COLUMNS):
        row = captions[first : first + COLUMNS]
        most = max(len(truth) + len(answer) for truth, answer in row)
        of_row = _SIDE + 2 * _GAP + most * height
        tops.append(tops[-1] + of_row)
    across = _SIDE + _GAP
    columns = min(len(images), COLUMNS)
    sheet = Sheet.blank(columns * across + _GAP, tops[-1])
    for index, image in enumerate(images):
        truth_lines, answer_lines = captions[index]
        row_number, column = divmod(index, COLUMNS)
        x = _GAP + column * across
        y = tops[row_number]
        sheet.picture(pictures.get(image.key), x, y, _SIDE)
        y += _SIDE + _GAP // 2
        sheet.text(truth_lines, x, y, _TEXT, bold=True)
        y += len(truth_lines) * height
        sheet.text(answer_lines, x, y, _TEXT)
    return sheet.encoded()
