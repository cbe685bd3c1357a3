"""A dataset of a stranger is scored without trust: it runs no code, names no file here, and rows are its receipts'."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from colour_world import build_colours, save_colour_model
from counterfoil.errors import CounterfoilError, RunFailure, UserError
from counterfoil.evaluation import evaluate
from counterfoil.store.manifest import write_manifest
from support.files import Payload


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    return build_colours(tmp_path / "stranger")


def with_models(dataset: Path, *names: str) -> None:
    recipe = dataset / "recipe.yaml"
    text = recipe.read_text()
    assert "models: []" in text
    recipe.write_text(text.replace("models: []", f"models: {json.dumps(names)}"))
    write_manifest(dataset, {})  # a stranger seals what it brings


def bring_pickle(folder: Path, place: Path) -> None:
    """A timm model's folder whose weights are a pickle that does something."""
    save_colour_model(folder)
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Payload(place)))


@pytest.mark.parametrize("name", ["local-dir:./evil", "local-dir:evil", "./evil", "evil", "hf-hub:stranger/evil"])
def test_code_that_a_dataset_brings_never_runs(
    dataset: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # else its client waits for a Hub
    bring_pickle(dataset / "evil", tmp_path / "ran")
    with_models(dataset, name)
    monkeypatch.chdir(dataset)  # where a relative name would lead to it
    with pytest.raises(CounterfoilError):
        evaluate(dataset, device="cpu", out=tmp_path / "out")
    assert not (tmp_path / "ran").exists()


def test_the_person_at_the_keyboard_may_name_a_folder_and_its_pickle_does_not_run_either(
    dataset: Path, tmp_path: Path, models: dict[str, str]
) -> None:
    bring_pickle(tmp_path / "evil", tmp_path / "ran")
    with pytest.raises(CounterfoilError):
        evaluate(dataset, [f"local-dir:{tmp_path / 'evil'}"], device="cpu", out=tmp_path / "out")
    assert not (tmp_path / "ran").exists()
    assert evaluate(dataset, [models["sharp"]], device="cpu", out=tmp_path / "out").models


@pytest.mark.parametrize("name", ["local-dir:./mine", "transformers:./mine", "open_clip:local-dir:./mine"])
def test_a_folder_in_its_recipe_is_one_of_another_machine(dataset: Path, tmp_path: Path, name: str) -> None:
    with_models(dataset, name)
    with pytest.raises(UserError, match=rf"'{name}' is a folder of the machine that the dataset was built on"):
        evaluate(dataset, device="cpu", out=tmp_path / "out")


def test_a_file_in_its_recipe_is_not_opened(dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "answers.csv").write_text("key,label\n")
    monkeypatch.chdir(tmp_path)
    with_models(dataset, "predictions:answers.csv")
    with pytest.raises(UserError, match="is a folder of the machine that the dataset was built on"):
        evaluate(dataset, device="cpu", out=tmp_path / "out")


def shard(dataset: Path) -> Path:
    return min((dataset / "data" / "swap").iterdir())


def restate(dataset: Path, path: Path) -> None:
    """Make the receipt say what the file is now, as whoever forges one would."""
    receipt = min((dataset / "receipts").glob("swap-*.json"))
    document = json.loads(receipt.read_text())
    for file in document["files"]:
        if dataset / file["path"] == path:
            content = path.read_bytes()
            rows = pq.read_metadata(path).num_rows
            file.update(size=len(content), sha256=hashlib.sha256(content).hexdigest(), rows=rows)
    receipt.write_text(json.dumps(document))


def test_data_that_is_not_its_receipts_is_refused(dataset: Path, tmp_path: Path, models: dict[str, str]) -> None:
    pq.write_table(pq.read_table(shard(dataset)).slice(1), shard(dataset))
    with pytest.raises(RunFailure, match=r"swap/.* is not as its receipt says"):
        evaluate(dataset, [models["sharp"]], device="cpu", out=tmp_path / "out")
    shard(dataset).unlink()
    with pytest.raises(RunFailure, match=r"swap/.* is missing"):
        evaluate(dataset, [models["sharp"]], device="cpu", out=tmp_path / "out")


def test_a_table_in_no_receipt_is_refused(dataset: Path, tmp_path: Path, models: dict[str, str]) -> None:
    (dataset / "data" / "swap" / "more.parquet").write_bytes(shard(dataset).read_bytes())
    with pytest.raises(RunFailure, match=r"more\.parquet is in no receipt"):
        evaluate(dataset, [models["sharp"]], device="cpu", out=tmp_path / "out")


def with_column(table: pa.Table, name: str, values: list) -> pa.Table:
    at = table.schema.get_field_index(name)
    return table.set_column(at, name, pa.array(values, table.schema.field(name).type))


def first(name: str, value: object) -> Callable[[pa.Table], pa.Table]:
    """The table with another value in the first row of a column."""
    return lambda table: with_column(table, name, [value, *table[name].to_pylist()[1:]])


FORGED: dict[str, tuple[Callable[[pa.Table], pa.Table], str]] = {
    "no label": (first("label", None), "label is empty in a row"),
    "label": (first("label", 7), "labels that recipe.yaml"),
    "shift": (first("shift", "noon"), "shifts that recipe.yaml"),
    "key": (first("key", "x"), "a row 'x' that the recipe does not have"),
    "other class": (first("label", 1), "that the recipe does not have"),
    "twice": (lambda table: pa.concat_tables([table, table.slice(0, 1)]), "more than once"),
}


@pytest.mark.parametrize("case", FORGED)
def test_rows_with_a_forged_receipt_must_be_the_recipes(
    dataset: Path, tmp_path: Path, models: dict[str, str], case: str
) -> None:
    change, expected = FORGED[case]
    pq.write_table(change(pq.read_table(shard(dataset))), shard(dataset))
    restate(dataset, shard(dataset))
    with pytest.raises(CounterfoilError, match=expected):
        evaluate(dataset, [models["sharp"]], device="cpu", out=tmp_path / "out")


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_links_and_pipes_are_refused(dataset: Path, tmp_path: Path, models: dict[str, str], kind: str) -> None:
    (tmp_path / "secret").mkdir()
    match kind:
        case "link":
            content = shard(dataset).read_bytes()
            (tmp_path / "secret" / "file").write_bytes(content)
            shard_path = shard(dataset)
            shard_path.unlink()
            shard_path.symlink_to(tmp_path / "secret" / "file")
        case "pipe":
            shard_path = shard(dataset)
            shard_path.unlink()
            os.mkfifo(shard_path)
        case "folder":
            (dataset / "data").rename(tmp_path / "secret" / "data")
            (dataset / "data").symlink_to(tmp_path / "secret" / "data")
    with pytest.raises(RunFailure, match="expected a regular file of the dataset"):
        evaluate(dataset, [models["sharp"]], device="cpu", out=tmp_path / "out")
