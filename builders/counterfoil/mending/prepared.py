"""Prepare a run before any model is loaded: open all images, decode them once, and refuse shared
images.

Images to learn from and images to judge by must not share pixels, units or noise. Contexts may only
be named on the discover half. Confirmed findings were chosen with the confirm half. So the test
split judges images of such findings, and a run without a test split refuses them.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from counterfoil.accuracy_stats import find_near_chance
from counterfoil.arrays import Bools, Floats, Ints
from counterfoil.data.labelled_images import LabelledImages, rows_of
from counterfoil.data.labelled_sources import labelled_split
from counterfoil.data.open_source import OpenSource, open_source
from counterfoil.data.resolved_classes import resolve_classes
from counterfoil.errors import CounterfoilError, UserError, raise_together, some_of
from counterfoil.evaluation.dataset import OpenDataset, is_built, open_dataset
from counterfoil.mending.given import (
    IMAGES,
    POOL,
    WEIGHTS,
    Given,
    read_groups,
    read_train_weights,
    shown_names,
)
from counterfoil.mending.options import EPOCHS
from counterfoil.mending.variants import (
    FEWEST_PER_CLASS,
    Context,
    DebugImages,
    Variant,
    choose_train_rows,
    edited_rows,
    image_variants,
    open_debug_images,
    pool_variants,
    seeds_of,
)
from counterfoil.mining.audited import opened_parts
from counterfoil.models.mended import MOST_CONTENTS
from counterfoil.prediction.embedding import digests_of
from counterfoil.progress import track
from counterfoil.recipe import Recipe, load_recipe
from counterfoil.recipe.names import did_you_mean
from counterfoil.recipe.schema_mine import Mine
from counterfoil.report.words import format_count
from counterfoil.store.decoding import pixels_sha256

# The usual names of a test split, in order of preference.
_TESTS = ("test", "validation", "val")
TRAIN_IMAGES = 30_000  # Chegini 2023, section 5.1
_NO_IMAGE = bytes(32)
_MOST_PROBLEMS = 20
_MOST_NAMES = 8
# The origins that a recipe or a file records. Each origin is one mapping.
MinedRecords: TypeAlias = "Sequence[Mapping[str, Any]]"
_LEAST_LEARNED = "Leave these out, or name other splits (--test, --on) or another dataset."


@dataclass(frozen=True)
class AuditedBuild:
    """A built dataset that is audited. edited: keys of the source rows that it edits. base: keys of
    its base images."""

    seeds: frozenset[int]
    edited: frozenset[str]
    base: frozenset[str]


@dataclass(frozen=True)
class MendSource:
    """A recipe's images for mending."""

    recipe: Recipe
    mine: Mine
    opened: OpenSource
    """The source, pinned once for the run."""
    train: LabelledImages
    """At most `per_class` rows per class."""
    whole_train: LabelledImages
    test: LabelledImages | None
    """The test split; None if the whole confirm half replaces it."""
    audited: AuditedBuild | None
    """Set if a built dataset is audited."""
    per_class: int

    @property
    def class_names(self) -> dict[str, str]:
        """The names of the classes by id."""
        return {cls.id: cls.name for cls in self.recipe.classes}


def mend_source(
    on: Recipe | str | Path,
    overrides: Sequence[str],
    test: str | None,
    per_class: int | None,
    seed: int,
    audited: Sequence[str] | None,
    pools: Collection[str] = (),
) -> MendSource:
    """Open the images of a recipe for mending. pools: splits that images are chosen from. Raise
    UserError for a recipe that mending cannot use."""
    recipe = resolve_classes(load_recipe(on, overrides))
    if recipe.source.conditions is not None:
        raise UserError(
            f"recipe {recipe.name}: its images may have several conditions, but mending needs one"
            " label per image",
            "Name a recipe whose images have one label each.",
        )
    mine = recipe.mine or Mine()
    if audited:
        mine = mine.model_copy(update={"on": tuple(audited)})
    source = open_source(recipe.source)
    pin = source.pin
    splits = source.splits
    train = recipe.source.train_split
    if train not in splits:
        raise UserError(
            f"'{recipe.source.dataset}' has no split '{train}', and the head is fitted on training"
            " images",
            f"Its splits are {', '.join(splits) or 'not named'}; set source.train_split.",
        )
    whole = labelled_split(recipe.source, train, recipe.classes, pin)
    if per_class is None:
        # With 30 images each, ten classes of the lab lose more by retraining than new images can
        # give.
        per_class = max(FEWEST_PER_CLASS, TRAIN_IMAGES // max(1, len(recipe.classes)))
    chosen = choose_train_rows(whole.labels, per_class, seed)
    if len(chosen) > MOST_CONTENTS // 2:
        raise UserError(
            f"--per-class {per_class}: a head would be fitted to {len(chosen):,} training images,"
            f" expected at most {MOST_CONTENTS // 2:,}: its folder lists each of them so that no"
            " evaluation uses them",
            "Name fewer, such as --per-class"
            f" {max(1, MOST_CONTENTS // 2 // max(1, len(recipe.classes)))}.",
        )
    build = None
    taken = {train: "the head learns from it", **dict.fromkeys(mine.on, "it is audited")}
    if len(mine.on) == 1 and mine.on[0] not in splits and is_built(mine.on[0]):
        # A built dataset can be audited alone: then its noise, edits and base are known.
        opened = open_dataset(mine.on[0])
        build = _audited_build(opened, recipe)
        if build.edited:
            taken[opened.recipe.generator.get("split")] = "the audited images are made from it"
    for pool in pools:
        if pool in taken or pool not in splits:
            why = taken.get(pool, "there is none of that name")
            raise UserError(
                f"--with: no image can be chosen from the split '{pool}': {why}",
                "The other splits are"
                f" {', '.join(name for name in splits if name not in taken) or 'none'}.",
            )
    taken |= dict.fromkeys(pools, "images are chosen from it")
    name = _test_split(recipe, taken, splits, test)
    tested = None
    if name is not None:
        tested = labelled_split(recipe.source, name, recipe.classes, pin)
    return MendSource(
        recipe=recipe,
        mine=mine,
        opened=source,
        train=rows_of(whole, chosen),
        whole_train=whole,
        test=tested,
        audited=build,
        per_class=per_class,
    )


def _audited_build(opened: OpenDataset, recipe: Recipe) -> AuditedBuild:
    rows = np.arange(len(opened.keys))
    base = np.flatnonzero(opened.shifts == 0).tolist()
    return AuditedBuild(
        frozenset(seeds_of(opened, rows)),
        edited_rows(opened, rows, recipe),
        frozenset(opened.keys[row] for row in base),
    )


def _test_split(
    recipe: Recipe, taken: Mapping[str, str], splits: Sequence[str], test_split: str | None
) -> str | None:
    """Return the test split; None if the confirm half replaces it. taken: split → why it is not
    free."""
    free = [name for name in splits if name not in taken]
    if test_split is None:
        usual = [name for name in _TESTS if name in free]
        return next(iter(usual + free), None)
    if test_split in taken:
        raise UserError(
            f"--test {test_split}: {taken[test_split]}, so it cannot be the test split",
            f"Name another split: {', '.join(free) or 'none is left'}",
        )
    if test_split not in splits:
        raise UserError(
            f"--test: '{recipe.source.dataset}' has no split"
            f" '{test_split}'{did_you_mean(test_split, free)}",
            f"Its splits are {', '.join(splits)}.",
        )
    return test_split


def pixels_of(images: LabelledImages) -> tuple[str | None, ...]:
    """Return each image's sha256 over its size and RGB pixels, from the user's cache if present;
    None if undecodable.

    The bytes of files cannot be compared, because a build of pool rows encodes the images again.
    """
    digests = []
    for digest in map(bytes, digests_of(images, "pixels", _digests(images))):
        digests.append(None if digest == _NO_IMAGE else digest.hex())
    return tuple(digests)


def _digests(images: LabelledImages) -> Iterator[bytes]:
    read = track(images.images(), f"{images.name}: decoding images", len(images), 1000)
    for _, encoded in read:
        picture = images.decoded(encoded)
        yield _NO_IMAGE if picture is None else bytes.fromhex(pixels_sha256(picture))


@dataclass(frozen=True)
class Known:
    """Facts about n images, for a comparison of two sets of images."""

    name: str
    keys: Sequence[str]
    pixels: Sequence[str | None]
    """The hash of each image's pixels; None if it cannot be decoded."""
    units: Sequence[str] | None = None
    """Comparable only within the dataset `of`."""
    of: str | None = None
    seeds: frozenset[int] = frozenset()
    """Seeds of the noise that the images were rendered from."""
    edited: frozenset[str] = frozenset()
    """Keys of the rows that the images are edits of, in the dataset `edited_of`."""
    edited_of: str | None = None


def refuse_shared(
    learned: Iterable[Known], judged: Sequence[Known], test: Sequence[Known] = ()
) -> None:
    """Raise UserError with everything that images to learn from share with `judged` or `test`.

    One half of `judged` chooses λ and teaches the heads of balanced groups. So `judged` may not
    share anything with `test` either.
    """
    problems = []
    for ours in learned:
        for rows in (*judged, *test):
            problems += _shared(ours, rows)
    for ours in judged:
        for rows in test:
            problems += _shared(ours, rows)
    if problems:
        raise UserError(
            problems[:_MOST_PROBLEMS],
            f"Images that a head learns from, or that choose λ, cannot test it. {_LEAST_LEARNED}",
        )


def _shared(ours: Known, known: Known) -> list[str]:
    problems = []
    seen = dict(zip(known.pixels, known.keys, strict=True))
    seen.pop(None, None)  # images that cannot be decoded
    same = [seen[digest] for digest in ours.pixels if digest in seen]
    if same:
        problems.append(
            f"{format_count(len(same), 'image')} of {ours.name} and {known.name} are the same, such as"
            f" {same[0]}"
        )
    if ours.units is not None and known.units is not None and ours.of == known.of:
        units = sorted(set(ours.units) & set(known.units))
        if units:
            problems.append(
                f"{ours.name} and {known.name} share {format_count(len(units), 'unit')}, such as"
                f" {units[0]}"
            )
    for edits, rows in ((ours, known), (known, ours)):
        if edits.edited_of != rows.of:
            continue
        edited = sorted(edits.edited.intersection(rows.keys))
        if edited:
            images = format_count(len(edited), "image")
            problems.append(
                f"{edits.name} are edits of {images} of {rows.name}, such as {edited[0]}"
            )
    both = sorted(ours.edited & known.edited)
    if both and ours.edited_of == known.edited_of:
        problems.append(
            f"{ours.name} and {known.name} share {format_count(len(both), 'edited row')}, such as"
            f" {both[0]}"
        )
    noise = ours.seeds & known.seeds
    if noise:
        problems.append(
            f"{format_count(len(noise), 'image')} of {ours.name} and images of {known.name} come"
            " from the same noise: both have the same samples.seed"
        )
    return problems


def refuse_mined_on_judges(
    learned: Iterable[tuple[str, MinedRecords]],
    audited: Mapping[str, str],
    discover_sha256: str,
    test: Mapping[str, str],
) -> tuple[str, ...]:
    """Raise UserError for images mined on rows that are judged here; return notes on unknown
    origins.

    learned: names of images or weights, with their origins. audited, test: content → name of the
    images.
    discover_sha256: the hash of the keys of this run's discover half.
    """
    problems: list[str] = []
    notes: list[str] = []
    for called, mined in learned:
        name = shown_names([called])[called]
        for record in mined:
            on = _mined_on(record)
            if not on:
                notes.append(
                    f"{name} does not say which rows it was mined on. It is not known whether they"
                    " are tested here."
                )
            for content, images in on:
                if content in test:
                    problems.append(
                        f"{called} was mined on {test[content]}, which is the test here"
                    )
                elif content not in audited:
                    rows = images if isinstance(images, str) else "rows without a name"
                    notes.append(
                        f"{name} was mined on {rows}, and no images tested here have that content."
                        " They share no row unless they are the same images under another list of"
                        " classes or another revision."
                    )
                if content not in audited:
                    continue
                if not test and confirm_chose(mined, audited):
                    problems.append(
                        f"{called} comes from findings that the confirm half of {audited[content]}"
                        " confirmed, and"
                        " there is no test split: the same rows would choose and test it"
                    )
                half = record.get("discover_sha256")
                if not isinstance(half, str):
                    problems.append(
                        f"{called} was mined on {audited[content]} but does not say on which half:"
                        " rows that found its contexts may also test them; mine and build it again"
                    )
                elif half != discover_sha256:
                    problems.append(
                        f"{called} was mined on other rows of {audited[content]} than the discover"
                        " half here: rows that found its contexts would also test them"
                    )
    if problems:
        raise UserError(
            list(dict.fromkeys(problems))[:_MOST_PROBLEMS],
            "Mend on the recipe that it was mined with, with the same mine.seed and mine.on, or"
            " name another --test.",
        )
    return tuple(dict.fromkeys(notes))


def refuse_near_chance(
    model: str,
    dataset: str,
    right: Bools,
    labels: Ints,
    chances: Floats,
    classes: Sequence[str],
    fewest: int,
) -> tuple[str, ...]:
    """Raise UserError if a model is near chance on a dataset's base; return a note of such classes.

    right, labels: (n,), for n base images. chances: (classes,), how often a guess is right. Classes
    with fewer images than `fewest` are left out.
    """
    images = np.bincount(labels, minlength=len(classes))
    tested = np.flatnonzero(images >= fewest)
    if not len(tested):
        return ()
    right_images = np.bincount(labels, right, len(classes))
    share = right_images[tested] / images[tested]
    near_chance = find_near_chance(
        [str(label) for label in tested], share[:, None], images[tested], chances[tested][:, None]
    )
    near = [classes[int(label)] for label in near_chance.classes]
    if near_chance.models[0] or len(near) == len(tested):
        which = f" (classes near chance: {some_of(near, _MOST_NAMES)})" if near else ""
        raise UserError(
            f"{model} is near chance on the base of {dataset}: {100 * share.mean():.1f} % of"
            f" {format_count(int(images[tested].sum()), 'image')} right; guessing gets"
            f" {100 * chances[tested].mean():.1f} %{which}",
            "The model does not recognise its classes in these images, so it cannot learn about its"
            " failures from them. `counterfoil evaluate` shows the same. Render them with a"
            " generator that knows these classes, or from your own photographs.",
        )
    if not near:
        return ()
    return (
        f"{model} is near chance on the base of {dataset} for {len(near):,} of {len(tested):,}"
        f" classes ({', '.join(near[:_MOST_NAMES])}): its images of these classes probably show"
        " something else.",
    )


def confirm_chose(mined: MinedRecords, audited: Mapping[str, str]) -> bool:
    """Check whether the images to learn from were chosen with the confirm half of rows that are
    audited here.

    This is so for confirmed findings. It is not so for contexts, which only record whether they
    were confirmed, and for findings that were tested on rendered images alone.
    """
    for record in mined:
        of_finding = "finding" in record and "confirmed" not in record
        on_photographs = record.get("tested_on") not in ("rendered", "pairs")
        contents = {content for content, _ in _mined_on(record)}
        if of_finding and on_photographs and not contents.isdisjoint(audited):
            return True
    return False


def _mined_on(record: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return content and name of the images that a record was mined on. Malformed entries are left
    out."""
    on = record.get("on")
    if not isinstance(on, list | tuple):
        return []
    return [
        (entry["content"], entry.get("name"))
        for entry in on
        if isinstance(entry, Mapping) and isinstance(entry.get("content"), str)
    ]


@dataclass(frozen=True, slots=True)
class MendSettings:
    grid: tuple[float, ...]
    how: Any
    per_class: int | None
    seed: int
    save: str | None
    effects: bool
    epochs: int = EPOCHS


@dataclass(frozen=True)
class Prepared:
    """A run before its models."""

    source: MendSource
    settings: MendSettings
    given: tuple[Given, ...]
    variants: tuple[Variant, ...]
    own: Mapping[str, tuple[Variant, ...]]
    """Model → the variants of its own dataset."""
    groups: Mapping[str, Mapping[str, str]]
    """The value that names the groups → (audited key → group)."""
    contexts: tuple[Context, ...]
    """Those of all images, each once."""
    pixels: Mapping[str, tuple[str | None, ...]]
    """Content of labelled images → their hashes."""
    audited: tuple[LabelledImages, ...]

    def variants_of(self, model: str) -> tuple[Variant, ...]:
        known = {variant.name for variant in self.variants}
        added = [variant for variant in self.own.get(model, ()) if variant.name not in known]
        return (*self.variants, *added)

    def drawn(self) -> list[tuple[Variant, DebugImages]]:
        """Return all variants with their images. A variant with the same name and images appears
        once."""
        every: dict[tuple[str, str], tuple[Variant, DebugImages]] = {}
        for variant in itertools.chain(self.variants, *self.own.values()):
            if variant.debug is not None:
                every[variant.name, variant.debug.images.content] = variant, variant.debug
        return list(every.values())


def prepare_inputs(
    source: MendSource,
    given: Sequence[Given],
    given_by_model: Mapping[str, Given],
    settings: MendSettings,
) -> Prepared:
    """Open all named inputs and refuse images that both teach and judge. One error has the problems
    of all inputs."""
    recipe = source.recipe
    problems: list[CounterfoilError] = []
    images: list[Variant] = []
    others: list[Variant] = []
    groups: dict[str, dict[str, str]] = {}
    own_variants: dict[str, tuple[Variant, ...]] = {}
    audited = opened_parts(recipe, source.mine.on, source.opened)
    for dataset in given:
        try:
            if dataset.kind == IMAGES:
                images += image_variants(*open_debug_images(dataset, recipe), settings.seed)
            elif dataset.kind == WEIGHTS:
                weights, mined = read_train_weights(
                    dataset.source, source.whole_train, source.train.keys
                )
                others.append(Variant(dataset.name, "upweighted", weights=weights, mined=(mined,)))
            elif dataset.kind == POOL:
                others += pool_variants(dataset, recipe, source.opened.pin, settings.seed)
            elif dataset.source not in groups:
                groups[dataset.source] = read_groups(dataset, source.opened, audited)
        except CounterfoilError as error:
            problems.append(error)
    for model, dataset in given_by_model.items():
        try:
            if dataset.kind != IMAGES:
                raise UserError(f"--own {model}={dataset.name}: expected a built dataset")
            images_of_model = open_debug_images(dataset, recipe)
            own_variants[model] = tuple(image_variants(*images_of_model, settings.seed))
        except CounterfoilError as error:
            problems.append(error)
    raise_together(problems)
    variants = (*images, *others)
    contexts: dict[tuple[int, str], Context] = {}
    for variant in itertools.chain(variants, *own_variants.values()):
        if variant.role == "mended" and variant.debug is not None:
            for context in variant.debug.contexts:
                contexts.setdefault((context.label, context.caption), context)
    prepared = Prepared(
        source=source,
        settings=settings,
        given=tuple(given),
        variants=variants,
        own=own_variants,
        groups=groups,
        contexts=tuple(contexts.values()),
        pixels={},
        audited=audited,
    )
    every = [source.train]
    for _, debug in prepared.drawn():
        every += [debug.images, debug.edited]
    pixels: dict[str, tuple[str | None, ...]] = {}
    for labelled in (*every, *audited, source.test):
        if labelled is not None and labelled.content not in pixels:
            pixels[labelled.content] = pixels_of(labelled)
    prepared = replace(prepared, pixels=pixels)
    _refuse_overlaps(prepared)
    return prepared


def _refuse_overlaps(prepared: Prepared) -> None:
    """Raise UserError for images that both teach and judge."""
    source = prepared.source
    dataset = source.recipe.source.dataset

    def known(labelled: LabelledImages, name: str) -> Known:
        pixels = prepared.pixels[labelled.content]
        return Known(name, labelled.keys, pixels, labelled.units, dataset)

    learned = [known(source.train, f"the training images ({source.train.name})")]
    for _, debug in prepared.drawn():
        edited = frozenset()
        if debug.edited is not None:
            edited = frozenset(debug.edited.keys)
        of_debug = known(debug.images, f"the images of {debug.name}")
        learned.append(replace(of_debug, seeds=debug.seeds, edited=edited, edited_of=dataset))
    judged = []
    build = source.audited
    for part in prepared.audited:
        rows = known(part, f"the audited images ({part.name})")
        if build is not None:
            rows = replace(
                rows, of=part.name, seeds=build.seeds, edited=build.edited, edited_of=dataset
            )
        judged.append(rows)
    test = source.test
    tested = []
    if test is not None:
        tested.append(known(test, f"the test ({test.name})"))
    refuse_shared(learned, judged, tested)
