"""A run as its document tells it: what rows were used, which contexts judged, and each model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from counterfoil.evaluation.spoken_numbers import points
from counterfoil.mending.arms import RETRAINED
from counterfoil.mending.choosing import FEWEST_ROWS, MOST_LOSS
from counterfoil.mending.collective import collective_of
from counterfoil.mending.debug_images import CLASS_NAME, RANDOM
from counterfoil.mending.document import ContextTold, Mended, ModelMended
from counterfoil.mending.fitting import EPOCHS, MOMENTUM, RATE, WEIGHT_DECAY
from counterfoil.mending.given import Given
from counterfoil.mending.one_model import MendedModel
from counterfoil.mending.opening import MendSource
from counterfoil.mending.prepared import Prepared, context_rows_told
from counterfoil.mending.told_names import told_collective, told_models, told_names
from counterfoil.mining.rows_hash import keys_sha256
from counterfoil.recipe import Recipe
from counterfoil.recipe.layering import without_folders
from counterfoil.recipe.schema_mine import Mine

_CONTROLS = {CLASS_NAME: "its name alone", RANDOM: "random contexts"}
_SGD = {"rate": RATE, "momentum": MOMENTUM, "epochs": EPOCHS}


def told_run(prepared: Prepared, found: Sequence[MendedModel]) -> Mended:
    """The document of models that were mended on the same rows."""
    source, settings, first = prepared.source, prepared.settings, found[0]
    recipe, test = source.recipe, source.test
    named = [one.told for one in found]
    models = told_models(named)
    return Mended(
        recipe=recipe_told(recipe),
        classes={cls.id: cls.name for cls in recipe.classes},
        audited={
            "on": [
                {"name": without_folders(part.name), "content": part.content, "rows": len(part)}
                for part in prepared.audited
            ],
            "failure": source.mine.failure,
            "seed": source.mine.seed,
            "dealt_by": first.dealt_by,
            "discover": _half(first, "discover", prepared),
            "confirm": _half(first, "confirm", prepared),
        },
        train={
            "name": without_folders(source.train.name),
            "content": source.train.content,
            "rows": len(source.train),
            "of": len(source.whole_train),
            "per_class": prepared.source.per_class,
            "seed": settings.seed,
        },
        test={
            "name": test_name(source),
            "content": None if test is None else test.content,
            "rows": len(first.confirm) if test is None else len(test),
            "is_confirm_half": test is None,
        },
        fit={
            "how": settings.how,
            "weight_decay": WEIGHT_DECAY,
            "lambdas": list(settings.grid),
            "most_loss": MOST_LOSS,
            "fewest_rows": FEWEST_ROWS,
            **(_SGD if settings.how == "sgd" else {}),
        },
        datasets=_datasets(prepared),
        contexts=_contexts(prepared, first),
        models=models,
        collective=told_collective(collective_of(prepared, found), named),
        asked=asked_names(prepared.given, prepared.own_given, source.mine),
        notes=_notes(prepared, found, models),
    )


def recipe_told(recipe: Recipe) -> dict[str, Any]:
    """A recipe, as a document calls it."""
    return {"name": recipe.name, "sha256": recipe.recipe_hash}


def test_name(source: MendSource) -> str:
    """What is judged on beside the confirm half, as a document calls it."""
    return "the confirm half" if source.test is None else without_folders(source.test.name)


def asked_names(given: Sequence[Given], own: Mapping[str, Given], mine: Mine) -> dict[str, Any]:
    """What a person named to mend with and to audit, as a document calls it."""
    models = told_names(own)
    datasets = told_names(one.name for one in own.values())
    return {
        "with": list(told_names(one.name for one in given).values()),
        "own": {models[model]: datasets[one.name] for model, one in own.items()},
        "audited": [without_folders(name) for name in mine.on],
    }


def _half(one: MendedModel, which: str, prepared: Prepared) -> dict[str, Any]:
    rows = one.discover if which == "discover" else one.confirm
    return {
        "rows": len(rows),
        "units": len(np.unique(one.units[rows])),
        "sha256": keys_sha256([one.keys[row] for row in rows.tolist()]),
    }


def _datasets(prepared: Prepared) -> tuple[Mapping[str, Any], ...]:
    return tuple(
        {
            "name": without_folders(arm.debug.dataset),
            "group": arm.debug.group,
            "content": arm.debug.content,
            "recipe": arm.debug.recipe,
            "seed": arm.debug.samples_seed,
            "role": arm.role,
            "images": len(arm.debug),
            "offered": arm.offered,
        }
        for arm in prepared.every_image_arm()
        if arm.debug is not None
    )


def _contexts(prepared: Prepared, one: MendedModel) -> tuple[ContextTold, ...]:
    count = len(prepared.contexts)
    discover = context_rows_told(one.context, one.discover, count)
    confirm = context_rows_told(one.context, one.confirm, count)
    classes = prepared.source.recipe.classes
    return tuple(
        ContextTold(
            context.name,
            classes[context.label].id,
            classes[context.label].name,
            context.caption,
            context.rank,
            discover[place],
            confirm[place],
        )
        for place, context in enumerate(prepared.contexts)
    )


def _notes(prepared: Prepared, found: Sequence[MendedModel], models: Sequence[ModelMended]) -> tuple[str, ...]:
    """What a reader should know of this run beside its numbers."""
    notes = []
    classes = prepared.source.recipe.classes
    for one, told in zip(found, models, strict=True):
        outputs = sum(map(len, one.targets))
        if outputs < told.outputs:
            notes.append(
                f"Of the {told.outputs:,} outputs of {told.name} {outputs:,} are of the"
                f" {len(classes):,} classes here; the others are never right in training, and every head that is fitted"
                " again gives them less."
            )
        retrained = told.arm(RETRAINED)
        if not retrained.within_bound:
            notes.append(
                f"{told.name}: the head retrained on {len(prepared.source.train):,} training images alone loses"
                f" more than {points(MOST_LOSS)} points on the discover half, before any drawn image. λ is chosen"
                " against it; more training images a class may cost less (--per-class)."
            )
        loose = [arm.name for arm in told.arms if not arm.settled]
        if loose:
            notes.append(f"{told.name}: the fit of {', '.join(loose)} ended before its minimum.")
    for arm in prepared.every_image_arm():
        assert arm.debug is not None
        for what, labels in arm.lacking.items():
            notes.append(
                f"Of {_listed([classes[label].name for label in labels])} there is no image of {_CONTROLS[what]} beside"
                f" those of {arm.debug.group}: no arm of this comparison learns from images of"
                f" {'it' if len(labels) == 1 else 'them'}, for all have equal numbers a class."
            )
    present = np.bincount(prepared.source.train.labels, minlength=len(classes))
    asked = prepared.settings.per_class or 0  # where nobody asked, all that there are is no lack
    few = [cls.name for cls in classes if 0 < present[cls.label] < asked]
    none = [cls.name for cls in classes if not present[cls.label]]
    if few:
        notes.append(f"Fewer than {asked} training images of {_listed(few)}.")
    if none:
        notes.append(f"No training image of {_listed(none)}: a head that is fitted again cannot know them.")
    fails = [np.bincount(one.labels[one.failed], minlength=len(classes)) for one in found]
    for name, own in zip((one.name for one in models), fails, strict=True):
        without = [cls.name for cls in classes if not own[cls.label]]
        if without:
            notes.append(f"{name} fails on no audited image of {_listed(without)}.")
    # What was found of the images first: it says whether the rest can be believed.
    return tuple(dict.fromkeys([*(note for one in found for note in one.notes), *notes]))


def _listed(names: Sequence[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
