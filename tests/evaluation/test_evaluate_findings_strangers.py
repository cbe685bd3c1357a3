"""Candidates of a stranger are counted without trust: their receipts', the plan's, and agreeing with the images."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_evaluate_run import hub_cache

from counterfoil.errors import RunFailure
from counterfoil.evaluation import evaluate
from loopback_hub import LoopbackHub, client
from mined_colours import ALL_STORED, PICKED, build_mined


@pytest.fixture(scope="module")
def whole(models: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_mined(tmp_path_factory.mktemp("whole") / "colours", models["sharp"], PICKED, ALL_STORED)


@pytest.fixture
def dataset(whole: Path, tmp_path: Path) -> Path:
    return shutil.copytree(whole, tmp_path / "stranger")


def rewrite(dataset: Path, what: str, change: Callable[[pa.Table], pa.Table], restated: bool = True) -> None:
    """The first shard's table with other rows; its receipt says so, as whoever forges one would have it."""
    path = min((dataset / what / "swap").iterdir())
    table = change(pq.read_table(path))
    pq.write_table(table, path)
    if not restated:
        return
    receipt = min((dataset / "receipts").glob("swap-*.json"))
    document = json.loads(receipt.read_text())
    for file in document["files"]:
        if dataset / file["path"] == path:
            content = path.read_bytes()
            file.update(size=len(content), sha256=hashlib.sha256(content).hexdigest(), rows=table.num_rows)
    receipt.write_text(json.dumps(document))


def with_value(name: str, row: int, value: object) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        values = table[name].to_pylist()
        values[row] = value
        at = table.schema.get_field_index(name)
        return table.set_column(at, table.schema.field(name), pa.array(values, table.schema.field(name).type))

    return change


def twice(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table, table.slice(1, 1)])


@pytest.mark.parametrize("what", ["candidates", "rejected"])
def test_tables_that_are_not_their_receipts_are_refused(
    what: str, dataset: Path, models: dict[str, str], tmp_path: Path
) -> None:
    rewrite(dataset, what, lambda table: table.slice(1), restated=False)
    with pytest.raises(RunFailure, match=rf"{what}/swap/.* is not as its receipt says"):
        evaluate(dataset, [models["sharp"]], device="cpu", out=tmp_path / "out")
    min((dataset / what / "swap").iterdir()).unlink()
    with pytest.raises(RunFailure, match=rf"{what}/swap/.* is missing"):
        evaluate(dataset, [models["sharp"]], device="cpu", out=tmp_path / "out")


# Row 1 is accepted, row 5 answered right, row 0 dropped by the screen.
FORGED: dict[str, tuple[str, Callable[[pa.Table], pa.Table], str]] = {
    "another key": ("candidates", with_value("key", 5, "x"), "no sample of its shard"),
    "another index": ("candidates", with_value("index", 5, 999), "no sample of its shard"),
    "twice": ("candidates", twice, "more than once"),
    "another reason": ("candidates", with_value("reason", 5, "odd"), "not those that its receipts count"),
    "accepted in word": ("candidates", with_value("reason", 5, "accepted"), "which data does not have"),
    "accepted in deed": ("candidates", with_value("reason", 1, "answered_right"), "rejected does not hold each image"),
    "an image less": (
        "rejected",
        lambda table: table.slice(0, table.num_rows - 2),
        "rejected does not hold each image",
    ),
    "an image twice": ("rejected", lambda table: pa.concat_tables([table, table]), "rejected does not hold each image"),
}


@pytest.mark.parametrize("case", FORGED)
def test_forged_rows_are_told_and_never_counted(
    case: str, dataset: Path, models: dict[str, str], tmp_path: Path
) -> None:
    what, change, told = FORGED[case]
    rewrite(dataset, what, change)
    with pytest.raises(RunFailure, match=told):
        evaluate(dataset, [models["sharp"]], device="cpu", out=tmp_path / "out")


def test_an_image_that_candidates_do_not_accept_is_told(models: dict[str, str], tmp_path: Path) -> None:
    dataset = build_mined(tmp_path / "bare", models["sharp"], PICKED)
    rewrite(dataset, "candidates", with_value("reason", 1, "answered_right"))
    with pytest.raises(RunFailure, match="which candidates of swap do not accept"):
        evaluate(dataset, [models["sharp"]], device="cpu", out=tmp_path / "out")


def test_an_image_that_cannot_be_decoded_is_left_out(dataset: Path, models: dict[str, str], tmp_path: Path) -> None:
    def broken(table: pa.Table) -> pa.Table:
        rows = table["image"].to_pylist()
        place = table["reason"].to_pylist().index("answered_right")
        rows[place] = {**rows[place], "bytes": b"no image"}
        at = table.schema.get_field_index("image")
        return table.set_column(at, table.schema.field("image"), pa.array(rows, table.schema.field("image").type))

    rewrite(dataset, "rejected", broken)
    found = evaluate(dataset, [models["sharp"]], device="cpu", out=tmp_path / "out")
    [finding] = found.findings
    [rate] = found.results.rows.where("failure_rate")
    assert (finding.screened, rate.n, finding.models[0].failures) == (30, 29, 9)


def test_a_published_dataset_has_the_same_findings(
    whole: Path, models: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    hub_cache(tmp_path / "hub", whole, "someone/colours")
    here = evaluate(whole, [models["sharp"]], device="cpu", out=tmp_path / "out").findings
    assert evaluate("someone/colours", [models["sharp"]], device="cpu").findings == here


def test_of_a_dataset_on_the_hub_candidates_are_fetched_where_they_are_counted(
    whole: Path, models: dict[str, str], loopback: LoopbackHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = client(loopback)
    api.create_repo("someone/mined", repo_type="dataset")
    mine = [".counterfoil/*"]
    api.upload_folder(repo_id="someone/mined", repo_type="dataset", folder_path=whole, ignore_patterns=mine)
    resolved = f"{loopback.endpoint}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", loopback.endpoint)
    monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", resolved)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = evaluate("someone/mined", [models["sharp"]], device="cpu")
    [model] = found.findings[0].models
    [rate] = found.results.rows.where("failure_rate")
    assert (model.measured_on, rate.n, model.failures) == ("images", 30, 9)
    fetched = {path.name for path in (tmp_path / "hub").glob("datasets--*/snapshots/*/candidates/*")}
    assert fetched == {"swap"}, "and nothing of shifts that were not mined"
