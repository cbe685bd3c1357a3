"""How often the screen is wrong, by people: the core against a plain loop, the coverage of its
intervals, and a page of `--screen` from end to end."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from page_answers import TOKENS, answers, data_of, is_own, written

from colour_world import build_colours
from counterfoil.dataset.label_checks import Selection
from counterfoil.dataset.reading import read_dataset
from counterfoil.errors import UserError
from counterfoil.plan.layout import Sample
from counterfoil.reviewing.grids import CandidateImage, RealControl
from counterfoil.reviewing.review_answers import asked_of, review_answers
from counterfoil.reviewing.review_dataset import review
from counterfoil.reviewing.screen_errors import ScreenErrors, Stratum, screen_errors
from counterfoil.stats import Estimate, mover_share, wilson_interval
from counterfoil.store.manifest import verify_files
from support.refusals import succeed
from support.tables import csv_rows

# (dropped, images, answered, right) of each stratum.
Counts = list[tuple[bool, int, int, int]]


def errors_of(counts: Counts) -> ScreenErrors:
    strata = []
    for dropped, images, answered, right in counts:
        given = [(int(index < right), 1) for index in range(answered)]
        strata.append(Stratum(dropped, images, given))
    return screen_errors(strata)


def test_shares_are_those_of_a_loop_over_weighted_images() -> None:
    counts = [(False, 900, 20, 18), (False, 50, 10, 7), (True, 300, 20, 6), (True, 5, 5, 1)]
    images = []
    for dropped, size, answered, right in counts:
        images += [(dropped, index < right, size / answered) for index in range(answered)]
    wrongly_kept = kept = wrongly_dropped = all_right = 0.0
    for dropped, right, weight in images:
        kept += weight * (not dropped)
        wrongly_kept += weight * (not dropped and not right)
        all_right += weight * right
        wrongly_dropped += weight * (dropped and right)
    errors = errors_of(counts)
    assert errors.false_accepts and errors.false_rejects
    assert errors.false_accepts.value == pytest.approx(wrongly_kept / kept)
    assert errors.false_rejects.value == pytest.approx(wrongly_dropped / all_right)
    assert (errors.kept, errors.kept_answered) == (950, 30)
    assert (errors.dropped, errors.dropped_answered) == (305, 25)


def test_the_kept_images_of_one_stratum_have_wilsons_interval() -> None:
    errors = errors_of([(False, 900, 20, 18), (True, 300, 20, 6)])
    share = errors.false_accepts
    assert share
    assert (share.low, share.high) == pytest.approx(wilson_interval(2, 20))


def test_without_an_answer_there_is_no_share_and_a_gap_only_widens() -> None:
    assert errors_of([(False, 9, 0, 0), (True, 3, 3, 1)]).false_accepts is None
    assert errors_of([(False, 9, 4, 4), (True, 3, 0, 0)]).false_rejects is None
    assert errors_of([(False, 9, 4, 0), (True, 3, 3, 0)]).false_rejects is None
    whole = errors_of([(False, 100, 20, 18), (True, 50, 10, 5)]).false_accepts
    gap = errors_of([(False, 90, 20, 18), (False, 10, 0, 0), (True, 50, 10, 5)]).false_accepts
    assert whole and gap
    assert gap.value == pytest.approx(whole.value)
    assert gap.low <= whole.low and whole.high <= gap.high


def test_ends_of_a_share_of_two_amounts() -> None:
    none = Estimate(0.0, 0.0, 0.0)
    some = Estimate(5.0, 2.0, 9.0)
    assert mover_share(none, some) == (0.0, 0.0)
    assert mover_share(some, none) == (1.0, 1.0)
    low, high = mover_share(some, some)
    # The other part has the other ends.
    assert low == pytest.approx(1 - high)
    # Two independent counts whose ratio has an exact interval at 0: 0 if there is no part.
    low, high = mover_share(Estimate(0.0, 0.0, 3.0), some)
    assert low == 0 and high == pytest.approx(3 / (3 + (25 - 9) ** 0.5))


def held(counts: Counts, truths: tuple[float, float]) -> np.ndarray:
    """Return whether the intervals of false accepts and of false rejects hold the truth."""
    inside = []
    errors = errors_of(counts)
    for share, truth in zip((errors.false_accepts, errors.false_rejects), truths, strict=True):
        assert share
        inside.append(share.low <= truth <= share.high)
    return np.array(inside)


# Images of a rule alone: those that the screen kept, or rejected, and that the rule keeps or drops,
# with the share that is right. The rule's decision about the images that people see is chance.
UNEQUAL = {
    "light strata": [(900, 0, 0.95, 0.5), (100, 50, 0.3, 0.1)],
    "heavy rejected": [(100, 0, 0.9, 0.9), (900, 540, 0.4, 0.05)],
    "two shifts": [
        (1000, 0, 0.97, 0.5),
        (50, 35, 0.5, 0.2),
        (100, 0, 0.6, 0.5),
        (900, 720, 0.3, 0.1),
    ],
}


@pytest.mark.parametrize("name", UNEQUAL)
def test_intervals_cover_where_images_stand_for_different_numbers(name: str) -> None:
    parts = UNEQUAL[name]
    kept = sum(size - dropped for size, dropped, *_ in parts)
    kept_right = sum((size - dropped) * right for size, dropped, right, _ in parts)
    dropped_right = sum(dropped * right for _, dropped, _, right in parts)
    truths = (1 - kept_right / kept, dropped_right / (dropped_right + kept_right))
    rng = np.random.default_rng(11)
    covered = np.zeros(2)
    times = 300
    for _ in range(times):
        counts: Counts = []
        for size, dropped, right_if_kept, right_if_dropped in parts:
            seen = int(rng.hypergeometric(dropped, size - dropped, 20))
            right = int(rng.binomial(20 - seen, right_if_kept))
            counts.append((False, size - dropped, 20 - seen, right))
            if dropped:
                counts.append((True, dropped, seen, int(rng.binomial(seen, right_if_dropped))))
        covered += held(counts, truths)
    assert covered.min() >= 0.9 * times, covered


REJECTED = 6  # of 12 candidates of each class and shift, the last ones


def is_kept(sample: Sample) -> bool:
    return sample.index < REJECTED


@pytest.fixture
def screened(tmp_path: Path) -> Path:
    """Return the colours with half of the candidates rejected, and their images stored."""
    return build_colours(tmp_path / "screened", "screen.keep_rejected=true", keep=is_kept)


def test_the_page_shows_rejected_images_and_does_not_tell_them_apart(
    screened: Path, tmp_path: Path
) -> None:
    page = review(screened, tmp_path / "page.html", screen=True, images=10)
    assert (page.images, page.rejected) == (15, 15)
    data = data_of(page.page)
    known = asked_of(read_dataset(screened, "receipts").finished()).known
    shown = [known[id] for grid in data["grids"] for id in grid["shown"]]
    images = {picture for picture in shown if isinstance(picture, CandidateImage)}
    assert Counter(image.kept for image in images if image.shift != "base")[False] == 10
    assert not {image.key for image in images if image.key in page.page.read_text()}
    assert set(data["grids"][0]) == {"task", "label", "asked", "shown"}
    again = review(screened, tmp_path / "again.html", screen=True, images=10)
    assert again.page.read_bytes() == page.page.read_bytes()
    assert verify_files(screened) == []


def test_answers_give_the_errors_of_each_rule(screened: Path, tmp_path: Path) -> None:
    page = review(screened, tmp_path / "page.html", screen=True).page
    known = dict(asked_of(read_dataset(screened, "receipts").finished()).known)

    def is_right(task: str, label: str, picture: CandidateImage | RealControl) -> bool:
        """Return whether Anna selects it: of the images of a cell, two in three."""
        if isinstance(picture, RealControl):
            return True
        return is_own(task, label, picture) and int(picture.key[-6:]) % 3 > 0

    given = written(tmp_path / "anna.json", answers(page, known, is_right))
    result = review_answers(screened, [given])
    rows = {(row.rule, row.shift): row.errors for row in result.screen}
    assert {shift for _, shift in rows} == {"base", "dusk", "swap", "all"}
    assert {rule for rule, _ in rows} == {"all"}, "no stored score is below its threshold"
    # Every third image is wrong: 0, 3 of the kept and 6, 9 of the rejected.
    for errors in rows.values():
        assert errors.false_accepts and errors.false_rejects
        assert errors.false_accepts.value == pytest.approx(1 / 3)
        assert errors.false_rejects.value == pytest.approx(1 / 2)
    table = csv_rows(screened / "review" / "screen.csv")
    assert [row["rule"] for row in table] == ["all"] * 4
    assert [row["tasks"] for row in table] == ["class", *["class shift"] * 3]
    assert float(table[-1]["false_rejects"]) == pytest.approx(1 / 2)
    assert verify_files(screened) == []
    # The card counts the kept images alone.
    selection = Selection.of_dataset(screened, result.selection.content)[0]
    assert selection
    assert set(selection.images["class"]) == {
        picture.key
        for picture in known.values()
        if isinstance(picture, CandidateImage) and picture.kept
    }
    shown = succeed("review", str(screened), "--answers", str(given))
    assert "all rules" in shown.output and "54 of 54" in shown.output
    # Answers to another page say nothing about the screen, and take its table away.
    other = review(screened, tmp_path / "other.html").page
    plain = written(tmp_path / "ben.json", answers(other, known, is_right, TOKENS[1]))
    assert review_answers(screened, [plain]).screen == ()
    assert not (screened / "review" / "screen.csv").exists()


def test_without_rejected_images_the_page_is_refused(colours: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        review(colours, tmp_path / "page.html", screen=True)
    assert "stores no rejected images" in str(caught.value)
    assert "screen.keep_rejected=true" in str(caught.value)
    assert not (tmp_path / "page.html").exists()
    kept = build_colours(tmp_path / "kept", "screen.keep_rejected=true")
    with pytest.raises(UserError, match="rejected no image"):
        review(kept, tmp_path / "page.html", screen=True)
