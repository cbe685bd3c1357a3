"""Method `bugs` (Wiles 2022): describe failures on generated images in words, and test the words in
pairs of images.

The method also writes the recipe of the search, the hypotheses that a person tried, and a layer
that builds many failures (section 4.2).
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from counterfoil.arrays import Floats32
from counterfoil.data.labelled_images import LabelledImages, rows_of
from counterfoil.data.open_source import open_source
from counterfoil.documents import csv_text, document_text, read_document
from counterfoil.errors import UserError
from counterfoil.evaluation.dataset import open_dataset
from counterfoil.mining.audited import (
    ask_about,
    class_map_of,
    features_of,
    opened_parts,
    parts_with,
    recipe_clip,
)
from counterfoil.mining.collected import output_names
from counterfoil.mining.findings import AuditedImages, Findings, RoundDrawn
from counterfoil.mining.findings_layer import laid_over, layer_of, seed_for
from counterfoil.mining.hypotheses import MiningRun
from counterfoil.mining.method import SearchMethod
from counterfoil.mining.methods.bugs.describing import ClusterDescriber
from counterfoil.mining.methods.bugs.document import (
    document_of,
    estimate_rates,
    target_of,
    with_more,
)
from counterfoil.mining.methods.bugs.drawing import RoundDrawer
from counterfoil.mining.methods.bugs.search import (
    FailedImages,
    Features,
    refuse_small_search,
    search_bugs,
)
from counterfoil.mining.methods.bugs.trials import TRIED, base_prompt
from counterfoil.mining.mined_files import (
    ADVERSARIAL,
    FINDINGS,
    LAYER,
    RELABEL,
    MineResult,
    refuse_others,
    write_mined,
)
from counterfoil.mining.rounds import DATASET, round_doubts, undrawn_problems
from counterfoil.models.captioners import CaptionExample, describe_captioner, load_captioner
from counterfoil.prediction.failures import refuse_unanswered
from counterfoil.recipe import Recipe, RecipeClass, layer_text
from counterfoil.recipe.keep.misclassified import TOP1
from counterfoil.recipe.names import derived_name, did_you_mean
from counterfoil.recipe.schema_mine import BugsSettings, mined_facts
from counterfoil.regular_files import named_path
from counterfoil.report.findings import BESIDE
from counterfoil.store.atomic import remove_durably, write_atomically
from counterfoil.store.decoding import readable_image

PURPOSE = "adversarial"


def adversarial_layer(
    recipe: Path,
    target: str,
    *,
    accepted: int,
    at_most: int,
    method: str,
    seed: int,
    failure: str = TOP1,
) -> str:
    """Return a layer over `recipe`, the layer that mining wrote. Each cell of the new layer draws
    images until it keeps `accepted` images that `target` gets wrong. The layer drops the shifts for
    comparison, and the numbers and keep rules of single shifts.
    """
    rule: dict[str, Any] = {"models": [target]}
    if failure != TOP1:
        rule["failure"] = failure
    # The keep rule is applied like a command-line override, so that relative folders in it start at
    # the working directory and not at the folder of the layer.
    keep = f"screen.keep={json.dumps(['thresholds', {'misclassified': rule}])}"
    below, carried, extends = laid_over(recipe, [keep], recipe.parent)
    mined = 0
    shifts: dict[str, Any] = {}
    for name, spec in below.prompts.shifts.items():
        if mined_facts(spec.mined_from).role in BESIDE:
            shifts[name] = None
            continue
        mined += 1
        keys = [key for key in ("samples", "keep") if getattr(spec, key) is not None]
        if keys:
            shifts[name] = dict.fromkeys(keys)
    if not mined:
        raise UserError(
            f"{below.name} has no mined shift, so there are no failures to collect",
            "Name the recipe that `counterfoil mine` wrote where it confirmed findings.",
        )
    changes: dict[str, Any] = {"name": derived_name(below.name, PURPOSE), **carried}
    if shifts:
        changes["prompts"] = {"shifts": shifts}
    drawn_seed = seed_for(below.samples.seed, PURPOSE, method, target, seed)
    samples: dict[str, int | None] = {"seed": drawn_seed}
    if below.samples.candidates is not None:
        samples["candidates"] = None
    changes["samples"] = samples | {"accepted": accepted, "at_most": at_most}
    return layer_text(changes, below, extends)


ASKED = "mine.yaml"
TRIES = "tries.json"
DESCRIPTIONS = "descriptions.csv"
_MOST_EXAMPLE_BYTES = 1 << 26


def refuse_undrawn(run: MiningRun) -> None:
    """Raise UserError if the recipe can render no images for the search, or the target cannot
    answer them."""
    if run.mine.target is None:
        raise UserError(
            "no classifier to audit: mine.target is not set", "Name one: --target lab:resnet10t"
        )
    problems = undrawn_problems(run.recipe, run.mine, "mine.method: 'bugs'")
    problems += wordless_problems(run)
    if problems:
        raise UserError(problems)


def wordless_problems(run: MiningRun) -> list[str]:
    """Return why no words can be added to the base: it has no prompt, or classes lack words that
    its prompt uses."""
    if run.settings.base is None and run.recipe.prompts.base.prompt is None:
        return ["mine.settings.base: the recipe's base has no prompt, so no words can be added"]
    base = base_prompt(run)
    problems = []
    for cls in run.recipe.classes:
        if not cls.has_words_for(base):
            problems.append(f"mine.settings.base: the class '{cls.name}' has no words for '{base}'")
    return problems[:5]


def write_search(
    findings: Findings,
    images: Iterable[tuple[str, LabelledImages]],
    run: MiningRun,
    recipe_text: str | None = None,
    relabel: str | None = None,
) -> MineResult:
    """Write the findings, their table, page and recipes. recipe_text: the text of `mine.yaml`.
    relabel: the table of rows whose labels a person should check.
    """
    folder = run.folder
    settings = run.settings
    files = {}
    layer = None
    if relabel is not None:
        files[RELABEL] = relabel.encode()
    if recipe_text is not None:
        # later tries, which do not write it, extend it
        write_atomically(folder / ASKED, recipe_text.encode())
    # Findings on existing images have nothing to draw again.
    if findings.halves is None:
        if findings.rounds:
            # The first round shows every class.
            first = folder / findings.rounds[0].name
            findings = findings.doubted(round_doubts(first))
        layer = layer_of(findings, run)
    rounds = [drawn for drawn in findings.rounds if drawn.name.startswith(f"{TRIED}/")]
    if rounds:
        # Hypotheses that a person tried have a file of their own, because each run rewrites the
        # findings.
        tried = [finding for finding in findings.findings if finding.origin == "tried"]
        of_tries = replace(
            findings,
            findings=tuple(tried),
            tested=len(tried),
            rounds=tuple(rounds),
            classes=(),
            not_tested=(),
            smallest_difference=None,
        )
        write_atomically(folder / TRIES, document_text(of_tries).encode())
    if layer is not None:
        files[LAYER] = layer.encode()
    if layer is not None and settings.adversarial:
        # The layer extends the findings' recipe, which must exist.
        if not rounds:
            remove_durably(folder / FINDINGS)
        write_atomically(folder / LAYER, files[LAYER])
        text = adversarial_layer(
            folder / LAYER,
            findings.target.name,
            accepted=settings.adversarial,
            at_most=settings.at_most,
            method=findings.method.name,
            seed=findings.run_seed,
            failure=findings.failure,
        )
        files[ADVERSARIAL] = text.encode()
    return write_mined(folder, findings, images, files)


def kept_tries(run: MiningRun) -> Findings | None:
    """Return the findings that a person tried in the run's folder, or None. Raise UserError if they
    were tried with another recipe, target or failure rule.
    """
    path = run.folder / TRIES
    if not path.exists():
        return None
    tried = read_document(path, Findings)
    base = tried.method.settings.get("base")
    before = (tried.recipe.sha256, tried.target.name, tried.failure, base)
    now = (run.recipe.recipe_hash, run.target, run.mine.failure, run.settings.base)
    if before != now:
        raise UserError(
            f"{path} holds descriptions that were tried with another recipe, target, base or"
            " failure rule",
            "Name another folder with --out, or remove that file.",
        )
    return tried


def images_of_rounds(folder: Path, rounds: Sequence[RoundDrawn]) -> dict[str, LabelledImages]:
    """Return the images of a folder's rounds that still exist, by key prefix."""
    images = {}
    for drawn_round in rounds:
        dataset = folder / drawn_round.name / DATASET
        if drawn_round.accepted and dataset.is_dir():
            images[f"{drawn_round.name}/"] = open_dataset(dataset).labelled()
    return images


def clip_features(
    several: Mapping[str, LabelledImages],
    recipe: Recipe,
    device: str,
) -> Features:
    """Return a function for features by the recipe's CLIP, which is loaded when first needed.
    several: images by key prefix.
    """
    load = functools.cache(lambda: recipe_clip(recipe, device).embedder)

    def features(keys: Sequence[str]) -> Floats32:
        vector_by_key: dict[str, Floats32] = {}
        for start, images, image_keys in parts_with(keys, several.items()):
            rows = np.flatnonzero(np.isin(images.keys, image_keys))
            chosen = replace(rows_of(images, rows), units=None)
            embedded = features_of(chosen, load())
            vectors = np.asarray(embedded, dtype=np.float32)
            for key, vector in zip(chosen.keys, vectors, strict=True):
                vector_by_key[f"{start}{key}"] = vector
        return np.stack([vector_by_key[key] for key in keys])

    return features


def mine_bugs(run: MiningRun) -> MineResult:
    """Draw rounds in the run's folder, or resume there. Then write the findings, their table, page
    and recipes."""
    recipe = run.recipe
    mine = run.mine
    settings = run.settings
    device = run.device
    refuse_undrawn(run)
    classes = _searched_classes(recipe, settings)
    refuse_small_search(len(classes), run)
    examples = opened_examples(settings)
    class_map = class_map_of(recipe, run.target)
    refuse_unanswered(mine.failure, recipe.classes, class_map)
    target = target_of(run, class_map)
    captioner = load_captioner(settings.captioner, device)
    seeds, parts = _seeds(run)
    refuse_others(run, parts)
    tried = kept_tries(run)
    images = {f"seeds/{index}/": part for index, part in enumerate(parts)}
    drawer = RoundDrawer(run, images=images)
    describer = ClusterDescriber(run, captioner, examples, images)
    look = clip_features(images, recipe, device)
    search = search_bugs(classes, drawer, look, describer, run, seeds)
    columns = ("cluster", "caption", "pieces", "log_likelihood", "log_likelihood_right")
    scored = [dict(zip(columns, row, strict=True)) for row in describer.scored]
    compared = csv_text(scored, columns)
    write_atomically(run.folder / DESCRIPTIONS, compared.encode())
    names = output_names(recipe, class_map)
    contents = [AuditedImages(part.name, part.content, len(part)) for part in parts]
    findings = document_of(search, run, target, names, contents)
    # The search's own findings are estimated before those that a person tried, so that a try does
    # not change the rounds of the search.
    later = replace(drawer, past_others=True)
    number = 1 + len(search.rounds)
    findings = estimate_rates(findings, later, number, run, names)
    if tried is not None:
        findings = with_more(findings, tried.findings, tried.rounds)
        images |= images_of_rounds(run.folder, tried.rounds)
        findings = estimate_rates(findings, later, 1, run, names, "try_estimate")
    below, carried, extends = laid_over(run.source, run.overrides, run.folder)
    section = mine.model_dump(mode="json", exclude_none=True)
    section["settings"] = settings.model_dump(
        mode="json",
        exclude_none=True,
        exclude_defaults=True,
    )
    text = layer_text(carried | {"mine": section}, below, extends)
    return write_search(findings, images.items(), run, text)


def opened_examples(settings: BugsSettings) -> tuple[CaptionExample, ...]:
    """Return the example images with captions that the captioner is shown. Raise UserError if the
    captioner takes no examples, or if an image cannot be read.
    """
    takes = describe_captioner(settings.captioner).takes_examples
    if settings.examples and not takes:
        raise UserError(
            f"mine.settings.examples: {settings.captioner} takes no examples: it sees only the"
            " image",
            "Leave the examples out, or name a chat model that takes images.",
        )
    opened = []
    wrong = []
    for example in settings.examples:
        path = named_path(example.image)
        image = None
        if path.is_file() and path.stat().st_size <= _MOST_EXAMPLE_BYTES:
            image = readable_image(path.read_bytes(), photograph=True)
        if image is None:
            wrong.append(f"mine.settings.examples: {path} is not a readable image")
        else:
            opened.append(CaptionExample(example.text, image))
    if wrong:
        raise UserError(wrong, "Name images (PNG, JPEG, WebP …) by their paths.")
    return tuple(opened)


def _searched_classes(recipe: Recipe, settings: BugsSettings) -> Sequence[RecipeClass]:
    if settings.classes is None:
        return recipe.classes
    known = [cls.id for cls in recipe.classes]
    id_by_name = {cls.name: cls.id for cls in recipe.classes}
    problems = []
    for class_id in settings.classes:
        if class_id in known:
            continue
        close = did_you_mean(class_id, known)
        if class_id in id_by_name:
            close = f"; did you mean '{id_by_name[class_id]}'?"
        problems.append(
            f"mine.settings.classes: the recipe has no class of the id '{class_id}'{close}"
        )
    if problems:
        raise UserError(problems, f"Known classes: {', '.join(known[:20])}.")
    return [cls for cls in recipe.classes if cls.id in settings.classes]


def _seeds(run: MiningRun) -> tuple[FailedImages | None, tuple[LabelledImages, ...]]:
    """Return the existing images whose failures the search describes, and the sources of these
    images. The first value is None if the search describes failures on the base's own images.
    """
    if run.settings.seeds is None:
        return None, ()
    source = open_source(run.recipe.source)
    parts = opened_parts(run.recipe, run.settings.seeds, source, "mine.settings.seeds")
    question = ask_about(run, parts)
    answers = question.target.predictions
    keys = []
    for index, part in enumerate(parts):
        keys += [f"seeds/{index}/{key}" for key in part.keys]
    # An image that cannot be decoded counts neither as right nor as wrong.
    rows = np.flatnonzero(answers.readable)
    seeds = FailedImages(
        tuple(keys[row] for row in rows.tolist()),
        question.labels[rows],
        question.failed[rows],
        answers.prediction[rows].astype(np.int64),
    )
    return seeds, parts


BUGS = SearchMethod(BugsSettings, mine_bugs)
