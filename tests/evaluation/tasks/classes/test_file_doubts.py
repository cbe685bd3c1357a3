"""Doubts about a file of answers come with the number of images; a file that agrees with itself and
with the dataset has none."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from colour_world import save_folders
from counterfoil.evaluation import evaluate

NAMES = ("a", "b", "c")
IMAGES = 8
LABELS = np.repeat(np.arange(3), IMAGES)
RNG = np.random.default_rng(4)
# Right on 18 of 24 images.
ANSWERS = np.where(np.arange(24) % 4 == 0, (LABELS + 1) % 3, LABELS)
SHARES = np.where(np.arange(3) == ANSWERS[:, None], 0.6, 0.2)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_folders(
        tmp_path_factory.mktemp("photos") / "photos",
        NAMES,
        IMAGES,
    )


def read_of(photos: Path, folder: Path, **columns: Any) -> str:
    """Return how a file of these columns was read."""
    files = sorted(photos.rglob("*.png"))
    paths = [file.relative_to(photos).as_posix() for file in files]
    file = folder / "answers.csv"
    pd.DataFrame({"path": paths, **columns}).to_csv(file, index=False)
    result = evaluate(
        photos,
        f"predictions:{file}",
        device="cpu",
        out=folder / "out",
    )
    return result.results.models[0].read


def scores(values: np.ndarray, called: Sequence[str] = NAMES) -> dict[str, np.ndarray]:
    return dict(zip(called, values.T, strict=True))


def named(labels: np.ndarray) -> list[str]:
    return [NAMES[label] for label in labels]


def test_a_column_of_classes_that_agrees_with_neither_scores_nor_dataset_is_counted(
    photos: Path, tmp_path: Path
) -> None:
    reversed_scores = scores(SHARES[:, ::-1], ("prob_0", "prob_1", "prob_2"))
    best = 2 - ANSWERS
    unlike_best = int((best != ANSWERS).sum())
    for column, texts in (("pred", named(ANSWERS)), ("y_pred", ANSWERS), (".pred_class", ANSWERS)):
        read = read_of(
            photos,
            tmp_path,
            **reversed_scores,
            **{column: texts},
        )
        assert f"{column!r} names another class than the best score on {unlike_best} of 24" in read
        assert "than the dataset on 6" in read
    # The lines of a file by row are in the order of another listing.
    moved = np.roll(np.arange(24), 5)
    read = read_of(
        photos,
        tmp_path,
        **scores(SHARES[moved]),
        label=named(LABELS[moved]),
    )
    assert f"and than the dataset on {int((LABELS[moved] != LABELS).sum())}" in read


def test_columns_that_agree_and_columns_of_something_else_leave_no_doubt(
    photos: Path, tmp_path: Path
) -> None:
    for beside in (
        {"pred": named(ANSWERS)},
        {"label": named(ANSWERS)},
        {"label": named(LABELS), "y_pred": ANSWERS},
        {"true": LABELS},
        {"camera": named(LABELS[::-1])},
        {"label": ["x", "y"] * 12},
        {"fold": np.arange(24) % 3},
    ):
        assert "names another class" not in read_of(
            photos,
            tmp_path,
            **scores(SHARES),
            **beside,
        )


def test_answers_that_are_all_the_labels_of_the_dataset_may_be_the_truth(
    photos: Path, tmp_path: Path
) -> None:
    sentence = "all 24 answers are the labels of the dataset"
    for columns in (
        {"label": named(LABELS), "score": RNG.random(24)},
        {"label": LABELS, "fold": np.arange(24) % 5},
        {"y_true": named(LABELS)},
    ):
        assert sentence in read_of(photos, tmp_path, **columns)
    for columns in (
        {"label": named(LABELS)},
        {"prediction": named(LABELS)},
        {"label": named(ANSWERS), "score": RNG.random(24)},
    ):
        assert sentence not in read_of(photos, tmp_path, **columns)


def test_ties_at_the_last_place_that_counts_are_counted(photos: Path, tmp_path: Path) -> None:
    apart = np.full((24, 3), 0.05)
    apart[np.arange(24), ANSWERS] = 0.9
    # Where an answer is wrong, the right class and the third one are equal: 6 images.
    read = read_of(photos, tmp_path, **scores(apart))
    assert "on 6 of 24 images the right class ties with others for place 2" in read
    apart[np.arange(24), (ANSWERS + 1) % 3] = 0.04
    apart[np.arange(24), (ANSWERS + 2) % 3] = 0.06
    assert "ties with" not in read_of(photos, tmp_path, **scores(apart))
