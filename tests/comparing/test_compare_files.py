"""Two files of answers are compared as libraries and plain counts compare them, whoever wrote the
files."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar
from typer.testing import CliRunner

import counterfoil
from counterfoil.cli.main import app
from counterfoil.comparing.compare_files import MCNEMAR, SIGN_FLIPS, compare_scores
from counterfoil.errors import UserError
from counterfoil.paired_stats import PairCount, tango_interval
from counterfoil.stats import sign_test
from printed_json import check_printed_json
from support.refusals import refuses

Rows = Sequence[Mapping[str, Any]]


def right_or_wrong(images: int, seed: int, shares: Sequence[float] = (0.8, 0.7)) -> np.ndarray:
    """Return 0/1 scores of two models, (2, images), that tend to be right on the same images."""
    rng = np.random.default_rng(seed)
    hard = rng.random(images)
    noise = rng.normal(0, 0.2, (2, images))
    return (hard + noise < np.array(shares)[:, None]).astype(float)


def written(folder: Path, name: str, rows: Rows) -> Path:
    path = folder / name
    if path.suffix == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0].keys())
            writer.writeheader()
            writer.writerows(rows)
    elif path.suffix == ".parquet":
        pd.DataFrame(rows).to_parquet(path)
    else:
        path.write_text("\n".join(map(json.dumps, rows)))
    return path


def answers(scores: np.ndarray, **columns: Sequence[Any]) -> list[dict[str, Any]]:
    rows = []
    for index, score in enumerate(scores):
        row = {"image": f"{index:03}.jpg", "correct": bool(score)}
        rows.append(row | {name: values[index] for name, values in columns.items()})
    return rows


# ---- The numbers


def test_right_and_wrong_answers_are_compared_as_mcnemar_and_tango_do() -> None:
    first, second = right_or_wrong(300, 0)
    compared = compare_scores(first, second)
    table = np.histogram2d(first, second, bins=2)[0]
    reference: Any = mcnemar(table, exact=True)
    assert compared.p == pytest.approx(reference.pvalue)
    assert (compared.first_better, compared.second_better) == (table[1, 0], table[0, 1])
    low, high = tango_interval(PairCount(300, 0, int(table[1, 0]), int(table[0, 1])))
    assert (compared.difference.low, compared.difference.high) == (low, high)
    assert compared.difference.value == pytest.approx(first.mean() - second.mean())
    assert (compared.test, compared.units) == (MCNEMAR, None)


@pytest.mark.parametrize("per_unit", [1, 5])
def test_numbers_have_the_clustered_interval_of_a_regression(per_unit: int) -> None:
    rng = np.random.default_rng(1)
    units = np.repeat(np.arange(40), per_unit)
    first = rng.normal(0, 1, len(units)) + rng.normal(0, 1, 40)[units]
    second = rng.normal(0.1, 1, len(units))
    compared = compare_scores(first, second, units)
    fit = sm.OLS(first - second, np.ones(len(units))).fit(
        cov_type="cluster", cov_kwds={"groups": units}, use_t=True
    )
    low, high = fit.conf_int()[0]
    assert compared.error == pytest.approx(fit.bse[0])
    assert (compared.difference.low, compared.difference.high) == pytest.approx((low, high))
    if per_unit == 1:
        paired = stats.ttest_rel(first, second).confidence_interval()
        assert (low, high) == pytest.approx((paired.low, paired.high))


@pytest.mark.parametrize(("units", "share", "tolerance"), [(9, 0.5, 1e-12), (60, 0.35, 0.005)])
def test_signs_are_flipped_as_a_permutation_test_flips_them(
    units: int, share: float, tolerance: float
) -> None:
    rng = np.random.default_rng(2)
    of_image = np.repeat(np.arange(units), 3)
    first = rng.integers(0, 2, len(of_image)).astype(float)
    second = (rng.random(len(of_image)) < share).astype(float)
    sums = np.bincount(of_image, first - second)
    reference = stats.permutation_test(
        (sums, np.zeros(units)),
        lambda left, right, axis: (left - right).mean(axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=20_000 if units > 20 else np.inf,
        rng=np.random.default_rng(0),
    )
    compared = compare_scores(first, second, of_image)
    assert compared.test == SIGN_FLIPS
    assert compared.p == pytest.approx(reference.pvalue, abs=tolerance)


def test_units_of_one_image_change_nothing_and_whole_units_make_the_interval_wider() -> None:
    first, second = right_or_wrong(60, 3)
    alone = compare_scores(first, second)
    assert compare_scores(first, second, np.arange(60)) == alone
    copies = compare_scores(np.repeat(first, 4), np.repeat(second, 4), np.repeat(np.arange(60), 4))
    assert copies.units == 60
    assert copies.difference.value == pytest.approx(alone.difference.value)
    widths = [each.difference.high - each.difference.low for each in (alone, copies)]  # type: ignore[operator]
    # Four copies of an image say no more than the image.
    assert widths[1] == pytest.approx(widths[0], rel=0.2)
    # And it takes four times as many copies to decide.
    assert copies.images_to_decide == pytest.approx(4 * (alone.images_to_decide or 0), rel=0.1)


def test_an_interval_has_a_width_also_if_the_models_are_equal() -> None:
    right = np.ones(50)
    equal = compare_scores(right, right)
    assert equal.p == 1
    assert equal.verdict == "undecided"
    assert equal.images_to_decide is None
    assert equal.difference.low is not None and equal.difference.low < 0 < equal.difference.high  # type: ignore[operator]
    in_units = compare_scores(right, right, np.arange(50) // 2)
    assert in_units.difference.low is not None and in_units.difference.low < 0


def test_so_many_images_decide_in_four_cases_of_five() -> None:
    first, second = right_or_wrong(400, 4, (0.8, 0.74))
    pilot = compare_scores(first, second)
    needed = pilot.images_to_decide
    assert needed is not None
    counts = np.array([pilot.first_better, pilot.second_better])
    shares = [*(counts / 400), 1 - counts.sum() / 400]
    ahead, behind, _ = np.random.default_rng(5).multinomial(needed, shares, 4000).T
    p = 2 * stats.binom.cdf(np.minimum(ahead, behind), ahead + behind, 0.5)
    assert 0.75 < ((p <= 0.05) & (ahead > behind)).mean() < 0.85
    width = pilot.images_of_half_width(0.02)
    assert width is not None
    low, high = tango_interval(PairCount(width, 0, *(counts * width // 400).tolist()))
    assert (high - low) / 2 == pytest.approx(0.02, rel=0.05)


@pytest.mark.parametrize(
    ("images", "differing"),
    [
        (5, 4),
        (5, 5),
        (2, 2),
        (12, 5),
    ],
)
def test_no_advised_number_of_images_is_too_few_for_the_test(images: int, differing: int) -> None:
    first = np.ones(images)
    second = (np.arange(images) >= differing).astype(float)
    compared = compare_scores(first, second)
    assert compared.verdict == "undecided"
    advised = compared.images_to_decide
    assert advised is not None
    assert sign_test(round(advised * differing / images), 0) <= 0.05


# ---- The files


@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl"])
def test_rows_in_any_order_and_format_give_the_same_comparison(ending: str, tmp_path: Path) -> None:
    first, second = right_or_wrong(80, 6)
    first_file = written(tmp_path, f"a.{ending}", answers(first))
    second_file = written(tmp_path, f"b.{ending}", answers(second)[::-1])
    comparison = counterfoil.compare(first_file, second_file)
    assert comparison.paired == compare_scores(first, second)
    assert comparison.first.score.value == first.mean()
    assert comparison.first.key_columns == ("image",)


def test_predictions_are_right_if_they_equal_the_labels(tmp_path: Path) -> None:
    rows = [
        {"id": "1", "prediction": "cat", "label": "cat"},
        {"id": "2", "prediction": "dog", "label": "cat"},
        {"id": "3", "prediction": "dog", "label": "dog"},
    ]
    first_file = written(tmp_path, "a.csv", rows)
    second_file = written(tmp_path, "b.csv", [row | {"prediction": "dog"} for row in rows])
    comparison = counterfoil.compare(first_file, second_file)
    assert comparison.first.score.value == pytest.approx(2 / 3)
    assert comparison.second.score.value == pytest.approx(1 / 3)
    assert comparison.first.score_column == "prediction = label"


def spelt(folder: Path, name: str, labels: Sequence[str], predictions: Sequence[str]) -> Path:
    """Write 12 images with these labels and predictions in turn."""
    rows = []
    for number in range(12):
        turn = number % len(labels)
        row = {"id": f"{name}{number}", "prediction": predictions[turn], "label": labels[turn]}
        rows.append(row | {"id": str(number)})
    return written(folder, name, rows)


# Labels and predictions of the first file, and labels of the second → the share that is right.
CASES = {
    "of no meaning": (["Cat", "dog"], ["cat ", "DOG"], ["Cat", "dog"], 1),
    "of two labels": (["a", "A"], ["a", "a"], ["a", "A"], 0.5),
    "of a prediction that is no label": (["a", "A", "b"], ["a", "A", "B"], ["a", "A", "b"], 2 / 3),
    "of _ for a space": (["test tube", "cat"], ["test_tube", "cat"], ["test tube", "cat"], 1),
    "of a sign": (["1", "2"], ["-1", "2"], ["1", "2"], 0.5),
    "of two labels with _": (["a b", "a_b"], ["a b", "a b"], ["a b", "a_b"], 0.5),
    "of outer spaces alone": (["a", "a ", "b"], ["a", "a", "b"], ["a", "a ", "b"], 1),
}


@pytest.mark.parametrize("case", CASES)
def test_case_counts_if_two_labels_differ_in_nothing_else(case: str, tmp_path: Path) -> None:
    labels, predictions, others, right = CASES[case]
    first = spelt(tmp_path, "a.csv", labels, predictions)
    comparison = counterfoil.compare(first, spelt(tmp_path, "b.csv", others, others))
    assert comparison.first.score.value == pytest.approx(right)
    assert comparison.second.score.value == 1


def test_case_counts_if_two_labels_of_both_files_together_differ_in_it_alone(
    tmp_path: Path,
) -> None:
    rows = [{"id": str(number), "prediction": "A", "label": "a"} for number in range(6)]
    first = written(tmp_path, "a.csv", [*rows, {"id": "6", "prediction": "b", "label": "b"}])
    single = written(tmp_path, "b.csv", [{"id": "6", "prediction": "b", "label": "b"}, *rows])
    assert counterfoil.compare(first, single).first.score.value == 1
    other = {"id": "7", "prediction": "A", "label": "A"}
    both = written(tmp_path, "c.csv", [*rows, {"id": "6", "prediction": "b", "label": "b"}, other])
    assert counterfoil.compare(first, both).first.score.value == pytest.approx(1 / 7)


def test_predictions_that_are_no_labels_are_no_silent_zero(tmp_path: Path) -> None:
    first = spelt(tmp_path, "a.csv", ["cat", "dog"], ["0", "1"])
    with refuses("unknown-answers", first, "predictions are 0, 1, labels are cat, dog"):
        counterfoil.compare(first, first)


def beside(name: str, scores: Sequence[float], prediction: str, label: str) -> list[dict[str, Any]]:
    """Return 12 rows with scores in turn, of which every second prediction is the label."""
    rows = []
    for number in range(12):
        row = {
            "id": str(number),
            name: scores[number % len(scores)],
            label: "cat",
        }
        rows.append(row | {prediction: "cat" if number % 2 else "dog"})
    return rows


@pytest.mark.parametrize("names", [("prediction", "label"), ("y_pred", "y_true")])
def test_a_confidence_is_no_score(names: tuple[str, str], tmp_path: Path) -> None:
    unsure = written(
        tmp_path,
        "a.csv",
        beside("score", (0.4, 0.5, 0.6), *names),
    )
    sure = written(
        tmp_path,
        "b.csv",
        beside("score", (0.7, 0.8, 0.9), *names),
    )
    with refuses(
        "unknown-answers", unsure, "the column score gives less than the most to 4 answers"
    ):
        counterfoil.compare(unsure, sure)
    prediction, label = names
    by_answer = counterfoil.compare(
        unsure,
        sure,
        prediction=prediction,
        label=label,
    )
    assert by_answer.first.score.value == by_answer.second.score.value == 0.5
    assert (
        counterfoil.compare(
            unsure,
            sure,
            score=["score"],
        ).verdict
        == "second is better"
    )


def test_partial_credit_stays_a_score(tmp_path: Path) -> None:
    rows = beside("score", (0.5, 1.0, 0.0, 1.0), "prediction", "label")
    file = written(tmp_path, "a.jsonl", rows)
    assert counterfoil.compare(file, file).first.score.value == 0.625
    lists = [row | {"label": ["cat", "kitten"]} for row in rows]
    file = written(tmp_path, "b.jsonl", lists)
    assert counterfoil.compare(file, file).first.score.value == 0.625


def test_a_column_of_correct_classes_is_no_score(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        "a.csv",
        beside("correct", (0, 3, 1), "predicted", "split"),
    )
    with refuses(
        "unknown-answers", file, "the column correct has 3, so it may hold the true class"
    ):
        counterfoil.compare(file, file)
    file = written(
        tmp_path,
        "b.csv",
        beside("correct", (0, 1), "predicted", "split"),
    )
    assert counterfoil.compare(file, file).first.score.value == 0.5


@pytest.mark.parametrize(
    ("first", "second", "sentence"),
    [
        ((0.0, 1.0), (0.3, 0.9), "Scores of the first are 0 or 1, those of the second lie between"),
        ((0.3, 0.9), (30.0, 90.0), "of the second lie between 30 and 90"),
        ((0.0, 1.0), (0.0, 100.0), "of the second lie between 0 and 100"),
        ((0.0, 1.0), (1.0, 0.0), None),
        ((0.3, 0.9), (0.1, 0.4), None),
        ((3.0, 90.0), (30.0, 90.0), None),
    ],
)
def test_scores_of_two_measures_or_scales_are_not_compared_in_silence(
    first: Sequence[float], second: Sequence[float], sentence: str | None, tmp_path: Path
) -> None:
    files = []
    for name, scores in (("a.csv", first), ("b.csv", second)):
        rows = [{"id": str(number), "score": scores[number % 2]} for number in range(12)]
        files.append(written(tmp_path, name, rows))
    comparison = counterfoil.compare(*files)
    assert comparison.unlike_scores == (sentence is not None)
    text = " ".join(comparison.sentences)
    assert (sentence or "") in text
    assert ("one measure on one scale" in text) == comparison.unlike_scores


def test_the_samples_of_inspect_are_read_and_epochs_averaged(tmp_path: Path) -> None:
    rows = []
    for index in range(20):
        for epoch, score in enumerate("CIP" if index % 2 else "CCC", start=1):
            sample = {"sample_id": f"uuid{index}{epoch}", "eval_id": "e", "id": str(index)}
            rows.append(sample | {"epoch": epoch, "score_match": score})
    first_file = written(tmp_path, "a.parquet", rows)
    second_file = written(tmp_path, "b.parquet", [row | {"score_match": "I"} for row in rows])
    comparison = counterfoil.compare(first_file, second_file)
    assert comparison.paired.images == 20
    assert comparison.first.averaged == 20
    assert comparison.first.score.value == pytest.approx((1 + 0.5) / 2)
    assert not comparison.paired.binary


def test_the_samples_of_lm_eval_are_read_and_other_questions_refused(tmp_path: Path) -> None:
    rows = []
    for index in range(12):
        for name in ("strict-match", "flexible-extract"):
            sample: dict[str, Any] = {"doc_id": index, "doc": {"question": "?"}, "filter": name}
            sample |= {"metrics": ["exact_match"], "doc_hash": f"h{index}"}
            rows.append(sample | {"exact_match": float(name == "strict-match")})
    first_file = written(tmp_path, "samples_a.jsonl", rows)
    with refuses("unlike-files", first_file, "12 images have several answers"):
        counterfoil.compare(first_file, first_file)
    strict = {"filter": "strict-match"}
    assert counterfoil.compare(first_file, first_file, where=strict).first.score.value == 1
    changed = written(tmp_path, "samples_b.jsonl", [row | {"doc_hash": "other"} for row in rows])
    with refuses("unlike-files", "", "disagree about the question of 12 images"):
        counterfoil.compare(first_file, changed, where=strict)


def test_unmatched_images_and_rows_without_a_score_are_counted_and_told(tmp_path: Path) -> None:
    first, second = right_or_wrong(30, 7)
    rows = answers(first)
    rows[0]["correct"] = None
    first_file = written(tmp_path, "a.csv", rows)
    second_file = written(tmp_path, "b.csv", answers(second)[:25])
    comparison = counterfoil.compare(first_file, second_file)
    assert (comparison.paired.images, comparison.first.only_here) == (24, 5)
    assert (comparison.first.unscored, comparison.second.only_here) == (1, 1)
    text = " ".join(comparison.sentences)
    assert "5 images only in the first; 1 row of the first without a score" in text


def test_units_may_stand_in_one_file_alone(tmp_path: Path) -> None:
    first, second = right_or_wrong(60, 8)
    patients = [f"p{index // 3:02}" for index in range(60)]
    first_file = written(tmp_path, "a.csv", answers(first, patient=patients))
    second_file = written(tmp_path, "b.csv", answers(second))
    comparison = counterfoil.compare(first_file, second_file, unit="patient")
    assert comparison.paired == compare_scores(first, second, np.arange(60) // 3)
    moved = written(tmp_path, "c.csv", answers(second, patient=patients[::-1]))
    with refuses("unlike-files", "", "disagree about the unit"):
        counterfoil.compare(first_file, moved, unit="patient")


# Code and words of a problem → rows and options.
REFUSED: dict[tuple[str, str], tuple[Rows, dict[str, Any]]] = {
    ("unknown-answers", "no column of images"): ([{"x": 1, "correct": 1}], {}),
    ("unknown-answers", "no column of scores"): ([{"image": "a", "x": 1}], {}),
    ("unknown-answers", "'y' (--score)"): ([{"image": "a", "correct": 1}], {"score": ["y"]}),
    ("unknown-answers", "'y' (--where)"): ([{"image": "a", "correct": 1}], {"where": {"y": "1"}}),
    ("unlike-files", "unit: neither"): ([{"image": "a", "correct": 1}], {"unit": "y"}),
    ("unlike-files", "epoch: neither"): ([{"image": "a", "correct": 1}], {"epoch": "y"}),
    ("unknown-answers", "has 'cat', expected a"): ([{"image": "a", "correct": "cat"}], {}),
    ("unknown-answers", "2 columns of scores"): ([{"id": "a", "score_a": 1, "score_b": 1}], {}),
    ("unlike-files", "1 image has several"): ([{"image": "a", "correct": 1}] * 2, {}),
    ("unknown-answers", "no row has a score"): ([{"image": "a", "correct": "nan"}], {}),
}


@pytest.mark.parametrize("problem", REFUSED)
def test_what_cannot_be_compared_is_refused(problem: tuple[str, str], tmp_path: Path) -> None:
    rows, options = REFUSED[problem]
    code, words = problem
    path = written(tmp_path, "a.csv", rows)
    with refuses(code, None, words):
        counterfoil.compare(path, path, **options)


def test_a_width_is_above_0(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", [{"image": "a", "correct": 1}])
    with pytest.raises(UserError, match="half_width is -1"):
        counterfoil.compare(path, path, half_width=-1)


def test_files_without_a_common_image_show_a_key_of_each(tmp_path: Path) -> None:
    first_file = written(tmp_path, "a.csv", [{"image": "x/1.jpg", "correct": 1}])
    second_file = written(tmp_path, "b.csv", [{"image": "1.jpg", "correct": 1}])
    words = (f"{first_file} has 'x/1.jpg' in image", f"{second_file} has '1.jpg' in image")
    with refuses("unlike-files", "", *words):
        counterfoil.compare(first_file, second_file)


def test_the_command_prints_sentences_or_json(tmp_path: Path) -> None:
    first, second = right_or_wrong(100, 9)
    files = [
        str(written(tmp_path, "a.csv", answers(first))),
        str(written(tmp_path, "b.csv", answers(second))),
    ]
    run = CliRunner()
    printed = run.invoke(app, ["compare", *files]).stdout
    assert printed.splitlines() == [*counterfoil.compare(*files).sentences]
    words = ["compare", *files, "--json"]
    text = run.invoke(app, words).stdout
    check_printed_json(words, text)
    assert json.loads(text)["paired"]["first_better"] == int((first > second).sum())


def test_no_torch_is_imported(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", [{"image": "1", "correct": 1}])
    code = (
        f"import sys, counterfoil; counterfoil.compare({str(path)!r}, {str(path)!r});"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
