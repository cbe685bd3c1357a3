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
from counterfoil.mining.hypotheses import Found, Hypothesis, MiningRun
from counterfoil.prediction.inference import Predictions
from counterfoil.progress import Stage, rename_stages
from counterfoil.recipe import Recipe, load_recipe
from counterfoil.recipe.keep.cells import ACCEPTED
from counterfoil.recipe.names import PREDICTIONS, derived_name, without_folders
from counterfoil.recipe.prompts import BASE
from counterfoil.recipe.schema_mine import Mine
from counterfoil.stats import FailureCount, count_failures
from counterfoil.store.atomic import make_folder, write_atomically
from counterfoil.store.reading import read_batches

LAYER = "recipe.yaml"
DATASET = "dataset"
ANSWERS = "answers.csv"


def round_doubts(folder: Path) -> ScreenDoubts | None:
    """Return the doubts about the screen of the round in `folder`, as its build measured them."""
    standing = read_dataset(folder / DATASET, "thresholds") if (folder / DATASET).is_dir() else None
    if standing is None or standing.recipe is None or standing.read_thresholds is None:
        return None
    return screen_doubts(standing.recipe, standing.read_thresholds)


@dataclass(frozen=True)
class AnsweredRound:
    """The n accepted images of a round with the target's answers. failed: (n,). sets: the set of
    each hypothesis."""

    opened: OpenDataset
    images: LabelledImages
    predictions: Predictions
    failed: Bools
    sets: Mapping[str, RenderedSet] = field(default_factory=dict)

    def key(self, row: int) -> str:
        """Return the key of an image in the findings."""
        return f"{self.images.name}/{self.images.keys[row]}"


def answered_round(run: MiningRun, name: str, layer: str) -> AnsweredRound | None:
    """Build the round `name` and collect the target's answers. Return None if no base image was
    accepted."""
    round_folder = run.folder / name
    path = round_folder / LAYER
    make_folder(round_folder)
    if not path.exists():
        write_atomically(path, layer.encode())
    elif path.read_bytes() != layer.encode():
        raise UserError(
            f"{round_folder} was rendered for other hypotheses or with other settings",
            "Name another folder with --out, or remove that one.",
        )

    def stage(event: BuildProgress | TokenProgress | Stage) -> Stage:
        if isinstance(event, Stage):
            return event
        if isinstance(event, TokenProgress):
            return Stage(f"{name}: class tokens", event.classes_done, event.classes)
        return Stage(f"{name}: images", event.images_done, event.images)

    # What is warned of CLIP is said once, with the findings.
    dataset = round_folder / DATASET
    devices = ",".join(run.devices)
    with (
        rename_stages(stage),
        warnings.catch_warnings(action="ignore", category=CounterfoilWarning),
    ):
        built = build(load_recipe(path), dataset, device=devices, workers=run.workers)
    if not built.counts.get(BASE, {}).get(ACCEPTED):
        return None
    opened = open_dataset(dataset)
    images = replace(opened.labelled(), name=name)
    # The round's recipe has the same classes, so labels are the same numbers.
    answers = ask_about(run, (images,))
    predictions = answers.target.predictions
    failed = answers.failed
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
            "failed": bool(failed[row]),
        }
        lines.append(line)
    write_atomically(round_folder / ANSWERS, csv_text(lines).encode())
    return AnsweredRound(opened, images, predictions, failed)


ROUND = "rounds/01"
PURPOSE = "confirm"
GROUP = "hypotheses"
NO_PROMPT = "it cannot be rendered: no prompt describes what lies far from a caption"
_SCORES = ("object_score", "shift_score")


@dataclass(frozen=True)
class RenderedSet:
    """The accepted images of a hypothesis. counts: failures of these images and of their base
    images. rows, scores: the best image first.
    """

    counts: tuple[FailureCount, FailureCount]
    rows: Ints
    scores: Floats


def undrawn_problems(recipe: Recipe, mine: Mine, key: str) -> list[str]:
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
    prompts: dict[str, str] = {}
    drawn = []
    for hypothesis in outcome.hypotheses if run.mine.confirm != "rows" else ():
        # No prompt renders images far from a caption; another prompt would test other words.
        if hypothesis.role != "hard":
            continue
        prompt = drawing_prompt(hypothesis, outcome, run.recipe)
        if prompt is not None:
            prompts[hypothesis.name] = prompt
            drawn.append(hypothesis)
    if not prompts:
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
    names = ["key", *_SCORES]
    for batch in read_batches(opened.directory, columns=names):
        columns = [batch.column(name).to_pylist() for name in names]
        for key, of_object, of_shift in zip(*columns, strict=True):
            score = of_object if of_shift is None else of_shift
            best[key] = 0.0 if score is None else float(score)
    scores = np.asarray([best[key] for key in opened.keys], dtype=np.float64)
    shifts = {}
    for at, shift in enumerate(opened.recipe.all_shifts()):
        shifts[shift.name] = at
    whole = answered.predictions.readable
    labels = opened.labels
    indices = opened.indices
    pair_of_row = labels * (int(indices.max()) + 1) + indices
    sets = {}
    for hypothesis in drawn:
        shift = shifts[hypothesis.name]
        rows, in_set = compared_rows(hypothesis, shift, opened.shifts, labels, indices, whole)
        pairs = pair_of_row[rows]
        set_rows = rows[in_set]
        best_first = np.argsort(-scores[set_rows], kind="stable")
        set_rows = set_rows[best_first]
        counts = count_failures(answered.failed[rows], pairs, in_set)
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
    base = (shifts == 0) & whole & np.isin(labels, hypothesis.labels)
    if len(hypothesis.labels) > 1:
        pairs = np.stack([labels, indices], axis=1)
        every = [tuple(pair) for pair in pairs.tolist()]
        both = set(compress(every, ours)).intersection(compress(every, base))
        paired = np.asarray([pair in both for pair in every], dtype=bool)
        ours = ours & paired
        base = base & paired
    rows = np.flatnonzero(ours | base)
    return rows, ours[rows]


def round_layer(drawn: Sequence[Hypothesis], prompts: Mapping[str, str], run: MiningRun) -> str:
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
        classes = [recipe.classes[label] for label in hypothesis.labels]
        origin = {
            "finding": hypothesis.name,
            "words": hypothesis.words,
            "role": hypothesis.role,
            "method": mine.method,
            "target": without_folders(run.target),
        }
        caption = hypothesis.caption if screened else None
        shift = mined_shift(prompts[hypothesis.name], caption, GROUP, classes, origin)
        candidates = math.ceil(mine.rendered / len(classes))
        shift["samples"] = {"candidates": candidates}
        shifts[hypothesis.name] = shift
        most = max(most, candidates)
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
    return shifts_layer(shifts, changes | more, run.in_round(run.folder / name))
