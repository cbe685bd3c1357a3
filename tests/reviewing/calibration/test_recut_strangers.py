"""Whole datasets that a stranger has sealed: cut and closed again they are refused in words, and
the way out works."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from counterfoil.building.regenerate_dataset import regenerate
from counterfoil.dataset.closing import close_again
from counterfoil.errors import RunFailure, UserError
from counterfoil.reviewing.recut_dataset import recut
from counterfoil.store.reading import read_receipts
from counterfoil.store.shard_files import write_parquet
from fuzzing.templates import sealed
from tiny_builds import published

Document = dict[str, Any]


@pytest.fixture
def copy(screened: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(screened, tmp_path / "dataset"))


@pytest.fixture
def cut(tmp_path: Path) -> Path:
    (tmp_path / "cut.yaml").write_text("screen: {shift_threshold: 0.1}")
    return tmp_path / "cut.yaml"


def with_other_rows(path: Path, column: str, index: int, value: Any) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from counterfoil.store.atomic import atomic_file

    table = pq.read_table(path)
    values = table[column].to_pylist()
    values[index] = value
    field = table.schema.get_field_index(column)
    table = table.set_column(
        field, table.schema.field(column), pa.array(values, table.schema.field(column).type)
    )
    with atomic_file(path) as file:
        write_parquet(file, table.to_pylist(), table.schema)


def test_a_file_whose_name_is_a_path_elsewhere_is_reported_before_anything_is_written(
    copy: Path, cut: Path, tmp_path: Path
) -> None:
    (copy / "a\\b.json").write_text("{}")
    sealed(copy)
    before = published(copy)
    with pytest.raises(UserError, match="is a path on some systems"):
        recut(copy, cut, in_place=True)
    with pytest.raises(UserError, match="is a path on some systems"):
        recut(copy, cut, tmp_path / "new")
    assert published(copy) == before and not (tmp_path / "new").exists()


def test_what_is_said_to_do_about_a_forged_shard_makes_it_whole(
    copy: Path, screened: Path, cut: Path
) -> None:
    receipt = read_receipts(copy)[0]
    file = receipt.file("candidates")
    assert file is not None
    with_other_rows(copy / file.path, "label", 0, 2)
    sealed(copy)
    for run in (
        lambda: close_again(copy),
        # receipt and manifest prove the file
        lambda: regenerate(copy, copy, device="cpu", workers=1),
        lambda: recut(copy, cut, in_place=True),
        lambda: recut(copy, cut, copy.parent / "recut"),
    ):
        with pytest.raises(RunFailure) as refused:
            run()
        assert str(copy / file.path) in str(refused.value)
        assert f"Remove {copy / receipt.path}" in str(refused.value.hint)
    (copy / receipt.path).unlink()
    regenerate(copy, copy, device="cpu", workers=1)
    assert published(copy) == published(screened)


def test_a_recipe_of_other_classes_is_not_cut(copy: Path, cut: Path) -> None:
    recipe = copy / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("id: '08'", "id: 'x8'"))
    assert "x8" in recipe.read_text()
    sealed(copy)
    with pytest.raises(RunFailure, match=r"thresholds\.json: differs from the recipe"):
        recut(copy, cut, copy.parent / "recut")


def test_a_cut_that_drops_shifts_is_refused(copy: Path) -> None:
    (copy.parent / "cut.yaml").write_text("prompts: {shifts: {}}")
    before = published(copy)
    with pytest.raises(UserError, match="drop every shift") as refused:
        recut(copy, copy.parent / "cut.yaml", in_place=True)
    assert refused.value.problems[0].startswith("prompts.shifts (")
    assert published(copy) == before


def test_a_receipt_more_than_the_recipe_plans_is_reported(copy: Path, cut: Path) -> None:
    receipt = json.loads((copy / "receipts" / "red-00000.json").read_text())
    lock = json.loads((copy / "lock.json").read_text())
    for group in lock["groups"]:
        group["shards"] += group["name"] == "red"
    (copy / "lock.json").write_text(json.dumps(lock))
    (copy / "receipts" / "red-00002.json").write_text(
        json.dumps({**receipt, "shard": 2, "of": 3, "files": []})
    )
    sealed(copy)
    with pytest.raises(
        RunFailure, match=r"red-00002\.json: is of a shard that the recipe does not plan"
    ):
        recut(copy, cut, copy.parent / "recut")


LOCKS: dict[str, Callable[[Document], object]] = {
    "models are a number": lambda inputs: inputs.update(models=1),
    "a model is a number": lambda inputs: inputs["models"].update(screen=1),
    "no screen": lambda inputs: inputs["models"].pop("screen"),
    "no commit": lambda inputs: inputs["models"]["screen"].pop("revision"),
    "a commit that is none": lambda inputs: inputs["models"]["screen"].update(revision="main"),
    "a list for a commit": lambda inputs: inputs["models"]["screen"].update(revision=["x"]),
    "a licence that is a number": lambda inputs: inputs["models"]["generator"].update(license=5),
    "a source that is a text": lambda inputs: inputs.update(source="x"),
    "judges that are a list": lambda inputs: inputs.update(judges=[1]),
    "tokens that are a text": lambda inputs: inputs.update(tokens="x"),
    "a pool that is a number": lambda inputs: inputs.update(pool=0.5),
}


@pytest.mark.parametrize("case", LOCKS)
def test_a_lock_of_another_form_is_reported_where_a_dataset_is_cut(
    copy: Path, cut: Path, case: str
) -> None:
    lock = json.loads((copy / "lock.json").read_text())
    LOCKS[case](lock["inputs"])
    (copy / "lock.json").write_text(json.dumps(lock))
    sealed(copy)
    with pytest.raises(RunFailure, match=r"lock\.json"):
        recut(copy, cut, copy.parent / "recut")


def test_thresholds_of_another_form_are_reported_where_nothing_is_left_to_cut(copy: Path) -> None:
    nothing = copy.parent / "nothing.yaml"
    nothing.write_text("{}")
    assert recut(copy, nothing, in_place=True).changed == ()
    (copy / "thresholds.json").write_text("[]")
    with pytest.raises(RunFailure, match=r"thresholds\.json: is damaged"):
        recut(copy, nothing, in_place=True)
    (copy / "thresholds.json").unlink()
    with pytest.raises(RunFailure, match=r"thresholds\.json: is missing"):
        recut(copy, nothing, in_place=True)
