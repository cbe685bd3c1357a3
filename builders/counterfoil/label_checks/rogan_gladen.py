"""How many labels are false, from how often a judge disagrees with them and how often it errs: Rogan and Gladen 1978.

A judge disagrees with the label c of an image where the label is false and it sees so, and where the label is true and
it errs. With q the share of disagreement, f that among images that truly are of c, and s that among images of other
classes, q = p·s + (1 - p)·f, so that the share of false labels is p = (q - f) / (s - f), cut to 0 … 1.

f and s are counted on validation images, so it is taken for granted that **the judge errs here as it does there**.
Where that does not hold, p is no bound either way: under a strong shift a judge may err more, which is counted as false
labels (p is too high); one that was trained on the source shares its shortcuts, and takes for the class what only bears
the source's marks (p is too low).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from counterfoil.report.labels import CheckedShare
from counterfoil.stats import lang_reiczigel_interval, mover, rogan_gladen, wilson_interval

# An average over classes speaks of a shift where classes with an estimate hold this share of its images.
LEAST_COVERED = 0.8


@dataclass(frozen=True, slots=True)
class JudgedClass:
    """Counts of one class: `disagreed` of `images` under its label, and of validation images those to which the judge
    did not answer the class: `wrong` of `own`, which are of the class, and `told_apart` of `others`, which are not."""

    images: int
    disagreed: int
    own: int
    wrong: int
    others: int
    told_apart: int

    def __post_init__(self) -> None:
        pairs = ((self.disagreed, self.images), (self.wrong, self.own), (self.told_apart, self.others))
        if not all(0 <= part <= whole for part, whole in pairs):
            raise ValueError(f"counts that cannot be: {self}")


def share_of(part: int, whole: int) -> CheckedShare:
    """A share with its 95 % interval (Wilson 1927). ValueError for a share of nothing."""
    if not 0 <= part <= whole or whole == 0:
        raise ValueError(f"{part} of {whole} is no share")
    low, high = wilson_interval(part, whole)
    return CheckedShare(part / whole, low, high)


def is_told_apart(one: JudgedClass) -> bool:
    """Whether the judge clearly disagrees more with false labels than with true ones: else nothing can be estimated.

    The 95 % interval of s - f must exclude zero (Newcombe 1998, method 10).
    """
    if not one.own or not one.others:
        return False
    seen, erred = one.told_apart / one.others, one.wrong / one.own
    told, wrong = wilson_interval(one.told_apart, one.others), wilson_interval(one.wrong, one.own)
    below, _ = mover((seen - told[0], told[1] - seen), (wrong[1] - erred, erred - wrong[0]))
    return bool(seen - erred - below > 0)


def label_error_of_class(one: JudgedClass) -> CheckedShare | None:
    """The share of false labels of a class, with the 95 % interval of Lang and Reiczigel (2014).

    None where there are no images, or the judge does not clearly tell the class apart.
    """
    if not one.images or not is_told_apart(one):
        return None
    counts = (one.disagreed, one.images), (one.wrong, one.own), (one.told_apart, one.others)
    return _with_interval(_share_of_false(one), *lang_reiczigel_interval(*counts), _if_never_erring([one]))


def label_error_of_shift(classes: Sequence[JudgedClass]) -> CheckedShare | None:
    """The share of false labels of several classes together, each counting by its images.

    Classes are averaged before the result is cut to 0 … 1: cutting each would count what chance takes away from one as
    nothing, and what it adds to another in full. None where classes that the judge tells apart hold fewer than four
    fifths of the images.

    The 95 % interval is joined from those of three sums (`mover`): by the delta method a change of
    q, f and s changes the average by its share of the images times dq - (1 - p)·df - p·ds, over s - f. Each sum is a
    mean of shares with weights, and has the Wilson interval of as many images as would vary alike. That takes the
    classes for alike, which is the widest that they can be.
    """
    told = [one for one in classes if one.images and is_told_apart(one)]
    every, images = sum(one.images for one in classes), sum(one.images for one in told)
    if not images or images < LEAST_COVERED * every:
        return None
    shares = [_share_of_false(one) for one in told]
    value = sum(one.images / images * share for one, share in zip(told, shares, strict=True))
    cut = [min(1.0, max(0.0, share)) for share in shares]
    # What a change of q changes in the average.
    slopes = [one.images / images / (one.told_apart / one.others - one.wrong / one.own) for one in told]
    disagreed = _mean([(slope, one.disagreed, one.images) for slope, one in zip(slopes, told, strict=True)])
    erred = _mean([(slope * (1 - p), one.wrong, one.own) for slope, p, one in zip(slopes, cut, told, strict=True)])
    # The validation images of other classes are nearly the same ones for every class: they are counted once.
    fewest = min(one.others for one in told)
    seen = _mean(
        [(slope * p, one.told_apart, one.others) for slope, p, one in zip(slopes, cut, told, strict=True)], fewest
    )
    below, above = mover(disagreed, erred[::-1], seen[::-1])
    return _with_interval(value, value - float(below), value + float(above), _if_never_erring(told))


def _mean(parts: Sequence[tuple[float, int, int]], images: float | None = None) -> tuple[float, float]:
    """How far the interval of a weighted sum of shares reaches below and above it, of (weight, part, whole) each.

    `images` is how many it varies like; by default what the weights make of all.
    """
    total = sum(weight for weight, _, _ in parts)
    if total <= 0:
        return 0.0, 0.0
    share = sum(weight * part / whole for weight, part, whole in parts) / total
    n = images or total**2 / sum(weight**2 / whole for weight, _, whole in parts)
    low, high = wilson_interval(share * n, n)
    return total * (share - low), total * (high - share)


def _share_of_false(one: JudgedClass) -> float:
    """p, not cut."""
    return rogan_gladen(one.disagreed / one.images, one.wrong / one.own, one.told_apart / one.others)


def _if_never_erring(classes: Sequence[JudgedClass]) -> float:
    """The most false labels that the disagreement allows, with its own interval, were the judge never wrong here."""
    images = sum(one.images for one in classes)
    seen = sum(one.images / images * one.told_apart / one.others for one in classes)
    return wilson_interval(sum(one.disagreed for one in classes), images)[1] / seen


def _with_interval(value: float, low: float, high: float, if_never_erring: float) -> CheckedShare:
    """Cut to 0 … 1, and with the value inside.

    A judge that disagrees with fewer labels than it errs on validation images errs less here, by how much nobody knows:
    the interval then reaches to where it would end if it never did, so that nothing is not told as certain.
    """
    if value <= 0:
        high = max(high, if_never_erring)
    value, low, high = (min(1.0, max(0.0, one)) for one in (value, low, high))
    return CheckedShare(value, min(low, value), max(high, value))
