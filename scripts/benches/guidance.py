"""Guidance in a part of the steps, in the lab: how much faster, and what becomes of the pictures.

`wardrobe-mini` as it is, and with `generator.guidance_interval`: the same samples from the same
noise, screened by the same thresholds. Beside images a second (drawing alone, one thread) stand the
share in which the lab's oracle sees the class and the shift, over all candidates, and the share
that the screen accepts. The ways take turns shard by shard, so that whatever else the machine does
falls on all of them.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benches import Page
from counterfoil.building.inputs import Inputs, resolve_inputs
from counterfoil.building.shard import Made, ShardMaker
from counterfoil.engines import LocalEngine
from counterfoil.generate.pictures import DrawnAhead
from counterfoil.generate.render import Renderer
from counterfoil.generate.screen.scores import Scorer
from counterfoil.models.arithmetic import one_thread
from counterfoil.models.clip import load_clip
from counterfoil.models.diffusion import load_pipeline
from counterfoil.plan.layout import Plan, Sample, make_plan
from counterfoil.recipe import Recipe, load_recipe
from counterfoil.recipe.keep.cells import ACCEPTED
from counterfoil.stats import wilson_interval
from interface_proof.looks import shows
from lab_training.oracle import Oracle
from results_page import table

TITLE = "Guidance in a part of the steps"
PARTS = ("intervals",)
INTERVALS = ("0,1", "0,0.8", "0.2,1", "0.1,0.9", "0.2,0.8", "0.3,0.7")


@dataclass
class Way:
    """One interval, and what came of it so far."""

    interval: str | None
    plan: Plan
    renderer: Renderer
    seconds: float = 0.0
    passes: int = 0
    images: int = 0
    drawn: list[tuple[Sample, np.ndarray]] = field(default_factory=list)
    accepted: int = 0
    candidates: int = 0

    def ahead(self, samples: Sequence[Sample]) -> DrawnAhead:
        """Draw as the renderer does, by the clock."""
        began = time.perf_counter()
        images = self.renderer.render(samples)
        self.seconds += time.perf_counter() - began
        self.images += len(images)
        self.drawn += [
            (sample, image)
            for sample, image in zip(samples, images, strict=True)
            if image is not None
        ]
        return lambda: images


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add how much is drawn, and the intervals."""
    parser.add_argument("--candidates", type=int, default=20, help="images of each class and shift")
    parser.add_argument("--intervals", nargs="+", default=list(INTERVALS), metavar="FROM,TO")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="change the recipe"
    )


def measure(options: argparse.Namespace) -> Iterator[Page]:
    """Draw by each interval in turn, and compare with guidance at every step."""
    changes = [f"samples.candidates={options.candidates}", "screen.judge=null", *options.set]
    with one_thread():
        ways = drawn_ways(changes, [None, *options.intervals])
        lines = interval_table(ways)
    generator = ways[0].plan.recipe.drawing
    opening = [
        f"`python scripts/bench.py guidance --candidates {options.candidates}`, in one run:"
        " `wardrobe-mini`,"
        f" {ways[0].candidates:,} samples in {generator.steps} steps at guidance"
        f" {generator.guidance:g}, from the"
        " same noise each time.",
        "UNet passes are those of one image. Seen by the lab's oracle, over all candidates;"
        " accepted by the screen."
        " In brackets Wilson's 95 % intervals.",
    ]
    yield Page(opening, {"intervals": lines})


def drawn_ways(changes: Sequence[str], intervals: Sequence[str | None]) -> list[Way]:
    """Return what came of all shards of the changed recipe's plan, by each interval in turn; None
    is no interval."""
    recipe = _recipe(changes, None)
    with tempfile.TemporaryDirectory() as folder:
        inputs: Inputs = resolve_inputs(recipe, Path(folder), "cpu", LocalEngine(1))
    tokens = inputs.tokens
    pipeline: Any = load_pipeline(
        recipe.drawing.model,
        dtype="float32",
        tokens=None if tokens is None else tokens.by_placeholder(),
    )
    clip = load_clip(recipe.screen.clip)
    ways = [
        Way(interval, plan, Renderer(pipeline, plan.recipe))
        for interval in intervals
        for plan in [
            make_plan(_recipe(changes, interval), None if tokens is None else tokens.placeholders)
        ]
    ]
    passes = 0

    def count(module: Any, arguments: tuple[Any, ...], output: Any) -> None:
        nonlocal passes
        passes += len(arguments[0])

    pipeline.unet.register_forward_hook(count)
    for index in range(len(ways[0].plan.shards)):
        for way in ways:
            renderer: Any = way
            before = passes
            with contextlib.closing(
                ShardMaker(way.plan, renderer, Scorer(clip, way.plan), inputs.thresholds)
            ) as maker:
                made = [
                    outcome
                    for outcome in maker.make([way.plan.shards[index]])
                    if isinstance(outcome, Made)
                ]
            rows = [row for outcome in made for row in outcome.candidates]
            way.passes += passes - before
            way.accepted += sum(row.reason == ACCEPTED for row in rows)
            way.candidates += len(rows)
        print(f"shard {index + 1} of {len(ways[0].plan.shards)}", flush=True)
    return ways


def _recipe(changes: Sequence[str], interval: str | None) -> Recipe:
    guided = [] if interval is None else [f"generator.guidance_interval=[{interval}]"]
    return load_recipe("wardrobe-mini", [*changes, *guided])


def interval_table(ways: Sequence[Way]) -> list[str]:
    """Return a line for each way; the first is what the others are compared with."""
    oracle = Oracle()
    plain = ways[0]
    rows = []
    for way in ways:
        answers = oracle.answers(np.stack([image for _, image in way.drawn]))
        labels = np.array([sample.label for sample, _ in way.drawn])
        names = np.array([sample.shift for sample, _ in way.drawn])
        shifted = [name for name in dict.fromkeys(names.tolist()) if name != "base"]
        seen = np.concatenate([shows(answers, name)[names == name] for name in shifted])
        rate = way.images / way.seconds
        rows.append(
            [
                "every step" if way.interval is None else f"[{way.interval}]".replace(",", ", "),
                f"{rate:.2f}",
                f"{rate / (plain.images / plain.seconds):.2f}",
                f"{way.passes / way.images:.1f}",
                _share((answers["class"] == labels).sum(), len(labels)),
                _share(seen.sum(), len(seen)),
                _share(way.accepted, way.candidates),
            ]
        )
    titles = [
        "Guidance",
        "Images a second",
        "Against every step",
        "UNet passes",
        "Class seen",
        "Shift seen",
        "Accepted",
    ]
    return table(titles, rows)


def _share(count: int, of: int) -> str:
    low, high = wilson_interval(int(count), of)
    return f"{count / of:.1%} ({low:.1%} to {high:.1%})"
