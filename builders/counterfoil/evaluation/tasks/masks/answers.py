"""The classes that a segmenter gives the pixels of every image: of a folder or a table of masks, or
of a model that runs here.

Only the cells of each image's confusion matrix are kept, how many pixels of a class have which
answer, and how well each class's boundary is found.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.data.labelled_images import rows_of
from counterfoil.data.masks import PixelClasses, decoded_mask
from counterfoil.errors import ProblemLine, UserError, first_of
from counterfoil.evaluation.messages import message, refusal
from counterfoil.evaluation.tasks.masks.subject import MaskSubject
from counterfoil.evaluation.tasks.objects.categories import map_names
from counterfoil.foreign_tables import IMAGES, TEXT, read_foreign_parquet
from counterfoil.mask_stats import PixelCounts, boundary_f1, confusion, other_meanings
from counterfoil.models.classifiers.of_python import in_eval_mode
from counterfoil.models.segmenters.segmenter import Segmenter
from counterfoil.prediction.answer_cache import AnswerCache, Columns, answers_key, join_stretches
from counterfoil.prediction.asking import AskedFunction, Pass
from counterfoil.progress import track
from counterfoil.recipe.names import PREDICTIONS
from counterfoil.recipe.tasks.masks import MASK, UNLABELLED
from counterfoil.regular_files import UnfitFile, named_path, open_regular, read_regular
from counterfoil.report.words import format_list, format_percent
from counterfoil.store.decoding import UnreadableImage, rgb_image
from counterfoil.store.inside import list_files

Segmenting = Callable[[list[Any]], Sequence[Any]]
_MOST_BYTES = 1 << 26
_MOST_FILES = 20_000_000
_MOST_NAMED = 4
_COLUMNS = {"key": (TEXT,), MASK: (IMAGES,)}


@dataclass(frozen=True)
class ModelMasks:
    """The answers of a segmenter to all images, as cells of their confusion matrices: the row of
    the image, the true and the answered class, the number of pixels, and the boundary F1 of a class
    where it is both."""

    name: str
    cells: Columns
    matched: str = ""
    """A sentence on how classes were matched."""
    sha256: str = ""
    """The hash of the files or of the model's weights, if known."""
    again: Callable[[Sequence[int]], Iterator[tuple[int, PixelClasses]]] = lambda rows: iter(())
    """Gives the answers to some rows once more, as large as their masks: no evaluation keeps them."""

    def of_group(self, subject: MaskSubject, group: int) -> PixelCounts:
        """Return the counts of a group's images, by their numbers."""
        row = self.cells["row"]
        image = subject.number_of[row]
        in_group = subject.dataset.shifts[row] == group
        chosen = in_group & (image >= 0)
        others = [self.cells[name] for name in ("true", "answered", "pixels")]
        cells = np.stack([image, *others])
        boundary = self.cells["boundary"]
        return PixelCounts.of(
            cells[:, chosen],
            boundary[chosen],
            subject.images,
            len(subject.classes),
        )

    def likely_order(self, subject: MaskSubject) -> str:
        """Return words for the order that its numbers seem to have on the base; empty if that is
        the order in which they were read."""
        classes = len(subject.classes)
        row = self.cells["row"]
        of_base = subject.dataset.shifts[row] == 0
        compared = subject.number_of[row] >= 0
        chosen = of_base & compared
        true = self.cells["true"][chosen]
        answered = self.cells["answered"][chosen]
        pixels = self.cells["pixels"][chosen]
        counts = np.zeros((classes, classes + 1), np.int64)
        np.add.at(counts, (true, answered), pixels)
        names = [*subject.classes, "no class"]
        meant = []
        for label, answer, iou in other_meanings(counts):
            percent = format_percent(iou)
            meant.append(f"{names[answer]} is where {names[label]} is (IoU {percent})")
        if not meant:
            return ""
        return f"to be in another order: its {format_list(meant, _MOST_NAMED)}"


def image_cells(subject: MaskSubject, row: int, answer: PixelClasses) -> Columns:
    """Return the cells of one image. answer: classes by the dataset's numbers, as large as its
    mask."""
    truth = subject.mask(subject.number_of[row])
    classes = len(subject.classes)
    matrix = confusion(truth, answer, classes)
    boundary = np.full(matrix.shape, np.nan)
    np.fill_diagonal(boundary, boundary_f1(truth, answer, classes))
    kept = (matrix > 0) | np.isfinite(boundary)
    true, answered = np.nonzero(kept)
    return {
        "row": np.full(len(true), row),
        "true": true,
        "answered": answered,
        "pixels": matrix[true, answered],
        "boundary": boundary[true, answered],
    }


def read_masks(name: str, subject: MaskSubject, names: Sequence[str] | None) -> ModelMasks:
    """Read `predictions:FOLDER` or `predictions:FILE.parquet`. names: those of its numbers; None: the
    dataset's own.

    Raise UserError with all images that have no mask there, or one that cannot be used.
    """
    path = named_path(name.removeprefix(PREDICTIONS))
    read = _table if path.is_file() else _files
    number_of, matched = dataset_numbers(name, names, subject)
    digests: dict[str, str] = {}
    problems: list[ProblemLine] = []
    parts: list[Columns] = []

    def answer(row: int, encoded: bytes) -> PixelClasses:
        height, width = subject.shape(row)
        numbers = decoded_mask(encoded, (width, height))
        return as_dataset(name, numbers, number_of)

    def again(rows: Sequence[int]) -> Iterator[tuple[int, PixelClasses]]:
        for row, encoded in read(name, path, subject, rows):
            yield row, answer(row, encoded)

    rows = sorted(subject.rows.ravel().tolist())
    written = read(name, path, subject, rows)
    for row, encoded in track(written, f"reading {name}", len(rows)):
        key = subject.dataset.keys[row]
        try:
            cells = image_cells(subject, row, answer(row, encoded))
            parts.append(cells)
            digests[key] = hashlib.sha256(encoded).hexdigest()
        except UnreadableImage as error:
            problems.append(message("invalid-masks.file", f"{name}: {key}", error))
        except UserError as error:
            problems += [problem.with_end(f" ({key})") for problem in error.problems]
    if problems:
        raise UserError(first_of(problems), message.advice["invalid-masks"])
    # The hash of a table is that of a folder of the same masks.
    lines = [f"{key} {digests[key]}\n" for key in sorted(digests)]
    text = "".join(lines)
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    return ModelMasks(name, join_stretches(parts), matched, sha256, again)


def _files(
    name: str,
    folder: Path,
    subject: MaskSubject,
    rows: Sequence[int],
) -> Iterator[tuple[int, bytes]]:
    """Yield each row and the file of its image. Raise UserError if the folder lacks one."""
    if not folder.is_dir():
        raise refusal("invalid-masks.folder", name)
    files: dict[str, PurePosixPath] = {}
    again: dict[str, PurePosixPath] = {}
    for listed in list_files(folder, most=_MOST_FILES).files:
        path = PurePosixPath(listed)
        if path.suffix.lower() == ".png" and files.setdefault(path.stem, path) != path:
            again[path.stem] = path
    key_of = {row: subject.dataset.keys[row] for row in rows}
    lacking = [row for row, key in key_of.items() if key not in files]
    _refuse_lacking(name, subject, lacking)
    for key in key_of.values():
        if key in again:
            two = f"{files[key]} and {again[key]}"
            raise refusal("invalid-masks.two", name, key, files=two)
    for row, key in key_of.items():
        file = files[key]
        try:
            encoded = read_regular(folder / file, _MOST_BYTES, follow=False)
        except OSError as error:
            raise refusal("invalid-masks.file", f"{name}: {file}", error) from error
        yield row, encoded


def _table(
    name: str,
    path: Path,
    subject: MaskSubject,
    rows: Sequence[int],
) -> Iterator[tuple[int, bytes]]:
    """Yield each row and the mask of its image, in the order of a Parquet table. Raise UserError if
    it lacks one, has one twice, or cannot be read."""
    import pyarrow as pa

    if path.suffix.lower() != ".parquet":
        raise refusal("invalid-masks.table", name)
    row_of = {key: row for row, key in enumerate(subject.dataset.keys)}
    lacking = set(rows)
    seen: set[int] = set()
    try:
        with open_regular(path) as file:
            for batch in read_foreign_parquet(file, _COLUMNS, most_rows=len(row_of)):
                keys, masks = (column.to_pylist() for column in batch.columns)
                for key, encoded in zip(keys, masks, strict=True):
                    stem = PurePosixPath(key or "").stem
                    row = row_of.get(key, row_of.get(stem))
                    if row is None or row in seen:
                        problem = "twice"
                        if row is None:
                            problem = "image"
                        raise refusal(f"invalid-masks.{problem}", name, key)
                    seen.add(row)
                    if row in lacking:
                        lacking.remove(row)
                        yield row, encoded or b""
    except UnfitFile as error:
        raise refusal("invalid-masks.file", name, error) from error
    except (pa.ArrowException, OSError, ValueError) as error:
        raise refusal("invalid-masks.read", name, error) from error
    _refuse_lacking(name, subject, sorted(lacking))


def _refuse_lacking(name: str, subject: MaskSubject, rows: Sequence[int]) -> None:
    if rows:
        keys = [subject.dataset.keys[row] for row in rows]
        raise refusal("missing-answers.masks", name, keys, count=len(rows))


def run_segmenter(
    name: str,
    opened: Callable[[], AbstractContextManager[Segmenting]],
    subject: MaskSubject,
    names: Sequence[str] | None,
    batch_size: int,
    device: str = "cpu",
) -> ModelMasks:
    """Ask a segmenter about every image.

    opened: gives it for a while; it takes a list of RGB images and returns an answer to each
    (`_ANSWERS`), of any size. names: the name of each number; None: the segmenter's `label_names`.
    Raise UserError if there are no names, or if an answer has another form.
    """
    dataset = subject.dataset
    rows = np.unique(subject.rows)
    images = rows_of(dataset.labelled(), rows)
    with opened() as segmenter:
        if names is None:
            names = getattr(segmenter, "label_names", None)
        if names is None:
            raise refusal("class-order.classes", name)
        number_of, matched = dataset_numbers(name, names, subject)

        def numbers(answer: Any, row: int) -> PixelClasses:
            classes = len(number_of) - 1
            of_model = class_numbers(name, answer, subject.shape(row), classes)
            return as_dataset(name, of_model, number_of)

        def columns(answer: Any, image: int) -> Columns:
            row = int(rows[image])
            return image_cells(subject, row, numbers(answer, row))

        cache = None
        if isinstance(segmenter, Segmenter):
            key = answers_key(
                device,
                data=images.content,
                weights=segmenter.sha256,
                input=segmenter.input_key,
                names=list(names),
            )
            folder = dataset.workplace / "segmentations"
            cache = AnswerCache(folder, name, key, len(images), are_cells)
        asking = AskedFunction(name, segmenter, images, columns)
        passing = Pass(images, f"segmenting with {name}", batch_size, device)
        cells = passing.answers_of(asking, cache)
        sha256 = getattr(segmenter, "sha256", "")

    def again(chosen: Sequence[int]) -> Iterator[tuple[int, PixelClasses]]:
        row_of = {dataset.keys[row]: row for row in chosen}
        with opened() as segmenter:
            for key, encoded in dataset.images(frozenset(row_of)):
                row = row_of[key]
                (answer,) = segmenter([rgb_image(encoded)])
                yield row, numbers(answer, row)

    return ModelMasks(name, cells, matched, sha256, again)


def are_cells(columns: Columns, rows: range) -> bool:
    """Return whether columns can be the cells of some images' confusion matrices."""
    kinds = {name: column.dtype.kind for name, column in columns.items()}
    numbers = ("row", "true", "answered", "pixels")
    expected = dict.fromkeys(numbers, "i")
    expected["boundary"] = "f"
    if kinds != expected:
        return False
    return all((columns[name] >= 0).all() for name in numbers)


def dataset_numbers(
    name: str,
    names: Sequence[str] | None,
    subject: MaskSubject,
) -> tuple[NDArray[np.uint8], str]:
    """Return the dataset's class of each of a model's numbers, 255 for none, with a last entry for
    no class; and a sentence on how they were matched."""
    classes = subject.classes
    if names is None:
        own_numbers = [*range(len(classes)), UNLABELLED]
        return np.array(own_numbers, np.uint8), ""
    matched = map_names(list(map(str, names)), classes, name)
    number_of = np.full(len(names) + 1, UNLABELLED, np.uint8)
    for number, label in matched.index_of.items():
        number_of[number] = label
    return number_of, matched.matched


def as_dataset(name: str, numbers: NDArray[Any], number_of: NDArray[np.uint8]) -> PixelClasses:
    """Return a model's numbers as the dataset's. Raise UserError for one that has no name."""
    known = len(number_of) - 1
    unnamed = (numbers >= known) & (numbers != UNLABELLED)
    unnamed |= numbers < 0
    odd = np.unique(numbers[unnamed])
    if odd.size:
        raise refusal("invalid-masks.number", name, odd[0], known - 1)
    return number_of[np.minimum(numbers, known)]


def class_numbers(name: str, answer: Any, shape: tuple[int, ...], classes: int) -> NDArray[Any]:
    """Return the class of each pixel of one answer, [height, width] of this shape.

    Scores are interpolated as processors of transformers do, and classes taken from the nearest
    pixel. Raise UserError for an answer of another form.
    """
    import torch
    from torch.nn.functional import interpolate

    given = answer.detach() if torch.is_tensor(answer) else np.asarray(answer)
    values = torch.as_tensor(given)
    floating = values.is_floating_point()
    turned = shape[::-1]
    if values.shape[-2:] == turned != shape:
        raise refusal("invalid-masks.sides", name, str([*turned]), str([*shape]))
    if values.ndim == 3 and floating and len(values) == classes:
        scores = values.float().cpu()[None]
        if not torch.isfinite(scores).all():
            raise refusal("invalid-masks.finite", name)
        if scores.shape[2:] != shape:
            scores = interpolate(
                scores,
                size=shape,
                mode="bilinear",
                align_corners=False,
            )
        best = scores[0].argmax(dim=0)
        return best.numpy()
    if values.ndim != 2 or floating or values.is_complex():
        raise refusal(
            "invalid-masks.shape",
            name,
            f"{list(values.shape)}",
            dtype=f"{values.dtype}",
            classes=classes,
        )
    numbers = values.cpu().to(torch.int64)
    if numbers.shape != shape:
        # Each pixel takes the one whose middle is nearest, as Pillow does.
        places = []
        for new, old in zip(shape, numbers.shape, strict=True):
            middles = (2 * torch.arange(new) + 1) * old
            nearest = torch.div(middles, 2 * new, rounding_mode="floor")
            places.append(nearest)
        down, across = places
        numbers = numbers[down][:, across]
    return numbers.numpy()


@contextmanager
def as_segmenter(
    name: str,
    model: Any,
    transform: Callable[[Any], Any] | None,
    device: str,
) -> Iterator[Segmenting]:
    """Yield a callable as a segmenter, on a device if it is a torch module.

    A module answers one image at a time, as `transform` prepares it. Its output is a tensor, or has
    it as `out` (torchvision) or `logits`. Raise UserError for a module without a transform.
    """
    import torch

    if not isinstance(model, torch.nn.Module):
        yield model
        return
    if transform is None:
        raise refusal("unusable-model.transform", name)

    def segment(images: list[Any]) -> list[Any]:
        answers = []
        for image in images:
            prepared = transform(image)[None]
            output = model(prepared.to(device))
            if isinstance(output, Mapping):
                output = output.get("out", output)
            logits = getattr(output, "logits", output)
            answers.append(logits[0])
        return answers

    segment.__dict__["label_names"] = getattr(model, "label_names", None)
    homes = (tensor.device for tensor in model.parameters())
    home = next(homes, device)
    with torch.no_grad(), in_eval_mode(model):
        try:
            model.to(device)
            yield segment
        finally:
            model.to(home)
