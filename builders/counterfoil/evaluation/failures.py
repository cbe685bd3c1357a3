"""Pictures of what models get wrong: the failure browser beside the report, and the pairs that the report shows.

The browser's pictures are in sheets of 144, which its page loads as they come into view. The page is written last.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import numpy as np
from numpy.typing import NDArray

from counterfoil import __version__
from counterfoil.documents import csv_text
from counterfoil.errors import UserError
from counterfoil.evaluation.dataset import Subject
from counterfoil.evaluation.tasks.classes.answers import AllAnswers, ModelAnswers, answer_names
from counterfoil.foreign_tables import parquet_bytes
from counterfoil.progress import report
from counterfoil.recipe.names import did_you_mean
from counterfoil.regular_files import named_path, open_regular, visible
from counterfoil.report.pictures import data_uri, thumbnail, webp
from counterfoil.report.results import Results, classes_of
from counterfoil.report.templates import template_environment
from counterfoil.report.words import in_words
from counterfoil.store.atomic import disk_errors, make_folder, temporary_folder, try_folder, write_atomically
from counterfoil.store.decoding import open_image, rgb_image

if TYPE_CHECKING:
    from PIL.Image import Image


_OWN = re.compile(r"\d{4,}\.webp")


def write_failures(results: Results, answered: AllAnswers, folder: Path) -> Path:
    """Write the failure browser; return its page in `folder`. Only the images that it shows are read again."""
    subject, answers = answered.subject, answered.answers
    built = [index for index, group in enumerate(subject.groups) if index and group.candidates is not None]
    partners = _partners(answered, built)
    chosen = choose_failures(answers.correct, answers.readable, subject.labels, subject.shifts, partners)
    levels = {names[-1]: names for curve in results.severity if (names := [level.group for level in curve.levels])}
    order = [name for shift in results.by_impact for name in levels.get(shift.name, [shift.name])]
    order += [results.base] if results.base is not None else []
    near = "near chance on the base" if subject.base else "near chance"
    models = [
        (model.name, answer_names(subject.classes, class_map), near if model.near_chance else "")
        for model, class_map in zip(results.models, answered.maps, strict=True)
    ]
    data = failures_data(subject, answers, answered.confidence, chosen, models, order)
    paired = any(subject.groups[index].paired for index in built)
    changed = results.label_checks is not None and results.label_checks.own
    html = failures_html(results.dataset, data, chosen, len(subject.keys), paired, changed, results.preview_sentence)
    pictures = _pictures(subject, frozenset(subject.keys[row] for row in chosen.images))
    return write_browser(folder, html, pictures, len(chosen.images))


def write_browser(folder: Path, html: str, pictures: Iterable[Image | None], images: int) -> Path:
    """Write the sheets of so many pictures, then the page; return its path."""
    sheets = ((sheet_file(number), sheet) for number, sheet in enumerate(sprite_sheets(pictures)))
    return write_page(folder, html, sheets, len(sheet_rows(images)))


def write_page(folder: Path, html: str, pictures: Iterable[tuple[str, bytes]], total: int) -> Path:
    """Write so many pictures (path below the folder, content), then the page of failures; return its path."""
    make_folder(folder / FOLDER)
    written: set[str] = set()
    for file, content in pictures:
        write_atomically(folder / file, content)
        written.add(Path(file).name)
        report("pictures of failures", len(written), total)
    page = (folder / PAGE).resolve()
    write_atomically(page, html.encode())
    for old in (folder / FOLDER).iterdir():
        if _OWN.fullmatch(old.name) and old.name not in written:
            old.unlink()  # left by an evaluation with more failures
    return page


def _pictures(subject: Subject, keys: frozenset[str]) -> Iterator[Image | None]:
    for part in subject.parts:
        part_keys = frozenset(key.removeprefix(part.prefix) for key in keys if key.startswith(part.prefix))
        if part_keys:
            yield from (part.images.decoded(encoded) for _, encoded in part.images.images(part_keys))


# A page with more failures loads slowly, and its pictures take several hundred megabytes.
MOST_FAILURES = 20_000
# An answer with its confidence takes about eight bytes of the page.
MOST_ANSWERS = 800_000


@dataclass(frozen=True)
class ChosenFailures:
    """The f failures to show. rows: (f,), their rows in the dataset's order.

    partners: (f,), the rows of their base images, -1 for no base image. count: the number of images that some model
    gets wrong, shown or not.
    """

    rows: NDArray[np.int64]
    partners: NDArray[np.int64]
    count: int

    @property
    def images(self) -> NDArray[np.int64]:
        """The rows of all images to show, ascending and unique."""
        return np.union1d(self.rows, self.partners[self.partners >= 0])


def base_partners(
    labels: NDArray[np.int64],
    groups: NDArray[np.int64],
    indices: NDArray[np.int64],
    readable: NDArray[np.bool_],
    shifts: Sequence[int],
) -> NDArray[np.int64]:
    """Return for each readable shifted image the row of its base image (same class and index), (n,); else -1."""
    partners = np.full(len(labels), -1, dtype=np.int64)
    cells = list(zip(labels.tolist(), indices.tolist(), strict=True))
    base = {cells[row]: row for row in np.flatnonzero((groups == 0) & readable).tolist()}
    for row in np.flatnonzero(np.isin(groups, list(shifts)) & readable).tolist():
        partners[row] = base.get(cells[row], -1)
    return partners


def _partners(answered: AllAnswers, shifts: Sequence[int]) -> NDArray[np.int64]:
    subject, readable = answered.subject, answered.answers.readable
    shifts = shifts if subject.base else ()
    return base_partners(subject.labels, subject.shifts, subject.indices, readable, shifts)


def choose_failures(
    correct: NDArray[np.bool_],
    readable: NDArray[np.bool_],
    labels: NDArray[np.int64],
    groups: NDArray[np.int64],
    partners: NDArray[np.int64],
    most: int | None = None,
) -> ChosenFailures:
    """Return the readable images that at least one model gets wrong, in the dataset's order; correct: (n, models).

    If there are more than `most`, each cell (group and class) gives the same number of images. A flipped image
    is one that a model gets wrong although it is right on the base image. Images that most models flip come first, then
    images that most models get wrong.
    """
    most = min(MOST_FAILURES, max(1, MOST_ANSWERS // correct.shape[1])) if most is None else most
    wrong = ~correct & readable[:, None]
    rows = np.flatnonzero(wrong.any(axis=1))
    failures = len(rows)
    if failures > most:
        paired = partners[rows] >= 0
        flips = (wrong[rows] & correct[partners[rows]]).sum(axis=1) * paired
        cells = groups[rows] * (int(labels.max()) + 1) + labels[rows]
        order = np.lexsort((rows, -wrong[rows].sum(axis=1), -flips, cells))
        _, starts = np.unique(cells[order], return_index=True)
        sizes = np.diff(np.append(starts, failures))
        rank = np.empty(failures, dtype=np.int64)
        rank[order] = np.arange(failures) - np.repeat(starts, sizes)
        rows = np.sort(rows[np.lexsort((cells, rank))[:most]])
    return ChosenFailures(rows, partners[rows], failures)


TEMPLATE = "failures.html.j2"
PAGE = "failures.html"
FOLDER = "failures"


def sheet_file(number: int) -> str:
    return f"{FOLDER}/{number:04d}.webp"


def failures_link(model: str = "", shift: str = "", class_id: str = "") -> str:
    """Return the browser's address, relative to the report, with a filter."""
    named = {"model": model, "shift": shift, "class": class_id}
    fragment = urlencode({name: visible(value) for name, value in named.items() if value})
    return f"{PAGE}#{fragment}" if fragment else PAGE


def image_link(key: str) -> str:
    return f"{PAGE}#{urlencode({'image': visible(key)})}"


def failures_data(
    subject: Subject,
    answers: ModelAnswers,
    confidence: NDArray[np.float32],
    chosen: ChosenFailures,
    models: Sequence[tuple[str, Callable[[int], str], str]],
    order: Sequence[str],
) -> dict[str, Any]:
    """Return the data of the page's script. confidence: (n, models), NaN if a model gives none.

    models: name, function from an output to its name, and a note. order: the groups as the page lists them.
    """
    images = chosen.images
    position_of = {int(row): number for number, row in enumerate(images)}
    rank = {name: number for number, name in enumerate(order)}
    group_rank = np.array([rank[group.name] for group in subject.groups])
    listed = np.lexsort((chosen.rows, subject.labels[chosen.rows], group_rank[subject.shifts[chosen.rows]]))
    names: dict[str, int] = {}
    models_data, paths = [], subject.paths
    for number, (model, called, note) in enumerate(models):
        outputs, inverse = np.unique(answers.prediction[images, number], return_inverse=True)
        name_indices = np.array(
            [names.setdefault(called(int(output)), len(names)) for output in outputs], dtype=np.int64
        )
        share = confidence[images, number]
        models_data.append(
            {
                "name": model,
                "note": note,
                "answers": name_indices[inverse].tolist(),
                "shares": np.where(np.isnan(share), -1, np.rint(100 * np.nan_to_num(share))).astype(int).tolist(),
                "right": "".join("1" if right else "0" for right in answers.correct[images, number].tolist()),
            }
        )
    return {
        "models": models_data,
        "base": subject.groups[0].name if subject.base else None,
        "shifts": [{"id": name, "name": in_words(name)} for name in order],
        "classes": [{"id": cls.id, "name": cls.name} for cls in subject.classes],
        "names": list(names),
        "keys": [subject.keys[row] for row in images],
        "paths": None if paths is None else [paths[row] for row in images],
        "shift": group_rank[subject.shifts[images]].tolist(),
        "class": subject.labels[images].tolist(),
        "failures": [position_of[int(row)] for row in chosen.rows[listed]],
        "partners": [position_of.get(int(row), -1) for row in chosen.partners[listed]],
        "sheets": [{"file": sheet_file(at), "rows": rows} for at, rows in enumerate(sheet_rows(len(images)))],
        "columns": COLUMNS,
        "imagesASheet": IMAGES_A_SHEET,
    }


def failures_html(
    name: str,
    data: dict[str, Any],
    chosen: ChosenFailures,
    images: int,
    paired: bool,
    changed: bool = False,
    preview: str = "",
    labels: bool = False,
) -> str:
    """Return the page as text. images: how many were scored. labels: whether each is one of several of an image."""
    environment = template_environment(TEMPLATE)
    return environment.get_template(TEMPLATE).render(
        name=name,
        preview=preview,
        data=data,
        found=chosen.count,
        shown=len(chosen.rows),
        images=images,
        paired=paired,
        changed=changed,
        labels=labels,
        pairs=bool((chosen.partners >= 0).any()),
        version=__version__,
    )


COLUMNS = 12
IMAGES_A_SHEET = COLUMNS * COLUMNS
# The longer side of a picture in pixels; a smaller image keeps its size.
SIDE = 128


def sprite_sheets(pictures: Iterable[Image | None]) -> Iterator[bytes]:
    """Draw WebP sheets of pictures in order, in rows of `COLUMNS`; None leaves its square empty."""
    from PIL import Image

    left = iter(pictures)
    while small := [None if picture is None else thumbnail(picture, SIDE) for picture in islice(left, IMAGES_A_SHEET)]:
        side = max((max(picture.size) for picture in small if picture is not None), default=1)
        sheet = Image.new("RGBA", (COLUMNS * side, -(-len(small) // COLUMNS) * side))
        for index, picture in enumerate(small):
            if picture is not None:
                across, down = ((side - length) // 2 for length in picture.size)
                sheet.paste(picture, (index % COLUMNS * side + across, index // COLUMNS * side + down))
        yield webp(sheet, 80)


def sheet_rows(total: int) -> list[int]:
    """Return how many rows of squares each sheet of `total` pictures has."""
    return [-(-min(IMAGES_A_SHEET, total - start) // COLUMNS) for start in range(0, total, IMAGES_A_SHEET)]


# Columns that a table of an earlier version may lack.
_LATER = ("path", "class")
_COLUMNS = ("model", "key", "path", "label", "class", "answered", "confidence", "shift")


def failures_frame(predictions: Path, models: Sequence[str], model: str | None = None) -> Any:
    """Return a row per image and model that is wrong about it, most confident first. See `Evaluation.failures`."""
    import pyarrow as pa
    import pyarrow.compute
    import pyarrow.parquet as pq

    if model is not None and model not in models:
        raise UserError(
            f"model {model!r} was not evaluated{did_you_mean(model, models)}", f"Evaluated models: {', '.join(models)}."
        )
    functions: Any = pyarrow.compute
    try:
        with open_regular(predictions) as opened:
            parquet_bytes(opened)
        file = pq.ParquetFile(predictions)
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"{predictions} cannot be read: {error}", "Run the evaluation again to write it.") from error
    names = file.schema_arrow.names
    tables = []
    with file:
        for name in [model] if model is not None else models:
            model_columns = {f"{column}.{name}": column for column in ("answered", "confidence", "right")}
            known = ("key", "label", "shift", *_LATER)
            table = file.read(columns=[column for column in (*known, *model_columns) if column in names])
            wrong = table.filter(functions.invert(table[f"right.{name}"]))
            wrong = wrong.rename_columns([model_columns.get(column, column) for column in wrong.column_names])
            tables.append(wrong.append_column("model", pa.array([name] * wrong.num_rows, pa.string())))
    frame = pa.concat_tables(tables).to_pandas().reindex(columns=list(_COLUMNS)).astype({"path": object})
    frame["path"] = frame["path"].where(frame["path"].notna(), None)
    return frame.sort_values("confidence", ascending=False, kind="stable", ignore_index=True)


# A report is one file: these bound its size (about 1 MB of thumbnails for 24 shifts).
MOST_SHIFTS = 24
CLASSES_A_SHIFT = 3
PAIRS_A_CLASS = 2
THUMBNAIL = 96


@dataclass(frozen=True)
class FlippedPair:
    """A base image and its shifted partner; `flipped` models were right on the base image and wrong on the other.

    `answer` is the most frequent answer of those models to the shifted image; `answered` of them gave it.
    """

    base_key: str
    shift_key: str
    base_image: str
    shift_image: str
    flipped: int
    answer: str
    answered: int


# `ClassExamples` is a class with a large drop: its name, its drop averaged over models, and flipped pairs.
ClassExamples = tuple[str, float, list[FlippedPair]]


def pick_examples(answered: AllAnswers, results: Results) -> list[tuple[str, list[ClassExamples]]]:
    """Return the classes that drop most, for shifts of the largest impact, with the pairs that most models flip."""
    subject, classes = answered.subject, answered.subject.classes
    # Images that were not built form no pairs.
    built = [shift.name for shift in results.shifts if shift.candidates is not None]
    impacts = {name: results.rows.value("impact", group=name) for name in built}
    worst = sorted((-value, index) for index, value in enumerate(impacts.values()) if value is not None)[:MOST_SHIFTS]
    index_of = {group.name: index for index, group in enumerate(subject.groups)}
    partners = _partners(answered, [index_of[name] for name in built])
    chosen: list[tuple[str, int, float, list[_Flipped]]] = []
    for _, at in worst:
        drops = {
            facts.class_id: facts.impact.value for facts in classes_of(results, built[at]) if facts.impact is not None
        }
        number = 0
        for cls in sorted(classes, key=lambda cls: (-drops.get(cls.id, 0.0), cls.label)):
            if drops.get(cls.id, 0.0) <= 0 or number == CLASSES_A_SHIFT:
                break
            if pairs := _flipped(answered, partners, index_of[built[at]], cls.label):
                chosen.append((built[at], cls.label, drops[cls.id], pairs))
                number += 1
    shown = frozenset(subject.keys[row] for *_, pairs in chosen for base, row, _ in pairs for row in (base, row))
    pictures = {
        key: data_uri(webp(rgb_image(encoded), 88, THUMBNAIL))  # only readable rows are chosen
        for key, encoded in (subject.images(shown) if shown else ())
    }
    called = [answer_names(classes, class_map) for class_map in answered.maps]
    examples: dict[str, list[ClassExamples]] = {}
    for shift, label, drop, pairs in chosen:
        flipped = []
        for base, row, models in pairs:
            counts = Counter(called[model](int(answered.answers.prediction[row, model])) for model in models)
            most = min(counts, key=lambda name: (-counts[name], name))
            keys = subject.keys[base], subject.keys[row]
            flipped.append(FlippedPair(*keys, pictures[keys[0]], pictures[keys[1]], len(models), most, counts[most]))
        examples.setdefault(shift, []).append((classes[label].name, drop, flipped))
    return list(examples.items())


# Rows of a base image and of its shifted partner, and the models that flipped.
_Flipped = tuple[int, int, NDArray[np.int64]]


def _flipped(answered: AllAnswers, partners: NDArray[np.int64], shift: int, label: int) -> list[_Flipped]:
    subject, correct = answered.subject, answered.answers.correct
    rows = np.flatnonzero((subject.labels == label) & (subject.shifts == shift) & (partners >= 0))
    pairs = []
    for row, partner in zip(rows.tolist(), partners[rows].tolist(), strict=True):
        models = np.flatnonzero(correct[partner] & ~correct[row])
        if models.size:
            pairs.append((partner, row, models))
    return sorted(pairs, key=lambda pair: (-pair[2].size, pair[1]))[:PAIRS_A_CLASS]


_LONGEST_STEM = 100
_SUFFIXES = {"jpeg": "jpg", "mpo": "jpg"}  # Pillow's name of a format → the usual ending
_CSV = ("path", "model", "label", "class", "answered", "confidence", "shift", "key", "base_key", "source_path")


def check_new_folder(folder: str | Path) -> Path:
    """Return the path of a new or empty folder. Raise UserError if it is not empty or cannot be made."""
    path = named_path(folder)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UserError(f"{path} is not an empty folder", "Name a new one: existing files are kept.")
    try_folder(path)
    return path


def write_failure_folder(answered: AllAnswers, folder: str | Path) -> Path:
    """Write the readable images that at least one model gets wrong; return the folder, which appears whole."""
    target = check_new_folder(folder)
    make_folder(target.parent)
    with disk_errors(target), temporary_folder(target) as temporary:
        made = temporary / target.name
        _write(answered, made)
        made.rename(target)  # replaces an empty folder
    return target


def _write(answered: AllAnswers, folder: Path) -> None:
    subject, answers = answered.subject, answered.answers
    rows = np.flatnonzero((~answers.correct & answers.readable[:, None]).any(axis=1)).tolist()
    paired = [index for index, group in enumerate(subject.groups) if index and group.paired]
    partners = _partners(answered, paired)
    row_of = {subject.keys[row]: row for row in rows}
    taken: set[str] = set()
    class_folders = [_stem(cls.name, label, taken) for label, cls in enumerate(subject.classes)]
    fields: set[str] = set()
    columns = [_stem(re.sub(r"\W+", "_", name), index, fields) for index, name in enumerate(answered.models)]
    called = [answer_names(subject.classes, class_map) for class_map in answered.maps]
    stems: set[str] = set()
    lines: list[dict[str, Any]] = []
    samples: list[dict[str, Any]] = []
    coco: dict[str, list[dict[str, Any]]] = {"images": [], "annotations": [], "answers": []}
    for number, (key, encoded) in enumerate(subject.images(frozenset(row_of)), start=1):
        report("images of failures", number, len(rows))
        row = row_of[key]
        with open_image(encoded, photograph=True) as picture:
            (width, height), suffix = picture.size, str(picture.format).lower()
        label, shift = int(subject.labels[row]), subject.groups[subject.shifts[row]].name
        path = f"images/{class_folders[label]}/{_stem(key, row, stems)}.{_SUFFIXES.get(suffix, suffix)}"
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(encoded or b"")
        origin = {
            "shift": shift,
            "key": key,
            "base_key": subject.keys[partners[row]] if partners[row] >= 0 else None,
            "source_path": None if subject.paths is None else subject.paths[row],
        }
        sample = {
            "filepath": path,
            "tags": [shift],
            "ground_truth": {"_cls": "Classification", "tags": [], "label": subject.classes[label].name},
            **origin,
        }
        coco["images"].append({"id": row, "file_name": path, "width": width, "height": height, **origin})
        coco["annotations"].append({"id": row, "image_id": row, "category_id": label})
        for column, model in enumerate(answered.models):
            output, share = int(answers.prediction[row, column]), float(answered.confidence[row, column])
            confidence = None if np.isnan(share) else round(share, 6)
            answer, correct = called[column](output), bool(answers.correct[row, column])
            classification = {"_cls": "Classification", "tags": [], "label": answer, "confidence": confidence}
            sample |= {f"answer_{columns[column]}": classification, f"right_{columns[column]}": correct}
            coco["answers"].append(
                {"image_id": row, "model": model, "answer": answer, "score": confidence, "right": correct}
            )
            if not correct:
                named = {"label": label, "class": subject.classes[label].name, "answered": answer}
                lines.append({"path": path, "model": model, **named, "confidence": confidence, **origin})
        samples.append(sample)
    folder.mkdir(exist_ok=True)
    info = {
        "description": f"Images of {subject.name} that a classifier gets wrong",
        "content": subject.content,
        "models": dict(zip((f"answer_{column}" for column in columns), answered.models, strict=True)),
        "classes": [cls.name for cls in subject.classes],
    }
    categories = [{"id": label, "name": cls.name} for label, cls in enumerate(subject.classes)]
    documents = {
        "coco.json": {"info": info, "categories": categories, **coco},
        # FiftyOne's format without a database version: it infers fields from the samples.
        "metadata.json": {"media_type": "image", "info": info},
        "samples.json": {"samples": samples},
    }
    for name, document in documents.items():
        (folder / name).write_text(visible(json.dumps(document, ensure_ascii=False)), encoding="utf-8")
    (folder / "failures.csv").write_text(csv_text(lines, _CSV), encoding="utf-8")


def _stem(name: str, number: int, taken: set[str]) -> str:
    """Return a unique name for a file or field: its safe characters, and a number if needed."""
    stem = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-_")[:_LONGEST_STEM] or f"{number}"
    while stem.lower() in taken:  # some file systems ignore case
        stem = f"{stem}_{number}"
    taken.add(stem.lower())
    return stem
