"""A gate against an earlier evaluation: the same comparison as with the model itself, and files
that are refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from counterfoil.errors import UserError
from counterfoil.evaluation import evaluate
from counterfoil.evaluation.results import Evaluation
from support.measured import measured
from support.refusals import refuses

OPTIONS: Any = {"recipe": "wardrobe-mini", "groups": "weather", "base": "clear", "device": "cpu"}


@pytest.fixture(scope="module")
def earlier(weather: Path, tmp_path_factory: pytest.TempPathFactory) -> Evaluation:
    return evaluate(weather, ["lab:resnet14t"], out=tmp_path_factory.mktemp("earlier"), **OPTIONS)


def test_a_stored_evaluation_gives_the_answer_of_its_model(
    weather: Path,
    earlier: Evaluation,
) -> None:
    file = earlier.files["document"]
    lines = ["worse_than({}, any) <= 2", "worse_than({}, grey, class=03) <= 2"]
    shown = []
    for name in (str(file), "lab:resnet14t"):
        gate = [line.format(name) for line in lines]
        result = measured(weather, ["lab:resnet10t"], gate=gate, **OPTIONS).gate
        assert result is not None and result.models == ("lab:resnet10t",)
        shown.append(
            [
                (line.group, line.verdict, line.estimate, line.images, line.classes)
                for line in result.judged
            ]
        )
    assert shown[0] == shown[1] and len(shown[0]) == 3


def test_the_stored_model_is_the_one_of_the_same_name_else_the_only_one(
    weather: Path, tmp_path: Path
) -> None:
    stored = evaluate(weather, ["lab:resnet10t", "lab:resnet14t"], out=tmp_path / "both", **OPTIONS)
    gate = [f"worse_than({stored.files['document']}, any) <= 0"]
    result = measured(weather, ["lab:resnet14t"], gate=gate, **OPTIONS).gate
    assert result is not None and [
        line.estimate.value for line in result.judged if line.estimate
    ] == [0.0, 0.0]
    with refuses(
        "unfit-results", "gate", "has lab:resnet10t and lab:resnet14t, and no model 'mine'"
    ):
        measured(weather, {"mine": "lab:resnet10t"}, gate=gate, **OPTIONS)


def _rewritten(change: Callable[[pa.Table], pa.Table]) -> Callable[[Path], None]:
    def rewrite(folder: Path) -> None:
        table = pq.read_table(folder / "predictions.parquet")
        pq.write_table(change(table), folder / "predictions.parquet")

    return rewrite


def _of_other_images(folder: Path) -> None:
    document = json.loads((folder / "results.json").read_text())
    (folder / "results.json").write_text(json.dumps({**document, "content": "0" * 64}))


REFUSED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no file": (
        lambda folder: (folder / "results.json").unlink(),
        "results.json: cannot be read: No such file",
    ),
    "no document": (lambda folder: (folder / "results.json").write_text("[]"), "results.json"),
    "other images": (_of_other_images, "is of other images"),
    "no table": (
        lambda folder: (folder / "predictions.parquet").unlink(),
        "parquet: cannot be read: No such file",
    ),
    "no Parquet": (
        lambda folder: (folder / "predictions.parquet").write_text("x"),
        "is not a table of predictions",
    ),
    "fewer rows": (_rewritten(lambda table: table.slice(1)), "has 119 rows, expected 120"),
    "other keys": (
        _rewritten(lambda table: table.take(list(range(119, -1, -1)))),
        "its keys are not those of",
    ),
    "no answers": (
        _rewritten(lambda table: table.select(["key"])),
        "has no column 'right.lab:resnet14t'",
    ),
    "text": (
        _rewritten(
            lambda table: table.select(["key"]).append_column("right.lab:resnet14t", table["key"])
        ),
        "has the column 'right.lab:resnet14t' of string, expected true or false",
    ),
    "nested keys": (
        _rewritten(
            lambda table: table.set_column(
                0, "key", pa.array([[key] for key in table["key"].to_pylist()])
            )
        ),
        "has the column 'key' of list<element: string>, expected text",
    ),
    "one long key in each row": (
        _rewritten(
            lambda table: table.set_column(0, "key", pa.array(["x" * (1 << 14)] * len(table)))
        ),
        "has a text of 16,384 bytes in its column 'key', expected at most 10,000",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_file_that_cannot_be_compared_with_is_refused(
    case: str, weather: Path, earlier: Evaluation, tmp_path: Path
) -> None:
    folder = tmp_path / "earlier"
    shutil.copytree(earlier.files["document"].parent, folder)
    damage, words = REFUSED[case]
    damage(folder)
    with pytest.raises(UserError) as refused:
        gate = [f"worse_than({folder}/results.json, any) <= 2"]
        measured(weather, ["lab:resnet10t"], gate=gate, **OPTIONS)
    assert words in str(refused.value) and "predictions.parquet that was written beside it" in (
        refused.value.hint or ""
    )


def test_images_that_could_not_be_read_then_leave_a_line_undecided(
    weather: Path, earlier: Evaluation, tmp_path: Path
) -> None:
    folder = tmp_path / "earlier"
    shutil.copytree(earlier.files["document"].parent, folder)
    table = pq.read_table(folder / "predictions.parquet")
    index = table.column_names.index("right.lab:resnet14t")
    grey = [shift == "grey" for shift in table["shift"].to_pylist()]
    first = grey.index(True)
    right = [
        None if row == first else value
        for row, value in enumerate(table["right.lab:resnet14t"].to_pylist())
    ]
    table = table.set_column(index, "right.lab:resnet14t", pa.array(right, pa.bool_()))
    pq.write_table(table, folder / "predictions.parquet")
    gate = [f"worse_than({folder}/results.json, any) <= 99"]
    result = measured(weather, ["lab:resnet10t"], gate=gate, **OPTIONS).gate
    assert result is not None
    assert [line.verdict for line in result.judged] == ["pass", "undecided"]
    assert result.judged[1].reason.endswith("results.json could not read 1 of its images")
