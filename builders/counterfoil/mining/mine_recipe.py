"""`mine`: audit a classifier on a recipe's images, name and test its failures, and write them as a recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from counterfoil.arrays import Bools
from counterfoil.data.folders import refuse_among_inputs
from counterfoil.data.open_source import OpenSource, open_source
from counterfoil.data.resolved_classes import resolve_classes
from counterfoil.engines import engine_for
from counterfoil.errors import RunFailure, UserError
from counterfoil.mining.answered import AnsweredRows, answers_shown, failing_rows_csv
from counterfoil.mining.audited import (
    AskedTarget,
    Audited,
    ask_target,
    clip_doubts,
    collect_answers,
    opened_images,
    other_failures,
    other_models,
    recipe_clip,
    unreadable_note,
)
from counterfoil.mining.captions import Gathered
from counterfoil.mining.collected import HypothesisTests, collect_findings
from counterfoil.mining.findings import Findings
from counterfoil.mining.findings_layer import HARD, audit_origin, laid_over, layer_of
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
from counterfoil.mining.method import FindMethod, SearchMethod
from counterfoil.mining.methods import METHODS
from counterfoil.mining.mined_files import (
    LAYER,
    RELABEL,
    ROWS,
    VECTORS,
    WEIGHTS,
    MineResult,
    image_notes,
    page_pictures,
    refuse_others,
    write_mined,
    written_recipe,
)
from counterfoil.mining.options import MineOptions
from counterfoil.mining.pools import (
    OpenedPool,
    filter_pool,
    need_train_split,
    open_asked_pool,
    pool_files,
    weigh_train_rows,
)
from counterfoil.mining.rounds import ROUND, refuse_unrendered, render_round
from counterfoil.mining.slice_columns import slice_columns
from counterfoil.models.classifiers.of_python import handed_over
from counterfoil.models.clip import ClipModel
from counterfoil.models.devices import resolve_devices
from counterfoil.options import takes
from counterfoil.prediction.class_map import ClassMap
from counterfoil.prediction.passes import Placement
from counterfoil.progress import report
from counterfoil.recipe import Recipe, load_recipe
from counterfoil.recipe.names import did_you_mean
from counterfoil.recipe.schema_mine import CONFIRM, SLICES, Mine, unknown_method, validate_settings
from counterfoil.regular_files import named_path
from counterfoil.store.atomic import make_folder, try_folder
from counterfoil.store.directory_lock import directory_lock

_POOLED = "Their failures also choose contexts; name other models, or none: --set 'mine.settings.pooled=[]'"
_MOST_TEXT_STEPS = 500
_WITHOUT_WORDS = "Without words"


@takes(MineOptions)
def mine(given: MineOptions) -> MineResult:
    """Find what a classifier gets wrong. Write findings, vectors, a report and a recipe of the failures to `out`.

    The same inputs give byte-identical output. If a run is killed, call the function again: it resumes. Images that it
    renders are a dataset of their own inside `out`. If CLIP is not available, it tests groups that need no words
    (method `slices`).

    Returns:
        A MineResult with the findings and the paths of the files.

    Raises:
        UserError: An input cannot be used.
        RunFailure: The run cannot continue.
    """
    with handed_over([] if given.target is None else given.target, given.transform) as (names, callables):
        if len(names) > 1:
            raise UserError(f"target: found {len(names)} models, expected one")
        named = next(iter(names), None)
        folder = named_path(given.out)
        recipe = given.recipe
        if isinstance(recipe, Recipe):
            recipe = written_recipe(recipe, given.overrides, folder)
        on = tuple(given.on) if given.on else None
        options = {"method": given.method, "target": named, "on": on, "confirm": given.confirm, "limit": given.limit}
        loaded, mined, overrides = _mined_recipe(recipe, given.overrides, options)
        chosen = METHODS[mined.method]
        settings = validate_settings(chosen.settings, mined.settings, "mine.settings")
        draws = isinstance(chosen, SearchMethod)
        if callables and (draws or mined.confirm != "rows"):
            renders = f"the method '{mined.method}'" if draws else f"mine.confirm: '{mined.confirm}'"
            raise UserError(
                f"{renders} renders images in other processes, but {callables[0].name} runs only in this one",
                "Name the model (a timm folder: local-dir:PATH), or mine existing images with the method directions.",
            )
        devices = resolve_devices(given.device)
        run = MiningRun(loaded, mined, settings, recipe, overrides, folder, devices[0], given.workers)
        try_folder(folder)
        refuse_among_inputs(folder, loaded.source.dataset)
        make_folder(folder)
        with directory_lock(folder):
            if isinstance(chosen, SearchMethod):
                unused = {"on": given.on, "confirm": given.confirm, "limit": mined.limit}
                unused |= {"pool-rows": given.pool_rows, "pool-labels": given.pool_labels}
                options = [f"--{option}" for option, value in unused.items() if value is not None]
                if options:
                    raise UserError(
                        f"{' and '.join(options)}: the method '{mined.method}' draws the images that it audits",
                        "Leave it out. To describe failures on existing images, name these in mine.settings.seeds.",
                    )
                refuse_pools(given.pool, given.weights, mined)
                return chosen.search(run)
            if chosen.captions is None:
                refuse_pools(given.pool, given.weights, mined)
                if mined.confirm != "rows":
                    raise UserError(
                        f"mine.confirm: '{mined.confirm}' renders images of words, and the method '{mined.method}' has"
                        " none",
                        "Set mine.confirm=rows, or mine with another method: --method directions",
                    )
            refuse_unrendered(loaded, mined)
            source = open_source(loaded.source)  # once, so that all rows of this run come from one commit
            for classifier in callables:
                classifier.images = lambda: opened_images(loaded, mined, source)[0]
            wanted_pool = open_asked_pool(given.pool, given.pool_rows, given.pool_labels, loaded, mined, source)
            elsewhere = None
            if not callables and (len(devices) > 1 or devices[0] == "cpu"):
                # Workers predict on several devices or on the CPU; a single GPU is used by this process.
                elsewhere = Placement(engine_for(devices, given.workers), devices[0], tuple(loaded.classes))
            if chosen.captions is None:
                return _mine_without_words(run, chosen, ask_target(loaded, mined, source, run.device, elsewhere))
            return _mine_captions(run, chosen, source, elsewhere, ",".join(devices), wanted_pool, given.weights)


def _mine_captions(
    run: MiningRun,
    method: FindMethod,
    source: OpenSource,
    elsewhere: Placement | None,
    devices: str,
    wanted_pool: tuple[OpenedPool, int] | None,
    weights: bool,
) -> MineResult:
    """Test the method's hypotheses and write the files. If there is no CLIP, mine slices instead. devices: the devices
    that render images for the test.
    """
    recipe, mine, folder = run.recipe, run.mine, run.folder
    assert method.captions is not None
    gathered, notes = method.captions(run)
    if weights:
        need_train_split(recipe, source)
    others = other_models(recipe, mine)
    beside = mine.model_copy(update={"others": method.pooled(run.settings)})
    pooled_maps = other_models(recipe, beside, _POOLED)
    target_audit = ask_target(recipe, mine, source, run.device, elsewhere)
    clip = recipe_clip(recipe, run.device)
    if isinstance(clip, RunFailure):
        if wanted_pool is not None or weights or mine.confirm != "rows":
            raise clip
        slices = METHODS[SLICES]
        assert isinstance(slices, FindMethod)
        settings = slices.settings()
        sliced = mine.model_copy(update={"method": SLICES, "settings": settings.model_dump(mode="json")})
        why = f"{_WITHOUT_WORDS}, because no CLIP is available: {'; '.join(clip.problems)}"
        hint = (clip.hint,) if clip.hint else ()
        return _mine_without_words(replace(run, mine=sliced, settings=settings), slices, target_audit, (why, *hint))
    audits = target_audit.audits(clip)
    refuse_others(folder, recipe, mine, [part.content for part in target_audit.parts])
    captions = embed_captions(gathered, clip.model)
    pooled = other_failures(target_audit, audits, pooled_maps, run.device)
    outcome = find_hypotheses(run, method, audits, captions, pooled)
    rendered = render_round(replace(run, device=devices), outcome)
    tests = HypothesisTests.of(run, audits, captions, outcome, rendered)
    doubts = clip_doubts(recipe, clip.model, audits, "words")
    checks, relabel = check_labels(tests, clip.model, doubts)
    findings, rows = _collected(tests, method, target_audit, others, notes, checks=checks)
    findings = findings.doubted(doubts)
    files = {VECTORS: _vectors(tests)}
    if relabel is not None:
        files[RELABEL] = relabel.encode()
    decoded = frozenset(cls.id for cls in recipe.classes if f"{cls.label}_{HARD}" in outcome.vectors)
    layer = layer_of(findings, run, decoded) if method.layer is None else method.layer(findings, run)
    if layer is not None:
        files[LAYER] = layer.encode()
    elif rows is not None:
        files[ROWS] = failing_rows_csv(rows, recipe, tests.confirmed_sets).encode()
    filtered = None
    if wanted_pool is not None:
        filtered = filter_pool(*wanted_pool, recipe, audits, outcome, clip.embedder, run.device)
        if filtered.count:
            below, changes, extends = laid_over(run.source, run.overrides, folder)
            origin = audit_origin(findings) | {"shared": filtered.shared}
            files |= pool_files(filtered.hardest, filtered.origin, recipe, below, extends, changes, origin)
    if weights:
        files[WEIGHTS] = weigh_train_rows(recipe, source, outcome, clip.embedder, findings)
    drawn = [] if rendered is None else [(f"{ROUND}/", rendered.images)]
    pictures = page_pictures(findings, [*drawn, *audits[0].by_start], audits[0].parts[0].decoded)
    return write_mined(folder, findings, pictures, files, pool=filtered)


def _mine_without_words(
    run: MiningRun, method: FindMethod, target_audit: AskedTarget, without_words: tuple[str, ...] = ()
) -> MineResult:
    """Test groups of images without words, and write the files. without_words: why no words were found."""
    recipe, mine = run.recipe, run.mine
    audits = target_audit.audits(None)
    refuse_others(run.folder, recipe, mine, [part.content for part in target_audit.parts])
    others = other_models(recipe, mine)
    columns, values, notes = slice_columns(audits[0], recipe, run.device)
    audits = tuple(replace(audited, features=values) for audited in audits)
    outcome = find_hypotheses(run, method, audits, NO_CAPTIONS, columns=columns)
    tests = HypothesisTests.of(run, audits, NO_CAPTIONS, outcome)
    findings, rows = _collected(tests, method, target_audit, others, notes, without_words=without_words)
    files = {} if rows is None else {ROWS: failing_rows_csv(rows, recipe, tests.confirmed_sets).encode()}
    pictures = page_pictures(findings, audits[0].by_start, audits[0].parts[0].decoded)
    return write_mined(run.folder, findings, pictures, files)


def _collected(
    tests: HypothesisTests,
    method: FindMethod,
    target_audit: AskedTarget,
    others: Mapping[str, ClassMap],
    notes: tuple[str, ...],
    **details: Any,
) -> tuple[Findings, AnsweredRows | None]:
    """Return the findings, and the audited rows with the confidence of all classifiers; None if rows have conditions.
    details: for `collect_findings`.
    """
    run, audited, worded = tests.run, tests.audits[0], method.captions is not None
    of_others = other_failures(target_audit, tests.audits, others, run.device)
    rows = answered = None
    if target_audit.has is None:
        answers = collect_answers(audited.parts, others, run.recipe, run.device) if others else {}
        rows = AnsweredRows.of(audited, [target.predictions for target in answers.values()])
        answered = answers_shown(rows, run.recipe, None if worded else _WITHOUT_WORDS)
    all_notes = (
        *notes,
        *unreadable_note(audited.unreadable, audited.paths),
        *method.notes(tests.outcome, run),
        *image_notes(run.recipe, run.mine.on, in_words=worded),
        *(rows.notes if rows else ()),
    )
    return collect_findings(tests, of_others, answered=answered, notes=all_notes, **details), rows


def find_hypotheses(
    run: MiningRun,
    method: FindMethod,
    audits: Sequence[Audited],
    captions: CandidateCaptions,
    pooled: Sequence[Mapping[str, Bools]] | None = None,
    columns: SliceColumns = NO_COLUMNS,
) -> Found:
    """Run the method on the discover half of each audit and join the results. pooled: for each audit, the failures (n,)
    of further classifiers by name. columns: the columns of features that are not CLIP's.
    """
    classes, several = run.recipe.classes, []
    for audited, failures in zip(audits, pooled or [{}] * len(audits), strict=True):
        rows = audited.halves.discover
        # Audits of conditions share their rows, so classes are not pooled across them.
        categories = [cls.category if len(audited.classes) == len(classes) else None for cls in classes]
        half = DiscoverHalf(
            features=audited.features[rows],
            labels=audited.labels[rows],
            failed=audited.failed[rows],
            taken_for=audited.taken_for[rows],
            units=audited.units[rows],
            centre=audited.centre,
            deviation=audited.deviation,
            captions=captions,
            class_names=tuple(cls.name for cls in classes),
            categories=tuple(categories),
            pooled={name: failed[rows] for name, failed in failures.items()},
            columns=columns,
        )
        several.append(method.find(half, run.mine, run.settings, run.workers))
    joined = several[0]
    notes = list(joined.notes)
    for audited, outcome in zip(audits[1:], several[1:], strict=True):
        # Each class's note comes from the audit of that class.
        for label in audited.classes:
            notes[label] = outcome.notes[label]
        hypotheses, vectors = joined.hypotheses + outcome.hypotheses, {**joined.vectors, **outcome.vectors}
        joined = replace(joined, hypotheses=hypotheses, vectors=vectors, decide={**joined.decide, **outcome.decide})
    return replace(joined, notes=tuple(notes))


def embed_captions(gathered: Gathered, clip: ClipModel) -> CandidateCaptions:
    texts, references, candidates = gathered
    parts = []
    for start in range(0, len(texts), _MOST_TEXT_STEPS):
        parts.append(clip.embed_texts(texts[start : start + _MOST_TEXT_STEPS]))
        report("embedding captions", min(start + _MOST_TEXT_STEPS, len(texts)), len(texts))
    return CandidateCaptions(texts, np.concatenate(parts).astype(np.float32), references, candidates)


def _vectors(tests: HypothesisTests) -> bytes:
    """Return `vectors.safetensors`: directions by class id, captions by hypothesis, mean and deviation."""
    from safetensors.numpy import save

    audited, ids = tests.audits[0], [cls.id for cls in tests.run.recipe.classes]
    arrays: dict[str, Any] = {"centre": audited.centre, "spread": audited.deviation}
    for name, vector in tests.outcome.vectors.items():
        label, _, what = name.partition("_")
        arrays[f"{ids[int(label)]}_{what}" if label.isdecimal() else name] = np.asarray(vector)
    arrays |= {f"caption_{hypothesis.name}": np.asarray(hypothesis.vector) for hypothesis in tests.outcome.hypotheses}
    return save({name: np.ascontiguousarray(arrays[name]) for name in sorted(arrays)})


def refuse_pools(pool: str | None, weights: bool, mine: Mine) -> None:
    """Raise UserError if a pool or weights are asked for. Both need a method that scores every image of a class."""
    options = [option for option, given in (("--pool", pool is not None), ("--weights", weights)) if given]
    if options:
        raise UserError(
            f"{' and '.join(options)}: the method '{mine.method}' gives rows no score",
            "Leave it out, or mine with another method: --method directions",
        )


def _mined_recipe(
    recipe: str | Path, overrides: Sequence[str], options: Mapping[str, Any]
) -> tuple[Recipe, Mine, Sequence[str]]:
    """Return the recipe, its section `mine` with the command line's values, and all overrides."""
    method, on, confirm = options["method"], options["on"], options["confirm"]
    loaded = load_recipe(recipe, overrides)
    if loaded.samples.limit is not None:  # a preview's recipe: images drawn for a test are not limited
        overrides = (*overrides, "samples.limit=null")
        loaded = load_recipe(recipe, overrides)
    section = loaded.mine or Mine()
    if method in METHODS and method != section.method:
        # The recipe's settings belong to the recipe's method, so another method drops them, also in the written layer.
        overrides = (*(f"mine.settings.{key}=null" for key in section.settings), f"mine.method={method}", *overrides)
        loaded = load_recipe(recipe, overrides)
    if not on and (loaded.mine is None or "on" not in loaded.mine.model_fields_set):
        options = {**options, "on": (loaded.source.validation_split,)}
    loaded = resolve_classes(loaded)
    if confirm is not None and confirm not in CONFIRM:
        close = did_you_mean(confirm, CONFIRM)
        raise UserError(f"mine.confirm: found '{confirm}', expected {', '.join(CONFIRM)}{close}")
    values = {} if loaded.mine is None else loaded.mine.model_dump(exclude_none=True)
    values |= {key: value for key, value in options.items() if value is not None}
    mined = validate_settings(Mine, values, "mine")
    if mined.method not in METHODS:
        raise unknown_method(mined.method, METHODS)
    return loaded, mined, overrides
