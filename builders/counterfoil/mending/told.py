"""A run as its document tells it: what rows were used, which contexts judged, and each model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from counterfoil.evaluation.spoken_numbers import points
from counterfoil.mending.arms import RETRAINED
from counterfoil.mending.choosing import FEWEST_ROWS, MOST_LOSS
from counterfoil.mending.collective import collective_of
from counterfoil.mending.document import ContextTold, Mended
from counterfoil.mending.fitting import EPOCHS, MOMENTUM, RATE, WEIGHT_DECAY
from counterfoil.mending.one_model import MendedModel
from counterfoil.mending.prepared import Prepared, context_rows_told
from counterfoil.mining.rows_hash import keys_sha256
from counterfoil.recipe.layering import without_folders

_SGD = {"rate": RATE, "momentum": MOMENTUM, "epochs": EPOCHS}


def told_run(prepared: Prepared, found: Sequence[MendedModel]) -> Mended:
    """The document of models that were mended on the same rows."""
    source, settings, first = prepared.source, prepared.settings, found[0]
    recipe, test = source.recipe, source.test
    return Mended(
        recipe={"name": recipe.name, "sha256": recipe.recipe_hash},
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
            "name": source.train.name,
            "content": source.train.content,
            "rows": len(source.train),
            "of": source.every_train,
            "per_class": settings.per_class,
            "seed": settings.seed,
        },
        test={
            "name": "the confirm half" if test is None else test.name,
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
        models=tuple(one.told for one in found),
        collective=collective_of(prepared, found),
        notes=_notes(prepared, found),
    )


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


def _notes(prepared: Prepared, found: Sequence[MendedModel]) -> tuple[str, ...]:
    """What a reader should know of this run beside its numbers."""
    notes = []
    classes = prepared.source.recipe.classes
    for one in found:
        outputs = sum(map(len, one.targets))
        if outputs < one.told.outputs:
            notes.append(
                f"Of the {one.told.outputs:,} outputs of {one.told.name} {outputs:,} are of the"
                f" {len(classes):,} classes here; the others are never right in training, and every head that is fitted"
                " again gives them less."
            )
        retrained = one.told.arm(RETRAINED)
        if not retrained.within_bound:
            notes.append(
                f"{one.told.name}: the head retrained on {len(prepared.source.train):,} training images alone loses"
                f" more than {points(MOST_LOSS)} points on the discover half, before any drawn image. λ is chosen"
                " against it; more training images a class may cost less (--per-class)."
            )
        loose = [arm.name for arm in one.told.arms if not arm.settled]
        if loose:
            notes.append(f"{one.told.name}: the fit of {', '.join(loose)} ended before its minimum.")
    present = np.bincount(prepared.source.train.labels, minlength=len(classes))
    few = [cls.name for cls in classes if 0 < present[cls.label] < prepared.settings.per_class]
    none = [cls.name for cls in classes if not present[cls.label]]
    if few:
        notes.append(f"Fewer than {prepared.settings.per_class} training images of {_listed(few)}.")
    if none:
        notes.append(f"No training image of {_listed(none)}: a head that is fitted again cannot know them.")
    fails = [np.bincount(one.labels[one.failed], minlength=len(classes)) for one in found]
    for name, own in zip((one.told.name for one in found), fails, strict=True):
        without = [cls.name for cls in classes if not own[cls.label]]
        if without:
            notes.append(f"{name} fails on no audited image of {_listed(without)}.")
    return tuple(notes)


def _listed(names: Sequence[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
