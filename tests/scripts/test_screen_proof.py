"""The proof of screens: limits from one seed, drops as a plain loop takes them, and light that is
matched."""

from __future__ import annotations

import numpy as np
import pytest

import prove_screen
from counterfoil.lab.vocabulary import CLASSES

_CELLS = (3, len(CLASSES), 20)
RULES = ("first", "second")


def seen(seed: int) -> prove_screen.Seen:
    """Return images of a base, which the first rule says nothing of, and of two shifts."""
    rng = np.random.default_rng(seed)
    scores = {rule: rng.normal(size=_CELLS) for rule in RULES}
    scores["first"][0] = np.nan
    right = rng.random((*_CELLS, 2)) < 0.7
    flags = rng.random((3, *_CELLS)) < 0.8
    read = np.where(flags[0], np.arange(len(CLASSES))[:, None], -1)
    pixels = rng.integers(0, 256, (*_CELLS, 2, 2, 3), np.uint8)
    return prove_screen.Seen(pixels, flags[1], read, flags[2], right, scores)


@pytest.mark.parametrize("rules", [("first",), ("second",), RULES])
def test_limits_keep_the_same_share_of_each_shift(rules: tuple[str, ...]) -> None:
    chosen = seen(0)
    kept = prove_screen.cut(rules, chosen, chosen)
    shares = kept.mean((1, 2))
    assert shares[1:] == pytest.approx(prove_screen.KEPT, abs=0.01)
    assert shares[0] == (1 if rules == ("first",) else pytest.approx(prove_screen.KEPT, abs=0.01))
    # A limit: of a single rule, all that is kept scores at least as much as all that is not.
    if len(rules) == 1:
        values = chosen.scores[rules[0]][1:]
        for value, of_shift in zip(values, kept[1:], strict=True):
            assert value[of_shift].min() >= value[~of_shift].max()


def test_limits_are_of_the_seed_that_chose_them() -> None:
    other = seen(1)
    better = prove_screen.Seen(
        other.pixels,
        other.kept,
        other.read,
        other.shift,
        other.right,
        {name: values + 10 for name, values in other.scores.items()},
    )
    assert prove_screen.cut(RULES, seen(0), better).all()


def test_drops_are_those_of_a_plain_loop() -> None:
    images = seen(2)
    classes = np.ones(_CELLS[:2], bool)[1:]
    classes[0, 3] = False
    weights = np.ones((1, *_CELLS[1:]))
    accuracy = prove_screen.accuracies(images.right, images.kept, weights)
    computed = prove_screen.drops(accuracy, classes)[0]
    for s in (1, 2):
        for m in range(2):
            lost = []
            for c in range(len(CLASSES)):
                if classes[s - 1, c]:
                    base = images.right[0, c, images.kept[0, c], m].mean()
                    lost.append(100 * (base - images.right[s, c, images.kept[s, c], m].mean()))
            assert computed[s - 1, m] == pytest.approx(np.mean(lost))


def test_matched_light_has_the_mean_and_the_deviation_of_the_other() -> None:
    rng = np.random.default_rng(3)
    dark = rng.integers(20, 60, (2, 5, 16, 16, 3), np.uint8)
    bright = rng.integers(80, 180, (2, 7, 16, 16, 3), np.uint8)
    lit = prove_screen.lit_as(dark, bright)
    over = (1, 2, 3)
    assert lit.mean(over) == pytest.approx(bright.mean(over), abs=0.5)
    assert lit.std(over) == pytest.approx(bright.std(over), abs=0.5)
