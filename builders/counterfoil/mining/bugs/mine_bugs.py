"""`mine --method bugs`: the search with real rounds, a real captioner and a real target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from counterfoil.errors import UserError
from counterfoil.mining.audited import answers_of, class_map_of
from counterfoil.mining.bugs.describing import ClusterDescriber
from counterfoil.mining.bugs.document import answer_names, document_of, target_of
from counterfoil.mining.bugs.estimating import estimate_rates
from counterfoil.mining.bugs.family import with_more
from counterfoil.mining.bugs.files import (
    KeptImages,
    images_by_key,
    images_of_rounds,
    kept_tries,
    refuse_undrawn,
    written,
)
from counterfoil.mining.bugs.rounds import RoundDrawer
from counterfoil.mining.bugs.search import FailedImages, refuse_small_search, search_bugs
from counterfoil.mining.findings import AuditedImages
from counterfoil.mining.findings_layer import laid_over
from counterfoil.mining.mined_files import MineResult, refuse_others
from counterfoil.mining.opened_images import opened_parts
from counterfoil.models.captioners import CaptionExample, describe_captioner, load_captioner
from counterfoil.prediction.class_map import ClassMap
from counterfoil.prediction.failures import failures, refuse_unanswered
from counterfoil.recipe import Recipe
from counterfoil.recipe.loader import layer_text
from counterfoil.recipe.names import did_you_mean
from counterfoil.recipe.schema_mine import BugsSettings, Mine
from counterfoil.regular_files import named_path
from counterfoil.sources import LabelledImages
from counterfoil.store.decoding import readable_image

_MOST_EXAMPLE_BYTES = 1 << 26


def mine_bugs(
    recipe: Recipe,
    mine: Mine,
    settings: BugsSettings,
    source: str | Path,
    overrides: Sequence[str],
    folder: Path,
    device: str,
    workers: int | None,
) -> MineResult:
    """A `Search`: rounds in `folder`, then findings, their table, page and recipes.

    A run that was killed goes on: its rounds are there, and answers, features and captions are found in the user's
    cache. UserError for what cannot be drawn, described or answered, before anything is drawn.
    """
    refuse_undrawn(recipe, mine, settings)
    labels = _labels(recipe, settings)
    refuse_small_search(len(labels), mine, settings)
    examples = opened_examples(settings)
    class_map = class_map_of(recipe, mine.target or "")
    refuse_unanswered(mine.failure, recipe.classes, class_map)
    target = target_of(recipe, mine, class_map)
    captioner = load_captioner(settings.captioner, device)
    seeds, parts = _seeds(recipe, mine, settings, class_map, device)
    contents = [AuditedImages(part.name, part.content, len(part)) for part in parts]
    refuse_others(folder, recipe, mine, [one.content for one in contents])
    tried = kept_tries(folder, recipe, mine, settings)
    drawer = RoundDrawer(recipe, mine, settings, source, overrides, folder, device, workers)
    kept = KeptImages(drawer)
    kept.images.update({f"seeds/{place}/": part for place, part in enumerate(parts)})
    describer = ClusterDescriber(recipe, mine, settings, captioner, examples, kept.images)
    found = search_bugs(
        labels,
        [cls.name for cls in recipe.classes],
        kept.draw,
        kept.look(recipe, device),
        describer,
        mine,
        settings,
        seeds,
    )
    names = answer_names(recipe, class_map)
    findings = document_of(found, recipe, mine, settings, target, names, contents)
    # What stands without what was tried by hand is estimated first: these rounds are the same before and after a try.
    later = KeptImages(replace(drawer, past_others=True), kept.images)
    findings = estimate_rates(findings, later.draw, 1 + len(found.rounds), recipe, settings, names)
    if tried is not None:
        findings = with_more(findings, tried.findings, tried.rounds)
        kept.images.update(images_of_rounds(folder, tried.rounds))
        findings = estimate_rates(findings, later.draw, 1, recipe, settings, names, "try_estimate")
    asked = asked_layer(folder, mine, settings, source, overrides)
    return written(findings, partial(images_by_key, kept.images), recipe, settings, source, overrides, folder, asked)


def opened_examples(settings: BugsSettings) -> tuple[CaptionExample, ...]:
    """The described images that a captioner is shown. UserError where it takes none, or an image cannot be read."""
    takes = describe_captioner(settings.captioner).takes_examples
    if settings.examples and not takes:
        raise UserError(
            f"mine.settings.examples: {settings.captioner} is shown an image and nothing else",
            "Leave the examples out, or name a chat model that takes images.",
        )
    found, wrong = [], []
    for one in settings.examples:
        path = named_path(one.image)
        image = None
        if path.is_file() and path.stat().st_size <= _MOST_EXAMPLE_BYTES:
            image = readable_image(path.read_bytes(), photograph=True)
        if image is None:
            wrong.append(f"mine.settings.examples: {path} is no image that can be read")
        else:
            found.append(CaptionExample(one.text, image))
    if wrong:
        raise UserError(wrong, "Name images (PNG, JPEG, WebP …) by their paths.")
    return tuple(found)


def _labels(recipe: Recipe, settings: BugsSettings) -> tuple[int, ...]:
    if settings.classes is None:
        return tuple(cls.label for cls in recipe.classes)
    known = {cls.id: cls.label for cls in recipe.classes}
    wrong = [one for one in settings.classes if one not in known]
    if wrong:
        # A person who names one is told its id.
        by_name = {cls.name: cls.id for cls in recipe.classes}
        close = [f"; did you mean '{by_name[one]}'?" if one in by_name else did_you_mean(one, known) for one in wrong]
        raise UserError(
            [
                f"mine.settings.classes: the recipe has no class of the id '{one}'{meant}"
                for one, meant in zip(wrong, close, strict=True)
            ],
            f"There is: {', '.join(list(known)[:20])}.",
        )
    return tuple(sorted({known[one] for one in settings.classes}))


def _seeds(
    recipe: Recipe, mine: Mine, settings: BugsSettings, class_map: ClassMap, device: str
) -> tuple[FailedImages | None, tuple[LabelledImages, ...]]:
    """Images that exist whose failures are described, and where they come from; none where the base's are."""
    if settings.seeds is None:
        return None, ()
    parts = opened_parts(recipe, settings.seeds, "mine.settings.seeds")
    target = mine.target or ""
    answers = answers_of(parts, {target: class_map}, recipe, device)[target].predictions
    labels = np.concatenate([part.labels for part in parts])
    failed = failures(mine.failure, answers, labels, recipe.classes, class_map)
    keys = [f"seeds/{place}/{key}" for place, part in enumerate(parts) for key in part.keys]
    # What nobody can decode is answered neither right nor wrong.
    rows = np.flatnonzero(answers.readable)
    of_rows = tuple(keys[row] for row in rows.tolist())
    return FailedImages(of_rows, labels[rows], failed[rows], answers.prediction[rows].astype(np.int64)), parts


def asked_layer(folder: Path, mine: Mine, settings: BugsSettings, source: str | Path, overrides: Sequence[str]) -> str:
    """The text of what was asked, as a layer in the folder: more hypotheses are tried by it later."""
    below, carried, extends = laid_over(source, overrides, folder)
    section = mine.model_dump(mode="json", exclude_none=True)
    section["settings"] = settings.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    return layer_text(carried | {"mine": section}, below, extends)
