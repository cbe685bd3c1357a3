"""Write the failure browser beside the report: sheets of pictures first, the page that shows them last."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from counterfoil.evaluation.answer_names import answer_names
from counterfoil.evaluation.failures.choose_failures import (
    MOST_ANSWERS,
    MOST_FAILURES,
    base_partners,
    choose_failures,
)
from counterfoil.evaluation.failures.failures_page import FOLDER, PAGE, failures_data, failures_html, sheet_file
from counterfoil.evaluation.failures.sprite_sheets import sheet_rows, sprite_sheets
from counterfoil.evaluation.scores import ModelAnswers
from counterfoil.evaluation.subject import Subject
from counterfoil.prediction.class_map import ClassMap
from counterfoil.progress import report
from counterfoil.report.results import Results
from counterfoil.store.atomic import make_folder, write_atomically

if TYPE_CHECKING:
    from PIL.Image import Image

_OWN = re.compile(r"\d{4,}\.webp")


def write_failures(
    results: Results,
    subject: Subject,
    answers: ModelAnswers,
    confidence: NDArray[np.float32],
    maps: Sequence[ClassMap],
    folder: Path,
) -> Path:
    """The page's path in `folder`. Images are read again, those alone that it shows."""
    built = [place for place, group in enumerate(subject.groups) if place and group.candidates is not None]
    partners = base_partners(
        subject.labels, subject.shifts, subject.indices, answers.readable, built if subject.base else ()
    )
    most = min(MOST_FAILURES, max(1, MOST_ANSWERS // len(results.models)))
    chosen = choose_failures(answers.correct, answers.readable, subject.labels, subject.shifts, partners, most)
    make_folder(folder / FOLDER)
    images = chosen.images
    pictures = _pictures(subject, frozenset(subject.keys[row] for row in images))
    written: set[str] = set()
    total = len(sheet_rows(len(images)))
    for sheet in sprite_sheets(pictures):
        file = folder / sheet_file(sheet.number)
        write_atomically(file, sheet.encoded)
        written.add(file.name)
        report("pictures of failures", len(written), total)
    order = [shift.name for shift in results.by_impact] + ([results.base] if results.base is not None else [])
    models = [
        (model.name, answer_names(subject.classes, own), "near chance on the base" if model.near_chance else "")
        for model, own in zip(results.models, maps, strict=True)
    ]
    data = failures_data(subject, answers, confidence, chosen, models, order)
    page = (folder / PAGE).resolve()
    paired = any(subject.groups[place].paired for place in built)
    changed = results.label_checks is not None and results.label_checks.own
    html = failures_html(results.dataset, data, chosen, len(subject.keys), paired, changed)
    write_atomically(page, html.encode())
    for old in (folder / FOLDER).iterdir():
        if _OWN.fullmatch(old.name) and old.name not in written:
            old.unlink()  # of an evaluation with more failures
    return page


def _pictures(subject: Subject, keys: frozenset[str]) -> Iterator[Image | None]:
    for part in subject.parts:
        own = frozenset(key.removeprefix(part.prefix) for key in keys if key.startswith(part.prefix))
        if own:
            yield from (part.images.decoded(encoded) for _, encoded in part.images.images(own))
