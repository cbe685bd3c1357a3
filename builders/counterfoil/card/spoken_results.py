"""What near chance means and how far the base is from the source, in sentences: for card, report and terminal alike.

Functions of plain numbers, so that results that were stored and results that were just measured are told in the same
words. Accuracies and gaps are fractions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# A larger gap between validation images and the base says that the base is not the input dataset.
LARGE_GAP = 0.1
_MOST_NAMES = 12


@dataclass(frozen=True, slots=True)
class Gap:
    """A model's accuracy on validation images and on the base, and the difference with the ends of its interval."""

    model: str
    validation: float
    base: float
    gap: float
    low: float | None
    high: float | None

    @property
    def over(self) -> bool:
        """Whether it is over 10 points, either way."""
        return abs(self.gap) > LARGE_GAP

    @property
    def surely(self) -> bool:
        """Whether its interval excludes 0."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high


def near_chance_sentences(
    classes: Sequence[str], all_classes: int, models: Sequence[str], all_models: int
) -> tuple[str, ...]:
    """Which classes and models are near chance on the base, counted; nothing where none is."""
    found = []
    if classes and len(classes) == all_classes:
        subject = "The only class" if all_classes == 1 else f"All {all_classes:,} classes"
        found.append(f"{subject} ({_some(classes)}) {_are(classes)} near chance on the base: no drop can be given.")
    elif classes:
        found.append(
            f"{len(classes):,} of {all_classes:,} classes ({_some(classes)}) {_are(classes)} near chance on the base"
            f" and {_are(classes)} left out of every average."
        )
    if models and len(models) == all_models:
        subject = "The only model" if all_models == 1 else f"All {all_models:,} models"
        found.append(f"{subject} ({_some(models)}) {_are(models)} near chance on the base: no average over models.")
    elif models:
        found.append(
            f"{len(models):,} of {all_models:,} models ({_some(models)}) {_are(models)} near chance on the base"
            f" and {_are(models)} left out of averages over models."
        )
    return tuple(found)


def gap_sentences(
    gaps: Sequence[Gap], classes: Sequence[str] = (), unseen: float | None = None, *, known: bool = False
) -> tuple[str, ...]:
    """The warnings: gaps over 10 points, smaller ones whose interval excludes 0, and classes that only the base lacks.

    `classes` are those near chance on the base, `unseen` their accuracy on validation images, `known` whether that is
    clearly above chance: else see `unknown_sentences`.
    """
    found = []
    over = sorted((one for one in gaps if one.over), key=lambda one: -abs(one.gap))
    if over:
        first = over[0]
        told = f"{first.model}: {_percent(first.validation)} → {_percent(first.base)}"
        subject = f"{len(over):,} of {len(gaps):,} models" if len(gaps) > 1 else "the model"
        found.append(
            f"The base is not the input dataset: from the source's validation images to the base, the"
            f" accuracy of {subject} changes by more than {100 * LARGE_GAP:.0f} points ({told},"
            f" {_points(abs(first.gap))} points{' at most' if len(over) > 1 else ''})."
        )
    smaller = [one for one in gaps if one.surely and not one.over]
    if smaller:
        named = ", ".join(f"{one.model} by {_points(abs(one.gap))}" for one in smaller[:_MOST_NAMES])
        more = f" and {len(smaller) - _MOST_NAMES:,} more" if len(smaller) > _MOST_NAMES else ""
        found.append(
            "From validation images to the base accuracy changes by more than chance explains, since the interval of"
            f" the gap excludes 0: {named} points{more}."
        )
    if classes and unseen is not None and known:
        few = len(classes) == 1
        found.append(
            f"The {'class' if few else f'{len(classes):,} classes'} near chance on the base ({_some(classes)})"
            f" {'has' if few else 'have'} an accuracy of {_percent(unseen)} on validation images."
        )
    return tuple(found)


def unknown_sentences(classes: Sequence[str], unseen: float | None, *, known: bool) -> tuple[str, ...]:
    """That models do not know the classes near chance on the base on validation images either: no word on the base."""
    if not classes or unseen is None or known:
        return ()
    what = "this class" if len(classes) == 1 else f"these {len(classes):,} classes"
    return (f"The models do not know {what} on validation images either ({_percent(unseen)} right there).",)


def _are(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES:,} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _points(value: float) -> str:
    return f"{100 * value:.1f}"
