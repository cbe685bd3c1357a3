"""Answers to conditions: which output is which, scores as they were given, thresholds of the best
F1, what is wrong."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from colour_world import COLOURS
from counterfoil.data.labelled_images import LabelledImages
from counterfoil.errors import UserError
from counterfoil.models.classifiers import ClassifierFacts, describe_classifier, load_classifier
from counterfoil.prediction.class_map import map_classes
from counterfoil.prediction.failures import (
    ConditionScores,
    best_thresholds,
    binary_answers,
    condition_scores,
    failed_answers,
    map_conditions,
)
from counterfoil.prediction.inference import Predictions
from counterfoil.recipe.prompts import RecipeClass
from support.images import encoded

CONDITIONS = ("Effusion", "Mass", "Pleural Thickening")
CLASSES = tuple(
    RecipeClass(name, name.replace("_", " "), label, label, ())
    for label, name in enumerate(
        ("effusion", "no_effusion", "lump", "no_lump", "thickening", "no_thickening")
    )
)


ANIMALS = (
    RecipeClass("n01985128", "crayfish", 0, 0, (124,), "crustacean", kinds=("n01974773",)),
    RecipeClass("n02190166", "fly", 1, 1, (308,), "insect", kinds=("n02159955",)),
)
SPINY_LOBSTER = 123
BEE = 309
FENCE = 489
FLY = 308


@pytest.mark.parametrize(
    ("label", "answers", "none_under", "one_not_under"),
    [
        (0, (SPINY_LOBSTER, FENCE, BEE), False, True),
        (0, (FENCE, BEE, FLY), True, True),
        (1, (BEE, FLY, 301), False, False),
        (1, (FENCE, BEE, SPINY_LOBSTER), False, True),
        (1, (FENCE, SPINY_LOBSTER, 0), True, True),
    ],
)
def test_an_answer_lies_under_a_parent_even_if_the_recipe_lacks_its_class(
    label: int, answers: tuple[int, ...], none_under: bool, one_not_under: bool
) -> None:
    class_map = map_classes(ANIMALS, facts(1000))
    given = Predictions.empty(1, 5)
    given.answers[0] = [*answers, 990, 991]
    given.readable[0] = True
    for rule, failed in (("parent", none_under), ("parent_any", one_not_under)):
        assert failed_answers(rule, given, np.asarray([label]), ANIMALS, class_map).tolist() == [
            failed
        ]


def test_parents_in_words_are_compared_by_words() -> None:
    tops = [RecipeClass(name, name, at, at, (), "top") for at, name in enumerate(("shirt", "coat"))]
    classes = [
        *tops,
        *(RecipeClass(name, name, at, at, (), name) for at, name in enumerate("abc", start=2)),
    ]
    given = Predictions.empty(2, 5)
    given.answers[:] = [[1, 2, 3, 4, 0], [2, 3, 4, 1, 0]]
    given.readable[:] = True
    failed = failed_answers(
        "parent", given, np.zeros(2, np.int64), classes, map_classes(classes, facts(5))
    )
    assert failed.tolist() == [False, True]


def facts(outputs: int, names: tuple[str, ...] | None = None) -> ClassifierFacts:
    return ClassifierFacts("m", "m", "resnet18", outputs, names)


def pictures(encoded: Sequence[bytes | None]) -> LabelledImages:
    """Return images whose labels number sets of conditions: more than there are conditions."""
    keys = tuple(f"test_{row:08d}" for row in range(len(encoded)))

    def read(wanted: frozenset[str] | None) -> Iterator[tuple[str, bytes | None]]:
        yield from (
            (key, image)
            for key, image in zip(keys, encoded, strict=True)
            if wanted is None or key in wanted
        )

    n = len(encoded)
    return LabelledImages(
        "pictures", "content", keys, np.arange(n), np.zeros(n, np.int64), ("all",), read
    )


def scores_of(images: LabelledImages, name: str, folder: Path) -> ConditionScores:
    conditions = map_conditions(CONDITIONS, CLASSES, describe_classifier(name, CLASSES))
    load = partial(load_classifier, classes=CLASSES)
    return condition_scores(images, name, conditions, folder, "cpu", 2, load)


def test_outputs_are_matched_by_name_or_id_in_any_order_else_by_place() -> None:
    named = map_conditions(
        CONDITIONS, CLASSES, facts(5, ("Hernia", "pleural_thickening", "LUMP", "Edema", "effusion"))
    )
    assert named.targets == ((4,), (2,), (1,))
    assert map_conditions(CONDITIONS, CLASSES, facts(3)).targets == ((0,), (1,), (2,))
    with pytest.raises(UserError, match="no output of their name"):
        map_conditions(CONDITIONS, CLASSES, facts(3, ("Effusion", "Hernia", "Mass")))
    with pytest.raises(UserError, match="6 outputs, and the classes need"):
        map_conditions(CONDITIONS, CLASSES, facts(6))


def test_a_classifiers_scores_are_sigmoids_each_for_itself(
    models: dict[str, str], tmp_path: Path
) -> None:
    files = [
        encoded(COLOURS[0]),
        b"no image",
        encoded(COLOURS[2]),
        encoded(COLOURS[1]),
        None,
    ]
    scores = scores_of(pictures(files), models["sharp"], tmp_path)
    assert scores.readable.tolist() == [True, False, True, True, False]
    assert np.isnan(scores.values[[1, 4]]).all()
    classifier = load_classifier(models["sharp"])
    transform = classifier.transform()
    batch = torch.stack(
        [transform(Image.open(io.BytesIO(file))) for file in files if file and file != b"no image"]
    )
    expected = torch.sigmoid(classifier.logits(batch, "cpu").double()).numpy()
    assert np.allclose(scores.values[[0, 2, 3]], expected, atol=1e-6)
    # Each image has a high score for its colour; the scores of a softmax would sum to one.
    assert (scores.values[[0, 3, 2], [0, 1, 2]] > 0.7).all()
    again = scores_of(pictures(files), models["sharp"], tmp_path)
    assert np.array_equal(scores.values, again.values, equal_nan=True)


@pytest.mark.parametrize(
    "rows", [[[0.2, 0.3, 0.5], [0.6, 0.2, 0.2]], [[0.9, 0.9, 0.1], [-3.0, 7.0, 0.0]]]
)
def test_a_files_scores_are_taken_as_they_are(rows: list[list[float]], tmp_path: Path) -> None:
    """Scores that sum to one by chance, as those of a softmax do, are no exception."""
    lines = ["key,Mass,Effusion,thickening"]
    lines += [f"test_{row:08d},{','.join(map(str, values))}" for row, values in enumerate(rows)]
    (tmp_path / "answers.csv").write_text("\n".join(lines) + "\n")
    files = [encoded(COLOURS[0]), encoded(COLOURS[1]), b"no image"]
    scores = scores_of(pictures(files), f"predictions:{tmp_path / 'answers.csv'}", tmp_path)
    assert np.allclose(scores.values[:2], np.asarray(rows)[:, [1, 0, 2]])
    assert scores.readable.tolist() == [True, True, False]


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (["test_00000000,1,2,3"], "no answer to 1 of 2 images: test_00000001"),
        (
            ["test_00000000,1,2,3"] * 2 + ["test_00000001,1,2,3"],
            "more than one answer to test_00000000",
        ),
        (["test_00000000,1,2,3", "test_00000001,1,,3"], "a score that is not a number"),
    ],
)
def test_a_file_that_is_not_whole_is_reported(
    lines: list[str], problem: str, tmp_path: Path
) -> None:
    (tmp_path / "answers.csv").write_text(
        "\n".join(["key,Mass,Effusion,thickening", *lines]) + "\n"
    )
    with pytest.raises(UserError, match=problem):
        scores_of(
            pictures([encoded(COLOURS[0]), encoded(COLOURS[1])]),
            f"predictions:{tmp_path / 'answers.csv'}",
            tmp_path,
        )


def test_a_file_of_one_label_an_image_is_refused(tmp_path: Path) -> None:
    (tmp_path / "answers.csv").write_text("key,class_id\ntest_00000000,effusion\n")
    with pytest.raises(UserError, match="an image may have several conditions"):
        scores_of(
            pictures([encoded(COLOURS[0])]), f"predictions:{tmp_path / 'answers.csv'}", tmp_path
        )


def f1(scores: np.ndarray, has: np.ndarray, threshold: float) -> float:
    positive = scores >= threshold
    hits = (positive & has).sum()
    wrong = (positive & ~has).sum()
    missed = (~positive & has).sum()
    return 0.0 if hits == 0 else 2 / (1 / (hits / (hits + wrong)) + 1 / (hits / (hits + missed)))


def test_thresholds_have_the_best_f1_of_all_and_are_the_lowest_of_these() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        present = rng.random((40, 2)) < (0.2, 0.7)
        present[:2] = [[True, True], [False, False]]
        scores = (rng.normal(size=(40, 2)) + present).round(1)  # rounded, so that scores are equal
        thresholds = best_thresholds(scores, present, ("a", "b"))
        for k in range(2):
            every = {
                cut: f1(scores[:, k], present[:, k], cut)
                for cut in np.unique(scores[:, k]).tolist()
            }
            best = max(every.values())
            assert thresholds[k] == min(cut for cut, value in every.items() if value > best - 1e-12)


def test_of_two_thresholds_that_are_equally_good_the_lowest_is_taken() -> None:
    # From .8 on: 1 hit, 0 wrong, 1 missed; from .2 on: 2 hits, 2 wrong. Both have 2/3.
    scores = np.array([[0.8], [0.6], [0.4], [0.2]])
    has = np.array([[True], [False], [False], [True]])
    assert best_thresholds(scores, has, ("a",)).tolist() == [0.2]


def test_without_rows_of_both_kinds_no_threshold_is_chosen() -> None:
    present = np.array([[True, False, True], [True, False, False]])
    with pytest.raises(UserError) as refused:
        best_thresholds(np.zeros((2, 3)), present, ("a", "b", "c"))
    assert [line.split(":")[0] for line in refused.value.problems] == [
        "condition 'a'",
        "condition 'b'",
    ]


def test_an_answer_is_wrong_on_either_side_of_its_threshold() -> None:
    scores = np.array([[0.5, 0.1], [0.49, 0.9], [0.5, 0.9]])
    present = np.array([[True, True], [True, True], [False, False]])
    wrong = binary_answers(scores, present, np.array([0.5, 0.6]))
    assert wrong.tolist() == [[False, True], [True, False], [True, True]]


def test_rows_without_a_score_are_never_judged() -> None:
    scores = np.array([[0.5], [np.nan]])
    present = np.array([[True], [False]])
    for judged in (
        lambda: best_thresholds(scores, present, ("a",)),
        lambda: binary_answers(scores, present, np.array([0.5])),
    ):
        with pytest.raises(ValueError, match="1 rows have no score"):
            judged()
    with pytest.raises(ValueError, match="expected 1 thresholds"):
        binary_answers(np.ones((1, 1)), np.ones((1, 1), bool), np.array([0.5, 0.5]))
