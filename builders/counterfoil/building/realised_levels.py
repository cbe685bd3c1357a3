"""Find the scales at which a shift reaches fractions of its gain in CLIP score (`levels: {realised:
…}`).

The scale 0 is the prompt of the base, and the scale 1 is the prompt of the shift. Before a build
begins, the generator draws images of a few scenes at many scales. These images have another seed
than the images of the dataset.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from typing import Any

import numpy as np

from counterfoil.arrays import Floats
from counterfoil.errors import RunFailure
from counterfoil.generate.render import Renderer
from counterfoil.generate.screen.scores import Scorer
from counterfoil.generate.tokens.class_tokens import ClassTokens
from counterfoil.models.arithmetic import computing_on
from counterfoil.models.clip import load_clip
from counterfoil.models.diffusion import generator_pipeline
from counterfoil.models.loras import load_loras
from counterfoil.plan.estimate import POINTS_A_SEARCH, SCENES_A_SEARCH
from counterfoil.plan.layout import Between, Plan, Sample, make_plan, sample_seed
from counterfoil.progress import report_progress
from counterfoil.recipe import Recipe
from counterfoil.recipe.severity import SeverityLevels

# `POINTS` are the scales at which each scene is drawn.
POINTS = tuple((np.arange(POINTS_A_SEARCH) / (POINTS_A_SEARCH - 1)).tolist())
# Over all scales the score must rise by more than `_CLEAR` standard errors. A fall on the way
# counts only if it is more than `_CLEAR` standard errors.
_CLEAR = 2.0


def scales_reaching(
    scores: Floats,
    shares: Sequence[float],
) -> list[float]:
    """Return the scales at which the mean score reaches the fractions `shares` of its whole gain.

    scores: the shift scores of images at `POINTS`, (scenes, points). Scores between points are
    interpolated linearly. Raise ValueError if the mean score does not rise, or if it clearly falls
    on the way.
    """
    from scipy.optimize import isotonic_regression

    def error(differences: Floats) -> float:
        deviation = differences.std(ddof=1)
        return float(deviation / np.sqrt(len(differences)))

    gained = scores[:, -1] - scores[:, 0]
    means = scores.mean(axis=0)
    if not gained.mean() > _CLEAR * error(gained):
        raise ValueError(
            f"the mean shift score goes from {means[0]:.3f} at the base to {means[-1]:.3f}, which"
            f" is no clear gain over {len(scores)} scenes"
        )
    for point in range(1, len(POINTS)):
        best = int(means[:point].argmax())
        lost = scores[:, best] - scores[:, point]
        noise = _CLEAR * error(lost)
        if lost.mean() > max(noise, 0.05 * gained.mean()):
            before = f"{means[best]:.3f} at {POINTS[best]:g}"
            after = f"{means[point]:.3f} at {POINTS[point]:g}"
            raise ValueError(f"the mean shift score falls on the way, from {before} to {after}")
    curve = isotonic_regression(means).x
    gains = curve - curve[0]
    # On a flat part of the curve, take its first point.
    fractions = gains / gains[-1]
    steps, first = np.unique(fractions, return_index=True)
    reached = np.interp(shares, steps, np.asarray(POINTS)[first])
    # The level 1 is the whole shift even if the curve is flat before it. So the images of this
    # level equal the images of a shift without levels.
    scales = []
    for share, scale in zip(shares, reached, strict=True):
        if share == 1:
            scale = 1.0
        scales.append(round(float(scale), 3))
    if any(later <= earlier for earlier, later in pairwise([0.0, *scales])):
        listed = ", ".join(f"{share:g}" for share in shares)
        raise ValueError(f"the shares {listed} are reached at one place")
    return scales


def realised_scales(
    recipe: Recipe,
    device: str,
    pins: Mapping[str, Any],
    tokens: ClassTokens | None,
) -> dict[str, list[float]]:
    """Return, for each shift, the scales of its realised levels.

    Scales that the recipe already has are measured again, because its prompts, its generator or its
    CLIP may have changed. Raise RunFailure with every shift whose score does not rise.
    """
    scales = {}
    problems = []
    measured = _measured(recipe, list(recipe.scales), device, pins, tokens)
    for name, scores in measured.items():
        levels = _levels_of(recipe, name)
        try:
            scales[name] = scales_reaching(scores, levels.asked)
        except ValueError as error:
            problems.append(f"prompts.shifts.{name}.severity: {error}")
    if problems:
        hint = (
            "List levels of the way instead (levels: [.25, .5, 1]), or change the shift's prompt or"
            " caption."
        )
        raise RunFailure(problems, hint)
    return scales


def _levels_of(recipe: Recipe, shift: str) -> SeverityLevels:
    severity = recipe.prompts.shifts[shift].severity
    assert severity is not None
    assert severity.levels is not None
    return severity.levels


def with_scales(
    recipe: Recipe,
    scales: Mapping[str, Sequence[float]] | None,
) -> Recipe:
    """Return the recipe with the scale of each realised level. Raise ValueError for scales of
    another form."""
    scales = scales or {}
    expected = {shift.of for shift in recipe.all_shifts() if shift.realised}
    if expected != set(scales):
        shown = ", ".join(map(str, scales))
        raise ValueError(f"scales of {shown}, expected those of {', '.join(expected)}")
    if not scales:
        return recipe
    shifts = dict(recipe.prompts.shifts)
    for name, shift_scales in scales.items():
        realised = _levels_of(recipe, name).realised
        levels = SeverityLevels(realised=realised, scales=tuple(shift_scales))
        severity = shifts[name].severity
        assert severity is not None
        severity = severity.model_copy(update={"levels": levels})
        shifts[name] = shifts[name].model_copy(update={"severity": severity})
    prompts = recipe.prompts.model_copy(update={"shifts": shifts})
    return recipe.model_copy(update={"prompts": prompts})


def _measured(
    recipe: Recipe,
    shifts: Sequence[str],
    device: str,
    pins: Mapping[str, Any],
    tokens: ClassTokens | None,
) -> dict[str, Floats]:
    """Return, for each shift, the shift scores (scenes, points)."""
    from PIL import Image

    seed = sample_seed(recipe.samples.seed, "levels", 0, None)  # the seed depends on no class
    seeded = recipe.samples.model_copy(update={"seed": seed})
    search = recipe.model_copy(update={"samples": seeded})
    placeholders = vectors = None
    if tokens is not None:
        placeholders = tokens.placeholders
        vectors = tokens.by_placeholder()
    plan = make_plan(search, placeholders)
    models = pins["models"]
    generator = recipe.drawing
    with computing_on(device):
        pipeline = generator_pipeline(
            generator,
            device,
            models["generator"].get("revision"),
            vectors,
        )
        asked_loras = generator.get("lora", {})
        loras = load_loras(pipeline, asked_loras, pins.get("loras") or {})
        renderer = Renderer(pipeline, search, loras=loras)
        clip = load_clip(
            recipe.screen.clip,
            recipe.screen.weights,
            device,
            revision=models["screen"].get("revision"),
        )
        scorer = Scorer(clip, plan)
        tables = {}
        for number, name in enumerate(shifts):
            scenes = _scenes(plan, name)
            samples = []
            for scene in scenes:
                by = plan.shift(scene.shift).by
                assert by is not None
                base = plan.base_prompt_of(scene.class_id)
                for point in POINTS:
                    between = None if point == 1 else Between(by, point, base)
                    samples.append(replace(scene, between=between))
            scores = np.full(len(samples), np.nan)
            for start in range(0, len(samples), generator.batch_size):
                batch = samples[start : start + generator.batch_size]
                images = []
                drawn = []
                positions = []
                rendered = renderer.render(batch)
                for position, pixels in enumerate(rendered, start):
                    if pixels is not None:
                        images.append(Image.fromarray(pixels))
                        drawn.append(samples[position])
                        positions.append(position)
                _, pairs = scorer.score(images, drawn)
                scores[positions] = [shift_score for _, shift_score in pairs]
                done = number * len(samples) + start + len(batch)
                report_progress("looking for levels", done, len(shifts) * len(samples))
            table = scores.reshape(len(scenes), len(POINTS))
            scored = np.isfinite(table).all(axis=1)
            tables[name] = table[scored]
    return tables


def _scenes(
    plan: Plan,
    shift: str,
) -> list[Sample]:
    """Return samples of a shift that are spread over the classes of the shift."""
    shifts = plan.recipe.all_shifts()
    level = next(shift_level for shift_level in shifts if shift_level.of == shift)
    cells = [cell for cell in plan.cells() if cell.shift == level.name]
    count = len(cells)
    if count > SCENES_A_SEARCH:  # take classes from every part of a long list
        cells = [cells[scene * count // SCENES_A_SEARCH] for scene in range(SCENES_A_SEARCH)]
    scenes_of_class = -(-SCENES_A_SEARCH // len(cells))
    of_cells = []
    for cell in cells:
        chosen = replace(cell, candidates=scenes_of_class)
        of_cells.append(plan.samples(chosen))
    rounds = zip(*of_cells, strict=True)
    return list(chain.from_iterable(rounds))[:SCENES_A_SEARCH]
