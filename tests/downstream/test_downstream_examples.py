"""The examples of docs/how-to/evaluate.md run as they are printed, but for names, in a folder and
on the Hub."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from downstream_cases import LOCATIONS, labels, source, stored

import counterfoil

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "evaluate.md"
MODEL = Path(counterfoil.__file__).parent / "lab/weights/resnet10t"
SHIFT = "in_the_snow"

# Run after an example, for its answer.
EVALUATED = """
answer = [[row.shift, row.images, row.drop and row.drop.value] for row in scores.scores if row.shift != "base"]
"""
FILTERED = "answer = list(clear['key'])"
PAIRED = "answer = [[base['key'], shifted['key'], base['image'].size] for base, shifted in pairs]"


def examples() -> list[str]:
    """Return the code of the page's section of examples."""
    section = re.search(
        r"^## Examples\n(.*?)^## ", PAGE.read_text() + "\n## ", re.MULTILINE | re.DOTALL
    )
    assert section
    return re.findall(r"^```python\n(.*?)^```$", section[1], re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module", params=LOCATIONS)
def answers(
    request: pytest.FixtureRequest,
    ask_here: Callable[..., Any],
    ask_there: Callable[..., Any],
    tmp_path_factory: pytest.TempPathFactory,
    datasets: dict[str, Path],
) -> list[Any]:
    """Return the answers of the examples, run in a folder with a model of its own."""
    folder = tmp_path_factory.mktemp("examples")
    shutil.copytree(MODEL, folder / "my-model")
    name = source(request.param, "parquet")
    if request.param == "directory":
        shutil.copytree(datasets["parquet"], folder / name)
    codes = [
        code.replace('"wardrobe-mini"', repr(name)) + look
        for code, look in zip(examples(), (EVALUATED, FILTERED, PAIRED), strict=True)
    ]
    return (ask_here if request.param == "directory" else ask_there)(codes, folder)


def test_each_example_is_five_lines_about_the_dataset() -> None:
    for code in examples():
        assert '"wardrobe-mini"' in code
        assert len([line for line in code.splitlines() if line]) <= 5


def test_a_model_of_ones_own_is_evaluated(
    answers: list[Any], datasets: dict[str, Path], tmp_path: Path
) -> None:
    by_lab = counterfoil.evaluate(
        datasets["parquet"], ["lab:resnet10t"], out=tmp_path / "report", device="cpu"
    )
    wanted = [
        [score.shift, score.images, score.drop and score.drop.value]
        for score in by_lab.scores
        if score.shift != "base"
    ]
    assert answers[0] == wanted
    assert [SHIFT in row and isinstance(row[2], float) for row in wanted].count(True) == 1


def test_rows_are_filtered_by_score(answers: list[Any], datasets: dict[str, Path]) -> None:
    scores = {row["key"]: row["object_score"] for row in stored(datasets["parquet"], group=SHIFT)}
    clear = sorted((key for key in scores if scores[key] > 0.4), key=lambda key: -scores[key])
    assert 0 < len(clear) < len(scores)
    assert answers[1] == clear


def test_base_and_shift_are_paired(answers: list[Any], datasets: dict[str, Path]) -> None:
    accepted = {key for key, _, _ in labels(datasets["parquet"], "base")}
    shifted = stored(datasets["parquet"], group=SHIFT)
    pairs = [
        (f"base_{row['pair']}", row["key"]) for row in shifted if f"base_{row['pair']}" in accepted
    ]
    assert 0 < len(pairs) < len(shifted)
    assert answers[2] == [[base, other, [64, 64]] for base, other in pairs]
