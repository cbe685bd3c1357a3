"""Measure what small differences from the papers cost, in the lab: `docs/explanation/papers.md`
quotes the tables.

    python scripts/prove_differences.py --write                     # the tables, into RESULTS.md;
    minutes of one core python scripts/prove_differences.py --parts retrieval failures

Nothing is chosen by these numbers.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# One thread: sums are then the same on every machine of a kind.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

import proving
from bugs_proof.answering import Panel
from bugs_proof.plan import LAB
from counterfoil.generate.nearest_rows import nearest_rows
from counterfoil.generate.tokens import inversion
from counterfoil.generate.tokens.inversion import ClassToLearn, Inversion, TrainingImages
from counterfoil.lab.scenes import wardrobe_scene
from counterfoil.lab.vocabulary import CLASSES, SHIFTS_BY_NAME
from counterfoil.lab.world import render
from counterfoil.mending.mend_models import failure_overlap
from counterfoil.models.arithmetic import one_thread
from counterfoil.models.clip import load_clip
from counterfoil.models.diffusion import load_pipeline
from counterfoil.recipe import LearnSettings, load_recipe
from counterfoil.recipe.prompts import prompt_for
from interface_proof.builds import pool_scenes
from interface_proof.looks import SHIFT_NAMES
from results_page import table

AUDIT_SCENES = 2000
# renders of each class in each context, and rows that each prompt takes
POOL = 20
TAKEN = 4
LEARNED = ("05", "06", "07", "08")
STEPS = 100
SEEDS = (100, 101)
# A processor takes 3 seconds a step and class in float16.
CLASSES_IN_HALF = 2
STEPS_IN_HALF = 8
PHOTOGRAPH = 40  # pixels of a side before it is resized to 64, as ImageNet's 500 are to 768
# Squared errors are averaged over the latents: 1,024 values in the lab, 36,864 in Stable Diffusion
# 2 at 768 pixels.
LATENTS_OF_768 = 36
TITLE = "What small differences from the papers cost"


def main() -> None:
    options = proving.parser(__doc__, PARTS).parse_args()
    tables = (
        proving.Table(name, ["### " + PARTS[name][0], "", *PARTS[name][1]()], "")
        for name in options.parts
    )
    with one_thread():
        proving.tell("prove_differences", TITLE, [], tables, list(PARTS), options.write)


def failures() -> Iterator[str]:
    """Compare the overlap of failures on all audited images with that on one half of them."""
    scenes = [wardrobe_scene("audit", number) for number in range(AUDIT_SCENES)]
    pictures = [render(scene) for scene in scenes]
    failed = _failed(pictures, [scene.label for scene in scenes])
    pairs = np.triu_indices(len(failed), 1)
    rows = []
    for images in (200, 500, AUDIT_SCENES):
        audited = failed[:, :images]
        every = 100 * failure_overlap(audited)[pairs]
        halves = [
            np.random.default_rng(seed).permutation(images)[: images // 2]
            for seed in range(100, 120)
        ]
        apart = np.abs([100 * failure_overlap(audited[:, half])[pairs] - every for half in halves])
        rows.append(
            [f"{images:,}", f"{every.mean():.0f} %", f"{apart.mean():.1f}", f"{apart.max():.1f}"]
        )
    yield (
        f"Intersection over union of failures, of {len(every)} pairs of the lab's {len(failed)}"
        " classifiers on scenes"
        " of the split `audit`; 20 random halves. In points: how far a half's value is from that of"
        " all images."
    )
    yield ""
    yield from table(["images", "overlap, all images", "mean distance of a half", "largest"], rows)


def _failed(pictures: Sequence[NDArray[np.uint8]], labels: Sequence[int]) -> NDArray[np.bool_]:
    """Return (classifiers, n) which pictures each of the lab's classifiers gets wrong."""
    of = np.asarray(labels)
    pixels = np.stack(pictures)
    failed = np.zeros((len(LAB), len(of)), np.bool_)
    panel = Panel(LAB, load_recipe("wardrobe-star"))
    for label in np.unique(of).tolist():
        of_label = of == label
        wrong = panel.failed_pixels(pixels[of_label], label, LAB)
        failed[:, of_label] = [wrong[name] for name in LAB]
    return failed


def retrieval() -> Iterator[str]:
    """Compare rows that are dealt once with the rows nearest to each prompt."""
    scenes = list(pool_scenes(POOL))
    shown = np.array([_shown(scene.attributes()) for _, scene in scenes])
    labels = np.array([scene.label for _, scene in scenes])
    pixels = [render(scene) for _, scene in scenes]
    recipe = load_recipe("wardrobe-star", ["tokens=null"])
    clip = load_clip(recipe.screen.clip, recipe.screen.weights)
    features = clip.embed_images([Image.fromarray(picture) for picture in pixels], 64)
    cells = [(index, label) for index in range(len(SHIFT_NAMES)) for label in range(len(CLASSES))]
    shifts = recipe.all_shifts()
    texts = clip.embed_texts(
        [prompt_for(shifts[index], recipe.classes[label]) or "" for index, label in cells]
    )
    allowed = np.ones(len(scenes), np.bool_)
    of_prompts = nearest_rows(features, texts, [TAKEN] * len(cells), allowed)
    dealt = [near.rows for near in of_prompts]
    plain = list(np.argsort(-(texts @ features.T), axis=1, kind="stable")[:, :TAKEN])
    failed = _failed(pixels, labels.tolist())
    rows = []
    for name, taken in (("never twice", dealt), ("plain nearest", plain)):
        times = np.array(list(Counter(np.concatenate(taken).tolist()).values()))
        failing = np.array([failed[:, of].mean() for of in taken])
        wrong = failing.reshape(len(SHIFT_NAMES), len(CLASSES)).mean(axis=1)
        same, near, right, seen = [], [], [], []
        for (index, label), of, text, nearest in zip(cells, taken, texts, plain, strict=True):
            same.append(len({*of} & {*nearest}))
            near.append(text @ features[of].T)
            right.append(labels[of] == label)
            if index:
                seen.append(shown[of, index])
        row = [
            name,
            _percent(float(np.mean(same)) / TAKEN),
            _percent(times[times > 1].sum() / times.sum()),
            f"{np.mean(near):.4f}",
            *(_percent(float(np.mean(of_rows))) for of_rows in (right, seen)),
            _percent(wrong[0]),
            f"{100 * (wrong[1:].mean() - wrong[0]):+.1f}",
        ]
        rows.append(row)
    yield (
        f"{len(cells)} prompts take {TAKEN} rows each of {len(scenes):,} true renders, {POOL} of"
        " each class in each"
        " context, by the lab's CLIP. *shared*: rows that several prompts have. *impact*: mean drop"
        " of the lab's"
        f" {len(failed)} classifiers from the base under the shifts, in points."
    )
    yield ""
    titles = [
        "rows",
        "same as plain nearest",
        "shared",
        "cosine",
        "class right",
        "shift right",
        "base fails",
        "impact",
    ]
    yield from table(titles, rows)


def _shown(attributes: Mapping[str, str]) -> list[bool]:
    """Return of each of `SHIFT_NAMES` whether a scene shows it; every scene shows the base."""
    changes = [SHIFTS_BY_NAME.get(name) for name in SHIFT_NAMES]
    return [change is None or attributes[change.attribute] == change.value for change in changes]


def resizing() -> Iterator[str]:
    """Compare tokens that are learned from images resized by each filter with those of another
    seed."""
    tokens = {}
    for name, filter_ in (
        ("bicubic", Image.Resampling.BICUBIC),
        ("bilinear", Image.Resampling.BILINEAR),
    ):
        for seed in SEEDS if name == "bicubic" else SEEDS[:1]:
            tokens[name, seed] = _learned(Inversion(_pipeline("float32"), _settings(seed)), filter_)
    bicubic = tokens["bicubic", SEEDS[0]]
    rows = [
        ["bilinear in place of bicubic", *_alike(tokens["bilinear", SEEDS[0]], bicubic)],
        ["another seed", *_alike(tokens["bicubic", SEEDS[1]], bicubic)],
    ]
    yield (
        f"Tokens of {len(LEARNED)} classes after {STEPS} steps on renders of the split `train` that"
        f" are {PHOTOGRAPH}"
        " pixels wide and resized to 64. *apart*: how far two tokens are from each other, as a"
        " share of how far they"
        " moved from their start."
    )
    yield ""
    yield from table(["change", "cosine", "apart"], rows)


def float16() -> Iterator[str]:
    """Compare tokens that are learned in each number type with those of float32."""
    settings = _settings(SEEDS[0], STEPS_IN_HALF, CLASSES_IN_HALF)
    reference = _learned(Faint(_pipeline("float32"), settings))
    rows = []
    for dtype, scale in (("bfloat16", 1.0), ("float16", inversion.LOSS_SCALE), ("float16", 1.0)):
        inversion.LOSS_SCALE = scale
        learned = _learned(Faint(_pipeline(dtype), settings))
        scaled = f"{dtype}, loss not scaled" if (dtype, scale) == ("float16", 1.0) else dtype
        rows.append([scaled, *_alike(learned, reference)])
    yield (
        f"Tokens of {CLASSES_IN_HALF} classes after {STEPS_IN_HALF} steps, on the processor. The"
        " loss is divided by"
        f" {LATENTS_OF_768}, as a mean over the latents of 768 pixels divides gradients. Otherwise"
        " as above."
    )
    yield ""
    yield from table(["learned in", "cosine with float32", "apart"], rows)


class Faint(Inversion):
    """Learns with gradients as small as those of large latents. Steps of AdamW do not depend on
    their scale."""

    def _losses(self, *arguments: Any) -> torch.Tensor:  # pyrefly: ignore[bad-override]
        return super()._losses(*arguments) / LATENTS_OF_768


@dataclass(frozen=True)
class Tokens:
    """start, end: (classes, width)."""

    start: torch.Tensor
    end: torch.Tensor


def _learned(learner: Inversion, filter_: Image.Resampling | None = None) -> Tokens:
    """Learn tokens from renders; with a filter, from small ones that are resized by it."""

    def images(label: int) -> TrainingImages:
        def picture(number: int) -> Image.Image:
            image = Image.fromarray(render(wardrobe_scene("train", number * len(CLASSES) + label)))
            if filter_ is None:
                return image
            return image.resize((PHOTOGRAPH, PHOTOGRAPH), Image.Resampling.BOX).resize(
                (64, 64), filter_
            )

        return TrainingImages(100, picture)

    learned = LEARNED[: learner.settings.classes_in_flight]
    group = [
        ClassToLearn(class_id, CLASSES[int(class_id)], images(int(class_id)))
        for class_id in learned
    ]
    start = torch.stack([learner.start(cls.initial_words)[0].reshape(-1).cpu() for cls in group])
    learning = learner.learn(group)
    while True:
        try:
            next(learning)
        except StopIteration as ended:
            return Tokens(
                start, torch.stack([token.vectors[0].reshape(-1) for token in ended.value])
            )


def _alike(tokens: Tokens, reference: Tokens) -> tuple[str, str]:
    cosine = torch.nn.functional.cosine_similarity(tokens.end, reference.end, dim=1)
    moved = (tokens.end - reference.end).norm(dim=1) / (reference.end - reference.start).norm(dim=1)
    return f"{cosine.min():.4f} to {cosine.max():.4f}", _percent(float(moved.mean()))


def _pipeline(dtype: str) -> Any:
    return load_pipeline("lab:sd", dtype=dtype)


def _settings(seed: int, steps: int = STEPS, classes: int = len(LEARNED)) -> LearnSettings:
    settings = {
        "steps": steps,
        "learning_rate": 1e-2,
        "templates": ("a photo of a {class}",),
        "seed": seed,
    }
    return LearnSettings(**settings, classes_in_flight=classes)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


PARTS = {
    "failures": ("Overlap of failures on a half", failures),
    "retrieval": ("Rows that are never taken twice", retrieval),
    "resizing": ("Resizing of training images", resizing),
    "float16": ("Textual inversion in other number types", float16),
}

if __name__ == "__main__":
    main()
