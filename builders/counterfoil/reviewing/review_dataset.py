"""`review`: write one HTML page of grids on which people say whether images show their class and
their shift.

The id of an image is a hash of the dataset's content and the image's key. The id of a real control
image is a hash of the same content, the class and a number. Counting answers therefore needs
neither the page nor the input dataset.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from counterfoil import __version__
from counterfoil.data.folders import placed_source
from counterfoil.data.labelled_sources import labelled_split
from counterfoil.data.open_source import open_source
from counterfoil.data.pins import SourcePin
from counterfoil.dataset.card.contact_sheets import decode_reduced, encoded_images
from counterfoil.dataset.card.index_page import write_index
from counterfoil.dataset.label_checks import TASKS, ReviewTask
from counterfoil.dataset.reading import SoundDataset, read_dataset
from counterfoil.documents import sha256_json
from counterfoil.errors import RunFailure, UserError, some_of
from counterfoil.generate.screen.thresholds import open_shifts
from counterfoil.models.loading_errors import reading_errors, skipped_reason
from counterfoil.options import takes
from counterfoil.recipe.prompts import BASE
from counterfoil.regular_files import named_path
from counterfoil.report.pictures import data_uri, encode_webp
from counterfoil.report.templates import template_environment
from counterfoil.report.words import in_words, preview_sentence
from counterfoil.reviewing.answers import FORM, MOST_NAME
from counterfoil.reviewing.grids import (
    CONTROLS,
    IMAGES_A_SHIFT,
    MOST_CONTROLS,
    CandidateImage,
    Chosen,
    Grid,
    RealControl,
    ShownPicture,
    accepted_images,
    choose_images,
    class_grids,
    draw_screened,
    known_ids,
    random_rank,
    shift_grids,
)
from counterfoil.reviewing.options import ReviewOptions
from counterfoil.reviewing.screen_errors import screened_images
from counterfoil.reviewing.screen_scores import refuse_other_shifts
from counterfoil.store.atomic import try_folder, write_atomically
from counterfoil.store.layout import PRIVATE
from counterfoil.store.manifest import content_of_receipts
from counterfoil.store.receipts import preview_images, remake_hint

if TYPE_CHECKING:
    from PIL.Image import Image

    from counterfoil.recipe import Recipe, RecipeClass, Shift
    from counterfoil.store.receipts import Receipt

TEMPLATE = "review.html.j2"
SIDE = 160
_SHEET = 16  # characters of a page's id
_MOST_BYTES = 8_000  # a picture
# Sides and qualities to try in turn until a picture fits: noise compresses badly.
_WAYS = ((SIDE, 75), (SIDE, 50), (SIDE, 25), (SIDE // 2, 50), (SIDE // 2, 10))
_LONGEST = 160
_CAPTIONS_BEGIN = ("a photo of ", "a photo ")
# In the private folder, because the page is not part of the dataset.
PAGE = f"{PRIVATE}/review.html"
MOST_SHIFTS = 100
_MOST_NAMED = 12


def page_of_review(
    recipe: Recipe,
    directory: str,
    content: str,
    grids: Sequence[Grid],
    pictures: Mapping[ShownPicture, str],
    preview: str,
) -> str:
    """Return the page: equal datasets and settings give equal bytes. pictures: data URIs. preview:
    the sentence of a preview, or empty.
    """
    images = [picture for picture in pictures if isinstance(picture, CandidateImage)]
    known = known_ids(content, images, recipe.classes)
    ids = {picture: id for id, picture in known.items()}
    class_questions = {cls.id: asked_of_class(cls) for cls in recipe.classes}
    shift_questions = {shift.name: asked_of_shift(shift) for shift in recipe.all_shifts()}
    shown: list[dict[str, Any]] = []
    described = []
    for grid in grids:
        questions = class_questions if grid.task == "class" else shift_questions
        grid_ids = [ids[picture] for picture in grid.pictures]
        described.append([grid.task, grid.label, grid_ids])
        question = {
            "task": grid.task,
            "label": grid.label,
            "asked": questions[grid.label],
            "shown": grid_ids,
        }
        shown.append(question)
    sheet = sha256_json([content, described])
    uris = {ids[picture]: uri for picture, uri in pictures.items()}
    environment = template_environment(TEMPLATE)
    return environment.get_template(TEMPLATE).render(
        name=recipe.name,
        preview=preview,
        directory=directory,
        data={
            **FORM,
            "content": content,
            "sheet": sheet[:_SHEET],
            "grids": shown,
            "pictures": dict(sorted(uris.items())),
        },
        most_name=MOST_NAME,
        version=__version__,
    )


def read_page_pictures(
    directory: Path,
    receipts: Sequence[Receipt],
    grids: Sequence[Grid],
    real: Mapping[int, Sequence[Image]],
) -> dict[ShownPicture, str]:
    """Return each picture of the grids once. Real controls come first, by label. The dataset's own
    images follow."""
    pictures: dict[ShownPicture, str] = {}
    by_receipt: dict[int, dict[str, CandidateImage]] = {}
    for grid in grids:
        for picture in grid.pictures:
            if isinstance(picture, CandidateImage):
                by_receipt.setdefault(picture.at, {})[picture.key] = picture
            elif picture not in pictures:
                image = real[picture.label][picture.number]
                pictures[picture] = page_picture(image)
    for at, by_key in sorted(by_receipt.items()):
        receipt = receipts[at]
        for what in ("data", "rejected"):
            kept = what == "data"
            keys = {key for key, image in by_key.items() if image.kept == kept}
            if not keys:
                continue
            file = receipt.file(what)
            assert file is not None  # its rows were read
            for key, encoded in encoded_images(directory / file.path, keys):
                image = decode_reduced(encoded, f"{file.path}: {key}", SIDE)
                pictures[by_key[key]] = page_picture(image)
            missing = [key for key in sorted(keys) if by_key[key] not in pictures]
            if missing:
                raise RunFailure(
                    f"{directory / file.path} has no row {missing[0]}",
                    remake_hint(directory, receipt.path),
                )
    return pictures


def page_picture(image: Image) -> str:
    """Return a picture with at most 160 pixels a side."""
    encoded = b""
    for side, quality in _WAYS:
        encoded = encode_webp(image, quality, side)
        if len(encoded) <= _MOST_BYTES:
            break
    return data_uri(encoded)


def asked_of_class(cls: RecipeClass) -> str:
    """Return the question: “Select every image that shows a coat”."""
    name = _short(cls.name)
    # A name that looks plural (“trousers”), or starts without a letter, takes no article.
    plural = name.endswith("s") and not name.endswith(("ss", "us", "is"))
    if not plural and name[:1].isalpha():
        article = "an" if name[0].lower() in "aeiou" else "a"
        name = f"{article} {name}"
    return f"Select every image that shows {name}"


def asked_of_shift(shift: Shift) -> str:
    """Return the question: “Select every image that shows this: in the snow”."""
    caption = " ".join((shift.caption or "").split())
    for beginning in _CAPTIONS_BEGIN:
        if caption.lower().startswith(beginning):
            caption = caption[len(beginning) :]
            break
    return f"Select every image that shows this: {_short(caption or in_words(shift.name))}"


def _short(text: str) -> str:
    text = " ".join(text.split())
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST - 1]}…"
    return text


def _real_images(
    dataset: SoundDataset,
    chosen: Chosen,
    seed: int,
    source: str | None,
) -> tuple[Mapping[int, Sequence[Image]], str | None]:
    """Return real images by label, and a text that says why there are none, if so. If `source` is
    given, an input dataset that cannot be read is an error.
    """
    # Real images are half of the controls of each grid, and a class can have several grids.
    counts = Counter(image.label for image in chosen.images)
    wanted = {}
    for label in chosen.classes:
        grids = 1 + counts[label] // IMAGES_A_SHIFT
        wanted[label] = min(MOST_CONTROLS, CONTROLS // 2 * grids)
    try:
        return _opened(dataset, wanted, seed, source), None
    except reading_errors() as error:
        reason = skipped_reason("the input dataset", error)
        if source is not None:
            raise reason from (None if reason is error else error)
        return {}, reason.reason


def _opened(
    dataset: SoundDataset,
    wanted: Mapping[int, int],
    seed: int,
    source: str | None,
) -> dict[int, list[Image]]:
    recipe = dataset.recipe
    recorded = dataset.lock.inputs.get("source")
    lies = placed_source(recipe.source, recorded)
    if source is not None:
        lies = lies.model_copy(update={"dataset": str(named_path(source).resolve())})
    pin = open_source(lies, recorded, as_recorded=True).pin
    known = SourcePin.of(recorded)
    for name in ("revision", "content"):
        before = getattr(known, name, None)
        now = getattr(pin, name)
        if before is not None and before != now:
            raise UserError(
                f"the input dataset is not the one that the dataset was built from ({name}"
                f" {str(before)[:12]}, here {str(now)[:12]})",
                "If the folder moved, name it with --source PATH.",
            )
    images = labelled_split(lies, lies.validation_split, recipe.classes, pin, units=False)
    chosen: dict[str, int] = {}
    for label, most in wanted.items():
        rows = np.flatnonzero(images.labels == label).tolist()
        keys = [images.keys[row] for row in rows]
        keys.sort(key=lambda key: random_rank(seed, "real", key))
        chosen |= dict.fromkeys(keys[:most], label)
    images_of_label: dict[int, list[Image]] = {}
    for key, encoded in images.images(frozenset(chosen)):
        image = images.decoded(encoded)
        if image is not None:
            image.thumbnail((SIDE, SIDE))  # at once: photographs may be large
            images_of_label.setdefault(chosen[key], []).append(image)
    return images_of_label


@dataclass(frozen=True, slots=True)
class ReviewPage:
    """The written page and its content."""

    directory: Path
    page: Path
    tasks: tuple[ReviewTask, ...]
    shifts: tuple[str, ...]
    classes: tuple[str, ...]
    all_shifts: int
    all_classes: int
    images: int
    """The number of accepted images on the page."""
    accepted: int
    """The number of accepted images of the dataset."""
    rejected: int
    """The number of rejected images on the page, only with `screen`."""
    each: int
    """The most images of a shift."""
    grids: int
    controls: int
    without_controls: str | None
    """Why no real images are mixed in."""
    notes: tuple[str, ...] = ()


@takes(ReviewOptions)
def review(given: ReviewOptions) -> ReviewPage:
    """Write a page on which people check labels: grids of at most 48 images, one label per grid.

    The page also shows controls: real images of the class from the source's validation split, as
    pinned by the dataset, and images without the label.

    Returns:
        A ReviewPage with the path of the page and what is on it.

    Raises:
        UserError: The directory is not a finished dataset, a shift does not exist, or the page
            would hold too many images. With `screen`: it stores no rejected images.
    """
    directory = named_path(given.directory)
    page_path = directory / PAGE
    if given.page is not None:
        page_path = named_path(given.page)
    images = given.images
    tasks = given.tasks
    seed = given.seed
    problems = []
    for task in tasks:
        if task not in TASKS:
            problems.append(f"task: found '{task}', expected one of {', '.join(TASKS)}")
    if not tasks:
        problems.append("task: found none, expected one")
    if problems:
        raise UserError(problems)
    dataset = read_dataset(directory, "receipts").finished()
    try_folder(page_path.parent)
    recipe = dataset.recipe
    names, waiting = _shifts(dataset, tasks, given.shifts, seed)
    every = accepted_images(directory, dataset.plan, dataset.receipts)
    if given.screen:
        chosen = draw_screened(_screened(dataset, names), names, images, seed)
    else:
        chosen = choose_images(every, names, images, seed, whole_classes="class" in tasks)
    base = _base_images(chosen, every, seed)
    real = {}
    missing = None
    if given.controls and "class" in tasks:
        real, missing = _real_images(dataset, chosen, seed, given.source)
    grids: list[Grid] = []
    if "class" in tasks:
        numbered = {}
        for label, of_class in real.items():
            numbered[label] = [RealControl(label, number) for number in range(len(of_class))]
        grids += class_grids(recipe, chosen.images, numbered, seed)
    if "shift" in tasks:
        grids += shift_grids(recipe, chosen.images, base, seed)
    if not grids:
        raise UserError(
            "no shift to ask about: the base has none", "Name a shift, or use --task class."
        )
    content = content_of_receipts(dataset.receipts)
    pictures = read_page_pictures(directory, dataset.receipts, grids, real)
    preview = preview_sentence(preview_images(recipe, dataset.receipts))
    html = page_of_review(recipe, directory.resolve().name, content, grids, pictures, preview)
    write_atomically(page_path, html.encode())
    if given.page is None:
        write_index(directory)
    shown = {image.shift for image in chosen.images}
    without = [name for name in names if name not in shown and name not in waiting]
    return ReviewPage(
        directory=directory,
        page=page_path,
        tasks=tuple(task for task in TASKS if task in tasks),
        shifts=tuple(name for name in names if name in shown),
        classes=tuple(recipe.classes[label].id for label in chosen.classes),
        all_shifts=len(recipe.all_shifts()),
        all_classes=len(recipe.classes),
        images=sum(image.kept for image in chosen.images),
        accepted=len(every),
        rejected=sum(not image.kept for image in chosen.images),
        each=chosen.each,
        grids=len(grids),
        controls=sum(isinstance(picture, RealControl) for picture in pictures),
        without_controls=missing,
        notes=tuple(_notes(chosen, base, tasks, without, waiting)),
    )


def _base_images(
    chosen: Chosen,
    every: Sequence[CandidateImage],
    seed: int,
) -> list[CandidateImage]:
    """Return the base images to mix into grids of shifts: those on the page, else others of its
    classes."""
    base = [image for image in chosen.images if image.kept and image.shift == BASE]
    if base:
        return base
    classes = chosen.classes
    others = [image for image in every if image.shift == BASE and image.label in classes]
    others.sort(key=lambda image: random_rank(seed, BASE, image.key))
    return others[:IMAGES_A_SHIFT]


def _screened(
    dataset: SoundDataset,
    shifts: Sequence[str],
) -> list[CandidateImage]:
    """Return the kept and the rejected images of shifts. Raise UserError if none is stored."""
    if not dataset.recipe.screen.keep_rejected:
        raise UserError(
            f"{dataset.directory} stores no rejected images, so people cannot say whether the screen"
            " is right to reject them",
            "Build it into a new directory with --set screen.keep_rejected=true.",
        )
    images = []
    for each in screened_images(dataset):
        if each.shown and each.image.shift in shifts:
            images.append(each.image)
    if all(image.kept for image in images):
        raise UserError(
            "the screen rejected no image of these shifts, so there is nothing to compare",
            "Leave out --screen to review the accepted images.",
        )
    return images


def _shifts(
    dataset: SoundDataset,
    tasks: Sequence[ReviewTask],
    requested: Sequence[str] | None,
    seed: int,
) -> tuple[list[str], list[str]]:
    """Return the shifts to ask about, in the recipe's order, and the ones among them that have no
    threshold yet."""
    known = [shift.name for shift in dataset.recipe.all_shifts()]
    base, *others = known
    refuse_other_shifts(requested or (), known)
    if requested is None and len(known) > MOST_SHIFTS:
        others.sort(key=lambda name: random_rank(seed, "shift", name))
        requested = [base, *others[: MOST_SHIFTS - 1]]
    names = [name for name in known if requested is None or name in requested]
    if "class" not in tasks and names != [base]:
        # The base has no shift to ask about.
        names = [name for name in names if name != base]
    waiting = [name for name in open_shifts(dataset.recipe) if name in names]
    if waiting and not set(names) - {*waiting, BASE}:
        raise UserError(
            f"{dataset.directory} is not cut yet: no image of a shift is accepted, because these"
            f" shifts have no threshold: {', '.join(waiting[:_MOST_NAMED])}",
            f"Cut first: counterfoil calibrate {dataset.directory}",
        )
    return names, waiting


def _notes(
    chosen: Chosen,
    base: Sequence[CandidateImage],
    tasks: Sequence[ReviewTask],
    without: Sequence[str],
    waiting: Sequence[str],
) -> list[str]:
    notes = []
    if waiting:
        shown = ", ".join(waiting[:_MOST_NAMED])
        notes.append(
            f"not asked about, because they have no threshold: {shown}; cut first with counterfoil"
            " calibrate"
        )
    if without:
        notes.append(
            f"not asked about, because no image was accepted: {some_of(without, _MOST_NAMED)}"
        )
    if "shift" in tasks and not base:
        notes.append(
            "no base image was accepted, so grids of shifts have no control images without the"
            " shift"
        )
    if "class" in tasks and len(chosen.classes) == 1:
        notes.append(
            "all images have one class, so its grids have no control images of other classes"
        )
    return notes
