"""`mend`: refit a model's head with rendered images, compare it with controls, and save it as a
model folder."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
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
from counterfoil.mending import network
from counterfoil.mending.baselines import TRAINED
from counterfoil.mending.document import (
    BALANCED_ROLES,
    HELDOUT,
    HELPS,
    MEND_VERSION,
    TEST,
    AskedFor,
    AuditedRows,
    Collective,
    ContextShown,
    FitSettings,
    GainKept,
    ImagesLearned,
    Mended,
    ModelMended,
    RowsTested,
    TrainRows,
    VariantResult,
    mend_csv,
)
from counterfoil.mending.evaluating import FEWEST_ROWS, GRID, MOST_LOSS, lambda_grid
from counterfoil.mending.fitting import EPOCHS, FITS, MOMENTUM, RATE, WEIGHT_DECAY
from counterfoil.mending.given import BALANCED, POOL, Given, given_variants, shown_names
from counterfoil.mending.network import NETWORK, Network
from counterfoil.mending.one_model import MendedModel, load_mendable, mend_one
from counterfoil.mending.options import MendOptions
from counterfoil.mending.prepared import (
    TRAIN_IMAGES,
    MendSettings,
    MendSource,
    Prepared,
    mend_source,
    prepare_inputs,
)
from counterfoil.mending.report import mend_report, model_card
from counterfoil.mending.variants import (
    CLASS_NAME,
    RANDOM,
    RETRAINED,
    SAVED_ROLES,
    UNCHANGED,
    role_of,
)
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
from counterfoil.report.words import format_count, format_list, format_points
from counterfoil.store.atomic import make_folder, remove_stale, try_folder, write_atomically
from counterfoil.store.directory_lock import directory_lock

_CONTROLS = {
    CLASS_NAME: "its name alone",
    RANDOM: "random contexts",
    UNCHANGED: "unchanged photographs",
}
# With 60 training images of each of ten classes retraining lost too much; with 250 it did not.
_ENOUGH = 250
DOCUMENT = "mend.json"
TABLE = "mend.csv"
REPORT = "report.html"
MODEL = "model"
MODELS = "models"
BEST = "best"
NONE = "none"
_OF_NETWORKS = (
    "--fit network: each head here is the whole network, trained again from new weights. All had"
    " the same epochs and the same batches of training images."
)


def collective_of(
    models: Sequence[ModelMended], failed: Bools, own_variants: Sequence[Collection[str]]
) -> Collective | None:
    """Compare models by their failures and by each other's images (Chegini 2023, 5.2.2 and 5.3.2);
    None for one.

    failed: (m, n), for m models and n rows. own_variants: for each model the variants of its own
    dataset.
    """
    if len(models) < 2:
        return None

    def gains(arm: VariantResult) -> tuple[float | None, float | None]:
        """Return the gain on held-out failures, and its excess over the retrained head, which needs
        no new images."""
        gain = arm.gain_on(HELDOUT)
        over = arm.against.get(RETRAINED, {}).get(HELDOUT)
        if over is None:
            return gain, None
        return gain, over.difference

    kept_gains = []
    for model, own_names in zip(models, own_variants, strict=True):
        mended = [arm for arm in model.arms if arm.role == "mended"]
        gains_of_own = (gains(arm) for arm in mended if arm.name in own_names)
        own_gain, own_over = next(gains_of_own, (None, None))
        for arm in mended:
            gain, over = gains(arm)
            kept = GainKept(
                model=model.name,
                arm=arm.name,
                own=arm.name in own_names,
                images=arm.images,
                heldout=gain,
                test=arm.gain_on(TEST),
                kept=kept_gain(own_gain, gain),
                over_retrained=over,
                kept_over_retrained=kept_gain(own_over, over),
            )
            kept_gains.append(kept)
    shares = failure_overlap(failed)
    overlap = shares.astype(object)
    overlap[np.isnan(shares)] = None
    return Collective(
        models=tuple(model.name for model in models),
        families=tuple(architecture_family(model.architecture, model.name) for model in models),
        failures=tuple(failed.sum(axis=1).tolist()),
        overlap=tuple(map(tuple, overlap.tolist())),
        kept=tuple(kept_gains),
    )


def failure_overlap(failed: Bools) -> Floats:
    """Return the intersection over union of failures for each pair of models, (m, m); NaN without
    failures.

    failed: (m, n), for m models and n rows.
    """
    counted = failed.astype(np.float64)
    both = counted @ counted.T
    failures = counted.sum(axis=1)
    either = failures[:, None] + failures - both
    unknown = np.full_like(both, np.nan)
    return np.divide(both, either, out=unknown, where=either > 0)


def kept_gain(gain_own: float | None, other: float | None) -> float | None:
    """Return the gain with another model's images as a share of `gain_own`; None if `gain_own` is
    not above 0."""
    if gain_own is None or other is None or gain_own <= 0:
        return None
    return other / gain_own


def run_document(
    prepared: Prepared, mended_models: Sequence[MendedModel], asked: AskedFor
) -> Mended:
    """Return the document of models that were mended on the same rows."""
    source = prepared.source
    settings = prepared.settings
    test = source.test
    first = mended_models[0]
    audit = first.audit
    halves = audit.halves
    models, shown = _renamed([model.summary for model in mended_models])
    own_variants = []
    for model in mended_models:
        variants = prepared.own.get(model.summary.name, ())
        mended = [variant.name for variant in variants if variant.role == "mended"]
        own_variants.append([shown[name] for name in mended])
    classes = source.class_names
    headlines = []
    for model in models:
        headline = model.headline(classes)
        if len(models) > 1:
            headline = f"{model.name}: {headline}"
        headlines.append(headline)
    failed = np.stack([model.audit.failed for model in mended_models])
    audited_on = []
    for part in prepared.audited:
        images = AuditedImages(without_folders(part.name), part.content, len(part))
        audited_on.append(images)
    how = settings.how
    return Mended(
        version=MEND_VERSION,
        headline=" ".join(headlines),
        recipe=MinedRecipe(source.recipe.name, source.recipe.recipe_hash),
        classes=classes,
        audited=AuditedRows(
            on=tuple(audited_on),
            failure=source.mine.failure,
            seed=source.mine.seed,
            dealt_by=audit.dealt_by,
            discover=half_of(audit, halves.discover),
            confirm=half_of(audit, halves.confirm),
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
            rows=len(halves.confirm) if test is None else len(test),
            is_confirm_half=test is None,
        ),
        fit=FitSettings(
            how=how,
            weight_decay=WEIGHT_DECAY,
            lambdas=tuple(settings.grid),
            most_loss=MOST_LOSS,
            fewest_rows=FEWEST_ROWS,
            rate={"sgd": RATE, NETWORK: network.RATE}.get(how),
            momentum=None if how == "lbfgs" else MOMENTUM,
            epochs={"sgd": EPOCHS, NETWORK: settings.epochs}.get(how),
            batch=network.BATCH if how == NETWORK else None,
        ),
        datasets=tuple(_images_learned(prepared)),
        contexts=tuple(_contexts_shown(prepared, first)),
        models=models,
        collective=collective_of(models, failed, own_variants),
        asked=asked,
        notes=_notes(prepared, mended_models, models),
    )


def _contexts_shown(prepared: Prepared, mended: MendedModel) -> Iterator[ContextShown]:
    halves = mended.audit.halves
    for index, context in enumerate(prepared.contexts):
        cls = prepared.source.recipe.classes[context.label]
        is_shown = mended.context == index
        yield ContextShown(
            context.name,
            cls.id,
            cls.name,
            context.caption,
            context.rank,
            discover=int(is_shown[halves.discover].sum()),
            confirm=int(is_shown[halves.confirm].sum()),
        )


def _images_learned(prepared: Prepared) -> Iterator[ImagesLearned]:
    for variant, debug in prepared.drawn():
        yield ImagesLearned(
            name=without_folders(debug.dataset),
            group=debug.group,
            content=debug.content,
            recipe=debug.recipe,
            seed=debug.samples_seed,
            role=variant.role,
            images=variant.images,
            offered=variant.offered,
        )


def test_name(source: MendSource) -> str:
    return "the confirm half" if source.test is None else without_folders(source.test.name)


def asked_names(
    given: Sequence[Given], given_by_model: Mapping[str, Given], mine: Mine
) -> AskedFor:
    """Return the datasets and splits that the user named, to mend with and to audit, by their names
    in documents."""
    models = shown_names(given_by_model)
    datasets = shown_names(dataset.name for dataset in given_by_model.values())
    return AskedFor(
        using=tuple(shown_names(dataset.name for dataset in given).values()),
        own={models[model]: datasets[dataset.name] for model, dataset in given_by_model.items()},
        audited=tuple(without_folders(name) for name in mine.on),
    )


def _renamed(models: Sequence[ModelMended]) -> tuple[tuple[ModelMended, ...], dict[str, str]]:
    """Return the same models, with the names of models and variants in documents, and these names of
    variants by their own."""
    every = [arm for model in models for arm in model.arms]
    shown = shown_names(arm.name for arm in every if arm.of is None)
    for arm in every:
        if arm.of is not None:
            shown[arm.name] = arm.name.removesuffix(arm.of) + shown[arm.of]
    names = shown_names(model.name for model in models)
    renamed = []
    for model in models:
        arms = [
            replace(arm, name=shown[arm.name], of=shown.get(arm.of or "")) for arm in model.arms
        ]
        model = replace(
            model,
            name=names[model.name],
            best=shown.get(model.best or ""),
            saved=shown.get(model.saved or ""),
            arms=tuple(arms),
        )
        renamed.append(model)
    return tuple(renamed), shown


def _notes(
    prepared: Prepared, mended_models: Sequence[MendedModel], models: Sequence[ModelMended]
) -> tuple[str, ...]:
    # Notes about the images come first: the other notes depend on them.
    notes = [note for mended_model in mended_models for note in mended_model.notes]
    if prepared.settings.how == NETWORK:
        notes.append(_OF_NETWORKS)
    classes = prepared.source.recipe.classes
    for mended_model, model in zip(mended_models, models, strict=True):
        targets = mended_model.audit.target.class_map.targets
        outputs = sum(map(len, targets))
        if outputs < model.outputs:
            notes.append(
                f"{outputs:,} of the {model.outputs:,} outputs of {model.name} belong to the"
                f" {len(classes):,} classes here. The other outputs are never right in training, so"
                " every refitted head predicts them less."
            )
        loose = [variant.name for variant in model.arms if not variant.settled]
        if loose:
            notes.append(f"{model.name}: the fit of {', '.join(loose)} stopped before its minimum.")
    for variant, debug in prepared.drawn():
        for what, labels in variant.lacking.items():
            lacking = format_list([classes[label].name for label in labels])
            these = "these classes"
            if len(labels) == 1:
                these = "this class"
            notes.append(
                f"There is no image of {_CONTROLS[what]} for {lacking}. All"
                " heads of a comparison get equal numbers per class, so those compared with"
                f" {debug.group} learn from no image of {these}."
            )
    present = np.bincount(prepared.source.train.labels, minlength=len(classes))
    wanted = prepared.settings.per_class or 0  # by default no number is required
    few = [cls.name for cls in classes if 0 < present[cls.label] < wanted]
    none = [cls.name for cls in classes if not present[cls.label]]
    if few:
        notes.append(f"Fewer than {wanted} training images of {format_list(few, 8)}.")
    if none:
        notes.append(
            f"No training image of {format_list(none, 8)}: a refitted head cannot know them."
        )
    for mended_model, model in zip(mended_models, models, strict=True):
        audit = mended_model.audit
        fails = set(audit.labels[audit.failed].tolist())
        without = [cls.name for cls in classes if cls.label not in fails]
        if without:
            notes.append(f"{model.name} fails on no audited image of {format_list(without, 8)}.")
    return tuple(dict.fromkeys(notes))


@dataclass(frozen=True)
class MendResult:
    """The result of a run: its files (`report`, `document`, `table`), and the saved models by their
    given names.

    heads: the new heads of your own torch modules, by the same names. These have no folder:
    NAME-head.safetensors beside the report has `weight` and `bias`. With `fit="network"`,
    `heads[NAME].module` is the trained module, and NAME-network.safetensors has its weights.
    """

    directory: Path
    mended: Mended
    files: Mapping[str, Path]
    models: Mapping[str, Path]
    heads: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<MendResult in {self.directory}: {self.mended.headline}>"


def refuse_another_run(
    folder: Path,
    source: MendSource,
    models: Sequence[str],
    settings: MendSettings,
    datasets: AskedFor,
) -> None:
    """Raise UserError if a folder holds the result of other models, rows or settings.

    A run with further datasets is the same run: it keeps all earlier results.
    """
    for subfolder in model_places(models).values():
        refuse_another_folder(folder / subfolder)
    path = folder / DOCUMENT
    if not path.exists():
        return
    known = read_document(path, Mended)
    recipe = source.recipe
    named = ", ".join(model.name for model in known.models)
    epochs = settings.epochs if settings.how == NETWORK else known.fit.epochs
    earlier_and_now = {
        "models": (named, ", ".join(shown_names(models).values())),
        "recipe": (
            f"{known.recipe.name} ({known.recipe.sha256[:12]})",
            f"{recipe.name} ({recipe.recipe_hash[:12]})",
        ),
        "mine.seed": (known.audited.seed, source.mine.seed),
        "mine.failure": (known.audited.failure, source.mine.failure),
        "audited": (", ".join(known.asked.audited), ", ".join(datasets.audited)),
        "--test": (known.test.name, test_name(source)),
        "--fit": (known.fit.how, settings.how),
        "--epochs": (known.fit.epochs, epochs),
        "--seed": (known.train.seed, settings.seed),
        "--per-class": (known.train.per_class, source.per_class),
    }
    other = []
    for what, (earlier, now) in earlier_and_now.items():
        if earlier != now:
            other.append(f"{what}: {earlier}, not {now}")
    left = [name for name in known.asked.using if name not in datasets.using]
    for model, name in known.asked.own.items():
        if datasets.own.get(model) != name:
            left.append(f"--own {model}={name}")
    if left:
        other.append(f"--with: {', '.join(left)} too")
    if other:
        raise UserError(
            f"{folder} holds the result of mending {named} on {known.recipe.name}, with other"
            f" settings: {'; '.join(other)}",
            "Name another folder with --out, or remove that one.",
        )


def model_places(models: Sequence[str]) -> dict[str, str]:
    """Return each model's subfolder of the run: its name, with a number if the name is taken."""
    if len(models) == 1:
        return {models[0]: MODEL}
    names: dict[str, str] = {}
    for model in models:
        name = re.sub(r"[^A-Za-z0-9._-]+", "_", without_folders(model))
        name = name.strip("._-")[-80:] or "model"
        taken = {name.lower() for name in names.values()}  # some file systems ignore case
        subfolder = f"{MODELS}/{name}"
        numbers = itertools.count(2)
        while subfolder.lower() in taken:
            subfolder = f"{MODELS}/{name}_{next(numbers)}"
        names[model] = subfolder
    return names


def write_mended(
    folder: Path, mended: Mended, mended_models: Sequence[MendedModel], prepared: Prepared
) -> MendResult:
    """Write models, then the report, and the document last: a folder that has one is complete."""
    from safetensors.numpy import save

    places = model_places([model.summary.name for model in mended_models])
    what = "head"
    if mended.fit.how == NETWORK:
        what = NETWORK
    head_files = {name: f"{Path(path).name}-{what}.safetensors" for name, path in places.items()}
    # An old document would be wrong beside a new model.
    remove_stale(folder, (DOCUMENT, *head_files.values()))
    finished = []
    folders = {}
    heads = {}
    for mended_model, model in zip(mended_models, mended.models, strict=True):
        name = mended_model.summary.name
        saved = mended_model.summary.saved
        subfolder = folder / places[name]
        if saved is None:
            remove_mended(subfolder)
        elif name.startswith(PYTHON):
            head = mended_model.heads[saved]
            heads[name.removeprefix(PYTHON)] = head
            write_atomically(folder / head_files[name], save(head.tensors()))
        else:
            headline = model.headline(mended.classes)
            sha256 = _write_model(mended_model, saved, headline, prepared, subfolder)
            folders[name] = subfolder.resolve()
            model = replace(model, folder=places[name], mended_sha256=sha256)
        finished.append(model)
    whole = replace(mended, models=tuple(finished))
    files = {
        "table": (TABLE, mend_csv(whole)),
        "report": (REPORT, mend_report(whole)),
        "document": (DOCUMENT, document_text(whole)),
    }
    written = {}
    for what, (name, text) in files.items():
        file = folder / name
        write_atomically(file, text.encode())
        written[what] = file.resolve()
    write_index(folder)
    return MendResult(folder, whole, written, folders, heads)


def _write_model(
    mended_model: MendedModel, saved: str, headline: str, prepared: Prepared, folder: Path
) -> str:
    """Write a model with the head of the variant `saved` to a folder. Return the sha256 of its
    weights.

    `mended.json` lists the images that the head was fitted to, so that no evaluation uses them.
    """
    summary = mended_model.summary
    variant = summary.variant(saved)
    source = prepared.source
    audited = [without_folders(part.name) for part in prepared.audited]
    if variant.role in BALANCED_ROLES:
        seen = prepared.audited
        trained_on = audited
        chosen_on = []
        audit = mended_model.audit
        digests = [digest for part in seen for digest in prepared.pixels[part.content]]
        discover = audit.rows[audit.halves.discover]
        fitted_to = {digests[row] for row in discover.tolist()}
        rows = {"discover": variant.images}
    else:
        seen = (source.whole_train, *prepared.audited)
        trained_on = [without_folders(source.train.name)]
        chosen_on = audited
        fitted_to = set(prepared.pixels[source.train.content])
        rows = {"train": len(source.train)}
    datasets = []
    of_model = prepared.variants_of(summary.name)
    debug = next((known.debug for known in of_model if known.name == saved), None)
    if debug is not None and variant.lam != 0:  # at λ = 0 the head was fitted to no drawn image
        for images in (debug.images, debug.edited):
            if images is not None:
                fitted_to.update(prepared.pixels[images.content])
        rows["debug"] = variant.images
        dataset = MendedWith(
            name=without_folders(debug.dataset),
            content=debug.content,
            group=debug.group,
            seed=debug.samples_seed if debug.seeds else None,  # rows and edits have no noise
            recipe=debug.recipe,
            edits=debug.edits,
        )
        datasets.append(dataset)
    # An image that cannot be decoded has no digest.
    train_content = sorted(digest for digest in fitted_to if digest is not None)
    note = MendedNote(
        format=FORMAT,
        model=MendedModelName(without_folders(summary.name), summary.sha256),
        on=tuple(MendedOn(without_folders(part.name), part.content) for part in seen),
        train_content=tuple(train_content),
        datasets=tuple(datasets),
        lam=variant.lam,
        fit=prepared.settings.how,
        weight_decay=WEIGHT_DECAY,
        rows=rows,
    )
    about = note.to_json()
    card = model_card(
        about,
        variant.verdict or "",
        role=variant.role,
        headline=headline,
        images=summary.images_are(variant),
        helps=variant.outcome == HELPS,
        trained_on=trained_on,
        chosen_on=chosen_on,
    )
    classifier = mended_model.classifier
    head = mended_model.heads[saved]
    if isinstance(head, Network):
        classifier = replace(classifier, module=head.module.cpu())
        head = head_of(classifier)
    return write_with_head(classifier, head, folder, about=about, card=card)


@takes(MendOptions)
def mend(options: MendOptions) -> MendResult:
    """Refit the heads of models with the images of datasets, and report what that gains.

    λ is chosen on the discover half. The report measures on the confirm half and on the split
    `test`, and compares with controls: the head retrained without these images and, if the dataset
    has them, images of class names and of random contexts. If a run stops, call the function again:
    it resumes and writes byte-identical output.

    Returns:
        A MendResult with the numbers, and the paths of the files and models.

    Raises:
        UserError: An input cannot be used. Examples: the same images serve for training and
            testing, or a model is near chance on the base of a dataset.
        RunFailure: The run cannot continue.
    """
    with handed_over(options.models, options.transform) as (called, callables):
        names = tuple(dict.fromkeys(called))
        owned = {}
        for name, written in (options.own or {}).items():
            of_python = PYTHON + name
            owned[of_python if of_python in names else name] = written
        strange = [name for name in owned if name not in names]
        if strange:
            raise UserError(
                f"--own {strange[0]}: it is not a model to mend{did_you_mean(strange[0], names)}"
            )
        using = options.using
        given = given_variants([using] if isinstance(using, str) else list(using))
        given_by_model = {}
        for name, written in owned.items():
            (given_by_model[name],) = given_variants([written])
        settings = _settings(given, options)
        source = mend_source(
            options.on,
            options.overrides,
            options.test,
            options.per_class,
            options.seed,
            options.audited,
            [dataset.source for dataset in given if dataset.kind == POOL],
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
            asked = asked_names(given, given_by_model, source.mine)
            refuse_another_run(folder, source, names, settings, asked)
            prepared = prepare_inputs(source, given, given_by_model, settings)
            if options.fit == NETWORK:
                images = sum(map(len, prepared.pixels.values()))
                for classifier in classifiers.values():
                    Network.of(classifier, images=images)
            few = len(source.train)
            enough = min(TRAIN_IMAGES, _ENOUGH * len(source.recipe.classes))
            if few < enough:
                warn(
                    f"The head is fitted to {format_count(few, 'training image')}, and about"
                    f" {enough:,} are needed: with fewer, retraining alone often loses more than"
                    f" {format_points(MOST_LOSS)} points, and then no weight of other images is"
                    " allowed. Add photographs to the training split, or raise --per-class."
                )
            mended_models = [
                mend_one(classifiers[name], prepared, folder, used_device) for name in names
            ]
            for classifier in classifiers.values():
                classifier.released()  # moves a module that was passed in back to its device
            mended = run_document(prepared, mended_models, asked)
            return write_mended(folder, mended, mended_models, prepared)


def _settings(given: Sequence[Given], options: MendOptions) -> MendSettings:
    """Return the settings of a run. Raise UserError for those that do not go with each other or
    with `--with`."""
    fit = options.fit
    save = options.save
    fits = (*FITS, NETWORK)
    if fit not in fits:
        raise UserError(
            f"--fit: found '{fit}', expected {' or '.join(fits)}{did_you_mean(fit, fits)}"
        )
    whole = fit == NETWORK
    for dataset in given:
        if whole:
            unfit = dataset.kind == BALANCED
            why = "refits no head"
        else:
            unfit = dataset.kind == POOL and dataset.group in TRAINED
            why = "trains no network"
        if unfit:
            raise UserError(
                f"--with {dataset.name} does not go with --fit {fit}, which {why}",
                "Leave it out, or choose another --fit.",
            )
    lambdas = options.lambdas
    if lambdas is None:
        lambdas = network.GRID if whole else GRID
    grid = lambda_grid(lambdas)
    known = [BEST, NONE]
    known += [dataset.name for dataset in given if role_of(dataset) in SAVED_ROLES]
    if save is not None and save not in known:
        if save in (dataset.name for dataset in given):
            raise UserError(
                f"--save {save}: it uses the true groups, so its head is an upper bound and not a"
                " usable model",
                f"Name another: {', '.join(known)}.",
            )
        raise UserError(
            f"--save: found '{save}', expected {', '.join(known)}{did_you_mean(save, known)}"
        )
    return MendSettings(
        grid, fit, options.per_class, options.seed, save, options.effects, options.epochs
    )
