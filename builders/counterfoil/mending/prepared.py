"""What of a run needs no model: images opened, decoded once, and refused where two sides share any."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.errors import CounterfoilError, UserError, raise_together
from counterfoil.mending.arms import Arm, all_contexts, image_arms
from counterfoil.mending.debug_images import Context, DebugImages, WithControls, open_debug_images
from counterfoil.mending.given import BALANCED, IMAGES, WEIGHTS, Given
from counterfoil.mending.groups import Groups, read_groups
from counterfoil.mending.opening import AuditedBuild, MendSource
from counterfoil.mending.pixels import pixels_of
from counterfoil.mending.refusals import Known, Told, refuse_shared
from counterfoil.mending.train_weights import read_train_weights
from counterfoil.mining.opened_images import opened_parts
from counterfoil.sources import LabelledImages


@dataclass(frozen=True, slots=True)
class MendSettings:
    """What a person says of a run beside what is mended on what."""

    grid: tuple[float, ...]
    how: Any
    per_class: int | None
    seed: int
    save: str | None
    effects: bool


@dataclass(frozen=True)
class Prepared:
    """A run before its models. arms: of images and of weights; balanced: those whose groups need the audited rows.

    own: model → the arm of its own dataset, which others do not have; own_given: how that was named. pixels: by content
    of labelled images.
    contexts: what all images that were asked for show.
    """

    source: MendSource
    settings: MendSettings
    given: tuple[Given, ...]
    arms: tuple[Arm, ...]
    own: Mapping[str, tuple[Arm, ...]]
    own_given: Mapping[str, Given]
    balanced: tuple[Given, ...]
    groups: Mapping[str, Groups]
    contexts: tuple[Context, ...]
    pixels: Mapping[str, tuple[str | None, ...]]
    audited: tuple[LabelledImages, ...]

    def arms_of(self, model: str) -> tuple[Arm, ...]:
        """The arms of a model, its own among them."""
        known = {arm.name for arm in self.arms}
        return (*self.arms, *(arm for arm in self.own.get(model, ()) if arm.name not in known))

    def every_image_arm(self) -> list[Arm]:
        """All arms with images, each once by its name and images."""
        every = [*self.arms, *(arm for arms in self.own.values() for arm in arms)]
        return list({(arm.name, arm.debug.images.content): arm for arm in every if arm.debug is not None}.values())

    def every_mined(self) -> list[Told]:
        """Everything that was mined and is learned from, images and weights."""
        images: list[Told] = [arm.debug for arm in self.every_image_arm() if arm.debug is not None]
        return images + [arm for arm in self.arms if arm.weights is not None]


def prepare(source: MendSource, given: Sequence[Given], own: Mapping[str, Given], settings: MendSettings) -> Prepared:
    """Open what is named, all problems told together, and refuse what would judge itself."""
    problems: list[CounterfoilError] = []
    opened: list[WithControls] = []
    weighted: list[Arm] = []
    groups: dict[str, Groups] = {}
    owned: dict[str, WithControls] = {}
    audited = opened_parts(source.recipe, source.mine.on)
    for one in given:
        try:
            if one.kind == IMAGES:
                opened.append(open_debug_images(one, source.recipe))
            elif one.kind == WEIGHTS:
                known = read_train_weights(one.source, source.whole_train, source.train.keys)
                weighted.append(Arm(one.name, "upweighted", weights=known.weights, mined=known.mined))
            elif one.source not in groups:
                groups[one.source] = read_groups(one, source, audited)
        except CounterfoilError as error:
            problems.append(error)
    for model, one in own.items():
        try:
            if one.kind != IMAGES:
                raise UserError(f"--own {model}={one.name}: expected a built dataset")
            owned[model] = open_debug_images(one, source.recipe)
        except CounterfoilError as error:
            problems.append(error)
    raise_together(problems)
    arms = (*image_arms(opened, settings.seed), *weighted)
    own_arms = {model: tuple(image_arms([one], settings.seed)) for model, one in owned.items()}
    prepared = Prepared(
        source=source,
        settings=settings,
        given=tuple(given),
        arms=arms,
        own=own_arms,
        own_given=own,
        balanced=tuple(one for one in given if one.kind == BALANCED),
        groups=groups,
        contexts=all_contexts([*arms, *(arm for several in own_arms.values() for arm in several)]),
        pixels={},
        audited=audited,
    )
    pixels: dict[str, tuple[str | None, ...]] = {}
    for images in _every_image(prepared):
        if images.content not in pixels:
            pixels[images.content] = pixels_of(images)
    refuse_shared(*_sides(prepared, pixels))
    return Prepared(
        **{field: getattr(prepared, field) for field in prepared.__dataclass_fields__ if field != "pixels"},
        pixels=pixels,
    )


def _every_image(prepared: Prepared) -> Iterable[LabelledImages]:
    yield prepared.source.train
    for arm in prepared.every_image_arm():
        assert arm.debug is not None
        yield arm.debug.images
        if arm.debug.edited is not None:
            yield arm.debug.edited
    yield from prepared.audited
    if prepared.source.test is not None:
        yield prepared.source.test


def _sides(
    prepared: Prepared, pixels: Mapping[str, tuple[str | None, ...]]
) -> tuple[list[Known], list[Known], list[Known]]:
    """What is learned from, what is audited, and the test."""
    source, dataset = prepared.source, prepared.source.recipe.source.dataset

    def rows(images: LabelledImages, name: str, built: AuditedBuild | None = None) -> Known:
        of = dataset if built is None else images.name
        known = Known(name, images.keys, pixels[images.content], images.units, of)
        return known if built is None else replace(known, seeds=built.seeds, edited=built.edited, edited_of=dataset)

    def drawn(debug: DebugImages) -> Known:
        return Known(
            f"the images of {debug.name}",
            debug.images.keys,
            pixels[debug.images.content],
            debug.units,
            dataset,
            debug.seeds,
            frozenset(debug.edited.keys) if debug.edited is not None else frozenset(),
            dataset,
        )

    learned = [rows(source.train, f"the training images ({source.train.name})")]
    learned += [drawn(arm.debug) for arm in prepared.every_image_arm() if arm.debug is not None]
    audited = [rows(one, f"the audited images ({one.name})", source.audited) for one in prepared.audited]
    test = [] if source.test is None else [rows(source.test, f"the test ({source.test.name})")]
    return learned, audited, test


def context_rows_told(context: NDArray[np.int64], rows: NDArray[np.int64], count: int) -> list[int]:
    """How many of some rows are in each of `count` contexts."""
    own = context[rows]
    return np.bincount(own[own >= 0], minlength=count).tolist()
