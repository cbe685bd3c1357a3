"""The failure browser beside the report: its page, its pictures, and which wrong answers it shows.

A task has a template with what a card shows. Small pictures are in sheets of 144, which the page
loads as they come into view. The page is written last.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import numpy as np
from numpy.typing import NDArray

from counterfoil import __version__
from counterfoil.arrays import Bools, Floats, Floats32, Ints
from counterfoil.evaluation.dataset import Subject, ranks_in_cells
from counterfoil.progress import report_progress
from counterfoil.regular_files import visible_text
from counterfoil.report.pictures import encode_webp, thumbnail
from counterfoil.report.results import Results
from counterfoil.report.templates import template_environment
from counterfoil.report.words import in_words
from counterfoil.store.atomic import make_folder, write_atomically

if TYPE_CHECKING:
    from PIL.Image import Image


# A model of the page: its name, a function from an answer to its name, and a note.
ShownModel = tuple[str, Callable[[int], str], str]
_OWN = re.compile(r"\d{4,}\.webp")
PAGE = "failures.html"
FOLDER = "failures"


def browser_html(
    template: str,
    name: str,
    preview: str,
    data: dict[str, Any],
    **values: Any,
) -> str:
    """Return the page as text; equal data give equal bytes.

    template: it extends `failures.html.j2`. name: of the dataset. preview: the sentence that marks
    a preview, or empty. data: what the script of a card reads. values: what the template reads,
    `found` and `shown` failures among them.
    """
    page = template_environment(template).get_template(template)
    return page.render(
        values,
        name=name,
        preview=preview,
        data=data,
        version=__version__,
    )


def write_browser(
    folder: Path,
    html: str,
    pictures: Iterable[tuple[str, bytes]],
    total: int,
) -> Path:
    """Write so many pictures (path below the folder, content), then the page; return its path."""
    of_pictures = folder / FOLDER
    make_folder(of_pictures)
    written: set[Path] = set()
    for file, content in pictures:
        path = folder / file
        write_atomically(path, content)
        written.add(path)
        report_progress("pictures of failures", len(written), total)
    page = (folder / PAGE).resolve()
    write_atomically(page, html.encode())
    for old in of_pictures.iterdir():
        if _OWN.fullmatch(old.name) and old not in written:
            old.unlink()  # left by an evaluation with more failures
    return page


def write_sheets(
    folder: Path,
    template: str,
    results: Results,
    subject: Subject,
    answers: tuple[NDArray[np.integer[Any]], Bools, Floats32],
    partners: Ints,
    models: Sequence[ShownModel],
    order: Sequence[str],
    **values: Any,
) -> Path:
    """Choose failures, and write the sheets of their pictures, then the page as `browser_html` has
    it; return its path. Only the images that it shows are read.

    answers, models, order: as `failures_data` takes them. partners: as `choose_failures` does. Rows
    of the subject that have one key are of one image, and stand beside each other.
    """
    _, right, _ = answers
    chosen = choose_failures(right, subject.labels, subject.shifts, partners)
    data = failures_data(
        subject,
        *answers,
        chosen,
        models,
        order,
    )
    times = Counter(data["keys"])

    def pictures() -> Iterator[Image | None]:
        for key, picture in subject.pictures(frozenset(times)):
            yield from repeat(picture, times[key])

    numbered = enumerate(sprite_sheets(pictures()))
    sheets = ((sheet_file(number), sheet) for number, sheet in numbered)
    values["found"] = chosen.count
    values["shown"] = len(chosen.rows)
    html = browser_html(
        template,
        results.dataset,
        results.preview_sentence,
        data,
        **values,
    )
    return write_browser(folder, html, sheets, len(data["sheets"]))


# A page with more failures loads slowly, and its pictures take several hundred megabytes.
MOST_FAILURES = 20_000
# An answer with its confidence takes about eight bytes of the page.
MOST_ANSWERS = 800_000


@dataclass(frozen=True)
class ChosenFailures:
    """The f failures to show. rows: (f,), their rows in the dataset's order.

    partners: (f,), the rows of their base images, -1 for no base image. count: the number of images
    that some model gets wrong, shown or not.
    """

    rows: Ints
    partners: Ints
    count: int

    @property
    def images(self) -> Ints:
        """The rows of all images to show, ascending and unique."""
        known = self.partners[self.partners >= 0]
        return np.union1d(self.rows, known)


def base_partners(
    labels: Ints,
    groups: Ints,
    indices: Ints,
    readable: Bools,
    shifts: Sequence[int],
) -> Ints:
    """Return for each readable shifted image the row of its base image (same class and index),
    (n,); else -1."""
    partners = np.full(len(labels), -1, dtype=np.int64)
    cells = list(zip(labels.tolist(), indices.tolist(), strict=True))
    row_of = {}
    on_base = (groups == 0) & readable
    for row in np.flatnonzero(on_base).tolist():
        row_of[cells[row]] = row
    shifted = np.isin(groups, list(shifts)) & readable
    for row in np.flatnonzero(shifted).tolist():
        partners[row] = row_of.get(cells[row], -1)
    return partners


def worst_answers(lost: Floats, failing: Bools, most: int) -> Ints:
    """Return model, group and image of at most so many failing answers, (f, 3). Those that lose most
    come first, as evenly over models and groups as they come.

    lost, failing: (models, groups, images).
    """
    order = np.argsort(-lost[failing], kind="stable")
    worst_first = np.argwhere(failing)[order]
    models, groups, _ = worst_first.T
    cells = models * lost.shape[1] + groups
    ranks = ranks_in_cells(cells)
    in_turn = np.argsort(ranks, kind="stable")
    shown = np.sort(in_turn[:most])
    return worst_first[shown]


def choose_failures(
    correct: Bools,
    labels: Ints,
    groups: Ints,
    partners: Ints,
    most: int | None = None,
) -> ChosenFailures:
    """Return the images that at least one model gets wrong, in the dataset's order; correct: (n,
    models).

    If there are more than `most`, each cell (group and class) gives the same number of images. A
    flipped image is one that a model gets wrong although it is right on the base image. Images that
    most models flip come first, then images that most models get wrong.
    """
    if most is None:
        models = correct.shape[1]
        of_answers = max(1, MOST_ANSWERS // models)
        most = min(MOST_FAILURES, of_answers)
    wrong = ~correct
    rows = np.flatnonzero(wrong.any(axis=1))
    failures = len(rows)
    if failures > most:
        partner = partners[rows]
        flipped = wrong[rows] & correct[partner]
        flips = flipped.sum(axis=1) * (partner >= 0)
        mistakes = wrong[rows].sum(axis=1)
        worst_first = np.lexsort((rows, -mistakes, -flips))
        rows = rows[worst_first]
        classes = int(labels.max()) + 1
        cells = groups[rows] * classes + labels[rows]
        evenly = np.lexsort((cells, ranks_in_cells(cells)))
        rows = np.sort(rows[evenly[:most]])
    return ChosenFailures(rows, partners[rows], failures)


def sheet_file(number: int) -> str:
    return f"{FOLDER}/{number:04d}.webp"


def failures_link(model: str = "", shift: str = "", class_id: str = "") -> str:
    """Return the browser's address, relative to the report, with a filter."""
    named = {
        "model": model,
        "shift": shift,
        "class": class_id,
    }
    chosen = {name: visible_text(value) for name, value in named.items() if value}
    fragment = urlencode(chosen)
    return f"{PAGE}#{fragment}" if fragment else PAGE


def image_link(key: str) -> str:
    fragment = urlencode({"image": visible_text(key)})
    return f"{PAGE}#{fragment}"


def group_names_in_words(names: Iterable[str]) -> list[dict[str, str]]:
    return [{"id": name, "name": in_words(name)} for name in names]


def failures_data(
    subject: Subject,
    answered: NDArray[np.integer[Any]],
    correct: Bools,
    confidence: Floats32,
    chosen: ChosenFailures,
    models: Sequence[ShownModel],
    order: Sequence[str],
) -> dict[str, Any]:
    """Return what the script of a card reads, for models that give an image one answer.

    answered, correct, confidence: (n, models); NaN where a model gives no confidence. order: the
    groups as the page lists them.
    """
    images = chosen.images
    position_of = {row: number for number, row in enumerate(images.tolist())}
    group_ranks = [order.index(group.name) for group in subject.groups]
    ranks = np.array(group_ranks)[subject.shifts]
    labels = subject.labels
    rows = chosen.rows
    listed = np.lexsort((rows, labels[rows], ranks[rows]))
    names: dict[str, int] = {}
    models_data = []
    for number, (model, called, note) in enumerate(models):
        name_indices = []
        outputs, inverse = np.unique(answered[images, number], return_inverse=True)
        for output in outputs.tolist():
            name = called(output)
            index = names.setdefault(name, len(names))
            name_indices.append(index)
        answers = np.array(name_indices, dtype=np.int64)[inverse]
        right = correct[images, number].astype(int)
        share = confidence[images, number]
        known = np.nan_to_num(share)
        percents = np.rint(100 * known).astype(int)
        percents[np.isnan(share)] = -1
        data = {
            "name": model,
            "note": note,
            "answers": answers.tolist(),
            "shares": percents.tolist(),
            "right": "".join(map(str, right)),
        }
        models_data.append(data)
    paths: Sequence[str | None] | None = subject.paths
    if paths is not None:
        paths = [paths[row] for row in images]
    sheets = []
    for number, squares in enumerate(sheet_rows(len(images))):
        sheets.append({"file": sheet_file(number), "rows": squares})
    classes = []
    for cls in subject.classes:
        classes.append({"id": cls.id, "name": cls.name})
    failures = []
    partners = []
    for row, partner in zip(rows[listed], chosen.partners[listed], strict=True):
        failures.append(position_of[row])
        partners.append(position_of.get(partner, -1))
    return {
        "models": models_data,
        "base": subject.groups[0].name if subject.base else None,
        "shifts": group_names_in_words(order),
        "classes": classes,
        "names": list(names),
        "keys": [subject.keys[row] for row in images],
        "paths": paths,
        "shift": ranks[images].tolist(),
        "class": labels[images].tolist(),
        "failures": failures,
        "partners": partners,
        "sheets": sheets,
        "columns": COLUMNS,
        "imagesASheet": IMAGES_A_SHEET,
    }


COLUMNS = 12
IMAGES_A_SHEET = COLUMNS * COLUMNS
# The longer side of a picture in pixels; a smaller image keeps its size.
SIDE = 128


def sprite_sheets(pictures: Iterable[Image | None]) -> Iterator[bytes]:
    """Draw WebP sheets of pictures in order, in rows of `COLUMNS`; None leaves its square empty."""
    from PIL import Image

    left = iter(pictures)
    while of_sheet := list(islice(left, IMAGES_A_SHEET)):
        small = []
        side = 1
        for picture in of_sheet:
            shown = picture and thumbnail(picture, SIDE)
            small.append(shown)
            if shown is not None:
                side = max(side, *shown.size)
        rows = math.ceil(len(small) / COLUMNS)
        width = COLUMNS * side
        height = rows * side
        sheet = Image.new("RGBA", (width, height))
        for index, shown in enumerate(small):
            if shown is None:
                continue
            row, column = divmod(index, COLUMNS)
            across = column * side
            across += (side - shown.width) // 2
            down = row * side
            down += (side - shown.height) // 2
            sheet.paste(shown, (across, down))
        yield encode_webp(sheet, 80)


def sheet_rows(total: int) -> list[int]:
    """Return how many rows of squares each sheet of `total` pictures has."""
    rows = []
    for left in range(total, 0, -IMAGES_A_SHEET):
        images = min(IMAGES_A_SHEET, left)
        rows.append(math.ceil(images / COLUMNS))
    return rows
