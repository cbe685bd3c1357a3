"""Part *null*: what is said of a variant whose images tell nothing that those of its controls do
not.

Numbers stand for images. Each class is seen in some contexts that move it towards another class, so
that a head which learned from rows without contexts fails there, and drawn ones come from another
distribution than rows do, as a generator's do. Halves, λ on the discover half, controls at their
own λ and at the variant's, and the words are the package's own. *alike*: all three sets of images
are drawn from one distribution, without a context. *noise*: their labels are dealt anew, so that
they tell nothing at all. *planted*: the images of contexts are of those that fail.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from counterfoil.arrays import Floats32, Ints
from counterfoil.mending.document import HELDOUT, LEVEL
from counterfoil.mending.evaluating import (
    GRID,
    EvaluationRows,
    HeadEvaluation,
    compared_with,
    judge_variant,
    missing_controls,
    right_answers_of,
)
from counterfoil.mending.fitting import KeptHeads, Lesson, fit_head
from counterfoil.mending.one_model import ContextRows, HeadFitting, compared_controls
from counterfoil.mending.variants import CLASS_NAME, CONTEXTS, RANDOM, RETRAINED, Context, Variant
from counterfoil.models.classifiers.head import LinearHead
from mend_proof.plan import RunResults
from proof_files import Facts

CASES = ("alike", "noise", "planted")
RUNS = 200
# What is said, by how it begins, the longest first.
SAID = ("It helps in part", "It helps", "It is not shown to help")
_CLASSES = 4
_WIDTH = 12
_AUDITED = 1200
_TEST = 600
_LEARNED = 120
_TRAIN = 30
_DRAWN = 24
_SHOWN = (0.0, 0.7, 1.0, 1.3)
"""By context of a class, how far it moves a row towards another class; the first is no context at
all."""
_PURPOSE = 31


def measure(run: Any) -> Facts:
    """Count verdicts by case; `some`: a control was beaten at some λ; `retrained`: the retrained
    head was."""
    return {case: counted(case, range(run.seed * RUNS, (run.seed + 1) * RUNS)) for case in CASES}


def counted(case: str, seeds: Sequence[int]) -> dict[str, int]:
    """Count verdicts with controls, and as `alone` beside the retrained head; and what was
    beaten."""
    counts: Counter[str] = Counter({"runs": 0, "some": 0, "retrained": 0})
    for seed in seeds:
        outcome = said(case, seed)
        counts.update({"runs": 1, outcome["with controls"]: 1, f"alone: {outcome['alone']}": 1})
        counts.update({what: int(outcome[what]) for what in ("some", "retrained")})
    return dict(counts)


def said(case: str, seed: int) -> Facts:
    """Return the verdicts of one run."""
    rng = np.random.default_rng([_PURPOSE, CASES.index(case), seed])
    contexts = tuple(
        Context(f"{label}-{index}", label, f"{label}-{index}", "")
        for label in range(_CLASSES)
        for index in range(1, len(_SHOWN))
    )
    features, labels, _ = _rows(rng, _LEARNED * _CLASSES, False)
    head = fit_head(_nothing(), Lesson(features, labels), None, 0.0).head
    first = _first_of_each(labels, _TRAIN)
    train = Lesson(features[first], labels[first])
    evaluation = _evaluation(rng, head, contexts)
    lessons = {CONTEXTS: _drawn(rng, case, case == "planted")} | {
        what: _drawn(rng, case, False) for what in (CLASS_NAME, RANDOM)
    }
    variants = [Variant(RETRAINED, "retrained"), Variant(CONTEXTS, "mended")]
    variants += [Variant(what, "control", of=CONTEXTS, what=what) for what in (CLASS_NAME, RANDOM)]
    rows = np.zeros(len(train), np.int64)
    places = list(range(len(contexts)))
    with tempfile.TemporaryDirectory() as folder:
        fitting = HeadFitting(train, rows, KeptHeads(Path(folder), head, "lbfgs"), GRID, evaluation)
        fitted = {
            variant.name: fitting.fit(variant, lessons.get(variant.name), places)
            for variant in variants
        }
    variant = fitted[CONTEXTS]
    if variant.result.lam == 0:
        return {"with controls": "λ = 0", "alone": "λ = 0", "some": False, "retrained": False}
    outcome: Facts = {}
    for beside_what, kinds in (
        ("with controls", (RETRAINED, CLASS_NAME, RANDOM)),
        ("alone", (RETRAINED,)),
    ):
        beside = {what: fitted[what] for what in kinds}
        comparisons = compared_with(
            variant.chosen, compared_controls(variant, beside, GRID), evaluation
        )
        missing = "" if len(kinds) > 1 else missing_controls(variant.variant, ())
        words = judge_variant(comparisons, variant.result, has_test=True, missing=missing)[1]
        outcome[beside_what] = next(begins for begins in SAID if words.startswith(begins))
        if beside_what == "with controls":
            beaten = [
                comparison.against
                for comparison in comparisons
                if comparison.set == HELDOUT
                and comparison.lam != 0
                and comparison.difference > 0
                and (comparison.low or 0) > 0
                and comparison.p <= LEVEL
            ]
            outcome |= {"some": bool(beaten), "retrained": RETRAINED in beaten}
    return outcome


def _first_of_each(labels: Ints, count: int) -> Ints:
    """Return the first rows of each class."""
    return np.concatenate([np.flatnonzero(labels == label)[:count] for label in range(_CLASSES)])


def _nothing() -> LinearHead:
    return LinearHead(np.zeros((_CLASSES, _WIDTH), np.float32), np.zeros(_CLASSES, np.float32))


def _rows(rng: np.random.Generator, count: int, in_contexts: bool) -> tuple[Floats32, Ints, Ints]:
    """Return features, labels, and which context each row shows (0: no context)."""
    labels = rng.integers(0, _CLASSES, count)
    shown = rng.integers(0, len(_SHOWN), count) if in_contexts else np.zeros(count, np.int64)
    features = rng.normal(0, 0.6, (count, _WIDTH))
    features[np.arange(count), labels] += 1.6
    features[np.arange(count), (labels + 1) % _CLASSES] += np.asarray(_SHOWN)[shown]
    features[np.arange(count), _CLASSES + shown] += shown > 0
    return features.astype(np.float32), labels.astype(np.int64), shown.astype(np.int64)


def _drawn(rng: np.random.Generator, case: str, in_contexts: bool) -> Lesson:
    """Return as many rows of each class, moved as a generator moves all that it draws."""
    features, labels, _ = _rows(rng, 40 * _DRAWN * _CLASSES, in_contexts)
    rows = _first_of_each(labels, _DRAWN)
    targets = labels[rows]
    return Lesson(
        features[rows] + np.float32(0.3), rng.permutation(targets) if case == "noise" else targets
    )


def _evaluation(
    rng: np.random.Generator, head: LinearHead, contexts: tuple[Context, ...]
) -> HeadEvaluation:
    """Return audited rows, two a unit, CLIP's view of their contexts, and a test."""
    features, labels, shown = _rows(rng, _AUDITED, True)
    units = np.arange(_AUDITED) // 2
    halves = rng.permutation(_AUDITED // 2)
    discover = np.flatnonzero(np.isin(units, halves[: len(halves) // 2]))
    confirm = np.flatnonzero(np.isin(units, halves[len(halves) // 2 :]))
    seen = rng.random((_AUDITED, len(contexts) + _CLASSES)) * 0.5
    context = np.where(shown > 0, labels * (len(_SHOWN) - 1) + shown - 1, len(contexts) + labels)
    seen[np.arange(_AUDITED), context] += 1
    vectors = np.eye(len(contexts) + _CLASSES, dtype=np.float32)
    dealt = ContextRows(
        contexts, seen, labels, vectors, {label: len(contexts) + label for label in range(_CLASSES)}
    )
    test, test_labels, _ = _rows(rng, _TEST, True)
    audited = EvaluationRows(features, labels, units)
    tested = EvaluationRows(test, test_labels, np.arange(_TEST))
    allowed = np.eye(_CLASSES, dtype=bool)
    before = right_answers_of(head, audited, tested, allowed)
    return HeadEvaluation(
        audited=audited,
        discover=discover,
        confirm=confirm,
        failed=~before[:_AUDITED],
        untouched=np.ones(len(labels), dtype=bool),
        context=dealt.among(range(len(contexts))),
        among=dealt.among,
        contexts=contexts,
        class_ids=[str(label) for label in range(_CLASSES)],
        test=tested,
        allowed=allowed,
        before=before,
        seed=0,
    )


def table(results: RunResults) -> list[str]:
    """Return Markdown: a line a case."""
    lines = [
        "Simulated features in place of images. *alike*: contexts and both controls are of one"
        " distribution. *noise*:"
        " labels of drawn images are dealt anew. *planted*: images of contexts are of those that"
        " fail. *some control"
        " beaten*: by the rule of before, *it helps* or *it helps in part* was said of these all."
        " *retrained beaten*:"
        " that head is; of an arm without a control of as many images, *it helps* was said of"
        " these, and is of none.",
        "",
        "| images | runs | λ = 0 | not shown | helps in part | helps | some control beaten |"
        " retrained beaten |",
        "| -- | --: | --: | --: | --: | --: | --: | --: |",
    ]
    for case in CASES:
        counts: Counter[str] = Counter()
        for runs in results.values():
            for run in runs:
                counts.update(run[case])
        said_of = ("λ = 0", SAID[2], SAID[0], SAID[1], "some", "retrained")
        cells = [str(counts[words]) for words in ("runs", *said_of)]
        lines.append(f"| {case} | {' | '.join(cells)} |")
    return lines
