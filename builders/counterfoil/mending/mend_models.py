"""`mend`: refit a model's head with rendered images, compare it with controls, and save it as a model folder."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from counterfoil.arrays import Bools, Floats
from counterfoil.data.folders import refuse_among_inputs
from counterfoil.dataset.card.index_page import write_index
from counterfoil.documents import document_text, read_document
from counterfoil.errors import UserError, warn
from counterfoil.evaluation.tasks.classes.measures.transfer import architecture_family
from counterfoil.mending import document, network
from counterfoil.mending.baselines import TRAINED
from counterfoil.mending.evaluating import FEWEST_ROWS, GRID, MOST_LOSS, lambda_grid
from counterfoil.mending.fitting import EPOCHS, FITS, MOMENTUM, RATE, WEIGHT_DECAY
from counterfoil.mending.given import BALANCED, POOL, Given, given_variants, shown_names
from counterfoil.mending.one_model import MendedModel, load_mendable, mend_one
from counterfoil.mending.options import MendOptions
from counterfoil.mending.prepared import TRAIN_IMAGES, MendSettings, MendSource, Prepared, mend_source, prepare
from counterfoil.mending.report import model_card
from counterfoil.mending.variants import CLASS_NAME, RANDOM, RETRAINED, SAVED_ROLES, UNCHANGED, DebugImages, role_of
from counterfoil.mining.collected import half_of
from counterfoil.mining.findings import AuditedImages, MinedRecipe
from counterfoil.models.classifiers.head import (
    head_of,
    refuse_another_folder,
    remove_mended,
    write_with_head,
)
from counterfoil.models.classifiers.of_python import handed_over
from counterfoil.models.devices import resolve_device
from counterfoil.models.mended import FORMAT, MendedModelName, MendedNote, MendedOn, MendedWith
from counterfoil.options import takes
from counterfoil.recipe.names import PYTHON, did_you_mean, without_folders
from counterfoil.recipe.schema_mine import Mine
from counterfoil.regular_files import named_path
from counterfoil.report.words import counted, listed, points
from counterfoil.store.atomic import make_folder, remove_stale, try_folder, write_atomically
from counterfoil.store.directory_lock import directory_lock

_CONTROLS = {CLASS_NAME: "its name alone", RANDOM: "random contexts", UNCHANGED: "unchanged photographs"}
# With 60 training images of each of ten classes retraining lost too much; with 250 it did not.
_ENOUGH = 250
DOCUMENT, TABLE, REPORT, MODEL, MODELS = "mend.json", "mend.csv", "report.html", "model", "models"
BEST, NONE = "best", "none"
_OF_NETWORKS = (
    "--fit network: each head here is the whole network, trained again from new weights. All had the same epochs and"
    " the same batches of training images."
)


def collective_of(prepared: Prepared, mended_models: Sequence[MendedModel]) -> document.Collective | None:
    """Compare models by their failures and by each other's images (Chegini 2023, 5.2.2 and 5.3.2); None for one."""
    if len(mended_models) < 2:
        return None
    failed = np.stack([model.audit.failed for model in mended_models])
    overlap = failure_overlap(failed)

    def gains(variant: document.VariantResult) -> tuple[float | None, float | None]:
        """Return the gain on held-out failures, and its excess over the retrained head, which needs no new images."""
        heldout = variant.of_set(document.HELDOUT)
        beside = (
            comparison.difference
            for comparison in variant.comparisons
            if (comparison.against, comparison.set) == (RETRAINED, document.HELDOUT)
        )
        return None if heldout is None else heldout.gain, next(beside, None)

    kept_gains = []
    for model in mended_models:
        own_names = {variant.name for variant in prepared.own.get(model.summary.name, ()) if variant.role == "mended"}
        own_gains = next((gains(variant) for variant in model.summary.arms if variant.name in own_names), (None, None))
        for variant in model.summary.arms:
            if variant.role != "mended":
                continue
            test, (gain, over) = variant.of_set(document.TEST), gains(variant)
            kept_gains.append(
                document.GainKept(
                    model=model.summary.name,
                    arm=variant.name,
                    own=variant.name in own_names,
                    images=variant.images,
                    heldout=gain,
                    test=None if test is None else test.gain,
                    kept=kept_gain(own_gains[0], gain),
                    over_retrained=over,
                    kept_over_retrained=kept_gain(own_gains[1], over),
                )
            )
    return document.Collective(
        models=tuple(model.summary.name for model in mended_models),
        families=tuple(architecture_family(model.summary.architecture, model.summary.name) for model in mended_models),
        failures=tuple(failed.sum(axis=1).tolist()),
        overlap=tuple(tuple(None if np.isnan(value) else float(value) for value in row) for row in overlap),
        kept=tuple(kept_gains),
    )


def failure_overlap(failed: Bools) -> Floats:
    """Return the intersection over union of failures for each pair of models, (m, m); NaN without failures.

    failed: (m, n), for m models and n rows.
    """
    counted = failed.astype(np.float64)
    both = counted @ counted.T
    failures = counted.sum(axis=1)
    either = failures[:, None] + failures[None, :] - both
    return np.divide(both, either, out=np.full_like(both, np.nan), where=either > 0)


def kept_gain(gain_own: float | None, other: float | None) -> float | None:
    """Return the gain with another model's images as a share of `gain_own`; None if `gain_own` is not above 0."""
    return None if gain_own is None or other is None or gain_own <= 0 else other / gain_own


def run_document(prepared: Prepared, mended_models: Sequence[MendedModel]) -> document.Mended:
    """Return the document of models that were mended on the same rows."""
    source, settings, audit = prepared.source, prepared.settings, mended_models[0].audit
    test = source.test
    models, collective = _called([model.summary for model in mended_models], collective_of(prepared, mended_models))
    whole, halves = settings.how == network.NETWORK, (audit.halves.discover, audit.halves.confirm)
    classes = {cls.id: cls.name for cls in source.recipe.classes}
    return document.Mended(
        version=document.MEND_VERSION,
        headline=" ".join((f"{model.name}: " if len(models) > 1 else "") + model.headline(classes) for model in models),
        recipe=MinedRecipe(source.recipe.name, source.recipe.recipe_hash),
        classes=classes,
        audited=document.AuditedRows(
            on=tuple(AuditedImages(without_folders(part.name), part.content, len(part)) for part in prepared.audited),
            failure=source.mine.failure,
            seed=source.mine.seed,
            dealt_by=audit.dealt_by,
            discover=half_of(audit, audit.halves.discover),
            confirm=half_of(audit, audit.halves.confirm),
        ),
        train=document.TrainRows(
            name=without_folders(source.train.name),
            content=source.train.content,
            rows=len(source.train),
            of=len(source.whole_train),
            per_class=source.per_class,
            seed=settings.seed,
        ),
        test=document.RowsTested(
            name=test_name(source),
            content=None if test is None else test.content,
            rows=len(audit.halves.confirm) if test is None else len(test),
            is_confirm_half=test is None,
        ),
        fit=document.FitSettings(
            how=settings.how,
            weight_decay=WEIGHT_DECAY,
            lambdas=tuple(settings.grid),
            most_loss=MOST_LOSS,
            fewest_rows=FEWEST_ROWS,
            rate={"sgd": RATE, network.NETWORK: network.RATE}.get(settings.how),
            momentum=None if settings.how == "lbfgs" else MOMENTUM,
            epochs={"sgd": EPOCHS, network.NETWORK: settings.epochs}.get(settings.how),
            batch=network.BATCH if whole else None,
        ),
        datasets=tuple(
            document.ImagesLearned(
                name=without_folders(debug.dataset),
                group=debug.group,
                content=debug.content,
                recipe=debug.recipe,
                seed=debug.samples_seed,
                role=variant.role,
                images=variant.images,
                offered=variant.offered,
            )
            for variant, debug in prepared.drawn()
        ),
        contexts=tuple(
            document.ContextShown(
                context.name,
                source.recipe.classes[context.label].id,
                source.recipe.classes[context.label].name,
                context.caption,
                context.rank,
                *(int((mended_models[0].context[half] == index).sum()) for half in halves),
            )
            for index, context in enumerate(prepared.contexts)
        ),
        models=models,
        collective=collective,
        asked=asked_names(prepared.given, prepared.own_given, source.mine),
        notes=_notes(prepared, mended_models, models),
    )


def test_name(source: MendSource) -> str:
    return "the confirm half" if source.test is None else without_folders(source.test.name)


def asked_names(given: Sequence[Given], given_by_model: Mapping[str, Given], mine: Mine) -> document.AskedFor:
    """Return the datasets and splits that the user named, to mend with and to audit, by their names in documents."""
    models = shown_names(given_by_model)
    datasets = shown_names(dataset.name for dataset in given_by_model.values())
    return document.AskedFor(
        using=tuple(shown_names(dataset.name for dataset in given).values()),
        own={models[model]: datasets[dataset.name] for model, dataset in given_by_model.items()},
        audited=tuple(without_folders(name) for name in mine.on),
    )


def _called(
    models: Sequence[document.ModelMended], collective: document.Collective | None
) -> tuple[tuple[document.ModelMended, ...], document.Collective | None]:
    """Return the same models and comparison, with the names of models and variants that documents use."""
    names = shown_names(model.name for model in models)
    every = [variant for model in models for variant in model.arms]
    variants: dict[str | None, str | None] = {None: None}
    variants |= shown_names(variant.name for variant in every if variant.of is None)
    variants |= {
        variant.name: f"{variant.name.removesuffix(variant.of)}{variants[variant.of]}"
        for variant in every
        if variant.of is not None
    }
    shown = tuple(
        replace(
            model,
            name=names[model.name],
            best=variants[model.best],
            saved=variants[model.saved],
            arms=tuple(
                replace(variant, name=str(variants[variant.name]), of=variants[variant.of]) for variant in model.arms
            ),
        )
        for model in models
    )
    if collective is None:
        return shown, None
    kept_gains = tuple(replace(kept, model=names[kept.model], arm=str(variants[kept.arm])) for kept in collective.kept)
    return shown, replace(collective, models=tuple(names[name] for name in collective.models), kept=kept_gains)


def _notes(
    prepared: Prepared, mended_models: Sequence[MendedModel], models: Sequence[document.ModelMended]
) -> tuple[str, ...]:
    notes = [_OF_NETWORKS] if prepared.settings.how == network.NETWORK else []
    classes = prepared.source.recipe.classes
    for mended_model, model in zip(mended_models, models, strict=True):
        outputs = sum(map(len, mended_model.audit.target.class_map.targets))
        if outputs < model.outputs:
            notes.append(
                f"{outputs:,} of the {model.outputs:,} outputs of {model.name} belong to the {len(classes):,} classes"
                " here. The other outputs are never right in training, so every refitted head predicts them less."
            )
        loose = [variant.name for variant in model.arms if not variant.settled]
        if loose:
            notes.append(f"{model.name}: the fit of {', '.join(loose)} stopped before its minimum.")
    for variant, debug in prepared.drawn():
        for what, labels in variant.lacking.items():
            notes.append(
                f"There is no image of {_CONTROLS[what]} for {listed([classes[label].name for label in labels])}. All"
                f" heads of a comparison get equal numbers per class, so those compared with {debug.group} learn from"
                f" no image of {'this class' if len(labels) == 1 else 'these classes'}."
            )
    present = np.bincount(prepared.source.train.labels, minlength=len(classes))
    wanted = prepared.settings.per_class or 0  # by default no number is required
    few = [cls.name for cls in classes if 0 < present[cls.label] < wanted]
    none = [cls.name for cls in classes if not present[cls.label]]
    if few:
        notes.append(f"Fewer than {wanted} training images of {listed(few, 8)}.")
    if none:
        notes.append(f"No training image of {listed(none, 8)}: a refitted head cannot know them.")
    fails = [np.bincount(model.audit.labels[model.audit.failed], minlength=len(classes)) for model in mended_models]
    for name, fail in zip((model.name for model in models), fails, strict=True):
        without = [cls.name for cls in classes if not fail[cls.label]]
        if without:
            notes.append(f"{name} fails on no audited image of {listed(without, 8)}.")
    # Notes about the images first: the other notes depend on them.
    return tuple(dict.fromkeys([*(note for mended_model in mended_models for note in mended_model.notes), *notes]))


@dataclass(frozen=True)
class MendResult:
    """The result of a run: its files (`report`, `document`, `table`), and the saved models by their given names.

    heads: the new heads of your own torch modules, by the same names. These have no folder: NAME-head.safetensors
    beside the report has `weight` and `bias`. With `fit="network"`, `heads[NAME].module` is the trained module, and
    NAME-network.safetensors has its weights.
    """

    directory: Path
    mended: document.Mended
    files: Mapping[str, Path]
    models: Mapping[str, Path]
    heads: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<MendResult in {self.directory}: {self.mended.headline}>"


def refuse_another_run(
    folder: Path, source: MendSource, models: Sequence[str], settings: MendSettings, datasets: document.AskedFor
) -> None:
    """Raise UserError if a folder holds the result of other models, rows or settings.

    A run with further datasets is the same run: it keeps all earlier results.
    """
    for subfolder in model_places(models).values():
        refuse_another_folder(folder / subfolder)
    path = folder / DOCUMENT
    if not path.exists():
        return
    known = read_document(path, document.Mended)
    named = ", ".join(model.name for model in known.models)
    recipes = (known.recipe.name, known.recipe.sha256), (source.recipe.name, source.recipe.recipe_hash)
    other = [
        f"{what}: {earlier}, not {value}"
        for what, earlier, value in (
            ("models", named, ", ".join(shown_names(models).values())),
            ("recipe", *(f"{name} ({sha256[:12]})" for name, sha256 in recipes)),
            ("mine.seed", known.audited.seed, source.mine.seed),
            ("mine.failure", known.audited.failure, source.mine.failure),
            ("audited", ", ".join(known.asked.audited), ", ".join(datasets.audited)),
            ("--test", known.test.name, test_name(source)),
            ("--fit", known.fit.how, settings.how),
            ("--epochs", known.fit.epochs, settings.epochs if settings.how == network.NETWORK else known.fit.epochs),
            ("--seed", known.train.seed, settings.seed),
            ("--per-class", known.train.per_class, source.per_class),
        )
        if earlier != value
    ]
    left = [name for name in known.asked.using if name not in datasets.using]
    left += [f"--own {model}={name}" for model, name in known.asked.own.items() if datasets.own.get(model) != name]
    if left:
        other.append(f"--with: {', '.join(left)} too")
    if other:
        raise UserError(
            f"{folder} holds the result of mending {named} on {known.recipe.name}, with other settings:"
            f" {'; '.join(other)}",
            "Name another folder with --out, or remove that one.",
        )


def model_places(models: Sequence[str]) -> dict[str, str]:
    """Return each model's subfolder of the run: its name, with a number if the name is taken."""
    if len(models) == 1:
        return {models[0]: MODEL}
    names: dict[str, str] = {}
    for model in models:
        name = re.sub(r"[^A-Za-z0-9._-]+", "_", without_folders(model)).strip("._-")[-80:] or "model"
        taken = {name.lower() for name in names.values()}  # some file systems ignore case
        numbered = (f"{MODELS}/{name}_{number}" for number in itertools.count(2))
        every = itertools.chain([f"{MODELS}/{name}"], numbered)
        names[model] = next(name for name in every if name.lower() not in taken)
    return names


def write_mended(
    folder: Path, mended: document.Mended, mended_models: Sequence[MendedModel], prepared: Prepared
) -> MendResult:
    """Write models, then the report, and the document last: a folder that has one is complete."""
    from safetensors.numpy import save

    from counterfoil.mending.report import mend_report

    planned = model_places([model.summary.name for model in mended_models])
    what = network.NETWORK if mended.fit.how == network.NETWORK else "head"
    head_files = {name: f"{Path(planned_path).name}-{what}.safetensors" for name, planned_path in planned.items()}
    # An old document would be wrong beside a new model.
    remove_stale(folder, (DOCUMENT, *head_files.values()))
    finished: list[document.ModelMended] = []
    folders: dict[str, Path] = {}
    heads: dict[str, Any] = {}
    for mended_model, model in zip(mended_models, mended.models, strict=True):
        if mended_model.summary.saved is not None and mended_model.summary.name.startswith(PYTHON):
            name, head = mended_model.summary.name, mended_model.heads[mended_model.summary.saved]
            heads[name.removeprefix(PYTHON)] = head
            write_atomically(folder / head_files[name], save(head.tensors()))
        elif mended_model.summary.saved is not None:
            subfolder = planned[mended_model.summary.name]
            variant = mended_model.summary.variant(mended_model.summary.saved)
            about = about_model(mended_model, prepared).to_json()
            audited = [without_folders(part.name) for part in prepared.audited]
            balanced = variant.role in document.BALANCED_ROLES
            card = model_card(
                about,
                variant.verdict or "",
                role=variant.role,
                headline=model.headline(mended.classes),
                images=mended_model.summary.images_are(variant),
                helps=variant.outcome == document.HELPS,
                trained_on=audited if balanced else [without_folders(prepared.source.train.name)],
                chosen_on=[] if balanced else audited,
            )
            classifier, head = mended_model.classifier, mended_model.heads[variant.name]
            if isinstance(head, network.Network):
                classifier = replace(classifier, module=head.module.cpu())
                head = head_of(classifier)
            sha256 = write_with_head(classifier, head, folder / subfolder, about=about, card=card)
            folders[mended_model.summary.name] = (folder / subfolder).resolve()
            model = replace(model, folder=subfolder, mended_sha256=sha256)
        else:
            remove_mended(folder / planned[mended_model.summary.name])
        finished.append(model)
    whole = replace(mended, models=tuple(finished))
    files = {
        "table": (TABLE, document.mend_csv(whole)),
        "report": (REPORT, mend_report(whole)),
        "document": (DOCUMENT, document_text(whole)),
    }
    for name, text in files.values():
        write_atomically(folder / name, text.encode())
    write_index(folder)
    written = {what: (folder / name).resolve() for what, (name, _) in files.items()}
    return MendResult(folder, whole, written, folders, heads)


def about_model(mended_model: MendedModel, prepared: Prepared) -> MendedNote:
    """Return `mended.json` of a model folder; it lists the training data, so that no evaluation uses these images."""
    assert mended_model.summary.saved is not None
    variant = mended_model.summary.variant(mended_model.summary.saved)
    source = prepared.source
    used = next(
        (known for known in prepared.variants_of(mended_model.summary.name) if known.name == variant.name), None
    )
    debug = None if used is None or variant.lam == 0 else used.debug
    seen = ((source.whole_train,) if variant.role not in document.BALANCED_ROLES else ()) + prepared.audited
    rows = {"discover": variant.images}
    if variant.role not in document.BALANCED_ROLES:
        rows = {"train": len(source.train)}
        if variant.images and variant.lam != 0:  # at λ = 0 the head was fitted to no drawn image
            rows["debug"] = variant.images
    return MendedNote(
        format=FORMAT,
        model=MendedModelName(without_folders(mended_model.summary.name), mended_model.summary.sha256),
        on=tuple(MendedOn(without_folders(part.name), part.content) for part in seen),
        train_content=tuple(fitted_pixels(mended_model, variant.role, debug, prepared)),
        datasets=()
        if debug is None
        else (
            MendedWith(
                name=without_folders(debug.dataset),
                content=debug.content,
                group=debug.group,
                seed=debug.samples_seed if debug.seeds else None,  # rows and edits have no noise
                recipe=debug.recipe,
                edits=debug.edits,
            ),
        ),
        lam=variant.lam,
        fit=prepared.settings.how,
        weight_decay=WEIGHT_DECAY,
        rows=rows,
    )


def fitted_pixels(mended_model: MendedModel, role: str, debug: DebugImages | None, prepared: Prepared) -> list[str]:
    """Return digests of the pixels that a head of this role was fitted to, and of edited source rows."""
    digests: set[str | None] = set()
    if role in document.BALANCED_ROLES:
        pixels = {
            key: digest
            for part in prepared.audited
            for key, digest in zip(part.keys, prepared.pixels[part.content], strict=True)
        }
        digests |= {pixels[mended_model.audit.keys[row]] for row in mended_model.audit.halves.discover.tolist()}
    else:
        digests |= set(prepared.pixels[prepared.source.train.content])
    if debug is not None:
        for images in (debug.images, *([debug.edited] if debug.edited is not None else [])):
            digests |= set(prepared.pixels[images.content])
    return sorted(digest for digest in digests if digest is not None)


@takes(MendOptions)
def mend(options: MendOptions) -> MendResult:
    """Refit the heads of models with the images of datasets, and report what that gains.

    λ is chosen on the discover half. The report measures on the confirm half and on the split `test`, and compares with
    controls: the head retrained without these images and, if the dataset has them, images of class names and of random
    contexts. If a run stops, call the function again: it resumes and writes byte-identical output.

    Returns:
        A MendResult with the numbers, and the paths of the files and models.

    Raises:
        UserError: An input cannot be used. Examples: the same images serve for training and testing, or a model is near
            chance on the base of a dataset.
        RunFailure: The run cannot continue.
    """
    fit = options.fit
    save = options.save
    with handed_over(options.models, options.transform) as (called, callables):
        names = tuple(dict.fromkeys(called))
        owned = {
            PYTHON + name if PYTHON + name in names else name: written for name, written in (options.own or {}).items()
        }
        strange = [name for name in owned if name not in names]
        if strange:
            raise UserError(f"--own {strange[0]}: it is not a model to mend{did_you_mean(strange[0], names)}")
        given = given_variants([options.using] if isinstance(options.using, str) else list(options.using))
        given_by_model = {name: given_variants([written])[0] for name, written in owned.items()}
        fits = (*FITS, network.NETWORK)
        if fit not in fits:
            raise UserError(f"--fit: found '{fit}', expected {' or '.join(fits)}{did_you_mean(fit, fits)}")
        pools = [dataset for dataset in given if dataset.kind == POOL]
        whole = fit == network.NETWORK
        unfit = [dataset for dataset in given if dataset.kind == BALANCED]
        if not whole:
            unfit = [dataset for dataset in pools if dataset.group in TRAINED]
        if unfit:
            raise UserError(
                f"--with {unfit[0].name}: it does not go with --fit {fit}",
                "Leave it out, or choose another --fit: balanced groups refit a head, early and lff train a network.",
            )
        lambdas = options.lambdas
        if lambdas is None:
            lambdas = network.GRID if whole else GRID
        settings = MendSettings(
            lambda_grid(lambdas), fit, options.per_class, options.seed, save, options.effects, options.epochs
        )
        known = (BEST, NONE, *(dataset.name for dataset in given if role_of(dataset) in SAVED_ROLES))
        if save is not None and save not in known and save in (dataset.name for dataset in given):
            raise UserError(
                f"--save {save}: it uses the true groups, so its head is an upper bound and not a usable model",
                f"Name another: {', '.join(known)}.",
            )
        if save is not None and save not in known:
            raise UserError(f"--save: found '{save}', expected {', '.join(known)}{did_you_mean(save, known)}")
        source = mend_source(
            options.on,
            options.overrides,
            options.test,
            options.per_class,
            options.seed,
            options.audited,
            [pool.source for pool in pools],
        )
        folder = named_path(options.out)
        try_folder(folder)
        refuse_among_inputs(folder, source.recipe.source.dataset)
        for classifier in callables:
            classifier.images = lambda: [source.train]
        classifiers = load_mendable(names, source)
        used_device = resolve_device(options.device)
        make_folder(folder)
        with directory_lock(folder):
            refuse_another_run(folder, source, names, settings, asked_names(given, given_by_model, source.mine))
            prepared = prepare(source, given, given_by_model, settings)
            for classifier in classifiers.values() if whole else ():
                network.Network.of(classifier, images=sum(map(len, prepared.pixels.values())))
            if len(source.train) < (wanted := min(TRAIN_IMAGES, _ENOUGH * len(source.recipe.classes))):
                warn(
                    f"The head is fitted to {counted(len(source.train), 'training image')}, and about {wanted:,} are"
                    " needed: with fewer, retraining alone often loses more than"
                    f" {points(MOST_LOSS)} points, and then no weight of other images is allowed. Add photographs to"
                    " the training split, or raise --per-class."
                )
            mended_models = [mend_one(classifiers[name], prepared, folder, used_device) for name in names]
            for classifier in classifiers.values():
                classifier.released()  # moves a module that was passed in back to its device
            mended = run_document(prepared, mended_models)
            return write_mended(folder, mended, mended_models, prepared)
