"""Digests of all that must be the same on every processor; printed as JSON where this is run as a
module."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

import numpy as np

from counterfoil import paired_stats, stats
from counterfoil.corrupting.corrupt import apply_gain, contrast_match, corrupt
from counterfoil.corrupting.corruptions import CORRUPTIONS
from counterfoil.lab import scenery
from counterfoil.lab.boxes import boxes_scene, class_mask, objects_in, render_boxes
from counterfoil.lab.planted import KINDS, planted_world
from counterfoil.lab.scenes import load_wardrobe, wardrobe_scene
from counterfoil.lab.vocabulary import SHIFTS
from counterfoil.lab.world import render, render_graded
from counterfoil.plan.layout import make_plan
from counterfoil.recipe import load_recipe
from lab_training.corpora import pretraining_scene, unbiased_scene


def digest_of(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def world() -> str:
    scenes = [
        render(make(number)) for make in (pretraining_scene, unbiased_scene) for number in range(24)
    ]
    scenes += [
        load_wardrobe(split)[1](row)
        for split in ("train", "validation", "audit")
        for row in range(16)
    ]
    graded = [
        shift for shift in SHIFTS if shift.kind in ("background", "weather", "light", "colour")
    ]
    scenes += [render_graded(wardrobe_scene("validation", 5), shift.name, 0.4) for shift in graded]
    libraries = (
        scenery.suns,
        scenery.low_suns,
        scenery.spotlights,
        scenery.reaches,
        scenery.night_sky,
        scenery.linen,
    )
    return digest_of(array.tobytes() for array in (*scenes, *(library() for library in libraries)))


def boxes() -> str:
    scenes = [boxes_scene(split, number) for split in ("train", "audit") for number in range(10)]
    return digest_of(
        render_boxes(scene).tobytes()
        + json.dumps(objects_in(scene)).encode()
        + class_mask(scene).tobytes()
        for scene in scenes
    )


def planted() -> str:
    worlds = [planted_world(kind, seed) for kind in KINDS for seed in (100, 101)]
    return digest_of(
        world.pixels("test", row).tobytes() + bytes([world.label("test", row)])
        for world in worlds
        for row in range(6)
    )


def corruptions() -> str:
    rng = np.random.default_rng(5)
    pictures = [
        rng.integers(0, 256, shape).astype(np.uint8) for shape in ((96, 120, 3), (40, 32, 3))
    ]
    ramp = np.arange(0, 256, 2, dtype=np.uint8)
    pictures.append(np.stack([np.tile(ramp, (90, 1))] * 3, axis=2))
    corrupted = [
        corrupt(picture, name, severity, seed=severity)
        for name in CORRUPTIONS
        for picture in pictures
        for severity in (1, 3, 5)
    ]
    gains = [apply_gain(pictures[1], *contrast_match(pictures[1], pictures[0]))]
    return digest_of(picture.tobytes() for picture in (*corrupted, *gains))


def plans() -> str:
    recipes = [
        load_recipe(name) for name in ("wardrobe-mini", "wardrobe-corrupt", "wardrobe-severity")
    ]
    planned = [make_plan(recipe) for recipe in recipes]
    samples = [
        f"{sample.key} {sample.seed} {sample.prompt}"
        for plan in planned
        for cell in plan.cells()
        for sample in list(plan.samples(cell))[:2]
    ]
    return digest_of(line.encode() for line in samples)


def statistics() -> list[str]:
    """Return numbers as people read them, and twice as exactly."""
    rng = np.random.default_rng(11)
    base, shifted, other = (rng.random(400) < share for share in (0.1, 0.3, 0.25))
    units = np.arange(400) // 4
    pairs = paired_stats.count_pairs(shifted, base)
    p = [stats.sign_test(ahead, 20 - ahead) for ahead in range(11)]
    estimate = stats.mean_over_units(
        shifted.astype(float), units, stats.seeded_generator(3, "mean")
    )
    numbers = [
        *stats.wilson_interval(37, 91),
        *stats.clopper_pearson(3, 40),
        *paired_stats.tango_interval(pairs),
        *stats.clustered_interval(np.bincount(units, shifted), np.bincount(units)),
        *stats.benjamini_hochberg(p),
        *stats.holm_adjusted(p),
        estimate.value,
        estimate.low,
        estimate.high,
        *paired_stats.log_e_values([3, 9, 40], [4, 20, 60]).tolist(),
        stats.score_test(*stats.count_failures(shifted, units, other), 0.02),
    ]
    return [f"{number:.11g}" for number in numbers]


def all_digests() -> dict[str, str | list[str]]:
    return {
        "world": world(),
        "boxes": boxes(),
        "planted": planted(),
        "corruptions": corruptions(),
        "plans": plans(),
        "statistics": statistics(),
    }


if __name__ == "__main__":
    print(json.dumps(all_digests()))
