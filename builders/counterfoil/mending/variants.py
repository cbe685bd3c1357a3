"""The variants of a run: images to mend with, and controls with the same number of images of each
class.

The head at λ = 0 is always a variant. The λ of a control is chosen by the contexts of the variant
that it controls. The two are also compared at the λ of that variant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from counterfoil.arrays import Floats, Ints
from counterfoil.data.labelled_images import LabelledImages, rows_of
from counterfoil.data.labelled_sources import labelled_split, row_key
from counterfoil.data.open_source import open_source
from counterfoil.data.pins import SourcePin
from counterfoil.data.pool import pool_of
from counterfoil.errors import UserError
from counterfoil.evaluation.dataset import OpenDataset, edits_of, open_dataset, rows_in_pool
from counterfoil.mending.given import BALANCED, BY_CLIP, WEIGHTS, Given
from counterfoil.mining.pools import ROWS
from counterfoil.models.mended import EditsOf
from counterfoil.plan.layout import sample_seed
from counterfoil.recipe import Recipe
from counterfoil.recipe.names import did_you_mean
from counterfoil.recipe.prompts import BASE, Shift, prompt_for

# The default number of training rows per class. Chegini 2023, section 5.1, uses it for ImageNet.
FEWEST_PER_CLASS = 30
CONTEXTS = "contexts"
HARD = "hard"
CLASS_NAME = "class_name"
RANDOM = "random_contexts"
# The control of corrupted photographs, in place of class names: the photographs themselves.
UNCHANGED = "unchanged"
# The control of images that a baseline chooses from a pool.
ANY = "any_rows"
# The images of the control of class names: images made for it, those beside a mined finding, or the
# base.
_CLASS_NAMES = (CLASS_NAME, "reference", BASE)
VariantRole = Literal["retrained", "mended", "control", "upweighted", "rival", "bound"]
RETRAINED = "lambda 0"
# Roles whose head may be saved. An oracle uses labels that are unknown in practice.
SAVED_ROLES = ("mended", "upweighted", "rival")


def choose_train_rows(labels: Ints, most_per_class: int, seed: int) -> Ints:
    """Return at most `most_per_class` rows of each class, in order. A smaller number draws a subset
    of these rows."""
    most = dict.fromkeys(np.unique(labels).tolist(), most_per_class)
    return rows_of_cells(labels, most, seed)


def equal_numbers(variants: Mapping[str, Ints], seed: int) -> dict[str, Ints]:
    """Choose rows of each variant so that all variants have equally many images of each class.

    variants: name → the labels of its images.
    """
    every = np.concatenate(list(variants.values()))
    fewest = {}
    for label in np.unique(every).tolist():
        counts = [int((labels == label).sum()) for labels in variants.values()]
        fewest[label] = min(counts)
    return {name: rows_of_cells(labels, fewest, seed) for name, labels in variants.items()}


def rows_of_cells(cells: Ints, most: Mapping[int, int], seed: int) -> Ints:
    """Return at most `most[cell]` rows of each cell, in order, drawn without replacement. cells:
    (n,) each row's cell.

    The draw of a cell is the beginning of a shuffle. The shuffle does not depend on the number or
    on the other cells.
    """
    chosen = [np.empty(0, dtype=np.int64)]
    for cell in np.unique(cells).tolist():
        rows = np.flatnonzero(cells == cell)
        shuffled = np.random.default_rng([seed, cell]).permutation(rows)
        chosen.append(shuffled[: most.get(cell, 0)])
    return np.sort(np.concatenate(chosen))


CONTROL_WORDS = {
    RETRAINED: "the head retrained on training images alone",
    CLASS_NAME: "as many images of class names",
    RANDOM: "as many images of random contexts",
    UNCHANGED: "as many unchanged photographs",
    ANY: "as many random images of the pool",
}


@dataclass(frozen=True, slots=True)
class Context:
    """A class in one context: the caption of a shift. `rank`: 0 for the most frequent context of
    its class."""

    name: str
    label: int
    caption: str
    words: str
    rank: int | None = None


@dataclass(frozen=True)
class DebugImages:
    """The n images of a group."""

    name: str
    dataset: str
    group: str
    images: LabelledImages
    """Their labels are indices of classes of the source that is mended on. Their units are those of
    the source's own pool, if they are rows of it."""
    contexts: tuple[Context, ...]
    context: Ints
    """(n,) each image's index in `contexts`, -1 for no context."""
    seeds: frozenset[int]
    """The seed of each sample's noise."""
    mined: tuple[Mapping[str, Any], ...]
    """What the shifts were mined from."""
    content: str
    """The hash of the whole dataset."""
    recipe: str
    samples_seed: int
    base: LabelledImages | None = None
    """The dataset's base images of these classes."""
    fewest: int = 1
    """Whether a model is near chance is judged on classes with at least so many base images."""
    edits: EditsOf | None = None
    """The rows of any pool that the images are edits of."""
    edited: LabelledImages | None = None
    """Those among these rows that are rows of the source itself."""

    def __len__(self) -> int:
        return len(self.images)

    def only(self, rows: Ints) -> DebugImages:
        return replace(self, images=rows_of(self.images, rows), context=self.context[rows])


def open_debug_images(given: Given, recipe: Recipe) -> tuple[DebugImages, dict[str, DebugImages]]:
    """Open a dataset's group (by default `contexts`, `hard` or all shifts), and its controls by
    kind.

    Raise UserError for a dataset that is not built, a group that is missing or empty, or classes
    outside `recipe`.
    """
    opened = open_dataset(given.source)
    if opened.preview is not None:
        raise UserError(
            f"{given.source} is a preview of {opened.preview:,} images a shift, from which no head"
            " is fitted",
            "Build its recipe without --limit, and mend with that.",
        )
    groups = _groups(opened)
    group = given.group
    if group is None:
        group = next((name for name in (CONTEXTS, HARD) if name in groups), None)
    if group is None:
        every = enumerate(opened.recipe.all_shifts())
        shifts = tuple(index for index, shift in every if index and shift.top)
    else:
        shifts = groups.get(group, ())
    if not shifts:
        known = [name for name in groups if name != BASE]
        problem = f"{given.source} has a base and no shift"
        if group:
            problem = f"{given.source} has no group '{group}'{did_you_mean(group, known)}"
        raise UserError(problem, f"Its groups are {', '.join(known) or 'none'}.")
    debug_images = _images(opened, given.source, group or "all shifts", shifts, recipe)
    if not len(debug_images):
        raise UserError(
            f"{given.source}: no image of the group '{debug_images.group}' was accepted, so nothing"
            " can be learned",
            "Lower its threshold, or ask for more candidates, and build it again.",
        )
    controls: dict[str, DebugImages] = {}
    for what, names in ((CLASS_NAME, _CLASS_NAMES), (RANDOM, (RANDOM,))):
        name = next((name for name in names if groups.get(name)), None)
        if name is None or name == group:
            continue
        images = _images(opened, given.source, name, groups[name], recipe)
        rows = np.flatnonzero(np.isin(images.images.labels, debug_images.images.labels))
        if len(rows):
            if name == BASE and opened.recipe.kind.unchanged_base:
                what = UNCHANGED
            controls[what] = images.only(rows)
    return debug_images, controls


def _groups(opened: OpenDataset) -> dict[str, tuple[int, ...]]:
    """Return the shifts of each group, only at their highest level. Each shift is also a group by
    its own name."""
    groups: dict[str, list[int]] = {}
    for index, shift in enumerate(opened.recipe.all_shifts()):
        if shift.top:
            groups.setdefault(shift.group, []).append(index)
    for index, shift in enumerate(opened.recipe.all_shifts()):
        groups.setdefault(shift.name, [index])
    return {name: tuple(indices) for name, indices in groups.items()}


def _images(
    opened: OpenDataset, source: str, group: str, shifts: Sequence[int], recipe: Recipe
) -> DebugImages:
    """Return the images of the shifts, labelled as in `recipe`. Raise UserError for classes that it
    does not have."""
    rows = np.flatnonzero(np.isin(opened.shifts, shifts))
    labels = opened.labels[rows]
    recipe_labels = {(cls.id, cls.name): cls.label for cls in recipe.classes}
    classes = opened.recipe.classes
    own_labels = [recipe_labels.get((cls.id, cls.name), -1) for cls in classes]
    label_of = np.asarray(own_labels, dtype=np.int64)
    strange = [classes[label] for label in np.unique(labels).tolist() if label_of[label] < 0]
    if strange:
        shown = ", ".join(f"{cls.id} ({cls.name})" for cls in strange[:5])
        raise UserError(
            f"{source} has images of {len(strange)} classes that the recipe {recipe.name} does not"
            f" have: {shown}",
            "Mend on the recipe that it was mined from: --on RECIPE.",
        )
    contexts, context_of = _contexts(opened, shifts, recipe, label_of)
    every = opened.recipe.all_shifts()
    origins = {}
    for index in shifts:
        shift = every[index]
        origins[shift.of] = _mined_from(opened.recipe, shift)
    labelled = opened.labelled()
    of_classes = np.isin(opened.labels, labels)
    base_rows = np.flatnonzero((opened.shifts == 0) & of_classes)
    base = replace(
        rows_of(labelled, base_rows),
        name=f"{source}:{BASE}",
        labels=label_of[opened.labels[base_rows]],
    )
    keys = [opened.keys[row] for row in rows.tolist()]
    name = f"{source}:{group}"
    units = _pool_units(opened, rows, recipe)
    return DebugImages(
        name=name,
        dataset=source,
        group=group,
        images=replace(rows_of(labelled, rows), name=name, labels=label_of[labels], units=units),
        contexts=contexts,
        context=context_of[opened.shifts[rows], labels],
        seeds=frozenset(seeds_of(opened, rows)),
        base=base,
        fewest=opened.recipe.evaluate.min_images_per_class,
        edits=edits_of(opened.directory, opened.recipe, opened.pins, keys),
        edited=_edited_images(opened, rows, recipe),
        mined=tuple(filter(None, origins.values())),
        content=opened.content,
        recipe=opened.recipe.name,
        samples_seed=opened.recipe.samples.seed,
    )


def _mined_from(recipe: Recipe, shift: Shift) -> Mapping[str, Any]:
    """Return what a shift was mined from, as the recipe records it; empty if it was not mined."""
    spec = recipe.prompts.shifts.get(shift.of)
    return {} if spec is None else spec.mined_from or {}


def seeds_of(opened: OpenDataset, rows: Ints) -> list[int]:
    """Return the seed of each image's noise. Return none for rows of a pool and for edits of
    rows."""
    recipe = opened.recipe
    if recipe.kind.takes_rows:
        return []
    paired = recipe.samples.noise == "paired"
    shifts = recipe.all_shifts()
    seeds = []
    for row in rows.tolist():
        shift = None if paired else shifts[opened.shifts[row]].name
        cls = recipe.classes[opened.labels[row]]
        index = int(opened.indices[row])
        seed = sample_seed(recipe.samples.seed, cls.id, index, shift)
        seeds.append(seed)
    return seeds


def _pool_rows(opened: OpenDataset, rows: Ints, recipe: Recipe) -> Sequence[int]:
    """Return the rows of the recipe's source that the chosen images are, or are edits of; none for
    other images."""
    if not opened.recipe.kind.takes_rows:
        return ()
    pool = pool_of(opened.recipe)
    source = recipe.source
    recorded = opened.pins.get("pool")
    if pool.config != source.config:
        return ()
    moved = pool.dataset != source.dataset
    if moved and (
        SourcePin.of(recorded) is None or open_source(source, recorded).pin.document() != recorded
    ):
        return ()
    keys = [opened.keys[row] for row in rows.tolist()]
    return rows_in_pool(opened.directory, opened.recipe, keys)


def _pool_units(opened: OpenDataset, rows: Ints, recipe: Recipe) -> tuple[str, ...] | None:
    """Return the units of images that are rows of the recipe's source or edits of such rows; None
    for other images."""
    source = recipe.source
    if source.unit_column is None:
        return None
    pool_rows = _pool_rows(opened, rows, recipe)
    if not pool_rows:
        return None
    split = opened.recipe.generator.get("split")
    pool = open_source(source, opened.pins.get("pool"), as_recorded=True).rows(split)
    if source.unit_column not in pool.columns:
        return None
    units = pool.texts(source.unit_column, "unit_column")
    if max(pool_rows) >= len(units):
        raise UserError(
            f"{opened.source} has an image of row {max(pool_rows):,} of"
            f" {source.dataset}:{split}, which has {len(units):,}",
            f"See what is wrong with it: counterfoil verify {opened.source}",
        )
    return tuple(units[row] for row in pool_rows)


def edited_rows(opened: OpenDataset, rows: Ints, recipe: Recipe) -> frozenset[str]:
    """Return the keys of the source rows that the chosen images are edits of; empty for other
    images."""
    if not opened.recipe.kind.alters_rows:
        return frozenset()
    split = opened.recipe.generator.get("split")
    return frozenset(row_key(split, row) for row in _pool_rows(opened, rows, recipe))


def _edited_images(opened: OpenDataset, rows: Ints, recipe: Recipe) -> LabelledImages | None:
    """Return the source rows that the images are edits of, to compare their pixels; None if there
    are none."""
    keys = edited_rows(opened, rows, recipe)
    if not keys:
        return None
    pin = open_source(recipe.source, opened.pins.get("pool"), as_recorded=True).pin
    name = opened.recipe.generator.get("split")
    split = labelled_split(recipe.source, name, recipe.classes, pin, units=False)
    rows = np.flatnonzero([key in keys for key in split.keys])
    return rows_of(split, rows)


def _contexts(
    opened: OpenDataset, shifts: Sequence[int], recipe: Recipe, label_of: Ints
) -> tuple[tuple[Context, ...], Ints]:
    """Return the captions of the shifts by class, and the index of the context by shift and label
    of the dataset.

    A caption that names the class alone is no context; its index is -1.
    """
    contexts: list[Context] = []
    every = opened.recipe.all_shifts()
    context_of = np.full((len(every), len(label_of)), -1)
    for index in shifts:
        shift = every[index]
        origin = _mined_from(opened.recipe, shift)
        rank = origin.get("rank")
        if not isinstance(rank, int) or isinstance(rank, bool):
            rank = None
        words = origin.get("words")
        for label in shift.class_labels:
            if label_of[label] < 0:
                continue
            cls = recipe.classes[label_of[label]]
            caption = prompt_for(shift, opened.recipe.classes[label])
            if caption is None or caption == cls.text(recipe.screen.object_caption) or index == 0:
                continue
            context_of[index, label] = len(contexts)
            name = shift.name
            if len(shift.class_labels) > 1:
                name = f"{name}_{cls.id}"
            described = words if isinstance(words, str) else caption
            contexts.append(Context(name, cls.label, caption, described, rank))
    return tuple(contexts), context_of


def rows_within(
    ranks: Ints,
    shifts: Ints,
    *,
    k: int | None = None,
    images: int | None = None,
    seed: int = 0,
) -> Ints:
    """Return rows of n images, in order: from the first k contexts of each class, at most `images`
    per context.

    ranks: (n,), the rank of the image's context in its class; the context with most failures has
    rank 0. shifts: (n,), the context; an image with -1 is always included. Smaller numbers give
    subsets, so that neighbouring points of a curve share images.
    """
    rows = np.arange(len(ranks))
    if k is not None:
        rows = rows[ranks < k]
    if images is None:
        return rows
    without = shifts[rows] < 0
    inside = rows[~without]
    wanted = dict.fromkeys(np.unique(shifts).tolist(), images)
    chosen = inside[rows_of_cells(shifts[inside], wanted, seed)]
    return np.sort(np.concatenate([chosen, rows[without]]))


@dataclass(frozen=True)
class Variant:
    """A head to fit."""

    name: str
    role: VariantRole
    of: str | None = None
    """The variant that a control controls."""
    what: str | None = None
    """The kind of a control."""
    debug: DebugImages | None = None
    """The images to learn from."""
    weights: Floats | None = None
    """(train rows,)"""
    groups: Ints | None = None
    """(audited rows,), -1 for a row without a group."""
    offered: int = 0
    """The number of images before all variants of a comparison got equal numbers."""
    chosen_by: str | None = None
    """The baseline that chooses `ROWS` images a class from `debug` when it knows the model."""
    lacking: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Control → the labels without an image in that control; no variant of the comparison learns
    from these labels."""
    mined: tuple[Mapping[str, Any], ...] = ()
    """The origin of the weights."""

    @property
    def images(self) -> int:
        """The number of images to learn from."""
        if self.debug is None:
            return 0
        most = ROWS if self.chosen_by is not None else self.offered
        counts = np.bincount(self.debug.images.labels)
        return int(np.minimum(counts, most).sum())

    @property
    def swept(self) -> bool:
        return self.role in ("mended", "control", "upweighted")


def image_variants(
    images: DebugImages, controls: Mapping[str, DebugImages], seed: int
) -> list[Variant]:
    """Return variants of the images and of their controls, with equal numbers of images per class.

    Raise UserError if no image is left.
    """
    labels = {images.name: images.images.labels}
    for what, control in controls.items():
        labels[what] = control.images.labels
    rows = equal_numbers(labels, seed)
    if not len(rows[images.name]):
        raise UserError(
            f"{images.name}: no class has both its own images and images of its controls"
            f" ({' and '.join(controls)})",
            "Build more images of the controls: without them, a gain means nothing.",
        )
    present = np.unique(images.images.labels)
    lacking = {}
    for what, control in controls.items():
        missing = np.setdiff1d(present, control.images.labels)
        if len(missing):
            lacking[what] = tuple(missing.tolist())
    equal = images.only(rows[images.name])
    variants = [Variant(images.name, "mended", debug=equal, offered=len(images), lacking=lacking)]
    for what, control in controls.items():
        name = f"{control.group} beside {images.name}"
        equal = control.only(rows[what])
        offered = len(control)
        variant = Variant(name, "control", images.name, what, debug=equal, offered=offered)
        variants.append(variant)
    return variants


def pool_variants(given: Given, recipe: Recipe, pin: SourcePin, seed: int) -> list[Variant]:
    """Return a variant whose images a baseline chooses from a split, and its control: as many
    images at random."""
    split = labelled_split(recipe.source, given.source, recipe.classes, pin)
    whole = DebugImages(
        name=given.name,
        dataset=recipe.source.dataset,
        group=given.source,
        images=split,
        contexts=(),
        context=np.full(len(split), -1),
        seeds=frozenset(),
        mined=(),
        content=split.content,
        recipe=recipe.name,
        samples_seed=recipe.samples.seed,
    )
    control = whole.only(choose_train_rows(split.labels, ROWS, seed))
    count = len(whole)
    name = f"random images beside {given.name}"
    return [
        Variant(given.name, "mended", debug=whole, offered=count, chosen_by=given.group),
        Variant(name, "control", given.name, ANY, debug=control, offered=count),
    ]


def role_of(given: Given) -> VariantRole:
    if given.kind == BALANCED:
        return "rival" if given.source == BY_CLIP else "bound"
    return "upweighted" if given.kind == WEIGHTS else "mended"
