"""Prove what a screen is worth, where the truth is known: the rules' wrong decisions, and the drops
of what they keep.

    python scripts/prove_screen.py --write       # the tables, into RESULTS.md

Draws `wardrobe-mini` as it ships on two seeds and keeps every candidate. The oracle says of each
whether class and shift are there. Each rule gives every candidate a number; its limits are chosen
on one seed, where it keeps the same share of each shift as all others, and judged on the other.
Drops of what is kept are compared with those of true renders of held-out garments. One of the eight
classifiers is a judge, so the other seven are scored. Builds and answers stay under --work; a
killed proof goes on. Takes about half an hour of one core.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray
from PIL import Image

import proving
from counterfoil.arrays import Bools, Floats, Ints
from counterfoil.building.build_dataset import build
from counterfoil.lab.vocabulary import CLASSES
from counterfoil.models.captioners import load_captioner
from counterfoil.models.classifiers import load_classifier
from counterfoil.models.detectors import load_detector
from counterfoil.recipe import load_recipe
from counterfoil.recipe.keep.visible import CONTRAST, visibility
from counterfoil.stats import lang_reiczigel_interval, rogan_gladen, wilson_interval
from counterfoil.store.reading import read_rows
from interface_proof.looks import SHIFT_NAMES, dataset_images, guesses, shows
from lab_training.class_tokens import heldout_images
from lab_training.oracle import Oracle
from proof_files import saved
from results_page import table

RECIPE = "wardrobe-mini"
JUDGE = "lab:resnet14t"
CHOSEN = 301  # the seed that limits are chosen on
PRINTED = 302
CANDIDATES = 20
TRUE_UNITS = 100
KEPT = 0.6
LEAST_IMAGES = 5  # of a class, for its drop; as evaluations have it
REPLICATES = 400
OBJECT, CLIP_SHIFT, VISIBLE = "CLIP, object", "CLIP, shift", "contrast (`visible`)"
CLASSIFIER, DETECTOR, CAPTIONER = "classifier", "detector", "captioner"
Pixels = NDArray[np.uint8]
Arrays = dict[str, np.ndarray]
PAIRS = (
    (OBJECT, CLIP_SHIFT),
    (OBJECT, CLASSIFIER),
    (OBJECT, DETECTOR),
    (OBJECT, CAPTIONER),
    (CLASSIFIER, DETECTOR),
    (CLASSIFIER, CAPTIONER),
)


@dataclass(frozen=True)
class Seen:
    """What is known of images. Arrays over (shift, class, unit), `right` also over classifiers.

    kept: by the screen as it ships. read: the class that the oracle reads. shift: whether it sees
    the shift. scores: a rule's numbers by its name, the more the better; NaN where it has none.
    """

    pixels: Pixels
    kept: Bools
    read: Ints
    shift: Bools
    right: Bools
    scores: Arrays

    @property
    def object(self) -> Bools:
        return self.read == np.arange(len(CLASSES))[:, None]

    @property
    def good(self) -> Bools:
        return self.object & self.shift

    def units(self, which: slice) -> Seen:
        """Return these units of each class."""
        return Seen(
            pixels=self.pixels[:, :, which],
            kept=self.kept[:, :, which],
            read=self.read[:, :, which],
            shift=self.shift[:, :, which],
            right=self.right[:, :, which],
            scores={name: values[:, :, which] for name, values in self.scores.items()},
        )


class Proof:
    """What is drawn and seen, in one folder."""

    def __init__(self, work: Path) -> None:
        self.work = work
        recipe = load_recipe(RECIPE)
        self.shifts = tuple(shift.name for shift in recipe.all_shifts())
        self.scored = [name for name in recipe.evaluate.models if name != JUDGE]

    @cached_property
    def truth(self) -> Seen:
        return self._seen("truth", lambda: self._looked_at(*self._true_pixels()))

    def drawn(self, seed: int) -> Seen:
        name = f"drawn-{CANDIDATES}-seed-{seed}"
        folder = self.work / name

        def look() -> Arrays:
            changes = [f"samples.candidates={CANDIDATES}", f"samples.seed={seed}"]
            recipe = load_recipe(RECIPE, changes)
            build(recipe, folder, workers=1)
            pixels, kept = self._drawn_pixels(folder)
            seen = self._looked_at(pixels, kept)
            scores = {**self._clip_scores(folder, kept.shape), **_answers(pixels)}
            return seen | {f"score {name}": values for name, values in scores.items()}

        return self._seen(name, look)

    def _seen(
        self,
        name: str,
        look: Callable[[], Arrays],
    ) -> Seen:
        path = self.work / f"{name}.npz"
        if not path.exists():
            arrays: dict[str, Any] = look()
            saved(path, lambda to: np.savez_compressed(to, **arrays))
        with np.load(path) as file:
            arrays = {key: file[key] for key in file.files}
        scores = {key[6:]: arrays.pop(key) for key in list(arrays) if key.startswith("score ")}
        return Seen(**arrays, scores=scores)

    def _true_pixels(self) -> tuple[Pixels, Bools]:
        images = heldout_images(TRUE_UNITS)
        cells = []
        for shift in self.shifts:
            number = SHIFT_NAMES.index(shift)
            for label in range(len(CLASSES)):
                of_cell = [image for _, _, image in images(number, label)]
                cells.append(of_cell)
        pixels = np.array(cells).reshape(len(self.shifts), len(CLASSES), TRUE_UNITS, 64, 64, 3)
        return pixels, np.ones(pixels.shape[:3], bool)

    def _drawn_pixels(self, folder: Path) -> tuple[Pixels, Bools]:
        units, images = dataset_images(folder)
        pixels = np.zeros((len(self.shifts), len(CLASSES), units, 64, 64, 3), np.uint8)
        kept = np.zeros(pixels.shape[:3], bool)
        for s, shift in enumerate(self.shifts):
            for label in range(len(CLASSES)):
                for unit, accepted, image in images(SHIFT_NAMES.index(shift), label):
                    pixels[s, label, unit] = image
                    kept[s, label, unit] = accepted
        return pixels, kept

    def _looked_at(
        self,
        pixels: Pixels,
        kept: Bools,
    ) -> Arrays:
        """Return the arrays of `Seen` without rules' numbers."""
        cells = kept.shape
        judge = Oracle()
        oracle = [judge.answers(_flat(part)) for part in pixels]
        shift_there = [
            shows(answers, name) for answers, name in zip(oracle, self.shifts, strict=True)
        ]
        label = np.arange(len(CLASSES))[:, None]
        labels_of = [
            guesses(load_classifier(name), _flat(pixels)).reshape(cells) for name in self.scored
        ]
        return {
            "pixels": pixels,
            "kept": kept,
            "read": np.array([answers["class"] for answers in oracle]).reshape(cells),
            "shift": np.array(shift_there).reshape(cells),
            "right": np.stack(labels_of, axis=-1) == label[..., None],
        }

    def _clip_scores(
        self,
        folder: Path,
        cells: tuple[int, ...],
    ) -> Arrays:
        scores = {name: np.full(cells, np.nan) for name in (OBJECT, CLIP_SHIFT)}
        columns = ["label", "shift", "index", "object_score", "object_threshold", "shift_score"]
        for what in ("data", "rejected"):
            for row in read_rows(folder, columns=columns, what=what):
                at = self.shifts.index(row["shift"]), row["label"], row["index"]
                # Each class has its own threshold, so one limit is one percentile of them all.
                scores[OBJECT][at] = row["object_score"] - row["object_threshold"]
                if row["shift_score"] is not None:
                    scores[CLIP_SHIFT][at] = row["shift_score"]
        return scores


def _flat(pixels: Pixels) -> Pixels:
    return pixels.reshape(-1, *pixels.shape[-3:])


def _answers(pixels: Pixels) -> Arrays:
    """Return what models other than CLIP say of each image's class, and its contrast."""
    import torch

    cells = pixels.shape[:3]
    labels = np.broadcast_to(np.arange(len(CLASSES))[:, None], cells).ravel()
    images = [Image.fromarray(image) for image in _flat(pixels)]
    judge = load_classifier(JUDGE)
    transform = judge.transform()
    batch = torch.stack([transform(image) for image in images])
    believed = judge.logits(batch, "cpu").softmax(1).numpy()
    detector = load_detector("lab:rtdetr_boxes")
    captioner = load_captioner("lab:captioner")
    captions = [f"a photo of a {name}" for name in CLASSES]
    boxes = np.zeros(len(images))
    likelihoods = np.zeros(len(images))
    for n, (image, label) in enumerate(zip(images, labels, strict=True)):
        detections = detector([image])[0]
        of_class = detections["scores"][
            detections["labels"] == detector.label_names.index(CLASSES[label])
        ]
        boxes[n] = max(of_class.tolist(), default=0.0)
        likely, _ = captioner.log_likelihoods(image, captions)
        likelihoods[n] = likely[label] - np.logaddexp.reduce(likely)
    contrast = [visibility(image)[CONTRAST] for image in _flat(pixels)]
    scores = {
        VISIBLE: np.array(contrast),
        CLASSIFIER: believed[np.arange(len(images)), labels],
        DETECTOR: boxes,
        CAPTIONER: likelihoods,
    }
    return {name: values.reshape(cells) for name, values in scores.items()}


# ---- Rules at equal yield


def ranks(values: Floats, reference: Floats) -> Floats:
    """Return the share of the reference's images of the same shift that score lower; 1 where a rule
    has no number."""
    shares = np.ones(values.shape)
    for s, of_shift in enumerate(reference):
        known = np.sort(of_shift[np.isfinite(of_shift)])
        if known.size:
            shares[s] = np.searchsorted(known, values[s]) / known.size
    return shares


def cut(
    rules: tuple[str, ...],
    chosen: Seen,
    seen: Seen,
) -> Bools:
    """Return which images all these rules keep, with limits that keep the share KEPT of each shift
    of the chosen seed; each rule's limit is at the same percentile."""
    worst = []
    for of_seed in (chosen, seen):
        by_rule = []
        for rule in rules:
            ranked = ranks(of_seed.scores[rule], chosen.scores[rule])
            by_rule.append(ranked)
        worst.append(np.min(by_rule, axis=0))
    of_chosen, of_seen = worst
    flat = of_chosen.reshape(len(of_chosen), -1)
    limits = np.quantile(flat, 1 - KEPT, axis=1)
    return of_seen >= limits[:, None, None]


# ---- Drops


def _weights(units: int, seed: int) -> np.ndarray:
    """Return how often each unit of a class is drawn, first as it is: (1 + replicate, class,
    unit)."""
    rng = np.random.default_rng(seed)
    shape = (REPLICATES, len(CLASSES))
    drawn = rng.multinomial(units, np.full(units, 1 / units), shape)
    return np.concatenate([np.ones((1, len(CLASSES), units)), drawn])


def accuracies(
    right: Bools,
    kept: Bools,
    weights: Floats,
) -> Floats:
    """Return accuracies in % (1 + replicate, shift, class, classifier), NaN without an image."""
    counted = np.einsum("wcu,scu->wsc", weights, kept)
    hits = np.einsum("wcu,scum->wscm", weights, kept[..., None] & right, optimize=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        return 100 * hits / counted[..., None]


def drops(accuracy: Floats, classes: Bools) -> Floats:
    """Return drops (1 + replicate, shift - 1, classifier), averaged over each shift's classes."""
    lost = accuracy[:, :1] - accuracy[:, 1:]
    return np.nanmean(np.where(classes[None, ..., None], lost, np.nan), axis=2)


def drop_errors(
    seen: Seen,
    kept: Bools,
    truth: Seen,
) -> Floats:
    """Return drops less the true ones, of the same classes (1 + replicate, shift - 1,
    classifier)."""
    enough = kept.sum(2) >= LEAST_IMAGES
    classes = enough[1:] & enough[:1]
    everything = np.ones(truth.right.shape[:3], bool)
    drawn = accuracies(seen.right, kept, _weights(kept.shape[2], 1))
    true = accuracies(truth.right, everything, _weights(truth.right.shape[2], 2))
    return drops(drawn, classes) - drops(true, classes)


def _accuracy(right: Bools, where: Bools) -> Floats:
    """Return accuracy in % by shift, averaged over classes and classifiers."""
    weights = np.ones((1, *where.shape[1:]))
    return np.nanmean(accuracies(right, where, weights)[0], axis=(1, 2))


def _range(values: Floats) -> str:
    low, high = np.quantile(values[1:], [0.025, 0.975])
    return f"{values[0]:.1f} ({low:.1f} to {high:.1f})"


def _share(part: int, whole: int) -> str:
    low, high = wilson_interval(part, whole)
    return f"{100 * part / whole:.1f} ({100 * low:.1f} to {100 * high:.1f})"


def false_labels(
    seen: Seen,
    kept: Bools,
    truth: Seen,
) -> str:
    """Return the share of kept images with a false class in %, corrected for the oracle's errors on
    true renders."""
    disagrees = (int((kept & ~seen.object).sum()), int(kept.sum()))
    wrong = (int((~truth.object).sum()), truth.object.size)
    # An image of another class, each as likely, passes if the oracle happens to read this one.
    passes = wrong[0] / (len(CLASSES) - 1)
    detected = (round(wrong[1] - passes), wrong[1])
    value = rogan_gladen(*(part / whole for part, whole in (disagrees, wrong, detected)))
    low, high = lang_reiczigel_interval(disagrees, wrong, detected)
    return f"{100 * value:.1f} ({100 * low:.1f} to {100 * high:.1f})"


def _drops_of(
    proof: Proof,
    seen: Seen,
    kept: Bools,
    truth: Seen,
    without: Floats | None,
) -> list[str]:
    """Return base accuracy, error of the drops, how much more that is than without a screen, and
    the error at night."""
    error = drop_errors(seen, kept, truth)
    mean = np.abs(error).mean((1, 2))
    return [
        f"{_accuracy(seen.right, kept)[0]:.1f}",
        _range(mean),
        "–" if without is None else _range(mean - without),
        _range(error[:, proof.shifts.index("at_night") - 1].mean(1)),
    ]


def rules_part(proof: Proof) -> list[str]:
    chosen = proof.drawn(CHOSEN)
    seen = proof.drawn(PRINTED)
    truth = proof.truth
    everything = np.ones(seen.kept.shape, bool)
    lowest = ranks(seen.scores[OBJECT], chosen.scores[OBJECT]) < KEPT
    at_random = np.random.default_rng(0).random(seen.kept.shape) < KEPT
    screens: Arrays = {"none": everything, "as shipped": seen.kept}
    screens |= {rule: cut((rule,), chosen, seen) for rule in seen.scores}
    screens |= {" and ".join(pair): cut(pair, chosen, seen) for pair in PAIRS}
    screens |= {"CLIP, object: the lowest": lowest, "at random": at_random, "the oracle": seen.good}
    unscreened = np.abs(drop_errors(seen, everything, truth)).mean((1, 2))
    rows = []
    for name, kept in screens.items():
        false_accepts = int((kept & ~seen.good).sum())
        false_rejects = int((seen.good & ~kept).sum())
        corrected = "–"
        if name != "the oracle":
            corrected = false_labels(seen, kept, truth)
        compared = unscreened
        if name == "none":
            compared = None
        row = [
            name,
            f"{100 * kept.mean():.0f}",
            _share(false_accepts, int(kept.sum())),
            corrected,
            _share(false_rejects, int(seen.good.sum())),
            *_drops_of(proof, seen, kept, truth, compared),
        ]
        rows.append(row)
    # As many true renders, against the others: what an error is by chance alone.
    few = truth.units(slice(CANDIDATES))
    others = truth.units(slice(CANDIDATES, None))
    by_chance = _drops_of(proof, few, np.ones(few.kept.shape, bool), others, None)
    rows.append(["true renders, as many", "100", "–", "–", "–", *by_chance])
    titles = (
        "Screen",
        "Kept, %",
        "False accepts, %",
        "False classes, corrected, %",
        "False rejects, %",
        "Base accuracy, %",
        "Error of the drops, points",
        "More than without",
        "Of night's drop, with sign",
    )
    true_base = 100 * truth.right[0].mean()
    return [
        "### What each rule is worth",
        "",
        f"Seed {PRINTED}, {CANDIDATES} candidates of each class under the base and five"
        f" shifts; limits that keep {100 * KEPT:.0f} % of each shift on seed {CHOSEN}, for a pair"
        " at one percentile of both. *False accepts*: images that are kept and in which the oracle"
        " does not see class and shift. *False rejects*: of the images in which it sees both, those"
        " that are dropped. *Corrected*: by Rogan and Gladen, with the oracle's errors on true"
        f" renders: it reads another class than the true one in"
        f" {_share(int((~truth.object).sum()), truth.object.size)} % and misses the shift in"
        f" {_share(int((~truth.shift).sum()), truth.shift.size)} %. That alone makes"
        " so many false accepts. A rule that keeps images which the oracle reads easily has fewer,"
        " and its corrected share is too low, even below 0. *Error of the drops*: absolute, mean of"
        f" five shifts and seven classifiers; resampling adds noise to it. Base accuracy on true renders:"
        f" {true_base:.1f}"
        " %. CLIP's shift score decides nothing about the base. *The oracle*: a screen that keeps"
        " what the oracle agrees with.",
        "",
        *table(titles, rows),
    ]


# ---- The reason


def lit_as(pixels: Pixels, other: Pixels) -> Pixels:
    """Return images of each class (class, unit, 64, 64, 3) with the mean and the deviation of each
    channel of another set's class."""
    over = (1, 2, 3)
    levels = pixels.astype(np.float64)
    scale = other.std(over, keepdims=True) / levels.std(over, keepdims=True)
    lit = (levels - levels.mean(over, keepdims=True)) * scale + other.mean(over, keepdims=True)
    return np.clip(np.rint(lit), 0, 255).astype(np.uint8)


def reason_part(proof: Proof) -> list[str]:
    seen = proof.drawn(PRINTED)
    truth = proof.truth
    views = {
        "true": _accuracy(truth.right, np.ones(truth.kept.shape, bool)),
        "drawn": _accuracy(seen.right, np.ones(seen.kept.shape, bool)),
        "true, oracle agrees": _accuracy(truth.right, truth.good),
        "drawn, oracle agrees": _accuracy(seen.right, seen.good),
    }
    agreement = [100 * of.object.mean((1, 2)) for of in (truth, seen)]
    titles = [
        "Shift",
        *(f"accuracy, {view}" for view in views),
        *(f"drop, {view}" for view in views),
        "oracle agrees, true",
        "drawn",
    ]
    rows = []
    for s, shift in enumerate(proof.shifts):
        drops = ["–"] * len(views)
        if s:
            drops = [f"{accuracy[0] - accuracy[s]:.1f}" for accuracy in views.values()]
        row = [
            f"`{shift}`",
            *(f"{accuracy[s]:.1f}" for accuracy in views.values()),
            *drops,
            *(f"{agrees[s]:.1f}" for agrees in agreement),
        ]
        rows.append(row)
    return [
        "### Why no screen mends the drops",
        "",
        "Accuracy in %, mean of seven classifiers and ten classes, without a screen. A drop is the"
        " base's accuracy less the shift's, so an image of the base that is too easy is in every"
        " drop.",
        "",
        *table(titles, rows),
        "",
        *_light_of_night(proof, seen, truth),
    ]


def _light_of_night(
    proof: Proof,
    seen: Seen,
    truth: Seen,
) -> list[str]:
    night = proof.shifts.index("at_night")
    classifiers = [load_classifier(name) for name in proof.scored]
    label = np.arange(len(CLASSES))[:, None]

    def right(pixels: Pixels) -> float:
        labels_of = [guesses(each, _flat(pixels)).reshape(pixels.shape[:2]) for each in classifiers]
        return 100 * float((np.array(labels_of) == label).mean())

    drawn = seen.pixels[night]
    true = truth.pixels[night]
    sets = {
        "true": true,
        "drawn": drawn,
        "true, in the light of the drawn": lit_as(true, drawn),
        "drawn, in the light of the true": lit_as(drawn, true),
    }
    rows = [[name, *_light(pixels), f"{right(pixels):.1f}"] for name, pixels in sets.items()]
    brightness = drawn.mean((2, 3, 4))
    as_bright = 100 * float((brightness >= np.median(true.mean((2, 3, 4)))).mean())
    bright = np.ones(seen.kept.shape, bool)
    bright[night] = brightness >= np.quantile(brightness, 1 - KEPT, axis=1, keepdims=True)
    brightest = _accuracy(seen.right, bright)[night]
    rows.append(
        [
            f"drawn, the brightest {100 * KEPT:.0f} % of each class",
            *_light(drawn[bright[night]]),
            f"{brightest:.1f}",
        ]
    )
    return [
        "Images at night. *In the light of*: each channel has the mean and the deviation that the"
        " other images of the class have."
        f" {as_bright:.1f} % of the drawn are as bright as the median of the true.",
        "",
        *table(["Night", "mean level of 255", "deviation", "contrast", "accuracy, %"], rows),
    ]


def _light(pixels: Pixels) -> list[str]:
    flat = _flat(pixels)
    contrast = np.mean([visibility(image)[CONTRAST] for image in flat])
    return [f"{flat.mean():.1f}", f"{flat.std((1, 2, 3)).mean():.1f}", f"{contrast:.0f}"]


PARTS: Mapping[str, Callable[[Proof], list[str]]] = {
    "rules": rules_part,
    "reason": reason_part,
}


def main() -> None:
    parser = proving.parser(__doc__, PARTS)
    parser.add_argument("--work", type=Path, default=Path(".train/screen"))
    options = parser.parse_args()
    proof = Proof(options.work)
    of = f"`{RECIPE}` and seven of its classifiers"
    tables = (proving.Table(part, PARTS[part](proof), of) for part in options.parts)
    proving.tell("prove_screen", "What a screen is worth", [], tables, list(PARTS), options.write)


if __name__ == "__main__":
    main()
