"""The failure browser as a page: what its script knows of images, models and answers, and the HTML around it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlencode

import numpy as np
from numpy.typing import NDArray

from counterfoil import __version__
from counterfoil.evaluation.failures.choose_failures import ChosenFailures
from counterfoil.evaluation.failures.sprite_sheets import COLUMNS, IMAGES_A_SHEET, sheet_rows
from counterfoil.evaluation.scores import ModelAnswers
from counterfoil.evaluation.subject import Subject
from counterfoil.report.templates import template_environment
from counterfoil.report.words import spoken

TEMPLATE = "failures.html.j2"
PAGE = "failures.html"
FOLDER = "failures"


def sheet_file(number: int) -> str:
    """A sheet's path beside the page."""
    return f"{FOLDER}/{number:04d}.webp"


def failures_link(model: str = "", shift: str = "", class_id: str = "") -> str:
    """The address of the browser, beside the report, with a filter."""
    named = {"model": model, "shift": shift, "class": class_id}
    fragment = urlencode({name: value for name, value in named.items() if value})
    return f"{PAGE}#{fragment}" if fragment else PAGE


def image_link(key: str) -> str:
    """The address of one image in the browser, enlarged."""
    return f"{PAGE}#{urlencode({'image': key})}"


def failures_data(
    subject: Subject,
    answers: ModelAnswers,
    confidence: NDArray[np.float32],
    chosen: ChosenFailures,
    models: Sequence[tuple[str, Callable[[int], str], str]],
    order: Sequence[str],
) -> dict[str, Any]:
    """What the page's script reads. confidence: (n, models), NaN where a model tells none.

    models: each one's name, what its outputs are called, and a note. order: the groups' names as the page lists them.
    """
    images = chosen.images
    place = {int(row): number for number, row in enumerate(images)}
    rank = {name: number for number, name in enumerate(order)}
    group_rank = np.array([rank[group.name] for group in subject.groups])
    listed = np.lexsort((chosen.rows, subject.labels[chosen.rows], group_rank[subject.shifts[chosen.rows]]))
    names: dict[str, int] = {}
    told, paths = [], subject.paths
    for number, (_, called, _) in enumerate(models):
        outputs, inverse = np.unique(answers.prediction[images, number], return_inverse=True)
        own = np.array([names.setdefault(called(int(output)), len(names)) for output in outputs], dtype=np.int64)
        share = confidence[images, number]
        told.append(
            {
                "answers": own[inverse].tolist(),
                "shares": np.where(np.isnan(share), -1, np.rint(100 * np.nan_to_num(share))).astype(int).tolist(),
                "right": "".join("1" if right else "0" for right in answers.correct[images, number].tolist()),
            }
        )
    return {
        "models": [{"name": name, "note": note, **own} for (name, _, note), own in zip(models, told, strict=True)],
        "base": subject.groups[0].name if subject.base else None,
        "shifts": [{"id": name, "name": spoken(name)} for name in order],
        "classes": [{"id": one.id, "name": one.name} for one in subject.classes],
        "names": list(names),
        "keys": [subject.keys[row] for row in images],
        "paths": None if paths is None else [paths[row] for row in images],
        "shift": group_rank[subject.shifts[images]].tolist(),
        "class": subject.labels[images].tolist(),
        "failures": [place[int(row)] for row in chosen.rows[listed]],
        "partners": [place.get(int(row), -1) for row in chosen.partners[listed]],
        "sheets": [{"file": sheet_file(at), "rows": rows} for at, rows in enumerate(sheet_rows(len(images)))],
        "columns": COLUMNS,
        "imagesASheet": IMAGES_A_SHEET,
    }


def failures_html(
    name: str, data: dict[str, Any], chosen: ChosenFailures, images: int, paired: bool, changed: bool = False
) -> str:
    """The page as text; equal evaluations give equal bytes. images: how many were scored."""
    environment = template_environment(TEMPLATE)
    return environment.get_template(TEMPLATE).render(
        name=name,
        data=data,
        found=chosen.found,
        shown=len(chosen.rows),
        images=images,
        paired=paired,
        changed=changed,
        pairs=bool((chosen.partners >= 0).any()),
        version=__version__,
    )
