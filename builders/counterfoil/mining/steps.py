"""The steps of mining existing images: ask the target, see the images, find hypotheses, test and
describe them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from counterfoil.data.open_source import open_source
from counterfoil.engines import engine_for
from counterfoil.errors import RunFailure
from counterfoil.mining.answered import AnsweredRows, answers_shown, failing_rows_csv
from counterfoil.mining.audited import (
    AskedTarget,
    Audited,
    Question,
    RecipeClip,
    ask_target,
    clip_doubts,
    opened_images,
    other_answers,
    other_models,
    recipe_clip,
    unreadable_note,
)
from counterfoil.mining.captions import Gathered
from counterfoil.mining.collected import HypothesisTests, collect_findings
from counterfoil.mining.findings import Findings
from counterfoil.mining.findings_layer import HARD, layer_of
from counterfoil.mining.hypotheses import (
    NO_CAPTIONS,
    NO_COLUMNS,
    CandidateCaptions,
    DiscoverHalf,
    Found,
    MiningRun,
    SliceColumns,
)
from counterfoil.mining.label_check import check_labels
from counterfoil.mining.method import FindMethod
from counterfoil.mining.methods import slices
from counterfoil.mining.mined_files import (
    LAYER,
    RELABEL,
    ROWS,
    VECTORS,
    MineResult,
    image_notes,
    refuse_others,
    write_mined,
)
from counterfoil.mining.pools import AskedTraining, open_training, training_files
from counterfoil.mining.rounds import render_round
from counterfoil.mining.slice_columns import slice_columns
from counterfoil.models.classifiers.of_python import HandedOver
from counterfoil.models.clip import ClipModel
from counterfoil.prediction.class_map import ClassMap
from counterfoil.prediction.passes import Placement
from counterfoil.progress import report_progress
from counterfoil.recipe.schema_mine import SLICES

_POOLED = (
    "Their failures also choose contexts; name other models, or none: --set"
    " 'mine.settings.pooled=[]'"
)
_WITHOUT_WORDS = "Without words"
_MOST_TEXT_STEPS = 500


def mine_images(
    run: MiningRun,
    method: FindMethod,
    callables: Sequence[HandedOver],
    training: Mapping[str, Any],
) -> MineResult:
    """Find and test failures among existing images, and write the files. training: options of
    `open_training`."""
    recipe = run.recipe
    source = open_source(recipe.source)  # once, so that all rows of this run come from one commit
    for classifier in callables:
        classifier.images = lambda: opened_images(recipe, run.mine, source)[0]
    training_images = open_training(run, source, **training)
    captions = None if method.captions is None else method.captions(run)
    others = other_models(recipe, run.mine, run.mine.others)
    pooled_names = method.pooled(run.settings)
    pooled = other_models(recipe, run.mine, pooled_names, _POOLED)
    elsewhere = None
    if not callables and (len(run.devices) > 1 or run.device == "cpu"):
        # Workers predict on several devices or on the CPU; a single GPU is used by this process.
        engine = engine_for(run.devices, run.workers)
        elsewhere = Placement(engine, run.device, tuple(recipe.classes))
    target = ask_target(recipe, run.mine, source, run.device, elsewhere)
    inputs = MiningInputs(target, captions, training_images, others, pooled)
    seen = see_images(run, method, inputs)
    outcome = find_hypotheses(seen)
    rendered = render_round(seen.run, outcome)
    tests = HypothesisTests.of(
        seen.run,
        seen.audits,
        seen.captions,
        outcome,
        rendered,
    )
    findings, files = describe(tests, seen, inputs)
    filtered = None
    if training_images is not None and seen.clip is not None:
        filtered, more_files = training_files(
            training_images,
            run,
            seen.audits,
            outcome,
            seen.clip.embedder,
            findings,
        )
        files |= more_files
    return write_mined(run.folder, findings, tests.images, files, filtered)


@dataclass(frozen=True)
class MiningInputs:
    """The images with the target's answers, and what else the run needs. All of it is opened before
    CLIP embeds images."""

    target: AskedTarget
    captions: tuple[Gathered, tuple[str, ...]] | None
    """The method's captions, with notes; None without words."""
    training: AskedTraining | None
    """The images to train on."""
    others: Mapping[str, ClassMap]
    """Further classifiers that findings are measured on."""
    pooled: Mapping[str, ClassMap]
    """Further classifiers whose failures the method uses too."""


@dataclass(frozen=True)
class SeenImages:
    """The audits of a run, with the meaning of their features: captions, or columns of slices if
    there is no CLIP.
    """

    run: MiningRun
    method: FindMethod
    """Those of `slices` if the method needs words and there is no CLIP; `without_words` says why.
    """
    audits: Sequence[Audited]
    clip: RecipeClip | None = None
    captions: CandidateCaptions = NO_CAPTIONS
    columns: SliceColumns = NO_COLUMNS
    pooled: Sequence[Mapping[str, Question]] = ()
    """For each audit, what further classifiers answer."""
    notes: tuple[str, ...] = ()
    """For people."""
    without_words: tuple[str, ...] = ()


def see_images(run: MiningRun, method: FindMethod, inputs: MiningInputs) -> SeenImages:
    """Return the images as the method sees them. Raise RunFailure if there is no CLIP and the run
    cannot do without. Raise UserError if the run's folder holds the findings of another run.
    """
    without_words: tuple[str, ...] = ()
    clip = None
    try:
        if inputs.captions is not None:
            clip = recipe_clip(run.recipe, run.device)
    except RunFailure as failure:
        if inputs.training is not None or run.mine.confirm != "rows":
            raise
        why = f"{_WITHOUT_WORDS}, because no CLIP is available: {failure.reason}"
        without_words = (why,)
        if failure.hint:
            without_words = (why, failure.hint)
        method = slices.SLICES
        settings = method.settings()
        changes = {
            "method": SLICES,
            "settings": settings.model_dump(mode="json"),
        }
        mine = run.mine.model_copy(update=changes)
        run = replace(run, mine=mine, settings=settings)
    refuse_others(run, inputs.target.parts)
    audits = inputs.target.audits(clip)
    if clip is not None and inputs.captions is not None:
        gathered, notes = inputs.captions
        captions = embed_captions(gathered, clip.model)
        pooled = other_answers(inputs.target, audits, inputs.pooled, run.device)
        return SeenImages(run, method, audits, clip, captions, pooled=pooled, notes=notes)
    columns, values, notes = slice_columns(audits[0], run.recipe, run.device)
    audits = [replace(audited, features=values) for audited in audits]
    return SeenImages(
        run,
        method,
        audits,
        columns=columns,
        notes=notes,
        without_words=without_words,
    )


def embed_captions(gathered: Gathered, clip: ClipModel) -> CandidateCaptions:
    texts, references, candidates = gathered
    count = len(texts)
    parts = []
    for start in range(0, count, _MOST_TEXT_STEPS):
        end = start + _MOST_TEXT_STEPS
        parts.append(clip.embed_texts(texts[start:end]))
        report_progress("embedding captions", min(end, count), count)
    vectors = np.concatenate(parts).astype(np.float32)
    return CandidateCaptions(texts, vectors, references, candidates)


def find_hypotheses(seen: SeenImages) -> Found:
    """Run the method on the discover half of each audit and join the results."""
    run = seen.run
    classes = run.recipe.classes
    class_names = tuple(cls.name for cls in classes)
    pooled_by_audit = seen.pooled or [{}] * len(seen.audits)
    joined = None
    for audited, pooled in zip(seen.audits, pooled_by_audit, strict=True):
        rows = audited.halves.discover
        # Audits of conditions share their rows, so classes are not pooled across them.
        categories: tuple[str | None, ...] = (None,) * len(classes)
        if len(audited.classes) == len(classes):
            categories = tuple(cls.category for cls in classes)
        failed_by_model = {name: answers.failed[rows] for name, answers in pooled.items()}
        half = DiscoverHalf(
            features=audited.features[rows],
            labels=audited.labels[rows],
            failed=audited.failed[rows],
            taken_for=audited.taken_for[rows],
            units=audited.units[rows],
            centre=audited.centre,
            deviation=audited.deviation,
            captions=seen.captions,
            class_names=class_names,
            categories=categories,
            pooled=failed_by_model,
            columns=seen.columns,
        )
        outcome = seen.method.find(half, run.mine, run.settings, run.workers)
        if joined is None:
            joined = outcome
            continue
        # Each class's note comes from the audit of that class.
        notes = list(joined.notes)
        for label in audited.classes:
            notes[label] = outcome.notes[label]
        joined = Found(
            joined.hypotheses + outcome.hypotheses,
            tuple(notes),
            {**joined.vectors, **outcome.vectors},
            {**joined.decide, **outcome.decide},
        )
    assert joined is not None  # there is a question
    return joined


def describe(
    tests: HypothesisTests,
    seen: SeenImages,
    inputs: MiningInputs,
) -> tuple[Findings, dict[str, bytes]]:
    """Return the findings with what other models and CLIP say of them, and the files beside them.

    The files are vectors and labels to check, if there are words, and a recipe, or else the failing
    rows.
    """
    run = tests.run
    recipe = run.recipe
    audited = tests.audits[0]
    outcome = tests.outcome
    clip = seen.clip
    of_others = other_answers(inputs.target, tests.audits, inputs.others, run.device)
    notes = [*seen.notes]
    notes += unreadable_note(audited.unreadable, audited.paths)
    notes += seen.method.notes(outcome, run)
    notes += image_notes(recipe, run.mine.on, in_words=clip is not None)
    rows = answered = None
    if inputs.target.has is None:
        others = of_others[0].values()
        rows = AnsweredRows.of(audited, [answers.target.predictions for answers in others])
        without_words = _WITHOUT_WORDS if clip is None else None
        answered = answers_shown(rows, recipe, without_words)
        notes += rows.notes
    files = dict[str, bytes]()
    doubts = None
    checks = {}
    if clip is not None:
        doubts = clip_doubts(recipe, clip.model, tests.audits, "words")
        checks, relabel = check_labels(tests, clip.model, doubts)
        files[VECTORS] = _vectors(tests)
        if relabel is not None:
            files[RELABEL] = relabel.encode()
    findings = collect_findings(
        tests,
        of_others,
        checks,
        without_words=seen.without_words,
        answered=answered,
        notes=tuple(notes),
    )
    findings = findings.doubted(doubts)
    layer = None
    if clip is not None and seen.method.layer is not None:
        layer = seen.method.layer(findings, run)
    elif clip is not None:
        decoded = [cls.id for cls in recipe.classes if f"{cls.label}_{HARD}" in outcome.vectors]
        layer = layer_of(findings, run, decoded)
    if layer is not None:
        files[LAYER] = layer.encode()
    elif rows is not None:
        table = failing_rows_csv(rows, recipe, tests.confirmed_sets)
        files[ROWS] = table.encode()
    return findings, files


def _vectors(tests: HypothesisTests) -> bytes:
    """Return `vectors.safetensors`: directions by class id, captions by hypothesis, mean and
    deviation."""
    from safetensors.numpy import save

    audited = tests.audits[0]
    outcome = tests.outcome
    ids = [cls.id for cls in tests.run.recipe.classes]
    arrays: dict[str, Any] = {
        "centre": audited.centre,
        "spread": audited.deviation,
    }
    for name, vector in outcome.vectors.items():
        label, _, what = name.partition("_")
        if label.isdecimal():
            name = f"{ids[int(label)]}_{what}"
        arrays[name] = vector
    for hypothesis in outcome.hypotheses:
        arrays[f"caption_{hypothesis.name}"] = hypothesis.vector
    contiguous = {name: np.ascontiguousarray(arrays[name]) for name in sorted(arrays)}
    return save(contiguous)
