"""Average precision of boxes in 200 bootstrap resamples of the images: beside pycocotools and
faster-coco-eval.

Both peers score a set of images and have no bootstrap. The plain way scores each resample as a set
of its own, in which an image that is drawn twice stands twice. The quicker way keeps the matches of
each image and accumulates those of the drawn ones; it goes around the packages' interface. Ours
keeps matches and accumulates all resamples together. All take the same draws.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from counterfoil.detection_stats import (
    Detections,
    Objects,
    average_precision,
    match_detections,
)
from counterfoil.stats import bootstrap_weights
from detection_proof.sets import coco_rows, coco_set
from peers_bench.pair import Pair, within

NEEDS = ("pycocotools", "faster-coco-eval")
IMAGES = 30
CATEGORIES = 5
RESAMPLES = 200
TOLERANCE = 1e-9
# Of a way that takes longest, and of the others.
FEWEST_ROUNDS = 3
MOST_ROUNDS = 5
# Boxes in COCO's form, and those of each image.
Boxes = Sequence[dict[str, Any]]
Rows = Sequence[list[dict[str, Any]]]


def pairs(present: Sequence[str]) -> Iterator[Pair]:
    """Yield both ways of each package."""
    objects, detections = made_set()
    weights = bootstrap_weights(IMAGES, RESAMPLES, np.random.default_rng(1)).astype(np.int32)

    def ours() -> np.ndarray:
        matches = match_detections(objects, detections, IMAGES, CATEGORIES)
        whole = average_precision(matches).measure("AP")
        return np.append(average_precision(matches, weights).measure("AP"), whole)

    true = coco_rows(objects.image, objects.box, objects.category)
    detected = coco_rows(detections.image, detections.box, detections.category, detections.score)
    drawn = [np.repeat(np.arange(IMAGES), row) for row in weights]
    every = [*drawn, np.arange(IMAGES)]
    size = f"AP of {IMAGES} images and of {RESAMPLES} resamples ({len(detected):,} boxes)"
    for package in NEEDS:
        if package not in present:
            continue
        for way, scores, rounds in (
            ("each resample as a set", recomputed, FEWEST_ROUNDS),
            ("matches kept, each accumulated", accumulated, MOST_ROUNDS),
        ):
            yield Pair(
                what=size,
                peer=package,
                way=way,
                ours=ours,
                peers=partial(quietly, scores, package, true, detected, every),
                agreement=within(f"all {len(every)} APs", TOLERANCE),
                most_rounds=rounds,
            )


def quietly(scores: Callable[..., list[float]], *arguments: Any) -> list[float]:
    """Score without what the packages print."""
    with contextlib.redirect_stdout(io.StringIO()):
        return scores(*arguments)


def made_set() -> tuple[Objects, Detections]:
    """Make boxes, and detections near most of them and elsewhere."""
    rng = np.random.default_rng(0)
    image = np.repeat(np.arange(IMAGES), rng.poisson(6, IMAGES))
    side = np.exp(rng.normal(np.log(70), 0.8, (len(image), 2)))
    box = np.concatenate([rng.uniform(0, 500, (len(image), 2)), side], axis=1)
    category = rng.integers(CATEGORIES, size=len(image))
    seen = np.flatnonzero(rng.random(len(image)) < 0.8)
    near = box[seen] + rng.normal(0, 0.08, (len(seen), 4)) * side[seen].mean(axis=1)[:, None]
    near[:, 2:] = np.maximum(near[:, 2:], 1)
    elsewhere = np.repeat(np.arange(IMAGES), 4)
    far = np.concatenate(
        [rng.uniform(0, 500, (len(elsewhere), 2)), rng.uniform(5, 200, (len(elsewhere), 2))], axis=1
    )
    detections = Detections.of(
        np.concatenate([image[seen], elsewhere]),
        np.concatenate([near, far]),
        np.concatenate([category[seen], rng.integers(CATEGORIES, size=len(elsewhere))]),
        np.concatenate([rng.beta(4, 2, len(seen)), rng.beta(2, 4, len(elsewhere))]),
    )
    return Objects.of(image, box, category), detections


def package_parts(package: str) -> tuple[Any, Callable[..., Any]]:
    """Return the package's class of sets, and what makes an evaluation that keeps matches."""
    if package == "pycocotools":
        from pycocotools.coco import COCO
        from pycocotools.cocoeval import COCOeval

        return COCO, COCOeval
    from faster_coco_eval import COCO, COCOeval_faster  # pyrefly: ignore

    def evaluation(truth: Any, detected: Any, kind: str) -> Any:
        return COCOeval_faster(truth, detected, kind, print_function=print, separate_eval=True)

    return COCO, evaluation


def by_image(rows: Boxes) -> Rows:
    images: list[list[dict[str, Any]]] = [[] for _ in range(IMAGES)]
    for row in rows:
        images[row["image_id"]].append(row)
    return images


def coco_of(make: Any, rows: Rows, drawn: Sequence[int]) -> Any:
    """Return the set of the drawn images, each under an id of its own."""
    listed = []
    for number, image in enumerate(drawn):
        listed += [row | {"image_id": number} for row in rows[image]]
    return coco_set(make, listed, len(drawn), CATEGORIES)


def matched(package: str, true: Rows, detected: Rows, drawn: Sequence[int]) -> Any:
    """Return a set of drawn images whose boxes are matched."""
    make, evaluation = package_parts(package)
    truth = coco_of(make, true, drawn)
    judge = evaluation(truth, coco_of(make, detected, drawn), "bbox")
    judge.evaluate()
    return judge


def recomputed(
    package: str,
    true: Boxes,
    detected: Boxes,
    every: Sequence[np.ndarray],
) -> list[float]:
    """Return the AP of each resample, scored as a set of its own."""
    of_truth = by_image(true)
    of_model = by_image(detected)
    scores = []
    for drawn in every:
        judge = matched(package, of_truth, of_model, drawn.tolist())
        judge.accumulate()
        scores.append(ap_of(judge))
    return scores


def accumulated(
    package: str,
    true: Boxes,
    detected: Boxes,
    every: Sequence[np.ndarray],
) -> list[float]:
    """Return the AP of each resample, accumulated from matches that are made once."""
    judge = matched(package, by_image(true), by_image(detected), range(IMAGES))
    name = "evalImgs" if package == "pycocotools" else "_evalImgs_cpp"
    kept = list(getattr(judge, name))
    scores = []
    for drawn in every:
        picked = []
        for start in range(0, len(kept), IMAGES):
            picked += [kept[start + image] for image in drawn.tolist()]
        setattr(judge, name, picked)
        judge.accumulate()
        scores.append(ap_of(judge))
    return scores


def ap_of(judge: Any) -> float:
    """Return AP over categories, thresholds and recalls, for all areas and 100 detections."""
    precision = np.asarray(judge.eval["precision"])[:, :, :, 0, -1]
    return float(precision[precision > -1].mean())
