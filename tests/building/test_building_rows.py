"""A set of rows of a pool: screened, stored, verified, gone on with, cut again, made again and published like any."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
from PIL import Image

import warm
from counterfoil.building import build
from counterfoil.calibration.recut_dataset import recut
from counterfoil.errors import CounterfoilError, RunFailure, UserError
from counterfoil.evaluation import evaluate
from counterfoil.lab.wardrobe import load_wardrobe
from counterfoil.recipe import load_recipe
from counterfoil.regeneration.regenerate_dataset import regenerate
from counterfoil.store.reading import read_receipts, read_rows, read_shard
from counterfoil.store.rows import TableForm
from counterfoil.verification import verify
from loopback_hub import LoopbackHub, Reader, client_environment
from tiny_builds import CLASSES, command, killed, published

REPO = "someone/rows"
# Labels of the wardrobe go round: row r is of class r % 10.
ROWS = (
    "generator={kind: rows, model: null, steps: null, guidance: null, size: null, scheduler: null, batch_size: 4,"
    " rows: {base: {'00': [0, 10, 20], '05': [5, 15], '08': [8]}, red: {'00': [30, 40], '08': [18, 28, 38, 48, 58]}}}"
)
SETTINGS = (
    CLASSES,
    "tokens=null",
    "prompts.shifts={}",
    "prompts.shifts.red={prompt: 'a red {class}', caption: 'something red', kind: colour}",
    "screen={model: lab:clip, object_threshold: -1, shift_threshold: -1}",
    "samples={candidates: 4, seed: 0, noise: independent}",
    "output={format: parquet, rows_per_shard: 4}",
)


def rows_build(out: Path, *changes: str, **options: Any) -> None:
    build("wardrobe-mini", out, overrides=[*SETTINGS, ROWS, *changes], device="cpu", workers=1, **options)


@pytest.fixture(scope="module")
def chosen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("rows") / "dataset"
    rows_build(out)
    return out


def rows_of(directory: Path, *columns: str) -> list[dict[str, Any]]:
    form = TableForm.of(load_recipe(directory))
    names = ["key", "shift", "class_id", "index", "source_row", *columns]
    return [row for receipt in read_receipts(directory) for row in read_shard(directory, receipt, names, "data", form)]


def test_each_sample_is_the_row_that_the_recipe_says(chosen: Path) -> None:
    found = {(row["shift"], row["class_id"], row["index"]): row["source_row"] for row in rows_of(chosen)}
    assert found == {
        **{("base", "00", index): row for index, row in enumerate([0, 10, 20])},
        **{("base", "05", index): row for index, row in enumerate([5, 15])},
        ("base", "08", 0): 8,
        **{("red", "00", index): row for index, row in enumerate([30, 40])},
        # At most four candidates a cell.
        **{("red", "08", index): row for index, row in enumerate([18, 28, 38, 48])},
    }


def test_the_images_are_the_pools(chosen: Path) -> None:
    _, pixels = load_wardrobe("train")
    for row in rows_of(chosen, "image"):
        image = np.asarray(Image.open(io.BytesIO(row["image"]["bytes"])))
        assert np.array_equal(image, pixels(row["source_row"]))


def test_it_is_whole_and_the_same_again(chosen: Path, tmp_path: Path) -> None:
    assert verify(chosen).problems == ()

    settings = [word for change in (*SETTINGS, ROWS) for word in ("--set", change)]
    out = str(tmp_path / "again")
    arguments = ["build", "wardrobe-mini", "--out", out, "--workers", "1", "--device", "cpu", *settings]
    killed(arguments, tmp_path / "again", 2)
    rows_build(tmp_path / "again")
    assert published(tmp_path / "again") == published(chosen)
    regenerate(chosen, tmp_path / "regenerated", device="cpu", workers=1)
    assert published(tmp_path / "regenerated") == published(chosen)


def test_other_rows_are_another_plan(chosen: Path) -> None:
    with pytest.raises(UserError, match="rows"):
        rows_build(chosen, "generator.rows.red.00=[30]")


def test_a_changed_file_of_rows_is_seen(chosen: Path, tmp_path: Path) -> None:
    rows_build(tmp_path / "changed")
    file = tmp_path / "changed" / "rows.csv"
    file.write_text(file.read_text().replace("base,00,0\n", "base,00,50\n"))
    assert {problem.path for problem in verify(tmp_path / "changed").problems} >= {"rows.csv"}


def test_it_is_cut_again(chosen: Path, tmp_path: Path) -> None:
    scores = sorted(row["shift_score"] for row in read_rows(chosen, columns=["shift_score"]) if row["shift_score"])
    middle = scores[len(scores) // 2]
    (tmp_path / "cut.yaml").write_text(f"prompts: {{shifts: {{red: {{threshold: {middle!r}}}}}}}\n")
    recut(chosen, tmp_path / "cut.yaml", tmp_path / "cut")
    rows_build(tmp_path / "fresh", f"prompts.shifts.red.threshold={middle!r}")
    assert published(tmp_path / "cut") == published(tmp_path / "fresh")


def test_rows_may_stand_in_a_file(chosen: Path, tmp_path: Path) -> None:
    table = load_recipe(chosen).generator.rows
    assert table is not None
    lines = [f"{shift},{cls},{row}" for shift, cells in table.items() for cls, own in cells.items() for row in own]
    (tmp_path / "mine.csv").write_text("\n".join(["shift,class_id,row", *lines]) + "\n")
    in_file = ROWS[: ROWS.index("rows: {base")] + f"rows: {tmp_path / 'mine.csv'}}}"
    settings = [*SETTINGS, in_file]
    build("wardrobe-mini", tmp_path / "out", overrides=settings, device="cpu", workers=1)
    assert published(tmp_path / "out") == published(chosen)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("generator.rows.base.00=[1]", "row 1 of lab:wardrobe, split train has the label of another class"),
        ("generator.rows.base.00=[990000]", "found row 990000, and lab:wardrobe, split train has"),
        ("generator.rows.rde={'00': [0]}", "found 'rde', expected base or a shift; did you mean 'red'"),
        ("generator.rows.base.07=[7]", "found '07', expected a class of the shift"),
        ("generator.rows.base.00=[0, 0]", "found a row again, expected each once"),
        ("generator.rows.base.00=[-1]", "found -1, expected rows from 0"),
        ("samples.noise=paired", "rows of a pool share no noise, expected independent"),
        ("generator.guidance=3", "found guidance, expected none with kind rows"),
        ("generator.rows=null", "missing rows, which kind rows needs"),
        ("generator.rows=./nowhere.csv", "No such file"),
        ("generator.license_column=license", "has no column 'license'"),
    ],
)
def test_what_cannot_be_taken_is_told_before_anything_is_written(change: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(CounterfoilError) as refused:
        rows_build(tmp_path / "out", change)
    assert told in "\n".join(refused.value.problems)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "content", [b"", b"a,b\n", b"shift,class_id,row\nbase,00\n", b"shift,class_id,row\nbase,00,x\n", b"\xff"]
)
def test_a_file_that_is_no_table_of_rows_is_told(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes(content)
    with pytest.raises(UserError, match=r"rows\.csv"):
        rows_build(tmp_path / "out", f"generator.rows={tmp_path / 'rows.csv'}")


def test_a_pool_of_ones_own_with_licences(tmp_path: Path) -> None:
    """Any folder of images and labels, matched by name; images keep the sizes that they have."""
    rng = np.random.default_rng(0)
    pictures = [Image.fromarray(rng.integers(0, 256, (20 + n, 30, 3), dtype=np.uint8)) for n in range(4)]
    names = datasets.ClassLabel(names=["sandal", "bag", "t-shirt"])
    table = datasets.Dataset.from_dict(
        {"image": pictures, "label": [2, 2, 0, 1], "terms": ["cc0", None, "cc-by-4.0", "mit"]},
        features=datasets.Features({"image": datasets.Image(), "label": names, "terms": datasets.Value("string")}),
    )
    table.save_to_disk(str(tmp_path / "pool"))
    own = f"generator.dataset={tmp_path / 'pool'}"
    rows = "generator.rows={base: {'00': [0, 1], '05': [2], '08': [3]}}"
    rows_build(tmp_path / "out", "generator.rows=null", own, rows, "generator.license_column=terms")
    found = {row["source_row"]: row for row in rows_of(tmp_path / "out", "license", "image")}
    assert [found[row]["license"] for row in range(4)] == ["cc0", None, "cc-by-4.0", "mit"]
    assert Image.open(io.BytesIO(found[3]["image"]["bytes"])).size == (30, 23)
    assert verify(tmp_path / "out").problems == ()
    assert str(tmp_path) not in (tmp_path / "out" / "recipe.yaml").read_text()
    # The pool must be as it is pinned.
    (tmp_path / "pool" / "state.json").write_text((tmp_path / "pool" / "state.json").read_text() + " ")
    with pytest.raises((UserError, RunFailure)):
        regenerate(tmp_path / "out", tmp_path / "again", overrides=[own], device="cpu", workers=1)


def test_it_is_evaluated_and_published(chosen: Path, loopback: LoopbackHub, tmp_path: Path) -> None:
    found = evaluate(chosen, ["lab:resnet10t"], out=tmp_path / "report", device="cpu", min_images_per_class=1)
    assert not found.results.paired
    words, environment = command("publish", str(chosen), REPO, "--yes")
    there = client_environment(loopback, tmp_path / "home", inherited=environment)
    warm.run(words, there, check=True)
    with Reader(loopback, tmp_path / "reader") as reader:
        splits = reader.rows(REPO, columns=["key", "source_row"])
    read = {row["key"]: row["source_row"] for rows in splits.values() for row in rows}
    assert read == {row["key"]: row["source_row"] for row in rows_of(chosen)}
