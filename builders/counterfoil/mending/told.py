"""A run as its document tells it: what rows were used, which contexts judged, and each model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from counterfoil.mending.arms import RETRAINED
from counterfoil.mending.choosing import FEWEST_ROWS, MOST_LOSS
from counterfoil.mending.collective import collective_of
from counterfoil.mending.debug_images import CLASS_NAME, RANDOM
from counterfoil.mending.document import (
    MEND_VERSION,
    AskedFor,
    AuditedHalf,
    AuditedPart,
    AuditedRows,
    Collective,
    ContextTold,
    FitTold,
    ImagesLearned,
    Mended,
    ModelMended,
    RecipeMended,
    RowsTested,
    TrainRows,
    headline_of,
)
from counterfoil.mending.fitting import EPOCHS, MOMENTUM, RATE, WEIGHT_DECAY
from counterfoil.mending.given import Given, told_names
from counterfoil.mending.one_model import MendedModel
from counterfoil.mending.opening import MendSource
from counterfoil.mending.prepared import Prepared, context_rows_told
from counterfoil.mining.rows_hash import keys_sha256
from counterfoil.recipe import Recipe
from counterfoil.recipe.names import without_folders
from counterfoil.recipe.schema_mine import Mine
from counterfoil.report.words import listed, points

_CONTROLS = {CLASS_NAME: "its name alone", RANDOM: "random contexts"}


def told_run(prepared: Prepared, found: Sequence[MendedModel]) -> Mended:
    """The document of models that were mended on the same rows."""
    source, settings, first = prepared.source, prepared.settings, found[0]
    test = source.test
    models, collective = _called([one.told for one in found], collective_of(prepared, found))
    sgd = settings.how == "sgd"
    return Mended(
        version=MEND_VERSION,
        headline=headline_of(models),
        recipe=recipe_told(source.recipe),
        classes={cls.id: cls.name for cls in source.recipe.classes},
        audited=AuditedRows(
            on=tuple(AuditedPart(without_folders(part.name), part.content, len(part)) for part in prepared.audited),
            failure=source.mine.failure,
            seed=source.mine.seed,
            dealt_by=first.dealt_by,
            discover=_half(first, first.discover),
            confirm=_half(first, first.confirm),
        ),
        train=TrainRows(
            name=without_folders(source.train.name),
            content=source.train.content,
            rows=len(source.train),
            of=len(source.whole_train),
            per_class=source.per_class,
            seed=settings.seed,
        ),
        test=RowsTested(
            name=test_name(source),
            content=None if test is None else test.content,
            rows=len(first.confirm) if test is None else len(test),
            is_confirm_half=test is None,
        ),
        fit=FitTold(
            how=settings.how,
            weight_decay=WEIGHT_DECAY,
            lambdas=tuple(settings.grid),
            most_loss=MOST_LOSS,
            fewest_rows=FEWEST_ROWS,
            rate=RATE if sgd else None,
            momentum=MOMENTUM if sgd else None,
            epochs=EPOCHS if sgd else None,
        ),
        datasets=tuple(
            ImagesLearned(
                name=without_folders(arm.debug.dataset),
                group=arm.debug.group,
                content=arm.debug.content,
                recipe=arm.debug.recipe,
                seed=arm.debug.samples_seed,
                role=arm.role,
                images=len(arm.debug),
                offered=arm.offered,
            )
            for arm in prepared.every_image_arm()
            if arm.debug is not None
        ),
        contexts=_contexts(prepared, first),
        models=models,
        collective=collective,
        asked=asked_names(prepared.given, prepared.own_given, source.mine),
        notes=_notes(prepared, found, models),
    )


def recipe_told(recipe: Recipe) -> RecipeMended:
    """A recipe, as a document calls it."""
    return RecipeMended(recipe.name, recipe.recipe_hash)


def test_name(source: MendSource) -> str:
    """What is judged on beside the confirm half, as a document calls it."""
    return "the confirm half" if source.test is None else without_folders(source.test.name)


def asked_names(given: Sequence[Given], own: Mapping[str, Given], mine: Mine) -> AskedFor:
    """What a person named to mend with and to audit, as a document calls it."""
    models = told_names(own)
    datasets = told_names(one.name for one in own.values())
    return AskedFor(
        using=tuple(told_names(one.name for one in given).values()),
        own={models[model]: datasets[one.name] for model, one in own.items()},
        audited=tuple(without_folders(name) for name in mine.on),
    )


def _called(
    models: Sequence[ModelMended], collective: Collective | None
) -> tuple[tuple[ModelMended, ...], Collective | None]:
    """The same under the names that a document has, of models and of arms."""
    names = told_names(one.name for one in models)
    every = [arm for one in models for arm in one.arms]
    arms: dict[str | None, str | None] = {None: None}
    arms |= told_names(arm.name for arm in every if arm.of is None)
    arms |= {arm.name: f"{arm.name.removesuffix(arm.of)}{arms[arm.of]}" for arm in every if arm.of is not None}
    told = tuple(
        replace(
            one,
            name=names[one.name],
            best=arms[one.best],
            saved=arms[one.saved],
            arms=tuple(replace(arm, name=str(arms[arm.name]), of=arms[arm.of]) for arm in one.arms),
        )
        for one in models
    )
    if collective is None:
        return told, None
    kept = tuple(replace(one, model=names[one.model], arm=str(arms[one.arm])) for one in collective.kept)
    return told, replace(collective, models=tuple(names[name] for name in collective.models), kept=kept)


def _half(one: MendedModel, rows: NDArray[np.int64]) -> AuditedHalf:
    sha256 = keys_sha256([one.keys[row] for row in rows.tolist()])
    return AuditedHalf(rows=len(rows), units=len(np.unique(one.units[rows])), sha256=sha256)


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
                f"Of {listed([classes[label].name for label in labels])} there is no image of {_CONTROLS[what]} beside"
                f" those of {arm.debug.group}: no arm of this comparison learns from images of"
                f" {'it' if len(labels) == 1 else 'them'}, for all have equal numbers a class."
            )
    present = np.bincount(prepared.source.train.labels, minlength=len(classes))
    asked = prepared.settings.per_class or 0  # where nobody asked, all that there are is no lack
    few = [cls.name for cls in classes if 0 < present[cls.label] < asked]
    none = [cls.name for cls in classes if not present[cls.label]]
    if few:
        notes.append(f"Fewer than {asked} training images of {listed(few, 8)}.")
    if none:
        notes.append(f"No training image of {listed(none, 8)}: a head that is fitted again cannot know them.")
    fails = [np.bincount(one.labels[one.failed], minlength=len(classes)) for one in found]
    for name, own in zip((one.name for one in models), fails, strict=True):
        without = [cls.name for cls in classes if not own[cls.label]]
        if without:
            notes.append(f"{name} fails on no audited image of {listed(without, 8)}.")
    # What was found of the images first: it says whether the rest can be believed.
    return tuple(dict.fromkeys([*(note for one in found for note in one.notes), *notes]))
