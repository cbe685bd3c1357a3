"""Are the labels true? What a second judge estimates by shift, beside the oracle, each corrected
for its errors.

A judge is a classifier of the input dataset. Its errors are counted on validation scenes as they
are, as a recipe's `screen.judge` counts them. The oracle learned from another, unbiased world; its
errors are counted on true renders of validation scenes under the very shift, so that what is left
is the labels' error, with the oracle's interval.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from counterfoil.dataset.label_checks import JudgedClass, label_error_of_shift
from counterfoil.lab.scenes import wardrobe_scene
from counterfoil.lab.vocabulary import CLASSES, MARKS
from counterfoil.lab.world import render
from interface_proof.looks import SHIFT_NAMES, Looks, Viewer, guesses
from proof_files import Arrays, Facts

if TYPE_CHECKING:
    from counterfoil.report.labels import CheckedShare

# Validation scenes of each class under each shift by which the oracle is corrected.
ORACLE_UNITS = 50
EVERY_LABEL = tuple(range(len(CLASSES)))
KINDS = {
    "marked": [label for label, name in enumerate(CLASSES) if name in MARKS],
    "others": [label for label, name in enumerate(CLASSES) if name not in MARKS],
}


def validation_answers(viewer: Viewer, units: int) -> Arrays:
    """Return answers int [.., class, unit] to true renders: `judges` [model, class, unit] to scenes
    as they are, `oracle` [shift, class, unit] to the first `ORACLE_UNITS` under every shift."""
    judges = np.zeros((len(viewer.classifiers), len(CLASSES), units), int)
    oracle = np.zeros((len(SHIFT_NAMES), len(CLASSES), min(units, ORACLE_UNITS)), int)
    for label in range(len(CLASSES)):
        scenes = [
            wardrobe_scene("validation", unit * len(CLASSES) + label) for unit in range(units)
        ]
        plain = np.stack([render(scene) for scene in scenes])
        for index, classifier in enumerate(viewer.classifiers):
            judges[index, label] = guesses(classifier, plain)
        for index, shift in enumerate(SHIFT_NAMES):
            shifted = np.stack(
                [render(scene.shifted(shift)) for scene in scenes[: oracle.shape[2]]]
            )
            oracle[index, label] = viewer.oracle.answers(shifted)["class"]
    return {"judges": judges, "oracle": oracle}


def label_errors(
    looks: Looks,
    right: NDArray,
    answers: NDArray,
    shift: int,
    labels: Sequence[int] = EVERY_LABEL,
) -> CheckedShare | None:
    """Return the share of false labels among the accepted images of a shift, of these classes.

    right: bool [shift, class, unit], whether the judge answers the label. answers: int [class,
    unit], its answers to validation images.
    """
    classes = []
    for label in labels:
        kept = looks.kept[shift, label]
        wrong = answers[label] != label
        others = np.delete(answers, label, axis=0) != label
        classes.append(
            JudgedClass(
                images=int(kept.sum()),
                disagreed=int((kept & ~right[shift, label]).sum()),
                of_class=wrong.size,
                wrong=int(wrong.sum()),
                others=others.size,
                told_apart=int(others.sum()),
            )
        )
    return label_error_of_shift(classes)


def compare_labels(ways: Mapping[str, Looks], answers: Arrays, judges: Sequence[str]) -> Facts:
    """Return by way and shift what the best judge and the oracle estimate, and how far off every
    judge is."""
    accuracy = [
        float((row == np.arange(len(CLASSES))[:, None]).mean()) for row in answers["judges"]
    ]
    best = int(np.argmax(accuracy))
    report: Facts = {"judge": judges[best], "ways": {}}
    for way, looks in ways.items():
        shifts = range(len(SHIFT_NAMES))
        truth = [
            label_errors(looks, looks.object, answers["oracle"][shift], shift) for shift in shifts
        ]
        estimates = {
            name: [
                label_errors(looks, looks.correct[..., m], answers["judges"][m], shift)
                for shift in shifts
            ]
            for m, name in enumerate(judges)
        }
        report["ways"][way] = {
            "by_shift": {
                name: {
                    "images": int(looks.kept[shift].sum()),
                    "disagreed": int((looks.kept[shift] & ~looks.correct[shift, ..., best]).sum()),
                    "judge": estimates[judges[best]][shift],
                    "oracle_disagreed": int((looks.kept[shift] & ~looks.object[shift]).sum()),
                    "oracle": truth[shift],
                }
                for shift, name in enumerate(SHIFT_NAMES)
            },
            "kinds": {
                kind: {
                    "base": _kind(looks, answers, best, [0], labels),
                    "shifts": _kind(looks, answers, best, list(shifts)[1:], labels),
                }
                for kind, labels in KINDS.items()
            },
            "judges": {
                name: {"accuracy": accuracy[m], **_off(estimates[name], truth)}
                for m, name in enumerate(judges)
            },
        }
    return report


def _kind(
    looks: Looks,
    answers: Arrays,
    judge: int,
    shifts: Sequence[int],
    labels: Sequence[int],
) -> tuple[float | None, float | None]:
    """Return what a judge and the oracle estimate of some classes, averaged over shifts; None if
    neither can."""

    def mean(right: NDArray, of_shift: Callable[[int], NDArray]) -> float | None:
        errors = [label_errors(looks, right, of_shift(shift), shift, labels) for shift in shifts]
        values = [share.value for share in errors if share is not None]
        return float(np.mean(values)) if values else None

    judged = mean(looks.correct[..., judge], lambda _: answers["judges"][judge])
    return judged, mean(looks.object, lambda shift: answers["oracle"][shift])


def _off(
    estimates: Sequence[CheckedShare | None], truth: Sequence[CheckedShare | None]
) -> dict[str, float | None]:
    """Return how far a judge's estimates are from the oracle's: on the base, over shifts, and in
    their order."""
    both = [
        (estimate.value, true.value)
        for estimate, true in zip(estimates[1:], truth[1:], strict=True)
        if estimate and true
    ]
    base = estimates[0].value - truth[0].value if estimates[0] and truth[0] else None
    if len(both) < 3:
        return {"base": base, "shifts": None, "absolute": None, "rank": None}
    differences = np.array([estimate - true for estimate, true in both])
    ranked: Any = spearmanr([estimate for estimate, _ in both], [true for _, true in both])
    return {
        "base": base,
        "shifts": float(differences.mean()),
        "absolute": float(np.abs(differences).mean()),
        "rank": float(ranked.statistic),
    }


def label_tables(report: Facts) -> list[str]:
    """Return the part as Markdown."""
    lines = [
        "### Are the labels still true?",
        "",
        f"Share of accepted images whose label is false, %, as `{report['judge']}` estimates it: of"
        " the eight the best",
        "on validation images, corrected by its errors there; and as the oracle does, corrected by"
        " its errors on true",
        f"renders under the same shift ({ORACLE_UNITS} a class). In brackets: 95 %.",
        "",
    ]
    for way, figures in report["ways"].items():
        lines += [
            f"By {way}:",
            "",
            "| shift | images | judge disagrees | judge's estimate | oracle disagrees | oracle's"
            " estimate |",
            "|:--|--:|--:|--:|--:|--:|",
        ]
        for shift, row in figures["by_shift"].items():
            shares = [
                100 * row[part] / max(1, row["images"])
                for part in ("disagreed", "oracle_disagreed")
            ]
            lines.append(
                f"| {shift} | {row['images']} | {shares[0]:.1f} | {_share(row['judge'])} |"
                f" {shares[1]:.1f} | {_share(row['oracle'])} |"
            )
        lines += [
            "",
            "The same of classes with a mark that no caption tells, and of the others: judge, then"
            " oracle.",
            "",
            "| classes | base | | shifts, on average | |",
            "|:--|--:|--:|--:|--:|",
        ]
        for kind, row in figures["kinds"].items():
            values = [*row["base"], *row["shifts"]]
            lines.append(
                f"| {kind} | {' | '.join('–' if v is None else f'{100 * v:.1f}' for v in values)} |"
            )
        lines += [
            "",
            "How far each judge is from the oracle, points: on the base, on average over shifts,"
            " absolute; and the",
            "rank correlation over shifts (Spearman).",
            "",
            "| judge | right on validation, % | base | shifts | absolute | rank |",
            "|:--|--:|--:|--:|--:|--:|",
        ]
        for name, row in figures["judges"].items():
            values = [_signed(row[part]) for part in ("base", "shifts", "absolute")]
            rank = "–" if row["rank"] is None else f"{row['rank']:.2f}"
            lines.append(
                f"| {name} | {100 * row['accuracy']:.1f} | {' | '.join(values)} | {rank} |"
            )
        lines.append("")
    return lines[:-1]


def _share(checked_share: CheckedShare | None) -> str:
    return (
        "–"
        if checked_share is None
        else f"{100 * checked_share.value:.1f} ({100 * checked_share.low:.1f} to"
        f" {100 * checked_share.high:.1f})"
    )


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:+.1f}"
