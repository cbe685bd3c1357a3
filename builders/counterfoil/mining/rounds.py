"""Render rounds and collect the target's answers to them. A round is a dataset of rendered images
in its own folder of the mining run. Only the screen's thresholds reject images, so no classifier
selects the images. The round `rounds/01` tests the hypotheses of a method.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np

from counterfoil.arrays import Bools, Floats, Ints
from counterfoil.building.build_dataset import BuildProgress, build
from counterfoil.data.labelled_images import LabelledImages
from counterfoil.dataset.reading import read_dataset
from counterfoil.documents import csv_text
from counterfoil.errors import CounterfoilWarning, RunFailure, UserError
from counterfoil.evaluation.dataset import OpenDataset, open_dataset
from counterfoil.generate.screen.doubts import ScreenDoubts, screen_doubts
from counterfoil.generate.tokens.learn_tokens import TokenProgress
from counterfoil.mining.audited import ask_about
from counterfoil.mining.findings_layer import drawing_prompt, mined_shift, seed_for, shifts_layer
from counterfoil.mining.hypotheses import Found, Hypothesis, MiningRun, SetAndRest
from counterfoil.prediction.inference import Predictions
from counterfoil.progress import Stage, rename_stages
from counterfoil.recipe import Recipe, load_recipe
from counterfoil.recipe.keep.cells import ACCEPTED
from counterfoil.recipe.names import PREDICTIONS, derived_name, without_folders
from counterfoil.recipe.prompts import BASE
from counterfoil.recipe.schema_mine import Mine
from counterfoil.stats import count_failures
from counterfoil.store.atomic import make_folder, write_atomically

LAYER = "recipe.yaml"
DATASET = "dataset"
ANSWERS = "answers.csv"


def round_doubts(folder: Path) -> ScreenDoubts | None:
    """Return the doubts about the screen of the round in `folder`, as its build measured them."""
    dataset = folder / DATASET
    if not dataset.is_dir():
        return None
    standing = read_dataset(dataset, "thresholds")
    if standing.recipe is None or standing.read_thresholds is None:
        return None
    return screen_doubts(standing.recipe, standing.read_thresholds)


@dataclass(frozen=True)
class AnsweredRound:
    """The n accepted images of a round with the target's answers."""

    opened: OpenDataset
    images: LabelledImages
    predictions: Predictions
    failed: Bools
    """(n,)."""
    sets: Mapping[str, RenderedSet] = field(default_factory=dict)
    """The set of each hypothesis."""


def answered_round(
    run: MiningRun,
    name: str,
    layer: str,
) -> AnsweredRound | None:
    """Build the round `name` and collect the target's answers. Return None if no base image was
    accepted."""
    folder = run.folder / name
    path = folder / LAYER
    make_folder(folder)
    if not path.exists():
        write_atomically(path, layer.encode())
    elif path.read_bytes() != layer.encode():
        raise UserError(
            f"{folder} was rendered for other hypotheses or with other settings",
            "Name another folder with --out, or remove that one.",
        )

    def stage(event: BuildProgress | TokenProgress | Stage) -> Stage:
        if isinstance(event, Stage):
            return event
        if isinstance(event, TokenProgress):
            return Stage(f"{name}: class tokens", event.classes_done, event.classes)
        return Stage(f"{name}: images", event.images_done, event.images)

    # What is warned of CLIP is said once, with the findings.
    dataset = folder / DATASET
    devices = ",".join(run.devices)
    with (
        rename_stages(stage),
        warnings.catch_warnings(action="ignore", category=CounterfoilWarning),
    ):
        built = build(load_recipe(path), dataset, device=devices, workers=run.workers)
    of_base = built.counts.get(BASE, {})
    if not of_base.get(ACCEPTED):
        return None
    opened = open_dataset(dataset)
    images = replace(opened.labelled(), name=name)
    # The round's recipe has the same classes, so labels are the same numbers.
    answers = ask_about(run, (images,))
    predictions = answers.target.predictions
    lines = []
    for row in np.flatnonzero(predictions.readable).tolist():
        outputs = predictions.answers[row, :3].tolist()
        line = {
            "key": images.keys[row],
            "shift": images.group_names[images.groups[row]],
            "class_id": run.recipe.classes[images.labels[row]].id,
            "index": int(opened.indices[row]),
            "outputs": " ".join(map(str, outputs)),
            "confidence": float(predictions.confidence[row]),
            "failed": bool(answers.failed[row]),
        }
        lines.append(line)
    write_atomically(folder / ANSWERS, csv_text(lines).encode())
    return AnsweredRound(opened, images, predictions, answers.failed)


ROUND = "rounds/01"
PURPOSE = "confirm"
GROUP = "hypotheses"
NO_PROMPT = "it cannot be rendered: no prompt describes what lies far from a caption"


@dataclass(frozen=True)
class RenderedSet:
    """The accepted images of a hypothesis."""

    counts: SetAndRest
    """Failures of these images and of their base images."""
    rows: Ints
    scores: Floats
    """The best image first."""


def undrawn_problems(
    recipe: Recipe,
    mine: Mine,
    key: str,
) -> list[str]:
    """Return why no images can be drawn and answered for a test. key: the setting that asks for
    them, and its value."""
    problems = []
    if not recipe.kind.from_noise:
        kind = f"generator.kind is '{recipe.kind.name}': this kind cannot render from noise alone"
        problems.append(f"{key} draws images, and {kind}")
    if (mine.target or "").startswith(PREDICTIONS):
        problems.append(f"{key} asks the target about new images, and {mine.target} has none")
    if recipe.source.conditions is not None:
        problems.append(f"{key} draws images of one class each, and rows here have conditions")
    return problems


def render_round(run: MiningRun, outcome: Found) -> AnsweredRound | None:
    """Render the images that `mine.confirm` asks for, and collect the target's answers; None if it
    asks for none."""
    if run.mine.confirm == "rows":
        return None
    prompts: dict[str, str] = {}
    drawn = []
    for hypothesis in outcome.hypotheses:
        # No prompt renders images far from a caption; another prompt would test other words.
        if hypothesis.role != "hard":
            continue
        prompt = drawing_prompt(hypothesis, outcome, run.recipe)
        if prompt is not None:
            prompts[hypothesis.name] = prompt
            drawn.append(hypothesis)
    if not drawn:
        return None
    answered = answered_round(run, ROUND, round_layer(drawn, prompts, run))
    if answered is None:
        raise RunFailure(
            f"{run.folder / ROUND / DATASET}: the screen accepted no base image, so there is"
            " nothing to compare with",
            "Lower the object threshold, or give the classes class tokens (`tokens`).",
        )
    opened = answered.opened
    best: dict[str, float] = {}
    for row in opened.stored("object_score", "shift_score"):
        score = row["shift_score"]
        if score is None:
            score = row["object_score"]
        best[row["key"]] = score or 0.0
    in_order = [best[key] for key in opened.keys]
    scores = np.asarray(in_order, dtype=np.float64)
    shift_names = [shift.name for shift in opened.recipe.all_shifts()]
    readable = answered.predictions.readable
    labels = opened.labels
    indices = opened.indices
    pair_of_row = labels * (int(indices.max()) + 1) + indices
    sets = {}
    for hypothesis in drawn:
        shift = shift_names.index(hypothesis.name)
        rows, in_set = compared_rows(hypothesis, shift, opened.shifts, labels, indices, readable)
        counts = count_failures(answered.failed[rows], pair_of_row[rows], in_set)
        set_rows = rows[in_set]
        best_first = np.argsort(-scores[set_rows], kind="stable")
        set_rows = set_rows[best_first]
        sets[hypothesis.name] = RenderedSet(counts, set_rows, scores[set_rows])
    return replace(answered, sets=sets)


def compared_rows(
    hypothesis: Hypothesis,
    shift: int,
    shifts: Ints,
    labels: Ints,
    indices: Ints,
    whole: Bools,
) -> tuple[Ints, Bools]:
    """Return the rows of a round that test a hypothesis, (m,), and whether each is its own image
    and not a base image, (m,). The given arrays are (n,). whole: whether an image can be decoded.

    Images of one class and index start from the same noise. The unpaired score test is therefore
    conservative, and an image whose partner was rejected can be used. Classes pass the screen at
    different rates, so for a hypothesis about several classes only whole pairs are compared.
    """
    ours = (shifts == shift) & whole
    of_classes = np.isin(labels, hypothesis.labels)
    base = (shifts == 0) & whole & of_classes
    if len(hypothesis.labels) > 1:
        numbers = zip(labels.tolist(), indices.tolist(), strict=True)
        pairs = list(numbers)
        both = set(compress(pairs, ours))
        both.intersection_update(compress(pairs, base))
        paired = np.asarray([pair in both for pair in pairs], dtype=bool)
        ours &= paired
        base &= paired
    rows = np.flatnonzero(ours | base)
    return rows, ours[rows]


def round_layer(
    drawn: Sequence[Hypothesis],
    prompts: Mapping[str, str],
    run: MiningRun,
) -> str:
    """Return the round's recipe: `mine.rendered` candidates for each hypothesis, shared by its
    classes, and their base. Hypotheses are screened only by a threshold that is a number: a
    percentile would wait for a person.
    """
    recipe = run.recipe
    mine = run.mine
    threshold = recipe.screen.shift_threshold
    screened = threshold is not None and threshold.value is not None
    shifts: dict[str, dict[str, Any]] = {}
    most = 0
    for hypothesis in drawn:
        name = hypothesis.name
        classes = [recipe.classes[label] for label in hypothesis.labels]
        origin = {
            "finding": name,
            "words": hypothesis.words,
            "role": hypothesis.role,
            "method": mine.method,
            "target": without_folders(run.target),
        }
        caption = hypothesis.caption if screened else None
        shift = mined_shift(prompts[name], caption, GROUP, classes, origin)
        candidates = math.ceil(mine.rendered / len(classes))
        most = max(most, candidates)
        shifts[name] = shift | {"samples": {"candidates": candidates}}
    seed = seed_for(recipe.samples.seed, PURPOSE, mine.method, run.target, mine.seed)
    return paired_layer(ROUND, PURPOSE, shifts, run, seed, most)


def paired_layer(
    name: str,
    purpose: str,
    shifts: Mapping[str, Any],
    run: MiningRun,
    seed: int,
    candidates: int,
    **more: Any,
) -> str:
    """Return the recipe of the round `name`: shifts beside their base, whose images share its
    noise. It renders all candidates, and only the screen's thresholds reject images. more: further
    sections.
    """
    samples = {
        "seed": seed,
        "candidates": candidates,
        "noise": "paired",
        "accepted": None,
        "at_most": None,
    }
    changes = {
        "name": derived_name(run.recipe.name, purpose),
        "samples": samples,
        "screen": {"keep": ["thresholds"]},
    }
    in_round = run.in_round(run.folder / name)
    return shifts_layer(shifts, changes | more, in_round)
