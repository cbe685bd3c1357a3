"""Rows have a version: a dataset that an older release built is read, resumed and built again as it
is."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from counterfoil.building.build_dataset import build
from counterfoil.building.regenerate_dataset import regenerate
from counterfoil.dataset.verification import verify
from counterfoil.documents import document_bytes
from counterfoil.errors import UserError
from counterfoil.evaluation.dataset import open_dataset
from counterfoil.recipe import load_recipe
from counterfoil.recipe.keep.rule import EVERY_ROWS, NEWEST_ROWS
from counterfoil.store.rows import LAST_COLUMNS, ROW_COLUMNS, TableForm, table_columns
from support.built_rows import table_rows
from support.recipes import problems
from tiny_builds import CLASSES

SETTINGS = (
    CLASSES,
    "samples={candidates: 2, seed: 0}",
    "prompts.shifts={}",
    "prompts.shifts.fog={corruption: fog, severity: 5}",
    "output={format: parquet, rows_per_shard: 6}",
)


def built(out: Path, *changes: str) -> Path:
    build("wardrobe-corrupt", out, overrides=[*SETTINGS, *changes], device="cpu", workers=1)
    return out


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a dataset as the first releases built it: rows without units, and a recipe without a
    version of rows."""
    return built(tmp_path_factory.mktemp("first") / "dataset", "output.row_version=1")


def columns(directory: Path) -> Sequence[str]:
    import pyarrow.parquet as pq

    return pq.read_schema(next((directory / "data").rglob("*.parquet"))).names


def test_a_dataset_of_the_first_version_names_none_and_is_sound(first: Path) -> None:
    assert (
        "row_version" not in (first / "recipe.yaml").read_text() + (first / "lock.json").read_text()
    )
    assert "unit" not in columns(first)
    assert not verify(first).problems
    assert open_dataset(first).recipe.row_version == 1


def test_it_is_resumed_and_built_again_in_its_version(first: Path, tmp_path: Path) -> None:
    halted = shutil.copytree(first, tmp_path / "dataset")
    for receipt in (halted / "receipts").glob("fog-*"):
        receipt.unlink()
    built(halted)
    regenerate(first, tmp_path / "again" / "dataset", device="cpu", workers=1)
    for directory in (halted, tmp_path / "again" / "dataset"):
        assert (directory / "manifest.json").read_bytes() == (first / "manifest.json").read_bytes()


def test_new_builds_have_the_newest_version_and_keep_it(tmp_path: Path) -> None:
    dataset = built(tmp_path / "dataset")
    assert json.loads((dataset / "lock.json").read_text())["plan"]["row_version"] == NEWEST_ROWS
    assert load_recipe(dataset).row_version == NEWEST_ROWS
    assert {type(row["unit"]) for row in table_rows(dataset, "unit")} == {int}
    assert problems(
        build,
        "wardrobe-corrupt",
        dataset,
        overrides=[*SETTINGS, "output.row_version=1"],
        device="cpu",
    )


def test_rows_of_a_newer_release_are_refused(first: Path, tmp_path: Path) -> None:
    dataset = shutil.copytree(first, tmp_path / "dataset")
    recipe = dataset / "recipe.yaml"
    recipe.write_text(
        recipe.read_text().replace("\noutput:\n", f"\noutput:\n  row_version: {NEWEST_ROWS + 1}\n")
    )
    with pytest.raises(UserError, match="need a newer Counterfoil"):
        load_recipe(dataset)


@pytest.mark.parametrize("version", [0, -1, NEWEST_ROWS + 1, "2", None, [2], 1.5, True])
def test_a_strange_version_in_a_lock_changes_no_recipe(version: object) -> None:
    recipe = load_recipe("wardrobe-corrupt")
    assert recipe.with_rows(
        json.loads(document_bytes({"version": version}))["version"]
    ).row_version in (1, NEWEST_ROWS)


def test_columns_of_every_row_come_with_a_version() -> None:
    assert (
        max(column.since for column in {**ROW_COLUMNS, **LAST_COLUMNS}.values())
        == EVERY_ROWS
        <= NEWEST_ROWS
    )


def test_a_later_column_is_not_expected_of_earlier_rows(
    first: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ROW_COLUMNS, "later", replace(ROW_COLUMNS["seed"], since=NEWEST_ROWS))
    assert "later" in table_columns("candidates", TableForm())
    assert not verify(first).problems
