"""Mend one model: compute its features once, fit a head for each variant and λ, and evaluate each
head.

With `--fit network` the head is the whole network, and its features are the prepared images."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from counterfoil.arrays import AnyFloats, Bools, Floats, Floats32, Ints
from counterfoil.data.labelled_images import LabelledImages
from counterfoil.errors import CounterfoilError, RunFailure, UserError, raise_together, warn
from counterfoil.mending.baselines import (
    DOMINO,
    EARLY,
    LFF,
    TRAINED,
    USE_CLIP,
    by_direction,
    most_wrong_slice,
    relative_difficulty,
    unsureness,
)
from counterfoil.mending.document import (
    CONFIRM,
    HELDOUT,
    HELPS,
    IN_CONTEXTS,
    SAME_LAMBDA,
    TEST,
    EffectPoint,
    ModelMended,
    VariantResult,
)
from counterfoil.mending.evaluating import (
    MOST_LOSS,
    EvaluationRows,
    HeadEvaluation,
    accuracy_by_context,
    chosen_on_discover,
    compared_with,
    judge_variant,
    lambda_curve,
    missing_controls,
    right_answers_of,
    worst_accuracy,
)
from counterfoil.mending.fitting import FittedHead, KeptHeads, Lesson, balanced_lesson, fit_head
from counterfoil.mending.given import BALANCED, BY_CLIP, numbered_groups
from counterfoil.mending.network import BATCH, NETWORK, RATE, Network, fit_network
from counterfoil.mending.prepared import (
    MendSource,
    Prepared,
    confirm_chose,
    refuse_mined_on_judges,
    refuse_near_chance,
)
from counterfoil.mending.variants import RETRAINED, Context, Variant, role_of, rows_within
from counterfoil.mining.audited import (
    Audited,
    RecipeClip,
    ask_target,
    audit_target,
    class_map_of,
    clip_doubts,
    features_of,
    keys_sha256,
)
from counterfoil.mining.methods.svm import whiten
from counterfoil.mining.pools import ROWS, hardest_rows
from counterfoil.models.classifiers import Classifier, load_classifier
from counterfoil.models.classifiers.head import LinearHead, head_of
from counterfoil.models.mended import mended_of
from counterfoil.prediction.embedding import Embedder, classifier_embedder, embed
from counterfoil.prediction.inference import torch_softmax
from counterfoil.progress import track
from counterfoil.recipe import Recipe
from counterfoil.recipe.names import without_folders
from counterfoil.report.words import format_count, format_points

# If two logits differ by less (relatively), rounding can explain that the model and its head answer
# differently.
_TIE = 1e-3
LEARNED_NOTHING = (
    "λ = 0 was chosen: on the discover half, no larger weight {helped} without losing more"
    " elsewhere. So this is the head retrained alone."
)
# Effects are measured with these numbers of images per context.
_IMAGES = (1, 2, 5, 10, 20, 50, 100)


@dataclass(frozen=True)
class SeenModel:
    """A model and its audit. features: (n, d) of the n rows of `audit`. clip: None if nothing needs
    it."""

    classifier: Classifier
    head: LinearHead | Network
    embedder: Embedder
    audit: Audited
    clip: RecipeClip | None
    features: Floats32

    @property
    def allowed(self) -> Bools:
        """Which outputs are right for each class, (classes, outputs) bool."""
        class_map = self.audit.target.class_map
        allowed_outputs = np.zeros((len(class_map.targets), class_map.num_classes), dtype=bool)
        for label, outputs in enumerate(class_map.targets):
            allowed_outputs[label, list(outputs)] = True
        return allowed_outputs

    def true_shares(self, head: LinearHead | Network, features: Floats32, labels: Ints) -> NDArray:
        """Return the share that a head gives to the true class of each row, (n,)."""
        shares = torch_softmax(head.logits(features))
        return (shares * self.allowed[labels]).sum(axis=1)

    def lesson(self, features: Floats32, labels: Ints) -> Lesson:
        """Return rows to learn from. If a class has several outputs, the target is the one that the
        model prefers."""
        logits = self.head.logits(features)
        allowed = np.where(self.allowed[labels], logits, -np.inf)
        return Lesson(features, allowed.argmax(axis=1))

    def decoded(self, prepared: Prepared, images: LabelledImages) -> tuple[Ints, Floats32]:
        """Return the rows whose image can be decoded, and their features. Raise RunFailure if there
        are none."""
        features = embed(images, self.embedder, precision="float32")
        digests = prepared.pixels[images.content]
        rows = np.flatnonzero([digest is not None for digest in digests])
        if not len(rows):
            raise RunFailure(f"{images.name}: no image can be decoded")
        features = features[rows]
        refuse_infinite_features(self.embedder.name, features, images.name)
        return rows, features


def load_mendable(models: Sequence[str], source: MendSource) -> dict[str, Classifier]:
    """Load each model once, by its name, onto the CPU.

    Raise UserError, before any long step, for models whose classes do not fit or whose head is not
    one Linear.
    """
    if not models:
        raise UserError("no model to mend: --model is missing", "Name one: --model lab:resnet10t")
    loaded = {}
    problems: list[CounterfoilError] = []
    for name in models:
        try:
            class_map_of(source.recipe, name)
            before = mended_of(name)
            if before is not None:
                raise UserError(
                    f"model {name!r} was mended before: the images that it learned from may now be"
                    " test images",
                    "Mend the model that it was made from, with all datasets at once:"
                    f" {before.model}.",
                )
            classifier = load_classifier(name, classes=source.recipe.classes)
            head_of(classifier)
            if classifier.sha256 is None:
                raise UserError(f"model {name!r}: its content has no hash, so it cannot be mended")
            loaded[name] = classifier
        except CounterfoilError as error:
            problems.append(error)
    raise_together(problems)
    return loaded


def see_model(classifier: Classifier, prepared: Prepared, device: str) -> SeenModel:
    """Audit a model as mining does, and compute features of the audited rows. Raise the errors of
    `audit_target`."""
    name = classifier.name
    source = prepared.source
    mine = source.mine.model_copy(update={"target": name})
    clip = None
    inputs = (source.recipe, mine, source.opened, device)
    # CLIP assigns rows to contexts, and Domino slices its features.
    if prepared.contexts or any(variant.chosen_by in USE_CLIP for variant in prepared.variants):
        (audit, *_), clip = audit_target(*inputs, load=lambda _: classifier)
    else:
        target = ask_target(*inputs, load=lambda _: classifier)
        audit, *_ = target.audits(None)
    classifier = classifier.placed(device)
    if prepared.settings.how == NETWORK:
        head = Network.of(classifier, device)
        embedder = head.prepared()
    else:
        head = head_of(classifier, device)
        embedder = classifier_embedder(classifier, device)
    of_parts = [embed(part, embedder, precision="float32") for part in audit.parts]
    features = np.concatenate(of_parts)[audit.rows]
    images = ", ".join(part.name for part in audit.parts)
    refuse_infinite_features(name, features, images)
    logits = head.logits(features)
    answered = audit.target.predictions.prediction[audit.rows]
    best = logits.max(axis=1)
    behind = best - logits[np.arange(len(logits)), answered]
    tied = _TIE * np.maximum(1.0, np.abs(best))
    other = int((behind > tied).sum())
    if other:
        raise RunFailure(
            f"model {name!r}: its last layer on its features predicts {other:,} of {len(logits):,}"
            " audited images differently from the model itself",
            "If it computes something after its last layer, refitting that layer cannot mend it.",
        )
    return SeenModel(classifier, head, embedder, audit, clip, features)


def refuse_infinite_features(model: str, features: AnyFloats, images: str) -> None:
    finite = np.isfinite(features).all(axis=1)
    wrong = int((~finite).sum())
    if wrong:
        raise RunFailure(
            f"model {model!r}: the features of {wrong:,} of {len(features):,} images of {images}"
            " are not finite numbers",
            "Its weights may be damaged, or overflow on this device; another one may do: --device"
            " cpu",
        )


@dataclass(frozen=True, eq=False)
class ContextRows:
    """Rows to assign to contexts by CLIP. features: (n, width), unit vectors. labels: (n,).

    vectors: (m, width), unit vectors: first of each context, then of each class without a context.
    alone: label → the row of its class in `vectors`.
    """

    contexts: Sequence[Context]
    features: AnyFloats
    labels: Ints
    vectors: Floats32
    alone: Mapping[int, int]

    def among(self, indices: Sequence[int]) -> Ints:
        """Return for each row the nearest context of its class by CLIP, (n,); -1 if the class alone
        is nearer."""
        nearest = np.full(len(self.labels), -1, dtype=np.int64)
        by_label: dict[int, list[int]] = {}
        for index in indices:
            label = self.contexts[index].label
            by_label.setdefault(label, []).append(index)
        for label, of_label in by_label.items():
            # The vector of the class alone comes first, so that ties go to it.
            rows = np.flatnonzero(self.labels == label)
            vectors = self.vectors[[self.alone[label], *of_label]]
            similarities = self.features[rows] @ vectors.T
            best = similarities.argmax(axis=1)
            nearest[rows] = np.asarray([-1, *of_label])[best]
        return nearest


def context_rows(
    contexts: Sequence[Context],
    recipe: Recipe,
    features: AnyFloats,
    labels: Ints,
    embed_texts: Callable[[Sequence[str]], AnyFloats] | None,
) -> ContextRows:
    """Return the CLIP vectors of rows and contexts. embed_texts: CLIP's text encoder; None if there
    is no context."""
    used = sorted({context.label for context in contexts})
    texts = [context.caption for context in contexts]
    texts += [recipe.classes[label].text(recipe.screen.object_caption) for label in used]
    vectors = np.empty((0, features.shape[1]), dtype=np.float32)
    if texts:
        assert embed_texts is not None
        vectors = np.asarray(embed_texts(texts), dtype=np.float32)
    alone = {label: row for row, label in enumerate(used, len(contexts))}
    return ContextRows(contexts, features, labels, vectors, alone)


@dataclass(frozen=True)
class MendedModel:
    """A model with its result and what its folder needs. audit: its CLIP features are dropped to
    free memory."""

    summary: ModelMended
    classifier: Classifier
    heads: Mapping[str, LinearHead | Network]
    audit: Audited
    context: Ints
    notes: tuple[str, ...]


@dataclass(frozen=True)
class FittedVariant:
    """A variant with one head for each λ of the grid, and the index of the chosen head.

    lesson: rows learned besides the training rows. contexts: indices of the contexts by which its λ
    was chosen.
    """

    variant: Variant
    heads: tuple[FittedHead, ...]
    answers: tuple[Bools, ...]
    index: int
    result: VariantResult
    lesson: Lesson | None
    contexts: Sequence[int]

    @property
    def head(self) -> FittedHead:
        return self.heads[self.index]

    @property
    def chosen(self) -> Bools:
        return self.answers[self.index]


@dataclass(frozen=True)
class HeadFitting:
    """Data shared by all heads of one model. train_rows: indices into the source's training rows.
    grid: values of λ."""

    train: Lesson
    train_rows: Ints
    kept: KeptHeads
    grid: tuple[float, ...]
    evaluation: HeadEvaluation

    @classmethod
    def of(cls, seen: SeenModel, prepared: Prepared, folder: Path) -> HeadFitting:
        """Return the data for a model; `folder` keeps heads. Raise RunFailure if images have no
        usable features."""
        audit = seen.audit
        source = prepared.source
        settings = prepared.settings
        train_rows, features = seen.decoded(prepared, source.train)
        train = seen.lesson(features, source.train.labels[train_rows])
        audited = EvaluationRows(seen.features, audit.labels, audit.units)
        tested = None
        if source.test is not None:
            rows, features = seen.decoded(prepared, source.test)
            # Without units, equal images are one unit.
            units = source.test.units or prepared.pixels[source.test.content]
            names = [str(units[row]) for row in rows.tolist()]
            _, numbers = np.unique(names, return_inverse=True)
            labels = source.test.labels[rows]
            tested = EvaluationRows(features, labels, numbers.astype(np.int64))
        embed_texts = None
        if seen.clip is not None:
            embed_texts = seen.clip.model.embed_texts
        dealt = context_rows(
            prepared.contexts, source.recipe, audit.features, audit.labels, embed_texts
        )
        build = source.audited
        untouched = np.ones(len(audit.keys), dtype=bool)
        if build is not None:
            untouched[:] = [key in build.base for key in audit.keys]
        before = right_answers_of(seen.head, audited, tested, seen.allowed)
        evaluation = HeadEvaluation(
            audited=audited,
            discover=audit.halves.discover,
            confirm=audit.halves.confirm,
            failed=audit.failed,
            untouched=untouched,
            context=dealt.among(range(len(prepared.contexts))),
            among=dealt.among,
            contexts=prepared.contexts,
            class_ids=[cls.id for cls in source.recipe.classes],
            test=tested,
            allowed=seen.allowed,
            before=before,
            seed=settings.seed,
        )
        if isinstance(seen.head, Network):
            how = [NETWORK, RATE, BATCH, settings.epochs, settings.seed]
            fit = partial(fit_network, epochs=settings.epochs, seed=settings.seed)
        else:
            how = settings.how
            fit = partial(fit_head, how=how)
        kept = KeptHeads(folder, seen.head, how, fit)
        return cls(train, train_rows, kept, settings.grid, evaluation)

    def fit(
        self,
        variant: Variant,
        lesson: Lesson | None,
        context_indices: Sequence[int],
        judged_by: str = CONFIRM,
    ) -> FittedVariant:
        """Fit the heads of a variant, one per λ if it uses λ, and choose λ by the contexts
        `context_indices`."""
        values = self.grid if variant.swept else (0.0,)
        evaluation = self.evaluation
        if variant.weights is not None:
            # At λ = 1 the rows have exactly the weights of the file.
            more = variant.weights[self.train_rows] - 1
            heads = []
            for value in values:
                weights = np.maximum(0, 1 + value * more)
                weighted = replace(self.train, weights=weights)
                head = self.kept.fitted(weighted, None, 0.0)
                heads.append(head)
        elif variant.groups is not None:
            assert lesson is not None
            # Kirichenko 2023 fits on balanced rows alone
            heads = [self.kept.fitted(lesson, None, 0.0)]
        else:
            heads = [self.kept.fitted(self.train, lesson, value) for value in values]
        answers = [evaluation.answers(head.head) for head in heads]
        chosen = chosen_on_discover(values, answers, evaluation, context_indices)
        index = chosen.index
        images = 0 if lesson is None else len(lesson)
        lam = None
        curve = ()
        if variant.swept:
            lam = values[index]
            curve = lambda_curve(values, answers, chosen, evaluation, judged_by)
        result = VariantResult(
            name=variant.name,
            role=variant.role,
            of=variant.of,
            what=variant.what,
            images=images,
            offered=variant.offered or images,
            lam=lam,
            within_bound=bool(chosen.allowed[index]),
            settled=heads[index].settled,
            measured=evaluation.measured(answers[index], judged_by),
            curve=curve,
            judged_by=judged_by,
        )
        return FittedVariant(
            variant, tuple(heads), tuple(answers), index, result, lesson, context_indices
        )


def mend_one(classifier: Classifier, prepared: Prepared, folder: Path, device: str) -> MendedModel:
    """Audit, fit and judge a model.

    Raise the errors of `see_model`, and UserError if images were mined on rows that judge.
    """
    seen = see_model(classifier, prepared, device)
    audit = seen.audit
    notes = (*_mined_notes(prepared, audit), *_base_notes(prepared, seen))
    if seen.clip is not None:
        doubts = clip_doubts(prepared.source.recipe, seen.clip.model, [audit], "contexts")
        lines = [] if doubts is None else doubts.lines()
        if lines:
            warn("\n".join(lines))
            notes = (f"Warning: {lines[0]}", *lines[1:], *notes)
    fitting = HeadFitting.of(seen, prepared, folder)
    context = fitting.evaluation.context
    variants = [Variant(RETRAINED, "retrained"), *prepared.variants_of(classifier.name)]
    variants += _balanced(prepared, context, audit.keys)
    audited = {part.content: part.name for part in audit.parts}
    fitted: list[FittedVariant] = []
    for variant in track(variants, f"{classifier.name}: fitting heads"):
        # λ is chosen by the contexts of the variant's images; for a control, by those of its
        # variant; without images, by all contexts.
        beside = next((other for other in variants if other.name == variant.of), variant).debug
        shown = prepared.contexts if beside is None else beside.contexts
        captions = {(context.label, context.caption) for context in shown}
        context_indices = [
            index
            for index, context in enumerate(prepared.contexts)
            if (context.label, context.caption) in captions
        ]
        judged_by = CONFIRM
        if beside is not None and confirm_chose(beside.mined, audited):
            judged_by = TEST
        learned, lesson = _taught(variant, prepared, seen, fitting)
        fitted_variant = fitting.fit(learned, lesson, context_indices, judged_by)
        fitted.append(fitted_variant)
    results = []
    for fitted_variant in fitted:
        result = fitted_variant.result
        if result.role not in ("retrained", "control"):
            result = _judged(fitted_variant, fitted, fitting, prepared.source.class_names)
        if prepared.settings.effects and result.role == "mended":
            result = _with_effects(fitted_variant, result, fitting)
        results.append(result)
    best = best_variant(fitted, fitting.evaluation)
    summary = ModelMended(
        name=classifier.name,
        architecture=classifier.architecture,
        sha256=classifier.sha256 or "",
        outputs=classifier.num_classes,
        width=seen.features.shape[1],
        arms=tuple(results),
        best=best,
        saved=_saved(prepared.settings.save, best, results),
        folder=None,
        mended_sha256=None,
    )
    return MendedModel(
        summary=summary,
        classifier=seen.classifier.placed("cpu"),  # frees the device for the next model
        heads={fitted_variant.variant.name: fitted_variant.head.head for fitted_variant in fitted},
        audit=replace(audit, features=audit.features[:, :0].copy()),
        context=context,
        notes=notes,
    )


def _mined_notes(prepared: Prepared, audit: Audited) -> tuple[str, ...]:
    """Return notes on what images and weights were mined on. Raise UserError if rows that judge
    chose them."""
    learned = [(debug.name, debug.mined) for _, debug in prepared.drawn()]
    for variant in prepared.variants:
        if variant.weights is not None:
            learned.append((variant.name, variant.mined))
    audited = {part.content: part.name for part in audit.parts}
    rows = audit.halves.discover.tolist()
    discover = keys_sha256([audit.keys[row] for row in rows])
    tested = {}
    test = prepared.source.test
    if test is not None:
        tested[test.content] = test.name
    return refuse_mined_on_judges(learned, audited, discover, tested)


def _taught(
    variant: Variant, prepared: Prepared, seen: SeenModel, fitting: HeadFitting
) -> tuple[Variant, Lesson | None]:
    """Return a variant with the images that it learns from, and the rows to learn from beside the
    training rows."""
    if variant.groups is not None:
        discover = seen.audit.halves.discover
        labels = seen.audit.labels[discover]
        whole = seen.lesson(seen.features[discover], labels)
        groups = variant.groups[discover]
        seed = prepared.settings.seed
        balanced = balanced_lesson(whole.features, whole.targets, labels, groups, seed=seed)
        return variant, balanced
    if variant.debug is None:
        return variant, None
    rows, features = seen.decoded(prepared, variant.debug.images)
    debug = variant.debug.only(rows)
    if variant.chosen_by is not None:
        pool = variant.debug.images
        hard = _hardness(variant.chosen_by, pool, rows, features, prepared, seen, fitting)
        hardest = hardest_rows(-hard, debug.images.labels, ROWS)
        chosen = np.concatenate([*hardest.rows.values()])
        chosen.sort()
        debug = debug.only(chosen)
        features = features[chosen]
    return replace(variant, debug=debug), seen.lesson(features, debug.images.labels)


def _hardness(
    baseline: str,
    pool: LabelledImages,
    rows: Ints,
    features: Floats32,
    prepared: Prepared,
    seen: SeenModel,
    fitting: HeadFitting,
) -> Floats:
    """Return how hard a baseline calls the pool's rows `rows` (n,), whose features are given."""
    labels = pool.labels[rows]
    settings = prepared.settings
    shares = seen.true_shares(seen.head, features, labels)
    if baseline in TRAINED:
        assert isinstance(seen.head, Network)  # heads are refused
        trained = fit_network(
            seen.head,
            fitting.train,
            None,
            0.0,
            epochs=settings.epochs,
            seed=settings.seed,
            early=baseline == EARLY,
            biased=baseline == LFF,
        )
        others = seen.true_shares(trained.head, features, labels)
        if baseline == LFF:
            return relative_difficulty(others, shares)
        return unsureness(others)
    if baseline in USE_CLIP:
        assert seen.clip is not None
        audit = seen.audit
        discover = audit.halves.discover
        classes = audit.labels[discover]
        points = audit.features[discover]
        vectors = np.asarray(features_of(pool, seen.clip.embedder))[rows]
        if baseline == DOMINO:
            known = seen.true_shares(seen.head, seen.features[discover], classes)
            return most_wrong_slice(points, classes, known, vectors, labels, shares)
        usual = np.asarray(features_of(prepared.source.train, seen.clip.embedder), np.float64)
        usual = usual[fitting.train_rows]
        mean = usual.mean(axis=0)
        spread = usual.std(axis=0, ddof=1)
        points = whiten(points, mean, spread)
        vectors = whiten(vectors, mean, spread)
        return by_direction(
            points,
            classes,
            ~audit.failed[discover],
            audit.units[discover],
            vectors,
            labels,
        )
    return unsureness(shares)


def _base_notes(prepared: Prepared, seen: SeenModel) -> tuple[str, ...]:
    """Return notes about the bases of the datasets. Raise UserError if a base is near chance."""
    name = seen.classifier.name
    chances = seen.audit.target.class_map.chances
    names = list(prepared.source.class_names.values())
    notes: dict[str, None] = {}
    for variant in prepared.variants_of(name):
        debug = variant.debug
        if variant.role != "mended" or debug is None or debug.base is None:
            continue
        features = embed(debug.base, seen.embedder, precision="float32")
        rows = np.flatnonzero(np.isfinite(features).all(axis=1))
        labels = debug.base.labels[rows]
        answers = seen.head.logits(features[rows]).argmax(axis=1)
        right = seen.allowed[labels, answers]
        more = refuse_near_chance(
            name, without_folders(debug.dataset), right, labels, chances, names, debug.fewest
        )
        notes |= dict.fromkeys(more)
    return tuple(notes)


def _balanced(prepared: Prepared, context: Ints, keys: tuple[str, ...]) -> list[Variant]:
    """Return variants of balanced groups: by CLIP, or by true groups, which are an oracle."""
    variants = []
    for dataset in prepared.given:
        if dataset.kind != BALANCED:
            continue
        if dataset.source != BY_CLIP:
            groups = numbered_groups(prepared.groups[dataset.source], keys, dataset.name)
        elif (context >= 0).any():
            groups = context + 1
        else:
            raise UserError(
                f"--with {dataset.name}: CLIP finds none of the contexts in the audited images, so"
                " there are no groups",
                "Name a dataset of contexts too: --with built:contexts dfr:clip",
            )
        variants.append(Variant(dataset.name, role_of(dataset), groups=groups))
    return variants


def _judged(
    fitted_variant: FittedVariant,
    fitted: Sequence[FittedVariant],
    fitting: HeadFitting,
    classes: Mapping[str, str],
) -> VariantResult:
    """Return a variant compared with its controls, with its verdict. fitted: the retrained head
    first."""
    variant = fitted_variant.variant
    result = fitted_variant.result
    evaluation = fitting.evaluation
    retrained = fitted[0]
    equal = {}
    for other in fitted:
        if other.variant.of == variant.name:
            equal[other.variant.what or ""] = other
    controls = compared_controls(fitted_variant, {RETRAINED: retrained} | equal, fitting.grid)
    comparisons = compared_with(fitted_variant.chosen, controls, evaluation, result.judged_by)
    outcome, verdict = judge_variant(
        comparisons,
        result,
        has_test=evaluation.test is not None,
        missing=missing_controls(variant, equal),
        classes=classes,
    )
    if result.lam == 0:
        outcome = "learned nothing"
        helped = "raised the accuracy"
        if fitted_variant.contexts:
            helped = "helped the worst context"
        verdict = LEARNED_NOTHING.format(helped=helped)
    if result.lam is not None and not result.within_bound:
        discover = evaluation.discover
        lost = evaluation.before[discover].mean() - retrained.chosen[discover].mean()
        lost_too_much = (
            "No λ is allowed: the head retrained on"
            f" {format_count(len(fitting.train_rows), 'training image')} alone loses"
            f" {format_points(lost)} points on the discover half, and at most"
            f" {format_points(MOST_LOSS)} are allowed. With more training images (--per-class, or"
            " more photographs) it may lose less; λ was chosen relative to that head."
        )
        if result.lam == 0:
            outcome = "not known"
            verdict = lost_too_much
        else:
            verdict = f"{lost_too_much} {verdict}"
    return replace(result, comparisons=comparisons, verdict=verdict, outcome=outcome)


def compared_controls(
    fitted_variant: FittedVariant, beside: Mapping[str, FittedVariant], grid: tuple[float, ...]
) -> dict[str, tuple[float | None, Bools]]:
    """Return the heads to compare a variant with: each control at its chosen λ and at the variant's
    λ.

    The chosen λ of a control is often 0, and the control is then the retrained head again. A larger
    λ gains more failures whatever the images are. Therefore the variant's λ is compared too.
    """
    controls = {}
    for what, other in beside.items():
        controls[what] = (other.result.lam, other.chosen)
    lam = fitted_variant.result.lam
    if not lam:
        return controls
    for what, other in beside.items():
        if other.variant.swept and other.result.lam != lam:
            same = other.answers[grid.index(lam)]
            controls[f"{what}{SAME_LAMBDA}"] = (lam, same)
    return controls


def _with_effects(
    fitted_variant: FittedVariant, result: VariantResult, fitting: HeadFitting
) -> VariantResult:
    """Return the result with effects: the variant at its λ with fewer contexts per class or images
    per context."""
    debug = fitted_variant.variant.debug
    lesson = fitted_variant.lesson
    evaluation = fitting.evaluation
    assert debug is not None and lesson is not None
    context = debug.context
    # Images without a context have the index -1.
    rank_of = [each.rank or 0 for each in debug.contexts] + [0]
    ranks = np.asarray(rank_of)[context]

    def effects(fewer: Mapping[int, Ints]) -> tuple[EffectPoint, ...]:
        effect_points = []
        for value, rows in track(list(fewer.items()), f"{result.name}: measuring effects"):
            learned = Lesson(lesson.features[rows], lesson.targets[rows])
            fitted = fitting.kept.fitted(fitting.train, learned, result.lam or 0.0)
            right = evaluation.answers(fitted.head)
            shares = evaluation.accuracies(right, result.judged_by)
            sets = (HELDOUT, IN_CONTEXTS, TEST)
            point = EffectPoint(value, len(rows), *map(shares.get, sets))
            effect_points.append(point)
        return tuple(effect_points)

    last = int(ranks.max(initial=0))
    by_k = {k: rows_within(ranks, context, k=k) for k in range(1, last + 2) if last}
    most = int(np.bincount(context[context >= 0], minlength=1).max())
    numbers = [number for number in _IMAGES if number < most]
    if most:
        numbers.append(most)
    by_images = {n: rows_within(ranks, context, images=n, seed=evaluation.seed) for n in numbers}
    return replace(result, by_k=effects(by_k), by_images=effects(by_images))


def _saved(wanted: str | None, best: str | None, results: Sequence[VariantResult]) -> str | None:
    """Return the variant whose head is saved: the named one, the best, or by default the best if it
    helps."""
    if wanted is None:
        helping = [result.name for result in results if result.outcome == HELPS]
        return best if best in helping else None
    if wanted == "none":
        return None
    if wanted == "best":
        return best
    names = [result.name for result in results]
    if wanted in names:
        return wanted
    for name in names:
        if name.startswith(f"{wanted}:"):
            return name
    return None


def best_variant(fitted: Sequence[FittedVariant], evaluation: HeadEvaluation) -> str | None:
    """Return the variant with the best worst context on the discover half; variants within the
    bound come first.

    All variants are compared on the contexts of all variants, so that one with few easy contexts
    has no advantage.
    """
    # Oracles and heads fitted to the discover half would always win.
    candidates = [fit for fit in fitted if fit.variant.role in ("mended", "upweighted")]
    if not candidates:
        return None
    union = sorted({index for fit in candidates for index in fit.contexts})
    chosen = [fit.chosen for fit in candidates]
    accuracy, overall, counts = accuracy_by_context(chosen, evaluation, union)
    worst = worst_accuracy(accuracy, overall, counts).round(9)
    within_bound = [fit.result.within_bound for fit in candidates]
    scores = list(zip(within_bound, worst.tolist(), strict=True))
    best = candidates[scores.index(max(scores))]
    return best.variant.name
