"""What the columns and labels of a file of predictions mean: an output of the model, an answer, or
neither."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from counterfoil.errors import UserError
from counterfoil.models.classifiers import describe_classifier, load_classifier
from counterfoil.models.classifiers.of_predictions import RecordedClassifier
from counterfoil.prediction.class_map import map_classes
from counterfoil.recipe.prompts import RecipeClass
from support.refusals import refuses

NAMES = ("bowl", "mug", "test tube", "spoon")
TRUE = [0, 1, 2, 3, 0, 1]
PATHS = [f"p{row}.jpg" for row in range(len(TRUE))]
SHARES = np.array([[0.7 if output == label else 0.1 for output in range(4)] for label in TRUE])
LOGITS = np.array([[2.5 if output == label else -1.0 for output in range(4)] for label in TRUE])


def of_names(names: Sequence[str]) -> list[RecipeClass]:
    return [RecipeClass(f"{label:04d}", name, label, label, ()) for label, name in enumerate(names)]


CLASSES = of_names(NAMES)


def save(table: pd.DataFrame, path: Path) -> str:
    if path.suffix == ".parquet":
        table.to_parquet(path)
    elif path.suffix == ".jsonl":
        table.to_json(path, orient="records", lines=True)
    elif path.suffix == ".json":
        table.to_json(path, orient="records")
    else:
        table.to_csv(path, index=False)
    return f"predictions:{path}"


def answered(
    name: str, classes: Sequence[RecipeClass] = CLASSES
) -> tuple[list[int], RecordedClassifier]:
    """Return the class that each image is answered with, or -1, as scoring finds it."""
    class_map = map_classes(classes, describe_classifier(name, classes))
    classifier = load_classifier(name, classes=classes)
    assert isinstance(classifier, RecordedClassifier)
    label_of = {
        output: label for label, outputs in enumerate(class_map.targets) for output in outputs
    }
    answers = [-2] * len(PATHS)
    for rows, scores in classifier.recorded([f"k{row}" for row in range(len(PATHS))], PATHS):
        for row, best in zip(rows.tolist(), scores.argmax(axis=1).tolist(), strict=True):
            answers[row] = label_of.get(best, -1)
    assert class_map.num_classes == scores.shape[1]
    return answers, classifier


def scores(values: np.ndarray, called: Sequence[str] = NAMES, **others: Any) -> pd.DataFrame:
    return pd.DataFrame({"path": PATHS, **dict(zip(called, values.T, strict=True)), **others})


ENTROPY = (-(SHARES * np.log(SHARES)).sum(axis=1)).round(4) * np.linspace(1, 9, len(TRUE))
BESIDE = {
    "entropy": {"entropy": ENTROPY},
    "id": {"id": range(100, 106)},
    "an index": {"Unnamed: 0": range(6)},
    "a text": {"camera": ["a", "b"] * 3},
    "the truth": {"label": [NAMES[label] for label in TRUE[::-1]]},
    "a label and how sure it is": {
        "label": ["mug"] * 6,
        "confidence": [9.0] * 6,
        "class_id": [1] * 6,
    },
    "a number of any name": {"angle": np.linspace(0, 300, 6)},
}
WRITTEN = {
    "plain": NAMES,
    "another case": ("BOWL", "Mug", "Test_Tube", "spoon"),
    "before": [f"prob_{name}" for name in NAMES],
    "after": [f"{name}_score" for name in NAMES],
    "in brackets": [f"p({name})" for name in NAMES],
    "ids": [label.id for label in CLASSES],
}


@pytest.mark.parametrize(
    ("written", "ending"),
    [
        *((written, ".csv") for written in WRITTEN),
        ("plain", ".parquet"),
        ("plain", ".jsonl"),
        ("plain", ".json"),
    ],
)
def test_columns_of_classes_are_the_outputs_and_others_are_left_out(
    tmp_path: Path, written: str, ending: str
) -> None:
    for case, others in BESIDE.items():
        table = scores(SHARES, WRITTEN[written], **others)[["path", *[*others], *WRITTEN[written]]]
        answers, classifier = answered(save(table, tmp_path / f"a{ending}"))
        assert (answers, classifier.num_classes, classifier.score_scale) == (
            TRUE,
            4,
            "probabilities",
        ), case
        named = [name for name in others if name != "Unnamed: 0"]
        assert all(name in classifier.read for name in named), case


TRUTHS = np.eye(4)[TRUE[::-1]]


@pytest.mark.parametrize("values", [SHARES, LOGITS])
@pytest.mark.parametrize(
    ("of_scores", "of_others"),
    [
        ("{}_pred", "{}_true"),
        ("pred_{}", "true_{}"),
        ("pred({})", "true({})"),
        ("y_pred_{}", "y_true_{}"),
        ("prob_{}", "gt_{}"),
        ("{}_prob", "{}_pred"),
        ("{}_prob", "label_{}"),
        ("mean_prob_{}", "std_{}"),
        ("p({})", "target({})"),
    ],
)
def test_scores_are_read_beside_the_truth_of_each_class(
    tmp_path: Path, values: np.ndarray, of_scores: str, of_others: str
) -> None:
    called = [of_scores.format(name) for name in NAMES]
    others = dict(
        zip(
            [of_others.format(name) for name in NAMES],
            TRUTHS.T,
            strict=True,
        )
    )
    table = scores(values, called, **others)
    for columns in (table.columns, table.columns[::-1]):
        assert answered(save(table[columns], tmp_path / "a.csv"))[0] == TRUE


def test_several_columns_of_a_class_and_none_of_its_scores_are_refused(tmp_path: Path) -> None:
    others = dict(
        zip(
            [f"second_{name}" for name in NAMES],
            TRUTHS.T,
            strict=True,
        )
    )
    table = scores(SHARES, [f"first_{name}" for name in NAMES], **others)
    with refuses(
        "invalid-predictions",
        None,
        "several columns",
        "'first_bowl', 'second_bowl'",
    ):
        answered(save(table, tmp_path / "a.csv"))
    for no in ("no {}", "not_{}", "non-{}", "without {}"):
        with refuses("unmatched-classes"):
            answered(save(scores(SHARES, [no.format(name) for name in NAMES]), tmp_path / "a.csv"))


def test_logits_do_not_show_whether_another_number_is_an_output(tmp_path: Path) -> None:
    for others in (BESIDE["entropy"], BESIDE["id"], BESIDE["a text"], BESIDE["the truth"]):
        assert (
            answered(save(scores(LOGITS, **dict[str, Any](others)), tmp_path / "a.csv"))[0] == TRUE
        )
    table = scores(LOGITS, angle=[300.0] * 6, zebra=[9.0] * 6)
    with refuses("invalid-predictions", None, "2 columns", "'angle', 'zebra'") as refused:
        answered(save(table, tmp_path / "a.csv"))
    assert "score_bowl" in (refused.value.hint or "")
    with pytest.raises(UserError, match="1 column of numbers names no class"):
        answered(save(table.drop(columns="zebra"), tmp_path / "a.csv"))


def test_further_outputs_are_those_that_complete_the_sum_or_are_called_alike(
    tmp_path: Path,
) -> None:
    wide = np.concatenate([0.5 * SHARES, np.full((6, 1), 0.5)], axis=1)
    answers, classifier = answered(save(scores(wide, (*NAMES, "zebra")), tmp_path / "a.csv"))
    assert (answers, classifier.num_classes, classifier.score_scale) == (
        [-1] * 6,
        5,
        "probabilities",
    )
    logits = np.concatenate([LOGITS, np.full((6, 1), 9.0)], axis=1)
    called = [f"logit_{name}" for name in (*NAMES, "zebra")]
    table = scores(logits, called, logit_max=LOGITS.max(axis=1), angle=[99.0] * 6)
    answers, classifier = answered(save(table, tmp_path / "a.csv"))
    assert (answers, classifier.num_classes) == ([-1] * 6, 5)
    assert answered(save(table.drop(columns="logit_zebra"), tmp_path / "a.csv"))[0] == TRUE


def test_numbered_columns_are_outputs_in_their_order(tmp_path: Path) -> None:
    classes = of_names(sorted(NAMES))
    for called in (
        "0123",
        ["class_0", "class_1", "class_2", "class_3"],
        ["prob_0", "prob_1", "prob_2", "prob_3"],
    ):
        table = scores(SHARES, [*called], entropy=ENTROPY)[["path", "entropy", *[*called][::-1]]]
        assert answered(save(table, tmp_path / "a.csv"), classes)[0] == TRUE


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("{}_x", "{}_y"),
        ("resnet/{}", "vit/{}"),
    ],
)
def test_two_sets_of_columns_that_answer_differently_are_refused(
    tmp_path: Path, first: str, second: str
) -> None:
    truth = np.eye(4)[TRUE[::-1]]
    both = np.concatenate([truth, SHARES], axis=1)
    called = [form.format(name) for form in (first, second) for name in NAMES]
    for ending in (".csv", ".parquet"):
        name = save(scores(both, called), tmp_path / f"a{ending}")
        with refuses("invalid-predictions", None, called[0], called[4]):
            answered(name)


def test_further_columns_of_each_class_that_answer_alike_or_are_no_scores_are_left_out(
    tmp_path: Path,
) -> None:
    for first, second, values in (
        ("logit_", "prob_", SHARES.round(1)),
        ("mean_", "std_", 1 - SHARES),
        ("prob_", "rank_", 1 - SHARES),
    ):
        both = np.concatenate([LOGITS, values], axis=1)
        called = [f"{before}{name}" for before in (first, second) for name in NAMES]
        answers, classifier = answered(save(scores(both, called), tmp_path / "a.csv"))
        assert (answers, classifier.score_scale) == (TRUE, "logits"), second
        deviations_first = scores(both, called)[
            [
                "path",
                *called[4:],
                *called[:4],
            ]
        ]
        assert answered(save(deviations_first, tmp_path / "a.csv"))[0] == TRUE, second
    texts = {f"comment_{name}": ["none"] * 6 for name in NAMES}
    table = scores(SHARES, [f"prob_{name}" for name in NAMES], **texts)
    assert answered(save(table, tmp_path / "a.csv"))[0] == TRUE


def test_the_best_answers_in_order_are_no_scores_of_classes(tmp_path: Path) -> None:
    classes = of_names(sorted(NAMES))
    order = np.argsort(-SHARES, axis=1, kind="stable")
    best = np.take_along_axis(SHARES, order, axis=1)
    called = [f"prob_{rank}" for rank in range(4)]
    for texts in (np.array(NAMES)[order], order):
        labels = {f"top_{rank}": texts[:, rank] for rank in range(4)}
        table = scores(best, called, **labels)
        with refuses("invalid-predictions", None, "'top_0', 'prob_0'"):
            answered(save(table, tmp_path / "a.csv"), classes)
    features = {f"feature_{number}": [0.5] * 6 for number in range(4)}
    table = scores(SHARES, called, **features)
    assert answered(save(table, tmp_path / "a.csv"), classes)[0] == TRUE


def test_a_class_without_a_column_is_refused_with_both_lists(tmp_path: Path) -> None:
    table = scores(SHARES, ("bowl", "mug", "tube", "spoon"), entropy=ENTROPY)
    with refuses("unmatched-classes") as refused:
        answered(save(table, tmp_path / "a.csv"))
    assert re.search(r"test tube.*\| tube", refused.value.problems[0])
    with pytest.raises(UserError, match="1 of 4 classes have no output"):
        answered(save(scores(SHARES)[["path", *NAMES[:3]]], tmp_path / "a.csv"))


# Labels

TEXTS = [NAMES[label] for label in TRUE]


@pytest.mark.parametrize(
    ("column", "ending"), [("Predicted", ".csv"), ("class_id", ".parquet"), ("score", ".jsonl")]
)
def test_one_column_beside_the_key_holds_the_answers(
    tmp_path: Path, column: str, ending: str
) -> None:
    table = pd.DataFrame({"path": PATHS, column: TEXTS})
    answers, classifier = answered(save(table, tmp_path / f"a{ending}"))
    assert (answers, classifier.score_scale) == (TRUE, "unknown")
    assert column in classifier.read
    ids = pd.DataFrame({"path": PATHS, column: TRUE})
    assert answered(save(ids, tmp_path / "a.csv"))[0] == TRUE


def test_a_label_may_have_its_confidence_beside_it(tmp_path: Path) -> None:
    table = pd.DataFrame({"path": PATHS, "label": TEXTS, "confidence": 0.5, "entropy": ENTROPY})
    answers, classifier = answered(save(table, tmp_path / "a.csv"))
    assert answers == TRUE and "confidence and entropy" in classifier.read.replace(", ", " and ")


def test_a_class_in_another_word_is_refused_and_another_label_is_wrong(tmp_path: Path) -> None:
    for word in ("tubes", "4"):
        texts = [word if text == "test tube" else text for text in TEXTS]
        with pytest.raises(
            UserError,
            match=rf"1 class is never answered, and 1 answer is no class(.*\n)+.*\| {word}",
        ):
            answered(save(pd.DataFrame({"path": PATHS, "label": texts}), tmp_path / "a.csv"))
    for word in ("(another label)", "zebra"):
        texts = [*TEXTS[:4], word, word] if word == "zebra" else [word, *TEXTS[1:4], word, word]
        name = save(pd.DataFrame({"path": PATHS, "label": texts}), tmp_path / "a.csv")
        if word == "zebra":
            answers, classifier = answered(name)
            assert answers == [*TRUE[:4], -1, -1]
            assert (
                "2 of 6 answers are no class of the dataset and count as wrong: 'zebra' (2)"
                in classifier.read
            )
        else:
            assert answered(name)[0] == [-1, *TRUE[1:4], -1, -1]


@pytest.mark.parametrize("missing", ["nan", "<NA>", ""])
def test_a_missing_label_is_no_answer(tmp_path: Path, missing: str) -> None:
    table = pd.DataFrame({"path": PATHS, "label": [*TEXTS[:4], missing, missing]})
    answers, classifier = answered(save(table, tmp_path / "a.csv"))
    assert (answers, classifier.lines) == ([*TRUE[:4], -2, -2], 4)


def test_a_negative_number_is_not_the_class_of_its_digits(tmp_path: Path) -> None:
    grades = of_names(("0", "1", "2", "3"))
    for missing in (-1, -1.0):
        for ending in (".csv", ".parquet"):
            values = [*TRUE[:4], missing, missing]
            table = pd.DataFrame({"path": PATHS, "prediction": values})
            answers, classifier = answered(save(table, tmp_path / f"a{ending}"), grades)
            assert answers == [*TRUE[:4], -1, -1]
            assert "2 of 6 answers are no class of the dataset" in classifier.read
    signs = of_names(("-1", "1", "0", "2"))
    table = pd.DataFrame({"path": PATHS, "label": [-1, 1, 0, 2, -1, 1]})
    assert answered(save(table, tmp_path / "a.csv"), signs)[0] == TRUE


NUMBERED = of_names(("1", "10", "2", "20"))
ZEROS = of_names(("0001", "0002", "0003", "0004"))


@pytest.mark.parametrize(
    ("classes", "column", "values", "right"),
    [
        (NUMBERED, "class_id", [1, 10, 2, 20, 1, 10], TRUE),  # 10 and 20 are no ids
        (NUMBERED, "class_id", ["0000", "0001", "0002", "0003", "0000", "0001"], TRUE),
        (NUMBERED, "class_id", [0, 1, 2, 3, 0, 1], TRUE),  # no folder is called 0 or 3
        (NUMBERED, "label", [1.0, 10.0, 2.0, 20.0, 1.0, 10.0], TRUE),
        (NUMBERED, "prediction", [1, 10, 2, 20, 1, 10], TRUE),
        (
            NUMBERED,
            "class_id",
            [1, 2, 1, 2, 1, 2],
            r"'1' is the name of '1' and the id of '10' \(0001\)",
        ),
        (NUMBERED, "prediction", [1, 2, 1, 2, 1, 2], "may hold names of classes or ids"),
        (NUMBERED, "label", [0, 1, 2, 3, 0, 1], "2 classes are never answered"),
        (ZEROS, "label", [1, 2, 3, 4, 1, 2], TRUE),
        (ZEROS, "class_id", [0, 1, 2, 3, 0, 1], TRUE),
        (ZEROS, "class_id", [1, 2, 3, 3, 1, 2], "may hold names of classes or ids"),
        (ZEROS, "label", ["0001", "0002", "0003", "0003", "0001", "0002"], [0, 1, 2, 2, 0, 1]),
        (
            CLASSES,
            "class_id",
            ["1", "7", "7", "1", "1", "1"],
            "3 classes are never answered, and 2 answers are no class",
        ),
        (CLASSES, "label", [0.0, 1.0, 2.0, 3.0, 0.0, 1.0], TRUE),
    ],
)
def test_numbers_are_names_or_ids_where_only_one_fits(
    tmp_path: Path,
    classes: Sequence[RecipeClass],
    column: str,
    values: list[Any],
    right: list[int] | str,
) -> None:
    ending = "csv" if column == "class_id" else "parquet"
    name = save(pd.DataFrame({"path": PATHS, column: values}), tmp_path / f"a.{ending}")
    if isinstance(right, str):
        with pytest.raises(UserError, match=right):
            answered(name, classes)
    else:
        assert answered(name, classes)[0] == right


# Tables


def test_scores_keep_every_digit(tmp_path: Path) -> None:
    sure = 1 - np.array([[3e-16, 1e-12, 2e-12, 4e-16]] * 6) * (1 + np.arange(6))[:, None]
    for ending in (".csv", ".parquet", ".jsonl"):
        path = tmp_path / f"a{ending}"
        if ending == ".jsonl":
            lines = [
                {"path": key, **dict(zip(NAMES, row, strict=True))}
                for key, row in zip(PATHS, sure, strict=True)
            ]
            path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
            name = f"predictions:{path}"
        else:
            name = save(scores(sure), path)
        rows = [
            row
            for _, rows in load_classifier(name, classes=CLASSES).recorded(PATHS) or ()
            for row in rows
        ]
        assert np.array_equal(np.array(rows), sure), ending


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"p0.jpg": "mug"}', "JSON without a list"),
        ('["mug"]', "entry 0 is no mapping"),
        ('[{"path": "p0.jpg", "label": ["mug", "bowl"]}]', "expected a text or a number"),
        ('[{"path": "p0.jpg", "label": {"a": 1}}]', "expected a text or a number"),
        ("[" * 100_000, "nested too deeply"),
        ("no JSON", "cannot be read"),
    ],
)
def test_json_of_another_form_is_refused(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(UserError, match=says):
        answered(f"predictions:{tmp_path / 'a.json'}")


def test_lines_of_other_images_and_rules_of_paths_are_told(tmp_path: Path) -> None:
    table = pd.DataFrame(
        {"path": [f"/data/me/{path}" for path in PATHS] + ["other.jpg"], "label": [*TEXTS, "mug"]}
    )
    _, classifier = answered(save(table, tmp_path / "a.csv"))
    sentence = classifier.told([(["k"] * 6, PATHS)], answered=6)
    assert sentence.endswith(
        "paths agree without the first 2 folders of the file's paths; 6 of 7 lines are of these"
        " images, and the others"
        " are left out"
    )
    assert "lines" not in classifier.told([(["k"] * 6, PATHS)], answered=None)
